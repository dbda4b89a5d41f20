//! The summaries of the operations in the OpenAPI document.

use super::Operation::{self, *};

impl Operation {
    /// One line for people.
    pub fn summary(self) -> &'static str {
        match self {
            ServerShow => "The daemon's version and addresses",
            ServerSet => "Turn statistics on or off until the daemon restarts",
            DocumentShow => "This document",
            PoolList => "All pools",
            PoolCreate => "Create a pool",
            PoolShow => "One pool with its groups and disks",
            PoolSet => "Change how long a pool keeps deleted volumes, and its fill thresholds",
            PoolDestroy => "Destroy a pool and all its volumes",
            PoolImport => "Import a pool from its disks",
            PoolExport => "Close a pool so that another host can import it",
            PoolAdd => "Add disks to a pool in service, to a group or as a new group",
            PoolScrub => {
                "Start, pause, stop or schedule a scrub: it verifies all stored data and repairs bad copies"
            }
            PoolTrim => "Report a pool's free space to its disks (trim)",
            DamageList => "Unrecoverable data of a pool: byte ranges of volumes and snapshots",
            DamageAccept => {
                "Accept the data loss known so far: the pool is no longer shown as damaged for it"
            }
            PoolLedger => "The ledger: guarantee, demand and result of each volume, second by second",
            PoolCalibrate => "Measure a pool's performance; the pool is busy for some seconds",
            GroupRemove => "Drain a group of disks, then remove it from its pool",
            DiskList => "The disks of all pools",
            MachineDiskList => "The disks of the machine: model, place, use and health",
            DiskScan => "Search disks for pools",
            DiskShow => "One disk",
            DiskReplace => "Replace a disk",
            DiskRemove => "Move a disk's data to other disks, then remove the disk from its pool",
            DiskOffline => "Take a disk out of service for a while",
            DiskOnline => "Return a disk to service",
            DiskClear => "Reset a disk's error counters",
            DiskLocate => "Make a disk's light blink",
            VolumeList => "All volumes",
            VolumeCreate => "Create a volume, empty or as a clone of a snapshot",
            VolumeShow => "One volume",
            VolumeTrace => "Trace the requests of a volume's clients as they arrive",
            VolumeSet => {
                "Change a volume: size, properties, snapshot schedule, service level, or what it inherits"
            }
            VolumeDelete => "Delete a volume: into the trash, or for good",
            VolumePromote => "Make a clone the owner of the snapshot that it was cloned from",
            VolumeReclaim => "Search a volume for zeros and free their space",
            VolumeMove => "Move a volume to another pool while clients use it",
            MoveList => "Interrupted moves that wait for a pool",
            MoveKeep => "Make a volume of an interrupted move's data, when the other pool is lost",
            MoveAbandon => "Delete an interrupted move's data, when the other pool is lost",
            ProjectList => "All projects",
            ProjectCreate => "Create a project, whose properties volumes inherit",
            ProjectShow => "One project",
            ProjectSet => "Change a project's properties, for all volumes that inherit them, or rename it",
            ProjectDelete => "Delete a project without volumes",
            TrashList => "Deleted volumes that can be restored",
            TrashShow => "One volume in the trash",
            TrashRestore => "Restore a volume from the trash",
            TrashPurge => "Delete a volume in the trash and its data for good",
            SnapshotList => "All snapshots, oldest first within a volume",
            SnapshotCreate => {
                "Take a snapshot of a volume, or of several volumes or projects at the same moment"
            }
            SnapshotShow => "One snapshot",
            SnapshotSet => "Change whether a snapshot is held or a template, or extend its retention",
            SnapshotDelete => "Delete a snapshot",
            SnapshotRollback => "Roll a volume back to a snapshot",
            SnapshotClone => "Create a clone of a snapshot, in the same pool",
            SnapshotSend => "Send a snapshot as a stream, whole or as an increment",
            SnapshotReceive => "Receive a snapshot stream, as a new volume or as an increment of a volume",
            BookmarkList => "All bookmarks, oldest first within a volume",
            BookmarkCreate => "Create a bookmark of a snapshot, as the base of increments",
            BookmarkShow => "One bookmark",
            BookmarkSet => "Rename a bookmark",
            BookmarkDelete => "Delete a bookmark",
            ReceiveList => "Running and interrupted receives of snapshots",
            ReceiveAbandon => "Abandon an interrupted receive and delete its data",
            HostList => "All hosts, without their secrets",
            HostCreate => "Create a host from its initiator names",
            HostShow => "One host",
            HostSet => "Change a host; secrets that are absent stay as they are",
            HostDelete => "Delete a host",
            HostGroupList => "All host groups",
            HostGroupCreate => "Create a host group",
            HostGroupShow => "One host group",
            HostGroupSet => "Change a host group",
            HostGroupDelete => "Delete a host group",
            LevelList => "All service levels",
            LevelCreate => "Create a service level",
            LevelShow => "One service level",
            LevelSet => "Change a service level for all its volumes at once",
            LevelDelete => "Delete a service level that no volume or project has",
            MappingList => "All mappings: which host sees which volume under which LUN",
            MappingCreate => "Map a volume to a host or host group",
            MappingShow => "One mapping",
            MappingDelete => "Unmap a volume from a host or host group",
            SessionList => "iSCSI sessions, oldest first",
            SessionDrop => "Log an initiator out",
            TaskList => "Tasks, newest first",
            TaskShow => "One task",
            TaskCancel => "Cancel a task",
            EventList => "Events",
            TokenList => "Access tokens, without their secrets",
            TokenCreate => "Create an access token",
            TokenSet => "Rename an access token",
            TokenDelete => "Revoke an access token",
            SetupShow => "Whether the first administrator is still to be created",
            SetupFinish => "Create the first administrator, with the secret of the printed link",
            SetupLink => "Create a new link for the first administrator, while there is no user",
            LoginShow => "The user or token that asks",
            LoginCreate => "Log in: start a browser session",
            LoginEnd => "Log out: end this browser session",
            UserList => "All users",
            UserCreate => "Create a user",
            UserShow => "One user: users see themselves, administrators see all users",
            UserSet => {
                "Change a user's role or password: users change their own password, administrators change everything"
            }
            UserDelete => "Delete a user and end the user's logins",
            AuditList => "The audit log: changes over the API, made or refused",
            ThresholdList => "Thresholds of statistics, and which are crossed",
            ThresholdCreate => "Raise an alert while a statistic is above or below a limit",
            ThresholdShow => "One threshold",
            ThresholdSet => "Change a threshold",
            ThresholdDelete => "Delete a threshold and its alert",
            ChannelList => "Channels for notices, and their state",
            ChannelCreate => "Create a channel for notices: mail, webhook, syslog or SNMP trap",
            ChannelShow => "One channel, without its secrets",
            ChannelSet => "Change a channel; secrets that are null stay as they are",
            ChannelDelete => "Delete a channel",
            ChannelTest => "Send a test message now, and answer with the result",
            AlertList => "Current alerts, with advice",
            EventStream => "Events, and changes of objects and tasks, as server-sent events",
            StatisticList => "All statistics, with their dimensions",
            StatisticQuery => "The values of a statistic over an interval",
            StatisticStream => {
                "Live statistics over a WebSocket: the client sends StatisticSubscribe, the daemon StatisticSecond each second"
            }
            WorksheetList => "All worksheets",
            WorksheetCreate => "Save graphs as a worksheet",
            WorksheetShow => "One worksheet",
            WorksheetSet => "Change a worksheet",
            WorksheetDelete => "Delete a worksheet and its pinned data",
            WorksheetExport => "All data of a worksheet's graphs, as a file",
            ReportList => "All reports",
            ReportCreate => "Store a report",
            ReportShow => "One report, without its pages",
            ReportDelete => "Delete a report",
            ReportDownload => "A report's pages or figures",
            MetricsShow => {
                "Counters, gauges and histograms in the Prometheus text format; clients are never labels"
            }
        }
    }
}
