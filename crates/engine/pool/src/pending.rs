//! Blocks that are queued for a commit: the newest version of each, kept by runs.
//!
//! A write of many blocks is one run as long as nothing newer replaces a part of it; then it is cut, and its parts share
//! the memory. So queueing and settling cost one step for each run, not for each block. Runs do not overlap, and
//! inside a run everything is alike: one entry, and one answer to whether clients see it.

use forebay_runtime::Buf;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Blocks in a row that one entry brought.
#[derive(Clone, Debug)]
struct Run {
    /// A later entry replaces it, and this one must then not remove what that brought.
    entry: u64,
    data: Buf,
    /// What clients read meanwhile: the same, when it was acknowledged before it is durable; otherwise an earlier pending version
    /// that was, if there is one.
    client: Option<Seen>,
}

/// What clients see of a run, as long as it is, and the entry that brought it.
#[derive(Clone, Debug)]
struct Seen {
    entry: u64,
    data: Buf,
}

/// The pending blocks of one volume.
pub(crate) struct Pending {
    block_bytes: usize,
    /// By first block.
    runs: BTreeMap<u64, Run>,
}

impl Pending {
    pub fn new(block_bytes: usize) -> Pending {
        Pending { block_bytes, runs: BTreeMap::new() }
    }

    /// Puts the blocks from `first` on into the queue, each part of them whole blocks; `visible` when their acknowledgement does
    /// not wait.
    pub fn queue<'a>(
        &mut self,
        mut first: u64,
        entry: u64,
        parts: impl IntoIterator<Item = &'a Buf>,
        visible: bool,
    ) {
        for part in parts {
            let end = first + self.blocks(part);
            self.queue_part(first, end, entry, part.clone(), visible);
            first = end;
        }
    }

    fn queue_part(&mut self, first: u64, end: u64, entry: u64, data: Buf, visible: bool) {
        let seen = if self.overlaps(first, end) { self.replace(first, end) } else { Vec::new() };
        if visible || seen.is_empty() {
            let client = visible.then(|| Seen { entry, data: data.clone() });
            self.runs.insert(first, Run { entry, client, data });
            return;
        }
        let part = |from: u64, to: u64| self.part(&data, from - first, to - from);
        let mut parts = Vec::with_capacity(1);
        let mut at = first;
        for (start, client) in seen {
            if at < start {
                parts.push((at, Run { entry, data: part(at, start), client: None }));
            }
            at = start + self.blocks(&client.data);
            parts.push((start, Run { entry, data: part(start, at), client: Some(client) }));
        }
        if at < end {
            parts.push((at, Run { entry, data: part(at, end), client: None }));
        }
        self.runs.extend(parts);
    }

    /// The entry is applied: removes the blocks `first..end` that none after it replaced. Of others, clients no longer see what
    /// this entry or an earlier one brought; what was applied is at least as new.
    pub fn settle(&mut self, first: u64, end: u64, entry: u64) {
        // Nearly always there is the one run, as it came.
        if let Entry::Occupied(run) = self.runs.entry(first)
            && run.get().entry == entry
            && run.get().data.len() == (end - first) as usize * self.block_bytes
        {
            run.remove();
            return;
        }
        self.runs.extract_if(first..end, |_, run| run.entry == entry).for_each(drop);
        for run in self.runs.range_mut(first..end).map(|(_, run)| run) {
            run.client.take_if(|seen| seen.entry <= entry);
        }
    }

    /// The entry failed: what clients were told is written stays what they read.
    pub fn abandon(&mut self, first: u64, end: u64, entry: u64) {
        let unseen = |run: &mut Run| {
            if run.entry == entry
                && let Some(seen) = &run.client
            {
                run.data = seen.data.clone();
            }
            run.entry == entry && run.client.is_none()
        };
        self.runs.extract_if(first..end, |_, run| unseen(run)).for_each(drop);
    }

    /// The contents of a block, as a client or a merging writer sees it; nothing when it is not pending.
    pub fn get(&self, block: u64, for_client: bool) -> Option<Buf> {
        let (&at, run) = self.runs.range(..=block).next_back()?;
        let data = if for_client { &run.client.as_ref()?.data } else { &run.data };
        (block < at + self.blocks(data)).then(|| self.part(data, block - at, 1))
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether any of the blocks `first..end` is pending.
    pub fn overlaps(&self, first: u64, end: u64) -> bool {
        let last = self.runs.range(..end).next_back();
        last.is_some_and(|(&at, run)| at + self.blocks(&run.data) > first)
    }

    /// The first of the blocks `first..end` that is pending.
    pub fn first_of(&self, first: u64, end: u64) -> Option<u64> {
        if self.overlaps(first, first + 1) {
            return Some(first);
        }
        self.runs.range(first..end).next().map(|(at, _)| *at)
    }

    /// Removes the blocks `first..end`; gives what clients see of them.
    fn replace(&mut self, first: u64, end: u64) -> Vec<(u64, Seen)> {
        self.cut(first);
        self.cut(end);
        let before = self.runs.extract_if(first..end, |_, _| true);
        before.filter_map(|(at, run)| Some((at, run.client?))).collect()
    }

    /// Lets no run reach over the start of `block`.
    fn cut(&mut self, block: u64) {
        let Some((&at, run)) = self.runs.range(..block).next_back() else { return };
        let (whole, before) = (self.blocks(&run.data), block - at);
        if whole <= before {
            return;
        }
        let piece = |from, count| Run {
            entry: run.entry,
            data: self.part(&run.data, from, count),
            client: run
                .client
                .as_ref()
                .map(|seen| Seen { entry: seen.entry, data: self.part(&seen.data, from, count) }),
        };
        let (head, tail) = (piece(0, before), piece(before, whole - before));
        self.runs.extend([(at, head), (block, tail)]);
    }

    fn blocks(&self, data: &Buf) -> u64 {
        (data.len() / self.block_bytes) as u64
    }

    fn part(&self, data: &Buf, from: u64, count: u64) -> Buf {
        data.slice(from as usize * self.block_bytes, count as usize * self.block_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Random;
    use forebay_runtime::Arena;
    use std::collections::HashMap;

    const BLOCK: usize = 4096;
    const BLOCKS: u64 = 40;

    /// Who brought it, and what it is.
    type Version = (u64, u8);

    /// One block at a time, as the words above say it: entry, newest contents, what clients see.
    #[derive(Default)]
    struct Plain(HashMap<u64, (u64, u8, Option<Version>)>);

    impl Plain {
        fn queue(&mut self, block: u64, entry: u64, data: u8, visible: bool) {
            let seen = self.0.get(&block).and_then(|(.., seen)| *seen);
            self.0.insert(block, (entry, data, if visible { Some((entry, data)) } else { seen }));
        }
        fn settle(&mut self, block: u64, entry: u64) {
            match self.0.get_mut(&block) {
                Some((newest, ..)) if *newest == entry => drop(self.0.remove(&block)),
                Some((.., seen)) => drop(seen.take_if(|seen| seen.0 <= entry)),
                None => {}
            }
        }
        fn abandon(&mut self, block: u64, entry: u64) {
            match self.0.get(&block) {
                Some((found, _, Some(seen))) if *found == entry => {
                    let seen = *seen;
                    self.0.insert(block, (entry, seen.1, Some(seen)));
                }
                Some((found, _, None)) if *found == entry => drop(self.0.remove(&block)),
                _ => {}
            }
        }
    }

    #[test]
    fn random_histories_agree_with_single_blocks() {
        let arena = Arena::new();
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let (mut pending, mut plain) = (Pending::new(BLOCK), Plain::default());
            let mut entries: Vec<(u64, u64, u64)> = Vec::new();
            for entry in 1..200 {
                if random.below(5) < 3 {
                    let first = random.below(BLOCKS);
                    let end = first + 1 + random.below((BLOCKS - first).min(12));
                    let visible = random.one_in(2);
                    let mut data = arena.take((end - first) as usize * BLOCK);
                    for block in first..end {
                        let byte = random.next_u64() as u8;
                        data[(block - first) as usize * BLOCK..][..BLOCK].fill(byte);
                        plain.queue(block, entry, byte, visible);
                    }
                    let (data, half) = (data.freeze(), (end - first) as usize / 2 * BLOCK);
                    let parts = [data.slice(0, half), data.slice(half, data.len() - half)];
                    pending.queue(first, entry, parts.iter().filter(|part| !part.is_empty()), visible);
                    entries.push((entry, first, end));
                } else if !entries.is_empty() {
                    // Not in order: the model gives an answer to everything.
                    let (entry, first, end) =
                        entries.swap_remove(random.below(entries.len() as u64) as usize);
                    if random.one_in(3) {
                        (first..end).for_each(|block| plain.abandon(block, entry));
                        pending.abandon(first, end, entry);
                    } else {
                        (first..end).for_each(|block| plain.settle(block, entry));
                        pending.settle(first, end, entry);
                    }
                }
                agree(&pending, &plain, &mut random);
            }
        }
    }

    fn agree(pending: &Pending, plain: &Plain, random: &mut Random) {
        for block in 0..BLOCKS + 1 {
            let first = |for_client| {
                pending.get(block, for_client).map(|data| (data.len(), data[0], data[BLOCK - 1]))
            };
            let expected = plain.0.get(&block);
            assert_eq!(first(false), expected.map(|(_, data, _)| (BLOCK, *data, *data)), "block {block}");
            let seen = expected.and_then(|(.., seen)| seen.map(|(_, data)| data));
            assert_eq!(first(true), seen.map(|seen| (BLOCK, seen, seen)), "block {block} for clients");
        }
        let from = random.below(BLOCKS);
        let to = from + 1 + random.below(BLOCKS);
        let any = (from..to).find(|block| plain.0.contains_key(block));
        assert_eq!(
            (pending.overlaps(from, to), pending.first_of(from, to)),
            (any.is_some(), any),
            "{from}..{to}"
        );
    }

    #[test]
    fn clients_never_see_what_an_applied_entry_replaced() {
        let arena = Arena::new();
        let data = |byte: u8| {
            let mut block = arena.take(BLOCK);
            block.fill(byte);
            Some(block.freeze())
        };
        let mut pending = Pending::new(BLOCK);
        pending.queue(7, 1, &data(1), true);
        pending.queue(7, 2, &data(2), false);
        pending.queue(7, 3, &data(3), false);
        let seen = |pending: &Pending| pending.get(7, true).map(|block| block[0]);
        assert_eq!(seen(&pending), Some(1));
        pending.settle(7, 8, 2);
        assert_eq!((seen(&pending), pending.get(7, false).map(|block| block[0])), (None, Some(3)));
    }

    #[test]
    fn a_run_stays_whole_until_something_newer_comes() {
        let arena = Arena::new();
        let data = |blocks: usize| Some(arena.take(blocks * BLOCK).freeze());
        let mut pending = Pending::new(BLOCK);
        pending.queue(0, 1, &data(128), true);
        assert_eq!(pending.runs.len(), 1);
        pending.queue(10, 2, &data(1), false);
        assert_eq!(pending.runs.len(), 3);
        pending.settle(0, 128, 1);
        assert_eq!(pending.runs.keys().collect::<Vec<_>>(), [&10]);
        pending.settle(10, 11, 2);
        assert!(pending.runs.is_empty() && arena.bytes_out() == 0);
    }
}
