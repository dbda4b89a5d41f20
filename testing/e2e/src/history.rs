//! What a volume may hold after a crash, given everything that was asked of it: the oracle of the kill -9 test.
//!
//! The volume is seen as *units* of 4 KiB. Every unit a client writes says what it is: volume, unit, version (the
//! write's number), and a body that is a function of these, so that a read unit is one write's, or zeros, or damaged.
//!
//! Each write has a place in time by two ticks of one counter: `issued`, taken before its request was sent, and
//! `acknowledged`, taken after its reply was read. If *v* was acknowledged before *w* was issued, *v* came before
//! *w* for certain; otherwise they overlapped and either order is right. From that, for each unit:
//!
//! - **durable**: a unit may show *v* only if no durable write to it came after *v* for certain. A write is durable once
//!   acknowledged (with FUA, or on a volume that promises it), or once a flush issued after that is acknowledged.
//! - **whole or not at all**: if any unit of a write shows it, then it happened; no other unit of it may show anything
//!   that came before it for certain.
//! - **nothing else**: a unit never shows a version that was not written there, nor damaged content.
//!
//! What was seen after one crash is the state from which the next round starts: a write without an answer that was
//! not seen then must never appear later.

use std::collections::HashMap;
use std::fmt;

pub const UNIT: usize = 4096;
const MAGIC: u64 = 0x466f_7265_6261_7955;
const HEADER: usize = 32;

/// Fills one unit with what write `version` says there. Versions start at 1; 0 means zeros.
pub fn fill(unit_bytes: &mut [u8], volume: u64, unit: u64, version: u64) {
    assert_eq!(unit_bytes.len(), UNIT);
    for (place, word) in unit_bytes.chunks_exact_mut(8).zip([MAGIC, volume, unit, version]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let seed = volume ^ unit.rotate_left(24) ^ version.rotate_left(48);
    forebay_base::Random::new(seed).fill(&mut unit_bytes[HEADER..]);
}

/// What a unit shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    Zeros,
    Version(u64),
    /// Neither zeros nor any write's content for this place.
    Damaged,
}

pub fn look(unit_bytes: &[u8], volume: u64, unit: u64) -> Seen {
    if unit_bytes.iter().all(|&byte| byte == 0) {
        return Seen::Zeros;
    }
    let version = u64::from_le_bytes(unit_bytes[24..HEADER].try_into().expect("eight bytes"));
    let mut expected = [0; UNIT];
    fill(&mut expected, volume, unit, version);
    if unit_bytes == expected { Seen::Version(version) } else { Seen::Damaged }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Data,
    /// Write-zeroes or trim.
    Zeros,
}

/// One write of this round.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub version: u64,
    pub kind: Kind,
    /// First unit and their number.
    pub unit: u64,
    pub units: u64,
    pub issued: u64,
    pub acknowledged: Option<u64>,
    /// Durable once acknowledged.
    pub durable: bool,
}

/// One flush of this round that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    pub issued: u64,
}

/// What must not be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Damaged {
        unit: u64,
    },
    /// The unit shows a version that was not written there since the last look.
    Foreign {
        unit: u64,
        version: u64,
    },
    /// The unit shows something older than a durable write.
    Lost {
        unit: u64,
        seen: Seen,
        durable: u64,
    },
    /// The write shows in one unit of its range, but this one still shows what came before it.
    Torn {
        unit: u64,
        version: u64,
        seen: Seen,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Damaged { unit } => write!(f, "unit {unit}: neither zeros nor what any write put there"),
            Fault::Foreign { unit, version } => {
                write!(f, "unit {unit}: shows write {version}, which must not be there")
            }
            Fault::Lost { unit, seen, durable } => {
                write!(f, "unit {unit}: shows {seen:?}, but write {durable} came later and was durable")
            }
            Fault::Torn { unit, version, seen } => {
                write!(
                    f,
                    "unit {unit}: shows {seen:?}, but write {version}, which covers it, shows elsewhere"
                )
            }
        }
    }
}

/// What this round did to one volume.
#[derive(Default)]
pub struct Round {
    pub writes: Vec<Write>,
    pub flushes: Vec<Flush>,
}

/// A value that a unit may show: when it was issued and acknowledged. The state before the round was acknowledged at
/// tick 0; a write without an answer never was.
struct Candidate<'a> {
    seen: Seen,
    acknowledged: u64,
    write: Option<&'a Write>,
}

impl Round {
    /// Checks what the units show now (`seen`) against what they showed before this round (`before`).
    pub fn check(&self, before: &[Seen], seen: &[Seen]) -> Vec<Fault> {
        let last_flush = self.flushes.iter().map(|flush| flush.issued).max().unwrap_or(0);
        let durable = |w: &Write| w.acknowledged.is_some_and(|tick| w.durable || tick < last_flush);
        let mut by_unit: HashMap<u64, Vec<&Write>> = HashMap::new();
        for write in &self.writes {
            for unit in write.unit..write.unit + write.units {
                by_unit.entry(unit).or_default().push(write);
            }
        }
        let writes_to = |unit: u64| by_unit.get(&unit).map_or(&[][..], Vec::as_slice);
        // Everything that could have put there what the unit shows.
        let candidates = |unit: u64| {
            let shown = seen[unit as usize];
            let base = Candidate { seen: before[unit as usize], acknowledged: 0, write: None };
            let writes = writes_to(unit).iter().map(|&write| Candidate {
                seen: match write.kind {
                    Kind::Data => Seen::Version(write.version),
                    Kind::Zeros => Seen::Zeros,
                },
                acknowledged: write.acknowledged.unwrap_or(u64::MAX),
                write: Some(write),
            });
            std::iter::once(base).chain(writes).filter(move |candidate| candidate.seen == shown)
        };

        let mut faults = Vec::new();
        for unit in 0..seen.len() as u64 {
            let shown = seen[unit as usize];
            // When what is shown was certainly over, taking the explanation that excuses most.
            let excuse = candidates(unit).map(|candidate| candidate.acknowledged).max();
            match (shown, excuse) {
                (Seen::Damaged, _) => faults.push(Fault::Damaged { unit }),
                (_, Some(over)) => {
                    let newer = writes_to(unit).iter().find(|w| durable(w) && w.issued > over);
                    faults.extend(newer.map(|w| Fault::Lost { unit, seen: shown, durable: w.version }));
                }
                (Seen::Version(version), None) => faults.push(Fault::Foreign { unit, version }),
                // Zeros that nobody wrote: whatever was durable there is lost.
                (Seen::Zeros, None) => faults.push(Fault::Lost {
                    unit,
                    seen: shown,
                    durable: match before[unit as usize] {
                        Seen::Version(version) => version,
                        Seen::Zeros | Seen::Damaged => 0,
                    },
                }),
            }
        }
        faults.extend(self.torn(seen, candidates));
        faults
    }

    fn torn<'a, I: Iterator<Item = Candidate<'a>>>(
        &self,
        seen: &[Seen],
        candidates: impl Fn(u64) -> I,
    ) -> Vec<Fault> {
        let mut faults = Vec::new();
        // Zeros do not say whose they are, so only writes of data are tried.
        for write in self.writes.iter().filter(|w| w.kind == Kind::Data && w.units > 1) {
            let range = write.unit..write.unit + write.units;
            if !range.clone().any(|unit| seen[unit as usize] == Seen::Version(write.version)) {
                continue;
            }
            for unit in range {
                let excused = candidates(unit).any(|candidate| {
                    candidate.write.is_some_and(|w| w.version == write.version)
                        || candidate.acknowledged > write.issued
                });
                let shown = seen[unit as usize];
                if !excused && matches!(shown, Seen::Zeros | Seen::Version(_)) {
                    faults.push(Fault::Torn { unit, version: write.version, seen: shown });
                }
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::Seen::{Damaged, Version, Zeros};
    use super::*;

    /// A write of data, durable when acknowledged: version, first unit, units, issued, acknowledged.
    fn write(version: u64, unit: u64, units: u64, issued: u64, acknowledged: Option<u64>) -> Write {
        Write { version, kind: Kind::Data, unit, units, issued, acknowledged, durable: true }
    }
    fn zeros(write: Write) -> Write {
        Write { kind: Kind::Zeros, ..write }
    }
    fn volatile(write: Write) -> Write {
        Write { durable: false, ..write }
    }
    fn round(writes: &[Write]) -> Round {
        Round { writes: writes.to_vec(), flushes: Vec::new() }
    }

    #[test]
    fn an_acknowledged_write_must_be_there() {
        let round = round(&[write(1, 0, 1, 10, Some(11))]);
        assert_eq!(round.check(&[Zeros], &[Version(1)]), []);
        assert_eq!(round.check(&[Zeros], &[Zeros]), [Fault::Lost { unit: 0, seen: Zeros, durable: 1 }]);
    }

    #[test]
    fn a_write_without_an_answer_may_be_there_or_not() {
        let round = round(&[write(1, 0, 1, 10, None)]);
        assert_eq!(round.check(&[Zeros], &[Version(1)]), []);
        assert_eq!(round.check(&[Zeros], &[Zeros]), []);
    }

    #[test]
    fn a_write_that_did_not_show_last_time_must_not_show_now() {
        assert_eq!(
            round(&[]).check(&[Zeros], &[Version(7)]),
            [Fault::Foreign { unit: 0, version: 7 }],
            "a write of an earlier round came back"
        );
        assert_eq!(round(&[]).check(&[Version(8)], &[Version(7)]), [Fault::Foreign { unit: 0, version: 7 }]);
    }

    #[test]
    fn a_later_acknowledged_write_wins_and_overlapping_ones_are_either() {
        let after = round(&[write(1, 0, 1, 10, Some(11)), write(2, 0, 1, 12, Some(13))]);
        assert_eq!(after.check(&[Zeros], &[Version(2)]), []);
        let fault = Fault::Lost { unit: 0, seen: Version(1), durable: 2 };
        assert_eq!(after.check(&[Zeros], &[Version(1)]), [fault]);
        let overlapping = round(&[write(1, 0, 1, 10, Some(13)), write(2, 0, 1, 11, Some(12))]);
        assert_eq!(overlapping.check(&[Zeros], &[Version(2)]), []);
        assert_eq!(overlapping.check(&[Zeros], &[Version(1)]), []);
        assert_eq!(overlapping.check(&[Zeros], &[Zeros]).len(), 1);
    }

    #[test]
    fn a_write_with_an_answer_may_be_overwritten_by_one_without() {
        let round = round(&[write(1, 0, 1, 10, Some(11)), write(2, 0, 1, 12, None)]);
        assert_eq!(round.check(&[Zeros], &[Version(1)]), []);
        assert_eq!(round.check(&[Zeros], &[Version(2)]), []);
    }

    #[test]
    fn a_volatile_write_becomes_durable_with_a_flush_issued_after_its_answer() {
        let mut round = round(&[volatile(write(1, 0, 1, 10, Some(11)))]);
        assert_eq!(round.check(&[Zeros], &[Zeros]), []);
        round.flushes = vec![Flush { issued: 10 }];
        assert_eq!(round.check(&[Zeros], &[Zeros]), [], "the flush may have come first");
        round.flushes = vec![Flush { issued: 12 }];
        assert_eq!(round.check(&[Zeros], &[Zeros]).len(), 1);
    }

    #[test]
    fn a_write_is_there_whole_or_not_at_all() {
        let unanswered = round(&[write(1, 0, 3, 10, None)]);
        assert_eq!(unanswered.check(&[Zeros; 3], &[Version(1); 3]), []);
        assert_eq!(unanswered.check(&[Zeros; 3], &[Zeros; 3]), []);
        assert_eq!(
            unanswered.check(&[Zeros; 3], &[Version(1), Zeros, Version(1)]),
            [Fault::Torn { unit: 1, version: 1, seen: Zeros }]
        );
        // Over an older write: that is what would still be there.
        let over = round(&[write(1, 0, 2, 10, Some(11)), write(2, 0, 2, 12, None)]);
        assert_eq!(
            over.check(&[Zeros; 2], &[Version(2), Version(1)]),
            [Fault::Torn { unit: 1, version: 2, seen: Version(1) }]
        );
        // Two that overlapped may each have won somewhere.
        let both = round(&[write(1, 0, 2, 10, None), write(2, 1, 2, 11, None)]);
        assert_eq!(both.check(&[Zeros; 3], &[Version(1), Version(1), Version(2)]), []);
        assert_eq!(both.check(&[Zeros; 3], &[Version(1), Version(2), Version(2)]), []);
        assert_eq!(both.check(&[Zeros; 3], &[Version(1), Zeros, Version(2)]).len(), 2);
    }

    #[test]
    fn zeros_may_be_old_or_written() {
        let round = round(&[write(1, 0, 1, 10, Some(11)), zeros(write(2, 0, 1, 12, None))]);
        assert_eq!(round.check(&[Zeros], &[Zeros]), []);
        assert_eq!(round.check(&[Zeros], &[Version(1)]), []);
        let acknowledged = self::round(&[zeros(write(2, 0, 1, 12, Some(13)))]);
        assert_eq!(acknowledged.check(&[Version(9)], &[Version(9)]).len(), 1);
        assert_eq!(acknowledged.check(&[Version(9)], &[Zeros]), []);
    }

    #[test]
    fn zeros_that_nobody_wrote_and_damage_are_faults() {
        assert_eq!(
            round(&[]).check(&[Version(3)], &[Zeros]),
            [Fault::Lost { unit: 0, seen: Zeros, durable: 3 }]
        );
        assert_eq!(round(&[]).check(&[Version(3)], &[Damaged]), [Fault::Damaged { unit: 0 }]);
    }

    #[test]
    fn a_unit_says_what_it_is() {
        let mut bytes = [0; UNIT];
        assert_eq!(look(&bytes, 1, 2), Zeros);
        fill(&mut bytes, 1, 2, 3);
        assert_eq!(look(&bytes, 1, 2), Version(3));
        assert_eq!(look(&bytes, 1, 4), Damaged, "the right content in the wrong place");
        assert_eq!(look(&bytes, 2, 2), Damaged, "another volume's content");
        for flipped in [0, HEADER, UNIT - 1] {
            bytes[flipped] ^= 1;
            assert_eq!(look(&bytes, 1, 2), Damaged);
            bytes[flipped] ^= 1;
        }
        fill(&mut bytes, 1, 2, 4);
        let newer = bytes;
        fill(&mut bytes, 1, 2, 3);
        bytes[512..].copy_from_slice(&newer[512..]);
        assert_eq!(look(&bytes, 1, 2), Damaged, "a unit torn at a sector");
    }
}
