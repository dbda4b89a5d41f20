//! I/O buffers: aligned memory that is recycled, never handed back per I/O.
//!
//! A first-touched page costs 1.4–10 µs, as much as the I/O it serves; so each executor keeps an [`Arena`]
//! of power-of-two buffers from 4 KiB to 32 MiB. A [`BufMut`] has one owner and can be written; frozen, it
//! is a [`Buf`]: shared, sliceable, immutable. Memory goes back to the arena with the last slice.
//!
//! Buffers of one size are cut from regions. An arena that serves real disks takes regions of 2 MiB in one huge page each:
//! data that is not in a processor cache is otherwise read at the speed of page-table walks (checksums over 1 MiB of it
//! took 170 to 260 µs and take 100 to 150), and the ring has the kernel look each of them up once ([`Registry`]) where direct I/O
//! would for every request. Elsewhere a region is one buffer. A region whose buffers are all free is kept while less than [`FREE_BYTES_MAX`] is.
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
/// Free memory kept by one arena, enough for a queue of 64 requests of 1 MiB in each direction; regions that come back
/// whole beyond it go to the system.
const FREE_BYTES_MAX: usize = 128 << 20;
/// What one entry of the second-level page table maps, on x86-64 and on arm64 with pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;

/// Recycles buffers on one executor.
#[derive(Clone)]
pub struct Arena(Rc<Shelves>);

/// Whoever wants to know of regions in huge pages: a ring that has the kernel look their pages up once.
pub(crate) trait Registry {
    /// A region that will stay until it is given up; its number there, if it gets one.
    fn register(&self, memory: NonNull<u8>, len: usize) -> Option<u16>;
    fn give_up(&self, number: u16);
}

struct Shelves {
    huge_pages: bool,
    registry: Option<Rc<dyn Registry>>,
    /// Regions with a free buffer, by class; the last one serves.
    shelves: [RefCell<Vec<Rc<Region>>>; CLASSES],
    bytes_free: Cell<usize>,
    bytes_out: Cell<usize>,
}

/// Memory for buffers of one class.
struct Region {
    memory: NonNull<u8>,
    layout: Layout,
    class: usize,
    /// Free buffers by number; the one that came back last goes out first: it may still be in a processor cache.
    free: RefCell<Vec<u16>>,
    home: Weak<Shelves>,
    registered: Option<(u16, Rc<dyn Registry>)>,
}

/// One buffer's memory.
struct Slab {
    region: Rc<Region>,
    number: u16,
    memory: NonNull<u8>,
}

impl Region {
    fn new(class: usize, shelves: &Rc<Shelves>) -> Region {
        let bytes = ALIGN << class;
        let (size, align) =
            if shelves.huge_pages { (bytes.max(HUGE_PAGE), HUGE_PAGE) } else { (bytes, ALIGN) };
        let layout = Layout::from_size_align(size, align).expect("powers of two below 2^32");
        let memory = if shelves.huge_pages { map(layout) } else { allocate(layout) };
        let free = RefCell::new((0..(size / bytes) as u16).rev().collect());
        // Registering touches all of it, which a single huge page is anyway.
        let registered =
            shelves.registry.as_ref().filter(|_| size == HUGE_PAGE).and_then(|registry| {
                registry.register(memory, size).map(|number| (number, registry.clone()))
            });
        Region { memory, layout, class, free, home: Rc::downgrade(shelves), registered }
    }

    fn number(&self, registry: &dyn Registry) -> Option<u16> {
        let (number, its_registry) = self.registered.as_ref()?;
        std::ptr::addr_eq(Rc::as_ptr(its_registry), registry).then_some(*number)
    }

    fn buffers(&self) -> usize {
        self.layout.size() >> self.class >> CLASS_MIN_SHIFT
    }
}

/// Zeroed memory from the allocator.
fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout has a non-zero size.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Zeroed memory in huge pages where the kernel has them, aligned to one. (The allocator would touch each small page before
/// the kernel is told.)
fn map(layout: Layout) -> NonNull<u8> {
    let (size, slack) = (layout.size(), layout.align());
    // SAFETY: a new private mapping; what is unmapped is the part of it that lies outside the aligned range, and the advice
    // changes no contents.
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let start = libc::mmap(std::ptr::null_mut(), size + slack, access, kind, -1, 0);
        if start == libc::MAP_FAILED {
            handle_alloc_error(layout);
        }
        let before = start.align_offset(slack);
        let memory = start.byte_add(before);
        if before > 0 {
            libc::munmap(start, before);
        }
        if before < slack {
            libc::munmap(memory.byte_add(size), slack - before);
        }
        libc::madvise(memory, size, libc::MADV_HUGEPAGE);
        NonNull::new(memory.cast()).expect("a mapping is not at address 0")
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some((number, registry)) = &self.registered {
            registry.give_up(*number);
        }
        // SAFETY: made by `map` or by `allocate` with this layout, as its alignment tells, and every buffer is back.
        unsafe {
            if self.layout.align() == HUGE_PAGE {
                libc::munmap(self.memory.as_ptr().cast(), self.layout.size());
            } else {
                dealloc(self.memory.as_ptr(), self.layout);
            }
        }
    }
}

impl Arena {
    /// An arena for buffers that no device sees.
    pub fn new() -> Arena {
        Arena::with(false, None)
    }

    /// An arena in huge pages: for real devices.
    pub fn huge() -> Arena {
        Arena::with(true, None)
    }

    /// An arena in huge pages that a registry knows.
    pub(crate) fn registered(registry: Rc<dyn Registry>) -> Arena {
        Arena::with(true, Some(registry))
    }

    fn with(huge_pages: bool, registry: Option<Rc<dyn Registry>>) -> Arena {
        Arena(Rc::new(Shelves {
            huge_pages,
            registry,
            shelves: Default::default(),
            bytes_free: Cell::new(0),
            bytes_out: Cell::new(0),
        }))
    }

    /// A buffer of `len` bytes with unspecified (recycled) contents. Panics beyond [`BUFFER_MAX`].
    pub fn take(&self, len: usize) -> BufMut {
        assert!(len <= BUFFER_MAX, "a buffer of {len} bytes was asked for, at most {BUFFER_MAX} exist");
        let class =
            (len.max(1).next_power_of_two().trailing_zeros().max(CLASS_MIN_SHIFT) - CLASS_MIN_SHIFT) as usize;
        let bytes = ALIGN << class;
        let mut shelf = self.0.shelves[class].borrow_mut();
        if shelf.is_empty() {
            let region = Region::new(class, &self.0);
            self.0.bytes_free.set(self.0.bytes_free.get() + region.layout.size());
            shelf.push(Rc::new(region));
        }
        let region = shelf.last().expect("one was just pushed").clone();
        let (number, rest) = {
            let mut free = region.free.borrow_mut();
            (free.pop().expect("regions on the shelf have a free buffer"), free.len())
        };
        if rest == 0 {
            shelf.pop();
        }
        self.0.bytes_free.set(self.0.bytes_free.get() - bytes);
        self.0.bytes_out.set(self.0.bytes_out.get() + bytes);
        // SAFETY: the number is below the region's number of buffers of this size.
        let memory = unsafe { region.memory.add(usize::from(number) * bytes) };
        BufMut { slab: Slab { region, number, memory }, len }
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

impl Slab {
    fn bytes(&self) -> usize {
        ALIGN << self.region.class
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let region = &self.region;
        let mut free = region.free.borrow_mut();
        free.push(self.number);
        // Without its arena, the region goes with its last buffer.
        let Some(home) = region.home.upgrade() else { return };
        home.bytes_out.set(home.bytes_out.get() - self.bytes());
        home.bytes_free.set(home.bytes_free.get() + self.bytes());
        let mut shelf = home.shelves[region.class].borrow_mut();
        if free.len() == 1 {
            shelf.push(region.clone());
        }
        if free.len() == region.buffers() && home.bytes_free.get() > FREE_BYTES_MAX {
            home.bytes_free.set(home.bytes_free.get() - region.layout.size());
            let place = shelf.iter().rposition(|other| Rc::ptr_eq(other, region));
            shelf.swap_remove(place.expect("regions with a free buffer are on the shelf"));
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
        self.slab.bytes()
    }

    /// Makes the visible part `len` bytes, up to the capacity; new bytes are unspecified (recycled).
    pub fn resize(&mut self, len: usize) {
        assert!(len <= self.capacity(), "resize to {len} beyond the capacity {}", self.capacity());
        self.len = len;
    }

    /// The number of its region with this registry, if it has one there.
    pub(crate) fn number(&self, registry: &dyn Registry) -> Option<u16> {
        self.slab.region.number(registry)
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

    /// The number of its region with this registry, if it has one there.
    pub(crate) fn number(&self, registry: &dyn Registry) -> Option<u16> {
        self.slab.region.number(registry)
    }

    /// Bytes of memory that this slice keeps alive.
    pub fn footprint(&self) -> usize {
        self.slab.bytes()
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
        [Arena::new(), Arena::huge()].into_iter().for_each(recycle);
    }

    fn recycle(arena: Arena) {
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
        [Arena::new(), Arena::huge()].into_iter().for_each(bound);
    }

    fn bound(arena: Arena) {
        for class in 0..CLASSES {
            let count = (FREE_BYTES_MAX >> 1) / (ALIGN << class);
            let buffers: Vec<_> = (0..count.min(40)).map(|_| arena.take(ALIGN << class)).collect();
            drop(buffers);
            assert!(arena.bytes_free() <= FREE_BYTES_MAX, "{} bytes", arena.bytes_free());
        }
        assert_eq!(arena.bytes_out(), 0);
    }

    #[test]
    fn buffers_of_a_region_are_apart_and_outlive_the_arena() {
        let arena = Arena::huge();
        let mut buffers: Vec<BufMut> = (0..600).map(|_| arena.take(8192)).collect();
        for (n, buffer) in buffers.iter_mut().enumerate() {
            buffer.fill(n as u8);
        }
        assert_eq!(arena.bytes_free() + arena.bytes_out(), 3 * HUGE_PAGE, "256 buffers to a region");
        drop(arena);
        let intact = |(n, buffer): (usize, &BufMut)| buffer.iter().all(|byte| *byte == n as u8);
        assert!(buffers.iter().enumerate().all(intact));
    }

    #[test]
    fn neighbours_join() {
        let buffer = Arena::new().copy(b"abcdef").freeze();
        let (a, b) = (buffer.slice(0, 2), buffer.slice(2, 4));
        assert_eq!(&a.join(&b)[..], b"abcdef");
        assert!(!b.is_followed_by(&a));
    }
}
