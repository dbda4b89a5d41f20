//! What volumes are promised, and whether the pool can keep it.
//!
//! A pool that was measured can keep so many floors as fit into its time ([`forebay_qos::kept`]). A change that would make a promise which does not fit
//! is refused, unless somebody wants it all the same. Levels, disks and volumes change later: what no longer fits is best effort then, and shown as that.
//! Nothing of it is stored. A promise is new when a volume comes, and with every change of what its level says; it is in force once somebody has looked, which is at once
//! after a change, and each second.

use crate::Engine;
use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind};
use crate::projects::{Inherits, project_of};
use crate::registry::registry;
use crate::shard::Shard;
use crate::spec::{Severity, VolumeInfo};
use crate::steps::Steps;
use async_recursion::async_recursion as boxed;
use forebay_base::{Id, WallTime};
use forebay_qos::{Level, Promise, Rate, SHARE_MAX, WHOLE, Wish, kept};
use std::rc::Rc;

/// Whether the floor of a level can be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It fits beside the others.
    Promised,
    /// The pool has not enough for it: it has its share, and its floor does not count.
    BestEffort,
    /// Nor has it now: disks are out, or do less than they were measured to do.
    CannotBeKept,
    /// Nobody has measured what the pool can do.
    Unmeasured,
}

/// A volume, and what its level says.
#[derive(Clone, Debug)]
pub(crate) struct Wished {
    pub id: Id,
    /// Without the pool's.
    pub name: String,
    pub created: WallTime,
    pub inherits: bool,
    pub level_id: Id,
    pub level: Level,
    pub promise: Promise,
}

/// A change of what volumes are promised.
#[derive(Clone, Debug)]
pub enum PromiseChange {
    /// A volume that is to be made; without a level of its own it has its project's.
    Create { name: String, level: Option<Id> },
    /// A volume's level; without one of its own it has its project's.
    Volume { id: Id, level: Option<Id> },
    /// The level that the volumes of a project inherit; zero for none.
    Project { name: String, level: Id },
    /// What a level says.
    Level { id: Id, level: Level },
}

impl Wished {
    pub fn has_floor(&self) -> bool {
        self.level.floor != Rate::default()
    }

    /// Nothing where its level has no floor.
    pub fn standing(&self, is_measured: bool) -> Option<Standing> {
        self.has_floor().then_some(match (is_measured, self.promise) {
            (false, _) => Standing::Unmeasured,
            (true, Promise::Kept) => Standing::Promised,
            (true, Promise::Withdrawn) => Standing::CannotBeKept,
            (true, Promise::New | Promise::TooMuch) => Standing::BestEffort,
        })
    }

    /// What of its level is in force.
    pub fn in_force(&self) -> Level {
        in_force(self.level, self.promise)
    }
}

/// What of a level counts: where its floor does not fit, neither that nor its latency goal. Who was promised no floor cannot miss one.
fn in_force(level: Level, promise: Promise) -> Level {
    let is_kept = promise == Promise::Kept || level.floor == Rate::default();
    if is_kept { level } else { level.without_promise() }
}

/// What becomes of the promise of a floor when that is another. A greater one is new; one that is kept stays so when it becomes less.
fn still(before: Rate, promise: Promise, floor: Rate) -> Promise {
    let is_no_more = floor.iops <= before.iops && floor.bytes <= before.bytes && floor != Rate::default();
    match promise {
        Promise::Kept if is_no_more => promise,
        _ if floor == before => promise,
        _ => Promise::New,
    }
}

impl Dataset {
    /// How it is with the promise of this level.
    pub fn promise_of(&self, level: Level) -> Promise {
        let (known, promise) = self.promise.get();
        still(known, promise, level.floor)
    }

    /// What of a level is in force for it.
    pub fn in_force(&self, level: Level) -> Level {
        in_force(level, self.promise_of(level))
    }
}

impl Shard {
    pub fn wished(&self, dataset: &Dataset) -> Wished {
        let (record, level_id) = (dataset.record.borrow(), dataset.level());
        let level = registry(&self.rt).level(level_id);
        Wished {
            id: record.id,
            name: record.name.clone(),
            created: record.created,
            inherits: record.inherits.has(Inherits::LEVEL),
            level_id,
            level,
            promise: dataset.promise_of(level),
        }
    }

    /// Of which levels promises are kept from now on, and of which not, by the ids of volumes, those of other shards too.
    async fn note_promises(&self, changed: &[(Id, Rate, Promise)]) {
        let mut steps = Steps::default();
        for (id, floor, promise) in changed {
            steps.take(1).await;
            if let Some(dataset) = self.volume(*id) {
                dataset.promise.set((*floor, *promise));
                self.note_level(&dataset);
            }
        }
    }

    /// What its volumes are promised whose levels `are_meant`.
    async fn wished_of(&self, are_meant: impl Fn(&Level) -> bool) -> Vec<Wished> {
        let (mut wished, mut from, mut steps) = (Vec::new(), 0, Steps::default());
        while let Some(dataset) = self.next_dataset(from) {
            from = dataset.number() + 1;
            steps.take(1).await;
            if dataset.is_live() && are_meant(&registry(&self.rt).level(dataset.level())) {
                wished.push(self.wished(&dataset));
            }
        }
        wished
    }

    /// Its volumes whose levels promise a floor.
    async fn promised(&self) -> Vec<Wished> {
        self.wished_of(|level| level.floor != Rate::default()).await
    }
}

impl Control {
    /// In millionths of the pool's time, how much can be promised: less while disks are out of service, or do less than they did.
    fn capacity(&self) -> u64 {
        let label = self.label.borrow();
        let groups = label.groups.iter().enumerate().filter(|(_, group)| group.role == 0);
        let in_service = groups.filter_map(|(number, _)| {
            let disks = label.disks.iter().enumerate();
            let all: Vec<usize> = disks
                .filter(|(_, disk)| usize::from(disk.group) == number && disk.counts())
                .map(|(index, _)| index)
                .collect();
            let serving = all.iter().filter(|index| self.serves(**index)).count() as u64;
            (serving * WHOLE).checked_div(all.len() as u64)
        });
        let in_service = in_service.min().unwrap_or(WHOLE);
        SHARE_MAX * in_service / WHOLE * self.ledger.health.get() / WHOLE
    }

    /// How much can be promised, where that was measured.
    pub fn promisable(&self) -> Option<u64> {
        self.speed.get().map(|_| self.capacity())
    }

    fn wishes(&self, wished: &[Wished]) -> Vec<Wish> {
        let costs = self.shared.turns.costs();
        let wish = |one: &Wished| Wish {
            class: one.level.class,
            share: costs.share(&one.level),
            promise: one.promise,
        };
        wished.iter().map(wish).collect()
    }

    /// Looks whether what volumes are promised fits, at once after something has changed.
    pub async fn look_at_promises(&self) {
        let mut wished = Vec::new();
        for shard in 0..self.shard_count() {
            // A shard that has ended keeps nothing.
            wished.extend(
                self.on_shard(shard, |shard| async move { shard.promised().await }).await.unwrap_or_default(),
            );
        }
        self.keep_promises(wished).await;
    }

    /// A volume that has come, with what becomes of its promise.
    pub async fn with_promise(&self, info: VolumeInfo) -> Result<VolumeInfo, Error> {
        if info.standing.is_none() {
            return Ok(info);
        }
        self.look_at_promises().await;
        self.volume_brief(&info.id.to_string()).await
    }

    /// Sees to it that what fits is promised, and nothing else: how much of the pool's time there is for it, and how much all floors would take.
    pub async fn keep_promises(&self, mut wished: Vec<Wished>) -> (Option<u64>, u64) {
        wished.sort_by_key(|one| (one.created.0, one.id));
        let wishes = self.wishes(&wished);
        let promised = wishes.iter().map(|wish| wish.share).fold(0, u64::saturating_add);
        self.ledger.promised.set(promised);
        let capacity = self.promisable();
        let fits_now = kept(&wishes, capacity.unwrap_or(u64::MAX));
        let fits_in_all = kept(&wishes, SHARE_MAX);
        let mut changed = Vec::new();
        for ((one, fits_now), fits_in_all) in wished.iter().zip(fits_now).zip(fits_in_all) {
            let now = match (fits_now, fits_in_all) {
                (true, _) => Promise::Kept,
                (false, true) => Promise::Withdrawn,
                (false, false) => Promise::TooMuch,
            };
            if one.promise != now {
                changed.push((one.id, one.level.floor, now));
                self.tell_promise(one, now);
            }
        }
        for shard in 0..if changed.is_empty() { 0 } else { self.shard_count() } {
            let changed = changed.clone();
            let _ =
                self.on_shard(shard, move |shard| async move { shard.note_promises(&changed).await }).await;
        }
        (capacity, promised)
    }

    /// Tells a person what was taken back, or not given, and what is promised again.
    fn tell_promise(&self, one: &Wished, now: Promise) {
        let (severity, code, message) = match (one.promise, now) {
            (_, Promise::Withdrawn) => (
                Severity::Warning,
                "level.cannot_be_met",
                format!(
                    "the volume's service level ({}) cannot be met while disks of the pool are out of service or slower than they were measured: it gets \
                     its share. See 'forebay pool status {}'. The level is guaranteed again when the disks recover",
                    one.level,
                    self.name()
                ),
            ),
            (_, Promise::TooMuch) => (
                Severity::Warning,
                "level.best_effort",
                format!(
                    "the volume is best effort: the pool cannot guarantee its service level ({}). Lower it or the levels of other volumes, or add \
                     disks",
                    one.level
                ),
            ),
            (Promise::Withdrawn | Promise::TooMuch, Promise::Kept) => (
                Severity::Info,
                "level.guaranteed",
                format!("the volume's service level is guaranteed again: {}", one.level),
            ),
            _ => return,
        };
        self.event(severity, code, &self.object(&one.name), message);
    }

    /// Refuses a change that would make a promise which the pool cannot keep. A pool that nobody has measured may promise anything.
    async fn check_promise(&self, change: &PromiseChange) -> Result<(), Error> {
        if self.speed.get().is_none() {
            return Ok(());
        }
        let mut before = Vec::new();
        for shard in 0..self.shard_count() {
            let theirs = |shard: Rc<Shard>| async move { shard.wished_of(|_| true).await };
            before.extend(self.on_shard(shard, theirs).await?);
        }
        before.sort_by_key(|one| (one.created.0, one.id));
        let mut after = before.clone();
        self.apply(change, &mut after);
        for (before, one) in before.iter().zip(&mut after) {
            one.promise = still(before.level.floor, before.promise, one.level.floor);
        }
        let (capacity, shares, wishes) = (self.capacity(), self.wishes(&before), self.wishes(&after));
        let fits = kept(&wishes, capacity);
        let asks = |nth: &usize| wishes[*nth].promise == Promise::New && wishes[*nth].share > 0;
        let (new, old): (Vec<usize>, Vec<usize>) = (0..after.len()).partition(asks);
        // Who asks for no more than before is told nothing new.
        let refused = new.iter().find(|nth| {
            !fits[**nth] && shares.get(**nth).is_none_or(|before| before.share < wishes[**nth].share)
        });
        let Some(&refused) = refused else { return Ok(()) };
        let percent = |share: u64| format!("{:.1} %", share as f64 * 100.0 / WHOLE as f64);
        let sum = |all: Vec<usize>| all.iter().map(|nth| wishes[*nth].share).fold(0, u64::saturating_add);
        let old = old.into_iter().filter(|nth| wishes[*nth].promise == Promise::Kept).collect();
        let message = format!(
            "its service level ({}) does not fit: it takes up to {} of the time of pool '{}', other volumes are guaranteed {}, and {} can be guaranteed in all",
            after[refused].level,
            percent(sum(new)),
            self.name(),
            percent(sum(old)),
            percent(capacity),
        );
        let remedy = "Choose a lower level, lower those of other volumes, add disks, or accept best effort ('--best-effort')";
        Err(Error::new(ErrorKind::Conflict, self.object(&after[refused].name), message).remedy(remedy))
    }

    fn apply(&self, change: &PromiseChange, wished: &mut Vec<Wished>) {
        let known = registry(&self.rt);
        let of_project = |name: &str| {
            let projects = self.projects.borrow();
            project_of(name).and_then(|project| projects.get(project)?.properties.level).unwrap_or(Id(0))
        };
        let set = |one: &mut Wished, id: Id| (one.level_id, one.level) = (id, known.level(id));
        match change {
            PromiseChange::Create { name, level } => {
                let level_id = level.unwrap_or_else(|| of_project(name));
                wished.push(Wished {
                    id: Id(u128::MAX),
                    name: name.clone(),
                    created: self.rt.wall(),
                    inherits: level.is_none(),
                    level_id,
                    level: known.level(level_id),
                    promise: Promise::New,
                });
            }
            PromiseChange::Volume { id, level } => {
                for one in wished.iter_mut().filter(|one| one.id == *id) {
                    set(one, level.unwrap_or_else(|| of_project(&one.name)));
                }
            }
            PromiseChange::Project { name, level } => {
                let is_its = |one: &&mut Wished| one.inherits && project_of(&one.name) == Some(name);
                wished.iter_mut().filter(is_its).for_each(|one| set(one, *level));
            }
            PromiseChange::Level { id, level } => {
                wished.iter_mut().filter(|one| one.level_id == *id).for_each(|one| one.level = *level);
            }
        }
    }
}

impl Engine {
    /// Refuses (`Conflict`) a change that would make a promise which the pool cannot keep; changes nothing. What is changed all the same is best
    /// effort, and breaks nobody's.
    #[boxed]
    pub async fn promise_check(&self, pool: &str, change: PromiseChange) -> Result<(), Error> {
        self.on_pool(pool, |control| async move { control.check_promise(&change).await }).await
    }
}
