//! INQUIRY: what the unit is, and its vital product data (SPC-4 6.6 and 7.8, SBC-3 6.5).
//!
//! All names derive from the volume's id, so that every portal, every restart and every import of the pool shows
//! the same unit, and no two units share one. The project owns no IEEE company id; so the NAA designator is of
//! the locally assigned kind, 60 bits folded out of the id, and the T10 vendor designator has the whole id.

use crate::limits::Limits;
use forebay_base::Id;

const VENDOR: &[u8; 8] = b"FOREBAY ";
const PRODUCT: &[u8; 16] = b"Volume          ";
/// Changes with what initiators can see of the product.
const REVISION: &[u8; 4] = b"0100";
/// All ports have the same access state: one target port group.
pub(crate) const PORT_GROUP: u16 = 1;
const PROTOCOL_ISCSI: u8 = 0x5;

/// What the pages are made of.
pub(crate) struct View<'a> {
    pub id: Id,
    pub target_name: &'a str,
    /// The portal group through which the command came.
    pub portal_group: u16,
    pub volatile_cache: bool,
    pub limits: Limits,
}

/// Standard INQUIRY data; `None`: of a number behind which there is no unit.
pub(crate) fn standard(is_connected: bool) -> Vec<u8> {
    let mut bytes = vec![0; 96];
    // Qualifier 011b, type 1Fh: no unit can be here.
    bytes[0] = if is_connected { 0x00 } else { 0x7f };
    bytes[2] = 0x06; // SPC-4
    bytes[3] = 0x02; // response data format
    bytes[4] = bytes.len() as u8 - 5;
    bytes[5] = 0x18; // TPGS: implicit, 3PC
    bytes[6] = 0x10; // MULTIP
    bytes[7] = 0x02; // CMDQUE
    bytes[8..16].copy_from_slice(VENDOR);
    bytes[16..32].copy_from_slice(PRODUCT);
    bytes[32..36].copy_from_slice(REVISION);
    // SAM-5, SPC-4, SBC-3 and iSCSI, no version claimed.
    for (at, version) in [0x00a0u16, 0x0460, 0x04c0, 0x0960].into_iter().enumerate() {
        bytes[58 + 2 * at..60 + 2 * at].copy_from_slice(&version.to_be_bytes());
    }
    bytes
}

/// A page of vital product data; `None`: there is no such page.
pub(crate) fn page(code: u8, view: &View) -> Option<Vec<u8>> {
    let body = match code {
        0x00 => vec![0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2],
        0x80 => serial(view.id).into_bytes(),
        0x83 => device_identification(view),
        0x86 => extended(view),
        0xb0 => block_limits(&view.limits),
        0xb1 => {
            let mut body = vec![0; 60];
            body[1] = 1; // MEDIUM ROTATION RATE: does not rotate
            body
        }
        // No threshold sets; LBPU, LBPWS, LBPWS10, LBPRZ; thin.
        0xb2 => vec![0, 0xe4, 0x02, 0],
        _ => return None,
    };
    let mut bytes = vec![0x00, code];
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend(body);
    Some(bytes)
}

fn serial(id: Id) -> String {
    format!("{:032x}", id.0)
}

/// The NAA designator: type 3, locally assigned, and 60 bits.
pub(crate) fn naa(id: Id) -> [u8; 8] {
    let folded = (id.0 >> 64) as u64 ^ id.0 as u64;
    ((0x3 << 60) | ((folded ^ (folded >> 60)) & ((1 << 60) - 1))).to_be_bytes()
}

/// The T10 vendor designator.
fn vendor_designator(id: Id) -> Vec<u8> {
    let mut bytes = VENDOR.to_vec();
    bytes.extend(serial(id).bytes());
    bytes
}

/// Code sets, and designator types that name a unit (SPC-4 7.8.5).
pub(crate) const BINARY: u8 = 1;
const ASCII: u8 = 2;
const UTF8: u8 = 3;
const T10_VENDOR: u8 = 1;
pub(crate) const NAA: u8 = 3;

fn device_identification(view: &View) -> Vec<u8> {
    let mut body = Vec::new();
    // Associations: 0 the unit, 1 the target port, 2 the target.
    let mut add = |association: u8, code_set: u8, kind: u8, designator: &[u8]| {
        let protocol = if association == 0 { 0 } else { 0x80 };
        let first = if association == 0 { 0 } else { PROTOCOL_ISCSI << 4 };
        let len =
            u8::try_from(designator.len()).expect("a designator is a name of at most 223 bytes and a suffix");
        body.extend([first | code_set, protocol | association << 4 | kind, 0, len]);
        body.extend(designator);
    };
    let port = |value: u16| [0, 0, (value >> 8) as u8, value as u8];
    add(0, BINARY, NAA, &naa(view.id));
    add(0, ASCII, T10_VENDOR, &vendor_designator(view.id));
    add(1, BINARY, 4, &port(view.portal_group));
    add(1, BINARY, 5, &port(PORT_GROUP));
    add(1, UTF8, 8, &name_string(&format!("{},t,0x{:04x}", view.target_name, view.portal_group)));
    add(2, UTF8, 8, &name_string(view.target_name));
    body
}

/// SCSI name strings end with zeros, to a multiple of four.
fn name_string(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
}

fn extended(view: &View) -> Vec<u8> {
    let mut body = vec![0; 60];
    body[1] = 0x07; // HEADSUP, ORDSUP, SIMPSUP
    body[2] = u8::from(view.volatile_cache); // V_SUP
    body[3] = 0x01; // LUICLR: REPORT LUNS clears its attention on every unit
    body[9] = crate::sense::SENSE_BYTES_MAX as u8;
    body
}

fn block_limits(limits: &Limits) -> Vec<u8> {
    let mut body = vec![0; 60];
    let mut put = |at: usize, value: u64, len: usize| {
        // Offsets are those of the page, whose header has four bytes.
        body[at - 4..at - 4 + len].copy_from_slice(&value.to_be_bytes()[8 - len..]);
    };
    put(4, 1, 1); // WSNZ: WRITE SAME has a length
    put(5, limits.compare_blocks.into(), 1);
    put(6, limits.granularity.into(), 2);
    put(8, limits.transfer_blocks.into(), 4);
    put(12, limits.optimal_blocks.into(), 4);
    put(16, limits.transfer_blocks.into(), 4); // prefetch
    put(20, limits.unmap_blocks.into(), 4);
    put(24, limits.unmap_descriptors.into(), 4);
    put(28, limits.granularity.into(), 4);
    put(32, 1 << 31, 4); // UGAVALID: aligned to 0
    put(36, limits.same_blocks.into(), 8);
    put(44, limits.atomic_blocks.into(), 4);
    put(48, 1, 4); // atomic alignment
    put(52, 1, 4); // atomic granularity
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_stay() {
        let id = Id(0x01234567_89ab_4def_8123_456789abcdef);
        assert_eq!(naa(id)[0] >> 4, 3);
        assert_eq!(naa(id), naa(id));
        for bit in 0..128 {
            assert_ne!(naa(Id(id.0 ^ 1 << bit)), naa(id), "bit {bit} counts");
        }
        assert_eq!(vendor_designator(id).len(), 40);
    }
}
