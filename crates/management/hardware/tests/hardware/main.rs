//! The crate from outside: canned machines and canned answers of smartctl, and this machine.
//!
//! Machines are built in a directory as sysfs, procfs, `/dev` and udev's database show them, with the links between them. The answers of disks in
//! `tests/smart` follow public facts of real models (attributes, thresholds, limits); serial numbers are made up.

mod changes;
mod examine;
mod inventory;
mod layout;
mod machine;
mod real;
mod smart;
mod usage;
