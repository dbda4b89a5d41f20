//! Planted bugs: known mistakes that the simulator must catch, compiled in only with the feature `planted`.
//!
//! A harness that finds nothing proves nothing until it has been seen to find something. Each [`Bug`] is a
//! mistake that a storage engine's author could make; the site of the mistake asks [`active`], the suite plants one
//! after the other and fails when one survives. Without the feature `active` is a constant `false` and the
//! compiler removes the site.
//!
//! The planted bug belongs to a thread, as a simulated world does: two worlds on two threads carry different bugs.
//!
//! [`has_strict_turns`] is no mistake, but passes in the same way: it takes away what would hide one. So does [`table_shape`]: no simulated pool is
//! large enough for a table of many leaves, or for one that is full.

/// Every mistake that can be planted. The comment says what the engine then does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Bug {
    /// A commit does not flush the data disks before it acknowledges.
    SkipDataFlush,
    /// A commit does not flush the log before it acknowledges.
    SkipLogFlush,
    /// A write is acknowledged when its I/O is complete, before the flush.
    AckBeforeFlush,
    /// A FUA write or a flush of a volume with `sync=standard` is acknowledged without a commit.
    FuaIgnored,
    /// The superblock is written before the flush that makes the nodes below it durable.
    SuperblockBeforeNodes,
    /// The log is cut and space released before the superblock is durable.
    SkipSuperblockFlush,
    /// Space freed since the last checkpoint is reused before the next one is durable.
    FreeReleasedEarly,
    /// A tree node is taken as it is, whatever its checksum and identity.
    MissingNodeChecksumCheck,
    /// Data leaves the engine without its checksum having been compared.
    MissingChecksumCheck,
    /// What a cache disk says is taken as it is.
    FlashUnchecked,
    /// Whoever reads a cache disk waits until it answers.
    FlashAwaited,
    /// Replay leaves out the last valid frame of the log.
    ReplaySkipsLastFrame,
    /// Replay accepts a frame that does not follow the one before it: stale frames of an earlier lap.
    ReplayIgnoresChain,
    /// Replay accepts a pointer record without reading the data it points to.
    ReplayNoDataVerification,
    /// Replay applies what follows a gap in the log.
    ReplayContinuesAfterGap,
    /// A checkpoint cuts the log beyond what it has written to the trees.
    LogCutTooFar,
    /// A checkpoint's freeze leaves one dirty leaf out.
    FreezeMissesDirtyLeaf,
    /// The old pointer of a leaf that was not in memory is never freed: a leak.
    ColdLeafForgetsOldPointer,
    /// A checkpoint does not write the chunk bitmaps it changed.
    BitmapNotWritten,
    /// A bitmap or superblock overwrites its current slot instead of the alternate one.
    SameAlternateSlot,
    /// A write to a mirror reaches one disk only.
    MirrorWritesOneCopy,
    /// A repair writes the good copy over the disk that already had it.
    RepairWritesWrongCopy,
    /// A disk that missed writes is read from after its return.
    StaleDiskAccepted,
    /// A failed write counts as done.
    WriteErrorIgnored,
    /// A failed flush counts as done.
    FlushErrorIgnored,
    /// What a block of zeros replaces is never given back.
    ZerosFreeNothing,
    /// A block that moves to another place is no longer known to be compressed.
    MovedBlockForgetsKind,
    /// A write of part of a block zeroes the rest of it.
    PartialBlockZeroed,
    /// A block of which only a part is known is taken for whole.
    PartsReadAsWhole,
    /// Parts of a block are found in the newest frame that has any.
    PartsForgetOlderFrame,
    /// What cannot be read of a block that is known in part is stored as zeros.
    LostRestBecomesZeros,
    /// What a disk fails to read once of a block that is known in part is given up.
    RestLookedForOnce,
    /// A disk that fails to read a node once makes a checkpoint fail.
    CheckpointLooksOnce,
    /// A discard changes the tree but is not logged.
    DiscardNotLogged,
    /// A resize is acknowledged without being logged.
    ResizeNotLogged,
    /// The catalog names a volume whose tree is not yet durable.
    CatalogBeforeTree,
    /// The allocator hands out the same space twice.
    DoubleAllocation,
    /// A write of several blocks is applied in part after a crash.
    TornWriteAccepted,
    /// An overwrite frees the new block instead of the old one.
    FreesNewPointer,
    /// A block that cannot be read or verified is answered with zeros.
    UnreadableReadsAsZeros,
    /// The cache keeps the old block after an overwrite.
    CacheKeepsOldBlock,
    /// Evacuation moves blocks that a client is overwriting.
    EvacuatesLockedBlocks,
    /// Plugging a line leaves one cell of its parity as it was.
    ParityNotUpdated,
    /// The cells of a written line are placed as if the write began with the chunk's first line.
    ParityWrongRotation,
    /// What was computed from the rest of a line leaves the array unchecked.
    DegradedReadUnchecked,
    /// An import leaves the parity of lines as it is that the power may have caught between data and parity.
    ParityNotRestored,
    /// An import does not write again what was being written into a line in use.
    PlugNotReplayed,
    /// A slot is copied while its chunk is being written.
    CopiesOpenChunk,
    /// A disk that came back is not given what it missed.
    ResilverMissesChunk,
    /// A frame of the log that is right nowhere ends it, whatever comes behind it.
    GapEndsLog,
    /// What is known to be lost is copied over what a disk that came back still has.
    ResilverCopiesLost,
    /// The old slot is free before a checkpoint names the new one.
    MovedSlotReusedEarly,
    /// A scrub finds what is bad and leaves it as it is.
    ScrubOnlyLooks,
    /// What is found to be lost is told, and forgotten.
    LossForgotten,
    /// What is known to be lost stays so when it is written anew.
    DamageOutlivesItsBlock,
    /// A rebuild leaves out the last line of its range.
    RebuildSkipsLine,
    /// Where one sector of a slot cannot be read, all that is read with it is computed from the others.
    RebuildComputesWholeWindow,
    /// The label on the first disk of a group that joins makes it a part of the pool, before the others have theirs.
    JoiningDisksDecide,
    /// A trim discards what is free in a chunk while space in it is promised.
    TrimsOpenChunk,
    /// A disk goes out of service, and the others' labels do not say so.
    FailureNotRecorded,
    /// What was read around a late disk is not checked.
    HedgeUnchecked,
    /// A disk that hangs is taken out of service also when its group cannot lose it.
    EvictsBeyondTolerance,
    /// A read-only import completes on disk what a crash left half done.
    ReadOnlyImportWrites,
    /// A forced import goes on with a log that it has cut short, and leaves the cut where it was.
    CutStaysBehindLog,
    /// A pool is taken from a host that did not export it, unasked.
    ForeignHostIgnored,
    /// The disks of a group leave when its blocks have moved, before a checkpoint says where to.
    GroupLeavesEarly,
    /// While the log moves to another group, frames are written only where it was.
    LogMovesWithoutFrames,
    /// A disk that errs again and again is told of again and again.
    ErrorsToldAgain,
    /// A snapshot is taken while changes that were acknowledged before are on their way to the tree, and others go on.
    SnapshotWithoutHold,
    /// What a volume replaces is freed though its snapshot has it, too.
    SnapshotSharesNothing,
    /// What is written after a snapshot is born as if it had been before.
    SnapshotKeepsEpoch,
    /// Deleting a snapshot frees what the snapshot before it has, too.
    DeletionIgnoresParent,
    /// A scrub leaves out what only snapshots have.
    ScrubForgetsSnapshots,
    /// While a snapshot is deleted, its volume does not learn what is left to it alone.
    DeletionForgetsCursor,
    /// A deleted snapshot's blocks that its child has from then on are not counted there.
    RestNotGivenToChild,
    /// A bad sector that is read again counts as another one.
    SamePlaceCountsAgain,
    /// Wrong data counts as what the device could not read.
    WrongCountsAsUnreadable,
    /// A disk that fails while labels are written counts as recorded in them.
    FailureCountsAsRecorded,
    /// A scrub leaves parity as it is that cannot be read.
    ScrubLeavesUnread,
    /// A scrub passes over the parity of chunks that are being written to.
    ScrubPassesOver,
    /// A block that was overwritten while destaging waited is written along with the lines that it was in.
    ReplacedMovesAlong,
    /// A scrub does not wait for a disk that is late: what it holds counts as right when the others give it.
    ScrubAvoidsLate,
    /// A stream leaves out what was discarded since its base.
    SendForgetsHoles,
    /// A stream leaves out what was born before its base, though the base may not have it.
    SendPrunesByBirth,
    /// A bookmark is taken for a base though its volume was rolled back after it.
    BookmarkForgetsRollback,
    /// What was changed below a node that had not been read is forgotten when it is read.
    UnreadNodeForgetsChanges,
    /// Below a node that has not been read there is nothing.
    UnreadNodeIsHole,
    /// A volume advances to a received snapshot over what was written to it since.
    ReceiveOverChanges,
    /// A move leaves out what changed while it copied.
    MoveSkipsRest,
    /// A volume that moves is live in the other pool before it is marked as moved.
    MoveLiveBeforeMark,
    /// Blocks that held zeros are given back without a second look.
    ReclaimsUnseen,
    /// The second look does not see what is not durable yet.
    ReclaimsAsClient,
    /// What a reserved volume is owed is counted and not held.
    ReservationNotHeld,
    /// A snapshot of a reserved volume is taken without holding what must be written anew.
    SnapshotReservesNothing,
    /// A checkpoint waits for turns, which those may have who wait for it.
    CheckpointTakesTurns,
    /// A change of the sync policy leaves writes alone that were acknowledged before it, and a flush under `always` does nothing.
    FlushTrustsPolicy,
    /// Zeros over what is a hole in memory count as durable, whatever is on disk.
    HolesTakenForDurable,
    /// A flush passes over a disk that has failed before the others know of it.
    FlushForgetsFailedDisk,
    /// A disk stays in service whose repairs fail.
    RepairErrorIgnored,
    /// What several blocks were read together for and one copy had wrong is read again, from another copy, and left as it is.
    RunsLeaveBadCopies,
    /// A scrub keeps space from being given back until it has gone through all trees.
    ScrubHoldsThroughout,
    /// What one disk may have of a core's requests has no limit, and nothing is kept for flushes and labels.
    HungDiskTakesAll,
    /// While the loss of one disk is recorded, no other is looked at.
    EvictsOneByOne,
    /// What a disk fails to read once of a slot that moves is left out.
    MoveLooksOnce,
    /// A disk of an imported pool is taken for another when that is forced.
    ForceTakesUsedDisk,
    /// A disk that does not take its label keeps a pool from being imported that can lose it.
    ImportNeedsEveryLabel,
    /// A disk that failed while its pool was imported is not recorded.
    ImportForgetsFailures,
    /// A disk that has shrunk keeps a pool from being imported that can lose it.
    ShrunkDiskRefused,
    /// The label is written to one disk after the other.
    LabelsOneByOne,
    /// Time in which the daemon stood still counts as a disk's silence.
    StandstillCounts,
    /// A checkpoint leaves out a leaf of the catalogue in which something changed.
    CatalogLeafForgotten,
    /// The same of the registry.
    RegistryLeafForgotten,
    /// An import passes over what the log says of the registry.
    RegistryNotReplayed,
    /// An import passes over the new name of a volume or snapshot that the log has.
    RenameNotReplayed,
    /// A project that was being renamed when the power failed stays in two.
    RenameStaysHalf,
    /// A checkpoint does not write a chunk's entry again of which it has freed something only.
    ChunkEntryStale,
    /// A chunk's entry keeps saying how much of it was free when it was granted.
    EntryCountsStale,
    /// The chunk table's nodes are looked for where their chunk was before one of its slots moved.
    TableHomeStale,
    /// A table's root is written and the nodes between it and the leaves are not.
    TableWithoutMiddle,
    /// The superblock does not know of the last dataset number that was given out.
    NumberComesBack,
    /// An import computes the parity of a line of which it has looked at some blocks only.
    ParityOfUnseen,
    /// An import verifies blocks before it completes what was being written into the lines that they are in.
    VerifiesAmidPlug,
    /// A loop over everything that a shard has keeps the core until it is through.
    LoopsNeverYield,
    /// A login panics on what an initiator sends.
    LoginPanics,
    /// An iSCSI session panics on a ping.
    PingPanics,
    /// The SCSI device server panics over a command.
    CommandPanics,
    /// The negotiation of an NBD client panics.
    HandshakePanics,
    /// An NBD session panics on a request.
    RequestPanics,
}

impl Bug {
    /// What has to be caught: by the simulator's suite, except for a few that a test of the crate they are planted in catches.
    pub const ALL: [Bug; 106] = [
        Bug::SkipDataFlush,
        Bug::SkipLogFlush,
        Bug::AckBeforeFlush,
        Bug::FuaIgnored,
        Bug::SuperblockBeforeNodes,
        Bug::SkipSuperblockFlush,
        Bug::FreeReleasedEarly,
        Bug::MissingNodeChecksumCheck,
        Bug::MissingChecksumCheck,
        Bug::FlashUnchecked,
        Bug::FlashAwaited,
        Bug::ReplaySkipsLastFrame,
        Bug::ReplayIgnoresChain,
        Bug::ReplayNoDataVerification,
        Bug::ReplayContinuesAfterGap,
        Bug::LogCutTooFar,
        Bug::FreezeMissesDirtyLeaf,
        Bug::ColdLeafForgetsOldPointer,
        Bug::BitmapNotWritten,
        Bug::SameAlternateSlot,
        Bug::MirrorWritesOneCopy,
        Bug::RepairWritesWrongCopy,
        Bug::StaleDiskAccepted,
        Bug::WriteErrorIgnored,
        Bug::FlushErrorIgnored,
        Bug::ZerosFreeNothing,
        Bug::MovedBlockForgetsKind,
        Bug::PartialBlockZeroed,
        Bug::PartsReadAsWhole,
        Bug::PartsForgetOlderFrame,
        Bug::LostRestBecomesZeros,
        Bug::RestLookedForOnce,
        Bug::CheckpointLooksOnce,
        Bug::DiscardNotLogged,
        Bug::ResizeNotLogged,
        Bug::CatalogBeforeTree,
        Bug::DoubleAllocation,
        Bug::TornWriteAccepted,
        Bug::FreesNewPointer,
        Bug::UnreadableReadsAsZeros,
        Bug::CacheKeepsOldBlock,
        Bug::EvacuatesLockedBlocks,
        Bug::ParityNotRestored,
        Bug::PlugNotReplayed,
        Bug::ParityNotUpdated,
        Bug::ParityWrongRotation,
        Bug::DegradedReadUnchecked,
        Bug::CopiesOpenChunk,
        Bug::ResilverMissesChunk,
        Bug::ResilverCopiesLost,
        Bug::GapEndsLog,
        Bug::MovedSlotReusedEarly,
        Bug::ScrubOnlyLooks,
        Bug::LossForgotten,
        Bug::DamageOutlivesItsBlock,
        Bug::JoiningDisksDecide,
        Bug::TrimsOpenChunk,
        Bug::FailureNotRecorded,
        Bug::HedgeUnchecked,
        Bug::EvictsBeyondTolerance,
        Bug::ReadOnlyImportWrites,
        Bug::CutStaysBehindLog,
        Bug::ForeignHostIgnored,
        Bug::GroupLeavesEarly,
        Bug::LogMovesWithoutFrames,
        Bug::ErrorsToldAgain,
        Bug::SnapshotWithoutHold,
        Bug::SnapshotSharesNothing,
        Bug::SnapshotKeepsEpoch,
        Bug::DeletionIgnoresParent,
        Bug::ScrubForgetsSnapshots,
        Bug::DeletionForgetsCursor,
        Bug::RestNotGivenToChild,
        Bug::SamePlaceCountsAgain,
        Bug::WrongCountsAsUnreadable,
        Bug::FailureCountsAsRecorded,
        Bug::ScrubLeavesUnread,
        Bug::ScrubPassesOver,
        Bug::ReplacedMovesAlong,
        Bug::VerifiesAmidPlug,
        Bug::ScrubAvoidsLate,
        Bug::ReservationNotHeld,
        Bug::SnapshotReservesNothing,
        Bug::SendForgetsHoles,
        Bug::SendPrunesByBirth,
        Bug::BookmarkForgetsRollback,
        Bug::UnreadNodeForgetsChanges,
        Bug::UnreadNodeIsHole,
        Bug::CheckpointTakesTurns,
        Bug::FlushTrustsPolicy,
        Bug::HolesTakenForDurable,
        Bug::FlushForgetsFailedDisk,
        Bug::RepairErrorIgnored,
        Bug::RunsLeaveBadCopies,
        Bug::ScrubHoldsThroughout,
        Bug::HungDiskTakesAll,
        Bug::EvictsOneByOne,
        Bug::CatalogLeafForgotten,
        Bug::RegistryLeafForgotten,
        Bug::RegistryNotReplayed,
        Bug::RenameNotReplayed,
        Bug::ChunkEntryStale,
        Bug::EntryCountsStale,
        Bug::TableHomeStale,
        Bug::TableWithoutMiddle,
        Bug::NumberComesBack,
    ];

    /// What only pools with parity can meet: the model test of `forebay-raid` must catch these.
    pub const OF_PARITY: [Bug; 5] = [
        Bug::ParityNotUpdated,
        Bug::ParityWrongRotation,
        Bug::DegradedReadUnchecked,
        Bug::RebuildSkipsLine,
        Bug::RebuildComputesWholeWindow,
    ];

    /// What a test of `forebay-pool` about new names of projects must catch.
    pub const OF_PROJECTS: [Bug; 1] = [Bug::RenameStaysHalf];

    /// What a test of `forebay-pool` must catch: the simulator's histories are to lose changes.
    pub const OF_STREAMS: [Bug; 1] = [Bug::ReceiveOverChanges];

    /// What only moves between pools can meet: the tests of `forebay-pool` must catch these.
    pub const OF_MOVES: [Bug; 2] = [Bug::MoveSkipsRest, Bug::MoveLiveBeforeMark];

    /// What the tests of `forebay-pool` about disks that fail, shrink or are in use must catch.
    pub const OF_DISKS: [Bug; 7] = [
        Bug::MoveLooksOnce,
        Bug::ForceTakesUsedDisk,
        Bug::ImportNeedsEveryLabel,
        Bug::ImportForgetsFailures,
        Bug::ShrunkDiskRefused,
        Bug::LabelsOneByOne,
        Bug::StandstillCounts,
    ];
    /// What a test of `forebay-target` must survive: one session ends.
    pub const OF_PROTOCOLS: [Bug; 5] =
        [Bug::LoginPanics, Bug::PingPanics, Bug::CommandPanics, Bug::HandshakePanics, Bug::RequestPanics];

    /// What the tests of `forebay-pool` about work that grows must catch.
    pub const OF_LOOPS: [Bug; 1] = [Bug::LoopsNeverYield];

    /// What a test of `forebay-pool` must catch: who computes parity from what he has not seen.
    pub const OF_LINES: [Bug; 1] = [Bug::ParityOfUnseen];

    /// What a test of `forebay-pool` must catch: nobody else looks for zeros.
    pub const OF_RECLAIM: [Bug; 2] = [Bug::ReclaimsUnseen, Bug::ReclaimsAsClient];
}

/// How small the tables of a shard are cut, in place of what the format has: so small pools have tables of many leaves and levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableShape {
    /// Records in a leaf, and references in a node above.
    pub per_leaf: u64,
    pub fan_out: u64,
    /// Datasets that a shard can have.
    pub datasets: usize,
    /// Bytes of bitmaps of chunks that are kept in memory beside those that are needed.
    pub maps_bytes: usize,
    /// Nodes of trees that are kept in memory beside those that were changed.
    pub nodes: usize,
}

#[cfg(feature = "planted")]
mod state {
    use super::{Bug, TableShape};
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
        static MET: Cell<u64> = const { Cell::new(0) };
        static STRICT_TURNS: Cell<bool> = const { Cell::new(false) };
        static TABLE_SHAPE: Cell<Option<TableShape>> = const { Cell::new(None) };
        static ITEMS: Cell<u64> = const { Cell::new(0) };
        static TURN: Cell<u64> = const { Cell::new(0) };
        static LONGEST_TURN: Cell<u64> = const { Cell::new(0) };
    }

    /// Whether `bug` is planted on this thread.
    pub fn active(bug: Bug) -> bool {
        let active = PLANTED.get() == Some(bug);
        if active {
            MET.set(MET.get() + 1);
        }
        active
    }

    /// Plants `bug` on this thread in place of the one before, or none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
        MET.set(0);
    }

    /// How often the planted bug's site was reached since [`plant`]: a bug nobody reaches was not tried.
    pub fn times_met() -> u64 {
        MET.get()
    }

    /// Whether pools on this thread have one request of each shard in flight, besides what begins unasked, and whoever waits for a turn waits until he has it:
    /// a wait in a circle never ends.
    pub fn has_strict_turns() -> bool {
        STRICT_TURNS.get()
    }

    /// Has turns be strict on this thread from now on, or not.
    pub fn set_strict_turns(are_strict: bool) {
        STRICT_TURNS.set(are_strict);
    }

    /// How small tables are cut for pools on this thread, if that is set.
    pub fn table_shape() -> Option<TableShape> {
        TABLE_SHAPE.get()
    }

    /// Has tables be cut like this on this thread from now on; as the format has them when it is nothing.
    pub fn set_table_shape(shape: Option<TableShape>) {
        TABLE_SHAPE.set(shape);
    }

    /// Long loops have come to so many more items.
    pub fn count_items(items: usize) {
        ITEMS.set(ITEMS.get() + items as u64);
        TURN.set(TURN.get() + items as u64);
    }

    /// The executor of this thread has polled a task.
    pub fn turn_ended() {
        LONGEST_TURN.set(LONGEST_TURN.get().max(TURN.take()));
    }

    /// The most items that one task has come to in one turn on this thread since this was last asked: how long others waited for it.
    pub fn take_longest_turn() -> u64 {
        LONGEST_TURN.take()
    }

    /// How many items long loops have come to on this thread since this was last asked: whether work grows as what it is done for.
    pub fn take_items() -> u64 {
        ITEMS.take()
    }
}

#[cfg(not(feature = "planted"))]
mod state {
    use super::{Bug, TableShape};

    /// Whether `bug` is planted: never without the feature `planted`.
    #[inline(always)]
    pub const fn active(_: Bug) -> bool {
        false
    }

    /// Whether turns are strict: never without the feature `planted`.
    #[inline(always)]
    pub const fn has_strict_turns() -> bool {
        false
    }

    /// Smaller tables: never without the feature `planted`.
    #[inline(always)]
    pub const fn table_shape() -> Option<TableShape> {
        None
    }

    /// Nobody asks for the count without the feature `planted`.
    #[inline(always)]
    pub const fn count_items(_: usize) {}

    /// Nobody asks how long turns are without the feature `planted`.
    #[inline(always)]
    pub const fn turn_ended() {}
}

pub use state::*;

#[cfg(all(test, feature = "planted"))]
mod tests {
    use super::*;

    #[test]
    fn one_bug_at_a_time_and_only_on_this_thread() {
        plant(Some(Bug::SkipLogFlush));
        assert!(active(Bug::SkipLogFlush) && !active(Bug::SkipDataFlush));
        assert_eq!(times_met(), 1);
        assert!(!std::thread::spawn(|| active(Bug::SkipLogFlush)).join().expect("the thread does not panic"));
        plant(None);
        assert!(Bug::ALL.iter().all(|&bug| !active(bug)));
    }

    #[test]
    fn the_lists_name_every_bug_once() {
        let listed: std::collections::HashSet<Bug> = Bug::ALL
            .into_iter()
            .chain(Bug::OF_PARITY)
            .chain(Bug::OF_PROJECTS)
            .chain(Bug::OF_STREAMS)
            .chain(Bug::OF_MOVES)
            .chain(Bug::OF_RECLAIM)
            .chain(Bug::OF_LOOPS)
            .chain(Bug::OF_LINES)
            .chain(Bug::OF_DISKS)
            .chain(Bug::OF_PROTOCOLS)
            .collect();
        let last = listed.iter().map(|bug| *bug as usize).max().expect("there are bugs");
        assert_eq!(last + 1, listed.len());
        let twice = Bug::ALL.iter().enumerate().any(|(nth, bug)| Bug::ALL[..nth].contains(bug));
        assert!(!twice);
    }
}
