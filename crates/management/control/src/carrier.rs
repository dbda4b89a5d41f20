//! Between the daemon's files and the registries of its pools: takes what a pool that comes carries, and has each pool carry what the files say of it
//! ([`crate::carried`]).
//!
//! A pool that comes is read in the volumes' turn, before its mappings take effect ([`came`]). Only from then on its registry is written: nothing that has not been looked at
//! is overwritten. A pool that is imported read-only is read and not written.
//!
//! One task writes ([`carry_on`]). It is woken by each change, and looks every minute at what failed. Nothing waits for it but an export, which waits for
//! [`SECONDS_MAX`] at most. What is in a registry is remembered since the import, so a change costs as much as it changes; after a failure it is read again.

use crate::carried::{self, Age, Items, Newer, taken};
use crate::hosts::Here;
use crate::{Shared, blocking, convert, events, hosts, levels};
use forebay_api::{Code, Problem, Severity};
use forebay_base::Id;
use forebay_pool::PoolStatus;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex as Lock, MutexGuard};
use std::time::Duration;
use tokio::sync::{Mutex, Notify};
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
    fn begin(&self, id: &str, pool: &str, items: Option<Items>) {
        let carried = Carried { pool: pool.into(), items, ..Carried::default() };
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

/// Brings a registry up to date. A failure is reported once until it succeeds.
async fn carry(shared: &Arc<Shared>, id: &str, carried: &Arc<Mutex<Carried>>) {
    let late = || Problem::new(Code::Busy, format!("its disks do not answer within {SECONDS_MAX} seconds"));
    let done = timeout(Duration::from_secs(SECONDS_MAX), write(shared, id, carried)).await;
    let done = done.unwrap_or_else(|_| Err(late()));
    let mut carried = carried.lock().await;
    let was_failing = std::mem::replace(&mut carried.is_failing, done.is_err());
    if let (Err(problem), false) = (done, was_failing) {
        let message = format!(
            "the pool does not carry the newest hosts, mappings and service levels: {}; it is tried again every minute",
            problem.detail
        );
        shared.events.record(Severity::Warning, "registry.failed", &carried.pool, &message);
    }
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
        None => carried::known(shared.engine.items(id).await.map_err(convert::problem)?),
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
        Some(key) => Err(Problem::new(Code::TooLarge, format!("`{key}` is longer than a registry takes"))),
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
pub async fn leaves(shared: &Arc<Shared>, id: &str) {
    let carried = shared.carrier.pools().get(id).cloned();
    if let Some(carried) = carried {
        carry(shared, id, &carried).await;
    }
    shared.carrier.pools().remove(id);
}

/// The pool did not leave.
pub fn stays(shared: &Shared, pool: &PoolStatus) {
    if !pool.read_only {
        shared.carrier.begin(&pool.id.to_string(), &pool.name, None);
    }
}

/// A pool has come: takes what its registry says, where that is newer. Needs the volumes' turn; the mappings do not take effect yet.
pub async fn came(shared: &Arc<Shared>, pool: &PoolStatus, here: &Here) {
    let id = pool.id.to_string();
    match take(shared, pool, &id, here).await {
        Ok(items) if !pool.read_only => {
            shared.carrier.begin(&id, &pool.name, Some(carried::known(items)));
        }
        Ok(_) => {}
        Err(problem) => {
            let message = format!(
                "hosts, mappings and service levels that the pool carries are not taken, and not changed: {}",
                problem.detail
            );
            shared.events.record(Severity::Warning, "registry.unreadable", &pool.name, &message);
        }
    }
}

async fn take(shared: &Arc<Shared>, pool: &PoolStatus, id: &str, here: &Here) -> Result<Items, Problem> {
    let items = shared.engine.items(id).await.map_err(convert::problem)?;
    let volumes = shared.engine.volumes(Some(&pool.name)).await.map_err(convert::problem)?;
    let projects = shared.engine.projects(Some(&pool.name)).await.map_err(convert::problem)?;
    let origin = match carried::age(&items) {
        Age::Later(version) => {
            let detail =
                format!("a later version of Forebay wrote them, in version {version} of their format");
            return Err(Problem::new(Code::NotSupported, detail));
        }
        Age::Known(origin) => Some(origin),
        Age::Unknown => None,
    };
    let Some(origin) = origin else { return Ok(items) };
    let mut wanted: BTreeSet<Id> = volumes.iter().map(|volume| volume.level).collect();
    wanted.extend(projects.iter().filter_map(|project| project.properties.level));
    let in_pool = |name: &str| format!("{}/{name}", pool.name);
    let elsewhere = here.volumes.iter().filter(|(_, (of, _))| of != id).map(|(volume, _)| volume.clone());
    let (volumes, projects, elsewhere) = (
        volumes.iter().map(|volume| (volume.id.to_string(), in_pool(&volume.name))).collect(),
        projects.iter().map(|project| (project.id.to_string(), in_pool(&project.name))).collect(),
        elsewhere.collect(),
    );
    let (by, id, name) = (shared.clone(), id.to_string(), pool.name.clone());
    let work = move || {
        let mut all = taken::Taken::default();
        let its = taken::Pool { id: &id, name: &name, volumes, projects, elsewhere };
        if carried::newer(&origin, &by.hosts.content(), &id) == Newer::Registry {
            let now = events::now_unix_ms();
            all = by.hosts.change(|content| Ok(taken::take(content, &items, &origin, &its, now)))?;
        }
        by.levels.change(|content| {
            taken::take_levels(content, &items, &wanted, &mut all);
            Ok(())
        })?;
        if by.configuration.find(&id).is_some_and(|entry| entry.threshold_percents.is_empty()) {
            let percents = taken::thresholds(&items, &mut all);
            by.configuration.update(&id, |entry| entry.threshold_percents = percents)?;
        }
        Ok((items, all))
    };
    let (items, all) = blocking(work).await?;
    if all.levels > 0 {
        super::handlers::levels::apply(shared).await?;
    }
    if let Some(what) = all.in_words() {
        let message = format!("came with the pool: {what}");
        shared.events.record(Severity::Info, "registry.taken", &pool.name, &message);
    }
    if let Some(what) = all.left_out_in_words() {
        let message = format!(
            "left out of what the pool carries: {what}. `forebay host list` shows the hosts; map what is missing with `forebay volume map VOLUME --host HOST`"
        );
        shared.events.record(Severity::Warning, "registry.left_out", &pool.name, &message);
    }
    Ok(items)
}
