//! Tasks that need the volume.

/// A command under way: what [`Unit::resume`](crate::Unit::resume) needs to go on.
#[derive(Debug)]
pub struct Task {}
