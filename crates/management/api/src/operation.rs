//! The operations: one table from which server, client and OpenAPI document are made.
//!
//! The server matches on [`Operation`] exhaustively, so an operation that is described but not implemented does not
//! compile, and one that is not in the table has no route.

use crate::Access;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Get,
    Post,
    Patch,
    Delete,
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }
}

/// A query parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parameter {
    Limit,
    Cursor,
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
}

impl Parameter {
    pub fn name(self) -> &'static str {
        match self {
            Parameter::Limit => "limit",
            Parameter::Cursor => "cursor",
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
        }
    }
    pub fn description(self) -> &'static str {
        match self {
            Parameter::Limit => "At most this many items, 1 to 1000; 100 by default.",
            Parameter::Cursor => "The `next_cursor` of the page before.",
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
                "Only what makes it of this snapshot: name, UUID, or `@NAME` of the same volume."
            }
            Parameter::Resume => "Go on where the reception with this `resume_token` is.",
            Parameter::BestEffort => {
                "Although the pool cannot keep what the level promises: it is best effort then. Without it, that is refused."
            }
            Parameter::DiscardChanges => {
                "What the volume has had since is lost; without it, that is refused."
            }
        }
    }
}

/// What a successful call answers with, by schema name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyBody {
    /// 200.
    Object(&'static str),
    /// 200: items and a cursor.
    Page(&'static str),
    /// 201, with `Location`.
    Created(&'static str),
    /// 202 and a task, with `Location`.
    Task,
    /// 204.
    Nothing,
    /// 200: the OpenAPI document.
    Document,
    /// 200: a snapshot's stream, in bytes.
    Stream,
}

/// One call of the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Operation {
    ServerShow,
    DocumentShow,
    PoolList,
    PoolCreate,
    PoolShow,
    PoolSet,
    PoolDestroy,
    PoolImport,
    PoolExport,
    PoolAdd,
    PoolScrub,
    PoolTrim,
    PoolCalibrate,
    PoolLedger,
    GroupRemove,
    DiskList,
    DiskScan,
    DiskShow,
    DiskReplace,
    DiskRemove,
    DiskOffline,
    DiskOnline,
    DiskClear,
    DiskLocate,
    VolumeList,
    VolumeCreate,
    VolumeShow,
    VolumeSet,
    VolumeDelete,
    VolumePromote,
    VolumeReclaim,
    VolumeMove,
    MoveList,
    MoveKeep,
    MoveAbandon,
    ProjectList,
    ProjectCreate,
    ProjectShow,
    ProjectSet,
    ProjectDelete,
    TrashList,
    TrashShow,
    TrashRestore,
    TrashPurge,
    SnapshotList,
    SnapshotCreate,
    SnapshotShow,
    SnapshotSet,
    SnapshotDelete,
    SnapshotRollback,
    SnapshotClone,
    SnapshotSend,
    SnapshotReceive,
    ReceptionList,
    ReceptionDelete,
    HostList,
    HostCreate,
    HostShow,
    HostSet,
    HostDelete,
    HostGroupList,
    HostGroupCreate,
    HostGroupShow,
    HostGroupSet,
    HostGroupDelete,
    LevelList,
    LevelCreate,
    LevelShow,
    LevelSet,
    LevelDelete,
    MappingList,
    MappingCreate,
    MappingShow,
    MappingDelete,
    SessionList,
    SessionDrop,
    TaskList,
    TaskShow,
    TaskCancel,
    EventList,
    TokenList,
    TokenCreate,
    TokenDelete,
}

use Operation::*;

impl Operation {
    pub const ALL: [Operation; 83] = [
        ServerShow,
        DocumentShow,
        PoolList,
        PoolCreate,
        PoolShow,
        PoolSet,
        PoolDestroy,
        PoolImport,
        PoolExport,
        PoolAdd,
        PoolScrub,
        PoolTrim,
        PoolCalibrate,
        PoolLedger,
        GroupRemove,
        DiskList,
        DiskScan,
        DiskShow,
        DiskReplace,
        DiskRemove,
        DiskOffline,
        DiskOnline,
        DiskClear,
        DiskLocate,
        VolumeList,
        VolumeCreate,
        VolumeShow,
        VolumeSet,
        VolumeDelete,
        VolumePromote,
        VolumeReclaim,
        VolumeMove,
        MoveList,
        MoveKeep,
        MoveAbandon,
        ProjectList,
        ProjectCreate,
        ProjectShow,
        ProjectSet,
        ProjectDelete,
        TrashList,
        TrashShow,
        TrashRestore,
        TrashPurge,
        SnapshotList,
        SnapshotCreate,
        SnapshotShow,
        SnapshotSet,
        SnapshotDelete,
        SnapshotRollback,
        SnapshotClone,
        SnapshotSend,
        SnapshotReceive,
        ReceptionList,
        ReceptionDelete,
        HostList,
        HostCreate,
        HostShow,
        HostSet,
        HostDelete,
        HostGroupList,
        HostGroupCreate,
        HostGroupShow,
        HostGroupSet,
        HostGroupDelete,
        LevelList,
        LevelCreate,
        LevelShow,
        LevelSet,
        LevelDelete,
        MappingList,
        MappingCreate,
        MappingShow,
        MappingDelete,
        SessionList,
        SessionDrop,
        TaskList,
        TaskShow,
        TaskCancel,
        EventList,
        TokenList,
        TokenCreate,
        TokenDelete,
    ];

    pub fn method(self) -> Method {
        match self {
            PoolCreate | PoolImport | PoolExport | DiskScan | VolumeCreate | TaskCancel | TokenCreate => {
                Method::Post
            }
            PoolAdd | PoolScrub | PoolTrim | PoolCalibrate => Method::Post,
            DiskReplace | DiskOffline | DiskOnline | DiskClear | DiskLocate => Method::Post,
            VolumePromote | VolumeReclaim | VolumeMove | MoveKeep => Method::Post,
            TrashRestore | ProjectCreate => Method::Post,
            SnapshotCreate | SnapshotRollback | SnapshotClone | SnapshotReceive => Method::Post,
            HostCreate | HostGroupCreate | LevelCreate | MappingCreate => Method::Post,
            PoolSet | VolumeSet | ProjectSet | SnapshotSet => Method::Patch,
            HostSet | HostGroupSet | LevelSet => Method::Patch,
            PoolDestroy | GroupRemove | DiskRemove | VolumeDelete | SnapshotDelete | TokenDelete => {
                Method::Delete
            }
            TrashPurge | HostDelete | HostGroupDelete | MappingDelete | SessionDrop => Method::Delete,
            ReceptionDelete | ProjectDelete | LevelDelete | MoveAbandon => Method::Delete,
            _ => Method::Get,
        }
    }

    /// The path, with the object's name or UUID in braces.
    pub fn path(self) -> &'static str {
        match self {
            ServerShow => "/api/v1/server",
            DocumentShow => "/api/v1/openapi.json",
            PoolList | PoolCreate => "/api/v1/pools",
            PoolShow | PoolSet | PoolDestroy => "/api/v1/pools/{pool}",
            PoolImport => "/api/v1/pools/{pool}/import",
            PoolExport => "/api/v1/pools/{pool}/export",
            PoolAdd => "/api/v1/pools/{pool}/disks",
            PoolScrub => "/api/v1/pools/{pool}/scrub",
            PoolTrim => "/api/v1/pools/{pool}/trim",
            PoolCalibrate => "/api/v1/pools/{pool}/calibrate",
            PoolLedger => "/api/v1/pools/{pool}/ledger",
            GroupRemove => "/api/v1/groups/{group}",
            DiskList => "/api/v1/disks",
            DiskScan => "/api/v1/disks/scan",
            DiskShow | DiskRemove => "/api/v1/disks/{disk}",
            DiskReplace => "/api/v1/disks/{disk}/replace",
            DiskOffline => "/api/v1/disks/{disk}/offline",
            DiskOnline => "/api/v1/disks/{disk}/online",
            DiskClear => "/api/v1/disks/{disk}/clear",
            DiskLocate => "/api/v1/disks/{disk}/locate",
            VolumeList | VolumeCreate => "/api/v1/volumes",
            VolumeShow | VolumeSet | VolumeDelete => "/api/v1/volumes/{volume}",
            VolumePromote => "/api/v1/volumes/{volume}/promote",
            VolumeReclaim => "/api/v1/volumes/{volume}/reclaim",
            VolumeMove => "/api/v1/volumes/{volume}/move",
            MoveList => "/api/v1/moves",
            MoveKeep => "/api/v1/moves/{volume}/keep",
            MoveAbandon => "/api/v1/moves/{volume}",
            ProjectList | ProjectCreate => "/api/v1/projects",
            ProjectShow | ProjectSet | ProjectDelete => "/api/v1/projects/{project}",
            TrashList => "/api/v1/trash",
            TrashShow | TrashPurge => "/api/v1/trash/{volume}",
            TrashRestore => "/api/v1/trash/{volume}/restore",
            SnapshotList | SnapshotCreate => "/api/v1/snapshots",
            SnapshotShow | SnapshotSet | SnapshotDelete => "/api/v1/snapshots/{snapshot}",
            SnapshotRollback => "/api/v1/snapshots/{snapshot}/rollback",
            SnapshotClone => "/api/v1/snapshots/{snapshot}/clone",
            SnapshotSend => "/api/v1/snapshots/{snapshot}/stream",
            SnapshotReceive => "/api/v1/volumes/{volume}/receive",
            ReceptionList => "/api/v1/receptions",
            ReceptionDelete => "/api/v1/receptions/{volume}",
            HostList | HostCreate => "/api/v1/hosts",
            HostShow | HostSet | HostDelete => "/api/v1/hosts/{host}",
            HostGroupList | HostGroupCreate => "/api/v1/host-groups",
            HostGroupShow | HostGroupSet | HostGroupDelete => "/api/v1/host-groups/{group}",
            LevelList | LevelCreate => "/api/v1/levels",
            LevelShow | LevelSet | LevelDelete => "/api/v1/levels/{level}",
            MappingList | MappingCreate => "/api/v1/mappings",
            MappingShow | MappingDelete => "/api/v1/mappings/{mapping}",
            SessionList => "/api/v1/sessions",
            SessionDrop => "/api/v1/sessions/{session}",
            TaskList => "/api/v1/tasks",
            TaskShow => "/api/v1/tasks/{task}",
            TaskCancel => "/api/v1/tasks/{task}/cancel",
            EventList => "/api/v1/events",
            TokenList | TokenCreate => "/api/v1/tokens",
            TokenDelete => "/api/v1/tokens/{token}",
        }
    }

    /// The path with `name` in the place of the braces, percent-encoded.
    pub fn path_of(self, name: &str) -> String {
        let path = self.path();
        match (path.find('{'), path.find('}')) {
            (Some(from), Some(to)) => {
                format!("{}{}{}", &path[..from], crate::encode_segment(name), &path[to + 1..])
            }
            _ => path.to_string(),
        }
    }

    /// The least role that may call it.
    pub fn access(self) -> Access {
        match self {
            VolumeCreate | VolumeSet | VolumeDelete | TaskCancel => Access::Operator,
            ProjectCreate | ProjectSet | ProjectDelete => Access::Operator,
            VolumePromote | SnapshotCreate | SnapshotSet | SnapshotDelete => Access::Operator,
            SnapshotRollback | SnapshotClone | TrashRestore | TrashPurge => Access::Operator,
            SnapshotSend | SnapshotReceive | ReceptionDelete => Access::Operator,
            VolumeReclaim | VolumeMove | MoveKeep | MoveAbandon => Access::Operator,
            HostCreate | HostSet | HostDelete => Access::Operator,
            HostGroupCreate | HostGroupSet | HostGroupDelete => Access::Operator,
            LevelCreate | LevelSet | LevelDelete => Access::Operator,
            MappingCreate | MappingDelete | SessionDrop => Access::Operator,
            PoolCreate | PoolDestroy | PoolImport | PoolExport | DiskScan => Access::Admin,
            PoolSet | PoolAdd | PoolScrub | PoolTrim | PoolCalibrate | GroupRemove => Access::Admin,
            DiskReplace | DiskRemove | DiskOffline | DiskOnline | DiskClear | DiskLocate => Access::Admin,
            TokenList | TokenCreate | TokenDelete => Access::Admin,
            _ => Access::Viewer,
        }
    }

    /// One line for people.
    pub fn summary(self) -> &'static str {
        match self {
            ServerShow => "The daemon's version",
            DocumentShow => "This document",
            PoolList => "All pools",
            PoolCreate => "Create a pool",
            PoolShow => "One pool with its groups and disks",
            PoolSet => "Say how long a pool keeps deleted volumes, and when to tell that it fills",
            PoolDestroy => "Destroy a pool and all its volumes",
            PoolImport => "Import a pool from its disks",
            PoolExport => "Close a pool so that another host can import it",
            PoolAdd => "Add disks to a pool while it serves, to a group or as another group",
            PoolScrub => "Read all that a pool stores and put right what is bad",
            PoolTrim => "Tell the disks of a pool which of their space is free",
            PoolLedger => "What volumes were promised, asked for and got, second by second",
            PoolCalibrate => "Measure what a pool can do; it is busy with that for some seconds",
            GroupRemove => "Have a group of disks leave its pool: what is in it moves to the others first",
            DiskList => "The disks of all pools",
            DiskScan => "Look for pools on disks",
            DiskShow => "One disk",
            DiskReplace => "Put another disk in a disk's place",
            DiskRemove => "Have a disk leave its pool: what is on it moves to the others first",
            DiskOffline => "Take a disk out of service, to come back later",
            DiskOnline => "Take a disk back that was out of service",
            DiskClear => "Set a disk's error counters back",
            DiskLocate => "Make a disk's light blink",
            VolumeList => "All volumes",
            VolumeCreate => "Create a volume, empty or as a clone of a snapshot",
            VolumeShow => "One volume",
            VolumeSet => {
                "Grow a volume, or change when it acknowledges writes and when snapshots of it are taken, or what it inherits"
            }
            VolumeDelete => "Delete a volume: it waits in the trash, or is gone for good",
            VolumePromote => "Make a clone the owner of the snapshot that it came from",
            VolumeReclaim => "Look through a volume for zeros, and give their space back",
            VolumeMove => "Move a volume to another pool while clients use it",
            MoveList => "What moves have left that wait for a pool",
            MoveKeep => "Make a volume of what a move has left, when the other pool is lost",
            MoveAbandon => "Delete what a move has left, when the other pool is lost",
            ProjectList => "All projects",
            ProjectCreate => "Create a project: what volumes inherit",
            ProjectShow => "One project",
            ProjectSet => "Change what the volumes of a project inherit",
            ProjectDelete => "Delete a project without volumes",
            TrashList => "Deleted volumes that can still be had back",
            TrashShow => "One volume in the trash",
            TrashRestore => "Have a volume back from the trash",
            TrashPurge => "Delete a volume in the trash and its data for good",
            SnapshotList => "All snapshots, oldest first within a volume",
            SnapshotCreate => "Take a snapshot of a volume, or of several or a project's at one moment",
            SnapshotShow => "One snapshot",
            SnapshotSet => "Hold a snapshot or let it go; make it a template or none",
            SnapshotDelete => "Delete a snapshot",
            SnapshotRollback => "Put a volume back to what it was",
            SnapshotClone => "Make a volume of a snapshot, in the same pool",
            SnapshotSend => "A snapshot as a stream: all of it, or what makes it of another",
            SnapshotReceive => "Receive a snapshot's stream, as a new volume or what a volume advances to",
            ReceptionList => "What has been received of snapshots whose streams did not end yet",
            ReceptionDelete => "Give up what was received of a snapshot",
            HostList => "All hosts, without their secrets",
            HostCreate => "Make a host known by its initiator names",
            HostShow => "One host",
            HostSet => "Change a host's initiator names or secrets",
            HostDelete => "Forget a host",
            HostGroupList => "All host groups",
            HostGroupCreate => "Create a host group",
            HostGroupShow => "One host group",
            HostGroupSet => "Change who is in a host group",
            HostGroupDelete => "Delete a host group",
            LevelList => "All service levels",
            LevelCreate => "Create a service level",
            LevelShow => "One service level",
            LevelSet => "Change a service level, for all volumes that have it, at once",
            LevelDelete => "Delete a service level that nobody has",
            MappingList => "Which host sees which volume under which number",
            MappingCreate => "Show a volume to a host or a host group",
            MappingShow => "One mapping",
            MappingDelete => "Take a volume from a host or a host group",
            SessionList => "Initiators that are logged in over iSCSI, oldest first",
            SessionDrop => "Log an initiator out",
            TaskList => "Long work, the newest first",
            TaskShow => "One task",
            TaskCancel => "Cancel a task",
            EventList => "What happened",
            TokenList => "Access tokens, without their secrets",
            TokenCreate => "Create an access token",
            TokenDelete => "Revoke an access token",
        }
    }

    /// Schema name of the request body.
    pub fn input(self) -> Option<&'static str> {
        match self {
            PoolCreate => Some("PoolCreate"),
            PoolSet => Some("PoolSet"),
            PoolImport => Some("PoolImport"),
            DiskScan => Some("DiskPaths"),
            PoolAdd => Some("PoolAdd"),
            PoolScrub => Some("PoolScrub"),
            DiskReplace => Some("DiskReplace"),
            DiskOnline => Some("DiskOnline"),
            DiskLocate => Some("DiskLocate"),
            VolumeCreate => Some("VolumeCreate"),
            VolumeSet => Some("VolumeSet"),
            VolumeMove => Some("VolumeMove"),
            MoveKeep => Some("MoveKeep"),
            ProjectCreate => Some("ProjectCreate"),
            ProjectSet => Some("ProjectSet"),
            TrashRestore => Some("TrashRestore"),
            SnapshotCreate => Some("SnapshotCreate"),
            SnapshotSet => Some("SnapshotSet"),
            SnapshotRollback => Some("SnapshotRollback"),
            SnapshotClone => Some("SnapshotClone"),
            HostCreate => Some("HostCreate"),
            HostSet => Some("HostSet"),
            HostGroupCreate => Some("HostGroupCreate"),
            HostGroupSet => Some("HostGroupSet"),
            LevelCreate => Some("LevelCreate"),
            LevelSet => Some("LevelSet"),
            MappingCreate => Some("MappingCreate"),
            TokenCreate => Some("TokenCreate"),
            _ => None,
        }
    }

    pub fn reply(self) -> ReplyBody {
        match self {
            ServerShow => ReplyBody::Object("Server"),
            DocumentShow => ReplyBody::Document,
            PoolList => ReplyBody::Page("Pool"),
            PoolShow | PoolSet => ReplyBody::Object("Pool"),
            PoolCreate | PoolDestroy | PoolImport | PoolExport => ReplyBody::Task,
            DiskList => ReplyBody::Page("Disk"),
            DiskScan => ReplyBody::Object("PoolsFound"),
            DiskShow => ReplyBody::Object("Disk"),
            PoolAdd | PoolScrub | PoolTrim | PoolCalibrate | GroupRemove => ReplyBody::Task,
            DiskReplace | DiskRemove | DiskOffline | DiskOnline | DiskClear | DiskLocate => ReplyBody::Task,
            VolumeList => ReplyBody::Page("Volume"),
            VolumeCreate => ReplyBody::Created("Volume"),
            VolumeShow | VolumeSet | VolumePromote => ReplyBody::Object("Volume"),
            VolumeReclaim | VolumeMove => ReplyBody::Task,
            MoveList => ReplyBody::Page("MoveLeft"),
            MoveKeep => ReplyBody::Object("Volume"),
            ProjectList => ReplyBody::Page("Project"),
            ProjectCreate => ReplyBody::Created("Project"),
            ProjectShow | ProjectSet => ReplyBody::Object("Project"),
            TrashList => ReplyBody::Page("TrashedVolume"),
            TrashShow => ReplyBody::Object("TrashedVolume"),
            TrashRestore => ReplyBody::Object("Volume"),
            SnapshotList => ReplyBody::Page("Snapshot"),
            SnapshotCreate => ReplyBody::Created("Snapshots"),
            SnapshotShow | SnapshotSet => ReplyBody::Object("Snapshot"),
            SnapshotRollback => ReplyBody::Object("Volume"),
            SnapshotClone => ReplyBody::Created("Volume"),
            SnapshotSend => ReplyBody::Stream,
            SnapshotReceive => ReplyBody::Created("Snapshot"),
            ReceptionList => ReplyBody::Page("Reception"),
            TaskList => ReplyBody::Page("Task"),
            TaskShow | TaskCancel => ReplyBody::Object("Task"),
            EventList => ReplyBody::Page("Event"),
            PoolLedger => ReplyBody::Page("LedgerSecond"),
            TokenList => ReplyBody::Page("Token"),
            TokenCreate => ReplyBody::Created("TokenCreated"),
            HostList => ReplyBody::Page("Host"),
            HostCreate => ReplyBody::Created("Host"),
            HostShow | HostSet => ReplyBody::Object("Host"),
            HostGroupList => ReplyBody::Page("HostGroup"),
            HostGroupCreate => ReplyBody::Created("HostGroup"),
            HostGroupShow | HostGroupSet => ReplyBody::Object("HostGroup"),
            LevelList => ReplyBody::Page("Level"),
            LevelCreate => ReplyBody::Created("Level"),
            LevelShow | LevelSet => ReplyBody::Object("Level"),
            MappingList => ReplyBody::Page("Mapping"),
            MappingCreate => ReplyBody::Created("Mapping"),
            MappingShow => ReplyBody::Object("Mapping"),
            SessionList => ReplyBody::Page("Session"),
            VolumeDelete | TrashPurge | SnapshotDelete | TokenDelete => ReplyBody::Nothing,
            HostDelete | HostGroupDelete | MappingDelete | SessionDrop => ReplyBody::Nothing,
            ReceptionDelete | ProjectDelete | LevelDelete | MoveAbandon => ReplyBody::Nothing,
        }
    }

    pub fn parameters(self) -> &'static [Parameter] {
        match self {
            PoolList | TaskList | TokenList | MoveList => &[Parameter::Limit, Parameter::Cursor],
            HostList | HostGroupList | LevelList => &[Parameter::Limit, Parameter::Cursor],
            MappingList => &[Parameter::Limit, Parameter::Cursor, Parameter::Volume, Parameter::Host],
            SessionList => &[Parameter::Limit, Parameter::Cursor, Parameter::Host],
            DiskList | VolumeList | ProjectList | TrashList | ReceptionList => {
                &[Parameter::Limit, Parameter::Cursor, Parameter::Pool]
            }
            SnapshotList => &[Parameter::Limit, Parameter::Cursor, Parameter::Pool, Parameter::Volume],
            EventList | PoolLedger => &[Parameter::Limit, Parameter::After, Parameter::WaitSeconds],
            TaskShow => &[Parameter::WaitSeconds],
            PoolCreate | PoolDestroy | PoolImport | PoolExport | GroupRemove => &[Parameter::DryRun],
            PoolAdd | DiskReplace | DiskRemove | DiskOffline | DiskOnline | DiskClear => &[Parameter::DryRun],
            VolumeCreate | VolumeSet | SnapshotClone => &[Parameter::DryRun, Parameter::BestEffort],
            ProjectSet | LevelSet => &[Parameter::DryRun, Parameter::BestEffort],
            VolumePromote | ProjectCreate | ProjectDelete => &[Parameter::DryRun],
            VolumeDelete => {
                &[Parameter::DryRun, Parameter::WithSnapshots, Parameter::Purge, Parameter::Force]
            }
            PoolSet | TrashRestore | TrashPurge => &[Parameter::DryRun],
            VolumeReclaim | VolumeMove | MoveKeep | MoveAbandon => &[Parameter::DryRun],
            SnapshotCreate | SnapshotSet | SnapshotDelete => &[Parameter::DryRun],
            SnapshotRollback | ReceptionDelete => &[Parameter::DryRun],
            SnapshotSend => &[Parameter::From, Parameter::Resume],
            SnapshotReceive => &[Parameter::DiscardChanges, Parameter::Force],
            TaskCancel | TokenCreate | TokenDelete => &[Parameter::DryRun],
            HostCreate | HostSet | HostGroupCreate | HostGroupSet => &[Parameter::DryRun],
            HostDelete | HostGroupDelete => &[Parameter::DryRun, Parameter::Unmap],
            LevelCreate | LevelDelete => &[Parameter::DryRun],
            MappingCreate | MappingDelete | SessionDrop => &[Parameter::DryRun],
            _ => &[],
        }
    }

    /// Whether the request's body is a snapshot's stream, as long as it may be.
    pub fn takes_stream(self) -> bool {
        self == SnapshotReceive
    }

    /// Whether the reply carries an `ETag` and the call honours `If-Match`.
    pub fn is_versioned(self) -> bool {
        matches!(
            self,
            VolumeShow
                | VolumeCreate
                | VolumeSet
                | VolumeDelete
                | ProjectShow
                | ProjectCreate
                | ProjectSet
                | ProjectDelete
                | SnapshotShow
                | SnapshotSet
                | SnapshotDelete
                | SnapshotClone
                | HostShow
                | HostCreate
                | HostSet
                | HostDelete
                | HostGroupShow
                | HostGroupCreate
                | HostGroupSet
                | HostGroupDelete
                | LevelShow
                | LevelCreate
                | LevelSet
                | LevelDelete
        )
    }
}
