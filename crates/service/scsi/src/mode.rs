//! Mode parameters (SPC-4 7.5, SBC-3 6.4): four pages, of which two bits can be changed.
//!
//! D_SENSE chooses the format of sense data and SWP protects the unit against writes; both are shared by all nexuses and
//! last until the unit is reset, since saving is not supported. The Caching page tells the truth about the
//! volume's `sync`: a write cache only where an acknowledged write can be lost with the power.

use crate::command::{BlockDescriptor, PageControl};
use crate::sense::{Sense, asc};

/// What MODE SELECT can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mode {
    /// Sense data in descriptor format.
    pub descriptor_sense: bool,
    /// SWP.
    pub write_protected: bool,
}

/// What else the pages are made of.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub mode: Mode,
    pub volatile_cache: bool,
    /// Writes are refused, by SWP or for another reason.
    pub write_protected: bool,
    pub block_bytes: u32,
    pub blocks: u64,
}

const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;
/// In ascending order, as all of them are returned.
const PAGES: [u8; 4] = [0x01, 0x08, 0x0a, 0x1c];

/// One page with its header.
fn page(code: u8, control: PageControl, view: &View) -> Vec<u8> {
    let mut bytes = vec![0; if code == 0x08 { 20 } else { 12 }];
    bytes[0] = code;
    bytes[1] = bytes.len() as u8 - 2;
    let current = control == PageControl::Current;
    if control == PageControl::Changeable {
        if code == 0x0a {
            bytes[2] = 0x04;
            bytes[4] = 0x08;
        }
        return bytes;
    }
    match code {
        // Read-Write Error Recovery: AWRE, ARRE. Damaged blocks are repaired from redundancy.
        0x01 => bytes[2] = 0xc0,
        // Caching: WCE.
        0x08 => bytes[2] = u8::from(view.volatile_cache) << 2,
        // Control: D_SENSE; commands are reordered without restriction; SWP; never busy for long.
        0x0a => {
            bytes[2] = u8::from(current && view.mode.descriptor_sense) << 2;
            bytes[3] = 0x10;
            bytes[4] = u8::from(current && view.mode.write_protected) << 3;
        }
        // Informational Exceptions Control: DEXCPT. The appliance raises alerts of its own.
        _ => bytes[2] = 0x08,
    }
    bytes
}

/// The parameter data of MODE SENSE.
pub(crate) fn sense(
    ten: bool,
    descriptor: BlockDescriptor,
    control: PageControl,
    code: u8,
    subpage: u8,
    view: &View,
) -> Result<Vec<u8>, Sense> {
    if subpage != 0 && subpage != ALL_SUBPAGES {
        return Err(Sense::cdb_field(3, None));
    }
    if code != ALL_PAGES && !PAGES.contains(&code) {
        return Err(Sense::cdb_field(2, 5));
    }
    let descriptor = block_descriptor(descriptor, view);
    // WP, DPOFUA.
    let specific = u8::from(view.write_protected) << 7 | 0x10;
    let mut bytes = if ten {
        vec![0, 0, 0, specific, u8::from(descriptor.len() == 16), 0, 0, descriptor.len() as u8]
    } else {
        vec![0, 0, specific, descriptor.len() as u8]
    };
    bytes.extend(descriptor);
    for known in PAGES.into_iter().filter(|&known| code == ALL_PAGES || code == known) {
        bytes.extend(page(known, control, view));
    }
    if ten {
        let len = bytes.len() as u16 - 2;
        bytes[..2].copy_from_slice(&len.to_be_bytes());
    } else {
        bytes[0] = bytes.len() as u8 - 1;
    }
    Ok(bytes)
}

fn block_descriptor(kind: BlockDescriptor, view: &View) -> Vec<u8> {
    match kind {
        BlockDescriptor::None => Vec::new(),
        BlockDescriptor::Short => {
            let blocks = u32::try_from(view.blocks).unwrap_or(u32::MAX);
            [blocks.to_be_bytes(), view.block_bytes.to_be_bytes()].concat()
        }
        BlockDescriptor::Long => {
            let (blocks, block_bytes) = (view.blocks.to_be_bytes(), view.block_bytes.to_be_bytes());
            [&blocks[..], &[0; 4], &block_bytes].concat()
        }
    }
}

/// What a parameter list of MODE SELECT makes of the mode; nothing of it counts unless all of it is right.
pub(crate) fn select(ten: bool, list: &[u8], view: &View) -> Result<Mode, Sense> {
    let too_short = Sense::illegal(asc::PARAMETER_LIST_LENGTH);
    let (header, descriptor_len, long) = match (ten, list) {
        (_, []) => return Ok(view.mode),
        (true, &[_, _, _, _, long, _, high, low, ..]) => {
            (8, usize::from(u16::from_be_bytes([high, low])), long & 1 == 1)
        }
        (false, &[_, _, _, len, ..]) => (4, usize::from(len), false),
        _ => return Err(too_short),
    };
    let (descriptor, mut rest) = list[header..].split_at_checked(descriptor_len).ok_or(too_short)?;
    check_descriptor(descriptor, long, header, view)?;
    let mut mode = view.mode;
    while let [first, ..] = *rest {
        let at = list.len() - rest.len();
        // PS is reserved here; SPF introduces subpages, of which there are none.
        let code = first & 0x3f;
        if first & 0x40 != 0 || !PAGES.contains(&code) {
            return Err(Sense::parameter_field(at, 5));
        }
        let current = page(code, PageControl::Current, &View { mode, ..*view });
        if rest.get(1).is_some_and(|&len| len != current[1]) {
            return Err(Sense::parameter_field(at + 1, None));
        }
        let (wanted, behind) = rest.split_at_checked(current.len()).ok_or(too_short)?;
        let changeable = page(code, PageControl::Changeable, view);
        for index in 2..current.len() {
            let changes = (wanted[index] ^ current[index]) & !changeable[index];
            if changes != 0 {
                return Err(Sense::parameter_field(at + index, changes.ilog2() as u8));
            }
        }
        if code == 0x0a {
            mode = Mode { descriptor_sense: wanted[2] & 0x04 != 0, write_protected: wanted[4] & 0x08 != 0 };
        }
        rest = behind;
    }
    Ok(mode)
}

/// The number of blocks and their size cannot be changed: they must be what they are, or 0 for "as it is".
fn check_descriptor(descriptor: &[u8], long: bool, at: usize, view: &View) -> Result<(), Sense> {
    let (blocks, block_bytes, block_bytes_at) = match (descriptor, long) {
        ([], _) => return Ok(()),
        (&[a, b, c, d, _, e, f, g], false) => {
            (u32::from_be_bytes([a, b, c, d]).into(), u32::from_be_bytes([0, e, f, g]), 5)
        }
        (descriptor, true) if descriptor.len() == 16 => {
            let (blocks, rest) = descriptor.split_first_chunk().expect("sixteen bytes");
            let (_, block_bytes) = rest.split_last_chunk().expect("eight bytes");
            (u64::from_be_bytes(*blocks), u32::from_be_bytes(*block_bytes), 12)
        }
        // BLOCK DESCRIPTOR LENGTH.
        _ => return Err(Sense::parameter_field(if at == 4 { 3 } else { 6 }, None)),
    };
    let short_of_all = !long && blocks == u64::from(u32::MAX) && view.blocks >= blocks;
    if blocks != 0 && blocks != view.blocks && !short_of_all {
        return Err(Sense::parameter_field(at, None));
    }
    if block_bytes != view.block_bytes {
        return Err(Sense::parameter_field(at + block_bytes_at, None));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: View = View {
        mode: Mode { descriptor_sense: false, write_protected: false },
        volatile_cache: true,
        write_protected: false,
        block_bytes: 512,
        blocks: 1 << 33,
    };

    fn sense_of(code: u8, control: PageControl) -> Result<Vec<u8>, Sense> {
        sense(false, BlockDescriptor::None, control, code, 0, &VIEW)
    }

    #[test]
    fn pages_in_both_headers() {
        let caching = [&[8, 18, 4][..], &[0; 17]].concat();
        let short = sense(false, BlockDescriptor::Short, PageControl::Current, 8, 0, &VIEW).expect("a page");
        assert_eq!(short[..12], [31, 0, 0x10, 8, 0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
        assert_eq!(short[12..], caching);
        let long = sense(true, BlockDescriptor::Long, PageControl::Current, 8, 0, &VIEW).expect("a page");
        assert_eq!(long[..8], [0, 42, 0, 0x10, 1, 0, 0, 16]);
        assert_eq!(long[8..24], [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(long[24..], caching);
        let all = sense_of(ALL_PAGES, PageControl::Current).expect("all pages");
        assert_eq!(all.len(), 4 + 12 + 20 + 12 + 12);
        assert_eq!(usize::from(all[0]), all.len() - 1);
        assert_eq!(sense_of(0x02, PageControl::Current), Err(Sense::cdb_field(2, 5)));
        let written_through = View { volatile_cache: false, ..VIEW };
        let page = sense(false, BlockDescriptor::None, PageControl::Current, 8, 0, &written_through);
        assert_eq!(page.expect("a page")[6], 0, "WCE is clear");
    }

    /// A list with the Control page of these two bytes.
    fn control(two: u8, four: u8) -> Vec<u8> {
        [&[0, 0, 0, 0, 0x0a, 10, two, 0x10, four][..], &[0; 7]].concat()
    }

    #[test]
    fn selecting() {
        let both = Mode { descriptor_sense: true, write_protected: true };
        assert_eq!(select(false, &control(4, 8), &VIEW), Ok(both));
        assert_eq!(select(false, &control(0, 0), &View { mode: both, ..VIEW }), Ok(Mode::default()));
        assert_eq!(select(false, &[], &VIEW), Ok(VIEW.mode));
        assert_eq!(select(false, &control(4, 9), &VIEW), Err(Sense::parameter_field(8, 0)));
        let mut list = control(4, 0);
        list.pop();
        assert_eq!(select(false, &list, &VIEW), Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH)));
        let mut list = control(4, 0);
        list[5] = 11;
        assert_eq!(select(false, &list, &VIEW), Err(Sense::parameter_field(5, None)));
        // WCE is the volume's property: it cannot be changed from here.
        let caching = [&[0, 0, 0, 0, 8, 18, 0][..], &[0; 17]].concat();
        assert_eq!(select(false, &caching, &VIEW), Err(Sense::parameter_field(6, 2)));
        for (descriptor, result) in [
            ([0, 0, 0, 0, 0, 0, 2, 0], Ok(VIEW.mode)),
            ([0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0], Ok(VIEW.mode)),
            ([0, 0, 0, 1, 0, 0, 2, 0], Err(Sense::parameter_field(4, None))),
            ([0, 0, 0, 0, 0, 0, 16, 0], Err(Sense::parameter_field(9, None))),
        ] {
            assert_eq!(select(false, &[&[0, 0, 0, 8][..], &descriptor].concat(), &VIEW), result);
        }
    }

    #[test]
    fn what_is_sensed_can_be_selected() {
        for descriptor in [BlockDescriptor::None, BlockDescriptor::Short, BlockDescriptor::Long] {
            let list = sense(true, descriptor, PageControl::Current, ALL_PAGES, 0, &VIEW).expect("all pages");
            assert_eq!(select(true, &list, &VIEW), Ok(VIEW.mode), "{descriptor:?}");
        }
    }
}
