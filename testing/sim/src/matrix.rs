//! The fault matrix: one scenario for each fault that this engine can meet, over layouts and shard counts.
//!
//! A row says what fault it tries and what must hold (the letters of the failure model: D acknowledged data survives,
//! A checkpoint plus prefix, W right data or an error, R repaired within redundancy, L progress resumes, S
//! space adds up, H an error never becomes success). The scenarios are in [`crate::rows_disk`] and
//! [`crate::rows_pool`]; each returns how many cases it judged, or the first that failed. A row that does not apply to
//! a layout says so by its `applies`.

use crate::crash::{self, Plan};
use crate::harness::Failure;
use crate::lineage;
use crate::rows_acknowledged as acknowledged;
use crate::rows_cache as cache;
use crate::rows_combined as combined;
use crate::rows_damage as damage;
use crate::rows_disk as disk;
use crate::rows_faulty as faulty;
use crate::rows_heal as heal;
use crate::rows_hung as hung;
use crate::rows_import as import;
use crate::rows_limits;
use crate::rows_pool as pool;
use crate::rows_slow as slow;
use crate::setup::{LAYOUTS, Setup};
use forebay_pool::Layout;

/// What a scenario has shown.
#[derive(Clone, Copy, Default, Debug)]
pub struct Shown {
    /// Images or runs judged.
    pub cases: u64,
    /// Faults that struck.
    pub faults: u64,
    /// Blocks that the engine reported as damaged, and copies it repaired.
    pub errors: u64,
    pub repaired: u64,
}

impl std::ops::AddAssign for Shown {
    fn add_assign(&mut self, other: Shown) {
        self.cases += other.cases;
        self.faults += other.faults;
        self.errors += other.errors;
        self.repaired += other.repaired;
    }
}

/// One fault.
pub struct Row {
    pub name: &'static str,
    pub fault: &'static str,
    pub holds: &'static str,
    pub applies: fn(&Setup) -> bool,
    pub run: fn(&Setup) -> Result<Shown, Failure>,
    /// Whether the row would show nothing without a fault that struck.
    pub strikes: bool,
}

fn always(_: &Setup) -> bool {
    true
}
fn redundant(setup: &Setup) -> bool {
    setup.layout != Layout::Single
}
fn single(setup: &Setup) -> bool {
    setup.layout == Layout::Single
}

pub const ROWS: &[Row] = &[
    Row {
        name: "power-loss",
        fault: "power loss at any write or flush, any subset lost",
        holds: "D A W S",
        applies: always,
        run: power_loss,
        strikes: false,
    },
    Row {
        name: "power-loss-twice",
        fault: "a second crash during recovery",
        holds: "D A",
        applies: always,
        run: power_loss_twice,
        strikes: false,
    },
    Row {
        name: "policies",
        fault: "sync policies change under load, volumes are zeroed whole; power loss at any write or flush",
        holds: "D A W",
        applies: always,
        run: acknowledged::policies,
        strikes: false,
    },
    Row {
        name: "unrecorded",
        fault: "a disk fails, and the power before that is recorded; then others go, and it is back",
        holds: "D W, or refused",
        applies: redundant,
        run: acknowledged::unrecorded,
        strikes: false,
    },
    Row {
        name: "repair-fails",
        fault: "a disk rots, and fails the repairs",
        holds: "D W R",
        applies: redundant,
        run: acknowledged::repair_fails,
        strikes: false,
    },
    Row {
        name: "scrub-beside",
        fault: "a scrub walks many leaves while checkpoints are made",
        holds: "L",
        applies: always,
        run: acknowledged::scrubbed_beside_checkpoints,
        strikes: false,
    },
    Row {
        name: "torn",
        fault: "a write torn at each 512-byte cut",
        holds: "D A W",
        applies: always,
        run: disk::torn,
        strikes: false,
    },
    Row {
        name: "label-torn",
        fault: "one copy of a label damaged at each 512-byte cut",
        holds: "D W",
        applies: always,
        run: disk::label_torn,
        strikes: false,
    },
    Row {
        name: "lineage",
        fault: "power loss amid snapshots, clones, promotions, rollbacks, streams and deletions",
        holds: "D A W S",
        applies: always,
        run: lineage::lineage,
        strikes: false,
    },
    Row {
        name: "cache",
        fault: "a cache disk rots, lies, fails, vanishes, hangs; leaves and comes back",
        holds: "D A W H",
        applies: always,
        run: cache::faulty,
        strikes: true,
    },
    Row { name: "lost", fault: "lost writes", holds: "W R", applies: always, run: disk::lost, strikes: true },
    Row {
        name: "misdirected",
        fault: "misdirected writes, with their victims",
        holds: "W R",
        applies: always,
        run: disk::misdirected,
        strikes: true,
    },
    Row {
        name: "rot",
        fault: "rot: a bit, a sector, a page, on one disk",
        holds: "W R",
        applies: always,
        run: disk::rot,
        strikes: true,
    },
    Row {
        name: "rot-repaired",
        fault: "rot of a third of one disk: what reading meets is repaired there",
        holds: "W R",
        applies: redundant,
        run: disk::rot_repaired,
        strikes: true,
    },
    Row {
        name: "rot-same-place",
        fault: "rot at the same offset of several disks",
        holds: "W",
        applies: redundant,
        run: disk::rot_same_place,
        strikes: true,
    },
    Row {
        name: "rot-serving",
        fault: "rot while the pool is serving",
        holds: "W R",
        applies: always,
        run: disk::rot_serving,
        strikes: true,
    },
    Row {
        name: "unreadable",
        fault: "unreadable sectors",
        holds: "W R",
        applies: always,
        run: disk::unreadable,
        strikes: true,
    },
    Row {
        name: "lying-flush",
        fault: "a flush that lies",
        holds: "no silent mix",
        applies: always,
        run: disk::lying_flush,
        strikes: false,
    },
    Row {
        name: "slow",
        fault: "a device 100 times slower",
        holds: "L",
        applies: always,
        run: disk::slow,
        strikes: true,
    },
    Row {
        name: "hung",
        fault: "a device that hangs for a while",
        holds: "L",
        applies: always,
        run: disk::hung,
        strikes: true,
    },
    Row {
        name: "hedged",
        fault: "reads of one disk hang",
        holds: "L",
        applies: redundant,
        run: slow::hedged,
        strikes: true,
    },
    Row {
        name: "slow-rotten",
        fault: "one disk is slow, and another has rotted",
        holds: "W R",
        applies: redundant,
        run: slow::rotten,
        strikes: true,
    },
    Row {
        name: "slow-evicted",
        fault: "a disk stays 400 times slower than its peers, and is taken out",
        holds: "D L",
        applies: redundant,
        run: slow::evicted,
        strikes: false,
    },
    Row {
        name: "slow-passing",
        fault: "a disk is slow now and then",
        holds: "D L",
        applies: redundant,
        run: slow::passing,
        strikes: false,
    },
    Row {
        name: "slow-group",
        fault: "all disks are slow",
        holds: "L",
        applies: always,
        run: slow::all_slow,
        strikes: false,
    },
    Row {
        name: "hung-evicted",
        fault: "a disk hangs, is taken out, answers at last and comes back; power loss meanwhile; then further disks go",
        holds: "D A W L",
        applies: redundant,
        run: slow::hung,
        strikes: false,
    },
    Row {
        name: "hung-beyond",
        fault: "a disk hangs for 40 seconds that the pool cannot lose",
        holds: "D H L",
        applies: always,
        run: slow::hung_beyond,
        strikes: false,
    },
    Row {
        name: "hung-crowded",
        fault: "a disk of each of two groups hangs with all requests it may have, beside a pool on the same cores",
        holds: "D L",
        applies: redundant,
        run: hung::crowded,
        strikes: false,
    },
    Row {
        name: "unfit-evicted",
        fault: "a disk fails every other read, and is taken out; then further disks go",
        holds: "D W L",
        applies: redundant,
        run: faulty::evicted,
        strikes: false,
    },
    Row {
        name: "unfit-beyond",
        fault: "a disk fails reads that the pool cannot lose",
        holds: "D",
        applies: redundant,
        run: faulty::beyond,
        strikes: false,
    },
    Row {
        name: "bad-sector",
        fault: "one sector stays unreadable, whatever is written there",
        holds: "D R",
        applies: redundant,
        run: faulty::one_sector,
        strikes: true,
    },
    Row {
        name: "combined",
        fault: "as many disks at fault as the layout can lose, each in another way; power loss meanwhile; then others go",
        holds: "D A W R",
        applies: redundant,
        run: combined::tolerated,
        strikes: false,
    },
    Row {
        name: "gone-together",
        fault: "as many disks go as the layout can lose, one right after the other; power loss meanwhile, and they are back",
        holds: "D A W",
        applies: redundant,
        run: combined::together,
        strikes: false,
    },
    Row {
        name: "combined-beyond",
        fault: "as many disks go as the layout can lose, and one more is damaged or goes, while they are rebuilt",
        holds: "W H",
        applies: always,
        run: combined::beyond,
        strikes: false,
    },
    Row {
        name: "gone",
        fault: "a device that goes away and comes back stale",
        holds: "D W",
        applies: redundant,
        run: pool::gone_and_stale,
        strikes: false,
    },
    Row {
        name: "replaced",
        fault: "a disk goes and is replaced, or is replaced while it serves; power loss meanwhile; then further disks go",
        holds: "D A W",
        applies: redundant,
        run: heal::replaced,
        strikes: false,
    },
    Row {
        name: "spare-space",
        fault: "a disk of a wide group goes; what was on it is rebuilt on the others; then further disks go",
        holds: "D A W",
        applies: redundant,
        run: heal::spare_space,
        strikes: false,
    },
    Row {
        name: "returned",
        fault: "a disk goes and comes back stale while the pool serves; then further disks go",
        holds: "D A W",
        applies: redundant,
        run: heal::returned,
        strikes: false,
    },
    Row {
        name: "grown",
        fault: "a disk is added, another removed, under load; power loss meanwhile; then further disks go",
        holds: "D A W",
        applies: always,
        run: heal::grown,
        strikes: false,
    },
    Row {
        name: "group-added",
        fault: "a second group of disks joins under load; power loss meanwhile; then disks of both groups go at once",
        holds: "D A W",
        applies: always,
        run: heal::group_added,
        strikes: true,
    },
    Row {
        name: "group-removed",
        fault: "a group leaves under load, the first, the second or the log's; power loss meanwhile; then disks of the others go",
        holds: "D A W",
        applies: always,
        run: heal::group_removed,
        strikes: false,
    },
    Row {
        name: "scrubbed",
        fault: "rot of two thirds of one disk, which may be slow, or unreadable sectors; a scrub under load puts them right; then further disks go",
        holds: "D W R",
        applies: redundant,
        run: heal::scrubbed,
        strikes: true,
    },
    Row {
        name: "damaged",
        fault: "blocks rot on every disk that has them; a scrub finds them, a restart forgets none, and writing them anew ends it",
        holds: "W",
        applies: damage::can_lose,
        run: damage::damaged,
        strikes: true,
    },
    Row {
        name: "taken-back",
        fault: "what a disk has that was out rots on all others; a scrub finds that, and the disk is taken back",
        holds: "W R",
        applies: damage::has_copies,
        run: damage::taken_back,
        strikes: true,
    },
    Row {
        name: "trimmed",
        fault: "free space is discarded under load, and reads as zeros, as before or as garbage; power loss meanwhile",
        holds: "D A",
        applies: always,
        run: heal::trimmed,
        strikes: true,
    },
    Row {
        name: "enclosure",
        fault: "any one of six enclosures goes, with two disks",
        holds: "D W",
        applies: redundant,
        run: heal::enclosure,
        strikes: true,
    },
    Row {
        name: "gone-single",
        fault: "the only device goes away and comes back",
        holds: "D H",
        applies: single,
        run: pool::gone_single,
        strikes: false,
    },
    Row {
        name: "wrong-disk",
        fault: "wrong or duplicate device at import",
        holds: "refused, nothing written",
        applies: always,
        run: pool::wrong_disk,
        strikes: false,
    },
    Row {
        name: "read-only",
        fault: "power loss, then an import that must not write, also without a disk; then a usual one",
        holds: "D A W, nothing written",
        applies: always,
        run: import::read_only,
        strikes: false,
    },
    Row {
        name: "another-host",
        fault: "power loss, then an import by another machine, unasked and forced",
        holds: "refused, nothing written; D A",
        applies: always,
        run: import::another_host,
        strikes: false,
    },
    Row {
        name: "rescued",
        fault: "more devices missing than the layout can lose; a forced import that must not write",
        holds: "refused, nothing written; W",
        applies: always,
        run: import::rescued,
        strikes: false,
    },
    Row {
        name: "log-lost",
        fault: "the end of the log lost on all devices; a forced import",
        holds: "refused, nothing written; W, D from then on",
        applies: always,
        run: import::log_lost,
        strikes: true,
    },
    Row {
        name: "log-gap",
        fault: "a frame in the middle of the log lost on all devices",
        holds: "refused, or D A W",
        applies: always,
        run: import::log_gap,
        strikes: true,
    },
    Row {
        name: "no-space",
        fault: "no space left in the pool",
        holds: "H S",
        applies: always,
        run: pool::no_space,
        strikes: true,
    },
    Row {
        name: "reserved",
        fault: "no space left but what is reserved; snapshots of reserved volumes, and a crash there",
        holds: "D H L S",
        applies: always,
        run: pool::reserved,
        strikes: true,
    },
    Row {
        name: "limits",
        fault: "as many datasets as there may be, then no space, with tables of many levels; a crash there",
        holds: "D H S, never suspended",
        applies: always,
        run: rows_limits::limits,
        strikes: true,
    },
    Row {
        name: "scattered",
        fault: "free space in holes of every chunk; power loss while chunks are evacuated",
        holds: "D A L S",
        applies: always,
        run: pool::scattered,
        strikes: false,
    },
    Row {
        name: "gathered",
        fault: "free space in holes of every chunk; power loss while blocks are moved together",
        holds: "D A L S",
        applies: always,
        run: pool::gathered,
        strikes: false,
    },
    Row {
        name: "write-error",
        fault: "I/O error, or no room under the file, at the n-th write",
        holds: "D H",
        applies: always,
        run: disk::write_error,
        strikes: true,
    },
    Row {
        name: "flush-error",
        fault: "I/O error at the n-th flush",
        holds: "D H",
        applies: always,
        run: disk::flush_error,
        strikes: true,
    },
    Row {
        name: "read-error",
        fault: "I/O error at the n-th read, in half of the cases with no redundancy left",
        holds: "W H",
        applies: always,
        run: disk::read_error,
        strikes: true,
    },
    Row {
        name: "clock",
        fault: "wall time jumps ten years either way",
        holds: "D L",
        applies: always,
        run: pool::clock,
        strikes: false,
    },
];

/// The setups that the matrix runs a row over: each layout, each shard count, with and without log disks; of so many operations,
/// or few of them.
pub fn setups(seed: u64, operations: Option<u64>) -> Vec<Setup> {
    let mut setups = Vec::new();
    for layout in LAYOUTS {
        for shards in [1, 2, 4] {
            let mut setup = Setup::from_seed(seed.wrapping_add(setups.len() as u64));
            // Log disks with every other shard count, one at a time and mirrored.
            setup.log_disks = [0, 0, 1, 0, 2][setups.len() % 5];
            setup.groups = if shards == 2 { 2 } else { 1 };
            (setup.layout, setup.shards) = (layout, shards);
            setup.operations = operations.unwrap_or(setup.operations.min(120));
            setups.push(setup);
        }
    }
    setups
}

/// Every row with one setup of each of these seeds, which differ from row to row and from seed to seed.
pub fn sample(seeds: impl IntoIterator<Item = u64>, operations: Option<u64>) -> Vec<(usize, Setup)> {
    let mut sample = Vec::new();
    for seed in seeds {
        let setups = setups(seed, operations);
        for (row, known) in ROWS.iter().enumerate() {
            let applicable: Vec<&Setup> = setups.iter().filter(|setup| (known.applies)(setup)).collect();
            let nth = (seed as usize).wrapping_add(row) % applicable.len().max(1);
            sample.extend(applicable.get(nth).map(|setup| (row, (*setup).clone())));
        }
    }
    sample
}

fn explored(setup: &Setup, plan: Plan) -> Result<Shown, Failure> {
    let run = crash::record(setup)?;
    match crash::explore(&run, plan, None) {
        Ok(cases) => Ok(Shown { cases, ..Shown::default() }),
        Err(found) => Err(found.failure.because(&found.story)),
    }
}

fn power_loss(setup: &Setup) -> Result<Shown, Failure> {
    explored(setup, Plan { images: 300, ..Plan::default() })
}

fn power_loss_twice(setup: &Setup) -> Result<Shown, Failure> {
    explored(setup, Plan { images: 120, per_moment: 4, second_crash_one_in: 1, ..Plan::default() })
}
