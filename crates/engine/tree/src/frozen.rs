//! What a checkpoint writes of a tree: the nodes that changed since the last one, leaves first.
//!
//! The driver asks for [`Frozen::dirty_leaves`], reads and merges the cold ones, writes each somewhere and
//! reports it with [`Frozen::wrote`]; then level by level the interior nodes. Nodes that became empty are
//! reported as holes and vanish.

use crate::delta::Delta;
use crate::mapped::Mapped;
use crate::node::FANOUT;
use crate::pointers::Pointers;
use crate::shared::Shared;
use crate::tree::{Child, Inner, Leaf, Unread, load};
use forebay_base::codec::Writer;
use forebay_space::{PTR_BYTES, Ptr};
use std::collections::HashMap;
use std::rc::Rc;

/// A leaf that must be written.
pub struct DirtyLeaf {
    pub index: u64,
    /// Where it was stored before; a hole when never. One that is not in memory has nothing but its changes then.
    pub home: Ptr,
    content: Content,
    shared: Shared,
}

enum Content {
    Hot(Rc<Leaf>),
    Cold(Rc<Delta>),
}

/// A leaf from disk with the changes made to it in memory.
pub struct Merged {
    pub ptrs: Vec<Ptr>,
    /// Stored pointers that were replaced, without those that a snapshot still has.
    pub freed: Vec<Ptr>,
    /// After minus before.
    pub mapped: Mapped,
}

/// Applies `delta` to the pointers of stored leaf `leaf`.
pub(crate) fn merge(leaf: u64, mut ptrs: Vec<Ptr>, delta: &Delta, shared: &Shared) -> Merged {
    let before = Mapped::of(&ptrs);
    let mut freed = Vec::new();
    if delta.cleared.is_some() {
        freed.extend(ptrs.iter().filter(|ptr| !ptr.is_hole()));
        ptrs.fill(Ptr::HOLE);
    }
    for (&slot, &(ptr, _)) in &delta.entries {
        let old = std::mem::replace(&mut ptrs[usize::from(slot)], ptr);
        if !old.is_hole() {
            freed.push(old);
        }
    }
    let mapped = Mapped::of(&ptrs) - before;
    freed.retain(|ptr| shared.owns(ptr, 0, leaf));
    Merged { ptrs, freed, mapped }
}

impl DirtyLeaf {
    /// The pointers of a leaf in memory; nothing when the leaf must be read from its home and merged.
    pub fn hot(&self) -> Option<&Pointers> {
        match &self.content {
            Content::Hot(leaf) => Some(&leaf.ptrs),
            Content::Cold(_) => None,
        }
    }

    /// Applies the changes in memory to the pointers `stored` at its home.
    pub fn merge(&self, stored: Vec<Ptr>) -> Merged {
        match &self.content {
            Content::Cold(delta) => merge(self.index, stored, delta, &self.shared),
            Content::Hot(_) => unreachable!("leaves in memory are not merged"),
        }
    }
}

/// A closed period of a tree.
pub struct Frozen {
    root: Child,
    height: u8,
    mapped: Mapped,
    mapped_resolved: Mapped,
    written: HashMap<(u8, u64), Ptr>,
    order: Vec<(u8, u64, Ptr)>,
    shared: Shared,
}

impl Frozen {
    pub(crate) fn new(root: Child, height: u8, mapped: Mapped, shared: Shared) -> Frozen {
        Frozen {
            root,
            height,
            mapped,
            mapped_resolved: Mapped::default(),
            written: HashMap::new(),
            order: Vec::new(),
            shared,
        }
    }

    /// Whether nothing but this tree has the stored node `index` of `level`.
    pub fn owns(&self, home: &Ptr, level: u8, index: u64) -> bool {
        self.shared.owns(home, level, index)
    }

    pub fn height(&self) -> u8 {
        self.height
    }

    /// What was mapped at the freeze, cold leaves resolved so far included.
    pub fn mapped(&self) -> Mapped {
        let mut mapped = self.mapped;
        mapped += self.mapped_resolved;
        mapped.floor()
    }

    /// Takes note of what merging a cold leaf showed.
    pub fn resolved(&mut self, mapped: Mapped) {
        self.mapped_resolved += mapped;
    }

    /// Interior nodes that have to be read first: of those that are to be written, not everything is known.
    pub fn unread(&self) -> Vec<Unread> {
        fn visit(child: &Child, level: u8, index: u64, out: &mut Vec<Unread>) {
            let Child::Inner(inner) = child else { return };
            if inner.stamp == 0 {
                return;
            }
            if let (true, Some(home)) = (inner.unread, inner.home) {
                out.push(Unread { level, index, home });
            }
            for (slot, child) in inner.children.iter().enumerate() {
                visit(child, level - 1, index * FANOUT + slot as u64, out);
            }
        }
        let mut out = Vec::new();
        visit(&self.root, self.height, 0, &mut out);
        out
    }

    /// Takes in one of them.
    pub fn load(&mut self, node: Unread, ptrs: &[Ptr]) {
        assert!(load(&mut self.root, self.height, node, ptrs), "what is frozen does not change");
    }

    /// The leaves to write, in order of their index. All above them has been read.
    pub fn dirty_leaves(&self) -> Vec<DirtyLeaf> {
        fn visit(child: &Child, index: u64, shared: Shared, out: &mut Vec<DirtyLeaf>) {
            match child {
                Child::Leaf(leaf) if leaf.stamp != 0 => {
                    let content = Content::Hot(leaf.clone());
                    out.push(DirtyLeaf { index, home: leaf.home, content, shared });
                }
                Child::Cold { home, delta: Some(delta) } => {
                    let content = Content::Cold(delta.clone());
                    out.push(DirtyLeaf { index, home: *home, content, shared });
                }
                Child::Below(Some(_)) => unreachable!("what is above has been read"),
                Child::Inner(inner) if inner.stamp != 0 => {
                    for (slot, child) in inner.children.iter().enumerate() {
                        visit(child, index * FANOUT + slot as u64, shared, out);
                    }
                }
                _ => {}
            }
        }
        let mut out = Vec::new();
        visit(&self.root, 0, self.shared, &mut out);
        out
    }

    /// Node `index` of `level` is now at `ptr`, or gone.
    pub fn wrote(&mut self, level: u8, index: u64, ptr: Ptr) {
        self.written.insert((level, index), ptr);
        self.order.push((level, index, ptr));
    }

    /// The interior nodes of `level` to write, once the level below is written: index, home before, body (nothing when the
    /// node became empty).
    pub fn dirty_inner(&self, level: u8) -> Vec<(u64, Ptr, Option<Vec<u8>>)> {
        fn visit<'a>(child: &'a Child, at: u8, index: u64, level: u8, out: &mut Vec<(u64, &'a Inner)>) {
            let Child::Inner(inner) = child else { return };
            if inner.stamp == 0 {
                return;
            }
            if at == level {
                out.push((index, inner));
                return;
            }
            for (slot, child) in inner.children.iter().enumerate() {
                visit(child, at - 1, index * FANOUT + slot as u64, level, out);
            }
        }
        let mut nodes = Vec::new();
        visit(&self.root, self.height, 0, level, &mut nodes);
        let encode = |(index, inner): (u64, &Inner)| {
            let mut body = vec![0; FANOUT as usize * PTR_BYTES];
            let mut w = Writer::new(&mut body);
            let mut empty = true;
            for (slot, child) in inner.children.iter().enumerate() {
                let written = self.written.get(&(level - 1, index * FANOUT + slot as u64)).copied();
                let ptr = written.or_else(|| child.home()).expect("it has been read");
                empty &= ptr.is_hole();
                ptr.encode(&mut w);
            }
            (index, inner.home.expect("what is above has been read"), (!empty).then_some(body))
        };
        nodes.into_iter().map(encode).collect()
    }

    /// Where the root is, once everything is written.
    pub fn root(&self) -> Ptr {
        let written = self.written.get(&(self.height, 0)).copied();
        written.or_else(|| self.root.home()).expect("nothing is above the root")
    }

    /// What [`crate::Tree::install`] needs; drops the frozen nodes.
    pub fn finish(self) -> (Vec<(u8, u64, Ptr)>, Mapped) {
        (self.order, self.mapped_resolved)
    }
}

/// Encodes the pointers of a leaf as a body; nothing when all are holes.
pub fn leaf_body(ptrs: impl ExactSizeIterator<Item = Ptr>) -> Option<Vec<u8>> {
    let mut body = vec![0; ptrs.len() * PTR_BYTES];
    let (mut w, mut is_empty) = (Writer::new(&mut body), true);
    for ptr in ptrs {
        is_empty &= ptr.is_hole();
        ptr.encode(&mut w);
    }
    (!is_empty).then_some(body)
}
