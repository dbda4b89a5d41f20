//! Writing a parity chunk: whole lines, or pieces of lines that were planned.
//!
//! A line that holds nothing is written whole: parity comes from the new data alone, and nothing needs to be read. Blocks
//! that go into the gaps of a line in use are *plugged*: [`Array::plan_plug`] reads and computes, and gives
//! back the bytes that have to be written; the caller makes them durable in its log before it lets
//! [`Array::write_pieces`] write them. After a crash it writes them again, all of them, so data and parity agree, with
//! or without all disks: there is no write hole.
//!
//! A plan takes the old contents of the cells it changes and of parity, and adds the difference: the cells beside it are
//! not read, so rot in them does not get into parity and can still be undone. What it needs and cannot
//! read it computes from the rest of the columns.

use crate::bands::{Band, Cell};
use crate::code::add;
use crate::lines::{Extent, Lines};
use crate::subset::Subset;
use crate::{Array, ArrayError, SlotRef, Way, Whose, Writing};
use forebay_base::planted::{Bug, active};
use forebay_device::{Member, UNIT};
use forebay_runtime::{Buf, BufMut};

/// Parts of one device write: IOV_MAX is 1024.
const PARTS_MAX: usize = 512;

/// Bytes to be written to one slot of a chunk.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Index in the chunk's slots.
    pub slot: u8,
    /// Byte in the slot.
    pub at: u64,
    pub data: Buf,
}

impl Array {
    /// Starts writing whole lines.
    pub(crate) fn write_lines(
        &self,
        lines: &Lines,
        slots: &[SlotRef],
        offset: u64,
        parts: Vec<Buf>,
    ) -> Writing {
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let bytes = lines.line_bytes();
        assert!(
            offset.is_multiple_of(bytes) && len.is_multiple_of(bytes) && lines.contains(offset, len as usize),
            "a write of {len} bytes at {offset} to lines of {bytes}"
        );
        let mut writing = Writing::new(lines.code.parity() + 1);
        let mut queues: Vec<Queue> =
            vec![Queue { at: offset / bytes * lines.cell, parts: Vec::new() }; slots.len()];
        let mut parts = Cut { parts: parts.into_iter(), rest: None };
        for (nth, line) in (offset / bytes..(offset + len) / bytes).enumerate() {
            let data: Vec<Vec<Buf>> =
                (0..lines.code.data()).map(|_| parts.take(lines.cell as usize)).collect();
            let parity = self.parity_of(lines, &data);
            let line = if active(Bug::ParityWrongRotation) { nth as u64 } else { line };
            let cells = data.into_iter().chain(parity.into_iter().map(|bytes| vec![bytes.freeze()]));
            for (role, cell) in cells.enumerate() {
                let index = lines.slot_of(line, role);
                queues[index].parts.extend(cell);
                if queues[index].parts.len() >= PARTS_MAX {
                    self.send(&slots[index], &mut queues[index], &mut writing);
                }
            }
        }
        slots.iter().zip(&mut queues).for_each(|(slot, queue)| self.send(slot, queue, &mut writing));
        writing
    }

    fn send(&self, slot: &SlotRef, queue: &mut Queue, writing: &mut Writing) {
        let parts = std::mem::take(&mut queue.parts);
        if !parts.is_empty() {
            let at = queue.at;
            queue.at += parts.iter().map(|part| part.len() as u64).sum::<u64>();
            self.write_slot(slot, |member| member.layout.slot_at(slot.slot) + at, parts, writing);
        }
    }

    /// The parity cells of a line whose data cells are given in parts.
    fn parity_of(&self, lines: &Lines, data: &[Vec<Buf>]) -> Vec<BufMut> {
        let cell = lines.cell as usize;
        let mut parity: Vec<BufMut> = (0..lines.code.parity()).map(|_| self.rt.buffer(cell)).collect();
        // For each cell, the part where it stands and the bytes done of it.
        let mut places = vec![(0, 0); data.len()];
        let mut at = 0;
        while at < cell {
            let rest = |(parts, &(part, done)): (&Vec<Buf>, &(usize, usize))| parts[part].len() - done;
            let step = data.iter().zip(&places).map(rest).min().expect("a line has data");
            let source =
                |(parts, &(part, done)): (&'_ Vec<Buf>, &(usize, usize))| parts[part].slice(done, step);
            let sources: Vec<Buf> = data.iter().zip(&places).map(source).collect();
            let sources: Vec<&[u8]> = sources.iter().map(|bytes| &bytes[..]).collect();
            let mut targets: Vec<&mut [u8]> =
                parity.iter_mut().map(|bytes| &mut bytes[at..at + step]).collect();
            lines.code.encode(&sources, &mut targets);
            for (parts, (part, done)) in data.iter().zip(&mut places) {
                *done += step;
                if *done == parts[*part].len() {
                    (*part, *done) = (*part + 1, 0);
                }
            }
            at += step;
        }
        parity
    }

    /// What has to be written so that a parity chunk holds `blocks` (byte in the chunk and contents, no two of them
    /// over each other) and its parity agrees: pieces of data and of parity for all slots, also those out of
    /// service. The caller lets nothing else write these lines until the pieces are written.
    ///
    /// # Errors
    /// `Io` when more cells are out or unreadable than the parity makes up for.
    pub async fn plan_plug(
        &self,
        slots: &[SlotRef],
        mut blocks: Vec<(u64, Buf)>,
    ) -> Result<Vec<Piece>, ArrayError> {
        let lines = self.lines(slots).expect("only parity chunks have lines to plug");
        blocks.sort_unstable_by_key(|(offset, _)| *offset);
        let (mut extents, mut data, mut end) = (Vec::new(), Vec::new(), 0);
        for (offset, block) in &blocks {
            assert!(*offset >= end && lines.contains(*offset, block.len()), "a block at {offset}");
            assert!(offset.is_multiple_of(UNIT) && (block.len() as u64).is_multiple_of(UNIT));
            end = offset + block.len() as u64;
            for extent in lines.extents(*offset, block.len()) {
                data.push(block.slice(extent.from, extent.len));
                extents.push(extent);
            }
        }
        let mut bands = Band::covering(lines, &extents);
        // Columns in which all data is new need nothing of the old.
        let is_whole = |band: &Band| band.touched.len() == lines.code.data();
        let changed = |band: &Band| band.touched.union(band.parity(lines));
        self.fetch(slots, &mut bands, (Way::Only, Whose::Serving), |band| {
            if is_whole(band) { Subset::default() } else { changed(band) }
        })
        .await;
        self.fetch_enough(lines, slots, &mut bands, (Way::Only, Whose::Serving), |band| {
            !band.lost().is_empty()
        })
        .await;
        let mut pieces: Vec<Piece> = extents
            .iter()
            .zip(&data)
            .map(|(extent, data)| {
                let slot = lines.slot_of(extent.line, extent.role) as u8;
                Piece { slot, at: extent.at, data: data.clone() }
            })
            .collect();
        for band in &mut bands {
            let missing = changed(band).intersection(band.lost());
            if !missing.is_empty() {
                let computed = self.compute(lines, band, Subset::default(), missing).ok_or(ArrayError::Io)?;
                missing.iter().zip(computed).for_each(|(index, bytes)| band.cells[index] = Cell::Read(bytes));
            }
            let parity = self.plugged_parity(lines, band, &extents, &data);
            let forgotten = usize::from(active(Bug::ParityNotUpdated));
            pieces.extend(parity.into_iter().skip(forgotten));
        }
        Ok(pieces)
    }

    /// New parity for a band within one line, in which every changed cell is at hand, or all are new.
    fn plugged_parity(&self, lines: &Lines, band: &mut Band, extents: &[Extent], data: &[Buf]) -> Vec<Piece> {
        let line = band.at / lines.cell;
        let roles: Subset = band.touched.iter().map(|index| lines.role_of(line, index)).collect();
        let mut changes = Vec::with_capacity(roles.len());
        for role in roles.iter() {
            let old = std::mem::replace(&mut band.cells[lines.slot_of(line, role)], Cell::Unread);
            let mut change = match old {
                Cell::Read(old) => old,
                _ => self.rt.arena().take_zeroed(band.len),
            };
            let mine = |(extent, _): &(&Extent, &Buf)| extent.line == line && extent.role == role;
            for (extent, data) in extents.iter().zip(data).filter(mine) {
                let (from, to) =
                    (extent.at.max(band.at), (extent.at + extent.len as u64).min(band.at + band.len as u64));
                if from < to {
                    let new = &data[(from - extent.at) as usize..(to - extent.at) as usize];
                    add(&mut change[(from - band.at) as usize..(to - band.at) as usize], new);
                }
            }
            changes.push(change);
        }
        let mut parity: Vec<BufMut> = (0..lines.code.parity()).map(|_| self.rt.buffer(band.len)).collect();
        let changes: Vec<&[u8]> = changes.iter().map(|change| &change[..]).collect();
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|bytes| &mut bytes[..]).collect();
        lines.code.encode_changes(roles, &changes, &mut targets);
        let piece = |(role, mut new): (usize, BufMut)| {
            let index = lines.slot_of(line, role);
            if let Some(old) = band.bytes(index) {
                add(&mut new, old);
            }
            Piece { slot: index as u8, at: band.at, data: new.freeze() }
        };
        lines.code.parity_roles().iter().zip(parity).map(piece).collect()
    }

    /// Starts writing planned pieces to the slots in service.
    pub fn write_pieces(&self, slots: &[SlotRef], pieces: &[Piece]) -> Writing {
        let mut writing = Writing::new(self.lacking_too_many(slots));
        for piece in pieces {
            let slot = &slots[usize::from(piece.slot)];
            let at = |member: &Member| member.layout.slot_at(slot.slot) + piece.at;
            self.write_slot(slot, at, vec![piece.data.clone()], &mut writing);
        }
        writing
    }
}

/// What waits to be written to a slot.
#[derive(Clone)]
struct Queue {
    at: u64,
    parts: Vec<Buf>,
}

/// Parts that are cut to measure, without copying.
struct Cut {
    parts: std::vec::IntoIter<Buf>,
    rest: Option<Buf>,
}

impl Cut {
    fn take(&mut self, mut len: usize) -> Vec<Buf> {
        let mut taken: Vec<Buf> = Vec::new();
        while len > 0 {
            let part = self.rest.take().or_else(|| self.parts.next()).expect("the length was added up");
            let n = part.len().min(len);
            self.rest = (n < part.len()).then(|| part.slice(n, part.len() - n));
            let part = part.slice(0, n);
            match taken.last_mut() {
                Some(last) if last.is_followed_by(&part) => *last = last.join(&part),
                _ => taken.push(part),
            }
            len -= n;
        }
        taken
    }
}
