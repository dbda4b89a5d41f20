//! How much one command may do: reported in the Block Limits page and enforced from the same numbers.

/// The most data that one command moves. A multiple of every volume's blocks; the engine would take 32 MiB at once.
pub const TRANSFER_BYTES_MAX: usize = 8 << 20;
/// What streams best: large enough to cost little for each command, small enough for several under way.
const OPTIMAL_BYTES: u64 = 1 << 20;
/// The engine's compare-and-write.
const COMPARE_BYTES_MAX: u64 = 1 << 20;
/// UNMAP is metadata alone, and mkfs sends one after the other.
const UNMAP_BYTES_MAX: u64 = 512 << 20;
const UNMAP_DESCRIPTORS_MAX: u32 = 256;
/// What WRITE SAME writes, an initiator may want to read back at once, and libiscsi's suite does.
const SAME_BYTES_MAX: u64 = TRANSFER_BYTES_MAX as u64;
/// GET LBA STATUS looks at this much at a time: the engine goes block by block.
pub(crate) const STATUS_BYTES_MAX: u64 = 128 << 20;
/// Data held for one step of a longer command.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;
/// Bytes of a parameter list: 256 UNMAP descriptors need 4104, EXTENDED COPY's lists less than that, and PERSISTENT
/// RESERVE OUT could name every registered port.
pub(crate) const LIST_BYTES_MAX: u32 = 64 << 10;
const _: () = assert!(8 + 16 * UNMAP_DESCRIPTORS_MAX <= LIST_BYTES_MAX);

/// The limits in logical blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Logical blocks in a volume block.
    pub granularity: u32,
    pub optimal_blocks: u32,
    pub transfer_blocks: u32,
    pub compare_blocks: u8,
    pub unmap_blocks: u32,
    pub unmap_descriptors: u32,
    pub same_blocks: u32,
    pub atomic_blocks: u32,
}

impl Limits {
    pub fn new(block_bytes: u32, volume_block: u32) -> Limits {
        let blocks =
            |bytes: u64| u32::try_from(bytes / u64::from(block_bytes)).expect("limits fit their fields");
        let transfer_blocks = blocks(TRANSFER_BYTES_MAX as u64);
        Limits {
            granularity: (volume_block / block_bytes).max(1),
            optimal_blocks: blocks(OPTIMAL_BYTES),
            transfer_blocks,
            // The field and the CDB have a byte for it.
            compare_blocks: blocks(COMPARE_BYTES_MAX).min(255) as u8,
            unmap_blocks: blocks(UNMAP_BYTES_MAX),
            unmap_descriptors: UNMAP_DESCRIPTORS_MAX,
            same_blocks: blocks(SAME_BYTES_MAX),
            // Every write is atomic; its length has two bytes in WRITE ATOMIC(16).
            atomic_blocks: transfer_blocks.min(u16::MAX.into()),
        }
    }
}
