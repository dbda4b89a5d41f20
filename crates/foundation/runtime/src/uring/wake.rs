//! Ending the wait of an executor from another thread, at the price of a system call only when it sleeps.
//!
//! The executor is *awake* (it will look at its queues before it sleeps), *asleep* in the kernel, or
//! *notified* (somebody left work since it last looked). Only a change from asleep to notified writes to the
//! eventfd, which a multishot poll in the ring watches. The eventfd is never read: each write triggers the
//! poll, and its counter lasts for 2^64 writes.

use crate::executor::Unpark;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const NOTIFIED: u8 = 2;

pub(super) struct Alarm {
    state: AtomicU8,
    eventfd: File,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        // SAFETY: no pointers; a result of 0 or more is a new descriptor that nobody else owns.
        let eventfd = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        Ok(Alarm { state: AtomicU8::new(AWAKE), eventfd })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }

    /// From here on a call writes to the eventfd. False when there was a call already: then do not sleep.
    pub(super) fn lie_down(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Forgets all calls: the executor looks at its queues between this and the next sleep, and whoever
    /// calls has filled them before.
    pub(super) fn rise(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
    }
}

impl Unpark for Alarm {
    fn unpark(&self) {
        if self.state.swap(NOTIFIED, Ordering::SeqCst) == ASLEEP {
            // It cannot fail other than by a full counter, and then the poll has been triggered long since.
            let _ = (&self.eventfd).write(&1u64.to_ne_bytes());
        }
    }
}
