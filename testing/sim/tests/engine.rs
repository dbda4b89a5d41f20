//! Goal: the engine survives what the simulator does to it, the simulator repeats itself, and it sees what is wrong.
//! Method: a few seeds of what `sim` does at length; failures name the command that replays them.

use forebay_base::planted::{Bug, plant, times_met};
use forebay_pool::Layout;
use forebay_sim::crash::{self, Plan};
use forebay_sim::harness::Failure;
use forebay_sim::matrix::{self, ROWS};
use forebay_sim::setup::Setup;
use forebay_sim::suite;

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..3 {
        let run = || {
            crash::record(&Setup::from_seed(seed)).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"))
        };
        let (first, second) = (run(), run());
        assert_eq!(
            first.trace, second.trace,
            "seed {seed} gave two traces: something outside the seed leaked in"
        );
        assert_eq!(first.recording.events.len(), second.recording.events.len());
    }
    let other = crash::record(&Setup { seed: 99, ..Setup::from_seed(0) }).expect("no fault");
    assert_ne!(other.trace, crash::record(&Setup::from_seed(0)).expect("no fault").trace);
}

#[test]
fn crash_images_recover() {
    for seed in 1000..1006 {
        let setup = Setup::from_seed(seed);
        let run = crash::record(&setup).unwrap_or_else(|failure| panic!("{}: {failure}", setup.options()));
        if let Err(found) = crash::explore(&run, Plan { images: 60, ..Plan::default() }, None) {
            let image = found.image.unwrap_or(0);
            panic!(
                "{}\nreplay {} --per-seed 60 --image {image}\n{}",
                found.failure,
                setup.options(),
                found.story
            );
        }
    }
}

#[test]
fn each_row_of_the_matrix_holds_for_one_setup() {
    let setups = matrix::setups(7, None);
    for (index, row) in ROWS.iter().enumerate() {
        // Another setup for each row; the whole product is `sim matrix`.
        let mut applicable = setups.iter().filter(|setup| (row.applies)(setup));
        let count = applicable.clone().count();
        let setup = applicable.nth(index % count).expect("every row applies to some setup");
        if let Err(failure) = (row.run)(setup) {
            panic!("{}: {failure}\nreplay {} --row {}", row.name, setup.options(), row.name);
        }
    }
}

/// Setups in which writers once waited for space with their blocks locked and room in the log claimed, while who was to make space wanted both: the
/// pool stood still for ever, or a reserved volume's write found no space.
#[test]
fn who_waits_for_space_holds_nothing() {
    let row = ROWS.iter().find(|row| row.name == "reserved").expect("a row");
    let parity = Layout::Parity { data: 2, parity: 1 };
    let drawn = |seed| Setup { registry: false, ..Setup::from_seed(seed) };
    let on_parity = [51, 44, 54].map(|seed| Setup { layout: parity, ..drawn(seed) });
    let mirrored = Setup { layout: Layout::Mirror, log_disks: 2, shards: 2, ..drawn(4) };
    for setup in on_parity.into_iter().chain([mirrored]) {
        (row.run)(&setup)
            .unwrap_or_else(|failure| panic!("{failure}\nreplay {} --row reserved", setup.options()));
    }
}

/// Replays that failed when seeds were fresh, and why.
const FOUND_BY_FRESH_SEEDS: [&str; 27] = [
    // While a pool was exported, two tasks moved what is in the log, and one gave a block another place that the other was writing to its old one.
    "--seed 910005 --layout mirror --shards 4 --operations 120 --row power-loss-twice",
    "--seed 910006 --layout mirror3 --log-disks 0 --shards 1 --operations 120 --row grown",
    // The row took a pool for healed before it had noticed that a disk is gone, and the scrub after that passed over the parity of its chunks.
    "--seed 950013 --groups 2 --log-disks 0 --shards 2 --operations 120 --row combined",
    // Where one sector did not read, all around it was taken from other disks, rot included.
    "--seed 80001017 --layout 2+3 --log-disks 1 --operations 120 --row combined",
    // The row let rot what was in its place and in no tree yet.
    "--seed 411000003 --layout mirror --row scrubbed",
    // A discard overlooked a write that got to the tree while a node behind it was read.
    "--seed 421000003 --shards 1 --operations 120 --row returned",
    // A snapshot waited for changes that waited for a checkpoint, which waited for the snapshot.
    "--seed 83000008 --layout mirror3 --shards 4 --row lineage",
    "--seed 76100008 --shards 4 --operations 120 --row lineage",
    // The row asked what had been rebuilt before the pool had noticed that a disk is gone.
    "--seed 490782402004 --log-disks 2 --row spare-space",
    // A group with too few disks moved its log to those that it had, until no place was left for nodes.
    "--seed 611000011 --layout 2+1 --log-disks 0 --row lineage",
    // Large writes without space waited for what each other held, and kept a group from leaving.
    "--seed 613000015 --layout 2+3 --operations 120 --row group-removed",
    // Of two who read a node at once, the one that met the bad copy left it as it was.
    "--seed 614001008 --layout mirror3 --log-disks 0 --row repair-fails",
    "--seed 615003008 --shards 4 --row repair-fails",
    // What was said to be durable stood in the header of a frame of which no more had got to a disk.
    "--seed 615002004 --groups 2 --log-disks 2 --row log-gap",
    // Lines were left in a group only whose lines are longer than what was written.
    "--seed 615001015 --layout 2+3 --shards 1 --operations 120 --row no-space",
    // The row had a disk back for the last look, without which a scrub had not been able to tell which parity is right.
    "--seed 617000012 --layout 3+2 --log-disks 1 --shards 1 --row combined",
    // A chunk that had been emptied was granted again while it still counted as closed: the log filled with grants of chunks that could not be used.
    "--seed 619002016 --layout 2+3 --log-disks 0 --shards 2 --row reserved",
    // A disk failed one read of what stood beside a small write that moved from the log to its place: it was given up.
    "--seed 622000002 --layout single --groups 1 --operations 120 --row read-error",
    PASSED_OVER,
    // A write was refused for want of space while another shard was deleting what had filled the pool.
    "--seed 751000002 --layout single --groups 1 --log-disks 1 --row no-space",
    // The row could not tell whether a rollback had been done when the power failed, since the volume held the same before.
    "--seed 831004012 --log-disks 1 --shards 1 --row lineage",
    // The row had a disk back before the pool had noticed that it was gone.
    "--seed 831006014 --log-disks 2 --shards 4 --row returned",
    // The row took one look at a chunk that clients kept busy for an answer.
    "--seed 851002012 --log-disks 1 --operations 120 --row grown",
    // A disk that lied about a flush had lost the project of a volume on another shard, and the row asked for its policy.
    "--seed 851003002 --layout single --log-disks 1 --shards 4 --operations 120 --row lying-flush",
    MOVED_ALONG,
    // The row did not know that the rest of a block can be lost by a checkpoint that fails, too.
    "--seed 874000000 --layout single --row lying-flush",
    AMID_PLUG,
];

/// A plug was half done when the power failed, and blocks that an earlier one had put into the same lines were verified before it was completed: without
/// two disks they seemed lost, and with their frame went the end of the log.
const AMID_PLUG: &str = "--seed 892000013 --layout 3+2 --groups 2 --shards 2 --row group-added";

/// A block that was overwritten while the pool waited with it locked moved along with those of the line that it had left.
const MOVED_ALONG: &str = "--seed 851005014 --layout 3+2 --groups 1 --log-disks 2 --shards 4 --row scattered";

/// A scrub passed over the parity of chunks to which something was on its way when it closed them.
const PASSED_OVER: &str = "--seed 908366560015 --layout 2+3 --operations 120 --row scrubbed";

fn replay(options: &str) -> Result<(), Failure> {
    let words: Vec<&str> = options.split(' ').collect();
    let option = |pair: &[&str]| (pair[0].trim_start_matches('-').to_string(), pair[1].to_string());
    let drawn = Setup::from_seed(words[1].parse().expect("the seed comes first"));
    // Changes of the registry and of names would take the place of what was met then; where they are meant, the options say so.
    let (mut setup, mut row) = (Setup { registry: false, renames: false, ..drawn }, None);
    for (name, value) in words[2..].chunks(2).map(option) {
        match &name[..] {
            "row" => row = ROWS.iter().find(|row| row.name == value),
            _ => assert_eq!(setup.set(&name, &value), Ok(true), "--{name} {value}"),
        }
    }
    (row.expect("each names a row").run)(&setup).map(drop)
}

#[test]
fn what_fresh_seeds_found_is_mended() {
    for options in FOUND_BY_FRESH_SEEDS {
        replay(options).unwrap_or_else(|failure| panic!("{failure}\nreplay {options}"));
    }
}

/// One test at a time, since what is planted holds for all.
#[test]
fn what_only_these_seeds_meet_is_caught() {
    let caught = [
        (Bug::ScrubPassesOver, PASSED_OVER),
        (Bug::ReplacedMovesAlong, MOVED_ALONG),
        (Bug::VerifiesAmidPlug, AMID_PLUG),
    ];
    for (bug, options) in caught {
        plant(Some(bug));
        let (replayed, met) = (replay(options), times_met());
        plant(None);
        assert!(replayed.is_err() && met > 0, "{bug:?} was met {met} times and nobody noticed");
    }
}

#[test]
fn a_planted_bug_is_caught() {
    for bug in [Bug::SkipLogFlush, Bug::PartialBlockZeroed] {
        assert!(suite::hunt(bug).caught.is_some(), "{bug:?} was planted and nobody noticed");
    }
}
