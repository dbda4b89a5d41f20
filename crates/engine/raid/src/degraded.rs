//! Reading a parity chunk: from one disk when it can be, from the rest of the line when it must.
//!
//! A block lies in one cell, so a read is one request to one disk. When that disk is out, cannot read, or gives what the
//! caller's check refuses, the same columns of the other cells are read, and the block is computed from them.
//! Cells known to be missing are left out. When what was computed, or read without an error, fails the check, some cell lies:
//! then every set of up to P slots is suspected in turn, the small ones first, until leaving one out gives
//! bytes that pass. That is at most 1159 sets (16+3) and happens when a disk has rotted.
//!
//! What is computed from several cells is only as good as their belonging together. A write of the same columns in
//! flight ([`Array::write_pieces`]) can make it fail its check, so the caller keeps the two apart.

use crate::bands::{Band, Cell};
use crate::hedge::avoids;
use crate::lines::Lines;
use crate::subset::Subset;
use crate::{Array, ArrayError, Good, SlotRef, Way, Whose};
use async_recursion::async_recursion as boxed;
use forebay_base::KIB;
use forebay_base::planted::{Bug, active};
use forebay_device::Member;
use forebay_runtime::{BufMut, yield_now};
use std::ops::Range;
use std::rc::Rc;

/// Suspects are sought for a block of the largest size. Who reads many blocks at once and is refused asks for each.
const SEARCH_BYTES_MAX: usize = 128 * KIB as usize;

impl Array {
    pub(crate) async fn read_lines(
        &self,
        (way, whose): (Way, Whose),
        lines: &Lines,
        slots: &[SlotRef],
        offset: u64,
        len: usize,
        check: impl Fn(&[u8]) -> bool,
    ) -> Result<Good, ArrayError> {
        if !lines.contains(offset, len) {
            return Err(ArrayError::Corrupt);
        }
        let first = lines.extents(offset, len).next().expect("a range that is not empty has a first cell");
        let index = lines.slot_of(first.line, first.role);
        let member = self.of(whose, &slots[index]);
        let needs_all =
            || slots.iter().filter(|slot| self.of(whose, slot).is_some()).count() <= lines.code.data();
        let way = match member {
            Some(member) if member.late.get() && needs_all() => Way::Only,
            _ => way,
        };
        let mut known = None;
        let asks = |member: &&Rc<Member>| first.len == len && (way == Way::Only || !avoids(member));
        if let Some(member) = member.filter(asks) {
            let buffer = self.rt.buffer(len);
            let (bytes, result) = self.read_slot(member, &slots[index], first.at, buffer, way).await;
            if result.is_ok() && check(&bytes) {
                return Ok(Good { bytes, bad: Vec::new() });
            }
            known = Some((index, Cell::of(bytes, result)));
        }
        self.read_around(lines, slots, offset..offset + len as u64, known, (way, whose), &check).await
    }

    /// Reads the range, of which one cell may be `known`, from as many disks as it takes. In a box: the usual read stays small.
    #[boxed(?Send)]
    async fn read_around(
        &self,
        lines: &Lines,
        slots: &[SlotRef],
        range: Range<u64>,
        known: Option<(usize, Cell)>,
        (way, whose): (Way, Whose),
        check: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Good, ArrayError> {
        let extents: Vec<_> = lines.extents(range.start, (range.end - range.start) as usize).collect();
        let mut bands = Band::covering(lines, &extents);
        if let Some((index, cell)) = known {
            bands[0].cells[index] = cell;
        }
        let read = self.read_bands(lines, slots, range.clone(), &mut bands, (way, whose), check).await;
        if read.is_ok() || !is_late(&bands) {
            return read;
        }
        // Without the disks that are late it cannot be done.
        let mut bands = Band::covering(lines, &extents);
        self.read_bands(lines, slots, range, &mut bands, (Way::Only, whose), check).await
    }

    /// Reads the range from those slots that it needs, and computes what cannot be had or is refused.
    async fn read_bands(
        &self,
        lines: &Lines,
        slots: &[SlotRef],
        range: Range<u64>,
        bands: &mut [Band],
        from: (Way, Whose),
        check: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Good, ArrayError> {
        let (offset, len) = (range.start, (range.end - range.start) as usize);
        self.fetch(slots, bands, from, |band| band.touched).await;
        let mut bytes = self.rt.buffer(len);
        let mut refused = false;
        let suspects_max = if len <= SEARCH_BYTES_MAX { lines.code.parity() } else { 0 };
        let sets = (0..=suspects_max).flat_map(|size| Subset::all_of_size(lines.code.width(), size));
        for suspects in sets {
            let is_computed =
                |band: &Band| !band.lost().union(suspects).intersection(band.touched).is_empty();
            let computed = bands.iter().any(is_computed);
            if !computed && !suspects.is_empty() {
                continue; // What was read, as it is, has been refused.
            }
            if suspects.is_empty() {
                self.fetch_enough(lines, slots, bands, from, is_computed).await;
            } else {
                let all = |band: &Band| if is_computed(band) { band.all() } else { Subset::default() };
                self.fetch(slots, bands, from, all).await;
            }
            if !self.assemble(lines, bands, suspects, offset, &mut bytes) {
                continue;
            }
            let is_planted =
                active(Bug::DegradedReadUnchecked) || (is_late(bands) && active(Bug::HedgeUnchecked));
            if check(&bytes) || (computed && is_planted) {
                let bad = self.blame(lines, slots, bands, offset, &bytes);
                return Ok(Good { bytes, bad });
            }
            refused = true;
            // Other tasks of the core go on meanwhile.
            yield_now().await;
        }
        if !refused || is_late(bands) {
            return Err(ArrayError::Io);
        }
        // Which of them is wrong nobody has looked for in what is too long: whoever reads it in pieces finds out.
        for band in bands.iter().filter(|_| suspects_max > 0) {
            band.touched
                .intersection(band.read())
                .iter()
                .for_each(|index| self.is_wrong(&slots[index], band));
        }
        Err(ArrayError::Corrupt)
    }

    /// Puts the range together from what was read, and from what is computed in place of lost and suspected slots.
    /// False when too little is left.
    fn assemble(
        &self,
        lines: &Lines,
        bands: &[Band],
        suspects: Subset,
        offset: u64,
        into: &mut BufMut,
    ) -> bool {
        for band in bands {
            let wanted = band.touched.intersection(band.lost().union(suspects));
            let computed = if wanted.is_empty() {
                Some(Vec::new())
            } else {
                self.compute(lines, band, suspects, wanted)
            };
            let Some(computed) = computed else { return false };
            let mut computed = computed.iter();
            for index in band.touched.iter() {
                let bytes = if wanted.contains(index) { computed.next() } else { band.bytes(index) };
                let at = place(lines, band, index, offset);
                into[at..at + band.len].copy_from_slice(bytes.expect("it was read or computed"));
            }
        }
        true
    }

    /// The slots in service that could not be read, or were read and are not what passed.
    fn blame(
        &self,
        lines: &Lines,
        slots: &[SlotRef],
        bands: &[Band],
        offset: u64,
        good: &[u8],
    ) -> Vec<SlotRef> {
        let mut bad = Subset::default();
        for band in bands {
            for index in band.touched.iter() {
                let at = place(lines, band, index, offset);
                match &band.cells[index] {
                    Cell::Lost | Cell::Unread => bad.insert(index),
                    Cell::Read(bytes) if bytes[..] != good[at..at + band.len] => {
                        self.is_wrong(&slots[index], band);
                        bad.insert(index);
                    }
                    Cell::Read(_) | Cell::Late => {}
                }
            }
        }
        bad.iter().map(|index| slots[index]).filter(|slot| self.of_slot(slot).is_some()).collect()
    }

    /// A slot was read in a band, and is not what was written.
    fn is_wrong(&self, slot: &SlotRef, band: &Band) {
        if let Some(member) = self.of_slot(slot) {
            let at = member.layout.slot_at(slot.slot) + band.at;
            member.health.failed_check(self.rt.now(), at..at + band.len as u64);
        }
    }
}

/// Whether some cell was not waited for.
fn is_late(bands: &[Band]) -> bool {
    bands.iter().any(|band| band.cells.iter().any(|cell| matches!(cell, Cell::Late)))
}

/// Where a slot's part of a band (within one line) lies in the range that starts at `offset` of the chunk.
fn place(lines: &Lines, band: &Band, index: usize, offset: u64) -> usize {
    let line = band.at / lines.cell;
    let role = lines.role_of(line, index) as u64;
    (line * lines.line_bytes() + role * lines.cell + band.at % lines.cell - offset) as usize
}
