//! `forebay-bench --instructions`: what a request costs the processor, in instructions of this process.
//!
//! Times depend on the machine and on who else uses it; instructions hardly do, so a change of a few percent shows. The engine
//! runs in a child process under valgrind, on a file in memory, which is read and written without the ring. Each kind of
//! work runs twice, with few requests and with more: the difference over the difference is the cost of one, the making
//! of the pool and all else that happens once left out. The kernel's share and that of the load's own few calls are not
//! told apart from it: the first is missing, the second is in. Each instruction counts for the stage that its source file is of, inlined or not.
//!
//! `--instructions-check` is the gate: three works may cost so much and no more.

use crate::MEMORY;
use crate::measure::{CHAPTERS, DURABLE, MIXED, Places, READ, SEQUENTIAL_WRITE, Work};
use crate::systems::{POOL, drive, engine_pool, thin_volume};
use forebay_base::MIB;
use forebay_e2e::host::{Context, Directory, Outcome, run_command};
use forebay_pool::{Engine, EngineConfig, Host};
use forebay_runtime::{Cores, Rt, uring};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Sparse, and large enough that looking for space is not what is measured.
const FILE: u64 = 4096 * MIB;
const VOLUME: u64 = 192 * MIB;
/// Bytes that the shorter run reads or writes; the longer one does three times as much.
const SHORT_BYTES: usize = 64 << 20;
/// Requests that are enough, however small.
const SHORT_REQUESTS: usize = 10_000;

fn works() -> impl Iterator<Item = &'static Work> {
    CHAPTERS.iter().flat_map(|chapter| chapter.works)
}

/// The child: fills a volume and makes `requests` requests of a kind. All on one thread: valgrind runs one at a time, and
/// does not know that a wait for the ring may be for another.
pub fn load(disk: &Path, work: &str, requests: usize) -> Outcome {
    let work = *works().find(|known| known.name == work).ok_or("no such work")?;
    let disk = disk.display().to_string();
    uring::block_on(move |rt| fill_and_load(rt, disk, work, requests)).context("io_uring")?
}

async fn fill_and_load(rt: Rt, disk: String, work: Work, requests: usize) -> Outcome {
    let cores = Cores::new(vec![rt.remote()]);
    let engine = Engine::new(
        cores,
        EngineConfig { memory: MEMORY.1, events: Arc::new(|_| {}), host: Host::default() },
    );
    engine.pool_create(engine_pool(vec![disk])).await.context("pool create")?;
    let volume = engine.volume_create(thin_volume("volume", VOLUME)).await.context("volume create")?;
    let fill = Places::whole(&SEQUENTIAL_WRITE, VOLUME);
    drive(&rt, volume.id, SEQUENTIAL_WRITE, fill, None).await.context("filling")?;
    let places = Places::new(&work, VOLUME, 1).first(requests);
    drive(&rt, volume.id, work, places, None).await.context(work.name)?;
    engine.pool_export(POOL).await.context("pool export")
}

/// Where an instruction's source is, how functions from there are called, and what is done there. The first that fits counts.
const STAGES: [(&str, &str, &str); 15] = [
    ("/engine/tree/", "forebay_tree::", "tree"),
    ("/engine/space/", "forebay_space::", "allocation"),
    ("/engine/log/", "forebay_log::", "log record"),
    ("/engine/pool/src/cache.rs", "forebay_pool::cache::", "cache"),
    ("/engine/pool/src/ahead.rs", "forebay_pool::ahead::", "cache"),
    ("/engine/pool/src/commit.rs", "forebay_pool::commit::", "commit"),
    ("/engine/pool/src/pending.rs", "forebay_pool::pending::", "commit"),
    ("/engine/pool/", "forebay_pool::", "volume"),
    ("/engine/raid/", "forebay_raid::", "disks"),
    ("/engine/device/", "forebay_device::", "disks"),
    ("/service/qos/", "forebay_qos::", "scheduler"),
    ("/foundation/runtime/", "forebay_runtime::", "runtime and ring"),
    ("/foundation/base/", "forebay_base::", "base"),
    ("/testing/bench/", "forebay_bench::", "load"),
    ("xxhash", "xxhash", "checksum"),
];
const ELSEWHERE: &str = "libraries";

/// What a request may cost; a gate that noise does not move. Who makes one dearer says in the change why it has to be, and who makes one cheaper lowers it.
const MOST: [(&str, u64); 3] = [(READ, 6_880), (MIXED, 9_150), (DURABLE, 14_500)];

/// Prints the cost of each kind of work whose name contains `only`, and of which stages it is.
pub fn run(only: &str) -> Outcome {
    for work in works().filter(|work| work.name.contains(only)) {
        let counts = cost(work)?;
        println!("{:<45} {:>9} instructions", work.name, counts.values().sum::<u64>());
        let mut stages: Vec<(&str, u64)> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
        stages.sort_by_key(|(_, count)| Reverse(*count));
        stages.iter().for_each(|(stage, count)| println!("    {stage:<41} {count:>9}"));
    }
    Ok(())
}

/// Whether the works of [`MOST`] cost no more than they may.
pub fn check() -> Outcome {
    let mut dearer = Vec::new();
    for (name, most) in MOST {
        let work = works().find(|work| work.name == name).ok_or("no such work")?;
        let count = cost(work)?.values().sum::<u64>();
        println!("{name:<45} {count:>9} instructions, {most} at most");
        if count > most {
            dearer.push(name);
        }
    }
    match dearer.is_empty() {
        true => Ok(()),
        false => {
            Err(format!("dearer than it may be: {}. --instructions says where they go", dearer.join("; ")))
        }
    }
}

/// Instructions of one request, by stage.
fn cost(work: &Work) -> Outcome<BTreeMap<&'static str, u64>> {
    let short = (SHORT_BYTES / work.size).min(SHORT_REQUESTS);
    let (few, mut many) = (count(work, short)?, count(work, 3 * short)?);
    for (stage, count) in &mut many {
        *count = count.saturating_sub(few.get(stage).copied().unwrap_or(0)) / (2 * short as u64);
    }
    Ok(many)
}

/// Instructions of a child that makes `requests` requests, by stage.
fn count(work: &Work, requests: usize) -> Outcome<BTreeMap<&'static str, u64>> {
    let directory = Directory::in_memory("bench-instructions")?;
    let disk = directory.join("disk");
    std::fs::File::create(&disk).and_then(|file| file.set_len(FILE)).context("the disk file")?;
    let report = directory.join("report");
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=cachegrind").arg(format!("--cachegrind-out-file={}", report.display()));
    valgrind.arg("--log-file=/dev/null");
    valgrind.arg(std::env::current_exe().context("this program")?);
    valgrind.arg("--instructions-load").arg(&disk).arg(work.name).arg(requests.to_string());
    run_command(&mut valgrind, "valgrind")?;
    let report = std::fs::read_to_string(&report).context(report.display())?;
    by_stage(&report).ok_or_else(|| "valgrind counted nothing".into())
}

/// Cachegrind's report: `fl=` names a source file, `fn=` the function that code of it became part of, lines of numbers have the line and its instructions.
/// What of a library became part of a function counts for that.
fn by_stage(report: &str) -> Option<BTreeMap<&'static str, u64>> {
    let mut counts = BTreeMap::new();
    let (mut file, mut stage) = ("", ELSEWHERE);
    for line in report.lines() {
        if let Some(next) = line.strip_prefix("fl=") {
            file = next;
        } else if let Some(function) = line.strip_prefix("fn=") {
            let of_file = STAGES.iter().find(|(path, ..)| file.contains(path));
            let known = of_file.or_else(|| STAGES.iter().find(|(_, name, _)| function.contains(name)));
            stage = known.map_or(ELSEWHERE, |(.., stage)| stage);
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let count: u64 = line.split(' ').nth(1)?.parse().ok()?;
            *counts.entry(stage).or_insert(0) += count;
        }
    }
    (!counts.is_empty()).then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_count_where_their_source_is() {
        let report = "events: Ir\nfl=/x/crates/engine/tree/src/lib.rs\nfn=get\n10 500\n11 3\nfl=/rustc/x/library/core/src/cell.rs\n\
                      fn=<forebay_log::Ring>::pieces\n1 5\nfl=???\nfn=memcpy\n0 7\nsummary: 515\n";
        let expected = BTreeMap::from([("tree", 503), ("log record", 5), (ELSEWHERE, 7)]);
        assert_eq!(by_stage(report), Some(expected));
        assert_eq!(by_stage("events: Ir\n"), None);
    }
}
