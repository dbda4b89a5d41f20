//! The operations: one table for server, client and OpenAPI document.
//!
//! The server matches on [`Operation`] exhaustively: an operation without an implementation does not compile, and one
//! that is not in the table has no route.

mod parameter;
mod summary;

pub use parameter::Parameter;

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

/// The answer of a successful call, by schema name.
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
    /// 200: the requests of a volume's clients, line by line.
    Trace,
    /// 200: server-sent events, without an end.
    Events,
    /// 101: a WebSocket.
    WebSocket,
    /// 200: a worksheet's answers, as JSON or CSV.
    Export,
    /// 200: a report, as HTML or JSON.
    Report,
    /// 200: metrics in Prometheus text format.
    Metrics,
}

macro_rules! operations {
    ($($name:ident),* $(,)?) => {
        /// One call of the API.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum Operation {
            $($name),*
        }

        impl Operation {
            pub const ALL: [Operation; [$(Operation::$name),*].len()] = [$(Operation::$name),*];
        }
    };
}

operations! {
    ServerShow, ServerSet, DocumentShow, PoolList, PoolCreate, PoolShow, PoolSet, PoolDestroy, PoolImport,
    PoolExport, PoolAdd, PoolScrub, PoolTrim, PoolCalibrate, PoolLedger, DamageList, DamageAccept,
    GroupRemove, DiskList, MachineDiskList, DiskScan,
    DiskShow, DiskReplace, DiskRemove, DiskOffline, DiskOnline, DiskClear, DiskLocate, VolumeList,
    VolumeCreate, VolumeShow, VolumeSet, VolumeDelete, VolumePromote, VolumeReclaim, VolumeMove, VolumeTrace, MoveList,
    MoveKeep, MoveAbandon, ProjectList, ProjectCreate, ProjectShow, ProjectSet, ProjectDelete, TrashList,
    TrashShow, TrashRestore, TrashPurge, SnapshotList, SnapshotCreate, SnapshotShow, SnapshotSet,
    SnapshotDelete, SnapshotRollback, SnapshotClone, SnapshotSend, SnapshotReceive, BookmarkList,
    BookmarkCreate, BookmarkShow, BookmarkSet, BookmarkDelete, ReceiveList, ReceiveAbandon, HostList, HostCreate, HostShow, HostSet, HostDelete, HostGroupList, HostGroupCreate,
    HostGroupShow, HostGroupSet, HostGroupDelete, LevelList, LevelCreate, LevelShow, LevelSet, LevelDelete,
    MappingList, MappingCreate, MappingShow, MappingDelete, SessionList, SessionDrop, TaskList, TaskShow,
    TaskCancel, EventList, TokenList, TokenCreate, TokenSet, TokenDelete, SetupShow, SetupFinish, SetupLink,
    LoginShow, LoginCreate, LoginEnd, UserList, UserCreate, UserShow, UserSet, UserDelete, AuditList,
    AlertList, ChannelList, ChannelCreate, ChannelShow, ChannelSet, ChannelDelete, ChannelTest, ThresholdList, ThresholdCreate, ThresholdShow, ThresholdSet,
    ThresholdDelete, EventStream, StatisticList, StatisticQuery, StatisticStream, WorksheetList, WorksheetCreate,
    WorksheetShow, WorksheetSet, WorksheetDelete, WorksheetExport, ReportList, ReportCreate, ReportShow,
    ReportDelete, ReportDownload, MetricsShow,
}

use Operation::*;

/// The parameters of every list.
const LIST: &[Parameter] = &[Parameter::Limit, Parameter::Cursor, Parameter::Filter, Parameter::Sort];

impl Operation {
    pub fn method(self) -> Method {
        match self {
            PoolCreate | PoolImport | PoolExport | DiskScan | VolumeCreate | TaskCancel | TokenCreate => {
                Method::Post
            }
            PoolAdd | PoolScrub | PoolTrim | PoolCalibrate | DamageAccept => Method::Post,
            DiskReplace | DiskOffline | DiskOnline | DiskClear | DiskLocate => Method::Post,
            VolumePromote | VolumeReclaim | VolumeMove | MoveKeep => Method::Post,
            TrashRestore | ProjectCreate | BookmarkCreate => Method::Post,
            SnapshotCreate | SnapshotRollback | SnapshotClone | SnapshotReceive => Method::Post,
            HostCreate | HostGroupCreate | LevelCreate | MappingCreate | ThresholdCreate => Method::Post,
            SetupFinish | SetupLink | LoginCreate | UserCreate | WorksheetCreate | ReportCreate
            | ChannelCreate | ChannelTest => Method::Post,
            ServerSet | PoolSet | VolumeSet | ProjectSet | SnapshotSet | BookmarkSet | UserSet => {
                Method::Patch
            }
            HostSet | HostGroupSet | LevelSet | WorksheetSet | ChannelSet | ThresholdSet | TokenSet => {
                Method::Patch
            }
            PoolDestroy | GroupRemove | DiskRemove | VolumeDelete | SnapshotDelete | TokenDelete => {
                Method::Delete
            }
            BookmarkDelete | TrashPurge | HostDelete | HostGroupDelete | MappingDelete | SessionDrop => {
                Method::Delete
            }
            ReceiveAbandon | ProjectDelete | LevelDelete | MoveAbandon | ThresholdDelete => Method::Delete,
            LoginEnd | UserDelete | WorksheetDelete | ReportDelete | ChannelDelete => Method::Delete,
            _ => Method::Get,
        }
    }

    /// The path, with the object's name or UUID in braces.
    pub fn path(self) -> &'static str {
        match self {
            ServerShow | ServerSet => "/api/v1/server",
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
            DamageList => "/api/v1/pools/{pool}/damage",
            DamageAccept => "/api/v1/pools/{pool}/damage/accept",
            GroupRemove => "/api/v1/groups/{group}",
            DiskList => "/api/v1/disks",
            MachineDiskList => "/api/v1/machine/disks",
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
            VolumeTrace => "/api/v1/volumes/{volume}/trace",
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
            BookmarkList | BookmarkCreate => "/api/v1/bookmarks",
            BookmarkShow | BookmarkSet | BookmarkDelete => "/api/v1/bookmarks/{bookmark}",
            ReceiveList => "/api/v1/receives",
            ReceiveAbandon => "/api/v1/receives/{volume}",
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
            TokenSet | TokenDelete => "/api/v1/tokens/{token}",
            SetupShow | SetupFinish => "/api/v1/setup",
            SetupLink => "/api/v1/setup/link",
            LoginShow | LoginCreate | LoginEnd => "/api/v1/login",
            UserList | UserCreate => "/api/v1/users",
            UserShow | UserSet | UserDelete => "/api/v1/users/{user}",
            AuditList => "/api/v1/audit",
            AlertList => "/api/v1/alerts",
            EventStream => "/api/v1/events/stream",
            StatisticList => "/api/v1/statistics",
            StatisticQuery => "/api/v1/statistics/query",
            StatisticStream => "/api/v1/statistics/stream",
            ThresholdList | ThresholdCreate => "/api/v1/thresholds",
            ThresholdShow | ThresholdSet | ThresholdDelete => "/api/v1/thresholds/{threshold}",
            ChannelList | ChannelCreate => "/api/v1/channels",
            ChannelShow | ChannelSet | ChannelDelete => "/api/v1/channels/{channel}",
            ChannelTest => "/api/v1/channels/{channel}/test",
            WorksheetList | WorksheetCreate => "/api/v1/worksheets",
            WorksheetShow | WorksheetSet | WorksheetDelete => "/api/v1/worksheets/{worksheet}",
            WorksheetExport => "/api/v1/worksheets/{worksheet}/export",
            ReportList | ReportCreate => "/api/v1/reports",
            ReportShow | ReportDelete => "/api/v1/reports/{report}",
            ReportDownload => "/api/v1/reports/{report}/download",
            MetricsShow => "/metrics",
        }
    }

    /// The path with `name`, percent-encoded, in place of the braces.
    pub fn path_of(self, name: &str) -> String {
        let path = self.path();
        match (path.find('{'), path.find('}')) {
            (Some(from), Some(to)) => {
                format!("{}{}{}", &path[..from], crate::encode_segment(name), &path[to + 1..])
            }
            _ => path.to_string(),
        }
    }

    /// The lowest role that may call it.
    pub fn access(self) -> Access {
        match self {
            VolumeCreate | VolumeSet | VolumeDelete | TaskCancel => Access::Operator,
            ProjectCreate | ProjectSet | ProjectDelete => Access::Operator,
            VolumePromote | SnapshotCreate | SnapshotSet | SnapshotDelete => Access::Operator,
            SnapshotRollback | SnapshotClone | TrashRestore | TrashPurge => Access::Operator,
            SnapshotSend | SnapshotReceive | ReceiveAbandon => Access::Operator,
            BookmarkCreate | BookmarkSet | BookmarkDelete => Access::Operator,
            VolumeReclaim | VolumeMove | VolumeTrace | MoveKeep | MoveAbandon => Access::Operator,
            HostCreate | HostSet | HostDelete => Access::Operator,
            HostGroupCreate | HostGroupSet | HostGroupDelete => Access::Operator,
            LevelCreate | LevelSet | LevelDelete => Access::Operator,
            ThresholdCreate | ThresholdSet | ThresholdDelete => Access::Operator,
            MappingCreate | MappingDelete | SessionDrop => Access::Operator,
            WorksheetCreate | WorksheetSet | WorksheetDelete | ReportCreate | ReportDelete => {
                Access::Operator
            }
            PoolCreate | PoolDestroy | PoolImport | PoolExport | DiskScan => Access::Admin,
            PoolSet | PoolAdd | PoolScrub | PoolTrim | PoolCalibrate | GroupRemove => Access::Admin,
            DamageAccept => Access::Admin,
            DiskReplace | DiskRemove | DiskOffline | DiskOnline | DiskClear | DiskLocate => Access::Admin,
            TokenList | TokenCreate | TokenSet | TokenDelete => Access::Admin,
            ChannelCreate | ChannelSet | ChannelDelete | ChannelTest => Access::Admin,
            ServerSet | SetupLink | UserList | UserCreate | UserDelete | AuditList => Access::Admin,
            _ => Access::Viewer,
        }
    }

    /// Whether clients may call it without a token or login.
    pub fn is_open(self) -> bool {
        matches!(self, SetupShow | SetupFinish | LoginCreate)
    }

    /// Whether an answer has data of volumes or requests of clients: the audit log records such calls like changes.
    pub fn reveals_contents(self) -> bool {
        matches!(self, SnapshotSend | VolumeTrace)
    }

    /// Whether an `Idempotency-Key` is accepted. Requests and answers with secrets are not kept for repeats, and a
    /// stream is not repeated.
    pub fn is_repeatable(self) -> bool {
        let is_secret =
            matches!(self, TokenCreate | UserCreate | LoginCreate | SetupFinish | SetupLink | ChannelCreate);
        self.method() == Method::Post && !is_secret && !self.takes_stream()
    }

    /// Schema name of the request body.
    pub fn input(self) -> Option<&'static str> {
        match self {
            ServerSet => Some("ServerSet"),
            ReportCreate => Some("ReportCreate"),
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
            BookmarkCreate => Some("BookmarkCreate"),
            BookmarkSet => Some("BookmarkSet"),
            TokenSet => Some("TokenSet"),
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
            SetupFinish => Some("SetupFinish"),
            LoginCreate => Some("LoginCreate"),
            UserCreate => Some("UserCreate"),
            UserSet => Some("UserSet"),
            WorksheetCreate => Some("WorksheetCreate"),
            WorksheetSet => Some("WorksheetSet"),
            ThresholdCreate => Some("ThresholdCreate"),
            ThresholdSet => Some("ThresholdSet"),
            ChannelCreate => Some("ChannelCreate"),
            ChannelSet => Some("ChannelSet"),
            _ => None,
        }
    }

    pub fn reply(self) -> ReplyBody {
        match self {
            ServerShow | ServerSet => ReplyBody::Object("Server"),
            DocumentShow => ReplyBody::Document,
            PoolList => ReplyBody::Page("Pool"),
            PoolShow | PoolSet => ReplyBody::Object("Pool"),
            PoolCreate | PoolDestroy | PoolImport | PoolExport => ReplyBody::Task,
            DiskList => ReplyBody::Page("Disk"),
            MachineDiskList => ReplyBody::Page("MachineDisk"),
            DiskScan => ReplyBody::Object("PoolsFound"),
            DiskShow => ReplyBody::Object("Disk"),
            PoolAdd | PoolScrub | PoolTrim | PoolCalibrate | GroupRemove | DamageAccept => ReplyBody::Task,
            DamageList => ReplyBody::Page("DamagedRange"),
            DiskReplace | DiskRemove | DiskOffline | DiskOnline | DiskClear | DiskLocate => ReplyBody::Task,
            VolumeList => ReplyBody::Page("Volume"),
            VolumeCreate => ReplyBody::Created("Volume"),
            VolumeShow | VolumeSet | VolumePromote => ReplyBody::Object("Volume"),
            VolumeReclaim | VolumeMove => ReplyBody::Task,
            VolumeTrace => ReplyBody::Trace,
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
            BookmarkList => ReplyBody::Page("Bookmark"),
            BookmarkCreate => ReplyBody::Created("Bookmark"),
            BookmarkShow | BookmarkSet => ReplyBody::Object("Bookmark"),
            TokenSet => ReplyBody::Object("Token"),
            ReceiveList => ReplyBody::Page("Receive"),
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
            BookmarkDelete => ReplyBody::Nothing,
            HostDelete | HostGroupDelete | MappingDelete | SessionDrop => ReplyBody::Nothing,
            ReceiveAbandon | ProjectDelete | LevelDelete | MoveAbandon => ReplyBody::Nothing,
            SetupShow => ReplyBody::Object("Setup"),
            SetupLink => ReplyBody::Object("SetupLink"),
            SetupFinish | LoginShow | LoginCreate => ReplyBody::Object("Login"),
            UserList => ReplyBody::Page("User"),
            UserCreate => ReplyBody::Created("User"),
            UserShow | UserSet => ReplyBody::Object("User"),
            LoginEnd | UserDelete => ReplyBody::Nothing,
            AuditList => ReplyBody::Page("AuditEntry"),
            AlertList => ReplyBody::Page("Alert"),
            EventStream => ReplyBody::Events,
            StatisticList => ReplyBody::Page("Statistic"),
            StatisticQuery => ReplyBody::Object("StatisticAnswer"),
            StatisticStream => ReplyBody::WebSocket,
            ThresholdList => ReplyBody::Page("Threshold"),
            ThresholdCreate => ReplyBody::Created("Threshold"),
            ThresholdShow | ThresholdSet => ReplyBody::Object("Threshold"),
            ThresholdDelete => ReplyBody::Nothing,
            ChannelList => ReplyBody::Page("Channel"),
            ChannelCreate => ReplyBody::Created("Channel"),
            ChannelShow | ChannelSet => ReplyBody::Object("Channel"),
            ChannelDelete => ReplyBody::Nothing,
            ChannelTest => ReplyBody::Object("ChannelTested"),
            WorksheetList => ReplyBody::Page("Worksheet"),
            WorksheetCreate => ReplyBody::Created("Worksheet"),
            WorksheetShow | WorksheetSet => ReplyBody::Object("Worksheet"),
            WorksheetDelete => ReplyBody::Nothing,
            WorksheetExport => ReplyBody::Export,
            ReportList => ReplyBody::Page("Report"),
            ReportCreate => ReplyBody::Created("Report"),
            ReportShow => ReplyBody::Object("Report"),
            ReportDelete => ReplyBody::Nothing,
            ReportDownload => ReplyBody::Report,
            MetricsShow => ReplyBody::Metrics,
        }
    }

    pub fn parameters(self) -> &'static [Parameter] {
        match self {
            PoolList | TaskList | TokenList | MoveList | UserList | AlertList | StatisticList => LIST,
            DamageList | MachineDiskList | ChannelList | ThresholdList => LIST,
            HostList | HostGroupList | LevelList | WorksheetList | ReportList => LIST,
            WorksheetCreate | WorksheetSet | WorksheetDelete => &[Parameter::DryRun],
            ChannelCreate | ChannelSet | ChannelDelete => &[Parameter::DryRun],
            ThresholdCreate | ThresholdSet | ThresholdDelete => &[Parameter::DryRun],
            ServerSet | ReportCreate | ReportDelete => &[Parameter::DryRun],
            WorksheetExport => &[Parameter::Format],
            ReportDownload => &[Parameter::Form],
            StatisticQuery => &[
                Parameter::Expression,
                Parameter::Since,
                Parameter::Until,
                Parameter::Step,
                Parameter::Lines,
            ],
            MappingList => &[
                Parameter::Limit,
                Parameter::Cursor,
                Parameter::Filter,
                Parameter::Sort,
                Parameter::Volume,
                Parameter::Host,
            ],
            SessionList => {
                &[Parameter::Limit, Parameter::Cursor, Parameter::Filter, Parameter::Sort, Parameter::Host]
            }
            DiskList | VolumeList | ProjectList | TrashList | ReceiveList => {
                &[Parameter::Limit, Parameter::Cursor, Parameter::Filter, Parameter::Sort, Parameter::Pool]
            }
            SnapshotList | BookmarkList => &[
                Parameter::Limit,
                Parameter::Cursor,
                Parameter::Filter,
                Parameter::Sort,
                Parameter::Pool,
                Parameter::Volume,
            ],
            AuditList => &[Parameter::Limit, Parameter::After, Parameter::Filter, Parameter::Sort],
            UserCreate | UserSet | UserDelete => &[Parameter::DryRun],
            EventList => &[
                Parameter::Limit,
                Parameter::After,
                Parameter::WaitSeconds,
                Parameter::Filter,
                Parameter::Sort,
            ],
            PoolLedger => &[Parameter::Limit, Parameter::After, Parameter::WaitSeconds],
            TaskShow => &[Parameter::WaitSeconds],
            PoolCreate | PoolImport | GroupRemove => &[Parameter::DryRun],
            PoolDestroy | PoolExport => &[Parameter::DryRun, Parameter::Force],
            PoolAdd | DiskReplace | DiskRemove | DiskOffline | DiskOnline | DiskClear => &[Parameter::DryRun],
            DamageAccept => &[Parameter::DryRun],
            VolumeCreate | VolumeSet | SnapshotClone => &[Parameter::DryRun, Parameter::BestEffort],
            ProjectSet | LevelSet => &[Parameter::DryRun, Parameter::BestEffort],
            VolumePromote | ProjectCreate | ProjectDelete => &[Parameter::DryRun],
            VolumeDelete => {
                &[Parameter::DryRun, Parameter::WithSnapshots, Parameter::Purge, Parameter::Force]
            }
            PoolSet | TrashRestore | TrashPurge => &[Parameter::DryRun],
            VolumeReclaim | VolumeMove | MoveKeep | MoveAbandon => &[Parameter::DryRun],
            SnapshotCreate | SnapshotSet | SnapshotDelete => &[Parameter::DryRun],
            BookmarkCreate | BookmarkSet | BookmarkDelete => &[Parameter::DryRun],
            SnapshotRollback | ReceiveAbandon => &[Parameter::DryRun],
            SnapshotSend => &[Parameter::From, Parameter::Resume],
            VolumeTrace => &[Parameter::Seconds],
            SnapshotReceive => &[Parameter::DiscardChanges, Parameter::Force],
            TaskCancel | TokenCreate | TokenSet | TokenDelete => &[Parameter::DryRun],
            HostCreate | HostSet | HostGroupCreate | HostGroupSet => &[Parameter::DryRun],
            HostDelete | HostGroupDelete => &[Parameter::DryRun, Parameter::Unmap],
            LevelCreate | LevelDelete => &[Parameter::DryRun],
            MappingCreate | MappingDelete | SessionDrop => &[Parameter::DryRun],
            _ => &[],
        }
    }

    /// Whether the request's body is a snapshot stream, of any length.
    pub fn takes_stream(self) -> bool {
        self == SnapshotReceive
    }

    /// Whether the reply has an `ETag` and the call honours `If-Match`.
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
                | WorksheetShow
                | WorksheetCreate
                | WorksheetSet
                | WorksheetDelete
                | ThresholdShow
                | ThresholdCreate
                | ThresholdSet
                | ThresholdDelete
                | ChannelShow
                | ChannelCreate
                | ChannelSet
                | ChannelDelete
        )
    }
}
