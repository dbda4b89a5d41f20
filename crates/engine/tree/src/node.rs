//! A node on disk.
//!
//! ```text
//! 0   magic "FBND" 4   4 version 1   5 level 1   6 zero 2   8 pool id 16   24 owner id 16
//! 40  own address 8 (low 48 bits)   48 birth epoch 6 | owner epoch 2   56 index 8
//! 64  body: 510 pointers of 32 bytes, or the records of a table
//! ```
//!
//! Its checksum is in the pointer that leads to it. Level 0 is a leaf; [`TABLE_LEVEL`] a block of a table. The owner
//! epoch is 0 until two controllers share a pool.

use forebay_base::codec::{Reader, Writer};
use forebay_base::{Checksum, Id};
use forebay_space::{NODE_UNITS, PTR_BYTES, Ptr, UNIT_SECTORS};

/// Bytes of a node.
pub const NODE_BYTES: usize = 16 * 1024;
const _: () = assert!(NODE_BYTES as u64 == NODE_UNITS as u64 * UNIT_SECTORS * 512);
const HEADER: usize = 64;
/// Bytes of a node's body.
pub const NODE_BODY: usize = NODE_BYTES - HEADER;
/// Pointers in a node.
pub const FANOUT: u64 = (NODE_BODY / PTR_BYTES) as u64;
const _: () = assert!(FANOUT == 510 && NODE_BODY == 510 * PTR_BYTES);
/// Level of table blocks.
pub const TABLE_LEVEL: u8 = 255;
const MAGIC: &[u8; 4] = b"FBND";
const VERSION: u8 = 1;

/// What a node says of itself, and what its reader expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeHeader {
    pub pool: Id,
    /// The dataset, or for tables an id made of the shard's number.
    pub owner: Id,
    pub level: u8,
    /// Position among the nodes of its level.
    pub index: u64,
}

/// Why bytes are not the node that a pointer promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeError {
    Checksum,
    /// The contents are whole, but belong elsewhere or to another time.
    Identity,
}

/// Encodes a node at the address and birth of `at`; the pointer's checksum is filled in and returned.
pub fn encode_node(header: &NodeHeader, at: Ptr, body: &[u8], into: &mut [u8]) -> Ptr {
    let mut w = Writer::new(into);
    w.bytes(MAGIC).u8(VERSION).u8(header.level).u16(0).u128(header.pool.0).u128(header.owner.0);
    w.u64(at.addr().0).u64(at.birth()).u64(header.index);
    assert_eq!(w.position(), HEADER);
    w.bytes(body).zeros(NODE_BODY - body.len());
    Ptr::new(at.addr(), NODE_BYTES as u32, at.birth(), Checksum::of(into))
}

/// The body of the node that was read through `ptr`.
pub fn decode_node<'a>(bytes: &'a [u8], header: &NodeHeader, ptr: &Ptr) -> Result<&'a [u8], NodeError> {
    if bytes.len() != NODE_BYTES || Checksum::of(bytes) != ptr.sum {
        return Err(NodeError::Checksum);
    }
    let mut expected = [0; HEADER];
    let mut w = Writer::new(&mut expected);
    w.bytes(MAGIC).u8(VERSION).u8(header.level).u16(0).u128(header.pool.0).u128(header.owner.0);
    w.u64(ptr.addr().0).u64(ptr.birth()).u64(header.index);
    if bytes[..HEADER] != expected {
        return Err(NodeError::Identity);
    }
    Ok(&bytes[HEADER..])
}

/// The pointers in a body.
pub fn decode_ptrs(body: &[u8]) -> Vec<Ptr> {
    let mut r = Reader::new(body);
    (0..FANOUT).map(|_| Ptr::decode(&mut r).expect("a body holds 510 pointers")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_space::{Addr, ChunkId};

    #[test]
    fn identity_is_checked_beyond_the_checksum() {
        let header = NodeHeader { pool: Id(1), owner: Id(2), level: 1, index: 3 };
        let at = Ptr::new(Addr::new(ChunkId(4), 8), NODE_BYTES as u32, 5, Checksum(0));
        let mut bytes = vec![0xaa; NODE_BYTES];
        let ptr = encode_node(&header, at, &[7; 32], &mut bytes);
        assert_eq!(decode_node(&bytes, &header, &ptr).map(|body| body[31..33].to_vec()), Ok(vec![7, 0]));
        assert_eq!(decode_node(&bytes, &NodeHeader { index: 4, ..header }, &ptr), Err(NodeError::Identity));
        let elsewhere = Ptr::new(Addr::new(ChunkId(4), 12), NODE_BYTES as u32, 5, ptr.sum);
        assert_eq!(decode_node(&bytes, &header, &elsewhere), Err(NodeError::Identity));
        bytes[100] ^= 1;
        assert_eq!(decode_node(&bytes, &header, &ptr), Err(NodeError::Checksum));
    }
}
