//! Goal: a tree is what a map is, and gives back each block and node once, whatever of it is in memory.
//! Method: random histories on a disk of nodes, with checkpoints while they go on, nodes that leave memory, and imports.

use crate::frozen::leaf_body;
use crate::mapped::Mapped;
use crate::node::{FANOUT, NODE_BYTES, decode_ptrs};
use crate::tree::{Found, Next, Tree};
use forebay_base::{Checksum, Random};
use forebay_space::{Addr, ChunkId, Ptr};
use std::collections::{HashMap, HashSet};

/// A disk of nodes, and the set of everything allocated and not freed.
#[derive(Default)]
struct Disk {
    nodes: HashMap<Addr, Vec<u8>>,
    live: HashSet<u64>,
    next: u32,
}

impl Disk {
    fn allocate(&mut self, bytes: u32) -> Ptr {
        self.next += 4;
        let addr = Addr::new(ChunkId(1 + self.next / (1 << 17)), self.next % (1 << 17));
        self.live.insert(addr.0);
        Ptr::new(addr, bytes, 1, Checksum(u128::from(self.next)))
    }
    fn free(&mut self, freed: &mut Vec<Ptr>) {
        for ptr in freed.drain(..) {
            assert!(self.live.remove(&ptr.addr().0), "{ptr:?} was freed twice");
        }
    }
    fn node(&mut self, body: Option<Vec<u8>>) -> Ptr {
        let Some(body) = body else { return Ptr::HOLE };
        let ptr = self.allocate(NODE_BYTES as u32);
        self.nodes.insert(ptr.addr(), body);
        ptr
    }
    fn read(&self, ptr: Ptr) -> Vec<Ptr> {
        assert!(self.live.contains(&ptr.addr().0), "{ptr:?} was given back");
        decode_ptrs(&self.nodes[&ptr.addr()])
    }
    fn read_or_holes(&self, ptr: Ptr) -> Vec<Ptr> {
        if ptr.is_hole() { vec![Ptr::HOLE; FANOUT as usize] } else { self.read(ptr) }
    }
}

/// Writes a frozen tree, calling `between` after each leaf: the live tree goes on meanwhile.
fn checkpoint(
    tree: &mut Tree,
    disk: &mut Disk,
    mut between: impl FnMut(&mut Tree, &mut Disk),
) -> (Ptr, u8, Mapped) {
    let mut frozen = tree.freeze();
    let mut replaced = Vec::new();
    loop {
        let unread = frozen.unread();
        if unread.is_empty() {
            break;
        }
        for node in unread {
            let ptrs = disk.read(node.home);
            frozen.load(node, &ptrs);
            if node.index.is_multiple_of(2) {
                tree.load(node, &ptrs);
            }
            between(tree, disk);
        }
    }
    for leaf in frozen.dirty_leaves() {
        let body = match leaf.hot() {
            Some(ptrs) => leaf_body(ptrs.iter()),
            None => {
                let merged = leaf.merge(disk.read_or_holes(leaf.home));
                frozen.resolved(merged.mapped);
                replaced.extend(merged.freed);
                leaf_body(merged.ptrs.into_iter())
            }
        };
        let ptr = disk.node(body);
        frozen.wrote(0, leaf.index, ptr);
        replaced.extend(Some(leaf.home).filter(|home| !home.is_hole()));
        between(tree, disk);
    }
    for level in 1..=frozen.height() {
        for (index, home, body) in frozen.dirty_inner(level) {
            let ptr = disk.node(body);
            frozen.wrote(level, index, ptr);
            replaced.extend(Some(home).filter(|home| !home.is_hole()));
        }
    }
    let result = (frozen.root(), frozen.height(), frozen.mapped());
    let (written, resolved) = frozen.finish();
    tree.install(&written, resolved);
    disk.free(&mut replaced);
    result
}

fn get(tree: &mut Tree, disk: &mut Disk, block: u64, keep: bool) -> Option<Ptr> {
    let found = loop {
        let Found::Unread(node) = tree.lookup(block) else { break tree.lookup(block) };
        let stored = disk.read(node.home);
        if node.level > 0 {
            assert!(tree.load(node, &stored) && !tree.load(node, &stored));
            continue;
        }
        let mut freed = Vec::new();
        let over =
            tree.overlaid(node.index, node.home, block % FANOUT, &stored).expect("nothing changed meanwhile");
        if keep && tree.load_leaf(node.index, node.home, stored, &mut freed) {
            disk.free(&mut freed);
            assert_eq!(tree.lookup(block), over);
        }
        break over;
    };
    match found {
        Found::At(ptr) => Some(ptr),
        _ => None,
    }
}

fn next_leaf(tree: &mut Tree, disk: &Disk, from: u64) -> Option<u64> {
    loop {
        match tree.next_leaf(from) {
            Next::None => return None,
            Next::Leaf(leaf) => return Some(leaf),
            Next::Unread(node) => assert!(tree.load(node, &disk.read(node.home))),
        }
    }
}

fn step(random: &mut Random, tree: &mut Tree, disk: &mut Disk, model: &mut HashMap<u64, Ptr>, blocks: u64) {
    let mut freed = Vec::new();
    let block = random.below(blocks);
    match random.below(10) {
        0..=4 => {
            let count = if random.one_in(100) { 1 + random.below(2 * FANOUT) } else { 1 };
            let ptrs: Vec<Ptr> =
                (block..blocks.min(block + count)).map(|_| disk.allocate(4096 << random.below(2))).collect();
            tree.set(block, &ptrs, &mut freed);
            model.extend((block..).zip(ptrs));
        }
        5 => {
            tree.set(block, &[Ptr::HOLE], &mut freed);
            model.remove(&block);
        }
        6 => {
            let first = if random.one_in(2) { block / FANOUT * FANOUT } else { block };
            let count = (1 + random.below(3 * FANOUT)).min(blocks - first);
            tree.clear(first, count, &mut freed);
            model.retain(|at, _| !(first..first + count).contains(at));
        }
        7 if random.one_in(2) => tree.rewrite(block / FANOUT),
        7 => {
            for level in 0..=tree.height() {
                tree.evict(level, block / FANOUT.pow(u32::from(level) + 1));
            }
        }
        8 => {
            let known = |block: u64| model.get(&block).copied().unwrap_or(Ptr::HOLE);
            if let Some(ptrs) = tree.loaded(block, 16) {
                assert_eq!(ptrs.len() as u64, (FANOUT - block % FANOUT).min(16));
                assert!((block..).zip(ptrs).all(|(block, ptr)| ptr == known(block)), "blocks from {block}");
            }
        }
        _ => assert_eq!(
            get(tree, disk, block, block.is_multiple_of(2)),
            model.get(&block).copied(),
            "block {block}"
        ),
    }
    disk.free(&mut freed);
}

#[test]
fn random_histories_agree_with_a_map_and_free_each_block_once() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut blocks = [400, 5 * FANOUT, 700 * FANOUT, 3 * FANOUT * FANOUT * FANOUT][(seed % 4) as usize];
        let (mut tree, mut disk, mut model) = (Tree::empty(blocks), Disk::default(), HashMap::new());
        for round in 0..25 {
            for _ in 0..random.below(200) {
                step(&mut random, &mut tree, &mut disk, &mut model, blocks);
            }
            if random.one_in(8) {
                blocks += FANOUT * random.below(600);
                tree.grow(blocks);
            }
            let at_freeze = Mapped::of(model.values());
            let (root, height, mapped) = {
                let random = &mut random;
                let model = &mut model;
                checkpoint(&mut tree, &mut disk, |tree, disk| {
                    (0..random.below(4)).for_each(|_| step(random, tree, disk, model, blocks));
                })
            };
            assert_eq!(mapped, at_freeze, "seed {seed} round {round}");
            if random.one_in(4) {
                // Settle, then import what is on disk: nothing may be lost and nothing leaked.
                let (root, height, mapped) = checkpoint(&mut tree, &mut disk, |_, _| {});
                assert_eq!(mapped, Mapped::of(model.values()));
                tree = Tree::stored(root, height, mapped);
                let mut reachable: HashSet<u64> = model.values().map(|ptr| ptr.addr().0).collect();
                let nodes = disk.live.iter().filter(|addr| disk.nodes.contains_key(&Addr(**addr)));
                reachable.extend(nodes);
                assert_eq!(reachable, disk.live);
                assert_eq!(count_nodes(root, height, &disk), disk.live.len() - model.len(), "leaked nodes");
            } else {
                let _ = (root, height);
            }
        }
        let mut freed = Vec::new();
        // As whoever clears a volume does: what is not known to be there costs memory.
        let mut next = 0;
        while let Some(leaf) = next_leaf(&mut tree, &disk, next) {
            tree.clear(leaf * FANOUT, FANOUT, &mut freed);
            next = leaf + 1;
        }
        disk.free(&mut freed);
        checkpoint(&mut tree, &mut disk, |_, _| {});
        assert!(
            tree.is_empty() && disk.live.is_empty() && tree.mapped() == Mapped::default(),
            "seed {seed}: everything comes back"
        );
    }
}

fn count_nodes(ptr: Ptr, level: u8, disk: &Disk) -> usize {
    if ptr.is_hole() {
        return 0;
    }
    let below = || disk.read(ptr).into_iter().map(|child| count_nodes(child, level - 1, disk)).sum::<usize>();
    1 + if level == 0 { 0 } else { below() }
}
