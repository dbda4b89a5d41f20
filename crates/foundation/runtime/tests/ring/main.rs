//! The io_uring backend against the real kernel: disks, connections, several cores.

mod common;
mod cores;
mod disks;
mod streams;
