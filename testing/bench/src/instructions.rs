//! `forebay-bench --instructions`: what a request costs the processor, in instructions of this process.
//!
//! Times depend on the machine and on who else uses it; instructions hardly do, so a change of a few percent shows. The engine
//! runs in a child process under valgrind, on a file in memory, which is read and written without the ring. Each kind of
//! work runs twice, with few requests and with more: the difference over the difference is the cost of one, the making
//! of the pool and all else that happens once left out. The kernel's share and that of the load's own few calls are not
//! told apart from it: the first is missing, the second is in.

use crate::MEMORY;
use crate::measure::{CHAPTERS, Places, SEQUENTIAL_WRITE, Work};
use crate::systems::{POOL, drive, engine_pool, thin_volume};
use forebay_base::MIB;
use forebay_e2e::host::{Context, Directory, Outcome, run_command};
use forebay_pool::{Engine, EngineConfig, Host};
use forebay_runtime::{Cores, Rt, uring};
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
    engine.pool_create(engine_pool(disk)).await.context("pool create")?;
    let volume = engine.volume_create(thin_volume("volume", VOLUME)).await.context("volume create")?;
    let fill = Places::whole(&SEQUENTIAL_WRITE, VOLUME);
    drive(&rt, volume.id, SEQUENTIAL_WRITE, fill, None).await.context("filling")?;
    let places = Places::new(&work, VOLUME, 1).first(requests);
    drive(&rt, volume.id, work, places, None).await.context(work.name)?;
    engine.pool_export(POOL).await.context("pool export")
}

/// Prints the cost of each kind of work whose name contains `only`.
pub fn run(only: &str) -> Outcome {
    for work in works().filter(|work| work.name.contains(only)) {
        let short = (SHORT_BYTES / work.size).min(SHORT_REQUESTS);
        let (few, many) = (count(work, short)?, count(work, 3 * short)?);
        println!("{:<45} {:>9} instructions", work.name, (many - few) / (2 * short as u64));
    }
    Ok(())
}

/// Instructions of a child that makes `requests` requests.
fn count(work: &Work, requests: usize) -> Outcome<u64> {
    let directory = Directory::in_memory("bench-instructions")?;
    let disk = directory.join("disk");
    std::fs::File::create(&disk).and_then(|file| file.set_len(FILE)).context("the disk file")?;
    let report = directory.join("report");
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=cachegrind").arg("--cachegrind-out-file=/dev/null");
    valgrind.arg(format!("--log-file={}", report.display()));
    valgrind.arg(std::env::current_exe().context("this program")?);
    valgrind.arg("--instructions-load").arg(&disk).arg(work.name).arg(requests.to_string());
    run_command(&mut valgrind, "valgrind")?;
    let report = std::fs::read_to_string(&report).context(report.display())?;
    let refs =
        report.lines().find_map(|line| line.split_once("I   refs:")).ok_or("valgrind counted nothing")?;
    refs.1.trim().replace(',', "").parse().context("valgrind's count")
}
