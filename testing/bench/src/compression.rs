//! `forebay-bench --compression`: what each kind of compression saves on this machine's own files, and what it costs.
//!
//! Three kinds of data: programs and libraries, text, and a database (SQLite's, of all files that were met, with an index). Files begin at
//! multiples of 4 KiB, as on a file system, and are cut into blocks. What is stored counts in whole allocation units, zeros as
//! nothing, as a pool does. Kinds take turns, round by round; medians of MB per second of the thread's processor time are told, and processor
//! seconds per GB. All that is packed is unpacked, and held against what it was.

use crate::measure::{Median, thread_seconds};
use forebay_compress::{Codec, Compression};
use forebay_e2e::host::{Context, Directory, Outcome};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PLACES: [&str; 4] = ["/usr/bin", "/usr/lib", "/usr/share", "/usr/include"];
const FILE_BYTES_MAX: u64 = 4 << 20;
const UNIT: usize = 4096;
const BLOCKS: [usize; 2] = [8 << 10, 128 << 10];
const KINDS: [Compression; 9] = [
    Compression::Lz4,
    Compression::Lzjb,
    Compression::Gzip(1),
    Compression::Gzip(6),
    Compression::Gzip(9),
    Compression::Zstd(1),
    Compression::Zstd(3),
    Compression::Zstd(9),
    Compression::Zstd(19),
];

/// How much is measured.
struct Scale {
    /// Bytes of each kind of data.
    sample: usize,
    /// Rows of the database.
    rows: usize,
    rounds: usize,
    /// Bytes that one turn packs at most: the slowest kinds pack some MB in a second.
    turn: usize,
}

const FULL: Scale = Scale { sample: 64 << 20, rows: 200_000, rounds: 5, turn: 8 << 20 };
const QUICK: Scale = Scale { sample: 2 << 20, rows: 2_000, rounds: 1, turn: 1 << 20 };

/// Files of one kind, one after the other.
struct Sample {
    name: &'static str,
    bytes: Vec<u8>,
}

impl Sample {
    fn add(&mut self, file: &[u8], most: usize) {
        if self.bytes.len() + file.len() <= most {
            self.bytes.extend_from_slice(file);
            self.bytes.resize(self.bytes.len().next_multiple_of(UNIT), 0);
        }
    }
}

pub fn run(quick: bool) -> Outcome {
    let scale = if quick { QUICK } else { FULL };
    for sample in samples(&scale)? {
        println!("\n{}, {} MB", sample.name, sample.bytes.len() / 1_000_000);
        println!("| block | compression | ratio | packs MB/s | unpacks MB/s | packs s/GB | unpacks s/GB |");
        println!("|---|---|---|---|---|---|---|");
        for block in BLOCKS {
            table(&sample, block, &scale)?;
        }
    }
    Ok(())
}

/// Seconds of one turn over some blocks.
struct Turn {
    bytes: usize,
    stored: usize,
    /// Bytes of the blocks that are stored smaller: only these are unpacked.
    packed: usize,
    packing: f64,
    unpacking: f64,
}

fn table(sample: &Sample, block: usize, scale: &Scale) -> Outcome {
    let blocks: Vec<&[u8]> = sample.bytes.chunks_exact(block).collect();
    if blocks.is_empty() {
        return Err(format!("this machine has no block of {block} bytes of {}", sample.name));
    }
    let count = (scale.turn / block).clamp(1, blocks.len());
    let mut codec = Codec::default();
    let mut turns: Vec<Vec<Turn>> = KINDS.iter().map(|_| Vec::new()).collect();
    for round in 0..scale.rounds {
        // Other blocks in each round, the same for all kinds, from all over the sample.
        let step = blocks.len() / count;
        let some: Vec<&[u8]> =
            (0..count).map(|nth| blocks[(nth * step + round * step / scale.rounds) % blocks.len()]).collect();
        for (kind, turns) in KINDS.iter().zip(&mut turns) {
            turns.push(turn(&mut codec, *kind, &some)?);
        }
    }
    for (kind, turns) in KINDS.iter().zip(&turns) {
        let sum = |what: fn(&Turn) -> usize| turns.iter().map(what).sum::<usize>() as f64;
        let median = |rate: fn(&Turn) -> f64| Median::of(turns.iter().map(rate)).value / 1e6;
        let packs = median(|turn| turn.bytes as f64 / turn.packing);
        let unpacks = median(|turn| turn.packed as f64 / turn.unpacking);
        println!(
            "| {} KiB | {kind} | {:.2} | {packs:.0} | {unpacks:.0} | {:.2} | {:.2} |",
            block >> 10,
            sum(|turn| turn.bytes) / sum(|turn| turn.stored).max(1.0),
            1000.0 / packs,
            1000.0 / unpacks,
        );
    }
    Ok(())
}

fn turn(codec: &mut Codec, kind: Compression, blocks: &[&[u8]]) -> Outcome<Turn> {
    let mut turn = Turn { bytes: 0, stored: 0, packed: 0, packing: 0.0, unpacking: 0.0 };
    let mut whole = vec![0; blocks[0].len()];
    for block in blocks {
        turn.bytes += block.len();
        // The pool never stores these.
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        let start = thread_seconds();
        let packed = codec.pack(kind, block);
        let packed = packed.map(|(code, stored)| (code, stored.to_vec()));
        turn.packing += thread_seconds() - start;
        let Some((code, stored)) = packed else {
            turn.stored += block.len();
            continue;
        };
        turn.stored += stored.len();
        turn.packed += block.len();
        let start = thread_seconds();
        let unpacked = codec.unpack(code as u8, &stored, &mut whole);
        turn.unpacking += thread_seconds() - start;
        if unpacked.is_err() || whole != *block {
            return Err(format!("{kind} does not give a block back"));
        }
    }
    Ok(turn)
}

/// What of each kind this machine has.
fn samples(scale: &Scale) -> Outcome<[Sample; 3]> {
    let mut programs = Sample { name: "programs and libraries", bytes: Vec::new() };
    let mut text = Sample { name: "text", bytes: Vec::new() };
    let mut statements = String::from(
        "PRAGMA journal_mode=OFF; BEGIN; CREATE TABLE file (id INTEGER PRIMARY KEY, path TEXT, bytes INTEGER, changed INTEGER);\n",
    );
    let mut rows = 0;
    let mut folders: Vec<PathBuf> = PLACES.iter().rev().map(PathBuf::from).collect();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let Ok(known) = path.symlink_metadata() else { continue };
            if known.is_dir() {
                folders.push(path);
                continue;
            }
            if rows < scale.rows {
                rows += 1;
                let name = path.to_string_lossy().replace('\'', "''");
                let changed =
                    known.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
                let (bytes, changed) = (known.len(), changed.map_or(0, |since| since.as_secs()));
                let _ = writeln!(
                    statements,
                    "INSERT INTO file (path, bytes, changed) VALUES ('{name}', {bytes}, {changed});"
                );
            }
            if known.is_file() && (UNIT as u64..FILE_BYTES_MAX).contains(&known.len()) {
                let Ok(bytes) = std::fs::read(&path) else { continue };
                if bytes.starts_with(b"\x7fELF") {
                    programs.add(&bytes, scale.sample);
                } else if std::str::from_utf8(&bytes).is_ok() && !bytes.contains(&0) {
                    text.add(&bytes, scale.sample);
                }
            }
        }
    }
    statements.push_str(
        "CREATE INDEX by_path ON file (path); CREATE INDEX by_time ON file (changed, bytes); COMMIT;\n",
    );
    let directory = Directory::new("compression")?;
    let path = directory.path().join("files.db");
    let database = Sample { name: "a database of SQLite", bytes: database(&path, &statements)? };
    Ok([programs, text, database])
}

fn database(path: &Path, statements: &str) -> Outcome<Vec<u8>> {
    let what = "making a database with sqlite3 (Debian package sqlite3)";
    let mut sqlite = Command::new("sqlite3")
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context(what)?;
    let mut input = sqlite.stdin.take().expect("it is piped");
    input.write_all(statements.as_bytes()).context(what)?;
    drop(input);
    if !sqlite.wait().context(what)?.success() {
        return Err(format!("{what} failed"));
    }
    std::fs::read(path).context("reading the database")
}
