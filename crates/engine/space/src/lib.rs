//! Space: addresses and pointers, the bitmaps of chunks, and one shard's allocator.
//!
//! Pure: no I/O, no clock. What is written to disk of all this (chunk records, chunk tables) is encoded
//! here and written by the pool.

mod address;
mod allocator;
mod bits;
mod choice;
mod chunk;
mod chunks;
mod entries;
mod evacuation;
mod groups;
mod held;
mod lanes;
mod lines;
mod maps;
mod moving;
mod period;
mod size;

pub use address::{Addr, ChunkId, NODE_UNITS, PTR_BYTES, Ptr, UNIT_SECTORS};
pub use allocator::{NeedChunk, Space};
pub use bits::Bits;
pub use chunk::{CHUNK_ENTRY_BYTES, Chunk, ChunkEntry, ChunkKind, decode_record, encode_record};
pub use held::CLASSES;
pub use lanes::LANES_MAX;
pub use size::{Lines, Size};
