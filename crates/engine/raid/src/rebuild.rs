//! Maintenance of whole chunks: parity after a crash, the slots of a lost disk, the search for what does not agree.
//!
//! All of it goes through a slot window by window, and holds no more than [`IN_FLIGHT_BYTES`] in memory at a time; how many
//! such calls run side by side, and when, is the caller's to say. A window that cannot be done because of one
//! bad sector is done in halves, down to 4 KiB: errors in different places of different disks are not added up. So is one that a slot does
//! not give of itself: what others give in place of the rest of it may be wrong where the slot is right.
//!
//! Nothing here can tell right data from wrong: blocks are checked where their pointers are known. What is rebuilt from
//! a rotten cell is rotten too, and is found and computed anew by the next read as far as parity goes.

use crate::bands::{Band, Cell};
use crate::lines::Lines;
use crate::subset::Subset;
use crate::{Array, ArrayError, DiskSet, SlotRef, Way, Whose, Writing};
use forebay_base::MIB;
use forebay_base::planted::{Bug, active};
use forebay_device::{Member, UNIT};
use forebay_runtime::BufMut;
use std::ops::Range;

/// Bytes that one call holds in memory; a scrub, one line at least.
const IN_FLIGHT_BYTES: u64 = 4 * MIB;

/// What was found in a range of lines.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Scrubbed {
    /// Lines whose parity is not what their data gives.
    pub mismatched: Vec<u64>,
    /// Lines of which some cell could not be read, or is out of service.
    pub unread: Vec<u64>,
}

/// Windows of a range, each of at most `step` bytes.
fn windows(range: Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> {
    range.clone().step_by(step as usize).map(move |at| at..range.end.min(at + step))
}

/// Bytes of one slot in a window that spans `count` slots.
fn window_bytes(count: usize) -> u64 {
    IN_FLIGHT_BYTES / count as u64 / UNIT * UNIT
}

impl Array {
    /// Computes the parity of lines from their data and writes it to the slots in service. For lines whose parity may
    /// be older than their data after a crash, once the data is known to be right. Returns the lines that it left
    /// alone because not all of their data could be read. Adds the disks to flush.
    ///
    /// # Errors
    /// `Io` when too few disks are left to hold what was written.
    pub async fn restore_parity(
        &self,
        slots: &[SlotRef],
        range: Range<u64>,
        touched: &mut DiskSet,
    ) -> Result<Vec<u64>, ArrayError> {
        let lines = self.lines(slots).expect("only parity chunks have parity to restore");
        assert!(range.end <= lines.count(), "lines {range:?} of {}", lines.count());
        let mut left = Vec::new();
        for line in range {
            for window in windows(line * lines.cell..(line + 1) * lines.cell, window_bytes(slots.len())) {
                let mut bands = [Band::new(lines, window.start, (window.end - window.start) as usize)];
                let parity = bands[0].parity(lines);
                self.fetch(slots, &mut bands, (Way::Only, Whose::Serving), |band| band.all().without(parity))
                    .await;
                let Some(cells) = self.compute(lines, &bands[0], Subset::default(), parity) else {
                    left.push(line);
                    break;
                };
                let mut writing = Writing::new(lines.code.parity() + 1);
                for (index, bytes) in parity.iter().zip(cells) {
                    self.write_window(&slots[index], window.start, bytes, &mut writing);
                }
                self.written(writing, touched).await?;
            }
        }
        Ok(left)
    }

    /// Writes the bytes `range` of slot number `missing` of the chunk to `target`, a slot of a disk in service that no read of
    /// this chunk uses yet, or the slot itself: copied as far as the slot's disk is in service and reads, otherwise from the other slots (of a mirror
    /// copied, of lines computed). The caller lets nothing write these bytes of the chunk meanwhile. Returns the parts that could not be had: what the target holds
    /// there is undefined. Adds the target's disk to those to flush.
    ///
    /// # Errors
    /// `Io` when too few disks are in service to read from, or the target could not be written: its disk is out.
    pub async fn rebuild(
        &self,
        slots: &[SlotRef],
        missing: usize,
        range: Range<u64>,
        target: SlotRef,
        touched: &mut DiskSet,
    ) -> Result<Vec<Range<u64>>, ArrayError> {
        assert!(range.start.is_multiple_of(UNIT) && range.end.is_multiple_of(UNIT), "bytes {range:?}");
        assert!(range.end <= self.lines(slots).map_or(u64::MAX, Lines::slot_bytes), "bytes {range:?}");
        let others: Subset = (0..slots.len()).filter(|index| *index != missing).collect();
        let served = others.iter().filter(|index| self.of_slot(&slots[*index]).is_some()).count();
        let enough = served >= self.lines(slots).map_or(1, |lines| lines.code.data());
        if !(enough || self.of_slot(&slots[missing]).is_some()) || self.of_slot(&target).is_none() {
            return Err(ArrayError::Io);
        }
        let skipped = range.end - UNIT;
        let mut todo: Vec<Range<u64>> = windows(range, window_bytes(slots.len() + 1)).collect();
        todo.reverse();
        let mut lost: Vec<Range<u64>> = Vec::new();
        while let Some(window) = todo.pop() {
            let len = window.end - window.start;
            let own = match self.of_slot(&slots[missing]) {
                Some(member) => {
                    let buffer = self.rt.buffer(len as usize);
                    Some(self.read_slot(member, &slots[missing], window.start, buffer, Way::Only).await)
                }
                None => None,
            };
            let found = match own {
                Some((_, Ok(()))) if target == slots[missing] => continue,
                Some((bytes, Ok(()))) => Some(bytes),
                Some((_, Err(_))) if len > UNIT && !active(Bug::RebuildComputesWholeWindow) => None,
                Some((_, Err(_))) | None => self.bytes_from_others(slots, missing, others, &window).await,
            };
            match found {
                Some(_) if window.contains(&skipped) && active(Bug::RebuildSkipsLine) => {}
                Some(bytes) => {
                    let mut writing = Writing::new(1);
                    self.write_window(&target, window.start, bytes, &mut writing);
                    self.written(writing, touched).await?;
                }
                None if len > UNIT => {
                    let middle = window.start + (len / 2).next_multiple_of(UNIT);
                    todo.extend([middle..window.end, window.start..middle]);
                }
                None => match lost.last_mut() {
                    Some(last) if last.end == window.start => last.end = window.end,
                    _ => lost.push(window),
                },
            }
        }
        Ok(lost)
    }

    /// A window of one slot, as the others give it.
    async fn bytes_from_others(
        &self,
        slots: &[SlotRef],
        missing: usize,
        others: Subset,
        window: &Range<u64>,
    ) -> Option<BufMut> {
        let len = (window.end - window.start) as usize;
        let Some(lines) = self.lines(slots) else {
            for slot in others.iter().map(|index| &slots[index]) {
                let Some(member) = self.of_slot(slot) else { continue };
                let (bytes, result) =
                    self.read_slot(member, slot, window.start, self.rt.buffer(len), Way::Only).await;
                if result.is_ok() {
                    return Some(bytes);
                }
            }
            return None;
        };
        let mut bands = [Band::new(lines, window.start, len)];
        bands[0].cells[missing] = Cell::Lost;
        self.fetch_enough(lines, slots, &mut bands, (Way::Only, Whose::Serving), |_| true).await;
        let mut wanted = Subset::default();
        wanted.insert(missing);
        Some(self.compute(lines, &bands[0], Subset::default(), wanted)?.remove(0))
    }

    /// Writes anew what cannot be read of the cells of a line, as the others give it: for what no pointer vouches for, parity and
    /// the gaps between blocks. The caller lets nothing else write to the chunk meanwhile. False when something is left that too
    /// few others can be read for. Adds the disks to flush.
    ///
    /// # Errors
    /// `Io` when too few disks are in service, or one failed a write.
    pub async fn restore_unread(
        &self,
        slots: &[SlotRef],
        line: u64,
        touched: &mut DiskSet,
    ) -> Result<bool, ArrayError> {
        let lines = self.lines(slots).expect("only parity chunks have lines");
        let cell = line * lines.cell..(line + 1) * lines.cell;
        let mut whole = true;
        for (index, slot) in slots.iter().enumerate() {
            if self.of_slot(slot).is_none() {
                whole = false;
                continue;
            }
            whole &= self.rebuild(slots, index, cell.clone(), *slot, touched).await?.is_empty();
        }
        Ok(whole)
    }

    /// Reads every cell of lines and compares parity with what the data gives.
    pub async fn scrub_lines(&self, slots: &[SlotRef], range: Range<u64>) -> Scrubbed {
        let lines = self.lines(slots).expect("only parity chunks have parity to compare");
        assert!(range.end <= lines.count(), "lines {range:?} of {}", lines.count());
        let mut found = Scrubbed::default();
        let step = (window_bytes(slots.len()) / lines.cell).max(1);
        let mut todo: Vec<Range<u64>> = windows(range, step).collect();
        todo.reverse();
        while let Some(some) = todo.pop() {
            let len = ((some.end - some.start) * lines.cell) as usize;
            let mut bands = [Band::new(lines, some.start * lines.cell, len)];
            self.fetch(slots, &mut bands, (Way::Only, Whose::Serving), Band::all).await;
            let [band] = &bands;
            if band.lost().is_empty() {
                found.mismatched.extend(self.mismatched(lines, band));
            } else if some.end - some.start > 1
                && band.lost().iter().any(|n| self.of_slot(&slots[n]).is_some())
            {
                // One line at a time: the others may be whole.
                todo.extend(some.rev().map(|line| line..line + 1));
            } else {
                found.unread.extend(some);
            }
        }
        found
    }

    /// The lines of a band, all of it read, whose parity does not agree.
    fn mismatched(&self, lines: &Lines, band: &Band) -> Vec<u64> {
        let mut expected: Vec<BufMut> =
            (0..lines.code.parity()).map(|_| self.rt.buffer(lines.cell as usize)).collect();
        let mut found = Vec::new();
        for (line, part) in band.parts(lines) {
            let cell =
                |role| &band.bytes(lines.slot_of(line, role)).expect("all of it was read")[part.clone()];
            let data: Vec<&[u8]> = (0..lines.code.data()).map(cell).collect();
            let mut parity: Vec<&mut [u8]> = expected.iter_mut().map(|bytes| &mut bytes[..]).collect();
            lines.code.encode(&data, &mut parity);
            let agree =
                lines.code.parity_roles().iter().zip(&expected).all(|(role, bytes)| cell(role) == &bytes[..]);
            if !agree {
                found.push(line);
            }
        }
        found
    }

    fn write_window(&self, slot: &SlotRef, at: u64, bytes: BufMut, writing: &mut Writing) {
        let start = |member: &Member| member.layout.slot_at(slot.slot) + at;
        self.write_slot(slot, start, vec![bytes.freeze()], writing);
    }
}
