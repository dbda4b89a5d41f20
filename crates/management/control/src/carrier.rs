//! Between the daemon's files and the registries of its pools: takes what a pool that comes carries, and has each pool carry what the files say of it
//! ([`crate::carried`]).
//!
//! A pool that comes is read in the volumes' turn, before its mappings take effect ([`came`]). Only from then on its registry is written: nothing that has not been looked at
//! is overwritten. A pool that is imported read-only is read and not written.
//!
//! One task writes ([`carry_on`]). It is woken by each change, and looks every minute at what failed. Only an export and the end of the daemon wait for the
//! copy, for [`SECONDS_MAX`] at most. What is in a registry is remembered since the import, so a change costs as much as it changes; after a failure it is read again.

use crate::carried::{self, Age, Items, Newer, taken};
use crate::hosts::Uncounted;
use crate::iscsi_names::target_name;
use crate::{Shared, blocking, convert, events, hosts, levels};
use forebay_api::{Code, Problem, Severity};
use forebay_base::Id;
use forebay_pool::PoolStatus;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex as Lock, MutexGuard};
use std::time::Duration;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// What failed is tried again.
const RETRY_SECONDS: u64 = 60;
/// A registry of 16 MiB takes 128 writes of the log: less than that on disks that work.
const SECONDS_MAX: u64 = 30;

/// The pools whose registries are written.
#[derive(Default)]
pub struct Carrier {
    wake: Notify,
    /// By UUID. One that was exported and imported again is another one.
    pools: Lock<HashMap<String, Arc<Mutex<Carried>>>>,
}

/// What is known of a pool's registry.
#[derive(Default)]
struct Carried {
    /// Its name.
    pool: String,
    /// What of it is written here; nothing while that is not known.
    items: Option<Items>,
    /// Keys of what is not written here ([`carried::Revision::kept`]).
    kept: BTreeSet<String>,
    /// What it was last made equal to.
    from: Option<Files>,
    /// Its failure was reported.
    is_failing: bool,
}

/// What the files say, as far as it concerns a pool.
struct Files {
    hosts: Arc<hosts::Content>,
    levels: Arc<levels::Content>,
    thresholds: Vec<u8>,
}

impl Files {
    fn now(shared: &Shared, pool: &str) -> Files {
        let remembered = shared.configuration.find(pool);
        Files {
            hosts: shared.hosts.content(),
            levels: shared.levels.content(),
            thresholds: remembered.map(|entry| entry.threshold_percents).unwrap_or_default(),
        }
    }

    /// Whether nothing was changed between the two.
    fn are(&self, other: &Files) -> bool {
        Arc::ptr_eq(&self.hosts, &other.hosts)
            && Arc::ptr_eq(&self.levels, &other.levels)
            && self.thresholds == other.thresholds
    }
}

impl Carrier {
    fn pools(&self) -> MutexGuard<'_, HashMap<String, Arc<Mutex<Carried>>>> {
        self.pools.lock().expect("no holder of this lock panics")
    }

    /// The files say something else.
    pub fn changed(&self) {
        self.wake.notify_one();
    }

    /// From now on the registry of this pool is written.
    fn begin(&self, id: &str, pool: &str, items: Option<Items>, kept: BTreeSet<String>) {
        let carried = Carried { pool: pool.into(), items, kept, ..Carried::default() };
        self.pools().insert(id.into(), Arc::new(Mutex::new(carried)));
        self.changed();
    }

    fn is_current(&self, id: &str, carried: &Arc<Mutex<Carried>>) -> bool {
        self.pools().get(id).is_some_and(|current| Arc::ptr_eq(current, carried))
    }
}

/// Has the registries follow the files, until the daemon ends.
pub async fn carry_on(shared: Arc<Shared>) {
    let mut ticks = interval(Duration::from_secs(RETRY_SECONDS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shared.carrier.wake.notified() => {}
            _ = ticks.tick() => {}
        }
        let known: Vec<_> =
            shared.carrier.pools().iter().map(|(id, one)| (id.clone(), one.clone())).collect();
        let pools = shared.engine.pools().await;
        for (id, carried) in known {
            if pools.iter().any(|pool| pool.id.to_string() == id) {
                carry(&shared, &id, &carried).await;
            } else if shared.carrier.is_current(&id, &carried) {
                shared.carrier.pools().remove(&id);
            }
        }
    }
}

/// Brings a registry up to date. A failure is reported once until it succeeds. Gives whether it is.
async fn carry(shared: &Arc<Shared>, id: &str, carried: &Arc<Mutex<Carried>>) -> bool {
    let late =
        || Problem::new(Code::Busy, format!("the pool's disks did not answer within {SECONDS_MAX} seconds"));
    let done = timeout(Duration::from_secs(SECONDS_MAX), write(shared, id, carried)).await;
    let done = done.unwrap_or_else(|_| Err(late()));
    // It may have left meanwhile. Or another one writes, and reports.
    let (true, Ok(mut carried)) = (shared.carrier.is_current(id, carried), carried.try_lock()) else {
        return done.is_ok();
    };
    let was_failing = std::mem::replace(&mut carried.is_failing, done.is_err());
    if let (Err(problem), false) = (&done, was_failing) {
        let message = format!(
            "the copy of hosts, mappings and service levels on the pool is out of date: {}; it is retried every minute",
            problem.detail
        );
        shared.events.record(Severity::Warning, "registry.failed", &carried.pool, &message);
    }
    done.is_ok()
}

async fn write(shared: &Arc<Shared>, id: &str, carried: &Arc<Mutex<Carried>>) -> Result<(), Problem> {
    let by = carried.clone();
    let mut carried = carried.lock().await;
    if shared.hosts.content().appliance.is_empty() {
        let by = shared.clone();
        blocking(move || by.hosts.change(name_appliance)).await?;
    }
    let now = Files::now(shared, id);
    if carried.from.as_ref().is_some_and(|from| from.are(&now)) {
        return Ok(());
    }
    // What fails, or is broken off, leaves nothing that is known.
    let mut items = match carried.items.take() {
        Some(items) => items,
        None => carried::known(shared.engine.items(id).await.map_err(convert::problem)?, &carried.kept),
    };
    let wanted = carried::items_of(&now.hosts, &now.levels, &now.thresholds, id);
    let difference = carried::difference(&items, &wanted);
    for batch in difference.batches {
        if !shared.carrier.is_current(id, &by) {
            return Ok(());
        }
        shared.engine.put_items(id, batch.clone()).await.map_err(convert::problem)?;
        carried::apply(&mut items, batch);
    }
    carried.items = Some(items);
    match difference.too_long.first() {
        Some(key) => {
            Err(Problem::new(Code::TooLarge, format!("`{key}` is too long for the copy on the pool")))
        }
        None => {
            carried.from = Some(now);
            Ok(())
        }
    }
}

fn name_appliance(content: &mut hosts::Content) -> Result<(), Problem> {
    if content.appliance.is_empty() {
        content.appliance = crate::random_id();
    }
    Ok(())
}

/// Before an export: the pool carries all that there is. From then on its registry is not written.
pub async fn leaves(shared: &Arc<Shared>, pool: &PoolStatus) -> Option<Written> {
    let id = pool.id.to_string();
    let carried = shared.carrier.pools().get(&id).cloned();
    let is_carried = match &carried {
        Some(carried) => carry(shared, &id, carried).await,
        None => pool.read_only,
    };
    if !is_carried {
        let message = "exported with an outdated copy of hosts, mappings and service levels, which the next import uses. If that matters, import \
                       the pool here and export it again";
        shared.events.record(Severity::Warning, "registry.failed", &pool.name, message);
    }
    ends(shared, &id)
}

/// The registry of this pool is not written any more.
pub fn ends(shared: &Shared, id: &str) -> Option<Written> {
    shared.carrier.pools().remove(id).map(Written)
}

/// What was written, for when the pool stays after all.
pub struct Written(Arc<Mutex<Carried>>);

/// The pool did not leave.
pub fn stays(shared: &Shared, id: &str, written: Option<Written>) {
    if let Some(Written(carried)) = written {
        shared.carrier.pools().insert(id.into(), carried);
        shared.carrier.changed();
    }
}

/// Before the daemon ends: every pool carries all that there is, or as much as can be written while one hangs.
pub async fn settle(shared: &Arc<Shared>) {
    let known: Vec<_> = shared.carrier.pools().iter().map(|(id, one)| (id.clone(), one.clone())).collect();
    let mut all = JoinSet::new();
    for (id, carried) in known {
        let shared = shared.clone();
        all.spawn(async move { carry(&shared, &id, &carried).await });
    }
    all.join_all().await;
}

/// Something was changed that concerns these pools and is in no file of hosts. Where that cannot be counted, it is in force all the same.
pub async fn note_changes(shared: &Arc<Shared>, pools: Vec<String>, change: Uncounted) {
    let by = shared.clone();
    let note = move |content: &mut hosts::Content| {
        pools.iter().for_each(|pool| content.note_change(pool, change));
        Ok(())
    };
    let _ = blocking(move || by.hosts.change(note)).await;
    shared.carrier.changed();
}

/// A pool has come: takes what its registry says, where that is newer. Needs the volumes' turn; the mappings do not take effect yet.
pub async fn came(shared: &Arc<Shared>, pool: &PoolStatus) {
    let id = pool.id.to_string();
    match take(shared, pool, &id).await {
        Ok((items, kept)) if !pool.read_only => {
            shared.carrier.begin(&id, &pool.name, Some(carried::known(items, &kept)), kept);
        }
        Ok(_) => {}
        Err(problem) => {
            let message = format!(
                "hosts, mappings and service levels of the pool were not taken, or only some of them; the copy on the pool stays unchanged: {}",
                problem.detail
            );
            shared.events.record(Severity::Warning, "registry.unreadable", &pool.name, &message);
        }
    }
}

/// What the engine and the files say of a pool that has come.
struct Around {
    name: String,
    volumes: HashMap<String, String>,
    projects: HashMap<String, String>,
    elsewhere: HashSet<String>,
    targets: HashSet<String>,
    levels: BTreeSet<Id>,
}

async fn around(shared: &Arc<Shared>, pool: &PoolStatus) -> Result<Around, Problem> {
    // One that says nothing now has nothing that could be mistaken.
    let (all, _) = shared.volumes().await;
    let projects = shared.engine.projects(Some(&pool.name)).await.map_err(convert::problem)?;
    let (volumes, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|volume| volume.pool == pool.name);
    let in_pool = |name: &str| format!("{}/{name}", pool.name);
    let known = shared.configuration.pools().into_iter().map(|entry| entry.name);
    let mut levels: BTreeSet<Id> = volumes.iter().map(|volume| volume.level).collect();
    levels.extend(projects.iter().filter_map(|project| project.properties.level));
    Ok(Around {
        name: pool.name.clone(),
        volumes: volumes.iter().map(|volume| (volume.id.to_string(), in_pool(&volume.name))).collect(),
        projects: projects.iter().map(|project| (project.id.to_string(), in_pool(&project.name))).collect(),
        elsewhere: others.iter().map(|volume| volume.id.to_string()).collect(),
        targets: known.filter(|name| *name != pool.name).map(|name| target_name(&name)).collect(),
        levels,
    })
}

/// Gives the items, and the keys of those that are to stay as they are.
async fn take(
    shared: &Arc<Shared>,
    pool: &PoolStatus,
    id: &str,
) -> Result<(Items, BTreeSet<String>), Problem> {
    let items = shared.engine.items(id).await.map_err(convert::problem)?;
    let around = around(shared, pool).await?;
    let origin = match carried::age(&items) {
        Age::Later(version) => {
            let detail = format!("a later version of Forebay wrote them (format version {version})");
            return Err(Problem::new(Code::NotSupported, detail));
        }
        Age::Known(origin) => Some(origin),
        Age::Unknown => None,
    };
    if !carried::has_known(&items) {
        return Ok((items, BTreeSet::new()));
    }
    let (by, id) = (shared.clone(), id.to_string());
    let took = blocking(move || Ok(take_now(&by, &id, items, origin.as_ref(), around))).await?;
    let Took { items, kept, all, failure } = took;
    if let Some(what) = all.in_words() {
        let message = format!("taken from the pool: {what}");
        shared.events.record(Severity::Info, "registry.taken", &pool.name, &message);
    }
    if let Some(what) = all.left_out_in_words() {
        let message = format!("not taken from the pool (mappings stay in its copy): {what}");
        shared.events.record(Severity::Warning, "registry.left_out", &pool.name, &message);
    }
    if all.levels > 0 || !all.changed.is_empty() {
        super::handlers::levels::apply(shared).await?;
    }
    failure.map_or(Ok((items, kept)), Err)
}

/// What was taken, and what kept the rest from being taken.
struct Took {
    items: Items,
    kept: BTreeSet<String>,
    all: taken::Taken,
    failure: Option<Problem>,
}

/// Blocks on the disk.
fn take_now(
    shared: &Shared,
    id: &str,
    items: Items,
    origin: Option<&carried::Origin>,
    around: Around,
) -> Took {
    let Around { name, volumes, projects, elsewhere, targets, levels } = around;
    let its = taken::Pool { id, name: &name, volumes, projects, elsewhere, targets };
    let content = shared.hosts.content();
    let known = content.revisions.get(id);
    let may_change = known.is_some_and(|known| known.is_own);
    let wins = match origin {
        Some(origin) => carried::newer(origin, &content, id),
        // Begun, and broken off.
        None if known.is_some() => Newer::Files,
        None => Newer::Registry,
    } == Newer::Registry;
    let (mut all, mut failure) = (taken::Taken::default(), None);
    let mut kept = known.map(|known| known.kept.clone()).unwrap_or_default();
    if wins {
        let now = events::now_unix_ms();
        let take = |changes: bool| {
            shared.hosts.change(|content| Ok(taken::take(content, &items, origin, &its, changes, now)))
        };
        // What is changed here may not fit what other pools have: then nothing that is here is changed.
        match take(true).or_else(|_| take(false)) {
            Ok(taken) => all = taken,
            Err(problem) => failure = Some(problem),
        }
        kept = std::mem::take(&mut all.kept);
    }
    let done = shared.levels.change(|content| {
        let changes = wins.then_some(may_change);
        taken::take_levels(content, &items, &levels, changes, &mut all);
        Ok(())
    });
    failure = failure.or(done.err());
    let entry = shared.configuration.find(id);
    if let Some(entry) = entry.filter(|entry| wins || entry.threshold_percents.is_empty()) {
        let percents = taken::thresholds(&items, &mut all);
        if entry.threshold_percents == percents {
            all.thresholds = 0;
        }
        failure =
            failure.or(shared.configuration.update(id, |entry| entry.threshold_percents = percents).err());
    }
    if wins && !kept.is_empty() {
        let now = Files::now(shared, id);
        let wanted = carried::items_of(&now.hosts, &now.levels, &now.thresholds, id);
        kept.retain(|key| !wanted.contains_key(key));
        let remember = |content: &mut hosts::Content| {
            content.revisions.entry(id.to_string()).or_default().kept = kept.clone();
            Ok(())
        };
        failure = failure.or(shared.hosts.change(remember).err());
    }
    Took { items, kept, all, failure }
}
