//! Sending: what makes a snapshot of another one, or of nothing, as a stream.
//!
//! Two trees are walked side by side, from left to right. Where both have the same node, all below it is the same, whoever it belongs to;
//! where the snapshot has none, what the base has there is cleared without being looked at. So what is read is proportional to
//! what differs. When something was born does not tell: a volume that went back to an older snapshot has again what is older than the base. Where
//! the base is a bookmark, there is one tree only, and birth tells ([`crate::bookmarks`]); what is a hole now does not say what was there, so it
//! is cleared.
//!
//! The walk is a value that goes to the shard for each piece of the stream and comes back with it; in between nothing runs, so a
//! receiver that is slow costs nothing but that value: at most the nodes' children on the way down, and 16 leaves. The snapshot and
//! its base are lent out as long as it is there: they are not deleted.

use crate::Engine;
use crate::bookmarks::Lead;
use crate::control::Control;
use crate::error::{Error, ErrorKind, IoError};
use crate::lineage::Snapshot;
use crate::parts::IN_PART;
use crate::read::{cut, follows};
use crate::record::{DatasetKind, DatasetRecord};
use crate::registry::{call, registry};
use crate::shard::Shard;
use crate::stream::{DATA_BYTES_MAX, Encoder, Header};
use async_recursion::async_recursion as boxed;
use forebay_base::Id;
use forebay_base::planted::{Bug, active};
use forebay_qos::Task;
use forebay_runtime::{Buf, Remote};
use forebay_space::Ptr;
use forebay_tree::{FANOUT, NODE_BYTES, NodeHeader, decode_ptrs, height_for, leaves_end};
use futures_util::future::join_all;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;

/// Leaves that are read together.
const BATCH: usize = 16;

/// Where a stream that broke off goes on: what the receiver says, and the sender is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResumeToken {
    pub snapshot: Id,
    pub base: Option<Id>,
    /// The first block that is not there yet.
    pub block: u64,
}

impl fmt::Display for ResumeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}.{:032x}.{}", self.snapshot.0, self.base.map_or(0, |base| base.0), self.block)
    }
}

impl FromStr for ResumeToken {
    type Err = ();
    fn from_str(text: &str) -> Result<ResumeToken, ()> {
        let mut parts = text.split('.');
        let mut id = || parts.next().and_then(|part| part.parse::<Id>().ok()).ok_or(());
        let (snapshot, base) = (id()?, id()?);
        let block = parts.next().and_then(|part| part.parse().ok()).ok_or(())?;
        let base = Some(base).filter(|base| *base != Id(0));
        if parts.next().is_some() { Err(()) } else { Ok(ResumeToken { snapshot, base, block }) }
    }
}

/// What of a snapshot is sent.
#[derive(Clone, Debug, Default)]
pub struct SendOptions {
    /// Only what makes it of this snapshot: `VOLUME@NAME` in the same pool, `@NAME` of the same volume, or a UUID; or of this bookmark, `VOLUME#NAME` or
    /// `#NAME`.
    pub from: Option<String>,
    /// Goes on where the receiver is; it names the base as well.
    pub resume: Option<ResumeToken>,
}

/// One of two trees.
#[derive(Clone, Copy, Debug)]
struct Side {
    root: Ptr,
    height: u8,
    family: Id,
}

/// The same place in both trees.
#[derive(Clone, Copy, Debug)]
struct Place {
    level: u8,
    index: u64,
    own: Ptr,
    base: Ptr,
}

impl Place {
    fn end(&self) -> u64 {
        leaves_end(self.level, self.index)
    }
}

/// Blocks that follow each other.
#[derive(Debug)]
enum Run {
    Write { first: u64, ptrs: Vec<Ptr> },
    Clear { first: u64, count: u64 },
}

/// A walk over what differs between two trees.
#[derive(Debug)]
struct Walk {
    own: Side,
    base: Side,
    /// The base is a bookmark: what was born after this epoch differs.
    since: Option<u64>,
    /// Of the larger one.
    blocks: u64,
    from: u64,
    /// Blocks in one run at most.
    run_max: usize,
    /// What is still to be looked at, the next place at the end.
    todo: Vec<Place>,
    ready: VecDeque<Run>,
}

impl Walk {
    fn new(own: &DatasetRecord, base: Option<&DatasetRecord>, from: u64) -> Walk {
        let side = |record: &DatasetRecord| Side {
            root: record.root,
            height: if record.root.is_hole() { 0 } else { record.height },
            family: record.family,
        };
        let nothing = Side { root: Ptr::HOLE, height: 0, family: own.family };
        let marked = |mark: &DatasetRecord| Side { height: height_for(mark.blocks()), ..nothing };
        let (base_side, since) = match base {
            None => (nothing, None),
            Some(mark) if mark.kind == DatasetKind::Bookmark => (marked(mark), Some(mark.epoch)),
            Some(base) => (side(base), None),
        };
        let own_side = side(own);
        let level = own_side.height.max(base_side.height);
        let root = |side: &Side| if side.height == level { side.root } else { Ptr::HOLE };
        let place = Place { level, index: 0, own: root(&own_side), base: root(&base_side) };
        Walk {
            own: own_side,
            base: base_side,
            since,
            blocks: own.blocks().max(base.map_or(0, DatasetRecord::blocks)),
            from,
            run_max: DATA_BYTES_MAX >> own.block_shift,
            todo: vec![place],
            ready: VecDeque::new(),
        }
    }

    /// Whether what a tree has at a place is the pointer there: above its root it has not, on the left.
    fn is_known(side: &Side, level: u8, index: u64) -> bool {
        level <= side.height || index > 0
    }

    /// Whether a tree has something else where the other one has `base`, or may have.
    fn differs(&self, own: &Ptr, base: &Ptr) -> bool {
        match self.since {
            Some(epoch) => own.is_hole() || own.birth() > epoch,
            None => own != base,
        }
    }

    /// Whether the trees may differ below a place.
    fn is_open(&self, place: &Place) -> bool {
        let Place { level, index, .. } = *place;
        let known = Walk::is_known(&self.own, level, index) && Walk::is_known(&self.base, level, index);
        let is_old = active(Bug::SendPrunesByBirth)
            && !place.base.is_hole()
            && !place.own.is_hole()
            && place.own.birth() <= self.base.root.birth();
        (!known || self.differs(&place.own, &place.base))
            && place.end().saturating_mul(FANOUT) > self.from
            && !is_old
    }

    fn add(&mut self, block: u64, own: Ptr) {
        match self.ready.back_mut() {
            Some(Run::Clear { first, count }) if own.is_hole() && *first + *count == block => *count += 1,
            Some(Run::Write { first, ptrs })
                if !own.is_hole() && *first + ptrs.len() as u64 == block && ptrs.len() < self.run_max =>
            {
                ptrs.push(own);
            }
            _ if own.is_hole() => self.clear(block, block + 1),
            _ => self.ready.push_back(Run::Write { first: block, ptrs: vec![own] }),
        }
    }

    fn clear(&mut self, first: u64, end: u64) {
        let (first, end) = (first.max(self.from), end.min(self.blocks));
        if first >= end || active(Bug::SendForgetsHoles) {
            return;
        }
        match self.ready.back_mut() {
            Some(Run::Clear { first: start, count }) if *start + *count == first => *count = end - *start,
            _ => self.ready.push_back(Run::Clear { first, count: end - first }),
        }
    }

    fn leaf(&mut self, place: &Place, own: &[Ptr], base: &[Ptr]) {
        for ((own, base), block) in own.iter().zip(base).zip(place.index * FANOUT..) {
            if (self.from..self.blocks).contains(&block) && self.differs(own, base) {
                self.add(block, *own);
            }
        }
    }
}

impl Shard {
    /// The pointers of a tree's node.
    async fn children(&self, side: &Side, level: u8, index: u64, ptr: Ptr) -> Result<Vec<Ptr>, IoError> {
        let mut ptrs = vec![Ptr::HOLE; FANOUT as usize];
        if !Walk::is_known(side, level, index) {
            // A tree that is not as high is on the left.
            if level == side.height + 1 {
                ptrs[0] = side.root;
            }
        } else if !ptr.is_hole() {
            let header = NodeHeader::of_blocks(self.shared.id, side.family, level, index);
            let body = self.read_node(&header, ptr, || true, || true).await?.ok_or(IoError::Corrupt)?;
            ptrs = decode_ptrs(&body);
        }
        Ok(ptrs)
    }

    async fn both(&self, walk: &Walk, place: &Place) -> Result<(Vec<Ptr>, Vec<Ptr>), IoError> {
        let own = self.children(&walk.own, place.level, place.index, place.own);
        let base = self.children(&walk.base, place.level, place.index, place.base);
        let (own, base) = futures_util::future::join(own, base).await;
        Ok((own?, base?))
    }

    /// Goes on until there are blocks to send, or nothing is left.
    async fn walk(self: &Rc<Self>, walk: &mut Walk) -> Result<(), IoError> {
        let mut pace = self.pace(Task::Copy);
        pace.step(forebay_qos::Work::read((BATCH * NODE_BYTES) as u64, BATCH)).await;
        while walk.ready.is_empty() {
            let mut leaves = Vec::new();
            while leaves.len() < BATCH
                && let Some(place) = walk.todo.pop_if(|place| place.level == 0 || leaves.is_empty())
            {
                if !walk.is_open(&place) {
                    continue;
                }
                if place.own.is_hole() && Walk::is_known(&walk.own, place.level, place.index) {
                    // What was found before it comes first.
                    if !leaves.is_empty() {
                        walk.todo.push(place);
                        break;
                    }
                    let first = place.end() - (leaves_end(place.level, 0));
                    walk.clear(first.saturating_mul(FANOUT), place.end().saturating_mul(FANOUT));
                } else if place.level == 0 {
                    leaves.push(place);
                } else {
                    let (own, base) = self.both(walk, &place).await?;
                    let (level, first) = (place.level - 1, place.index * FANOUT);
                    let below = own.into_iter().zip(base).zip(first..);
                    let below = below.map(|((own, base), index)| Place { level, index, own, base });
                    walk.todo.extend(
                        below.filter(|place| walk.is_open(place)).collect::<Vec<_>>().into_iter().rev(),
                    );
                }
            }
            let read = join_all(leaves.iter().map(|place| self.both(walk, place))).await;
            for (place, read) in leaves.iter().zip(read) {
                let (own, base) = read?;
                walk.leaf(place, &own, &base);
            }
            if walk.todo.is_empty() {
                break;
            }
        }
        pace.rest().await;
        Ok(())
    }

    /// The blocks of a run of a snapshot, each as it is stored.
    async fn run_data(self: &Rc<Self>, snapshot: Id, first: u64, ptrs: &[Ptr]) -> Result<Vec<Buf>, IoError> {
        let in_part = (first..).zip(ptrs).find(|(_, ptr)| ptr.kind() == IN_PART);
        if let Some((block, ptr)) = in_part {
            return Err(self.lost_in_part(snapshot, block, ptr));
        }
        let mut runs: Vec<Vec<Ptr>> = Vec::new();
        for ptr in ptrs {
            match runs.last_mut() {
                Some(run) if follows(run, ptr) => run.push(*ptr),
                _ => runs.push(vec![*ptr]),
            }
        }
        let bytes = ptrs.iter().map(|ptr| u64::from(ptr.bytes())).sum();
        let mut pace = self.pace(Task::Copy);
        pace.step(forebay_qos::Work::read(bytes, runs.len())).await;
        let read = join_all(runs.iter().map(|run| self.read_stored_run(run, || true))).await;
        let (mut parts, mut block) = (Vec::with_capacity(ptrs.len()), first);
        for (run, data) in runs.iter().zip(read) {
            match data {
                Some(data) => parts.extend(cut(run).map(|(ptr, at)| data.slice(at, ptr.bytes() as usize))),
                // No copy has all of it right, or a slot has just moved: one by one, with repair.
                None => {
                    for (ptr, block) in run.iter().zip(block..) {
                        let data = self.read_stored(snapshot, block, *ptr, || true).await?;
                        parts.push(data.ok_or(IoError::Corrupt)?);
                    }
                }
            }
            block += run.len() as u64;
        }
        Ok(parts)
    }

    /// The next piece of a stream; empty when nothing is left to walk over.
    async fn piece(self: &Rc<Self>, work: &mut Work) -> Result<Vec<u8>, IoError> {
        let (walk, mut runs, mut bytes) = (&mut work.walk, Vec::new(), 0);
        if walk.ready.is_empty() {
            self.walk(walk).await?;
        }
        while let Some(run) = walk.ready.front() {
            bytes += match run {
                Run::Write { ptrs, .. } => ptrs.iter().map(|ptr| ptr.bytes() as usize).sum(),
                Run::Clear { .. } => 4096,
            };
            if bytes > DATA_BYTES_MAX && !runs.is_empty() {
                break;
            }
            runs.extend(walk.ready.pop_front());
        }
        let read = join_all(runs.iter().map(|run| async {
            match run {
                Run::Write { first, ptrs } => self.run_data(work.snapshot, *first, ptrs).await,
                Run::Clear { .. } => Ok(Vec::new()),
            }
        }));
        let mut out = Vec::with_capacity(bytes.min(2 * DATA_BYTES_MAX));
        for (run, data) in runs.iter().zip(read.await) {
            let data = data?;
            match run {
                Run::Clear { first, count } => work.encoder.clear(*first, *count, &mut out),
                Run::Write { first, ptrs } => {
                    let blocks = ptrs.iter().zip(&data).map(|(ptr, data)| (ptr.kind(), ptr.sum, &data[..]));
                    work.encoder.write(*first, &blocks.collect::<Vec<_>>(), &mut out);
                }
            }
        }
        Ok(out)
    }

    /// A snapshot's record, and what keeps it from being deleted.
    fn lend(&self, snapshot: &Snapshot) -> (DatasetRecord, Arc<()>) {
        (snapshot.record.borrow().clone(), snapshot.lent.clone())
    }
}

/// What goes to the shard and comes back.
#[derive(Debug)]
struct Work {
    snapshot: Id,
    walk: Walk,
    encoder: Encoder,
}

/// A snapshot as a stream, piece by piece. Dropping it is enough to end it.
pub struct SnapshotStream {
    core: Remote,
    pool: Id,
    shard: usize,
    /// `POOL/VOLUME@NAME`.
    object: String,
    header: Header,
    mapped: u64,
    /// Absent when all was sent, or something failed.
    work: Option<Work>,
    begun: bool,
    /// Keeps the snapshot and its base from being deleted.
    _lent: Vec<Arc<()>>,
}

impl SnapshotStream {
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next bytes, at most some 2 MiB; nothing at the end. After an error there are no more.
    #[boxed]
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let Some(mut work) = self.work.take() else { return Ok(None) };
        if !self.begun {
            self.begun = true;
            let mut out = Vec::new();
            work.encoder.header(&self.header, &mut out);
            self.work = Some(work);
            return Ok(Some(out));
        }
        let (pool, shard) = (self.pool, self.shard);
        let piece = call(&self.core, move |rt| async move {
            let shard = registry(&rt).shard(pool, shard).ok_or(IoError::Gone)?;
            loop {
                let out = shard.piece(&mut work).await?;
                let is_over = work.walk.todo.is_empty() && work.walk.ready.is_empty();
                if !out.is_empty() || is_over {
                    return Ok::<_, IoError>((work, out));
                }
            }
        });
        let failed = |error: IoError| {
            let pool = self.object.split('/').next().unwrap_or_default();
            let remedy = match error {
                IoError::Gone => {
                    "Import the pool again, and resume the stream where the receiver stopped".into()
                }
                IoError::Corrupt => {
                    format!("'forebay pool status {pool} --errors' lists the lost data")
                }
                _ => format!("'forebay pool status {pool}' shows the state of the pool"),
            };
            Error::new(ErrorKind::Io, &*self.object, format!("the stream cannot continue: {error}"))
                .remedy(remedy)
        };
        let (mut work, mut out) = piece.await.unwrap_or(Err(IoError::Gone)).map_err(failed)?;
        if out.is_empty() {
            work.encoder.end(self.mapped, &mut out);
        } else {
            self.work = Some(work);
        }
        Ok(Some(out))
    }
}

impl Control {
    /// A live snapshot by its name or id: its shard, its record, what keeps it, and the name of its volume.
    async fn lend(&self, name: &str) -> Result<(usize, DatasetRecord, Arc<()>, String), Error> {
        let place = self.find_snapshot(name).await?;
        let (record, lent, volume) = self
            .on_snapshot(&place.id.to_string(), |shard, snapshot| async move {
                let (record, lent) = shard.lend(&snapshot);
                let datasets = shard.datasets.borrow();
                let volume = datasets.get(&record.volume).map(|volume| volume.record.borrow().name.clone());
                Ok((record, lent, volume.unwrap_or_default()))
            })
            .await?;
        Ok((place.shard, record, lent, volume))
    }

    /// The id of a live snapshot of the family that has this one in streams.
    async fn find_origin(&self, shard: usize, family: Id, origin: Id) -> Result<Option<Id>, Error> {
        let find = move |shard: Rc<Shard>| async move {
            let snapshots = shard.snapshots.borrow();
            let is_it = |snapshot: &&Rc<Snapshot>| {
                let record = snapshot.record.borrow();
                record.family == family && record.stream_id() == origin && snapshot.is_live()
            };
            snapshots.values().find(is_it).map(|snapshot| snapshot.record.borrow().id)
        };
        self.on_shard(shard, find).await
    }

    async fn snapshot_send(&self, name: &str, options: SendOptions) -> Result<SnapshotStream, Error> {
        let (shard, record, lent, volume) = self.lend(name).await?;
        let object = self.object(&format!("{volume}@{}", record.name));
        let missing = |what: String| {
            Error::new(ErrorKind::NotFound, &*object, what).remedy(
                "Abandon the received part at the receiver ('forebay snapshot abandon VOLUME'). Then send the snapshot from another base ('forebay snapshot list' \
                 and 'forebay bookmark list' show them) or whole",
            )
        };
        let from = match (&options.from, options.resume) {
            (_, Some(token)) if token.snapshot != record.stream_id() => {
                let message = "the token belongs to another snapshot";
                return Err(Error::new(ErrorKind::Invalid("resume"), &*object, message)
                    .remedy("Name the snapshot whose stream was interrupted"));
            }
            (_, Some(ResumeToken { base: Some(base), .. })) => {
                let snapshot = self.find_origin(shard, record.family, base).await?;
                let mark = self.bookmark_of(shard, record.clone(), base).await?;
                let found = match (snapshot, mark) {
                    (Some(id), _) => Some(id.to_string()),
                    (None, Some(mark)) => Some(format!("{volume}#{}", mark.name)),
                    (None, None) => None,
                };
                let gone = || missing(format!("the base that the token names ({base}) no longer exists"));
                Some(found.ok_or_else(gone)?)
            }
            (_, Some(_)) | (None, None) => None,
            (Some(from), None) if from.starts_with(['@', '#']) => Some(format!("{volume}{from}")),
            (Some(from), None) => Some(from.clone()),
        };
        let mut all_lent = vec![lent];
        let mut base = None;
        if let Some(from) = from {
            let from = from.strip_prefix(&format!("{}/", self.name())).unwrap_or(&from);
            let refused = |message: String, remedy: &str| {
                Err(Error::new(ErrorKind::Invalid("from"), &*object, message).remedy(remedy))
            };
            let is_pool =
                |name: &str| registry(&self.rt).controls().iter().any(|control| control.name() == name);
            let volume_of = from.split(['@', '#']).next().unwrap_or_default();
            if let Some((pool, _)) = from.split_once('/')
                && is_pool(pool)
                && self.find(volume_of).is_none()
            {
                return refused(
                    format!("{from} is in another pool"),
                    "Name the sending volume's own snapshot or bookmark as the base",
                );
            }
            if from.contains('#') {
                let (mark_shard, mark) = self.bookmark(from).await?;
                let lead = if mark_shard == shard { mark.lead_to(&record) } else { Lead::Elsewhere };
                if let Some((message, remedy)) = lead.refusal(&self.object(from), &self.object(&volume)) {
                    return refused(message, &remedy);
                }
                base = Some(mark);
            } else {
                let remedy = "Name a snapshot of the same volume, or the one that it was cloned from";
                let (base_shard, base_record, lent, _) = self.lend(from).await?;
                if base_record.id == record.id {
                    return refused("a snapshot cannot be its own base".into(), remedy);
                }
                if base_shard != shard || base_record.family != record.family {
                    let message = format!(
                        "{} is not related to it: neither is a clone of the other",
                        self.object(from)
                    );
                    return refused(message, remedy);
                }
                all_lent.push(lent);
                base = Some(base_record);
            }
        }
        let block = options.resume.map_or(0, |token| token.block);
        let header = Header {
            snapshot: record.stream_id(),
            // Of a bookmark, too: that is its origin.
            base: base.as_ref().map(DatasetRecord::stream_id),
            block_shift: record.block_shift,
            size: record.size,
            created: record.created,
            from: block,
            volume,
            name: record.name.clone(),
        };
        let walk = Walk::new(&record, base.as_ref(), block);
        Ok(SnapshotStream {
            core: self.shared.cores.core(shard).clone(),
            pool: self.id(),
            shard,
            object,
            header,
            mapped: record.mapped.blocks as u64,
            work: Some(Work { snapshot: record.id, walk, encoder: Encoder::default() }),
            begun: false,
            _lent: all_lent,
        })
    }
}

impl Engine {
    /// A snapshot, `POOL/VOLUME@NAME` or UUID, as a stream: all of it, or what makes it of another.
    #[boxed]
    pub async fn snapshot_send(&self, name: &str, options: SendOptions) -> Result<SnapshotStream, Error> {
        self.on_owner(name, |control, name| async move { control.snapshot_send(&name, options).await }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        for base in [None, Some(Id(7))] {
            let token = ResumeToken { snapshot: Id(5), base, block: 9 };
            assert_eq!(token.to_string().parse(), Ok(token));
        }
        for text in
            ["", ".", "5.7.9", "x", &format!("{:032x}.{:032x}.", 1, 2), &format!("{:032x}.{:032x}.1.2", 1, 2)]
        {
            assert_eq!(text.parse::<ResumeToken>(), Err(()), "{text}");
        }
    }
}
