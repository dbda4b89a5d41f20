//! Bands: the same bytes of every slot of a parity chunk, in memory as far as they were read.
//!
//! All that reads more than one cell of a line works on bands: it fetches what it needs, learns what is lost (the disk
//! is out, or could not read), fetches more, and computes what it misses. A band may span lines; each has its
//! own roles and is computed by itself.

use crate::hedge::avoids;
use crate::lines::{Extent, Lines};
use crate::subset::Subset;
use crate::{Array, SlotRef, Way, Whose};
use forebay_device::Member;
use forebay_runtime::{BufMut, DiskError, DiskErrorKind};
use futures_util::future::join_all;
use std::ops::Range;

/// What is known of one slot's bytes.
pub(crate) enum Cell {
    Unread,
    Read(BufMut),
    /// The disk is not in service, or could not read it.
    Lost,
    /// The disk is late, and was not waited for.
    Late,
}

impl Cell {
    /// What a read came to.
    pub fn of(bytes: BufMut, result: Result<(), DiskError>) -> Cell {
        match result {
            Ok(()) => Cell::Read(bytes),
            Err(DiskError { kind: DiskErrorKind::Late, .. }) => Cell::Late,
            Err(_) => Cell::Lost,
        }
    }
}

/// Bytes `at..at + len` of every slot.
pub(crate) struct Band {
    pub at: u64,
    pub len: usize,
    /// Slots on which there is something of what it is about.
    pub touched: Subset,
    /// By slot.
    pub cells: Vec<Cell>,
}

impl Band {
    pub fn new(lines: &Lines, at: u64, len: usize) -> Band {
        let cells = (0..lines.code.width()).map(|_| Cell::Unread).collect();
        Band { at, len, touched: Subset::default(), cells }
    }

    /// The least that covers the extents, which are sorted by line: within a line, a band for every stretch of columns in
    /// which the same cells are touched.
    pub fn covering(lines: &Lines, extents: &[Extent]) -> Vec<Band> {
        let mut bands: Vec<Band> = Vec::new();
        for of_line in extents.chunk_by(|a, b| a.line == b.line) {
            let ends = |extent: &Extent| [extent.at, extent.at + extent.len as u64];
            let mut edges: Vec<u64> = of_line.iter().flat_map(ends).collect();
            edges.sort_unstable();
            edges.dedup();
            for edge in edges.windows(2) {
                let (at, len) = (edge[0], (edge[1] - edge[0]) as usize);
                let covers = |extent: &&Extent| extent.at <= at && edge[1] <= extent.at + extent.len as u64;
                let slot = |extent: &Extent| lines.slot_of(extent.line, extent.role);
                let touched: Subset = of_line.iter().filter(covers).map(slot).collect();
                match bands.last_mut() {
                    _ if touched.is_empty() => {}
                    Some(last)
                        if last.at + last.len as u64 == at
                            && last.at / lines.cell == at / lines.cell
                            && last.touched == touched =>
                    {
                        last.len += len;
                    }
                    _ => bands.push(Band { touched, ..Band::new(lines, at, len) }),
                }
            }
        }
        bands
    }

    /// The lines it spans, each with its part of the band.
    pub fn parts(&self, lines: &Lines) -> impl Iterator<Item = (u64, Range<usize>)> + use<> {
        let (start, end, cell) = (self.at, self.at + self.len as u64, lines.cell);
        (start / cell..end.div_ceil(cell)).map(move |line| {
            let (from, to) = ((line * cell).max(start), ((line + 1) * cell).min(end));
            (line, (from - start) as usize..(to - start) as usize)
        })
    }

    /// The slots of a line's parity, for a band within one line.
    pub fn parity(&self, lines: &Lines) -> Subset {
        let line = self.at / lines.cell;
        lines.code.parity_roles().iter().map(|role| lines.slot_of(line, role)).collect()
    }

    pub fn bytes(&self, slot: usize) -> Option<&BufMut> {
        match &self.cells[slot] {
            Cell::Read(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Slots that were asked for and cannot be had.
    pub fn lost(&self) -> Subset {
        (0..self.cells.len()).filter(|slot| matches!(self.cells[*slot], Cell::Lost | Cell::Late)).collect()
    }

    /// Slots that were read.
    pub fn read(&self) -> Subset {
        (0..self.cells.len()).filter(|slot| self.bytes(*slot).is_some()).collect()
    }

    pub fn all(&self) -> Subset {
        Subset::first(self.cells.len())
    }
}

impl Array {
    /// Reads `len` bytes at `at` of a slot.
    pub(crate) async fn read_slot(
        &self,
        member: &Member,
        slot: &SlotRef,
        at: u64,
        buffer: BufMut,
        way: Way,
    ) -> (BufMut, Result<(), DiskError>) {
        self.read_member(member, member.layout.slot_at(slot.slot) + at, buffer, way).await
    }

    /// Reads as many bytes as `buffer` has at `at` of a disk.
    pub(crate) async fn read_member(
        &self,
        member: &Member,
        at: u64,
        buffer: BufMut,
        way: Way,
    ) -> (BufMut, Result<(), DiskError>) {
        let reading = match way {
            Way::Only => member.disk.read(at, buffer),
            Way::Among => {
                self.hedge.attend();
                member.disk.read_unless_late(at, buffer)
            }
        };
        member.reads.set(member.reads.get() + 1);
        let (bytes, result) = reading.await;
        member.reads.set(member.reads.get() - 1);
        if result.is_err_and(|error| error.kind.is_of_device()) {
            member.health.failed_read(self.rt.now(), at..at + bytes.len() as u64);
        }
        (bytes, result)
    }

    /// Reads of each band the slots that `which` names, all at once, as far as they are unread.
    pub(crate) async fn fetch(
        &self,
        slots: &[SlotRef],
        bands: &mut [Band],
        (way, whose): (Way, Whose),
        which: impl Fn(&Band) -> Subset,
    ) {
        let mut reading = Vec::new();
        for (nth, band) in bands.iter_mut().enumerate() {
            for index in which(band).iter().collect::<Vec<usize>>() {
                if !matches!(band.cells[index], Cell::Unread) {
                    continue;
                }
                let Some(member) = self.of(whose, &slots[index]) else {
                    band.cells[index] = Cell::Lost;
                    continue;
                };
                if way == Way::Among && avoids(member) {
                    band.cells[index] = Cell::Late;
                    continue;
                }
                let (at, buffer) = (band.at, self.rt.buffer(band.len));
                let read =
                    async move { (nth, index, self.read_slot(member, &slots[index], at, buffer, way).await) };
                reading.push(read);
            }
        }
        for (nth, index, (bytes, result)) in join_all(reading).await {
            bands[nth].cells[index] = Cell::of(bytes, result);
        }
    }

    /// Reads of each band that `which` names as much as anything can be computed from: D cells, counting what was read already,
    /// in the order of the roles of its first line. Those that fail are made up for by others.
    pub(crate) async fn fetch_enough(
        &self,
        lines: &Lines,
        slots: &[SlotRef],
        bands: &mut [Band],
        from: (Way, Whose),
        which: impl Fn(&Band) -> bool,
    ) {
        let more = |band: &Band| -> Subset {
            let line = band.at / lines.cell;
            let in_order = (0..lines.code.width()).map(|role| lines.slot_of(line, role));
            let unread = in_order.filter(|index| matches!(band.cells[*index], Cell::Unread));
            let missing = if which(band) { lines.code.data().saturating_sub(band.read().len()) } else { 0 };
            unread.take(missing).collect()
        };
        while bands.iter().any(|band| !more(band).is_empty()) {
            self.fetch(slots, bands, from, more).await;
        }
    }

    /// Computes the slots `wanted` of a band from those that were read and are not in `distrusted`, in the order of the
    /// slots. Nothing when too few are left.
    pub(crate) fn compute(
        &self,
        lines: &Lines,
        band: &Band,
        distrusted: Subset,
        wanted: Subset,
    ) -> Option<Vec<BufMut>> {
        let usable = band.read().without(distrusted);
        if usable.len() < lines.code.data() {
            return None;
        }
        let mut outs: Vec<BufMut> = wanted.iter().map(|_| self.rt.buffer(band.len)).collect();
        for (line, part) in band.parts(lines) {
            let roles =
                |slots: Subset| slots.iter().map(|slot| lines.role_of(line, slot)).collect::<Subset>();
            let recipe = lines.code.recipe(roles(usable), roles(wanted))?;
            let source =
                |role| &band.bytes(lines.slot_of(line, role)).expect("usable slots were read")[part.clone()];
            let sources: Vec<&[u8]> = recipe.sources().iter().map(source).collect();
            let mut targets: Vec<(usize, &mut [u8])> = wanted
                .iter()
                .zip(&mut outs)
                .map(|(slot, out)| (lines.role_of(line, slot), &mut out[part.clone()]))
                .collect();
            targets.sort_unstable_by_key(|(role, _)| *role);
            let mut targets: Vec<&mut [u8]> = targets.into_iter().map(|(_, bytes)| bytes).collect();
            recipe.apply(&sources, &mut targets);
        }
        Some(outs)
    }
}
