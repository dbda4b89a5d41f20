//! kill -9 under load: fifty times, with a client that knows every acknowledged write.
//!
//! Per round: several connections write with a full queue; after a random moment the daemon is killed; it is started
//! again without any recovery command; every volume is read whole and compared with its history ([`crate::history`]).
//! The client lives on, so its memory is the record; nothing the server says is believed.
//!
//! The same rounds on a server that keeps its data in memory must report losses: that is [`forgetful`], the proof that
//! the check can fail.

use crate::history::{Fault, Kind, Round, Seen};
use crate::host::{Directory, Outcome};
use crate::load::{self, Target, Ticks};
use crate::server::{Forebay, Iscsi, Other, Server, Tgt};
use forebay_base::Random;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const CONNECTIONS_PER_EXPORT: usize = 2;
const ROUNDS: usize = 50;
const ISCSI_ROUNDS: usize = 20;
/// Load before a kill: long enough for the queue to be full, short enough for many rounds.
const LOAD_MS: std::ops::Range<u64> = 20..800;

/// What a number of rounds came to.
#[derive(Default)]
struct Tally {
    acknowledged: u64,
    unanswered: u64,
    /// Unanswered writes that show after the restart.
    unanswered_there: u64,
    restart_max: Duration,
    faults: Vec<String>,
}

/// Fifty rounds on two volumes of different block size and sync policy.
pub fn fifty_rounds(binary: &Path, directory: &Directory) -> Outcome<String> {
    let mut server = Forebay::create(binary, directory, "single", 1, 4 << 30)?;
    server.create_volume("always", 64 << 20, "8K", true)?;
    server.create_volume("standard", 48 << 20, "16K", false)?;
    let tally = rounds(&mut server, ROUNDS, seed())?;
    let said = tally.verdict(ROUNDS, &server)?;
    server.stop()?;
    Ok(said)
}

/// The same over iSCSI: the protocol, too, must not answer before a write is where it has to be.
pub fn rounds_over_iscsi(binary: &Path, directory: &Directory) -> Outcome<String> {
    let mut server = Iscsi::new(Forebay::create(binary, directory, "single", 1, 4 << 30)?)?;
    server.create_volume("always", 64 << 20, "8K", true)?;
    server.create_volume("standard", 48 << 20, "16K", false)?;
    let tally = rounds(&mut server, ISCSI_ROUNDS, seed())?;
    let said = tally.verdict(ISCSI_ROUNDS, &server.forebay)?;
    server.forebay.stop()?;
    Ok(said)
}

/// A server that forgets: the checker must say so.
pub fn forgetful(directory: &Directory) -> Outcome<String> {
    let mut server = Other::nbdkit_memory(directory, 64 << 20);
    server.start()?;
    // A kill may come before anything is durable; ten do not.
    let tally = rounds(&mut server, 10, seed())?;
    match tally.faults.len() {
        0 => Err("a server that lost everything was found faultless: the checker is broken".into()),
        n => Ok(format!("nbdkit's memory plugin, killed: {n} losses seen")),
    }
}

/// A server that keeps files: the checker must not cry wolf.
pub fn remembering(directory: &Directory) -> Outcome<String> {
    let mut said = Vec::new();
    let file = directory.sparse_file("tgt.img", 64 << 20)?;
    let servers: [Box<dyn Server>; 3] = [
        Box::new(Other::nbdkit_file(directory, 64 << 20)?),
        Box::new(Other::qemu_nbd(directory, 64 << 20)?),
        Box::new(Tgt::new(directory, &file, 64 << 20, 512)),
    ];
    for mut server in servers {
        server.start()?;
        let tally = rounds(&mut *server, 3, seed())?;
        // Neither promises that a write is whole: the kernel stops a killed process between two pages.
        if let Some(fault) = tally.faults.iter().find(|fault| !fault.contains("covers it")) {
            return Err(format!("a fault where there is none: {fault}"));
        }
        said.push(format!("{} acknowledged", tally.acknowledged));
    }
    Ok(format!("nbdkit, qemu-nbd and tgt on files: {}, none lost", said.join(" and ")))
}

fn seed() -> u64 {
    let seed = u64::from(std::process::id());
    eprintln!("    seed {seed}");
    seed
}

fn rounds(server: &mut dyn Server, rounds: usize, seed: u64) -> Outcome<Tally> {
    let mut random = Random::new(seed);
    let ticks = Ticks::new();
    let mut before: Vec<Vec<Seen>> =
        server.exports().iter().map(|e| vec![Seen::Zeros; (e.size / 4096) as usize]).collect();
    let mut tally = Tally::default();
    for number in 1..=rounds {
        let targets = targets(server);
        let load = Duration::from_millis(LOAD_MS.start + random.below(LOAD_MS.end - LOAD_MS.start));
        let histories = load_and_kill(server, &targets, &ticks, &mut random, load)?;
        server
            .check_offline()
            .map_err(|error| format!("round {number}, killed and not yet restarted: {error}"))?;
        let start = Instant::now();
        server.start().map_err(|error| format!("round {number}, restart: {error}"))?;
        tally.restart_max = tally.restart_max.max(start.elapsed());
        let targets = self::targets(server);
        for ((target, history), before) in targets.iter().zip(histories).zip(&mut before) {
            let seen = load::look_at_all(target)?;
            tally.count(&history, &seen);
            let faults = history.check(before, &seen);
            tally.faults.extend(faults.iter().map(|fault| describe(number, target, &history, fault)));
            *before = seen;
        }
        if !tally.faults.is_empty() {
            break;
        }
    }
    if tally.acknowledged == 0 {
        return Err("nothing was acknowledged in any round: that shows nothing".into());
    }
    Ok(tally)
}

fn targets(server: &dyn Server) -> Vec<Target> {
    let number = server.exports().iter().zip(1..);
    number
        .map(|(export, volume)| Target {
            address: server.address().to_owned(),
            export: export.name.clone(),
            volume,
            units: export.size / 4096,
            sync_always: export.sync_always,
        })
        .collect()
}

/// Each target's history of one round.
fn load_and_kill(
    server: &mut dyn Server,
    targets: &[Target],
    ticks: &Ticks,
    random: &mut Random,
    load: Duration,
) -> Outcome<Vec<Round>> {
    let mut writers = Vec::new();
    for target in targets {
        for _ in 0..CONNECTIONS_PER_EXPORT {
            // Here, not in the thread: the kill must not come before there is a connection that it breaks.
            let connection = load::open(target)?;
            let (target, ticks, seed) = (target.clone(), ticks.clone(), random.next_u64());
            let write = move || load::write_until_broken(connection, &target, &ticks, seed);
            writers.push(thread::spawn(write));
        }
    }
    thread::sleep(load);
    server.kill();
    let mut histories = Vec::new();
    let mut writers = writers.into_iter();
    for _ in targets {
        let mut history = Round::default();
        for writer in writers.by_ref().take(CONNECTIONS_PER_EXPORT) {
            let part = writer.join().map_err(|_| "a writer panicked")??;
            history.writes.extend(part.writes);
            history.flushes.extend(part.flushes);
        }
        histories.push(history);
    }
    Ok(histories)
}

impl Tally {
    /// What `rounds` rounds showed, or the first fault.
    fn verdict(&self, rounds: usize, server: &Forebay) -> Outcome<String> {
        if let Some(fault) = self.faults.first() {
            return Err(format!("{} faults; the first: {fault}\n{}", self.faults.len(), server.log_tail()));
        }
        Ok(format!(
            "{rounds} kills, {} writes acknowledged and there; of {} unanswered {} there, whole; restart took at most {} ms",
            self.acknowledged,
            self.unanswered,
            self.unanswered_there,
            self.restart_max.as_millis()
        ))
    }

    fn count(&mut self, history: &Round, seen: &[Seen]) {
        for write in &history.writes {
            if write.acknowledged.is_some() {
                self.acknowledged += 1;
                continue;
            }
            self.unanswered += 1;
            let shows = |unit: u64| seen[unit as usize] == Seen::Version(write.version);
            if write.kind == Kind::Data && (write.unit..write.unit + write.units).any(shows) {
                self.unanswered_there += 1;
            }
        }
    }
}

/// A fault with what is known about the unit: enough to start looking.
fn describe(round: usize, target: &Target, history: &Round, fault: &Fault) -> String {
    let unit = match *fault {
        Fault::Damaged { unit }
        | Fault::Foreign { unit, .. }
        | Fault::Lost { unit, .. }
        | Fault::Torn { unit, .. } => unit,
    };
    let writes: Vec<String> = history
        .writes
        .iter()
        .filter(|w| (w.unit..w.unit + w.units).contains(&unit))
        .map(|w| {
            format!(
                "  write {} {:?} of units {}+{}, issued {}, acknowledged {:?}, durable at once: {}",
                w.version, w.kind, w.unit, w.units, w.issued, w.acknowledged, w.durable
            )
        })
        .collect();
    let flushes = history.flushes.iter().map(|f| f.issued).max();
    format!(
        "round {round}, `{}`: {fault}\n  this round's writes to that unit (last flush issued at {flushes:?}):\n{}",
        target.export,
        writes.join("\n")
    )
}
