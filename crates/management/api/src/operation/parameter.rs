//! The query parameters that operations take; which of them each one has, the table says ([`super::Operation::parameters`]).

/// A query parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parameter {
    Limit,
    Cursor,
    /// What items of a list have to be like.
    Filter,
    /// What a list is in order of.
    Sort,
    /// Only what belongs to this pool.
    Pool,
    /// Events, or seconds, with a greater number.
    After,
    WaitSeconds,
    DryRun,
    /// Only what concerns this volume.
    Volume,
    /// Only what concerns this host or host group.
    Host,
    /// Also remove what is mapped to it.
    Unmap,
    /// Also delete its snapshots.
    WithSnapshots,
    /// Past the trash.
    Purge,
    /// Although clients are connected.
    Force,
    /// The snapshot that a stream builds upon.
    From,
    /// Where a stream goes on.
    Resume,
    /// What came after the snapshot that a stream builds upon is lost.
    DiscardChanges,
    /// Although the pool cannot keep what the level promises.
    BestEffort,
    /// What is asked for.
    Expression,
    /// When an interval begins.
    Since,
    /// When it ends.
    Until,
    Step,
    /// How many lines an answer has.
    Lines,
    /// Of an export.
    Format,
    /// Of a report.
    Form,
    /// How long a trace is.
    Seconds,
}

impl Parameter {
    pub fn name(self) -> &'static str {
        match self {
            Parameter::Limit => "limit",
            Parameter::Cursor => "cursor",
            Parameter::Filter => "filter",
            Parameter::Sort => "sort",
            Parameter::Pool => "pool",
            Parameter::After => "after",
            Parameter::WaitSeconds => "wait_seconds",
            Parameter::DryRun => "dry_run",
            Parameter::Volume => "volume",
            Parameter::Host => "host",
            Parameter::Unmap => "unmap",
            Parameter::WithSnapshots => "with_snapshots",
            Parameter::Purge => "purge",
            Parameter::Force => "force",
            Parameter::From => "from",
            Parameter::Resume => "resume",
            Parameter::DiscardChanges => "discard_changes",
            Parameter::BestEffort => "best_effort",
            Parameter::Expression => "expression",
            Parameter::Since => "from",
            Parameter::Until => "to",
            Parameter::Step => "step",
            Parameter::Lines => "limit",
            Parameter::Format | Parameter::Form => "format",
            Parameter::Seconds => "seconds",
        }
    }
    /// The least and the most that a number may be, as far as one number can tell.
    pub(crate) fn range(self) -> (Option<u32>, Option<u32>) {
        match self {
            Parameter::Limit => (Some(1), Some(1000)),
            Parameter::Lines => (Some(1), Some(100)),
            Parameter::WaitSeconds => (Some(0), Some(60)),
            Parameter::After => (Some(0), None),
            Parameter::Step => (Some(1), None),
            Parameter::Seconds => (Some(1), Some(3600)),
            _ => (None, None),
        }
    }
    pub fn description(self) -> &'static str {
        match self {
            Parameter::Limit => "At most this many items, 1 to 1000; 100 by default.",
            Parameter::Cursor => "The `next_cursor` of the page before, with the same `sort`.",
            Parameter::Filter => {
                "Only what meets all of these conditions, with commas between them: a field of the items with dots (`status.size_bytes`), \
                 one of `=`, `!=`, `<`, `<=`, `>`, `>=`, `~` (has in it), and a value, in double quotes where it has a comma."
            }
            Parameter::Sort => {
                "In the order of these fields, with commas between them, each with `-` before it for the greatest first; what has none of it is last."
            }
            Parameter::Pool => "Only what belongs to the pool with this name or UUID.",
            Parameter::After => {
                "Only what has a greater number than this, oldest first; without it the newest."
            }
            Parameter::WaitSeconds => "Wait up to this long, at most 60, until there is something to tell.",
            Parameter::DryRun => "Check the request and answer with a Plan; change nothing.",
            Parameter::Volume => "Only what concerns the volume with this name or UUID.",
            Parameter::Host => "Only what the host or host group with this name or UUID sees or has.",
            Parameter::Unmap => "Also take from it what it sees; without it, that is refused.",
            Parameter::WithSnapshots => "Also delete its snapshots; without it, that is refused.",
            Parameter::Purge => "Delete it for good; without it, it waits in the trash.",
            Parameter::Force => "Although clients are connected to it; without it, that is refused.",
            Parameter::From => {
                "Only what makes it of this snapshot or bookmark: name, UUID of a snapshot, or `@NAME` or `#NAME` of the same volume."
            }
            Parameter::Resume => "Go on where the reception with this `resume_token` is.",
            Parameter::BestEffort => {
                "Although the pool cannot keep what the level promises: it is best effort then. Without it, that is refused."
            }
            Parameter::Expression => {
                "`layer.noun` and brackets, for example `iscsi.ops[op=read][client]`. Always needed."
            }
            Parameter::Since => {
                "When it begins, in seconds since 1970; not after that, so many seconds before now. -300 by default."
            }
            Parameter::Until => "When it ends, in the same way; 0 by default.",
            Parameter::Step => "Seconds of a step; without it, the least that makes 1000 at most.",
            Parameter::Lines => "At most this many lines, 1 to 100; 12 by default.",
            Parameter::Format => "`json`, the default, or `csv`.",
            Parameter::Form => "`html`, the default, or `json`.",
            Parameter::Seconds => "How long it is, 1 to 3600 seconds; 60 by default.",
            Parameter::DiscardChanges => {
                "What the volume has had since is lost; without it, that is refused."
            }
        }
    }
}
