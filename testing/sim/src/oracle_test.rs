//! Goal: the oracle accepts everything a correct volume may do and nothing else.
//! Method: a toy volume that logs writes and loses a suffix at a crash, made wrong on purpose in each way an
//! engine could be; thousands of seeded histories. Every flaw must be caught, and the honest toy never accused.

use crate::content::{SECTOR, Seen, fill, parse};
use crate::oracle::{Effect, End, Judge, NEVER, VolumeModel};
use forebay_base::Random;
use forebay_pool::SyncPolicy;

const SECTORS: u32 = 32;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Flaw {
    None,
    /// Loses a write that was durable.
    LosesDurable,
    /// Applies half of an unacknowledged write.
    Tears,
    /// Loses one acknowledged write in front of a later one.
    Skips,
    /// Puts a write one sector further.
    Misplaces,
    /// Forgets a discard.
    ForgetsZeroing,
    /// Damages a byte.
    Rots,
}

/// Makes a history, crashes the toy at its end and returns what the oracle says.
fn crash(seed: u64, flaw: Flaw) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut model =
        VolumeModel::new(1, "toy".into(), u64::from(SECTORS) * 512, 4096, SyncPolicy::Standard, 0);
    let mut tick = 0;
    let mut next = || {
        tick += 1;
        tick
    };
    // (number, survives for certain); at most three in flight.
    let mut log: Vec<(u32, bool)> = Vec::new();
    let mut flying: Vec<u32> = Vec::new();
    for _ in 0..40 {
        match random.below(8) {
            0 => {
                let issued = next();
                let durable = log.iter_mut();
                durable.for_each(|(number, safe)| *safe |= model.ops[*number as usize - 1].acknowledged);
                model.flushed(issued, next());
            }
            1..=3 if !flying.is_empty() => {
                let number = flying.swap_remove(random.below(flying.len() as u64) as usize);
                model.end(number, End::Acknowledged { durable: false }, next());
            }
            kind if flying.len() < 3 => {
                let from = random.below(u64::from(SECTORS) - 8) as u32;
                let to = from + 1 + random.below(7) as u32;
                let effect = if kind == 7 { Effect::Zero } else { Effect::Write };
                let number = model.issue(effect, from, to, next());
                flying.push(number);
                log.push((number, false));
            }
            _ => {}
        }
    }
    // The log's order is the order of issue: what is safe and all before it stays, of the rest a prefix.
    let safe = log.iter().rposition(|(_, safe)| *safe).map_or(0, |last| last + 1);
    let mut kept = safe + random.below((log.len() - safe) as u64 + 1) as usize;
    let mut skip = None;
    let mut half = None;
    match flaw {
        Flaw::LosesDurable => {
            let Some(victim) = (0..safe).rev().find(|&n| log[n].1) else { return Ok(()) };
            kept = victim;
        }
        Flaw::Skips => {
            let acknowledged = |n: &usize| model.ops[log[*n].0 as usize - 1].acknowledged;
            skip = (safe..kept.max(safe)).find(acknowledged);
        }
        Flaw::Tears => half = (safe..kept).find(|&n| !model.ops[log[n].0 as usize - 1].acknowledged),
        _ => {}
    }
    let mut bytes = vec![0; SECTORS as usize * SECTOR];
    for (place, (number, _)) in log[..kept].iter().enumerate() {
        let op = &model.ops[*number as usize - 1];
        let (mut from, mut to) = (op.from as usize * SECTOR, op.to as usize * SECTOR);
        if skip == Some(place) {
            continue;
        }
        if half == Some(place) {
            to = (from + to) / 2 / SECTOR * SECTOR;
        }
        let mut new = vec![0; to - from];
        match op.effect {
            Effect::Write => fill(&mut new, 1, *number, op.from),
            Effect::Zero if flaw == Flaw::ForgetsZeroing => continue,
            Effect::Zero => {}
        }
        if flaw == Flaw::Misplaces && place + 1 == kept {
            (from, to) = (from + SECTOR, to + SECTOR);
        }
        bytes[from..to].copy_from_slice(&new);
    }
    if flaw == Flaw::Rots {
        bytes[random.below(SECTORS as u64 * 512) as usize] ^= 4;
    }
    let seen: Vec<(u32, Seen)> = (0..).zip(bytes.chunks_exact(SECTOR).map(parse)).collect();
    model.judge_crash(NEVER - 1, Judge::STRICT, &seen).map_err(|violation| violation.to_string())
}

#[test]
fn an_honest_volume_is_never_accused() {
    for seed in 0..3000 {
        crash(seed, Flaw::None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn every_flaw_is_caught() {
    let flaws =
        [Flaw::LosesDurable, Flaw::Tears, Flaw::Skips, Flaw::Misplaces, Flaw::ForgetsZeroing, Flaw::Rots];
    for flaw in flaws {
        let caught = (0..1000).filter(|&seed| crash(seed, flaw).is_err()).count();
        assert!(caught > 50, "{flaw:?} was caught in {caught} of 1000 histories");
    }
}

#[test]
fn a_read_may_be_old_or_new_only_while_a_write_is_in_flight() {
    let mut model = VolumeModel::new(1, "toy".into(), 4096, 4096, SyncPolicy::Always, 0);
    let sector = |number: u32| {
        let mut bytes = [0; SECTOR];
        fill(&mut bytes, 1, number, 0);
        bytes
    };
    let first = model.issue(Effect::Write, 0, 1, 1);
    model.end(first, End::Acknowledged { durable: true }, 2);
    let second = model.issue(Effect::Write, 0, 1, 3);
    assert!(model.judge_read(0, &sector(first), 4).is_ok());
    assert!(model.judge_read(0, &sector(second), 4).is_ok());
    assert!(model.judge_read(0, &[0; SECTOR], 4).is_err());
    model.end(second, End::Acknowledged { durable: true }, 5);
    assert!(model.judge_read(0, &sector(first), 4).is_ok(), "the read was issued before the write ended");
    assert!(model.judge_read(0, &sector(first), 6).is_err());
    assert!(model.judge_read(0, &sector(second), 6).is_ok());
    let refused = model.issue(Effect::Write, 0, 1, 7);
    model.end(refused, End::Refused, 8);
    assert!(model.judge_read(0, &sector(refused), 9).is_err());
    assert!(model.judge_read(0, &sector(second), 9).is_ok());
}
