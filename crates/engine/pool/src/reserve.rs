//! Reservations that hold: a shard keeps enough free places for what its reserved volumes may still be written.
//!
//! A volume *has for itself* the blocks that it got since its newest snapshot, and that lie in chunks of its class; it is *owed* a place for each
//! of its other blocks. Every block that it gets takes a free place and is one that it has; every block that it lets go of is one that it has no longer, and
//! its place comes back with a checkpoint. So what is free, or about to be, never falls below what is owed by what reserved volumes do themselves; and
//! others take only what is left over ([`forebay_space::Space::spare`]). Overwriting needs new places before the old ones come back: room for the longest
//! write of a class is owed as well, and who does not find enough waits for checkpoints, one writer at a time.
//!
//! What is kept for itself is counted from below: where it is not known, more is held than need be. The checker compares.
//!
//! The space is that of chunks the shard was granted. They are in its chunk table, so a crash or an import changes nothing.
//! `docs/development/decisions/0013-reservations.md` has the reasons.

use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::record::DatasetState;
use crate::registry::{call, registry};
use crate::shard::{NodesClaim, SPACE_WAITS_MAX, Shard};
use crate::spec::{Severity, VolumeFormat, VolumeInfo};
use crate::volume::{IO_BYTES_MAX, LocalVolume};
use crate::wanted::Wanted;
use forebay_base::planted::{Bug, active};
use forebay_base::{Id, MIB};
use forebay_device::UNIT;
use forebay_space::{CLASSES, ChunkKind, NODE_UNITS, Ptr};
use forebay_tree::FANOUT;
use std::rc::Rc;

/// Checkpoints and evacuations that one request for a reservation waits for.
const TRIES_MAX: u32 = 8;

/// Who asks for space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// It leaves what is held for reserved volumes.
    Ordinary,
    /// A reserved volume takes what is held for it.
    Reserved,
    /// The pool moves blocks: they take as much elsewhere as they give back.
    Moved,
    /// The same, only to where they lie beside each other.
    Gathered,
    /// What gives space back, or ends what was begun. Its nodes may come from the last slice of the pool.
    Urgent,
}

/// How much a shard needs a chunk that it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// It may have other space before long: an eighth of the pool is left to who has none, such as nodes.
    Deferrable,
    Ordinary,
    /// A checkpoint cannot do without it, or what gives space back.
    Urgent,
}

/// What a dataset has for itself. In its record and in memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Own {
    /// Blocks born after `since` in chunks of its class, at most as many as there are.
    pub blocks: u64,
    /// The epoch of its newest snapshot.
    pub since: u64,
    /// Blocks that it ever got in chunks of other classes, those of who it grew from too.
    pub strays: u64,
}

impl Own {
    /// From here on, all is somebody else's as well.
    pub fn shared_at(self, since: u64) -> Own {
        Own { blocks: 0, since, ..self }
    }
}

/// Checkpoints after which an import's own work has given back what it took.
const CHECKPOINTS_MAX: usize = 3;

/// Allocation units of chunks of a kind.
pub(crate) type Units = (ChunkKind, u64);

/// Blocks that somebody is about to be owed.
#[derive(Clone, Copy)]
pub(crate) struct Promise {
    class: u8,
    blocks: u64,
    /// Blocks of the volume that it is for.
    volume: u64,
}

/// A promise, until it is kept or taken back.
pub(crate) struct Pledge {
    shard: Rc<Shard>,
    number: u64,
}

impl Drop for Pledge {
    fn drop(&mut self) {
        self.shard.promises.borrow_mut().remove(&self.number);
        self.shard.settle_debts();
    }
}

/// Whether something is done, or only what it would be refused for is found out: the checks are the same, and what they hold is let go of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    Trial,
    Real,
}

/// Why something cannot be reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// Bytes that would have to be held, and how many of them are not free.
    Lacks {
        needed: u64,
        lacking: u64,
    },
    Failed(IoError),
}

impl Dataset {
    /// log2 of the units of a block.
    pub fn class(&self) -> u8 {
        self.record.borrow().block_shift - UNIT.trailing_zeros() as u8
    }

    pub fn claim(&self) -> Claim {
        if self.reserved.get() > 0 { Claim::Reserved } else { Claim::Ordinary }
    }

    /// Blocks for which a place is held.
    pub fn owed(&self) -> u64 {
        self.reserved.get().saturating_sub(self.own.get().blocks)
    }

    /// Takes note of a new size, format or state.
    pub fn note_reserved(&self) {
        let record = self.record.borrow();
        let is_reserved = record.format != VolumeFormat::Thin && record.state != DatasetState::Deleting;
        self.reserved.set(if is_reserved { record.blocks() } else { 0 });
    }
}

impl Promise {
    fn new(dataset: &Dataset, blocks: u64, volume: u64) -> Promise {
        Promise { class: dataset.class(), blocks, volume }
    }

    fn bytes(&self) -> u64 {
        let transit = transit(self.class, self.volume);
        (self.blocks + transit) * (UNIT << self.class)
    }
}

/// Blocks of the longest write of a volume of so many.
fn transit(class: u8, blocks: u64) -> u64 {
    blocks.min(IO_BYTES_MAX as u64 / (UNIT << class) + 1)
}

/// Nodes above the leaves of a volume of so many blocks.
fn inner_nodes(blocks: u64) -> u64 {
    let (mut nodes, mut all) = (blocks.div_ceil(FANOUT), 2);
    while nodes > 1 {
        nodes = nodes.div_ceil(FANOUT);
        all += nodes;
    }
    all
}

impl Shard {
    /// Makes sure that `nodes` more dirty nodes can be written. Clients that find too few wait one after the other, and who comes later behind them: what
    /// queued writes claim comes back all the time, and would be taken by those that do not wait. Once there are enough for all of these as well, nobody waits
    /// any more: otherwise there would always be somebody, and each commit would have one write.
    pub async fn reserve_nodes(self: &Rc<Self>, nodes: u64, claim: Claim) -> Result<NodesClaim, IoError> {
        let began = self.checkpoints.get();
        let need = if claim == Claim::Urgent { Need::Urgent } else { Need::Ordinary };
        // With what is held for reserved volumes, and without.
        let fits = |nodes: u64, held: bool| {
            let space = self.space.borrow();
            let held = if held { space.nodes_held() } else { 0 };
            self.nodes_needed() + nodes + held <= space.nodes_free()
        };
        let has_enough = || fits(nodes, claim != Claim::Reserved);
        let waits = claim == Claim::Ordinary && !fits(nodes + self.nodes_turn.wanted() as u64, true);
        let turn = if waits { Some(self.nodes_turn.enter(nodes.max(1) as usize).await) } else { None };
        while !has_enough() {
            if self.is_suspended() {
                return Err(IoError::Suspended);
            }
            if self.grant(ChunkKind::Node, need).await {
                continue;
            }
            if claim == Claim::Urgent && fits(nodes, false) {
                break;
            }
            // As long as somebody before them gets some, there are some for who waits in turn.
            let since = if turn.is_some() { self.nodes_given.get().max(began) } else { began };
            let is_over = self.checkpoints.get() > since + u64::from(SPACE_WAITS_MAX);
            if is_over || !self.next_checkpoint_or(has_enough).await {
                return Err(self.why_none());
            }
        }
        if turn.is_some() {
            self.nodes_given.set(self.checkpoints.get());
        }
        self.nodes_queued.set(self.nodes_queued.get() + nodes);
        Ok(NodesClaim { shard: self.clone(), nodes })
    }

    /// Adds the places that are wanted and not there yet; false when the shard's chunks have no more.
    pub fn take_places(&self, wanted: &Wanted, claim: Claim, places: &mut Vec<Ptr>) -> bool {
        let mut space = self.space.borrow_mut();
        while places.len() < wanted.count() {
            let (size, mut left) = wanted.next(places.len());
            let found = if size.is_whole() {
                if claim == Claim::Ordinary {
                    left = u64::from(left).min(space.spare(size.units.trailing_zeros() as u8)) as u32;
                }
                if left == 0 {
                    return false;
                }
                let kind = wanted.kind(places.len());
                match claim {
                    Claim::Gathered => space.allocate_gathered(kind, size, left),
                    Claim::Ordinary | Claim::Reserved => space.allocate_request(kind, size.units, left),
                    Claim::Moved | Claim::Urgent => space.allocate_run(kind, size.units, left),
                }
            } else if claim == Claim::Gathered {
                space.allocate_gathered(ChunkKind::PACKED, size, 1)
            } else {
                // Reserved volumes are not compressed: what of theirs still is takes what is left over, as that of others.
                if claim != Claim::Moved && space.spare(0) < u64::from(size.units) {
                    return false;
                }
                space.allocate_packed(size).map(|place| (place, 1))
            };
            let Ok((first, run)) = found else { return false };
            // The checksum is filled in by the caller, the birth by the commit; until then only place and size count.
            let bytes = size.units * UNIT as u32;
            let place = |nth| first.plus(u64::from(nth * bytes));
            places.extend((0..run).map(|nth| Ptr::new(place(nth), bytes, 0, Default::default())));
        }
        true
    }

    /// Takes note of blocks that a dataset got, and of those that it let go of.
    pub fn account(&self, dataset: &Dataset, gained: &[Ptr], freed: &[Ptr]) {
        dataset.added.set(dataset.added.get().with_blocks(gained).without_blocks(freed));
        self.account_own(dataset, gained, freed);
    }

    fn account_own(&self, dataset: &Dataset, gained: &[Ptr], freed: &[Ptr]) {
        let (class, mut own, before) = (dataset.class(), dataset.own.get(), dataset.owed());
        let mut space = self.space.borrow_mut();
        let (home, strays) = space.at_home(class, gained, own.since);
        let (gone, _) = space.at_home(class, freed, own.since);
        own.blocks = (own.blocks + home).saturating_sub(gone);
        own.strays += strays;
        if dataset.own.replace(own) != own {
            self.datasets.borrow().touch(dataset);
        }
        space.owe(class, before, dataset.owed());
    }

    /// A checkpoint has found what blocks replaced; how many of these a dataset had for itself when it was frozen.
    pub fn resolved(&self, dataset: &Option<Rc<Dataset>>, since: u64, freed: &[Ptr]) -> u64 {
        let Some(dataset) = dataset else { return 0 };
        self.account_own(dataset, &[], freed);
        self.space.borrow().at_home(dataset.class(), freed, since).0
    }

    /// Blocks that a dataset has let go of are free after the next checkpoint.
    pub fn let_go(&self, dataset: &Dataset, freed: &[Ptr]) {
        self.account(dataset, &[], freed);
        let mut space = self.space.borrow_mut();
        freed.iter().for_each(|ptr| space.freed(ptr));
    }

    /// Nothing that a dataset has is a snapshot's any more.
    pub fn all_is_own(&self, dataset: &Dataset) {
        let (before, own) = (dataset.owed(), dataset.own.get());
        let mapped = dataset.tree.borrow().mapped().blocks as u64;
        let blocks = mapped.saturating_sub(own.strays).max(own.blocks);
        dataset.own.set(Own { blocks, since: 0, ..own });
        self.datasets.borrow().touch(dataset);
        self.space.borrow_mut().owe(dataset.class(), before, dataset.owed());
    }

    /// Counts anew what is owed to whom.
    pub fn settle_debts(&self) {
        let (mut owed, mut transits, mut inner) = ([0; CLASSES], [0; CLASSES], 0);
        let datasets = self.datasets.borrow();
        for dataset in datasets.values().filter(|dataset| dataset.reserved.get() > 0) {
            let (class, volume) = (dataset.class(), dataset.reserved.get());
            let at = usize::from(class);
            owed[at] += dataset.owed();
            transits[at] = transit(class, volume).max(transits[at]);
            inner += inner_nodes(volume);
        }
        let (mut pledged, mut transits_pledged) = ([0; CLASSES], transits);
        for Promise { class, blocks, volume } in self.promises.borrow().values().copied() {
            let at = usize::from(class);
            pledged[at] += blocks;
            transits_pledged[at] = transit(class, volume).max(transits_pledged[at]);
            inner += inner_nodes(volume);
        }
        // What an import found in the log goes where there was room for it. A reserved volume is owed that already: what was never written
        // before as such, and what replaces something goes where room for the longest write is.
        for dataset in datasets.values().filter(|dataset| dataset.reserved.get() == 0) {
            let class = usize::from(dataset.class());
            if transits[class] > 0 {
                let staged = dataset.staged.borrow();
                owed[class] += staged.values().filter(|staged| staged.place.is_none()).count() as u64;
            }
        }
        let mut space = self.space.borrow_mut();
        for class in 0..CLASSES {
            let held = if active(Bug::ReservationNotHeld) { 0 } else { 1 };
            let pledged = pledged[class] + transits_pledged[class] - transits[class];
            space.set_owed(class as u8, (owed[class] + transits[class]) * held, pledged * held);
        }
        space.set_owed_inner(inner);
    }

    /// Whether counting would find that nothing is owed, and does not find it only now.
    pub fn owes_nothing(&self) -> bool {
        self.promises.borrow().is_empty() && self.space.borrow().owes_nothing()
    }

    /// Has what is promised held, getting chunks for it: all that it takes or none. Until they are there nothing is held, so that others go on with what is
    /// free, and a refusal leaves everything as it was. `thorough`: waits for space that is on its way, and has blocks moved together; not while a
    /// checkpoint waits for it.
    async fn secure(self: &Rc<Self>, promise: Promise, thorough: bool) -> Result<Pledge, Refusal> {
        let mut tries = 0;
        loop {
            if self.is_suspended() {
                return Err(Refusal::Failed(IoError::Suspended));
            }
            let (lacking, nodes) = match self.pledge(promise) {
                Ok(pledge) => return Ok(pledge),
                Err(lacks) => lacks,
            };
            let data = (ChunkKind::Data { class: promise.class }, lacking << promise.class);
            let wanted: Vec<Units> = [data, (ChunkKind::Node, nodes * u64::from(NODE_UNITS))]
                .into_iter()
                .filter(|(_, units)| *units > 0)
                .collect();
            // What comes is pledged before anybody else runs.
            if self.grant_all(wanted.clone()).await {
                continue;
            }
            tries += 1;
            let more = match thorough && tries <= TRIES_MAX {
                true if self.expects_space() || self.expects_easing(tries - 1) => {
                    self.next_checkpoint().await
                }
                true => self.reclaim_for(wanted).await,
                false => false,
            };
            if !more {
                let lacking =
                    (lacking * (UNIT << promise.class)).max(nodes * forebay_tree::NODE_BYTES as u64);
                let refusal = Refusal::Lacks { needed: promise.bytes(), lacking };
                return self.pledge(promise).map_err(|_| refusal);
            }
        }
    }

    /// Holds what is promised if all of it is there; otherwise the places of its class and the nodes that are not.
    fn pledge(self: &Rc<Self>, promise: Promise) -> Result<Pledge, (u64, u64)> {
        let number = self.entry_id();
        self.promises.borrow_mut().insert(number, promise);
        let pledge = Pledge { shard: self.clone(), number };
        self.settle_debts();
        match (self.places_lacking(promise.class), self.nodes_lacking()) {
            (0, 0) => Ok(pledge),
            lacking => Err(lacking),
        }
    }

    /// Asks the coordinator for chunks of so many units, all of them or none.
    async fn grant_all(self: &Rc<Self>, wanted: Vec<Units>) -> bool {
        let pool = self.shared.id;
        let granted = call(self.shared.cores.core(0), move |rt| async move {
            registry(&rt).control(pool)?.grant_all(wanted).await
        });
        let granted = granted.await.ok().flatten();
        let is_granted = granted.is_some();
        granted.into_iter().flatten().for_each(|chunk| self.accept(chunk));
        is_granted
    }

    /// Whether what is owed no longer, but was, is soon held no more: the next checkpoint says so, and the one after it lets go.
    pub fn expects_easing(&self, waited: u32) -> bool {
        waited < 2 && self.space.borrow().is_easing()
    }

    /// Places of a class that are held and not there. What is on its way to its place takes nothing that is held for others.
    fn places_lacking(&self, class: u8) -> u64 {
        let on_the_way = self.in_transit(class);
        self.space.borrow().lacking(class).saturating_sub(on_the_way)
    }

    /// Nodes that are held and not there.
    fn nodes_lacking(&self) -> u64 {
        let space = self.space.borrow();
        match space.nodes_held() {
            0 => 0,
            held => (self.nodes_needed() + held).saturating_sub(space.nodes_free()),
        }
    }

    /// Places of a class that blocks of reserved volumes have which are durable in the log only: as many come back, or are owed no longer, when
    /// they get there. And what they have for themselves beyond their size: that many were replaced, and come back with the next checkpoint.
    /// A block that goes among those of another class gives back a place that it is then owed: that is none.
    pub fn in_transit(&self, class: u8) -> u64 {
        let (datasets, space) = (self.datasets.borrow(), self.space.borrow());
        let reserved =
            datasets.values().filter(|dataset| dataset.reserved.get() > 0 && dataset.class() == class);
        let is_at_home = |place: &Ptr| place.units() == 1 << class && space.is_at_home(place, class);
        let coming_back = |dataset: &Rc<Dataset>| {
            let staged = dataset.staged.borrow();
            let placed =
                staged.values().filter(|staged| staged.place.as_ref().is_some_and(is_at_home)).count();
            placed as u64 + dataset.own.get().blocks.saturating_sub(dataset.reserved.get())
        };
        reserved.map(coming_back).sum()
    }

    /// Nodes that reserved volumes have for themselves already, counted from above, of those that are held for them.
    fn nodes_had(&self) -> u64 {
        let datasets = self.datasets.borrow();
        let had = |dataset: &Rc<Dataset>| {
            let (blocks, own) = (dataset.reserved.get(), dataset.own.get().blocks);
            let held = dataset.owed() + transit(dataset.class(), blocks);
            let leaves = own.min(held.div_ceil(FANOUT));
            if own == 0 || blocks == 0 { 0 } else { inner_nodes(blocks) + leaves }
        };
        datasets.values().map(had).sum()
    }

    /// Whether less is free than is held, beyond doubt. What is owed no longer comes back with a checkpoint; dirty nodes take the places of
    /// others, which come back, too.
    fn is_short(&self, class: u8) -> bool {
        let held = self.space.borrow().nodes_held().saturating_sub(self.nodes_had());
        let places = self.space.borrow().lacking_owed(class);
        places > self.in_transit(class)
            || (held > 0 && self.nodes_of_tables() + held > self.space.borrow().nodes_free())
    }

    /// Gets chunks for places that are held and not there, as after a crash or the loss of a chunk's record.
    async fn make_up_places(self: &Rc<Self>) {
        for class in 0..CLASSES as u8 {
            while self.places_lacking(class) > 0
                && self.grant(ChunkKind::Data { class }, Need::Ordinary).await
            {}
        }
    }

    /// The same for nodes. After places: nodes that are dirty seem to be lacking, and are not.
    async fn make_up_nodes(self: &Rc<Self>) {
        while self.nodes_lacking() > 0 && self.grant(ChunkKind::Node, Need::Ordinary).await {}
    }

    /// Whether all that is held is there; with `beyond_doubt`, only what surely is not there counts.
    async fn is_made_up(self: &Rc<Self>, beyond_doubt: bool) -> bool {
        let mut classes = 0..CLASSES as u8;
        if !beyond_doubt {
            return self.nodes_lacking() == 0 && classes.all(|class| self.places_lacking(class) == 0);
        }
        // While a checkpoint writes, what it replaces is there twice.
        self.between_checkpoints().await.is_err() || !classes.any(|class| self.is_short(class))
    }

    /// Holds what a new volume, if it is a reserved one, may be written.
    pub async fn secure_new(
        self: &Rc<Self>,
        format: VolumeFormat,
        shift: u8,
        size: u64,
    ) -> Result<Option<Pledge>, Refusal> {
        if format == VolumeFormat::Thin {
            return Ok(None);
        }
        let blocks = size >> shift;
        let class = shift - UNIT.trailing_zeros() as u8;
        self.secure(Promise { class, blocks, volume: blocks }, true).await.map(Some)
    }

    /// Holds what has to be written anew if all that these volumes have becomes a snapshot's, until [`Shard::forget_pledges`].
    pub async fn secure_snapshots(
        self: &Rc<Self>,
        volumes: Vec<Id>,
        thorough: bool,
    ) -> Result<(), (Id, Refusal)> {
        for id in volumes {
            if active(Bug::SnapshotReservesNothing) {
                continue;
            }
            let Some(dataset) = self.volume(id).filter(|dataset| dataset.reserved.get() > 0) else {
                continue;
            };
            // What was written since it was last asked counts as well.
            self.seal_pledges.borrow_mut().retain(|(known, _)| *known != id);
            let blocks = dataset.reserved.get() - dataset.owed();
            let promise = Promise::new(&dataset, blocks, dataset.reserved.get());
            let pledge = self.secure(promise, thorough).await.map_err(|refusal| (id, refusal))?;
            self.seal_pledges.borrow_mut().push((id, pledge));
        }
        Ok(())
    }

    /// These volumes are sealed: what was promised for that is owed by now.
    pub fn keep_pledges(&self, sealed: &[u64]) {
        let numbers = |id: &Id| self.volume(*id).is_none_or(|dataset| sealed.contains(&dataset.number()));
        let kept = self.seal_pledges.borrow_mut().extract_if(.., |(id, _)| numbers(id)).collect::<Vec<_>>();
        drop(kept);
        self.settle_debts();
    }

    /// A block that an import found in the log, and that was owed a place, has got one or is gone.
    pub fn place_found(&self, dataset: &Dataset) {
        if dataset.reserved.get() == 0 {
            self.space.borrow_mut().owe(dataset.class(), 1, 0);
        }
    }

    /// The snapshots are taken, or will not be.
    pub fn forget_pledges(&self) {
        let pledges = self.seal_pledges.take();
        drop(pledges);
    }

    /// Bytes that are held for volumes, and of these, what counts as used: all of it for those that are to be written in full beforehand.
    pub fn held_bytes(&self) -> (u64, u64) {
        let (mut held, mut used) = (0, 0);
        for dataset in self.datasets.borrow().values() {
            let bytes = dataset.owed() * dataset.block_bytes() as u64;
            match dataset.record.borrow().format {
                VolumeFormat::Thin => {}
                VolumeFormat::ZeroedThick => held += bytes,
                VolumeFormat::EagerZeroedThick => used += bytes,
            }
        }
        (held, used)
    }
}

impl Control {
    /// Says why something is not reserved, and what can be done `instead` of freeing space.
    pub fn not_reserved(&self, name: &str, what: &str, instead: &str, refusal: Refusal) -> Error {
        let Refusal::Lacks { needed, lacking } = refusal else {
            let Refusal::Failed(error) = refusal else { unreachable!("there are two") };
            return self.io_error(name, error);
        };
        // What a shard lacks it would get from the pool, as far as that has chunks beside those that it keeps.
        let free = self.units_free() * UNIT;
        let (needed, lacking) = (needed.div_ceil(MIB), lacking.saturating_sub(free).div_ceil(MIB));
        let kept = "the pool's reserve for metadata and deletions does not count as free";
        let message = match lacking {
            0 => format!(
                "{what}: it needs {needed} MiB of reserved space, which with its metadata is not free ({kept})"
            ),
            _ => format!(
                "{what}: it needs {needed} MiB of reserved space, and {lacking} MiB of that are not free ({kept})"
            ),
        };
        let remedy = format!(
            "Add disks, delete snapshots, purge deleted volumes ('forebay volume purge VOLUME'), or {instead}"
        );
        Error::new(ErrorKind::NoSpace, self.object(name), message).remedy(remedy)
    }

    /// Gives a volume another format while clients use it; durable when done.
    pub async fn volume_convert(
        &self,
        name: &str,
        format: VolumeFormat,
        attempt: Attempt,
    ) -> Result<VolumeInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let more = move |dataset: &Dataset| match format {
            VolumeFormat::Thin => 0,
            _ => dataset.unheld(dataset.record.borrow().blocks()),
        };
        self.check_held(name, more).await?;
        let converted = self.on_volume(name, move |shard, dataset| async move {
            let is_new = format != VolumeFormat::Thin && dataset.reserved.get() == 0;
            let blocks = dataset.record.borrow().blocks();
            let owed = || blocks.saturating_sub(dataset.own.get().blocks);
            let (mut pledge, mut promised) = (None, 0);
            // Clients may discard what they have meanwhile.
            while is_new && (pledge.is_none() || owed() > promised) {
                drop(pledge.take());
                promised = owed();
                match shard.secure(Promise::new(&dataset, promised, blocks), true).await {
                    Ok(secured) => pledge = Some(secured),
                    Err(refusal) => return Ok(Err(refusal)),
                }
            }
            if attempt == Attempt::Real {
                LocalVolume::of(shard.clone(), dataset.clone()).put(|record| record.format = format).await?;
            }
            Ok(Ok(shard.info(&dataset).await))
        });
        let why = format!("the volume cannot be made {}", format.name());
        converted.await?.map_err(|refusal| self.not_reserved(name, &why, "leave it thin", refusal))
    }

    /// Grows a volume; a reserved one by space that is held for it.
    pub async fn volume_grow(&self, name: &str, size: u64, attempt: Attempt) -> Result<VolumeInfo, Error> {
        let more = move |dataset: &Dataset| match dataset.reserved.get() {
            0 => 0,
            _ => dataset.unheld(size >> dataset.record.borrow().block_shift),
        };
        self.check_held(name, more).await?;
        let grown = self.on_volume(name, move |shard, dataset| async move {
            let blocks = size >> dataset.record.borrow().block_shift;
            let _pledge = match dataset.reserved.get() {
                0 => None,
                now => {
                    let promise = Promise::new(&dataset, blocks.saturating_sub(now), blocks);
                    match shard.secure(promise, true).await {
                        Ok(pledge) => Some(pledge),
                        Err(refusal) => return Ok(Err(refusal)),
                    }
                }
            };
            if attempt == Attempt::Real {
                let volume = LocalVolume::of(shard.clone(), dataset.clone());
                volume.put(|record| record.size = record.size.max(size)).await?;
            }
            Ok(Ok(shard.info(&dataset).await))
        });
        let instead = self.make_thin(name);
        grown.await?.map_err(|refusal| self.not_reserved(name, "the volume cannot grow", &instead, refusal))
    }

    /// What can be done with a reserved volume for which there is too little space.
    pub fn make_thin(&self, name: &str) -> String {
        format!("make the volume thin ('forebay volume convert {} --format thin')", self.object(name))
    }

    /// Gets chunks for what is held for reserved volumes and not there; whether all of it is, as [`Shard::is_made_up`] has it.
    pub async fn make_up(self: &Rc<Self>, beyond_doubt: bool) -> Result<bool, Error> {
        let shards = 0..self.shard_count();
        for index in shards.clone() {
            self.on_shard(index, |shard| async move { shard.make_up_places().await }).await?;
        }
        for index in shards.clone() {
            self.on_shard(index, |shard| async move { shard.make_up_nodes().await }).await?;
        }
        for index in shards {
            let look = move |shard: Rc<Shard>| async move { shard.is_made_up(beyond_doubt).await };
            if !self.on_shard(index, look).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// After an import: whether all that is promised is there.
    pub async fn check_reservations(self: &Rc<Self>) -> Result<(), Error> {
        // What the log frees comes back with a checkpoint, and what that replaces with the next one.
        let mut is_there = self.make_up(false).await?;
        for _ in 0..CHECKPOINTS_MAX {
            if is_there || self.checkpoint().await.is_err() {
                break;
            }
            is_there = self.make_up(true).await?;
        }
        if !is_there {
            let message = "the pool has less free space than reserved volumes need: writes to them may fail. Add disks, or delete volumes or \
                           snapshots";
            self.event(Severity::Error, "pool.reservation_short", self.name(), message.into());
        }
        Ok(())
    }
}
