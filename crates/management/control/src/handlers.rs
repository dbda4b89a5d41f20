//! What the operations do, by object.

pub mod others;
pub mod pools;
pub mod volumes;
