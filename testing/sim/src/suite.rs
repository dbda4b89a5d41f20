//! The planted-bug suite: every mistake in [`forebay_base::planted`] must be caught, or the harness proves nothing.
//!
//! A bug is planted, then hunted with what `sim crash` and `sim matrix` do, in the order in which they are likely to meet
//! it, until something fails or the bound is reached. What fails is tried again without the bug, and counts only if
//! it then passes. A bug whose site was never reached was not tried: that is a failure of the suite too.

use crate::crash::{self, Plan};
use crate::harness::Failure;
use crate::matrix::ROWS;
use crate::setup::Setup;
use forebay_base::planted::{self, Bug};
use forebay_pool::{Layout, SyncPolicy};

/// How a bug was caught.
#[derive(Clone, Debug)]
pub struct Caught {
    /// What caught it: `crash` or the matrix row.
    pub by: String,
    pub failure: Failure,
    /// Images and runs judged until then.
    pub cases: u64,
}

/// What became of one bug.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub caught: Option<Caught>,
    /// Images and runs judged in all.
    pub cases: u64,
    /// 0 when the site of the mistake was never reached.
    pub met: u64,
}

/// Mistakes that matter for a moment which tests of the pool bring about, and catch them: while a block is the oldest in the log and has come in two parts
/// (`parts.rs`), while a checkpoint has forgotten a leaf and is not durable yet (`acknowledged.rs`); or which a seed that is known brings about (a write that
/// is under way when a scrub closes its chunk; the tests of this crate).
const ELSEWHERE: [Bug; 5] = [
    Bug::PartsForgetOlderFrame,
    Bug::HolesTakenForDurable,
    Bug::ScrubPassesOver,
    Bug::ReplacedMovesAlong,
    Bug::VerifiesAmidPlug,
];

/// Those that are to be caught here.
pub fn all() -> Vec<Bug> {
    Bug::ALL.into_iter().filter(|bug| !ELSEWHERE.contains(bug)).collect()
}

/// Seeds that crash exploration tries for each bug.
const SEEDS: u64 = 24;
/// Seeds that rows try which are asked first, and others.
const SEEDS_FIRST: u64 = 10;
/// The first, for a mistake that shows in a moment between two failures.
const SEEDS_RARE: u64 = 120;
const SEEDS_OTHER: u64 = 4;
/// Images of one seed.
const IMAGES: u64 = 150;

/// Rows that are asked before crash exploration, for bugs that show without a crash or need a fault to show.
fn rows_first(bug: Bug) -> &'static [&'static str] {
    match bug {
        Bug::MissingNodeChecksumCheck => &["rot", "misdirected", "lost"],
        Bug::MissingChecksumCheck => &["rot-serving", "rot", "unreadable"],
        Bug::MirrorWritesOneCopy => &["gone", "rot", "unreadable"],
        Bug::RepairWritesWrongCopy => &["rot-repaired"],
        Bug::FlashUnchecked | Bug::FlashAwaited => &["cache"],
        Bug::CheckpointTakesTurns => &["hung-beyond"],
        Bug::FlushForgetsFailedDisk => &["unrecorded"],
        Bug::RepairErrorIgnored | Bug::RunsLeaveBadCopies => &["repair-fails"],
        Bug::ScrubHoldsThroughout => &["scrub-beside"],
        Bug::CatalogLeafForgotten
        | Bug::ChunkEntryStale
        | Bug::EntryCountsStale
        | Bug::TableWithoutMiddle => &["limits", "power-loss"],
        Bug::RegistryLeafForgotten | Bug::RegistryNotReplayed => &["limits", "power-loss"],
        Bug::TableHomeStale => &["replaced", "grown", "group-removed"],
        Bug::LostRestBecomesZeros => &["rot-serving", "unreadable"],
        Bug::RestLookedForOnce | Bug::CheckpointLooksOnce => &["read-error"],
        Bug::StaleDiskAccepted => &["gone"],
        Bug::WriteErrorIgnored => &["write-error"],
        Bug::FlushErrorIgnored => &["flush-error"],
        Bug::UnreadableReadsAsZeros => &["rot-serving", "unreadable", "read-error"],
        Bug::EvacuatesLockedBlocks | Bug::PlugNotReplayed => &["scattered"],
        Bug::MovedBlockForgetsKind => &["group-removed", "scattered"],
        Bug::ParityNotUpdated => &["gone", "rot", "lineage"],
        Bug::ParityWrongRotation => &["gone", "rot"],
        Bug::DegradedReadUnchecked => &["rot-same-place", "gone"],
        Bug::ResilverMissesChunk => &["returned"],
        Bug::LossForgotten | Bug::DamageOutlivesItsBlock => &["damaged"],
        Bug::ResilverCopiesLost => &["taken-back"],
        Bug::GapEndsLog => &["log-gap"],
        Bug::ScrubOnlyLooks | Bug::ScrubLeavesUnread | Bug::ScrubAvoidsLate => &["scrubbed"],
        Bug::JoiningDisksDecide => &["group-added"],
        Bug::TrimsOpenChunk => &["trimmed"],
        Bug::FailureNotRecorded => &["hung-evicted", "gone"],
        Bug::HedgeUnchecked => &["slow-rotten"],
        Bug::HungDiskTakesAll | Bug::EvictsOneByOne => &["hung-crowded"],
        Bug::EvictsBeyondTolerance => &["unfit-beyond", "hung-beyond"],
        Bug::ReadOnlyImportWrites => &["read-only"],
        Bug::CutStaysBehindLog => &["log-lost"],
        Bug::ForeignHostIgnored => &["another-host"],
        Bug::GroupLeavesEarly | Bug::LogMovesWithoutFrames => &["group-removed"],
        Bug::ErrorsToldAgain => &["unfit-evicted"],
        Bug::SamePlaceCountsAgain => &["bad-sector"],
        Bug::WrongCountsAsUnreadable => &["scrubbed"],
        Bug::FailureCountsAsRecorded => &["gone-together"],
        Bug::SnapshotWithoutHold
        | Bug::SnapshotSharesNothing
        | Bug::SnapshotKeepsEpoch
        | Bug::DeletionIgnoresParent
        | Bug::ScrubForgetsSnapshots
        | Bug::SendForgetsHoles
        | Bug::SendPrunesByBirth
        | Bug::BookmarkForgetsRollback
        | Bug::DeletionForgetsCursor
        | Bug::RestNotGivenToChild
        | Bug::RenameNotReplayed => &["lineage"],
        Bug::ReservationNotHeld | Bug::SnapshotReservesNothing => &["reserved"],
        Bug::CopiesOpenChunk | Bug::MovedSlotReusedEarly => &["grown", "replaced"],
        _ => &[],
    }
}

/// Layouts with parity that have room for what goes wrong, and for two losses.
const PARITY: [Layout; 2] = [Layout::Parity { data: 2, parity: 1 }, Layout::Parity { data: 3, parity: 2 }];

/// Whether only pools with parity can meet the bug.
fn is_of_parity(bug: Bug) -> bool {
    matches!(
        bug,
        Bug::ParityNotRestored
            | Bug::PlugNotReplayed
            | Bug::ParityNotUpdated
            | Bug::ParityWrongRotation
            | Bug::DegradedReadUnchecked
            | Bug::ScrubLeavesUnread
            | Bug::ScrubAvoidsLate
            | Bug::FailureCountsAsRecorded
            | Bug::HedgeUnchecked
    )
}

/// Changes to the drawn setups that make a bug likely to matter.
fn shaped(bug: Bug, mut setup: Setup) -> Setup {
    match bug {
        // These concern volumes whose clients ask for durability themselves.
        Bug::FuaIgnored => setup.sync = Some(SyncPolicy::Standard),
        Bug::RegistryLeafForgotten | Bug::RegistryNotReplayed => setup.registry = true,
        Bug::RenameNotReplayed => setup.renames = true,
        Bug::ResizeNotLogged | Bug::CatalogBeforeTree => setup.management = true,
        Bug::SkipLogFlush | Bug::SkipDataFlush | Bug::AckBeforeFlush | Bug::ReplaySkipsLastFrame => {
            setup.sync = Some(SyncPolicy::Always);
        }
        // Parts are of who is alone with a durable write, and matter while they wait for their places.
        Bug::LostRestBecomesZeros => {
            (setup.clients, setup.operations, setup.sync) = (1, 400, Some(SyncPolicy::Always));
        }
        // Laps of the log and reuse of space need many operations.
        Bug::ReplayIgnoresChain | Bug::LogCutTooFar | Bug::FreeReleasedEarly | Bug::SameAlternateSlot => {
            setup.operations = 400;
            setup.log_kib = 256;
        }
        // A node of the table stays as it is, while the chunk that it is in moves, where there are many.
        Bug::TableHomeStale => setup.table_records = 5,
        Bug::ParityNotRestored | Bug::PlugNotReplayed => setup.clients = 8,
        Bug::CheckpointTakesTurns => setup.strict_turns = true,
        // The log is in the group that leaves, and frames are written while it moves.
        Bug::LogMovesWithoutFrames => (setup.log_disks, setup.operations) = (0, 400),
        _ => {}
    }
    if is_of_parity(bug) {
        setup.layout = PARITY[setup.seed as usize % 2];
    }
    setup
}

/// Plants `bug` on this thread and hunts it.
pub fn hunt(bug: Bug) -> Verdict {
    let mut cases = 0;
    let verdict = |caught: Option<Caught>, cases: u64| {
        let met = if caught.is_some() { 1 } else { planted::times_met() };
        planted::plant(None);
        Verdict { caught, cases, met }
    };
    planted::plant(Some(bug));
    let first = rows_first(bug);
    for name in first {
        let is_rare = matches!(bug, Bug::FailureCountsAsRecorded | Bug::TableHomeStale);
        let seeds = if is_rare { SEEDS_RARE } else { SEEDS_FIRST };
        if let Some(caught) = hunt_by_row(bug, name, seeds, &mut cases) {
            return verdict(Some(caught), cases);
        }
    }
    for seed in 0..SEEDS {
        let setup = shaped(bug, Setup::from_seed(seed));
        let caught = |failure: Failure, cases: u64| {
            Some(Caught { by: format!("crash {}", setup.options()), failure, cases })
        };
        match hunt_by_crash(&setup) {
            Ok(images) => cases += images,
            Err((failure, images)) => {
                cases += images;
                if is_innocent(bug, || hunt_by_crash(&setup).is_ok()) {
                    return verdict(caught(failure, cases), cases);
                }
            }
        }
    }
    for row in ROWS.iter().filter(|row| !first.contains(&row.name) && !row.name.starts_with("power-loss")) {
        if let Some(caught) = hunt_by_row(bug, row.name, SEEDS_OTHER, &mut cases) {
            return verdict(Some(caught), cases);
        }
    }
    verdict(None, cases)
}

/// Whether the engine without the bug passes what it failed with it: otherwise the failure is somebody else's.
fn is_innocent(bug: Bug, passes: impl FnOnce() -> bool) -> bool {
    planted::plant(None);
    let innocent = passes();
    planted::plant(Some(bug));
    innocent
}

/// Explores one seed; a failure comes with the images it took.
fn hunt_by_crash(setup: &Setup) -> Result<u64, (Failure, u64)> {
    let run = crash::record(setup).map_err(|failure| (failure, 1))?;
    crash::explore(&run, Plan { images: IMAGES, ..Plan::default() }, None)
        .map_err(|found| (found.failure, found.image.unwrap_or(0) + 1))
}

fn hunt_by_row(bug: Bug, name: &str, seeds: u64, cases: &mut u64) -> Option<Caught> {
    let row = ROWS.iter().find(|row| row.name == name).expect("the suite names rows that exist");
    for seed in 0..seeds {
        for layout in if is_of_parity(bug) { PARITY } else { [Layout::Mirror, Layout::Single] } {
            let setup = Setup { layout, ..shaped(bug, Setup::from_seed(seed)) };
            if !(row.applies)(&setup) {
                continue;
            }
            match (row.run)(&setup) {
                Ok(shown) => *cases += shown.cases,
                Err(failure) => {
                    *cases += 1;
                    if is_innocent(bug, || (row.run)(&setup).is_ok()) {
                        let by = format!("{name} {}", setup.options());
                        return Some(Caught { by, failure, cases: *cases });
                    }
                }
            }
        }
    }
    None
}
