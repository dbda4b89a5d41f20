//! Blocks that are made smaller before they are stored, and what becomes of them on the way.
//!
//! What clients and merging writers see is always the whole block; only what goes to the data disks is packed. The log gets whole blocks
//! as well: it may be read when the volume's compression is another one. A block of zeros is a hole from the start.
//!
//! A large write to chunks with parity is packed before it asks for lines of its own, so that it asks for as many as it fills; its
//! blocks are dealt out to them one after the other ([`Packing::deal`]).

use crate::dataset::Dataset;
use crate::entry::Change;
use crate::error::IoError;
use crate::places::PlacesClaim;
use crate::shard::Shard;
use forebay_base::Checksum;
use forebay_compress::{Compression, Damaged};
use forebay_device::UNIT;
use forebay_runtime::{Buf, yield_now};
use forebay_space::{Addr, Ptr, Size};
use std::rc::Rc;

/// How long packing keeps others waiting.
const TURN_NANOS: u64 = 500_000;

/// A block's contents, and how they are stored.
#[derive(Clone)]
pub(crate) struct Block {
    pub data: Buf,
    form: Form,
}

#[derive(Clone)]
enum Form {
    Whole,
    Packed(u8, Buf),
    Zeros,
}

impl Block {
    /// One that is stored as it is.
    pub fn whole(data: Buf) -> Block {
        Block { data, form: Form::Whole }
    }

    /// One that is stored in this form; kind 0 is that of whole ones.
    pub fn of(data: Buf, kind: u8, stored: Buf) -> Block {
        Block { data, form: if kind == 0 { Form::Whole } else { Form::Packed(kind, stored) } }
    }

    /// Whether it takes no place at all.
    pub fn is_zeros(&self) -> bool {
        matches!(self.form, Form::Zeros)
    }

    /// What goes to disk.
    pub fn stored(&self) -> Buf {
        match &self.form {
            Form::Whole => self.data.clone(),
            Form::Packed(_, bytes) => bytes.clone(),
            Form::Zeros => self.data.slice(0, 0),
        }
    }

    pub fn size(&self) -> Size {
        let units = |bytes: &Buf| (bytes.len() as u64 / UNIT) as u32;
        Size { units: units(&self.stored()), whole: units(&self.data) }
    }

    /// The pointer to the block at a place that was made for it; its birth is for the commit to say.
    pub fn point(&self, place: &Ptr) -> Ptr {
        let stored = self.stored();
        assert_eq!(place.bytes() as usize, stored.len(), "a block of another size at {:?}", place.addr());
        let mut ptr = Ptr::new(place.addr(), stored.len() as u32, 0, Checksum::of(&stored));
        if let Form::Packed(kind, _) = &self.form {
            ptr.set_kind(*kind);
        }
        ptr
    }
}

/// A write whose blocks are packed.
#[derive(Default)]
pub(crate) struct Packing {
    blocks: Vec<Block>,
    /// Where the first blocks go, in lines of their own; a hole for one of zeros.
    dealt: Vec<Ptr>,
    /// These lines. What of them no block got goes back when the write is done: until then nobody else begins it.
    lines: Vec<PlacesClaim>,
}

impl Packing {
    pub fn new(blocks: Vec<Block>) -> Packing {
        Packing { blocks, dealt: Vec::new(), lines: Vec::new() }
    }

    /// What the blocks take that have no place yet.
    pub fn sizes_left(&self) -> Vec<Size> {
        let left = self.blocks[self.dealt.len()..].iter();
        left.filter(|block| !block.is_zeros()).map(Block::size).collect()
    }

    /// The blocks that have no place yet are stored as they are, except those of zeros.
    pub fn make_whole(&mut self) {
        for block in self.blocks[self.dealt.len()..].iter_mut().filter(|block| !block.is_zeros()) {
            block.form = Form::Whole;
        }
    }

    /// Deals blocks out to lines, in order, as far as these go.
    fn deal(&mut self, lines: PlacesClaim) {
        let mut blocks = self.blocks[self.dealt.len()..].iter().peekable();
        for (first, units) in lines.regions() {
            let cell = lines.cell(first);
            let (mut at, end) = (first.unit(), first.unit() + units);
            while let Some(block) = blocks.peek() {
                let size = block.size();
                let unit = size.within_cell(at, cell);
                if unit + size.units > end {
                    break;
                }
                self.dealt.push(if block.is_zeros() {
                    Ptr::HOLE
                } else {
                    at = unit + size.units;
                    let bytes = size.units * UNIT as u32;
                    Ptr::new(Addr::new(first.chunk(), unit), bytes, 0, Checksum::default())
                });
                blocks.next();
            }
        }
        self.lines.push(lines);
    }

    /// Units of the lines that were claimed for them.
    pub fn units_in_lines(&self) -> u64 {
        self.lines.iter().map(PlacesClaim::units).sum()
    }

    /// What writes the blocks from `first` on: those that were dealt out to their places, the others to `places`, by way of the log if
    /// it `logs`; and the lines to keep until it is done.
    pub fn changes(
        self,
        dataset: &Rc<Dataset>,
        first: u64,
        places: Vec<Ptr>,
        logs: bool,
    ) -> (Vec<Change>, Vec<PlacesClaim>) {
        let (dealt, mut lines) = (self.dealt.len(), self.lines);
        lines.iter_mut().for_each(|lines| lines.take(&self.dealt));
        let has_place = |ptr: &Ptr| !ptr.is_hole();
        let mut places = self.dealt.into_iter().filter(has_place).chain(places);
        let mut changes: Vec<Change> = Vec::with_capacity(1);
        for (nth, block) in self.blocks.into_iter().enumerate() {
            let place = if block.is_zeros() { None } else { places.next() };
            if let (Some(place), true) = (place, logs && nth >= dealt) {
                match changes.last_mut() {
                    Some(Change::Data { blocks, .. }) => blocks.push((block, Some(place))),
                    _ => {
                        let (dataset, first) = (dataset.clone(), first + nth as u64);
                        changes.push(Change::Data { dataset, first, blocks: vec![(block, Some(place))] });
                    }
                }
                continue;
            }
            let ptr = place.map_or(Ptr::HOLE, |place| block.point(&place));
            match changes.last_mut() {
                Some(Change::Write { ptrs, parts, stored, .. }) => {
                    ptrs.push(ptr);
                    stored.push(block.stored());
                    match parts.last_mut() {
                        Some(part) if part.is_followed_by(&block.data) => *part = part.join(&block.data),
                        _ => parts.push(block.data),
                    }
                }
                _ => changes.push(Change::Write {
                    dataset: dataset.clone(),
                    first: first + nth as u64,
                    ptrs: vec![ptr],
                    stored: vec![block.stored()],
                    parts: vec![block.data],
                    destage: false,
                }),
            }
        }
        (changes, lines)
    }
}

impl Shard {
    /// Makes a block smaller, if its volume wants that, it is worth trying, and it can be.
    fn pack(&self, dataset: &Dataset, data: Buf) -> Block {
        if dataset.compression() == Compression::Off {
            return Block::whole(data);
        }
        if data[..] == self.zeros(data.len())[..] {
            return Block { data, form: Form::Zeros };
        }
        if !dataset.sampling.tries() {
            return Block::whole(data);
        }
        self.squeeze(dataset, data)
    }

    /// Makes a block smaller, if it can be.
    fn squeeze(&self, dataset: &Dataset, data: Buf) -> Block {
        let compression = dataset.compression();
        if compression == Compression::Off || data.len() as u64 <= UNIT {
            return Block::whole(data);
        }
        let start = self.rt.now();
        let mut codec = self.codec.borrow_mut();
        let packed = codec.pack(compression, &data);
        dataset.sampling.tried(packed.is_some());
        let form = match packed {
            Some((kind, bytes)) => Form::Packed(kind as u8, self.rt.arena().copy(bytes).freeze()),
            None => Form::Whole,
        };
        dataset.packing_nanos.set(dataset.packing_nanos.get() + self.rt.now().since(start));
        Block { data, form }
    }

    /// Makes a block whole that is stored in the form `kind`.
    pub fn unpack(&self, dataset: &Dataset, kind: u8, stored: &Buf) -> Result<Buf, Damaged> {
        if kind == 0 {
            return if stored.len() == dataset.block_bytes() { Ok(stored.clone()) } else { Err(Damaged) };
        }
        let start = self.rt.now();
        let mut data = self.rt.arena().take(dataset.block_bytes());
        let unpacked = self.codec.borrow_mut().unpack(kind, stored, &mut data);
        dataset.unpacking_nanos.set(dataset.unpacking_nanos.get() + self.rt.now().since(start));
        unpacked.map(|()| data.freeze())
    }

    /// Packs the blocks in `parts`, each of which is whole blocks. Others get a turn in between.
    pub async fn pack_all(&self, dataset: &Dataset, parts: Vec<Buf>) -> Packing {
        let block_bytes = dataset.block_bytes();
        let mut blocks = Vec::new();
        let mut turn = self.rt.now();
        for part in parts {
            for at in (0..part.len()).step_by(block_bytes) {
                blocks.push(self.pack(dataset, part.slice(at, block_bytes)));
                if self.rt.now().since(turn) > TURN_NANOS {
                    yield_now().await;
                    turn = self.rt.now();
                }
            }
        }
        Packing::new(blocks)
    }

    /// Makes a block smaller that is durable in the log, if it can be. Where space is held for 4 KiB blocks, what moves keeps out of it.
    pub fn pack_moved(&self, dataset: &Dataset, data: Buf) -> Block {
        let may = self.space.borrow().spare(0) == u64::MAX;
        if may { self.squeeze(dataset, data) } else { Block::whole(data) }
    }

    /// Packs a block that is durable in the log and was read from there.
    pub fn pack_staged(&self, dataset: &Dataset, block: u64) -> Block {
        let (data, is_whole) = {
            let staged = &dataset.staged.borrow()[&block];
            (staged.block.data.clone(), staged.parts.is_none())
        };
        let packed = if is_whole { self.pack_moved(dataset, data) } else { Block::whole(data) };
        if let Some(staged) = dataset.staged.borrow_mut().get_mut(&block) {
            staged.block = packed.clone();
        }
        packed
    }

    /// Claims lines for those blocks that fill some; for more, while the others are too many for the log. Not to be called with
    /// blocks locked.
    pub async fn deal_lines(
        self: &Rc<Self>,
        dataset: &Dataset,
        mut packing: Packing,
    ) -> Result<Packing, IoError> {
        loop {
            let (left, dealt) = (packing.sizes_left(), packing.dealt.len());
            let units: u64 = left.iter().map(|size| u64::from(size.units)).sum();
            if units == 0 {
                return Ok(packing);
            }
            let each = (left.len() * dataset.block_bytes()).div_ceil(units as usize);
            packing.deal(self.claim_lines(1, units, each, dataset.claim()).await?);
            let left = packing.sizes_left().len() as u64;
            if packing.dealt.len() == dealt || self.fits_into_log(left, dataset.block_bytes()) {
                return Ok(packing);
            }
        }
    }
}
