//! `forebay-bench --analytics`: what counting costs, and whether its memory is bounded.
//!
//! One daemon whose pool is a file in memory, so that nothing hides the cost; 8 KiB at random, three reads to a write, 32 in flight over NBD. Rounds with
//! counting and without follow each other, in an order that turns round each time, and the median of the pairs' ratios is told: what else the machine does
//! meets both. Then as many volumes as are asked for are read once each, by a client that connects and goes, in three passes: what the first takes in memory is
//! for volumes that are now known, and what the third takes more than the second would go on for ever.

use crate::MEMORY;
use crate::measure::{Direction, Median};
use crate::report::{self, Figure, at_least, at_most};
use forebay_base::{GIB, MIB, Random};
use forebay_client::Connection;
use forebay_e2e::host::{Context, Directory, Outcome};
use forebay_e2e::server::{Forebay, Server};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const BLOCK: usize = 8 << 10;
const DEPTH: usize = 32;
/// After counting was switched: the second that is not counted whole is over.
const SETTLE: Duration = Duration::from_millis(1200);
/// After a pass: until all of it was counted, kept and let go.
const REST: Duration = Duration::from_secs(5);
/// The seconds that are kept in memory before they are a block on the disk, and what the allocator keeps.
const GROWTH_MIB_MAX: f64 = 16.0;

struct Scale {
    volume: u64,
    pairs: usize,
    run: Duration,
    volumes: usize,
}

const FULL: Scale = Scale { volume: 512 * MIB, pairs: 15, run: Duration::from_secs(2), volumes: 10_000 };
const QUICK: Scale = Scale { volume: 64 * MIB, pairs: 2, run: Duration::from_millis(300), volumes: 200 };

pub fn run(server: &Path, quick: bool) -> Outcome {
    let scale = if quick { QUICK } else { FULL };
    let start = Instant::now();
    let directory = Directory::in_memory("analytics")?;
    let disk = directory.sparse_file("disk", 4 * GIB)?;
    let server = server.canonicalize().context(server.display())?;
    let mut server = Forebay::create_on(&server, &directory, "single", vec![disk], MEMORY.0)?;
    let mut figures = cost(&mut server, &scale)?;
    figures.extend(memory(&server, &directory, scale.volumes)?);
    report::print(&figures, quick);
    println!(
        "\n{} pairs of {} ms, {:.0} s in all",
        scale.pairs,
        scale.run.as_millis(),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Requests a second with counting and without.
fn cost(server: &mut Forebay, scale: &Scale) -> Outcome<Vec<Figure>> {
    let export = server.create_volume("analytics", scale.volume, "8K", false)?;
    let mut client = Connection::open(server.address(), &export.name).context("the volume")?;
    fill(&mut client, scale.volume)?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    load(&mut client, scale.volume, 1, scale.run)?;
    for pair in 0..scale.pairs {
        let order = if pair % 2 == 0 { ["on", "off"] } else { ["off", "on"] };
        for switch in order {
            server.cli(&["stat", switch])?;
            sleep(SETTLE);
            let rate = load(&mut client, scale.volume, pair as u64, scale.run)?;
            if switch == "on" { with.push(rate) } else { without.push(rate) }
        }
    }
    server.cli(&["stat", "on"])?;
    client.close().context("the volume")?;
    let ratios = Median::of(with.iter().zip(&without).map(|(with, without)| with / without));
    let median = |rates: Vec<f64>| Median::of(rates.into_iter()).value;
    Ok(vec![
        Figure::new("8 KiB 75/25, QD 32, counted: requests a second", median(with), None),
        Figure::new("the same, not counted", median(without), None),
        Figure::new("counted beside not counted", ratios.value, at_least(0.98)),
        Figure::new(
            "half the distance between the extremes of that, in percent",
            ratios.spread_percent(),
            None,
        ),
    ])
}

fn fill(client: &mut Connection, volume: u64) -> Outcome {
    let data = vec![0xa5; MIB as usize];
    for at in (0..volume).step_by(data.len()) {
        client.write_now(at, &data, 0).context("write")?.map_err(|error| format!("write: error {error}"))?;
    }
    Ok(())
}

/// How many requests were answered in a second.
fn load(client: &mut Connection, volume: u64, seed: u64, time: Duration) -> Outcome<f64> {
    let mut random = Random::new(seed);
    let data = vec![0x5a; BLOCK];
    let (start, mut asked, mut answered) = (Instant::now(), 0u64, 0u64);
    loop {
        let is_over = start.elapsed() >= time;
        while !is_over && client.in_flight() < DEPTH {
            let at = random.below(volume / BLOCK as u64) * BLOCK as u64;
            match Direction::Mixed.writes(&mut random) {
                true => client.write(asked, at, &data, 0),
                false => client.read(asked, at, BLOCK),
            }
            asked += 1;
        }
        if client.in_flight() == 0 {
            return Ok(answered as f64 / start.elapsed().as_secs_f64());
        }
        client.send().context("send")?;
        let mut wait = true;
        while let Some(reply) = client.reply(wait).context("reply")? {
            if reply.error != 0 {
                return Err(format!("the volume answered with error {}", reply.error));
            }
            (answered, wait) = (answered + 1, false);
            if client.in_flight() == 0 {
                break;
            }
        }
    }
}

/// Requests to the API, over one connection.
struct Api(BufReader<UnixStream>);

impl Api {
    fn open(directory: &Directory) -> Outcome<Api> {
        let socket = directory.join("data").join("forebay.sock");
        Ok(Api(BufReader::new(UnixStream::connect(&socket).context(socket.display())?)))
    }

    /// Sends a body, and expects that something was made of it.
    fn post(&mut self, path: &str, body: &str) -> Outcome {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.0.get_mut().write_all(request.as_bytes()).context(path)?;
        let (mut status, mut length) = (String::new(), 0);
        self.0.read_line(&mut status).context(path)?;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).context(path)?;
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().context(path)?;
            }
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer).context(path)?;
        match status.split(' ').nth(1) {
            Some("201") => Ok(()),
            _ => Err(format!("{path}: {}{}", status, String::from_utf8_lossy(&answer))),
        }
    }
}

/// What of the daemon is in memory, in MiB.
fn resident(directory: &Directory) -> Outcome<f64> {
    let pid = fs::read_to_string(directory.join("data").join("lock")).context("lock")?;
    let status = format!("/proc/{}/status", pid.trim());
    let text = fs::read_to_string(&status).context(&status)?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().context("VmRSS")?;
    Ok(kib / 1024.0)
}

fn memory(server: &Forebay, directory: &Directory, volumes: usize) -> Outcome<Vec<Figure>> {
    let mut api = Api::open(directory)?;
    for nth in 0..volumes {
        api.post("/api/v1/volumes", &format!(r#"{{"name":"e2e/v{nth}","size_bytes":{MIB}}}"#))?;
    }
    sleep(REST);
    let mut sizes = vec![resident(directory)?];
    for _ in 0..3 {
        for nth in 0..volumes {
            let name = format!("e2e/v{nth}");
            let mut client = Connection::open(server.address(), &name).context(&name)?;
            client.read_now(0, 4096).context(&name)?.map_err(|error| format!("{name}: error {error}"))?;
            client.close().context(&name)?;
        }
        sleep(REST);
        sizes.push(resident(directory)?);
    }
    let figure = |what: &str, value| Figure::new(format!("{volumes} volumes, {what}: MiB"), value, None);
    Ok(vec![
        figure("made", sizes[0]),
        figure("each read once", sizes[1]),
        figure("and again", sizes[2]),
        figure("and a third time", sizes[3]),
        Figure::new(
            "the third time beside the second: MiB more",
            (sizes[3] - sizes[2]).max(0.0),
            at_most(GROWTH_MIB_MAX),
        ),
    ])
}
