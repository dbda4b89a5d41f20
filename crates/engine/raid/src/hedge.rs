//! Reads that do not wait for a slow disk when another way leads to the same bytes.
//!
//! A read is *late* when its disk takes several times as long as the group's disks usually do. It then ends with
//! [`DiskErrorKind::Late`], and the reader goes to another copy or computes the bytes; only when that fails does it ask the disk again, and
//! waits. As long as a disk has such a read, or usually takes so long, others do not start with it, but for a few that show whether it has
//! recovered ("The Tail at Scale", Dean and Barroso, CACM 2013: hedged requests and latency-induced probation).

use forebay_device::Member;
use forebay_runtime::{Kind, Rt};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How often reads in flight are looked at, and the least time that is late: what the machine itself may keep a request waiting for.
const TICK: Duration = Duration::from_millis(5);
/// A read is late after so many times what reads of its group usually take,
const LATE_TIMES: u64 = 8;
/// but not before the first and at the latest after the second.
const LATE_NANOS: (u64, u64) = (5_000_000, 1_000_000_000);
/// A disk whose reads usually take less is not avoided, however fast the others are.
const AVOID_NANOS_MIN: u64 = 2_000_000;
/// Of so many reads that would avoid a disk, one asks it all the same.
const PROBE_ONE_IN: u32 = 32;

/// Looks after the impatient reads of one core.
pub(crate) struct Hedge {
    rt: Rt,
    /// With their groups.
    disks: RefCell<Vec<(u16, Rc<Member>)>>,
    /// Whether a task looks on, and whether there were impatient reads since it last did.
    running: Cell<bool>,
    asked: Cell<bool>,
}

impl Hedge {
    pub fn new(rt: Rt) -> Rc<Hedge> {
        let (running, asked) = (Cell::new(false), Cell::new(false));
        Rc::new(Hedge { rt, disks: RefCell::default(), running, asked })
    }

    pub fn add(&self, group: u16, member: Rc<Member>) {
        self.disks.borrow_mut().push((group, member));
    }

    /// An impatient read is about to begin.
    pub fn attend(self: &Rc<Self>) {
        self.asked.set(true);
        if !self.running.replace(true) {
            drop(self.rt.spawn(look_on(Rc::downgrade(self), self.rt.clone())));
        }
    }

    /// Ends reads that are late. False when there was nothing to look after.
    fn look(&self) -> bool {
        let disks = self.disks.borrow();
        let busy = disks.iter().any(|(_, member)| member.disk.watch().has_impatient_reads());
        let usual = usual(&disks);
        for (group, member) in &*disks {
            let (watch, usual) = (member.disk.watch(), usual.get(group).copied().unwrap_or(0));
            let late = (usual * LATE_TIMES).clamp(LATE_NANOS.0, LATE_NANOS.1);
            let is_slow = watch.typical_read() > (usual * LATE_TIMES).max(AVOID_NANOS_MIN);
            let waits = watch.waits(&[Kind::Read]) > late;
            member.late.set(is_slow || waits);
            if waits {
                watch.end_late_reads(late);
            }
        }
        self.asked.replace(false) || busy
    }
}

async fn look_on(hedge: Weak<Hedge>, rt: Rt) {
    loop {
        rt.sleep(TICK).await;
        let Some(hedge) = hedge.upgrade() else { return };
        if !hedge.look() {
            hedge.running.set(false);
            return;
        }
    }
}

/// By group, the (lower) median of what reads of its disks take lately.
fn usual(disks: &[(u16, Rc<Member>)]) -> BTreeMap<u16, u64> {
    let mut times: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for (group, member) in disks.iter().filter(|(_, member)| !member.health.is_failed()) {
        let typical = member.disk.watch().typical_read();
        times.entry(*group).or_default().extend((typical > 0).then_some(typical));
    }
    let median = |mut times: Vec<u64>| {
        times.sort_unstable();
        times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(0)
    };
    times.into_iter().map(|(group, times)| (group, median(times))).collect()
}

/// Whether a read that has another way should take it.
pub(crate) fn avoids(member: &Member) -> bool {
    if !member.late.get() {
        return false;
    }
    let avoided = member.avoided.get().wrapping_add(1);
    member.avoided.set(avoided);
    !avoided.is_multiple_of(PROBE_ONE_IN)
}
