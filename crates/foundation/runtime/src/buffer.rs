//! I/O buffers: aligned memory that is recycled, never handed back per I/O.
//!
//! A first-touched page costs 1.4–10 µs, as much as the I/O it serves; so each executor keeps an [`Arena`]
//! of power-of-two buffers from 4 KiB to 32 MiB. A [`BufMut`] has one owner and can be written; frozen, it
//! is a [`Buf`]: shared, sliceable, immutable. Memory goes back to the arena with the last slice.
//!
//! Everything is aligned to 4 KiB, which satisfies O_DIRECT on every sector size in use.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::{Rc, Weak};

const ALIGN: usize = 4096;
const CLASS_MIN_SHIFT: u32 = 12;
const CLASSES: usize = 14; // 4 KiB << 0 ..= 4 KiB << 13 = 32 MiB
/// The largest buffer, 32 MiB.
pub const BUFFER_MAX: usize = ALIGN << (CLASSES - 1);
/// Free memory kept by one arena, enough for a queue of 64 requests of 1 MiB in each direction; what comes back
/// beyond it goes to the allocator.
const FREE_BYTES_MAX: usize = 128 << 20;

/// Recycles buffers on one executor.
#[derive(Clone)]
pub struct Arena(Rc<Shelves>);

struct Shelves {
    free: [RefCell<Vec<NonNull<u8>>>; CLASSES],
    bytes_free: Cell<usize>,
    bytes_out: Cell<usize>,
}

struct Slab {
    memory: NonNull<u8>,
    class: usize,
    home: Weak<Shelves>,
}

fn layout(class: usize) -> Layout {
    Layout::from_size_align(ALIGN << class, ALIGN).expect("a power of two below 2^32, aligned to 4096")
}

impl Arena {
    pub fn new() -> Arena {
        Arena(Rc::new(Shelves {
            free: Default::default(),
            bytes_free: Cell::new(0),
            bytes_out: Cell::new(0),
        }))
    }

    /// A buffer of `len` bytes with unspecified (recycled) contents. Panics beyond [`BUFFER_MAX`].
    pub fn take(&self, len: usize) -> BufMut {
        assert!(len <= BUFFER_MAX, "a buffer of {len} bytes was asked for, at most {BUFFER_MAX} exist");
        let class =
            (len.max(1).next_power_of_two().trailing_zeros().max(CLASS_MIN_SHIFT) - CLASS_MIN_SHIFT) as usize;
        let recycled = self.0.free[class].borrow_mut().pop();
        if recycled.is_some() {
            self.0.bytes_free.set(self.0.bytes_free.get() - (ALIGN << class));
        }
        let memory = recycled.unwrap_or_else(|| {
            // SAFETY: the layout has a non-zero size.
            let memory = unsafe { alloc_zeroed(layout(class)) };
            NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout(class)))
        });
        self.0.bytes_out.set(self.0.bytes_out.get() + (ALIGN << class));
        BufMut { slab: Slab { memory, class, home: Rc::downgrade(&self.0) }, len }
    }

    /// A buffer of zeros.
    pub fn take_zeroed(&self, len: usize) -> BufMut {
        let mut buffer = self.take(len);
        buffer.fill(0);
        buffer
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy(&self, bytes: &[u8]) -> BufMut {
        let mut buffer = self.take(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Bytes of memory that are kept for the next buffers.
    pub fn bytes_free(&self) -> usize {
        self.0.bytes_free.get()
    }

    /// Bytes of memory that buffers hold at this moment.
    pub fn bytes_out(&self) -> usize {
        self.0.bytes_out.get()
    }
}

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.bytes_out.set(home.bytes_out.get() - (ALIGN << self.class));
            let bytes_free = home.bytes_free.get() + (ALIGN << self.class);
            if bytes_free <= FREE_BYTES_MAX {
                home.bytes_free.set(bytes_free);
                home.free[self.class].borrow_mut().push(self.memory);
                return;
            }
        }
        // SAFETY: allocated by `take` with this layout, and this is its only owner.
        unsafe { dealloc(self.memory.as_ptr(), layout(self.class)) }
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        for (class, free) in self.free.iter_mut().enumerate() {
            for memory in free.get_mut().drain(..) {
                // SAFETY: on the shelf of its class, allocated by `take` with this layout.
                unsafe { dealloc(memory.as_ptr(), layout(class)) }
            }
        }
    }
}

/// A writable buffer with one owner.
pub struct BufMut {
    slab: Slab,
    len: usize,
}

impl BufMut {
    /// Shortens the visible part; the memory stays whole.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Bytes that the memory behind this buffer can hold.
    pub fn capacity(&self) -> usize {
        ALIGN << self.slab.class
    }

    /// Makes the visible part `len` bytes, up to the capacity; new bytes are unspecified (recycled).
    pub fn resize(&mut self, len: usize) {
        assert!(len <= self.capacity(), "resize to {len} beyond the capacity {}", self.capacity());
        self.len = len;
    }

    /// Shared and immutable from here on.
    pub fn freeze(self) -> Buf {
        let len = self.len;
        Buf { slab: Rc::new(self.slab), at: 0, len: len as u32 }
    }
}

impl Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes within the slab, initialised (zeroed at allocation).
        unsafe { std::slice::from_raw_parts(self.slab.memory.as_ptr(), self.len) }
    }
}

impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is the only owner.
        unsafe { std::slice::from_raw_parts_mut(self.slab.memory.as_ptr(), self.len) }
    }
}

/// A shared, immutable slice of a buffer.
#[derive(Clone)]
pub struct Buf {
    slab: Rc<Slab>,
    at: u32,
    len: u32,
}

impl Buf {
    /// The part `from..from + len`. Panics outside the buffer.
    pub fn slice(&self, from: usize, len: usize) -> Buf {
        let end = from.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len as usize), "slice {from}+{len} of {} bytes", self.len);
        Buf { slab: self.slab.clone(), at: self.at + from as u32, len: len as u32 }
    }

    /// Bytes of memory that this slice keeps alive.
    pub fn footprint(&self) -> usize {
        ALIGN << self.slab.class
    }

    /// The memory again as a writable buffer, when no other slice shares it and this one covers its start.
    pub fn try_unfreeze(self) -> Result<BufMut, Buf> {
        let Buf { slab, at, len } = self;
        if at != 0 {
            return Err(Buf { slab, at, len });
        }
        match Rc::try_unwrap(slab) {
            Ok(slab) => Ok(BufMut { slab, len: len as usize }),
            Err(slab) => Err(Buf { slab, at, len }),
        }
    }

    /// Whether `next` follows this slice directly in the same memory.
    pub fn is_followed_by(&self, next: &Buf) -> bool {
        Rc::ptr_eq(&self.slab, &next.slab) && self.at + self.len == next.at
    }

    /// This slice and `next`, which follows it, as one.
    pub fn join(&self, next: &Buf) -> Buf {
        assert!(self.is_followed_by(next), "only neighbours can be joined");
        Buf { slab: self.slab.clone(), at: self.at, len: self.len + next.len }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range was inside the slab when the slice was made, and nobody can write to it.
        unsafe {
            std::slice::from_raw_parts(self.slab.memory.as_ptr().add(self.at as usize), self.len as usize)
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_recycled_and_slices_keep_it_alive() {
        let arena = Arena::new();
        let mut buffer = arena.take(8192);
        buffer[..3].copy_from_slice(b"abc");
        let address = buffer.as_ptr();
        assert_eq!(address as usize % ALIGN, 0);
        let whole = buffer.freeze();
        let slice = whole.slice(1, 2);
        drop(whole);
        assert_eq!(&slice[..], b"bc");
        assert_ne!(arena.take(8192).as_ptr(), address);
        drop(slice);
        assert_eq!(arena.take(5000).as_ptr(), address);
        assert_eq!(arena.bytes_out(), 0);
    }

    #[test]
    #[should_panic(expected = "slice")]
    fn a_slice_whose_end_overflows_is_refused() {
        Arena::new().copy(b"abcdef").freeze().slice(usize::MAX, 2);
    }

    #[test]
    fn free_memory_is_bounded_over_all_sizes() {
        let arena = Arena::new();
        for class in 0..CLASSES {
            let count = (FREE_BYTES_MAX >> 1) / (ALIGN << class);
            let buffers: Vec<_> = (0..count.min(40)).map(|_| arena.take(ALIGN << class)).collect();
            drop(buffers);
            assert!(arena.bytes_free() <= FREE_BYTES_MAX, "{} bytes", arena.bytes_free());
        }
        assert_eq!(arena.bytes_out(), 0);
    }

    #[test]
    fn neighbours_join() {
        let buffer = Arena::new().copy(b"abcdef").freeze();
        let (a, b) = (buffer.slice(0, 2), buffer.slice(2, 4));
        assert_eq!(&a.join(&b)[..], b"abcdef");
        assert!(!b.is_followed_by(&a));
    }
}
