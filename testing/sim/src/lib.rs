//! The harness: the engine in simulated machines, under every fault of the failure model, judged from outside.
//!
//! A run is a function of its seed ([`setup`]). Clients ([`workload`]) use a pool's volumes and tell the oracle
//! ([`oracle`]) what they asked for and what they were told; data describes itself ([`content`]). What may be in a
//! volume follows from that alone: the engine's own opinion is never evidence. From the recording of one run,
//! hundreds of crash images are made ([`crash`]), each imported by a fresh engine, judged, used and checked
//! ([`verify`]). The matrix ([`matrix`]) has a scenario for each fault; the suite ([`suite`]) plants mistakes in the
//! engine and fails unless each is caught.
//!
//! What it does not show: how fast anything is, and what real devices and kernels do.

mod content;
pub mod crash;
pub mod harness;
mod lineage;
pub mod matrix;
pub mod numbers;
mod oracle;
#[cfg(test)]
mod oracle_test;
mod registry;
mod rows_acknowledged;
mod rows_cache;
mod rows_combined;
mod rows_damage;
mod rows_disk;
mod rows_faulty;
mod rows_heal;
mod rows_hung;
mod rows_import;
mod rows_limits;
mod rows_pool;
mod rows_slow;
pub mod scale;
mod scene;
pub mod setup;
pub mod suite;
mod verify;
mod workload;
