//! The living tree.
//!
//! Nodes are shared with a running checkpoint through `Rc`: freezing is a clone of the root, and a later
//! change copies the nodes on its path once. A *period* lies between two freezes; each node carries the
//! period of its last change as `stamp`, 0 when it equals its home on disk.
//!
//! A leaf that is not in memory can be written all the same: its [`Delta`] collects what changed, and the
//! old pointers are resolved when the leaf is next read, at the latest by the checkpoint. To free each old
//! block exactly once, the delta keeps the period of each entry: an entry of this period that is replaced is
//! freed at once (no leaf on disk ever has it); an entry of the frozen period is left to the checkpoint's
//! leaf on disk, through which it is resolved later.
//!
//! The same holds for interior nodes. One that is on disk only is read when somebody looks below it; what is changed below it meanwhile hangs on a node
//! that does not know its other children yet. A checkpoint has those read that it writes.
//!
//! Nodes leave their homes only in checkpoints: discard empties leaves, the checkpoint drops empty ones.

use crate::delta::Delta;
use crate::frozen::{Frozen, merge};
use crate::mapped::Mapped;
use crate::node::FANOUT;
use crate::path::height_for;
use crate::pointers::Pointers;
use crate::shared::{Shared, leaves_end};
use forebay_base::planted::{Bug, active};
use forebay_space::Ptr;
use std::cell::Cell;
use std::rc::Rc;

#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub stamp: u64,
    pub home: Ptr,
    pub ptrs: Pointers,
    /// Looked at since the last eviction round.
    pub(crate) touched: Cell<bool>,
}

#[derive(Clone, Debug)]
pub(crate) struct Inner {
    pub stamp: u64,
    /// Nothing when the node above has not been read, so nobody knows.
    pub home: Option<Ptr>,
    /// Whether what is stored at home is not known: then there are children of kind [`Child::Below`].
    pub unread: bool,
    pub children: Vec<Child>,
}

impl Inner {
    /// With nothing below it, stored nowhere.
    pub fn holes() -> Inner {
        let children = vec![Child::Hole; FANOUT as usize];
        Inner { stamp: 0, home: Some(Ptr::HOLE), unread: false, children }
    }

    /// Of which nobody knows what is below it.
    fn unread(home: Option<Ptr>) -> Inner {
        Inner { stamp: 0, home, unread: true, children: vec![Child::Below(None); FANOUT as usize] }
    }

    fn read(home: Ptr, ptrs: &[Ptr]) -> Inner {
        let children = ptrs.iter().map(|ptr| Child::stored(*ptr)).collect();
        Inner { stamp: 0, home: Some(home), unread: false, children }
    }

    /// Takes in what is stored at home.
    pub fn fill(&mut self, ptrs: &[Ptr]) {
        self.unread = false;
        for (child, &ptr) in self.children.iter_mut().zip(ptrs) {
            match child {
                Child::Below(None) => *child = Child::stored(ptr),
                Child::Below(Some(_)) if active(Bug::UnreadNodeForgetsChanges) => *child = Child::stored(ptr),
                Child::Below(Some(delta)) => *child = Child::Cold { home: ptr, delta: Some(delta.clone()) },
                Child::Inner(inner) if inner.home.is_none() => {
                    let inner = Rc::make_mut(inner);
                    inner.home = Some(ptr);
                    if ptr.is_hole() {
                        inner.fill(&[Ptr::HOLE; FANOUT as usize]);
                    }
                }
                Child::Hole | Child::Cold { .. } | Child::Leaf(_) | Child::Inner(_) => {}
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Child {
    Hole,
    /// On disk only. The changes are of a leaf; its home is a hole when there are only these.
    Cold {
        home: Ptr,
        delta: Option<Rc<Delta>>,
    },
    /// Where it is, if it is, the node above says, which has not been read. The changes are of a leaf.
    Below(Option<Rc<Delta>>),
    Leaf(Rc<Leaf>),
    Inner(Rc<Inner>),
}

impl Child {
    fn stored(ptr: Ptr) -> Child {
        if ptr.is_hole() { Child::Hole } else { Child::Cold { home: ptr, delta: None } }
    }

    /// Whether nothing of it is in memory.
    pub fn is_bare(&self) -> bool {
        matches!(self, Child::Hole | Child::Cold { delta: None, .. } | Child::Below(None))
    }

    /// Where it is stored, as far as that is known.
    pub fn home(&self) -> Option<Ptr> {
        match self {
            Child::Hole => Some(Ptr::HOLE),
            Child::Cold { home, .. } => Some(*home),
            Child::Leaf(leaf) => Some(leaf.home),
            Child::Inner(inner) => inner.home,
            Child::Below(_) => None,
        }
    }
}

/// A node that has to be read from its home before more is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unread {
    pub level: u8,
    pub index: u64,
    pub home: Ptr,
}

impl Unread {
    /// The first leaf below it.
    pub fn first(&self) -> u64 {
        self.index.saturating_mul(FANOUT.saturating_pow(u32::from(self.level)))
    }

    /// The leaf after the last one below it.
    pub fn end(&self) -> u64 {
        leaves_end(self.level, self.index)
    }
}

/// What a lookup found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    Hole,
    At(Ptr),
    /// This node must be read first: the block's leaf, or one above it.
    Unread(Unread),
}

/// The next leaf that exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    None,
    Leaf(u64),
    /// Perhaps below this node, which must be read first.
    Unread(Unread),
}

/// The child slot of a leaf, or what stands for it, and the node through which one learns where it is, if that is not known.
pub(crate) struct Seen<'a> {
    pub child: &'a Child,
    pub unread: Option<Unread>,
}

/// The tree of one volume.
pub struct Tree {
    /// Interior levels above the leaves.
    pub(crate) height: u8,
    pub(crate) root: Child,
    pub(crate) period: u64,
    /// As far as cold leaves have been resolved.
    mapped: Mapped,
    /// Nodes that the next checkpoint will write, at most.
    pub(crate) dirty: u64,
    /// Bytes of memory that the changes of this period hold, roughly.
    pub(crate) dirty_bytes: u64,
    /// What of it a snapshot has, too: that is never given as freed.
    pub shared: Shared,
}

/// Bytes of memory of an interior node.
pub const INNER_MEMORY: usize = FANOUT as usize * size_of::<Child>();

/// Memory of a changed node, of the changes to a leaf that is not in memory, and of one of these, in bytes.
pub(crate) const NODE_MEMORY: u64 = 16 << 10;
pub(crate) const DELTA_MEMORY: u64 = 256;
const DELTA_ENTRY_MEMORY: u64 = 64;

/// Blocks below a node of `level`.
fn reach(level: u8) -> u64 {
    FANOUT.pow(u32::from(level) + 1)
}

impl Tree {
    /// A tree for `blocks` blocks, all holes.
    pub fn empty(blocks: u64) -> Tree {
        Tree::new(height_for(blocks), Child::Hole, Mapped::default())
    }

    /// A tree as it was stored, of which nothing is in memory.
    pub fn stored(root: Ptr, height: u8, mapped: Mapped) -> Tree {
        Tree::new(height, Child::stored(root), mapped)
    }

    fn new(height: u8, root: Child, mapped: Mapped) -> Tree {
        Tree { height, root, period: 1, mapped, dirty: 0, dirty_bytes: 0, shared: Shared::default() }
    }

    pub fn height(&self) -> u8 {
        self.height
    }
    /// What is mapped. Exact once no leaf has unresolved changes.
    pub fn mapped(&self) -> Mapped {
        self.mapped.floor()
    }
    /// Nodes that the next checkpoint will write, at most.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }
    /// Bytes of memory that changes since the last freeze hold, roughly.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }
    /// Whether a checkpoint has anything to write.
    pub fn is_dirty(&self) -> bool {
        self.dirty > 0
    }
    /// Whether nothing is mapped and nothing is stored.
    pub fn is_empty(&self) -> bool {
        matches!(self.root, Child::Hole)
    }

    /// Makes room for `blocks` blocks.
    pub fn grow(&mut self, blocks: u64) {
        while self.height < height_for(blocks) {
            self.height += 1;
            if !matches!(self.root, Child::Hole) {
                let mut above = Inner { stamp: self.period, ..Inner::holes() };
                above.children[0] = std::mem::replace(&mut self.root, Child::Hole);
                self.root = Child::Inner(Rc::new(above));
                self.dirty += 1;
            }
        }
    }

    /// Takes in an interior node that was read from its home. False when it is not there any more, or was read meanwhile.
    pub fn load(&mut self, node: Unread, ptrs: &[Ptr]) -> bool {
        load(&mut self.root, self.height, node, ptrs)
    }

    /// The child slot of node `index` of `level`, copying shared nodes on the way; nothing when a parent is absent.
    pub(crate) fn place(&mut self, level: u8, index: u64) -> Option<&mut Child> {
        place(&mut self.root, self.height, level, index)
    }

    /// What is known of node `index` of `level`.
    pub(crate) fn seen(&self, level: u8, index: u64) -> Seen<'_> {
        let (mut child, mut at, mut unread) = (&self.root, self.height, None);
        while at > level {
            let above = |at: u8| Unread {
                level: at,
                index: index / FANOUT.pow(u32::from(at - level)),
                home: Ptr::HOLE,
            };
            match child {
                Child::Inner(inner) => {
                    // Of one whose home is not known, the node above that is not read either tells.
                    if let (true, Some(home)) = (inner.unread, inner.home) {
                        unread = Some(Unread { home, ..above(at) });
                    }
                    at -= 1;
                    child = &inner.children[(index / FANOUT.pow(u32::from(at - level)) % FANOUT) as usize];
                }
                Child::Cold { home, .. } => {
                    return Seen {
                        child: &Child::Below(None),
                        unread: Some(Unread { home: *home, ..above(at) }),
                    };
                }
                Child::Hole | Child::Below(_) => return Seen { child, unread },
                Child::Leaf(_) => unreachable!("leaves are at level 0"),
            }
        }
        Seen { child, unread }
    }

    /// The same of a leaf; nothing is beyond the tree.
    pub(crate) fn leaf(&self, leaf: u64) -> Seen<'_> {
        if leaf >= reach(self.height) / FANOUT {
            return Seen { child: &Child::Hole, unread: None };
        }
        self.seen(0, leaf)
    }

    pub fn lookup(&self, block: u64) -> Found {
        let found = |ptr: Ptr| if ptr.is_hole() { Found::Hole } else { Found::At(ptr) };
        let (leaf, slot) = (block / FANOUT, block % FANOUT);
        let changed = |delta: &Option<Rc<Delta>>| match delta.as_deref() {
            Some(Delta { entries, .. }) if entries.contains_key(&(slot as u16)) => {
                Some(found(entries[&(slot as u16)].0))
            }
            Some(Delta { cleared: Some(_), .. }) => Some(Found::Hole),
            _ => None,
        };
        let seen = self.leaf(leaf);
        match seen.child {
            Child::Hole => Found::Hole,
            Child::Leaf(node) => {
                node.touched.set(true);
                found(node.ptrs.get(slot as usize))
            }
            Child::Cold { home, delta } => changed(delta).unwrap_or(match home.is_hole() {
                true => Found::Hole,
                false => Found::Unread(Unread { level: 0, index: leaf, home: *home }),
            }),
            Child::Below(None) if active(Bug::UnreadNodeIsHole) => Found::Hole,
            Child::Below(delta) => {
                let above =
                    || Found::Unread(seen.unread.expect("what is below an unread node is known by it"));
                changed(delta).unwrap_or_else(above)
            }
            Child::Inner(_) => unreachable!("leaves are at level 0"),
        }
    }

    /// The pointers of up to `count` blocks from `first` on, as far as they are in one leaf; nothing when that is not in memory.
    pub fn loaded(&self, first: u64, count: u64) -> Option<impl ExactSizeIterator<Item = Ptr>> {
        let Child::Leaf(node) = self.leaf(first / FANOUT).child else { return None };
        node.touched.set(true);
        let slot = first % FANOUT;
        Some(node.ptrs.slots(slot as usize..(slot + count).min(FANOUT) as usize))
    }

    /// Points the blocks from `first` at `ptrs` (or at nothing); what they replace goes to `freed` as far as it is known.
    pub fn set(&mut self, first: u64, ptrs: &[Ptr], freed: &mut Vec<Ptr>) {
        let (mut block, mut rest) = (first, ptrs);
        while !rest.is_empty() {
            let here = rest.len().min((FANOUT - block % FANOUT) as usize);
            self.set_in_leaf(block, &rest[..here], freed);
            (block, rest) = (block + here as u64, &rest[here..]);
        }
    }

    /// [`Tree::set`] for blocks of one leaf.
    fn set_in_leaf(&mut self, first: u64, ptrs: &[Ptr], freed: &mut Vec<Ptr>) {
        assert!(first < reach(self.height), "block {first} beyond the tree");
        let (leaf, slot, period) = (first / FANOUT, (first % FANOUT) as usize, self.period);
        let shared = self.shared;
        let clears = || ptrs.iter().all(Ptr::is_hole);
        let (mut child, mut at) = (&mut self.root, self.height);
        while at > 0 {
            if matches!(child, Child::Hole) {
                if clears() {
                    return;
                }
                *child = Child::Inner(Rc::new(Inner::holes()));
            }
            let inner = opened(child).expect("leaves are at level 0");
            if inner.stamp != period {
                inner.stamp = period;
                self.dirty += 1;
                self.dirty_bytes += INNER_MEMORY as u64;
            }
            at -= 1;
            child = &mut inner.children[(leaf / FANOUT.pow(u32::from(at)) % FANOUT) as usize];
        }
        if matches!(child, Child::Hole) {
            if clears() {
                return;
            }
            let ptrs = Pointers::holes();
            *child = Child::Leaf(Rc::new(Leaf { stamp: 0, home: Ptr::HOLE, ptrs, touched: Cell::new(true) }));
        }
        match child {
            Child::Leaf(node) => {
                let node = Rc::make_mut(node);
                if node.stamp != period {
                    node.stamp = period;
                    self.dirty += 1;
                    self.dirty_bytes += NODE_MEMORY;
                }
                for (slot, ptr) in (slot..).zip(ptrs) {
                    let old = node.ptrs.replace(slot, *ptr);
                    self.mapped += Mapped::of([ptr]) - Mapped::of([&old]);
                    if !old.is_hole() && shared.owns(&old, 0, leaf) {
                        freed.push(old);
                    }
                }
            }
            Child::Cold { delta, .. } | Child::Below(delta) => {
                let delta = Rc::make_mut(
                    delta.get_or_insert_with(|| Rc::new(Delta { since: period, ..Delta::default() })),
                );
                if delta.stamp != period {
                    delta.stamp = period;
                    self.dirty += 1;
                    self.dirty_bytes += DELTA_MEMORY;
                }
                self.dirty_bytes += DELTA_ENTRY_MEMORY * ptrs.len() as u64;
                for (slot, ptr) in (slot as u16..).zip(ptrs) {
                    if let Some((old, stamp)) = delta.entries.insert(slot, (*ptr, period))
                        && stamp == period
                        && !old.is_hole()
                    {
                        freed.push(old);
                    }
                }
            }
            Child::Hole | Child::Inner(_) => unreachable!("made a leaf above"),
        }
    }

    /// Empties `count` blocks from `first`, visiting only what exists.
    pub fn clear(&mut self, first: u64, count: u64, freed: &mut Vec<Ptr>) {
        let end = first.saturating_add(count).min(reach(self.height));
        let mut leaf = first / FANOUT;
        while leaf * FANOUT < end {
            let found = match self.next_leaf(leaf) {
                Next::None => return,
                Next::Leaf(found) => found,
                // There may be any.
                Next::Unread(_) => leaf,
            };
            if found * FANOUT >= end {
                return;
            }
            let from = first.max(found * FANOUT);
            let to = end.min((found + 1) * FANOUT);
            if to - from == FANOUT && matches!(self.leaf(found).child, Child::Cold { .. } | Child::Below(_)) {
                self.clear_cold(found, freed);
            } else {
                self.set(from, &[Ptr::HOLE; FANOUT as usize][..(to - from) as usize], freed);
            }
            leaf = found + 1;
        }
    }

    /// Empties a whole leaf that is not in memory.
    fn clear_cold(&mut self, leaf: u64, freed: &mut Vec<Ptr>) {
        let period = self.period;
        // Stamps the interior nodes on the way; the entry itself goes with the rest below.
        self.set(leaf * FANOUT, &[Ptr::HOLE], freed);
        let (Some(Child::Cold { delta: Some(delta), .. }) | Some(Child::Below(Some(delta)))) =
            self.place(0, leaf)
        else {
            unreachable!("the caller saw a cold leaf, and setting it gave it a delta")
        };
        let delta = Rc::make_mut(delta);
        let own = delta.entries.values().filter(|(ptr, stamp)| *stamp == period && !ptr.is_hole());
        freed.extend(own.map(|(ptr, _)| *ptr));
        delta.entries.clear();
        delta.cleared = Some(period);
    }

    /// The first leaf at or after `leaf` that exists.
    pub fn next_leaf(&self, leaf: u64) -> Next {
        fn visit(child: &Child, (level, index): (u8, u64), from: u64, above: Option<Unread>) -> Next {
            let end = leaves_end(level, index);
            if end <= from {
                return Next::None;
            }
            match child {
                Child::Hole => Next::None,
                Child::Cold { home, .. } if level > 0 => Next::Unread(Unread { level, index, home: *home }),
                Child::Below(None) => {
                    Next::Unread(above.expect("what is below an unread node is known by it"))
                }
                Child::Cold { .. } | Child::Below(Some(_)) | Child::Leaf(_) => Next::Leaf(index),
                Child::Inner(inner) => {
                    let own = inner.home.filter(|_| inner.unread).map(|home| Unread { level, index, home });
                    let below = FANOUT.pow(u32::from(level) - 1);
                    let start = (from / below).saturating_sub(index * FANOUT);
                    let found = (start..FANOUT).map(|slot| {
                        let place = (level - 1, index * FANOUT + slot);
                        visit(&inner.children[slot as usize], place, from, own.or(above))
                    });
                    found.into_iter().find(|found| *found != Next::None).unwrap_or(Next::None)
                }
            }
        }
        visit(&self.root, (self.height, 0), leaf, None)
    }

    /// Brings a leaf into memory that was read through `home`. False when it changed meanwhile, or has changes that a running
    /// checkpoint is resolving: look up again, or use the pointers read without keeping them.
    pub fn load_leaf(&mut self, leaf: u64, home: Ptr, ptrs: Vec<Ptr>, freed: &mut Vec<Ptr>) -> bool {
        let (period, shared) = (self.period, self.shared);
        let Some(child) = self.place(0, leaf) else { return false };
        let Child::Cold { home: now, delta } = child else { return false };
        if *now != home || delta.as_ref().is_some_and(|delta| delta.since != period) {
            return false;
        }
        let (stamp, ptrs, mapped) = match delta.as_deref() {
            None => (0, ptrs, Mapped::default()),
            Some(delta) => {
                let merged = merge(leaf, ptrs, delta, &shared);
                freed.extend(merged.freed);
                (period, merged.ptrs, merged.mapped)
            }
        };
        *child = Child::Leaf(Rc::new(Leaf { stamp, home, ptrs: ptrs.into(), touched: Cell::new(true) }));
        self.mapped += mapped;
        true
    }

    /// The pointer of `slot` in a leaf read through `home`, with the changes that memory has over it. Nothing when the leaf
    /// changed meanwhile.
    pub fn overlaid(&self, leaf: u64, home: Ptr, slot: u64, stored: &[Ptr]) -> Option<Found> {
        match self.leaf(leaf).child {
            Child::Cold { home: now, .. } if *now == home => match self.lookup(leaf * FANOUT + slot) {
                Found::Unread(_) => {
                    let ptr = stored[slot as usize];
                    Some(if ptr.is_hole() { Found::Hole } else { Found::At(ptr) })
                }
                found => Some(found),
            },
            _ => None,
        }
    }

    /// Closes the period: what a checkpoint will write. Changes go on in the next one.
    pub fn freeze(&mut self) -> Frozen {
        let frozen = Frozen::new(self.root.clone(), self.height, self.mapped, self.shared);
        self.period += 1;
        self.dirty = 0;
        self.dirty_bytes = 0;
        frozen
    }

    /// Takes over where a checkpoint put the nodes of the frozen period. The frozen tree must have been dropped, or every node
    /// is copied.
    pub fn install(&mut self, written: &[(u8, u64, Ptr)], mapped_resolved: Mapped) {
        let mut mapped = mapped_resolved;
        let (period, shared) = (self.period, self.shared);
        for &(level, index, home) in written {
            let place = self.place(level, index).expect("nodes leave only here, children before parents");
            match place {
                Child::Leaf(node) if node.stamp < period && home.is_hole() => *place = Child::Hole,
                Child::Leaf(node) => {
                    let node = Rc::make_mut(node);
                    node.home = home;
                    if node.stamp < period {
                        node.stamp = 0;
                    }
                }
                Child::Cold { delta, .. } | Child::Below(delta) => {
                    let mut rest = delta.take().map(Rc::unwrap_or_clone).unwrap_or_default();
                    rest.entries.retain(|_, (_, stamp)| *stamp == period);
                    rest.cleared = rest.cleared.filter(|stamp| *stamp == period);
                    rest.since = period;
                    *place = if !home.is_hole() {
                        Child::Cold { home, delta: (!rest.is_empty()).then(|| Rc::new(rest)) }
                    } else if rest.entries.values().all(|(ptr, _)| ptr.is_hole()) {
                        Child::Hole
                    } else {
                        // Nothing is on disk any more: what memory has is all there is.
                        let merged = merge(index, vec![Ptr::HOLE; FANOUT as usize], &rest, &shared);
                        mapped += merged.mapped;
                        let touched = Cell::new(false);
                        Child::Leaf(Rc::new(Leaf { stamp: period, home, ptrs: merged.ptrs.into(), touched }))
                    };
                }
                Child::Inner(node) => {
                    let node = Rc::make_mut(node);
                    node.home = Some(home);
                    if home.is_hole() && node.unread {
                        node.fill(&[Ptr::HOLE; FANOUT as usize]);
                    }
                    if node.stamp < period {
                        node.stamp = 0;
                        if home.is_hole() {
                            *place = Child::Hole;
                        }
                    }
                }
                Child::Hole => unreachable!("nodes leave only here"),
            }
        }
        self.mapped += mapped;
    }
}

/// The interior node at a place, to be changed; one of which nothing is known below it if it is not in memory. Nothing for a hole and a leaf.
pub(crate) fn opened(child: &mut Child) -> Option<&mut Inner> {
    match child {
        Child::Cold { home, .. } => *child = Child::Inner(Rc::new(Inner::unread(Some(*home)))),
        Child::Below(_) => *child = Child::Inner(Rc::new(Inner::unread(None))),
        Child::Hole | Child::Leaf(_) | Child::Inner(_) => {}
    }
    match child {
        Child::Inner(inner) => Some(Rc::make_mut(inner)),
        _ => None,
    }
}

/// [`Tree::place`] below a root.
fn place(root: &mut Child, height: u8, level: u8, index: u64) -> Option<&mut Child> {
    let (mut child, mut at) = (root, height);
    while at > level {
        let Child::Inner(inner) = child else { return None };
        at -= 1;
        let slot = index / FANOUT.pow(u32::from(at - level)) % FANOUT;
        child = &mut Rc::make_mut(inner).children[slot as usize];
    }
    Some(child)
}

/// [`Tree::load`] below a root.
pub(crate) fn load(root: &mut Child, height: u8, node: Unread, ptrs: &[Ptr]) -> bool {
    if node.level > height {
        return false;
    }
    match place(root, height, node.level, node.index) {
        Some(child @ Child::Cold { .. }) if child.home() == Some(node.home) => {
            *child = Child::Inner(Rc::new(Inner::read(node.home, ptrs)));
            true
        }
        Some(Child::Inner(inner)) if inner.unread && inner.home == Some(node.home) => {
            Rc::make_mut(inner).fill(ptrs);
            true
        }
        _ => false,
    }
}
