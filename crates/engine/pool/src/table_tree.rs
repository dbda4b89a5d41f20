//! Where a table is: the tree of its leaves.
//!
//! A leaf has records, a node above has references to nodes of the level below. The tree is as high as its leaves need: a table of one leaf is that leaf.
//! A leaf or node with nothing in it is not stored. Only the pointers are kept in memory, not what the leaves say.
//!
//! The nodes of the chunk table have to be found before any chunk is known. So its references name the slots, too:
//!
//! ```text
//! reference of the catalogue, of what is lost and of the registry: pointer 32
//! reference of the chunk table: pointer 32   32 slots 1   33 zero 7   40 (disk 2, slot 4) × 4
//! ```

use crate::tables::{Impossible, Table};
use forebay_base::codec::{Reader, Truncated, Writer};
use forebay_base::planted::table_shape;
use forebay_device::SlotRef;
use forebay_space::{ChunkId, PTR_BYTES, Ptr};
use forebay_tree::NODE_BODY;
use std::collections::{BTreeMap, BTreeSet};

/// Slots of a chunk of nodes, at most.
pub(crate) const HOME_SLOTS_MAX: usize = 4;
const HOME_BYTES: usize = 32;
/// A reference of the chunk table.
pub(crate) const HOMED_REF_BYTES: usize = PTR_BYTES + HOME_BYTES;
const _: () = assert!(8 + HOME_SLOTS_MAX * 6 == HOME_BYTES);
/// Levels above the leaves, at most: more than any number of records needs.
pub(crate) const HEIGHT_MAX: u8 = 6;

/// A node of a table and where its chunk is; the slots are named by the chunk table only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ref {
    pub ptr: Ptr,
    pub slots: Vec<SlotRef>,
}

impl Ref {
    pub fn encode(&self, is_homed: bool, w: &mut Writer) {
        self.ptr.encode(w);
        if !is_homed {
            return;
        }
        assert!(self.slots.len() <= HOME_SLOTS_MAX, "nodes have few copies");
        w.u8(self.slots.len() as u8).zeros(7);
        self.slots.iter().for_each(|slot| _ = w.u16(slot.disk).u32(slot.slot));
        w.zeros((HOME_SLOTS_MAX - self.slots.len()) * 6);
    }

    /// Nothing when it is impossible.
    pub fn decode(is_homed: bool, r: &mut Reader) -> Result<Option<Ref>, Truncated> {
        let ptr = Ptr::decode(r)?;
        if !is_homed {
            return Ok(Some(Ref { ptr, slots: Vec::new() }));
        }
        let (count, _) = (usize::from(r.u8()?), r.bytes(7)?);
        let mut slots = Vec::new();
        for nth in 0..HOME_SLOTS_MAX {
            let slot = SlotRef { disk: r.u16()?, slot: r.u32()? };
            slots.extend((nth < count).then_some(slot));
        }
        let is_possible = count <= HOME_SLOTS_MAX && ptr.is_hole() == (count == 0);
        Ok(is_possible.then_some(Ref { ptr, slots }))
    }
}

/// A table's root, as a superblock has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root {
    pub at: Ref,
    pub height: u8,
}

/// A node: its level, 0 for a leaf, and its number there.
pub(crate) type Place = (usize, u64);

/// The nodes of a table.
#[derive(Debug)]
pub(crate) struct TableTree {
    pub table: Table,
    /// By level, those that are stored.
    levels: Vec<BTreeMap<u64, Ptr>>,
}

impl TableTree {
    pub fn new(table: Table) -> TableTree {
        TableTree { table, levels: vec![BTreeMap::new()] }
    }

    /// References in a node of this table.
    pub fn fan_out(table: Table) -> u64 {
        let bytes = if table.is_homed() { HOMED_REF_BYTES } else { PTR_BYTES };
        table_shape().map_or((NODE_BODY / bytes) as u64, |shape| shape.fan_out)
    }

    /// A node that was read: what it refers to.
    pub fn decode_node(table: Table, body: &[u8]) -> Result<Vec<Ref>, Impossible> {
        let mut r = Reader::new(body);
        let all = (0..Self::fan_out(table)).map(|_| Ref::decode(table.is_homed(), &mut r).ok().flatten());
        all.collect::<Option<Vec<Ref>>>().ok_or(Impossible)
    }

    /// The same in bytes; nothing when it refers to nothing.
    pub fn encode_node(
        &self,
        (level, index): Place,
        slots: impl Fn(&Ptr) -> Vec<SlotRef>,
    ) -> Option<Vec<u8>> {
        let (fan_out, is_homed) = (Self::fan_out(self.table), self.table.is_homed());
        if !self.has_below((level, index)) {
            return None;
        }
        let (first, below) = (index * fan_out, &self.levels[level - 1]);
        let mut body = vec![0; if is_homed { HOMED_REF_BYTES } else { PTR_BYTES } * fan_out as usize];
        let mut w = Writer::new(&mut body);
        for index in first..first + fan_out {
            let at = match below.get(&index) {
                Some(ptr) => Ref { ptr: *ptr, slots: if is_homed { slots(ptr) } else { Vec::new() } },
                None => Ref::default(),
            };
            at.encode(is_homed, &mut w);
        }
        Some(body)
    }

    /// A node is stored here, or not any more; gives where it was.
    pub fn put(&mut self, (level, index): Place, ptr: Option<Ptr>) -> Option<Ptr> {
        while self.levels.len() <= level {
            self.levels.push(BTreeMap::new());
        }
        match ptr {
            Some(ptr) => self.levels[level].insert(index, ptr),
            None => self.levels[level].remove(&index),
        }
    }

    /// Whether a node above the leaves has something to refer to.
    pub fn has_below(&self, (level, index): Place) -> bool {
        let first = index * Self::fan_out(self.table);
        self.levels[level - 1].range(first..first + Self::fan_out(self.table)).next().is_some()
    }

    pub fn at(&self, (level, index): Place) -> Option<Ptr> {
        self.levels.get(level)?.get(&index).copied()
    }

    /// All that is stored.
    pub fn all(&self) -> impl Iterator<Item = (Place, &Ptr)> {
        let levels = self.levels.iter().enumerate();
        levels.flat_map(|(level, nodes)| nodes.iter().map(move |(index, ptr)| ((level, *index), ptr)))
    }

    /// Leaves that, when they are written, have every node written anew that lies in a chunk of this kind.
    pub fn leaves_to_leave(&self, is_meant: impl Fn(ChunkId) -> bool) -> impl Iterator<Item = u64> {
        let fan_out = Self::fan_out(self.table);
        let meant = self.all().filter(move |(_, ptr)| is_meant(ptr.addr().chunk()));
        meant.map(move |((level, index), _)| index * fan_out.pow(level as u32))
    }

    /// The first node from a place on.
    pub fn next(&self, (level, index): Place) -> Option<(Place, Ptr)> {
        let levels = self.levels.iter().enumerate().skip(level);
        let first = |(at, nodes): (usize, &BTreeMap<u64, Ptr>)| {
            let from = if at == level { index } else { 0 };
            nodes.range(from..).next().map(|(index, ptr)| ((at, *index), *ptr))
        };
        levels.filter_map(first).next()
    }

    pub fn len(&self) -> usize {
        self.levels.iter().map(BTreeMap::len).sum()
    }

    /// Leaves up to the last one that is stored.
    pub fn leaves(&self) -> u64 {
        self.levels[0].last_key_value().map_or(0, |(leaf, _)| leaf + 1)
    }

    /// Levels above the leaves that a table of so many leaves has.
    fn height_of(table: Table, leaves: u64) -> usize {
        let (mut height, mut nodes) = (0, leaves);
        while nodes > 1 {
            (height, nodes) = (height + 1, nodes.div_ceil(Self::fan_out(table)));
        }
        height
    }

    /// What must be written when these leaves, the last of which is below `leaves`, have changed: they and what is above them, level by level. And
    /// what is stored and belongs to the table no more.
    pub fn path(&self, changed: &BTreeSet<u64>, leaves: u64) -> (BTreeSet<Place>, Vec<Place>) {
        let (fan_out, height) = (Self::fan_out(self.table), Self::height_of(self.table, leaves));
        let mut path: BTreeSet<Place> = BTreeSet::new();
        let (mut level, mut nodes) = (changed.clone(), leaves);
        for at in 0..=height {
            path.extend(level.iter().filter(|index| **index < nodes).map(|index| (at, *index)));
            level = level.iter().map(|index| index / fan_out).collect();
            nodes = nodes.div_ceil(fan_out);
            // What is above has no node for it yet, or still has one.
            if at < height && self.levels.get(at + 1).is_none_or(BTreeMap::is_empty) {
                level.extend(
                    self.levels
                        .get(at)
                        .into_iter()
                        .flat_map(|known| known.keys().map(|index| index / fan_out)),
                );
            }
        }
        let mut nodes = leaves;
        let mut gone = Vec::new();
        for (at, known) in self.levels.iter().enumerate() {
            let limit = if at > height { 0 } else { nodes };
            gone.extend(known.range(limit..).map(|(index, _)| (at, *index)));
            nodes = nodes.div_ceil(fan_out);
        }
        (path, gone)
    }

    /// The root of a table of so many leaves.
    pub fn root(&self, leaves: u64, slots: impl Fn(&Ptr) -> Vec<SlotRef>) -> Root {
        let height = Self::height_of(self.table, leaves);
        let Some(ptr) = self.at((height, 0)) else { return Root::default() };
        let slots = if self.table.is_homed() { slots(&ptr) } else { Vec::new() };
        Root { at: Ref { ptr, slots }, height: height as u8 }
    }
}
