//! What the pool does by itself.

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Task {
    /// Trees and tables on their way to the disks, so that the log can be cut.
    Checkpoint,
    /// Blocks on their way from the log to their places.
    Destage,
    /// Slots that are rebuilt or moved to other disks, blocks that are moved together.
    Rebuild,
    Scrub,
    /// Space of what was deleted that is given back.
    Deletion,
    Trim,
    /// A search for blocks of zeros.
    Reclaim,
    /// Streams that are sent or received, volumes that move, snapshots that are taken.
    Copy,
    /// What the disks can do is measured.
    Calibrate,
}

impl Task {
    pub const ALL: [Task; 9] = [
        Task::Checkpoint,
        Task::Destage,
        Task::Rebuild,
        Task::Scrub,
        Task::Deletion,
        Task::Trim,
        Task::Reclaim,
        Task::Copy,
        Task::Calibrate,
    ];

    /// As people are told.
    pub fn name(self) -> &'static str {
        match self {
            Task::Checkpoint => "checkpoint",
            Task::Destage => "destage",
            Task::Rebuild => "rebuild",
            Task::Scrub => "scrub",
            Task::Deletion => "deletion",
            Task::Trim => "trim",
            Task::Reclaim => "reclaim",
            Task::Copy => "copy",
            Task::Calibrate => "calibrate",
        }
    }
}
