//! Disks that hang, or are far slower than their peers, are taken out of service.
//!
//! Reads go around such a disk by themselves ([`forebay_raid`]); writes and flushes cannot. So a task on core 0 asks the cores once a second how
//! each disk does, and compares it with the others of its group: a disk that owes an answer for [`HANG`] while the others answer *hangs*; one that
//! takes [`SLOW_TIMES`] as long as they do, [`SLOW_SECONDS`] long, is *slow*. Either is treated as one that failed, if its group can lose it:
//! what waits for it ends, its failure is recorded, what was on it is rebuilt. Otherwise there is an event, and requests wait.
//!
//! When all disks of a group are slow, nothing is: the cause is elsewhere. While data moves between disks, none is: the one that is being
//! filled has more to do than its peers. Disks that turn are compared with their like only.
//!
//! A disk is answerable only for time in which the daemon could have heard its answer. Where a process was stopped or its virtual machine
//! paused, the watch comes late by that time, and no disk has kept it waiting ([`Standstills`]).

use crate::control::Control;
use crate::registry::call;
use crate::shard::Shard;
use crate::spec::Severity;
use forebay_base::Nanos;
use forebay_base::planted::{Bug, active};
use forebay_device::DiskStatus;
use forebay_runtime::{Served, Vitals};
use futures_util::future::{Either, join_all, select};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(1);
/// Less than what clients wait for before they give up (30 s and more), more than what a disk takes to give up on a sector (7 s).
const HANG: Duration = Duration::from_secs(10);
/// One that answers others meanwhile is busy, up to this.
const HANG_BUSY: Duration = Duration::from_secs(20);
/// A second in which a disk was so many times slower than the others, and needed at least so long for a request, is a bad one.
const SLOW_TIMES: u64 = 16;
/// By so much it is felt, if it was asked for so much.
const FELT_TIMES: u64 = 4;
const FELT_REQUESTS_MIN: u64 = 10;
const SLOW_NANOS_MIN: u64 = 5_000_000;
/// Bad seconds, less good ones, until a person is told, and until the disk is out.
const TOLD_SECONDS: u32 = 10;
const SLOW_SECONDS: u32 = 30;
/// How long the others have to show that they answer.
const ANSWER: Duration = Duration::from_secs(2);

/// What is held against a disk.
#[derive(Default)]
struct Suspect {
    bad_seconds: u32,
    told: bool,
}

#[derive(Default)]
pub(crate) struct SlowDisks {
    suspects: RefCell<BTreeMap<usize, Suspect>>,
    standstills: RefCell<Standstills>,
    /// Whether the task is at work, and whether it is to end.
    looking: Cell<bool>,
    ended: Cell<bool>,
    /// Disks that are out and not yet recorded as that.
    evicting: Cell<usize>,
}

/// When the daemon itself stood still, the latest last: when that ended, and for how many nanoseconds it was.
#[derive(Default)]
struct Standstills(VecDeque<(Nanos, u64)>);

/// Older ones are forgotten, and count as the disk's silence then.
const STANDSTILLS_MAX: usize = 64;

impl Standstills {
    fn note(&mut self, end: Nanos, nanos: u64) {
        if self.0.len() == STANDSTILLS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((end, nanos));
    }

    /// How much of a wait until now passed while the daemon got on.
    fn moved(&self, now: Nanos, waits: u64) -> u64 {
        let begun = now.0.saturating_sub(waits);
        let within = |(end, nanos): &(Nanos, u64)| (*nanos).min(end.0.saturating_sub(begun));
        waits.saturating_sub(self.0.iter().map(within).sum())
    }
}

/// How a disk compares with the others of its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pace {
    /// It, or they, had nothing to do.
    Unknown,
    Usual,
    /// Nanoseconds that it takes, and that they take.
    Slow(u64, u64),
}

impl Control {
    pub fn watch_disks(self: &Rc<Self>) {
        drop(self.rt.spawn(watch(Rc::downgrade(self), self.rt.clone())));
    }

    /// Ends the watch; what it is at comes to its end.
    pub async fn end_watch(&self) {
        self.slow.ended.set(true);
        self.turnstile.until(|| !self.slow.looking.get() && self.slow.evicting.get() == 0).await;
    }

    async fn look_at_disks(self: &Rc<Self>, vitals: &[Vitals]) {
        self.note_loads(vitals);
        let is_moving = self.is_moving();
        for (index, own) in vitals.iter().enumerate() {
            if !self.serves(index) || self.shared.is_suspended() {
                self.slow.suspects.borrow_mut().remove(&index);
                continue;
            }
            let like = |peer: &usize| self.turns(*peer) == self.turns(index);
            let peers = self.peers(index).into_iter().filter(like);
            let peers: Vec<&Vitals> = peers.filter_map(|peer| vitals.get(peer)).collect();
            let hangs = hangs(own);
            let pace = if is_moving { Pace::Unknown } else { pace(own, &peers, SLOW_TIMES) };
            let bad_seconds = {
                let mut suspects = self.slow.suspects.borrow_mut();
                let suspect = suspects.entry(index).or_default();
                match pace {
                    Pace::Slow(..) => suspect.bad_seconds += 1,
                    Pace::Usual => suspect.bad_seconds = suspect.bad_seconds.saturating_sub(1),
                    Pace::Unknown => {}
                }
                if suspect.bad_seconds == 0 && !hangs {
                    suspects.remove(&index);
                    continue;
                }
                suspect.bad_seconds
            };
            if hangs {
                let seconds = own.waits / 1_000_000_000;
                self.hangs(index, format!("has not answered for {seconds} seconds")).await;
            } else if let Pace::Slow(own, usual) = pace
                && bad_seconds >= TOLD_SECONDS
            {
                let times = format!(
                    "{:.1} ms per request ({:.1} ms for the others of its group)",
                    ms(own),
                    ms(usual)
                );
                self.is_slow(index, format!("takes {times}"), bad_seconds).await;
            }
        }
    }

    /// A disk on which requests wait, since it is so much slower than the others of its group.
    pub fn far_slower(&self, vitals: &[Vitals]) -> Option<u16> {
        // One that is being filled has more to do than its peers.
        if self.is_moving() || self.shared.is_suspended() {
            return None;
        }
        let is_slow = |index: &usize| {
            let like = |peer: &usize| self.turns(*peer) == self.turns(*index);
            let peers = self.peers(*index).into_iter().filter(like);
            let peers: Vec<&Vitals> = peers.filter_map(|peer| vitals.get(peer)).collect();
            let own = &vitals[*index];
            let served: u64 = own.served.iter().map(|served| served.count).sum();
            let shows = served >= FELT_REQUESTS_MIN || own.waits >= PERIOD.as_nanos() as u64;
            shows && self.serves(*index) && matches!(pace(own, &peers, FELT_TIMES), Pace::Slow(..))
        };
        (0..vitals.len()).find(is_slow).map(|index| index as u16)
    }

    async fn hangs(self: &Rc<Self>, index: usize, what: String) {
        if !self.can_lose(index) {
            let why = "its group cannot lose it, so requests wait. Check its cable and controller, and bring back disks that are out of service";
            self.tell_once(index, "disk.hung", format!("{what}; {why}"));
        } else if !self.others_answer(index).await {
            let why = "other disks of its group do not answer either. Check the controller and cables that they share";
            self.tell_once(index, "disk.hung", format!("{what}; {why}"));
        } else {
            self.evict(index, what).await;
        }
    }

    async fn is_slow(self: &Rc<Self>, index: usize, what: String, bad_seconds: u32) {
        if !self.can_lose(index) {
            let why = "its group cannot lose it, so writes wait for it. Replace it with 'forebay disk replace DISK NEW'";
            self.tell_once(index, "disk.slow", format!("{what}; {why}"));
        } else if bad_seconds < SLOW_SECONDS {
            let why = "reads use other disks. If it stays slow, it is taken out of service";
            self.tell_once(index, "disk.slow", format!("{what}; {why}"));
        } else {
            self.evict(index, what).await;
        }
    }

    fn tell_once(&self, index: usize, code: &'static str, what: String) {
        if let Some(suspect) = self.slow.suspects.borrow_mut().get_mut(&index)
            && !std::mem::replace(&mut suspect.told, true)
        {
            let path = self.disks.borrow()[index].path.clone();
            let message = format!("disk {index} ({path}) {what}");
            self.event(Severity::Warning, code, &self.disk_name(index), message);
        }
    }

    /// Takes a disk out of service for good. Others are looked at while that is recorded: another one that hangs may be what the
    /// record waits for.
    pub async fn evict(self: &Rc<Self>, index: usize, what: String) {
        self.slow.suspects.borrow_mut().remove(&index);
        let path = self.disks.borrow()[index].path.clone();
        let message = format!(
            "disk {index} ({path}) {what}, and is taken out of service. Replace it, or find the cause and \
             bring it back with 'forebay disk online DISK'"
        );
        self.event(Severity::Error, "disk.evicted", &self.disk_name(index), message);
        self.shared.healths[index].fail();
        if active(Bug::EvictsOneByOne) {
            return self.record_failure(index as u16).await;
        }
        self.slow.evicting.set(self.slow.evicting.get() + 1);
        let control = self.clone();
        drop(self.rt.spawn(async move {
            control.record_failure(index as u16).await;
            control.slow.evicting.set(control.slow.evicting.get() - 1);
            control.turnstile.changed();
        }));
    }

    /// How each disk did in the last second, on all cores and here.
    async fn vitals(&self) -> Vec<Vitals> {
        let mut all: Vec<Vitals> = {
            let disks = self.disks.borrow();
            let own = |disk: &crate::control::ControlDisk| {
                disk.disk.as_ref().map_or(Vitals::default(), |disk| disk.watch().take_vitals())
            };
            disks.iter().map(own).collect()
        };
        for shard in 0..self.shard_count() {
            let take = |shard: Rc<Shard>| async move { (shard.array.take_vitals(), shard.flash_vitals()) };
            let (disks, cache) = self.on_shard(shard, take).await.unwrap_or_default();
            for (disk, vitals) in disks.into_iter().chain(cache) {
                if let Some(sum) = all.get_mut(usize::from(disk)) {
                    sum.add(&vitals);
                }
            }
        }
        all
    }

    /// Whether data moves between disks.
    pub fn is_moving(&self) -> bool {
        self.healer.status().is_some_and(|healing| healing.blocked.is_empty())
    }

    pub fn serves(&self, index: usize) -> bool {
        let is_there = self.disks.borrow()[index].disk.is_some();
        is_there
            && self.label.borrow().disks[index].status.in_service()
            && !self.shared.healths[index].is_failed()
    }

    fn turns(&self, index: usize) -> bool {
        self.disks.borrow()[index].disk.as_ref().is_some_and(|disk| disk.geometry().rotational)
    }

    /// The other disks in service of its group.
    pub fn peers(&self, index: usize) -> Vec<usize> {
        let is_cache = |disk: usize| self.label.borrow().disks[disk].status == DiskStatus::Cache;
        let group = |disk: usize| self.label.borrow().disks[disk].group;
        let count = if is_cache(index) { 0 } else { self.disks.borrow().len() };
        let is_peer = |peer: &usize| *peer != index && group(*peer) == group(index) && !is_cache(*peer);
        (0..count).filter(|peer| is_peer(peer) && self.serves(*peer)).collect()
    }

    pub fn can_lose(&self, index: usize) -> bool {
        active(Bug::EvictsBeyondTolerance) || !self.is_lost_without(Some(index))
    }

    /// Whether every other disk of the group makes durable what it has, now.
    pub async fn others_answer(&self, index: usize) -> bool {
        let flushing = self.peers(index).into_iter().filter_map(|peer| {
            let flushing = self.disks.borrow()[peer].disk.as_ref()?.flush();
            Some(async move {
                matches!(select(pin!(flushing), pin!(self.rt.sleep(ANSWER))).await, Either::Left((Ok(()), _)))
            })
        });
        join_all(flushing.collect::<Vec<_>>()).await.into_iter().all(|answers| answers)
    }

    /// Ends what waits for a disk that is out of service. What it has in flight it may still carry out.
    pub async fn give_up(&self, index: usize) {
        if let Some(disk) = &self.disks.borrow()[index].disk {
            disk.give_up();
        }
        let giving_up = (0..self.shard_count()).map(|shard| {
            self.on_shard(shard, move |shard| async move {
                if let Some(disk) = shard.disk(index as u16) {
                    disk.give_up();
                }
            })
        });
        // A shard that has ended waits for nothing.
        let _ = join_all(giving_up).await;
    }

    /// Whether a device still has requests that it may carry out, also those that were given up, and those from before an import.
    pub async fn owes(&self, identity: u64) -> bool {
        let cores = &self.shared.cores;
        let asking = (0..cores.count())
            .map(|core| call(cores.core(core), move |rt| async move { rt.owed(identity) > 0 }));
        // A core that has ended waits for nothing, and neither does the process go on.
        join_all(asking).await.into_iter().any(|owes| owes.unwrap_or(false))
    }
}

fn ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

async fn watch(control: Weak<Control>, rt: forebay_runtime::Rt) {
    let mut next = rt.now();
    loop {
        // Not a second after the last look was over: what is kept by the second would lack one now and then.
        next = next.after(PERIOD).max(rt.now());
        rt.sleep_until(next).await;
        let woken = rt.now();
        // It does not keep the pool's disks open while it sleeps.
        let Some(control) = control.upgrade().filter(|control| !control.slow.ended.get()) else { return };
        control.slow.looking.set(true);
        let mut vitals = control.vitals().await;
        // A core that gets on is late by little, and so is its answer.
        let late = woken.since(next) + rt.now().since(woken);
        control.slow.discount(rt.now(), late, &mut vitals);
        control.keep_ledger(&vitals).await;
        if !control.shared.import.read_only {
            control.look_at_disks(&vitals).await;
            control.look_at_errors().await;
        }
        control.slow.looking.set(false);
        control.turnstile.changed();
    }
}

impl SlowDisks {
    /// Takes from what disks have had requests waiting the time in which the daemon stood still; `late` is by how much the watch came late.
    fn discount(&self, now: Nanos, late: u64, vitals: &mut [Vitals]) {
        if late > PERIOD.as_nanos() as u64 && !active(Bug::StandstillCounts) {
            self.standstills.borrow_mut().note(now, late);
        }
        let standstills = self.standstills.borrow();
        vitals.iter_mut().for_each(|vitals| vitals.waits = standstills.moved(now, vitals.waits));
    }
}

fn hangs(own: &Vitals) -> bool {
    let is_silent = own.served.iter().all(|served| served.count == 0);
    own.waits >= if is_silent { HANG } else { HANG_BUSY }.as_nanos() as u64
}

/// How a disk's second compares with that of the others of its group: by the kind of request in which it is worst.
fn pace(own: &Vitals, peers: &[&Vitals], times: u64) -> Pace {
    let mean = |served: &Served| served.nanos.checked_div(served.count);
    let mut paces = Vec::new();
    for kind in 0..own.served.len() {
        let mut usual: Vec<u64> = peers.iter().filter_map(|peer| mean(&peer.served[kind])).collect();
        usual.sort_unstable();
        let Some(&usual) = usual.get(usual.len().saturating_sub(1) / 2) else { continue };
        // What it has not answered for a whole period counts as well.
        let waits = (own.waits >= PERIOD.as_nanos() as u64).then_some(own.waits);
        if let Some(took) = mean(&own.served[kind]).max(waits) {
            let is_slow = took >= SLOW_NANOS_MIN && took / times >= usual;
            paces.push(if is_slow { Pace::Slow(took, usual) } else { Pace::Usual });
        }
    }
    let slow = paces.iter().find(|pace| matches!(pace, Pace::Slow(..)));
    slow.or(paces.first()).copied().unwrap_or(Pace::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads, writes and flushes: how many, and microseconds for each.
    fn vitals(served: [(u64, u64); 3]) -> Vitals {
        let served =
            served.map(|(count, each)| Served { count, nanos: count * each * 1000, ..Served::default() });
        Vitals { served, ..Vitals::default() }
    }

    #[test]
    fn time_in_which_the_daemon_stood_still_is_no_disks() {
        let second = 1_000_000_000;
        let mut still = Standstills::default();
        assert_eq!(still.moved(Nanos(100 * second), 30 * second), 30 * second);
        still.note(Nanos(90 * second), 60 * second);
        let cases = [
            // The request began before it, in it, and after it.
            (75, 15),
            (65, 10),
            (30, 10),
            (5, 5),
            (10, 10),
        ];
        for (waits, moved) in cases {
            assert_eq!(still.moved(Nanos(100 * second), waits * second), moved * second, "{waits}");
        }
        still.note(Nanos(96 * second), 2 * second);
        assert_eq!(still.moved(Nanos(100 * second), 75 * second), 13 * second);
        (0..STANDSTILLS_MAX).for_each(|_| still.note(Nanos(99 * second), second));
        assert_eq!(still.0.len(), STANDSTILLS_MAX);
    }

    #[test]
    fn a_disk_is_slow_beside_its_peers_and_not_by_itself() {
        let fast = vitals([(100, 90), (10, 30), (10, 400)]);
        let slow = vitals([(100, 9_000), (10, 3_000), (10, 40_000)]);
        assert_eq!(pace(&slow, &[&fast, &fast, &slow], SLOW_TIMES), Pace::Slow(9_000_000, 90_000));
        assert_eq!(pace(&slow, &[&slow, &slow], SLOW_TIMES), Pace::Usual);
        assert_eq!(pace(&slow, &[&fast, &slow], SLOW_TIMES), Pace::Slow(9_000_000, 90_000));
        assert_eq!(pace(&fast, &[&slow], SLOW_TIMES), Pace::Usual);
        let quick = vitals([(100, 4_900), (0, 0), (0, 0)]);
        assert_eq!(
            pace(&quick, &[&vitals([(1, 1), (0, 0), (0, 0)])], SLOW_TIMES),
            Pace::Usual,
            "nobody minds 4.9 ms"
        );
    }

    #[test]
    fn only_like_is_compared_with_like() {
        let reader = vitals([(100, 90), (0, 0), (0, 0)]);
        let flusher = vitals([(0, 0), (0, 0), (10, 9_000)]);
        assert_eq!(pace(&flusher, &[&reader], SLOW_TIMES), Pace::Unknown);
        assert_eq!(pace(&flusher, &[], SLOW_TIMES), Pace::Unknown);
        let both = vitals([(1, 100), (0, 0), (10, 90_000)]);
        assert_eq!(
            pace(&both, &[&reader, &vitals([(0, 0), (0, 0), (5, 500)])], SLOW_TIMES),
            Pace::Slow(90_000_000, 500_000)
        );
    }

    #[test]
    fn a_disk_that_answers_others_may_take_its_time() {
        let busy =
            |seconds: u64| Vitals { waits: seconds * 1_000_000_000, ..vitals([(0, 0), (1, 5), (0, 0)]) };
        let silent = |seconds: u64| Vitals { waits: seconds * 1_000_000_000, ..Vitals::default() };
        assert!(!hangs(&silent(9)) && hangs(&silent(10)) && !hangs(&busy(19)) && hangs(&busy(20)));
    }

    #[test]
    fn what_is_not_answered_counts() {
        let waiting = Vitals { waits: 3_000_000_000, ..Vitals::default() };
        let fast = vitals([(100, 90), (0, 0), (0, 0)]);
        assert_eq!(pace(&waiting, &[&fast], SLOW_TIMES), Pace::Slow(3_000_000_000, 90_000));
        assert_eq!(
            pace(&Vitals { waits: 900_000_000, ..Vitals::default() }, &[&fast], SLOW_TIMES),
            Pace::Unknown
        );
        assert_eq!(pace(&waiting, &[&waiting], SLOW_TIMES), Pace::Unknown);
    }
}
