//! Buffers that the kernel knows: it looks their pages up once, not for each request.
//!
//! The ring has a table of [`PLACES`] places, empty at first; each region of its arena takes one, if it can: where there
//! is none (all taken; a kernel before 5.19; a limit on locked memory) requests name their memory as ever, and cost what
//! they did. A region gives its place up before its memory goes; requests under way keep their pages until they are complete.
//! A place that cannot be emptied is not used again.

use crate::buffer::Registry;
use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::ptr::NonNull;

/// 2 GiB in regions of 2 MiB; requests on what an executor has beyond that are not faster, that is all.
const PLACES: u16 = 1024;

pub(super) struct Places {
    /// `None` once the ring is gone.
    ring: Cell<Option<RawFd>>,
    free: RefCell<Vec<u16>>,
}

impl Places {
    /// An empty table for the ring, which must say when it goes.
    pub(super) fn new(ring: RawFd) -> Places {
        let request = RegisterRequest { nr: PLACES.into(), flags: SPARSE, ..RegisterRequest::default() };
        // SAFETY: the structure is the one this operation reads.
        let made = unsafe { register(ring, REGISTER_BUFFERS, &raw const request, size_of_val(&request)) };
        let free = if made { (0..PLACES).rev().collect() } else { Vec::new() };
        Places { ring: Cell::new(Some(ring)), free: RefCell::new(free) }
    }

    /// The ring goes, and its table with it.
    pub(super) fn close(&self) {
        self.ring.set(None);
    }

    fn update(&self, place: u16, vector: libc::iovec) -> bool {
        let Some(ring) = self.ring.get() else { return false };
        let request = UpdateRequest {
            offset: place.into(),
            data: (&raw const vector).addr() as u64,
            nr: 1,
            ..UpdateRequest::default()
        };
        // SAFETY: the structure is the one this operation reads, and points to a vector that lives across the call.
        unsafe { register(ring, UPDATE_BUFFERS, &raw const request, size_of_val(&request)) }
    }
}

impl Registry for Places {
    fn register(&self, memory: NonNull<u8>, len: usize) -> Option<u16> {
        let place = self.free.borrow_mut().pop()?;
        let vector = libc::iovec { iov_base: memory.as_ptr().cast(), iov_len: len };
        if self.update(place, vector) {
            return Some(place);
        }
        // The next region would fare no better.
        self.free.borrow_mut().clear();
        None
    }

    fn give_up(&self, place: u16) {
        if self.update(place, libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }) {
            self.free.borrow_mut().push(place);
        }
    }
}

const REGISTER_BUFFERS: libc::c_uint = 15;
const UPDATE_BUFFERS: libc::c_uint = 16;
const SPARSE: u32 = 1 << 0;

/// `io_uring_rsrc_register`.
#[repr(C)]
#[derive(Default)]
struct RegisterRequest {
    nr: u32,
    flags: u32,
    reserved: u64,
    data: u64,
    tags: u64,
}

/// `io_uring_rsrc_update2`.
#[repr(C)]
#[derive(Default)]
struct UpdateRequest {
    offset: u32,
    reserved: u32,
    data: u64,
    tags: u64,
    nr: u32,
    reserved2: u32,
}

/// Whether the kernel did it.
///
/// # Safety
/// `request` is what the operation wants.
unsafe fn register<T>(ring: RawFd, operation: libc::c_uint, request: *const T, size: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_io_uring_register, ring, operation, request, size) >= 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn places_come_to_an_end_and_come_back() {
        let ring = io_uring::IoUring::new(8).expect("io_uring works here");
        let places = Places::new(ring.as_raw_fd());
        let mut page = Box::new([0u64; 512]);
        let memory = NonNull::from(&mut *page).cast();
        let all: Vec<u16> = std::iter::from_fn(|| places.register(memory, 4096)).collect();
        assert_eq!(all, (0..PLACES).collect::<Vec<_>>());
        places.give_up(7);
        assert_eq!((places.register(memory, 4096), places.register(memory, 4096)), (Some(7), None));
        places.give_up(7);
        // Nothing that could be registered: the kernel refuses, and is not asked again.
        assert_eq!(places.register(NonNull::dangling(), 4096), None);
        assert_eq!(places.register(memory, 4096), None);
        places.close();
        places.give_up(8);
        assert_eq!(places.register(memory, 4096), None);
    }
}
