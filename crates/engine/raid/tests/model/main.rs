//! The array on simulated disks: random stories against a byte model, and what each call asks of which disk.

mod calls;
mod random;
mod rig;
