//! `forebay-bench --import`: how long an import takes after a crash with millions of log records.
//!
//! A child process makes a pool and overwrites a volume at random, one block and so one record at a time, without ever
//! reaching a checkpoint; it is killed, and this process imports what it left. The volume has `sync=disabled`, which
//! leaves the frames at the end of the log in doubt: their data is verified, as after any crash.

use crate::systems::wait;
use forebay_base::{GIB, Random};
use forebay_e2e::host::{Context, Directory, Outcome};
use forebay_pool::{
    Compression, Engine, EngineConfig, Host, Import, Layout, PoolSpec, SyncPolicy, Volume, VolumeFormat,
    VolumeSpec,
};
use forebay_runtime::{Rt, uring};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Instant;

const BLOCK: u64 = 4096;
/// The volume: small beside the log, so that most records replace others, as a busy database's do.
const VOLUME: u64 = 4 * GIB;
/// Writers side by side.
const WRITERS: u64 = 256;
/// Room for the dirty leaves of the whole volume, so that memory asks for no checkpoint either.
const MEMORY: u64 = 4 * GIB;

fn engine(cores: forebay_runtime::Cores) -> Engine {
    Engine::new(cores, EngineConfig { memory: MEMORY, events: Arc::new(|_| {}), host: Host::default() })
}

/// The child: writes `records` records and waits to be killed.
pub fn fill(disk: &Path, records: u64) -> Outcome<()> {
    let (cores, _running) = uring::start(1).context("io_uring")?;
    let engine = engine(cores.clone());
    let pool = PoolSpec {
        name: "import".into(),
        layout: Layout::Single,
        disks: vec![disk.display().to_string()],
        log_disks: Vec::new(),
        spare_disks: Vec::new(),
        cache_disks: Vec::new(),
        enclosures: Vec::new(),
        sectors: Vec::new(),
        shards: 1,
        log_bytes: Some(GIB),
        force: false,
    };
    wait(engine.pool_create(pool)).context("pool create")?;
    let volume = VolumeSpec {
        pool: "import".into(),
        name: "volume".into(),
        size: VOLUME,
        block_size: BLOCK as u32,
        sync: Some(SyncPolicy::Disabled),
        compression: Some(Compression::Off),
        format: VolumeFormat::Thin,
        level: None,
        own_hosts: false,
    };
    let volume = wait(engine.volume_create(volume)).context("volume create")?;
    let (done, finished) = mpsc::channel();
    cores.core(volume.core).run(move |rt| {
        let inner = rt.clone();
        rt.spawn(async move {
            let writers: Vec<_> = (0..WRITERS)
                .map(|seed| inner.spawn(writer(inner.clone(), volume.id, seed, records)))
                .collect();
            for writer in writers {
                writer.await;
            }
            done.send(()).expect("the main thread waits");
        });
    });
    finished.recv().context("the engine's core ended")?;
    println!("filled");
    loop {
        std::thread::park();
    }
}

async fn writer(rt: Rt, id: forebay_base::Id, seed: u64, records: u64) {
    let volume = Volume::open(&rt, id).expect("the volume is on this core");
    let mut random = Random::new(seed);
    for _ in 0..records / WRITERS {
        let mut block = rt.buffer(BLOCK as usize);
        block[..8].copy_from_slice(&random.next_u64().to_le_bytes());
        let at = random.below(VOLUME / BLOCK) * BLOCK;
        volume.write(at, vec![block.freeze()], false).await.expect("the pool has room");
    }
}

/// Makes the child, kills it, and times the import.
pub fn run(records: u64) -> Outcome<()> {
    let directory = Directory::new("bench-import")?;
    let disk = directory.join("disk");
    // Each write goes to new space, and none is released without a checkpoint.
    let size = records * BLOCK + 6 * GIB;
    std::fs::File::create(&disk).and_then(|file| file.set_len(size)).context("the disk file")?;
    let program = std::env::current_exe().context("this program")?;
    let mut child = Command::new(program)
        .arg("--import-fill")
        .arg(&disk)
        .arg(records.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .context("the filling process")?;
    let mut line = String::new();
    let read = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line);
    child.kill().context("kill")?;
    child.wait().context("wait")?;
    read.context("the filling process")?;
    if line.trim() != "filled" {
        return Err("the filling process ended early".into());
    }
    let (cores, running) = uring::start(1).context("io_uring")?;
    let engine = engine(cores);
    let start = Instant::now();
    wait(engine.pool_import("import", vec![disk.display().to_string()], Import::default()))
        .context("import")?;
    let seconds = start.elapsed().as_secs_f64();
    let goal = 10.0 * records as f64 / 4e6;
    let verdict = if seconds < goal { "met" } else { "MISSED" };
    println!("import after a crash with {records} log records: {seconds:.2} s   goal {goal:.1} s: {verdict}");
    drop(running);
    Ok(())
}
