//! The oracle: what every sector of every volume may hold, kept outside the engine.
//!
//! It knows nothing of pools. It is told when each operation was issued and how it ended, in *ticks* of one
//! counter, and judges contents by these rules:
//!
//! - X is *before* Y when X had ended before Y was issued. Others are concurrent: either order is right.
//! - An operation *survives* when it must (it was acknowledged as durable), when it is seen (one of its sectors
//!   holds it), or when it was acknowledged before some surviving write of its volume was issued: the recovered
//!   state is an in-order prefix of the log, so nothing may be missing before something that is there.
//! - What a sector holds must have been issued, must belong there, and must not be before a survivor
//!   that covers the sector: that one should have replaced it.
//!
//! Durability, wholeness of each multi-block write and order all follow from the last rule. Zeros have no
//! author, so a zeroing operation is never taken as seen; it must survive when it was acknowledged.

use crate::content::{SECTOR, Seen, parse};
use forebay_pool::SyncPolicy;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// A tick that never comes.
pub const NEVER: u64 = u64::MAX;

/// What an operation does to its sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// They hold its number.
    Write,
    /// They read as zeros.
    Zero,
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It was done; `durable` promises that it stays.
    Acknowledged { durable: bool },
    /// It may or may not have been done.
    Failed,
    /// It was refused: it must not have been done.
    Refused,
}

/// One operation that changes contents.
#[derive(Clone, Debug)]
pub struct Op {
    pub effect: Effect,
    /// Sectors `from..to`.
    pub from: u32,
    pub to: u32,
    pub issued: u64,
    pub ended: u64,
    pub acknowledged: bool,
    pub refused: bool,
    /// When it became durable for certain.
    pub durable: u64,
}

/// When something about a volume was asked for, and when it was granted.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub issued: u64,
    pub acknowledged: u64,
}

impl Span {
    pub const NOT_ASKED: Span = Span { issued: NEVER, acknowledged: NEVER };
}

/// One volume as its clients know it.
#[derive(Clone, Debug)]
pub struct VolumeModel {
    /// Stands in every sector written to it.
    pub tag: u32,
    /// `POOL/NAME`.
    pub name: String,
    pub block_size: u32,
    /// Policies, in the order in which they were asked for.
    pub policies: Vec<(SyncPolicy, Span)>,
    pub created: Span,
    pub deleted: Span,
    /// Sizes in bytes, in the order in which they were asked for.
    pub sizes: Vec<(u64, Span)>,
    /// Operation n is number n + 1.
    pub ops: Vec<Op>,
    /// For each sector that was ever touched the operations that cover it, in order of issue.
    covering: BTreeMap<u32, Vec<u32>>,
    /// Acknowledged, but not durable for certain.
    volatile: Vec<u32>,
}

/// A rule that was broken, with everything needed to understand it.
#[derive(Clone, Debug)]
pub struct Violation {
    pub volume: String,
    pub sector: u32,
    pub seen: Seen,
    pub why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sector {}: holds {}; {}", self.volume, self.sector, self.seen, self.why)
    }
}

/// What the judge may not demand because of the faults in play.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judge {
    /// Acknowledged durable operations must be there. Off only where a device lied about a flush.
    pub durability: bool,
    /// Nothing is missing before something that is there.
    pub prefix: bool,
    /// What is there of an operation is all of it.
    pub whole: bool,
}

impl Judge {
    pub const STRICT: Judge = Judge { durability: true, prefix: true, whole: true };
}

impl VolumeModel {
    pub fn new(
        tag: u32,
        name: String,
        size: u64,
        block_size: u32,
        sync: SyncPolicy,
        issued: u64,
    ) -> VolumeModel {
        let mut model = VolumeModel {
            tag,
            name,
            block_size,
            policies: vec![(sync, Span { issued, acknowledged: issued })],
            created: Span { issued, acknowledged: NEVER },
            deleted: Span::NOT_ASKED,
            sizes: Vec::new(),
            ops: Vec::new(),
            covering: BTreeMap::new(),
            volatile: Vec::new(),
        };
        model.resize_issued(size, issued);
        model.sizes[0].1.acknowledged = issued;
        model
    }

    /// A new size is asked for.
    pub fn resize_issued(&mut self, size: u64, issued: u64) -> usize {
        self.sizes.push((size, Span { issued, acknowledged: NEVER }));
        self.sizes.len() - 1
    }

    /// Another policy is asked for; its place in the list.
    pub fn policy_issued(&mut self, policy: SyncPolicy, issued: u64) -> usize {
        self.policies.push((policy, Span { issued, acknowledged: NEVER }));
        self.policies.len() - 1
    }

    /// A change of policy is acknowledged: what was acknowledged before it was asked for is durable.
    pub fn policy_granted(&mut self, place: usize, at: u64) {
        self.policies[place].1.acknowledged = at;
        self.flushed(self.policies[place].1.issued, at);
    }

    /// Policies that may be in force at a tick: the last that was granted, and those that were asked for since.
    pub fn policies_at(&self, at: u64) -> impl Iterator<Item = SyncPolicy> {
        let granted = self.policies.iter().rposition(|(_, span)| span.acknowledged <= at).unwrap_or(0);
        let since = self.policies[granted..].iter().filter(move |(_, span)| span.issued <= at);
        since.map(|(policy, _)| *policy)
    }

    /// Whether a volume may come back with this policy after a crash at a tick; any that was asked for, where what is durable may be lost.
    pub fn may_have(&self, policy: SyncPolicy, at: u64, durability: bool) -> bool {
        let was_asked = |(asked, span): &(SyncPolicy, Span)| *asked == policy && span.issued <= at;
        match durability {
            true => self.policies_at(at).any(|possible| possible == policy),
            false => self.policies.iter().any(was_asked),
        }
    }

    /// Whether everything that is acknowledged now is durable, with `fua` or without.
    pub fn promises(&self, fua: bool) -> bool {
        self.policies_at(NEVER - 1).all(|policy| match policy {
            SyncPolicy::Always => true,
            SyncPolicy::Standard => fua,
            SyncPolicy::Disabled => false,
        })
    }

    /// Bytes that clients may count on.
    pub fn size(&self) -> u64 {
        self.sizes
            .iter()
            .filter(|(_, span)| span.acknowledged != NEVER)
            .map(|(size, _)| *size)
            .max()
            .unwrap_or(0)
    }

    /// An operation on sectors `from..to` is issued; returns its number.
    pub fn issue(&mut self, effect: Effect, from: u32, to: u32, issued: u64) -> u32 {
        let number = self.ops.len() as u32 + 1;
        self.ops.push(Op {
            effect,
            from,
            to,
            issued,
            ended: NEVER,
            acknowledged: false,
            refused: false,
            durable: NEVER,
        });
        (from..to).for_each(|sector| self.covering.entry(sector).or_default().push(number));
        number
    }

    /// Whether an operation is there whole or not at all.
    pub fn is_atomic(&self, number: u32) -> bool {
        self.ops[number as usize - 1].effect == Effect::Write
    }

    pub fn end(&mut self, number: u32, end: End, at: u64) {
        let op = &mut self.ops[number as usize - 1];
        op.ended = at;
        match end {
            End::Acknowledged { durable } => {
                op.acknowledged = true;
                if durable {
                    op.durable = at;
                } else {
                    self.volatile.push(number);
                }
            }
            End::Failed => {}
            End::Refused => op.refused = true,
        }
    }

    /// A flush that was issued at `issued` is acknowledged: what was acknowledged before it is durable.
    pub fn flushed(&mut self, issued: u64, at: u64) {
        let ops = &mut self.ops;
        self.volatile.retain(|&number| {
            let op = &mut ops[number as usize - 1];
            let covered = op.ended < issued;
            if covered {
                op.durable = at;
            }
            !covered
        });
    }

    /// The operation that a sector must show when nothing is concurrent: its number, or 0 for zeros. `None` when several
    /// are possible.
    pub fn settled(&self, sector: u32) -> Option<u32> {
        let mut last: Option<(u32, &Op)> = None;
        for &number in self.covering(sector) {
            let op = &self.ops[number as usize - 1];
            if op.refused {
                continue;
            }
            if !op.acknowledged || last.is_some_and(|(_, before)| before.ended > op.issued) {
                return None;
            }
            last = Some((number, op));
        }
        Some(last.map_or(0, |(number, op)| if op.effect == Effect::Write { number } else { 0 }))
    }

    /// Whether an operation on any of these sectors has not ended.
    pub fn busy(&self, from: u32, to: u32) -> bool {
        let mut lists = self.covering.range(from..to);
        lists.any(|(_, list)| list.iter().any(|&number| self.ops[number as usize - 1].ended == NEVER))
    }

    fn covering(&self, sector: u32) -> &[u32] {
        self.covering.get(&sector).map_or(&[], Vec::as_slice)
    }

    /// Sectors that were ever touched, as ranges that begin and end at multiples of `block` sectors, in order; those
    /// less than `gap` sectors apart are one.
    pub fn touched(&self, block: u32, gap: u32) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for &sector in self.covering.keys() {
            let (from, to) = (sector / block * block, (sector / block + 1) * block);
            match ranges.last_mut() {
                Some(last) if from <= last.end + gap => last.end = last.end.max(to),
                _ => ranges.push(from..to),
            }
        }
        ranges
    }

    /// Judges a read of `bytes` from `sector` that was issued at `issued` and ended now.
    pub fn judge_read(&self, sector: u32, bytes: &[u8], issued: u64) -> Result<(), Violation> {
        for (index, bytes) in bytes.chunks_exact(SECTOR).enumerate() {
            let sector = sector + index as u32;
            self.judge_sector(sector, parse(bytes), NEVER - 1, |_, op| op.acknowledged && op.ended < issued)?;
        }
        Ok(())
    }

    /// Judges what all touched sectors (and others) hold after a crash at tick `at`.
    pub fn judge_crash(&self, at: u64, judge: Judge, seen: &[(u32, Seen)]) -> Result<(), Violation> {
        // Survivors that are seen, and the latest issue among all survivors.
        let mut visible = vec![false; self.ops.len() + 1];
        let mut last_issue = 0;
        for (_, seen) in seen {
            if let Seen::Write { tag, number, .. } = seen
                && *tag == self.tag
                && let Some(op) = self.ops.get((*number as usize).wrapping_sub(1))
            {
                visible[*number as usize] = true;
                last_issue = last_issue.max(op.issued);
            }
        }
        if judge.durability {
            // A zeroing of what is zeros already leaves no record behind, so nothing need be in front of it.
            let durable = self.ops.iter().filter(|op| op.durable <= at && op.effect == Effect::Write);
            last_issue = last_issue.max(durable.map(|op| op.issued).max().unwrap_or(0));
        }
        let survives = |number: u32, op: &Op| {
            (judge.whole && visible[number as usize])
                || (judge.durability && op.durable <= at)
                || (judge.prefix && op.acknowledged && op.ended < last_issue)
        };
        for (sector, seen) in seen {
            self.judge_sector(*sector, *seen, at, survives).map_err(|mut violation| {
                let last = self.ops.iter().position(|op| op.issued == last_issue);
                if let Some(last) = last {
                    let op = &self.ops[last];
                    let told = if visible[last + 1] { "seen" } else { "durable" };
                    violation.why +=
                        &format!("; latest survivor, {told}: {}, {}", last + 1, describe(op, at));
                }
                violation
            })?;
        }
        Ok(())
    }

    /// Whether a sector may hold what it holds at tick `at`.
    fn judge_sector(
        &self,
        sector: u32,
        seen: Seen,
        at: u64,
        survives: impl Fn(u32, &Op) -> bool,
    ) -> Result<(), Violation> {
        let violation = |why: String| Err(Violation { volume: self.name.clone(), sector, seen, why });
        let covering = self.covering(sector);
        // The survivor issued last: whoever is before any survivor is before this one.
        let last = covering
            .iter()
            .rev()
            .map(|&number| (number, &self.ops[number as usize - 1]))
            .find(|(number, op)| op.issued <= at && !op.refused && survives(*number, op));
        let last_issued = last.map_or(0, |(_, op)| op.issued);
        let told = || match last {
            Some((number, op)) => {
                format!("operation {number} ({}) should have replaced it", describe(op, at))
            }
            None => "nothing should be there".into(),
        };
        match seen {
            Seen::Foreign => violation(told()),
            Seen::Zeros => {
                let zeroed = covering.iter().map(|&number| &self.ops[number as usize - 1]).any(|op| {
                    op.effect == Effect::Zero && !op.refused && op.issued <= at && op.ended >= last_issued
                });
                if last.is_none() || zeroed { Ok(()) } else { violation(told()) }
            }
            Seen::Write { tag, .. } if tag != self.tag => {
                violation(format!("a foreign volume's data; {}", told()))
            }
            Seen::Write { sector: other, .. } if other != sector => {
                violation(format!("data of another place; {}", told()))
            }
            Seen::Write { number, .. } => {
                let Some(op) = self.ops.get((number as usize).wrapping_sub(1)) else {
                    return violation("a write that was never made".into());
                };
                let covers = (op.from..op.to).contains(&sector) && op.effect == Effect::Write;
                if !covers || op.issued > at {
                    violation("a write that was not made here by then".into())
                } else if op.refused {
                    violation(format!("that write was refused; {}", told()))
                } else if op.ended < last_issued {
                    violation(format!("it is ({}), and {}", describe(op, at), told()))
                } else {
                    Ok(())
                }
            }
        }
    }
}

fn describe(op: &Op, at: u64) -> String {
    let what = match op.effect {
        Effect::Write => "write",
        Effect::Zero => "zeroing",
    };
    let state = match op {
        op if op.durable <= at => "durable",
        op if op.acknowledged && op.ended <= at => "acknowledged",
        op if op.ended <= at => "failed",
        _ => "in flight",
    };
    format!(
        "{what} of sectors {}..{}, {state}, issued at {}, ended at {}",
        op.from, op.to, op.issued, op.ended as i64
    )
}
