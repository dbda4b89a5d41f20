//! What the pool is asked on simulated disks. One program: each of its own would have the whole engine in it, and take minutes to compile.

mod acknowledged;
mod ahead;
mod compression;
mod engine;
mod failures;
mod fixtures;
mod flash;
mod formats;
mod gather;
mod levels;
mod limits;
mod loops;
mod memory;
mod moving;
mod nearly_full;
mod parity;
mod parts;
mod projects;
mod quota;
mod retention;
mod room;
mod snapshots;
mod space;
mod streams;
mod trash;
mod wide;
