//! A node on disk.
//!
//! ```text
//! 0   magic "FBND" 4   4 version 1   5 kind of tree 1   6 level 1   7 bytes of a pointer 1   8 pool id 16   24 owner id 16
//! 40  object 8   48 own address 8 (low 48 bits)   56 birth epoch 8   64 ownership epoch 8   72 index 8   80 zero 48
//! 128 body: 508 pointers of 32 bytes, or the records of a table
//! ```
//!
//! Its checksum is in the pointer that leads to it. Level 0 is a leaf. A family of volumes has one object, number 0; files will have theirs.
//! Pointers have 32 bytes; wider ones, for encrypted trees, will say so. The ownership epoch is 0 until two controllers share a pool.

use forebay_base::codec::{Reader, Writer};
use forebay_base::{Checksum, Id};
use forebay_space::{NODE_UNITS, PTR_BYTES, Ptr, UNIT_SECTORS};

/// Bytes of a node.
pub const NODE_BYTES: usize = 16 * 1024;
const _: () = assert!(NODE_BYTES as u64 == NODE_UNITS as u64 * UNIT_SECTORS * 512);
const HEADER: usize = 128;
const HEADER_USED: usize = 80;
/// Nobody else has ever owned the pool.
const OWNERSHIP: u64 = 0;
/// Bytes of a node's body.
pub const NODE_BODY: usize = NODE_BYTES - HEADER;
/// Pointers in a node.
pub const FANOUT: u64 = (NODE_BODY / PTR_BYTES) as u64;
const _: () = assert!(FANOUT == 508 && NODE_BODY == 508 * PTR_BYTES);
const MAGIC: &[u8; 4] = b"FBND";
const VERSION: u8 = 2;

/// What a tree is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeKind {
    /// Pointers to the blocks of an object, by their position.
    Blocks,
    /// The tables of a shard.
    Catalog,
    Chunks,
    Lost,
    /// What belongs to the pool beside its data.
    Registry,
}

impl TreeKind {
    fn code(self) -> u8 {
        match self {
            TreeKind::Blocks => 0,
            TreeKind::Catalog => 16,
            TreeKind::Chunks => 17,
            TreeKind::Lost => 18,
            TreeKind::Registry => 19,
        }
    }
}

/// What a node says of itself, and what its reader expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeHeader {
    pub pool: Id,
    pub kind: TreeKind,
    /// The family of a dataset; nobody for a table.
    pub owner: Id,
    /// The object of this owner, or the shard that a table is of.
    pub object: u64,
    pub level: u8,
    /// Position among the nodes of its level.
    pub index: u64,
}

impl NodeHeader {
    /// Of the blocks of a family's volume.
    pub fn of_blocks(pool: Id, owner: Id, level: u8, index: u64) -> NodeHeader {
        NodeHeader { pool, kind: TreeKind::Blocks, owner, object: 0, level, index }
    }

    fn encode(&self, at: &Ptr, w: &mut Writer) {
        w.bytes(MAGIC).u8(VERSION).u8(self.kind.code()).u8(self.level).u8(PTR_BYTES as u8);
        w.u128(self.pool.0).u128(self.owner.0).u64(self.object);
        w.u64(at.addr().0).u64(at.birth()).u64(OWNERSHIP).u64(self.index).zeros(HEADER - HEADER_USED);
    }
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
    header.encode(&at, &mut w);
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
    header.encode(ptr, &mut Writer::new(&mut expected));
    if bytes[..HEADER] != expected {
        return Err(NodeError::Identity);
    }
    Ok(&bytes[HEADER..])
}

/// The pointers in a body.
pub fn decode_ptrs(body: &[u8]) -> Vec<Ptr> {
    let mut r = Reader::new(body);
    (0..FANOUT).map(|_| Ptr::decode(&mut r).expect("a body holds 508 pointers")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_space::{Addr, ChunkId};

    #[test]
    fn identity_is_checked_beyond_the_checksum() {
        let header = NodeHeader::of_blocks(Id(1), Id(2), 1, 3);
        let at = Ptr::new(Addr::new(ChunkId(4), 8), NODE_BYTES as u32, 5, Checksum(0));
        let mut bytes = vec![0xaa; NODE_BYTES];
        let ptr = encode_node(&header, at, &[7; 32], &mut bytes);
        assert_eq!(decode_node(&bytes, &header, &ptr).map(|body| body[31..33].to_vec()), Ok(vec![7, 0]));
        let kind = TreeKind::Catalog;
        for other in [
            NodeHeader { index: 4, ..header },
            NodeHeader { object: 1, ..header },
            NodeHeader { kind, ..header },
            NodeHeader { level: 0, ..header },
        ] {
            assert_eq!(decode_node(&bytes, &other, &ptr), Err(NodeError::Identity));
        }
        let elsewhere = Ptr::new(Addr::new(ChunkId(4), 12), NODE_BYTES as u32, 5, ptr.sum);
        assert_eq!(decode_node(&bytes, &header, &elsewhere), Err(NodeError::Identity));
        bytes[200] ^= 1;
        assert_eq!(decode_node(&bytes, &header, &ptr), Err(NodeError::Checksum));
    }
}
