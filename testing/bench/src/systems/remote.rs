//! Servers over NBD or iSCSI, all under the same load: connections of [`forebay_client`] with the work's depth in flight.
//!
//! Durable writes carry FUA, for every server. A plain 1 MiB write carries nothing; a flush ends the run and counts.
//! Processor time is the server's process alone, user and system, as the kernel accounts it.

use super::System;
use super::ageing::{Ages, Rotation};
use super::responder::Responder;
use crate::measure::{Direction, FIRST_WRITES, Generator, Measured, Places, Samples, State, Work};
use forebay_base::Random;
use forebay_client::iscsi::INITIATOR;
use forebay_client::{Connection, FLAG_FUA};
use forebay_e2e::host::{Context, Directory, Outcome, run};
use forebay_e2e::server::{Export, Forebay, Iscsi, Other, Server, Tgt};
use serde_json::Value;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

pub struct Remote<S> {
    name: &'static str,
    remark: &'static str,
    server: S,
    export: Export,
    /// Bytes of the export that are used.
    size: u64,
    /// The daemon, if that is what serves: what else serves a file writes where it is told to, and is always in the same state.
    forebay: fn(&S) -> Option<&Forebay>,
    snapshots: RefCell<Rotation>,
    thin: fn(&mut S, u64) -> Outcome<Option<Export>>,
}

/// Forebay's daemon with a pool on `disk` and a volume of `size` bytes on it.
pub fn forebay(
    binary: &Path,
    directory: &Directory,
    disk: PathBuf,
    size: u64,
    memory: &'static str,
) -> Outcome<Remote<Forebay>> {
    let mut server = Forebay::create_on(binary, directory, "single", vec![disk], memory)?;
    let export = server.create_volume("bench", size, "8K", false)?;
    Ok(Remote {
        name: "forebay NBD",
        remark: "sync=standard, durable writes with FUA; checksums on; small cache",
        server,
        export,
        size,
        forebay: |server| Some(server),
        snapshots: RefCell::default(),
        thin: |server, size| {
            // The last repetition's volume, if there was one, makes room for the next.
            let _ = server.cli(&["volume", "delete", "e2e/thin", "--purge", "--yes"]);
            server.create_volume("thin", size, "8K", false).map(Some)
        },
    })
}

/// What a logical unit is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Bytes of a logical block.
    pub logical_block: u32,
    /// A block of the volume behind it, where there is one.
    pub volume_block: &'static str,
}

/// For requests of whole 8 KiB blocks, as guests make them.
pub const UNIT: Unit = Unit { logical_block: 512, volume_block: "8K" };
/// For requests that begin at any logical block: none of them begins inside a block of the volume.
pub const UNIT_ANY_BLOCK: Unit = Unit { logical_block: 4096, volume_block: "4K" };

/// Forebay's daemon as an iSCSI target.
pub fn forebay_iscsi(
    binary: &Path,
    directory: &Directory,
    disk: PathBuf,
    size: u64,
    unit: Unit,
    memory: &'static str,
) -> Outcome<Remote<Iscsi>> {
    let mut server = Iscsi::new(Forebay::create_on(binary, directory, "single", vec![disk], memory)?)?;
    let options = ["--logical-block", &unit.logical_block.to_string()];
    let export = server.create_volume_with("bench", size, unit.volume_block, false, &options)?;
    let remark = "sync=standard, as tgt's write cache; checksums on; small cache";
    Ok(Remote {
        forebay: |server| Some(&server.forebay),
        ..plain("forebay iSCSI", remark, server, export, size)
    })
}

/// Debian's user-space SCSI target on the same kind of file.
pub fn tgt(directory: &Directory, file: &Path, size: u64, unit: Unit) -> Outcome<Remote<Tgt>> {
    let mut server = Tgt::new(directory, file, size, unit.logical_block);
    server.start()?;
    let export = server.exports()[0].clone();
    let remark = "bstype=aio: O_DIRECT; write cache on, FUA is fdatasync";
    Ok(plain("tgt", remark, server, export, size))
}

/// Nothing but answers.
pub fn responder(directory: &Directory, size: u64) -> Outcome<Remote<Responder>> {
    let server = Responder::start(directory, size)?;
    let export = server.exports()[0].clone();
    let remark =
        "answers without storage behind them, a thread for each connection: what the network alone costs";
    Ok(plain("responder", remark, server, export, size))
}

pub fn nbdkit(directory: &Directory, file: &Path, size: u64) -> Outcome<Remote<Other>> {
    let line = format!("nbdkit -f -i 127.0.0.1 -p PORT file {} cache=none", file.display());
    let remark = "cache=none (drops the page cache behind itself; it cannot bypass it); FUA is fdatasync";
    other("nbdkit file", remark, directory, line, size)
}

pub fn qemu_nbd(directory: &Directory, file: &Path, size: u64, in_memory: bool) -> Outcome<Remote<Other>> {
    // A file in memory is read and written on the spot, faster by threads than by the ring's workers.
    let (how, remark) = match in_memory {
        false => ("--cache=none --aio=io_uring", "cache=none: O_DIRECT, io_uring; FUA is fdatasync"),
        true => ("--cache=writeback --aio=threads", "cache=writeback (the file is memory), threads"),
    };
    let line = format!(
        "qemu-nbd --persistent --shared=8 --bind=127.0.0.1 --port=PORT --format=raw --export-name= {how} {}",
        file.display()
    );
    other("qemu-nbd", remark, directory, line, size)
}

fn other(
    name: &'static str,
    remark: &'static str,
    directory: &Directory,
    line: String,
    size: u64,
) -> Outcome<Remote<Other>> {
    let mut server = Other::new(directory, line, size);
    server.start()?;
    let export = server.exports()[0].clone();
    Ok(plain(name, remark, server, export, size))
}

/// A server of something that has no snapshots and no thin volumes.
fn plain<S>(name: &'static str, remark: &'static str, server: S, export: Export, size: u64) -> Remote<S> {
    let snapshots = RefCell::default();
    Remote { name, remark, server, export, size, forebay: |_| None, snapshots, thin: |_, _| Ok(None) }
}

impl<S: Server> Ages for Remote<S> {
    fn size(&self) -> u64 {
        self.size
    }
    fn work(&self, work: &Work, places: Places) -> Outcome {
        self.load(&self.export, work, places, None).map(drop)
    }
    fn snapshot(&self, name: &str) -> Outcome {
        self.daemon()?.cli(&["snapshot", "create", &format!("{}@{name}", self.export.name)]).map(drop)
    }
    fn delete(&self, name: &str) -> Outcome {
        self.daemon()?
            .cli(&["snapshot", "delete", &format!("{}@{name}", self.export.name), "--yes"])
            .map(drop)
    }
    fn full(&self) -> Outcome<f64> {
        let said = self.daemon()?.cli(&["pool", "list", "--json"])?;
        let pools: Value = serde_json::from_str(&said).context("the list of pools")?;
        let status = &pools["items"][0]["status"];
        let number =
            |name: &str| status[name].as_f64().ok_or_else(|| format!("a pool without {name}: {status}"));
        Ok(number("used_bytes")? / number("size_bytes")?)
    }
}

impl<S: Server> Remote<S> {
    fn daemon(&self) -> Outcome<&Forebay> {
        (self.forebay)(&self.server).ok_or_else(|| format!("{} has no snapshots", self.name))
    }

    fn load(
        &self,
        export: &Export,
        work: &Work,
        places: Places,
        limit: Option<Duration>,
    ) -> Outcome<Measured> {
        let open = || Connection::open(self.server.address(), &export.name).context(self.name);
        let connections: Vec<Connection> = (0..work.connections).map(|_| open()).collect::<Outcome<_>>()?;
        let parts = places.split(work.connections);
        let cpu = cpu_seconds(self.server.pid())?;
        let start = Instant::now();
        let drivers: Vec<_> = connections
            .into_iter()
            .zip(parts)
            .map(|(connection, places)| {
                thread::spawn({
                    let work = *work;
                    move || drive(connection, &work, places, limit)
                })
            })
            .collect();
        let mut samples = Samples::default();
        for driver in drivers {
            let driven = driver.join().map_err(|_| "a driver panicked")?;
            samples.join(driven.map_err(|error| format!("{}: {error}", self.name))?);
        }
        let seconds = start.elapsed().as_secs_f64();
        let cpu = cpu_seconds(self.server.pid())? - cpu;
        Ok(samples.measured(work, seconds, cpu))
    }

    /// The same work done by `iscsi-perf`, which counts whole seconds.
    fn iscsi_perf(&self, work: &Work, limit: Duration) -> Outcome<Measured> {
        assert!(work.random && work.direction == Direction::Read && work.connections == 1, "{}", work.name);
        let (seconds, depth) = (limit.as_secs().max(1), work.depth);
        let blocks = work.size / UNIT_ANY_BLOCK.logical_block as usize;
        let (address, name) = (self.server.address(), &self.export.name);
        let line =
            format!("iscsi-perf -i {INITIATOR} -r -m {depth} -b {blocks} -t {seconds} {address}/{name}");
        let cpu = cpu_seconds(self.server.pid())?;
        let said = run(&line)?;
        let cpu = cpu_seconds(self.server.pid())? - cpu;
        let iops = iops_average(&said).ok_or_else(|| format!("{line} did not tell the IOPS: {said}"))?;
        let operations = iops * seconds as f64;
        Ok(Measured {
            iops,
            mb_per_s: iops * work.size as f64 / 1e6,
            p50_us: f64::NAN,
            p99_us: f64::NAN,
            p999_us: f64::NAN,
            cpu_us_per_io: cpu * 1e6 / operations.max(1.0),
        })
    }
}

/// What `iscsi-perf` says in the end: lines that overwrite each other, the last with `iops average 51508 (402 MB/s)`.
fn iops_average(said: &str) -> Option<f64> {
    let (_, last) = said.rsplit_once("iops average ")?;
    last.split(' ').next()?.parse().ok().filter(|iops| *iops > 0.0)
}

impl<S: Server> System for Remote<S> {
    fn name(&self) -> &'static str {
        self.name
    }
    fn remark(&self) -> String {
        self.remark.into()
    }
    fn prepare(&mut self, state: State) -> Outcome {
        match (self.forebay)(&self.server) {
            Some(_) => self.snapshots.borrow_mut().prepare(self, state),
            None => Ok(()),
        }
    }
    fn rotate(&mut self) -> Outcome {
        match (self.forebay)(&self.server) {
            Some(_) => self.snapshots.borrow_mut().rotate_and_rest(self),
            None => Ok(()),
        }
    }
    fn run(&mut self, work: &Work, limit: Duration, seed: u64) -> Outcome<Measured> {
        match work.generator {
            Generator::Client => {
                self.load(&self.export, work, Places::run(work, self.size, seed), Some(limit))
            }
            Generator::IscsiPerf => self.iscsi_perf(work, limit),
        }
    }
    fn first_writes(&mut self, size: u64, seed: u64) -> Outcome<Option<(Measured, Measured)>> {
        let Some(export) = (self.thin)(&mut self.server, size)? else { return Ok(None) };
        let work = &FIRST_WRITES;
        let first = self.load(&export, work, Places::once(work, size, seed), None)?;
        let again = self.load(&export, work, Places::once(work, size, seed + 1), None)?;
        Ok(Some((first, again)))
    }
}

/// Keeps the work's depth in flight until `limit` has passed or `places` end.
fn drive(
    mut connection: Connection,
    work: &Work,
    mut places: Places,
    limit: Option<Duration>,
) -> Outcome<Samples> {
    let flags = if work.direction == Direction::DurableWrite { FLAG_FUA } else { 0 };
    // Not zeros, and not the same twice, for servers that look.
    let mut data = vec![0; work.size];
    let mut random = Random::new(work.size as u64);
    random.fill(&mut data);
    let mut samples = Samples::default();
    // When each slot's request was queued; the slot's number is the cookie.
    let mut queued = vec![Instant::now(); work.depth];
    let mut free: Vec<usize> = (0..work.depth).collect();
    let start = Instant::now();
    loop {
        let go_on = limit.is_none_or(|limit| start.elapsed() < limit);
        while let Some(&slot) = free.last() {
            let Some(place) = (if go_on { places.next() } else { None }) else { break };
            free.pop();
            let at = place * work.size as u64;
            queued[slot] = Instant::now();
            if work.direction.writes(&mut random) {
                data[..8].copy_from_slice(&random.next_u64().to_le_bytes());
                connection.write(slot as u64, at, &data, flags);
            } else {
                connection.read(slot as u64, at, work.size);
            }
        }
        if free.len() == work.depth {
            break;
        }
        connection.send().context("sending")?;
        let mut wait = true;
        while let Some(reply) = connection.reply(wait).context("receiving")? {
            if reply.error != 0 {
                return Err(format!("a request was answered with error {}", reply.error));
            }
            let slot = reply.cookie as usize;
            samples.add(queued[slot].elapsed().as_nanos() as u64);
            free.push(slot);
            wait = false;
        }
    }
    if work.direction == Direction::Write {
        connection.flush_now().context("flushing")?.map_err(|error| format!("flush: error {error}"))?;
    }
    connection.close().context("closing")?;
    Ok(samples)
}

/// Processor time of a process so far, all threads, those that ended included.
fn cpu_seconds(pid: u32) -> Outcome<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the server's processor time")?;
    // The second field is the name in parentheses and may hold anything; fields 14 and 15 are user and system time.
    let (_, rest) = text.rsplit_once(") ").ok_or("/proc/PID/stat has another form")?;
    let ticks: u64 = rest.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    // SAFETY: a plain question to the C library.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Ok(ticks as f64 / per_second as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_iscsi_perf_says_is_found() {
        let said = "will run for 2 seconds.\n\n\r00:00:01 - lba 199230, iops current 50426 (393 MB/s), iops average 50426 \
                    (393 MB/s), in_flight 32, busy 0        \riops average 51508 (402 MB/s)        \n\nfinished.\n";
        assert_eq!(iops_average(said), Some(51508.0));
        assert_eq!(iops_average("connected\niops average 0 (0 MB/s)\n"), None);
    }
}
