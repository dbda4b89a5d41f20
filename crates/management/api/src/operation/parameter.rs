//! The query parameters. [`super::Operation::parameters`] lists those of each operation.

/// A query parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parameter {
    Limit,
    Cursor,
    /// Conditions for the items of a list.
    Filter,
    /// The order of a list.
    Sort,
    /// Only objects of this pool.
    Pool,
    /// Events, or seconds, with a greater number.
    After,
    WaitSeconds,
    DryRun,
    /// Only objects of this volume.
    Volume,
    /// Only objects of this host or host group.
    Host,
    /// Also unmap its volumes.
    Unmap,
    /// Also delete its snapshots.
    WithSnapshots,
    /// Without the trash.
    Purge,
    /// Although clients are connected.
    Force,
    /// The base of an increment.
    From,
    /// The token of an interrupted receive.
    Resume,
    /// Discard changes since the base.
    DiscardChanges,
    /// Although the pool cannot guarantee the level.
    BestEffort,
    /// The statistic to query.
    Expression,
    /// Start of an interval.
    Since,
    /// End of an interval.
    Until,
    Step,
    /// Maximum number of lines of an answer.
    Lines,
    /// Format of an export.
    Format,
    /// Format of a report.
    Form,
    /// Duration of a trace.
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
    /// The lowest and the highest value of a number.
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
            Parameter::Limit => "Maximum number of items, 1 to 1000; 100 by default.",
            Parameter::Cursor => "The `next_cursor` of the previous page, with the same `sort`.",
            Parameter::Filter => {
                "Only items that meet all these conditions, separated by commas. A condition is a field (`status.size_bytes`), \
                 one of `=`, `!=`, `<`, `<=`, `>`, `>=`, `~` (contains), and a value; a value with a comma is in double quotes."
            }
            Parameter::Sort => {
                "Fields to sort by, separated by commas; `-` before a field puts the greatest first. Items without the field are last."
            }
            Parameter::Pool => "Only objects of the pool with this name or UUID.",
            Parameter::After => {
                "Only items with a greater number, oldest first; without it, the newest items."
            }
            Parameter::WaitSeconds => {
                "Wait up to this many seconds, at most 60, for a new item, or for the task to end."
            }
            Parameter::DryRun => "Check the request and answer with a Plan; change nothing.",
            Parameter::Volume => "Only objects of the volume with this name or UUID.",
            Parameter::Host => "Only objects of the host or host group with this name or UUID.",
            Parameter::Unmap => {
                "Also unmap its volumes; without this, a host or group with volumes is refused."
            }
            Parameter::WithSnapshots => {
                "Also delete its snapshots; without this, a volume with snapshots is refused."
            }
            Parameter::Purge => "Delete the volume for good; without this, it goes to the trash.",
            Parameter::Force => "Proceed although clients are connected; without this, that is refused.",
            Parameter::From => {
                "The base of the increment: name or UUID of a snapshot, name of a bookmark, or `@NAME` or `#NAME` of the same volume."
            }
            Parameter::Resume => "Continue the interrupted receive with this `resume_token`.",
            Parameter::BestEffort => {
                "Proceed although the pool cannot guarantee the level: the volumes concerned are best effort then. Without this, that is refused."
            }
            Parameter::Expression => {
                "`layer.noun` and brackets, for example `iscsi.ops[op=read][client]`. Required."
            }
            Parameter::Since => {
                "Start of the interval in seconds since 1970; 0 and less: seconds before now. Default: -300."
            }
            Parameter::Until => "End of the interval, in the same way. Default: 0.",
            Parameter::Step => {
                "Length of a step in seconds. Default: the shortest that gives at most 1000 steps."
            }
            Parameter::Lines => "Maximum number of lines, 1 to 100; 12 by default.",
            Parameter::Format => "`json`, the default, or `csv`.",
            Parameter::Form => "`html`, the default, or `json`.",
            Parameter::Seconds => "Duration, 1 to 3600 seconds; 60 by default.",
            Parameter::DiscardChanges => {
                "Discard the volume's changes since the base; without this, a changed volume is refused."
            }
        }
    }
}
