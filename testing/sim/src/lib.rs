mod content;
pub mod crash;
pub mod harness;
mod oracle;
#[cfg(test)]
mod oracle_test;
pub mod setup;
mod verify;
mod workload;
