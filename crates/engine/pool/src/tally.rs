//! What a flow asked for and what it got since anybody last looked: counted on its shard, where it happens.

use crate::error::IoError;
use crate::spec::Severity;
use crate::turns::Flow;
use crate::volume::LocalVolume;
use forebay_base::Nanos;
use forebay_probe::Histogram;
use forebay_qos::{Account, Level, Work};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Until it is told again that clients are refused.
const REFUSALS_REST: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Tally {
    /// All but percentiles, and what is open.
    account: RefCell<Account>,
    /// How long requests took that are done, in nanoseconds; nothing while there were none.
    latencies: RefCell<Option<Histogram>>,
    /// Nanoseconds after which a request is late; 0 for never.
    late_after: Cell<u64>,
    /// How often it was taken, and timed requests below their ceilings that are not answered: since then, and since before.
    taken: Cell<u64>,
    open: Cell<u64>,
    stuck: Cell<u64>,
}

/// A client's request, from when it was asked. One that is given up, or has to be asked again, counts as never asked.
pub(crate) struct Request {
    volume: LocalVolume,
    work: Work,
    is_timed: bool,
    /// When it was below its ceilings, and how often its tally had been taken then; nothing as long as it waits.
    began: Option<(Nanos, u64)>,
    /// Whether it was answered, and with what was asked for.
    answer: Option<bool>,
}

impl Tally {
    fn change(&self, change: impl FnOnce(&mut Account)) {
        change(&mut self.account.borrow_mut());
    }

    pub fn set_level(&self, level: &Level) {
        self.late_after.set(level.late_after().unwrap_or(0));
    }

    /// Time of the pool's.
    pub fn took(&self, cost: u64) {
        self.change(|account| account.cost += cost);
    }

    /// Waited for room in the log.
    pub fn waited_for_room(&self, nanos: u64) {
        self.change(|account| account.room += nanos);
    }

    /// Waited until a snapshot was taken, or a move came to its end.
    pub fn was_paused(&self, nanos: u64) {
        self.change(|account| account.paused += nanos);
    }

    /// Waited for its turn.
    pub fn waited_for_turn(&self, nanos: u64) {
        self.change(|account| account.turn += nanos);
    }

    fn timed(&self, nanos: u64) {
        let late_after = self.late_after.get();
        self.change(|account| {
            account.timed += 1;
            account.late += u64::from(late_after > 0 && nanos > late_after);
            account.total += nanos;
        });
        self.latencies.borrow_mut().get_or_insert_default().record(nanos);
    }

    /// One that began when it had been taken so often is open no more.
    fn closes(&self, taken: u64) {
        let since = if taken == self.taken.get() { &self.open } else { &self.stuck };
        since.set(since.get() - 1);
    }

    /// What happened since it was last taken.
    pub fn take(&self) -> Account {
        let held_now = self.account.borrow().held_now;
        let account = self.account.replace(Account { held_now, ..Account::default() });
        let stuck = self.stuck.get();
        let open = stuck + self.open.take();
        self.stuck.set(open);
        self.taken.set(self.taken.get() + 1);
        let latencies = self.latencies.take();
        let quantile = |permille| latencies.as_ref().map_or(0, |latencies| latencies.quantile(permille));
        Account { open, stuck, p50: quantile(500), p99: quantile(990), ..account }
    }
}

impl LocalVolume {
    pub fn flow(&self) -> &Flow {
        self.dataset.flow(&self.shard)
    }

    /// A client asks for something; waits until it is below the volume's ceilings. Nothing has begun before.
    pub async fn ask(&self, work: Work, is_timed: bool) -> Request {
        let (rt, flow) = (&self.shard.rt, self.flow());
        let asked = rt.now();
        flow.tally.change(|account| {
            account.asked += 1;
            account.asked_bytes += u64::from(work.bytes);
            account.held_now += 1;
        });
        let mut request = Request { volume: self.clone(), work, is_timed, began: None, answer: None };
        let was_held = flow.bounds.pass(rt, work, || self.dataset.gone.get()).await;
        let now = if was_held { rt.now() } else { asked };
        flow.tally.change(|account| {
            account.held += now.since(asked);
            account.held_now -= 1;
        });
        flow.tally.open.set(flow.tally.open.get() + u64::from(is_timed));
        request.began = Some((now, flow.tally.taken.get()));
        request
    }
}

impl Request {
    /// It is answered with this.
    pub fn ends<T>(mut self, result: Result<T, IoError>) -> Result<T, IoError> {
        self.answer = (!matches!(result, Err(IoError::Gone))).then_some(result.is_ok());
        if let Err(IoError::NoSpace) = result {
            self.volume.tell_refused();
        }
        result
    }
}

impl LocalVolume {
    /// Tells a person that a client was refused for want of space, unless that was told just now; a project's full quota has an event of its own.
    fn tell_refused(&self) {
        let (shard, now) = (&self.shard, self.shard.rt.now());
        let is_told =
            shard.refused.get().is_some_and(|told| now.since(told) < REFUSALS_REST.as_nanos() as u64);
        if is_told || self.dataset.is_full.get() {
            return;
        }
        shard.refused.set(Some(now));
        let pool = &shard.shared.name;
        let message = format!(
            "a write to volume {pool}/{} was refused: all free space is reserved, for volumes or for background work. Delete \
             snapshots, purge deleted volumes ('forebay volume trash'), or add disks with 'forebay pool add {pool} DISK…'",
            self.dataset.record.borrow().name
        );
        shard.event(Severity::Error, "pool.no_space", pool, message);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let (tally, bytes) = (&self.volume.flow().tally, u64::from(self.work.bytes));
        match self.began {
            Some((_, taken)) if self.is_timed => tally.closes(taken),
            Some(_) => {}
            None => tally.change(|account| account.held_now -= 1),
        }
        match (self.answer, self.began) {
            (Some(true), Some((began, _))) => {
                tally.change(|account| {
                    account.done += 1;
                    account.done_bytes += bytes;
                });
                if self.is_timed {
                    tally.timed(self.volume.shard.rt.now().since(began));
                }
            }
            (Some(_), _) => tally.change(|account| account.failed += 1),
            (None, _) => tally.change(|account| {
                account.asked = account.asked.saturating_sub(1);
                account.asked_bytes = account.asked_bytes.saturating_sub(bytes);
            }),
        }
    }
}
