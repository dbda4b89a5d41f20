//! The demonstration's load: a few dozen I/Os a second, each read verified.
//!
//! One task per volume, on the core that owns it. A block's content is a function of the volume, the block and a
//! generation; the generation is in the block's first bytes, and the writer remembers the last one it wrote. So a read
//! can be checked completely: the block must be a block of this volume, of this place, of the remembered generation
//! (after a restart, of any, since only then is none remembered), and whole.

use forebay_api::Severity;
use forebay_base::{Id, MIB, Random};
use forebay_control::EventLog;
use forebay_pool::{IoError, Volume, VolumeInfo};
use forebay_runtime::{Buf, Cores, Rt};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The part of each volume that is used: small enough to come by every block now and then.
const REGION_BYTES: u64 = 16 * MIB;
/// Between two I/Os on one volume: 25 a second.
const PAUSE: Duration = Duration::from_millis(40);
/// A stopping task ends after its I/O in flight; a disk that hangs does not hold up the stop for ever.
const STOP_MAX: Duration = Duration::from_secs(10);
const HEADER_BYTES: usize = 16;

/// The running tasks.
pub struct Load {
    stop: Arc<AtomicBool>,
    /// Disconnected when the last task has ended.
    ended: Receiver<()>,
}

impl Load {
    pub fn start(cores: &Cores, volumes: Vec<VolumeInfo>, events: EventLog) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let (alive, ended): (Sender<()>, _) = channel();
        for volume in volumes {
            let (stop, events, alive) = (stop.clone(), events.clone(), alive.clone());
            cores.core(volume.core).run(move |rt| {
                let task = run(rt.clone(), volume, stop, events, alive);
                rt.spawn(task);
            });
        }
        Load { stop, ended }
    }

    /// Lets every task finish what it has in flight.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.ended.recv_timeout(STOP_MAX) == Err(RecvTimeoutError::Timeout) {
            eprintln!("forebay: the demonstration's load hangs; stopping without it");
        }
    }
}

async fn run(rt: Rt, info: VolumeInfo, stop: Arc<AtomicBool>, events: EventLog, alive: Sender<()>) {
    let name = format!("{}/{}", info.pool, info.name);
    let ended = worker(&rt, &info, &stop).await;
    if let Err(why) = ended {
        events.record(
            Severity::Error,
            "demo.stopped",
            &name,
            &format!("the demonstration's load stopped: {why}"),
        );
    }
    drop(alive);
}

async fn worker(rt: &Rt, info: &VolumeInfo, stop: &AtomicBool) -> Result<(), String> {
    let volume = Volume::open(rt, info.id).map_err(|error| error.to_string())?;
    let blocks = REGION_BYTES.min(volume.size()) / u64::from(volume.block_size());
    let mut random = Random::new(rt.random());
    let mut generations: HashMap<u64, u64> = HashMap::new();
    let mut next = 1 + random.below(1 << 40);
    while !stop.load(Ordering::Relaxed) {
        let block = random.below(blocks);
        let at = block * u64::from(volume.block_size());
        let result = if random.below(4) == 0 {
            next += 1;
            let content = content(rt, info.id, block, next, volume.block_size() as usize);
            let written = volume.write(at, vec![content], false).await;
            if written.is_ok() {
                generations.insert(block, next);
            } else {
                // It may be there or not: both are right.
                generations.remove(&block);
            }
            written
        } else {
            match volume.read(at, volume.block_size() as usize).await {
                Ok(parts) => {
                    verify(rt, info.id, block, generations.get(&block).copied(), &parts)?;
                    Ok(())
                }
                Err(error) => Err(error),
            }
        };
        match result {
            // A full pool or a sick disk is the daemon's to report, and may pass.
            Ok(()) | Err(IoError::NoSpace | IoError::Io | IoError::Suspended) => {}
            // The user deleted the volume or exported the pool, or imported it to be read only.
            Err(IoError::Gone | IoError::ReadOnly) => return Ok(()),
            Err(error @ (IoError::Corrupt | IoError::OutOfRange)) => {
                return Err(format!("block {block}: {error}"));
            }
        }
        rt.sleep(PAUSE).await;
    }
    Ok(())
}

/// Block `block` of volume `id` in generation `generation`.
fn content(rt: &Rt, id: Id, block: u64, generation: u64, len: usize) -> Buf {
    let mut buffer = rt.buffer(len);
    buffer[..8].copy_from_slice(&generation.to_le_bytes());
    buffer[8..HEADER_BYTES].copy_from_slice(&block.to_le_bytes());
    let seed = (id.0 as u64) ^ generation.rotate_left(32) ^ block;
    Random::new(seed).fill(&mut buffer[HEADER_BYTES..]);
    buffer.freeze()
}

fn verify(rt: &Rt, id: Id, block: u64, expected: Option<u64>, parts: &[Buf]) -> Result<(), String> {
    let got: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    let generation = u64::from_le_bytes(got[..8].try_into().expect("eight bytes"));
    match expected {
        Some(expected) if expected != generation => {
            return Err(format!("block {block} has generation {generation}, {expected} was written"));
        }
        // Never written.
        None if got.iter().all(|&byte| byte == 0) => return Ok(()),
        _ => {}
    }
    let whole = content(rt, id, block, generation, got.len());
    match whole[..] == got[..] {
        true => Ok(()),
        false => Err(format!("block {block} of generation {generation} is not what was written")),
    }
}
