//! Quotas: what all that belongs to a project may take.
//!
//! What counts are the blocks of its volumes and of their snapshots, those in the trash, on the way here or away and being given back too, and
//! what is held for its reserved volumes. Snapshots that are deleted together with their volume count no longer. Each dataset knows its part ([`crate::added`]), so the sum over the shards costs a look at each
//! dataset, and nothing where no project has a quota.
//!
//! A task on core 0 forms it, more often the less is left, and tells the shards which projects are *full*. Writes to their volumes
//! fail then as in a full pool, until a sum is below the quota again. No write asks anybody: a quota is passed by what is written between two
//! sums. Reserved volumes are not stopped: what is held for them is counted from the beginning.
//!
//! A sum is never too low for what is in the trees, but too high while blocks were replaced in leaves that are not in memory. So where a quota
//! seems to be reached and there are such changes, a checkpoint comes first, which resolves them; at most one a second.
//! `docs/development/decisions/0015-projects.md` has the reasons.

use crate::added::Added;
use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::locks::RangeLocks;
use crate::projects::project_of;
use crate::record::{DatasetRecord, block_units};
use crate::shard::Shard;
use crate::spec::{ProjectProperties, Severity};
use forebay_base::{Id, MIB, Nanos};
use forebay_device::UNIT;
use forebay_qos::{Ceiling, Rate};
use forebay_runtime::Rt;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

/// How often the sum is formed: as soon as what is left can have been written at this rate, within these limits.
const BYTES_PER_SECOND: u64 = 4 << 30;
const PERIOD_MIN: Duration = Duration::from_millis(50);
const PERIOD_MAX: Duration = Duration::from_secs(1);
/// From one checkpoint for the sake of a sum to the next.
const CHECKPOINT_REST: Duration = Duration::from_secs(1);
/// Parts of a quota at which people are told, in percent: it is almost used up, and writes go on for good.
const NEAR: u64 = 90;
const BELOW: u64 = 98;
/// Below this, reaching [`NEAR`] is news again.
const FAR: u64 = 85;

/// What a project says, and whether it has reached its quota.
#[derive(Clone, Default)]
pub(crate) struct Said {
    pub id: Id,
    pub properties: ProjectProperties,
    pub is_full: bool,
    /// All its volumes are under it together, on whatever shards.
    pub ceiling: Option<Arc<Ceiling>>,
}

/// What a project takes of its quota.
#[derive(Clone, Copy, Default)]
pub(crate) struct Charge {
    units: i64,
    /// Replaced blocks may be in it that the next checkpoint takes out.
    is_high: bool,
}

/// By the name of the project.
pub(crate) type Charges = BTreeMap<String, Charge>;

/// What people were told last of a project's quota.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Told {
    #[default]
    Nothing,
    Near,
    Reached,
}

#[derive(Clone, Copy, Default)]
struct State {
    is_full: bool,
    told: Told,
}

/// The quotas of a pool, as far as they are in force.
#[derive(Default)]
pub(crate) struct Quotas {
    states: RefCell<BTreeMap<Id, State>>,
    /// When a checkpoint was last made for them.
    checkpoint: Cell<Option<Nanos>>,
    /// Of projects, and what they were made of.
    ceilings: RefCell<BTreeMap<Id, (Rate, Arc<Ceiling>)>>,
    /// Held (as range 0) while shards are told of projects, and (as range 1) while sums are formed.
    locks: RangeLocks,
}

impl Quotas {
    /// What a project's volumes are under together; the same one as long as it says the same.
    fn ceiling(&self, project: Id, rate: Rate) -> Option<Arc<Ceiling>> {
        let mut ceilings = self.ceilings.borrow_mut();
        if rate == Rate::default() {
            ceilings.remove(&project);
            return None;
        }
        let known = ceilings.get(&project).filter(|(known, _)| *known == rate);
        let ceiling = known.map(|(_, ceiling)| ceiling.clone());
        let ceiling = ceiling.unwrap_or_else(|| Arc::new(Ceiling::new(rate, Duration::ZERO)));
        ceilings.insert(project, (rate, ceiling.clone()));
        Some(ceiling)
    }
}

impl Charge {
    pub fn bytes(&self) -> u64 {
        self.units.max(0) as u64 * UNIT
    }

    fn add(&mut self, other: Charge) {
        self.units += other.units;
        self.is_high |= other.is_high;
    }
}

impl Told {
    fn next(self, used: u64, quota: u64, is_full: bool) -> Told {
        let has = |percent: u64| u128::from(used) * 100 >= u128::from(quota) * u128::from(percent);
        match self {
            _ if is_full => Told::Reached,
            Told::Reached if has(BELOW) => Told::Reached,
            _ if has(NEAR) => Told::Near,
            told if has(FAR) => told.min(Told::Near),
            _ => Told::Nothing,
        }
    }
}

/// Until the next sum.
fn period(used: u64, quota: u64, is_full: bool) -> Duration {
    let micros = quota.saturating_sub(used) / (BYTES_PER_SECOND / 1_000_000);
    if is_full { PERIOD_MAX } else { Duration::from_micros(micros).clamp(PERIOD_MIN, PERIOD_MAX) }
}

impl Dataset {
    /// Refuses to take more space when its project has no more to give.
    pub fn check_quota(&self) -> Result<(), IoError> {
        if self.is_full.get() && self.reserved.get() == 0 { Err(IoError::NoSpace) } else { Ok(()) }
    }

    /// Bytes that its quota is charged more for when so many blocks of it are reserved.
    pub fn unheld(&self, blocks: u64) -> u64 {
        let owed = blocks.saturating_sub(self.own.get().blocks);
        owed.saturating_sub(self.owed()) * self.block_bytes() as u64
    }

    fn charge(&self) -> Charge {
        let held = self.owed() as i64 * i64::from(block_units(self.record.borrow().block_shift));
        let Added { units, .. } = self.added.get().and(self.sealing.get());
        // What a reserved one replaces is owed to it again.
        Charge { units: units + held, is_high: self.reserved.get() == 0 && self.tree.borrow().is_dirty() }
    }
}

impl Shard {
    /// Bytes that a quota is charged for a volume with its snapshots.
    pub fn charged_for(&self, volume: &Dataset) -> u64 {
        let mut sum = volume.charge();
        for snapshot in self.snapshots_of(volume.number()) {
            sum.add(Charge { units: snapshot.record.borrow().added.units, is_high: false });
        }
        sum.bytes()
    }

    /// Adds what is here of these projects.
    fn charge(&self, mut charges: Charges) -> Charges {
        let (datasets, snapshots) = (self.datasets.borrow(), self.snapshots.borrow());
        let mut add = |volume: &str, charge: Charge| {
            if let Some(sum) = project_of(volume).and_then(|project| charges.get_mut(project)) {
                sum.add(charge);
            }
        };
        for dataset in datasets.values() {
            add(&dataset.record.borrow().name, dataset.charge());
        }
        for snapshot in snapshots.values() {
            let record = snapshot.record.borrow();
            let charge = Charge { units: record.added.units, is_high: false };
            // The number of a volume that is gone may be another's: that is of another family.
            let is_of = |volume: &DatasetRecord| volume.family == record.family;
            if let Some(volume) = datasets.get(&record.volume) {
                let volume = volume.record.borrow();
                if is_of(&volume) {
                    add(&volume.name, charge);
                }
            } else if record.volume == record.number {
                // What is left of a deleted volume.
                add(&record.name, charge);
            }
        }
        charges.values_mut().for_each(|charge| charge.is_high |= self.checkpointing.get());
        charges
    }
}

impl Control {
    /// What these projects take.
    pub async fn charges(&self, projects: impl IntoIterator<Item = String>) -> Result<Charges, Error> {
        // A project that is being renamed has volumes under two names.
        let doubled: Vec<(String, String)> = {
            let known = self.projects.borrow();
            let stand_ins = known.iter().filter(|(_, project)| project.stands_in);
            let named = stand_ins.flat_map(|(new, stand_in)| {
                let same = known.iter().filter(move |(name, other)| *name != new && other.id == stand_in.id);
                same.map(move |(name, _)| (name.clone(), new.clone()))
            });
            named.collect()
        };
        let both = doubled.iter().flat_map(|(name, new)| [name.clone(), new.clone()]);
        let none: Charges =
            projects.into_iter().chain(both).map(|project| (project, Charge::default())).collect();
        let mut all = none.clone();
        for index in 0..self.shard_count() {
            let none = none.clone();
            for (project, charge) in
                self.on_shard(index, move |shard| async move { shard.charge(none) }).await?
            {
                all.entry(project).or_default().add(charge);
            }
        }
        for (name, new) in doubled {
            let mut sum = all[&name];
            sum.add(all[&new]);
            all.insert(name, sum);
            all.insert(new, sum);
        }
        Ok(all)
    }

    /// The projects with a quota.
    fn limited(&self) -> BTreeMap<String, (Id, u64)> {
        let projects = self.projects.borrow();
        let limited =
            projects.iter().filter(|(_, project)| !project.stands_in).filter_map(|(name, project)| {
                project.properties.quota.map(|quota| (name.clone(), (project.id, quota)))
            });
        limited.collect()
    }

    /// Refuses what would take `bytes` more, or anything of a quota that is used up.
    pub async fn check_quota(&self, volume: &str, bytes: u64) -> Result<(), Error> {
        let Some(project) = project_of(volume) else { return Ok(()) };
        let quota = self.projects.borrow().get(project).and_then(|project| project.properties.quota);
        let Some(quota) = quota else { return Ok(()) };
        let used = self.charges([project.to_string()]).await?[project].bytes();
        if used < quota && bytes <= quota - used {
            return Ok(());
        }
        let message = format!(
            "project {} has {} MiB left of its quota of {} MiB",
            self.object(project),
            quota.saturating_sub(used) / MIB,
            quota / MIB
        );
        let remedy = "Delete volumes or snapshots of the project (purge those in the trash), or raise its quota with \
                      'forebay project set PROJECT --quota SIZE'";
        Err(Error::new(ErrorKind::NoSpace, self.object(volume), message).remedy(remedy))
    }

    /// Refuses to hold more for a live volume than the quota of its project has left.
    pub async fn check_held(
        &self,
        volume: &str,
        more: impl FnOnce(&Dataset) -> u64 + Send + 'static,
    ) -> Result<(), Error> {
        let (name, _) = self.existing(volume)?;
        match self.on_volume(&name, move |_, dataset| async move { Ok(more(&dataset)) }).await? {
            0 => Ok(()),
            more => self.check_quota(&name, more).await,
        }
    }

    /// Tells all shards what volumes inherit, and which of them may take no more.
    pub async fn tell_projects(&self) -> Result<(), Error> {
        // One at a time: what is told last is how it is.
        let _turn = self.quotas.locks.lock(0, 0).await;
        let said: BTreeMap<String, Said> = {
            let (projects, states) = (self.projects.borrow(), self.quotas.states.borrow());
            let said = projects.iter().map(|(name, project)| {
                let properties = project.properties;
                let is_full = states.get(&project.id).is_some_and(|state| state.is_full);
                let is_full = is_full && properties.quota.is_some();
                let ceiling = self.quotas.ceiling(project.id, properties.ceiling);
                (name.clone(), Said { id: project.id, properties, is_full, ceiling })
            });
            let said: BTreeMap<String, Said> = said.collect();
            let mut ceilings = self.quotas.ceilings.borrow_mut();
            ceilings.retain(|id, _| projects.values().any(|project| project.id == *id));
            said
        };
        for index in 0..self.shard_count() {
            let said = said.clone();
            self.on_shard(index, move |shard| async move { shard.set_projects(said) }).await?;
        }
        Ok(())
    }

    /// Forms the sums, and has volumes stopped or go on accordingly. How long it may be until it is done again.
    pub async fn enforce_quotas(self: &Rc<Self>) -> Result<Duration, Error> {
        let _turn = self.quotas.locks.lock(1, 1).await;
        let limited = self.limited();
        self.quotas.states.borrow_mut().retain(|id, _| limited.values().any(|(known, _)| known == id));
        if limited.is_empty() || self.shared.import.read_only {
            return Ok(PERIOD_MAX);
        }
        let mut charges = self.charges(limited.keys().cloned()).await?;
        // Those that are stopped already wait for whatever checkpoint is next.
        let is_stopped = |id: &Id| self.quotas.states.borrow().get(id).is_some_and(|state| state.is_full);
        let is_doubtful = |(name, (id, quota)): (&String, &(Id, u64))| {
            charges[name].is_high && charges[name].bytes() >= *quota && !is_stopped(id)
        };
        if limited.iter().any(is_doubtful) && self.may_checkpoint() {
            self.checkpoint().await?;
            charges = self.charges(limited.keys().cloned()).await?;
            charges.values_mut().for_each(|charge| charge.is_high = false);
        }
        let (mut has_changed, mut next) = (false, PERIOD_MAX);
        for (name, (id, quota)) in limited {
            let (charge, was) = (charges[&name], self.quotas.states.borrow().get(&id).copied());
            let (used, was) = (charge.bytes(), was.unwrap_or_default());
            let is_full = used >= quota && (was.is_full || !charge.is_high);
            let told = was.told.next(used, quota, is_full);
            self.quotas.states.borrow_mut().insert(id, State { is_full, told });
            has_changed |= is_full != was.is_full;
            next = next.min(period(used, quota, is_full));
            self.tell_quota(&name, was.told, told, quota);
        }
        if has_changed {
            self.tell_projects().await?;
        }
        Ok(next)
    }

    fn may_checkpoint(&self) -> bool {
        let now = self.rt.now();
        let has_rested = |last: Nanos| u128::from(now.since(last)) >= CHECKPOINT_REST.as_nanos();
        let may = self.quotas.checkpoint.get().is_none_or(has_rested);
        if may {
            self.quotas.checkpoint.set(Some(now));
        }
        may
    }

    fn tell_quota(&self, project: &str, was: Told, now: Told, quota: u64) {
        let (object, quota) = (self.object(project), quota / MIB);
        let (severity, code, message) = match (was, now) {
            (Told::Nothing, Told::Near) => (
                Severity::Warning,
                "project.quota_near",
                format!("the project has used {NEAR} % of its quota of {quota} MiB"),
            ),
            (Told::Nothing | Told::Near, Told::Reached) => (
                Severity::Error,
                "project.quota_reached",
                format!(
                    "the project's quota of {quota} MiB is used up: writes to its volumes fail until space is freed, except to volumes with \
                     reserved space. Delete snapshots or volumes of the project, discard data, or raise the quota"
                ),
            ),
            (Told::Reached, Told::Nothing | Told::Near) => (
                Severity::Info,
                "project.quota_below",
                format!(
                    "the project uses less than its quota of {quota} MiB again, and its volumes accept writes"
                ),
            ),
            _ => return,
        };
        self.event(severity, code, &object, message);
    }

    /// Has quotas kept from here on.
    pub async fn keep_quotas(self: &Rc<Self>) {
        let next = self.enforce_quotas().await.unwrap_or(PERIOD_MAX);
        drop(self.rt.spawn(look(Rc::downgrade(self), self.rt.clone(), next)));
    }
}

async fn look(control: Weak<Control>, rt: Rt, mut next: Duration) {
    loop {
        rt.sleep(next).await;
        let Some(control) = control.upgrade().filter(|control| !control.closing.get()) else { return };
        // When writing has stopped, so have writes beyond a quota.
        next = match control.shared.is_suspended() {
            true => PERIOD_MAX,
            false => control.enforce_quotas().await.unwrap_or(PERIOD_MAX),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_once() {
        use Told::{Near, Nothing, Reached};
        for (was, used, is_full, now) in [
            (Nothing, 0, false, Nothing),
            (Nothing, 899, false, Nothing),
            (Nothing, 900, false, Near),
            (Near, 850, false, Near),
            (Near, 849, false, Nothing),
            (Near, 1000, true, Reached),
            (Nothing, 5000, true, Reached),
            // It only seems so.
            (Near, 1001, false, Near),
            (Reached, 980, false, Reached),
            (Reached, 979, false, Near),
            (Reached, 860, false, Near),
            (Reached, 0, false, Nothing),
        ] {
            assert_eq!(was.next(used, 1000, is_full), now, "{was:?} at {used}");
        }
        assert_eq!(Nothing.next(u64::MAX / 2, u64::MAX, false), Nothing);
    }

    #[test]
    fn sums_are_formed_more_often_the_less_is_left() {
        let gib = 1 << 30;
        assert_eq!(period(0, 100 * gib, false), PERIOD_MAX);
        assert_eq!(period(99 * gib, 100 * gib, false).as_millis(), 250);
        assert_eq!(period(100 * gib, 100 * gib, false), PERIOD_MIN);
        assert_eq!(period(101 * gib, 100 * gib, true), PERIOD_MAX);
    }
}
