//! Once a second, what everybody counted becomes rows of the analytics.
//!
//! Cores and pools count for themselves; this asks them, says it in the words of the analytics (clients, volumes and disks by name), and hands it
//! over. Clients' requests are taken from the cores each second; what a pool did is taken from its ledger, which ends its seconds when it likes: one of
//! them belongs to each of ours, and one may wait for the next ([`Pending`]), so that no second shows nothing, or two at once.
//!
//! An administrator may have nothing counted (`PATCH /server`): those seconds are missing, as if the daemon had not run.
//!
//! Nothing here waits for a disk. A pool or a core that does not answer in time is left out of that second.

mod machine;
mod rows;

use crate::Shared;
use crate::events::now_unix_ms;
use forebay_base::Id;
use forebay_pool::{DisksSecond, LedgerSecond, PoolStatus};
use forebay_runtime::Cores;
use forebay_target::{halt_facts, take_facts};
use machine::Machine;
use rows::{Names, Rows, Volume};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Names of volumes and disks, and how full pools are, are asked for so often.
const NAMES_SECONDS: u64 = 5;
/// A clock that is so far behind what was kept was set back; less is a moment's difference.
const SET_BACK_SECONDS: u64 = 5;
/// A pool whose second is not over yet is given so long, in steps of the second.
const PATIENCE: Duration = Duration::from_millis(200);
const STEP: Duration = Duration::from_millis(20);
/// Seconds of a pool that may wait for our next: of more, some are shown together.
const PENDING_MAX: usize = 1;
/// Who does not answer for so long does not hold up the others.
const ANSWER: Duration = Duration::from_millis(800);

/// Seconds of a pool that were not shown yet.
struct Pending<T> {
    /// The last one that came.
    seen: u64,
    seconds: VecDeque<Arc<T>>,
}

impl<T> Default for Pending<T> {
    fn default() -> Pending<T> {
        Pending { seen: 0, seconds: VecDeque::new() }
    }
}

impl<T> Pending<T> {
    fn come(&mut self, seconds: Vec<Arc<T>>, number: impl Fn(&T) -> u64) {
        self.seen = seconds.last().map_or(self.seen, |last| number(last));
        self.seconds.extend(seconds);
    }

    /// What is shown now: the oldest, and with it what is too much to wait.
    fn show(&mut self) -> Vec<Arc<T>> {
        let count = self.seconds.len().saturating_sub(PENDING_MAX).max(1).min(self.seconds.len());
        self.seconds.drain(..count).collect()
    }
}

/// What is known of a pool.
#[derive(Default)]
struct Pool {
    ledger: Pending<LedgerSecond>,
    disks: Pending<DisksSecond>,
}

struct Collector {
    shared: Arc<Shared>,
    cores: Cores,
    pools: BTreeMap<String, Pool>,
    statuses: Vec<PoolStatus>,
    volumes: BTreeMap<Id, Volume>,
    machine: Machine,
    /// What collecting took, in nanoseconds.
    took: u64,
}

/// Collects until the daemon stops.
pub async fn collect(shared: Arc<Shared>, cores: Cores) {
    let mut stopping = shared.stopping.subscribe();
    let mut counts = shared.counts.subscribe();
    let mut collector = Collector {
        shared,
        cores,
        pools: BTreeMap::new(),
        statuses: Vec::new(),
        volumes: BTreeMap::new(),
        machine: Machine::default(),
        took: 0,
    };
    // What was counted before now belongs to no second.
    collector.second(0, true).await;
    let mut is_whole = true;
    let mut before = now_unix_ms() / 1000;
    let into_second = Duration::from_millis(1000 - now_unix_ms() % 1000);
    let mut ticks =
        tokio::time::interval_at(tokio::time::Instant::now() + into_second, Duration::from_secs(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        let is_tick = tokio::select! {
            _ = ticks.tick() => true,
            // What tells lives as long as we.
            changed = counts.changed() => changed.is_err(),
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        let is_on = *counts.borrow_and_update();
        if !is_tick {
            halt_facts(collector.cores.clone(), !is_on).await;
            is_whole = false;
            continue;
        }
        if is_on && !is_whole {
            // What of this second was counted is not all of it.
            collector.pools.clear();
            collector.second(0, true).await;
        }
        if !std::mem::replace(&mut is_whole, is_on) {
            continue;
        }
        // The second that has just ended. The clock and the ticks may differ by some milliseconds, and the clock may be set.
        let ended = ((now_unix_ms() + 500) / 1000).saturating_sub(1);
        let at = if ended == before { before + 1 } else { ended };
        let names = at % NAMES_SECONDS == 0;
        let rows = collector.second(at, names).await;
        if at > before {
            collector.shared.statistics.append(at, rows);
            before = at;
        } else if before - at > SET_BACK_SECONDS {
            // The clock was set back.
            before = at;
        }
    }
}

impl Collector {
    async fn second(&mut self, at: u64, names: bool) -> Vec<forebay_analytics::Row> {
        let facts = tokio::time::timeout(ANSWER, take_facts(self.cores.clone())).await.unwrap_or_default();
        let is_new = facts.iter().any(|one| !self.volumes.contains_key(&one.volume));
        if names || is_new {
            self.learn_names().await;
        }
        self.ask_pools().await;
        let began = Instant::now();
        let names = Names {
            volumes: &self.volumes,
            levels: self.shared.levels.content(),
            host: &|initiator| self.shared.access.admit(initiator).map(|admission| admission.host.clone()),
        };
        let mut rows = Rows::new(&names);
        facts.into_iter().for_each(|one| rows.client(one));
        for (name, pool) in &mut self.pools {
            pool.ledger.show().iter().for_each(|second| rows.ledger(name, second));
            pool.disks.show().iter().for_each(|second| rows.disks(name, second, &self.statuses));
        }
        self.statuses.iter().for_each(|status| rows.fill(status));
        if at > 0 {
            rows.machine(self.machine.look());
            rows.observer(std::mem::take(&mut self.took));
        }
        let rows = rows.into_rows();
        self.took = began.elapsed().as_nanos() as u64;
        rows
    }

    async fn learn_names(&mut self) {
        let shared = self.shared.clone();
        let asked = async move { (shared.engine.pools().await, shared.engine.volumes(None).await) };
        let Ok((pools, volumes)) = tokio::time::timeout(ANSWER, asked).await else { return };
        self.pools.retain(|name, _| pools.iter().any(|pool| pool.name == *name));
        for pool in &pools {
            self.pools.entry(pool.name.clone()).or_default();
        }
        self.statuses = pools;
        // A closing pool does not answer; then they are as they were.
        if let Ok(volumes) = volumes {
            self.volumes = volumes.into_iter().map(|volume| (volume.id, Volume::of(&volume))).collect();
        }
    }

    /// Takes what pools did. Each has its second once a second, at a moment of its own.
    async fn ask_pools(&mut self) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        for (name, pool) in &mut self.pools {
            while pool.ledger.seconds.is_empty() {
                let engine = &self.shared.engine;
                let asked = async {
                    let after =
                        if pool.ledger.seen == 0 { newest(engine, name).await } else { pool.ledger.seen };
                    let ledger = engine.ledger(name, after).await.unwrap_or_default();
                    (
                        after,
                        ledger,
                        engine.disks_seconds(name, pool.disks.seen.max(after)).await.unwrap_or_default(),
                    )
                };
                let Ok((after, ledger, disks)) = tokio::time::timeout(ANSWER, asked).await else { break };
                pool.ledger.seen = after;
                pool.ledger.come(ledger, |second| second.number);
                pool.disks.come(disks, |second| second.number);
                if !pool.ledger.seconds.is_empty() || tokio::time::Instant::now() >= deadline {
                    break;
                }
                tokio::time::sleep(STEP).await;
            }
        }
    }
}

/// The number of the newest second of a pool that is seen for the first time: what was before is not shown as if it were now.
async fn newest(engine: &forebay_pool::Engine, pool: &str) -> u64 {
    let seconds = engine.ledger(pool, 0).await.unwrap_or_default();
    seconds.last().map_or(0, |second| second.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_second_is_shown_at_a_time_and_no_more_than_one_waits() {
        let mut pending = Pending::default();
        let come = |pending: &mut Pending<u64>, numbers: &[u64]| {
            pending.come(numbers.iter().map(|number| Arc::new(*number)).collect(), |number| *number);
            pending.show().iter().map(|number| **number).collect::<Vec<_>>()
        };
        assert!(come(&mut pending, &[]).is_empty());
        assert_eq!(come(&mut pending, &[7]), [7]);
        assert_eq!(come(&mut pending, &[8, 9]), [8]);
        assert_eq!(come(&mut pending, &[]), [9]);
        assert_eq!(come(&mut pending, &[10, 11, 12, 13]), [10, 11, 12]);
        assert_eq!((come(&mut pending, &[14]), pending.seen), (vec![13], 14));
    }
}
