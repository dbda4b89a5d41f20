//! The intent log of one shard: frames, the records in them, and the ring they live in.
//!
//! A group commit writes one frame. Frames are chained: each carries the checksum of the one before, so that
//! what a recycled part of the ring still holds is never taken for the continuation. Pure: the pool reads and
//! writes the bytes.

mod frame;
mod record;
mod ring;

pub use frame::{Chain, FRAME_HEADER, Frame, FrameContext, encode_frame};
pub use record::{PlugPiece, Record, RecordError, decode_records};
pub use ring::{Piece, Ring};
