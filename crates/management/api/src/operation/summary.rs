//! What each operation is called by people: the summaries of the OpenAPI document.

use super::Operation::{self, *};

impl Operation {
    /// One line for people.
    pub fn summary(self) -> &'static str {
        match self {
            ServerShow => "The daemon's version",
            ServerSet => "Have statistics counted, or not, until the daemon ends",
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
            DamageList => "What of a pool is lost: which bytes of which volumes and snapshots",
            DamageAccept => {
                "Say that all that is lost so far is known: the pool is called damaged for it no longer"
            }
            PoolLedger => "What volumes were promised, asked for and got, second by second",
            PoolCalibrate => "Measure what a pool can do; it is busy with that for some seconds",
            GroupRemove => "Have a group of disks leave its pool: what is in it moves to the others first",
            DiskList => "The disks of all pools",
            MachineDiskList => {
                "The disks of the machine: what each is, where it sits, what uses it and how it is"
            }
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
            VolumeTrace => "What clients ask of a volume, request by request, while they ask it",
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
            SnapshotSet => "Hold a snapshot or let it go; retain it; make it a template or none",
            SnapshotDelete => "Delete a snapshot",
            SnapshotRollback => "Put a volume back to what it was",
            SnapshotClone => "Make a volume of a snapshot, in the same pool",
            SnapshotSend => "A snapshot as a stream: all of it, or what makes it of another",
            SnapshotReceive => "Receive a snapshot's stream, as a new volume or what a volume advances to",
            BookmarkList => "All bookmarks, oldest first within a volume",
            BookmarkCreate => "Keep the moment of a snapshot as the base of increments",
            BookmarkShow => "One bookmark",
            BookmarkDelete => "Delete a bookmark",
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
            SetupShow => "Whether there is nobody yet who could log in",
            SetupFinish => {
                "Make the first administrator, with the secret of the link that the daemon printed"
            }
            SetupLink => "Make a new link for the first administrator, as long as there is nobody",
            LoginShow => "Who is logged in",
            LoginCreate => "Log in: begins a browser's session",
            LoginEnd => "Log out: ends the session that asks",
            UserList => "All users",
            UserCreate => "Make a user",
            UserShow => "One user: everybody may see himself, administrators everybody",
            UserSet => {
                "Change a user's role or password: everybody may change his own password, administrators everything"
            }
            UserDelete => "Remove a user, and end his logins",
            AuditList => "Who changed what over the API, or tried to",
            ThresholdList => "Thresholds of statistics, and which are crossed",
            ThresholdCreate => "Have an alert raised as long as a statistic is above or below a limit",
            ThresholdShow => "One threshold",
            ThresholdSet => "Change a threshold",
            ThresholdDelete => "Delete a threshold, and its alert",
            ChannelList => "Where notices go, and how that goes",
            ChannelCreate => "Send notices by mail, webhook, syslog or SNMP trap",
            ChannelShow => "One channel, without its secrets",
            ChannelSet => "Change a channel; secrets that are null stay as they are",
            ChannelDelete => "Send no notices there any more",
            ChannelTest => "Send a test message at once, and say how it went",
            AlertList => "What is wrong now, and what to do about it",
            EventStream => "Events, changes of objects and of tasks as they happen, as server-sent events",
            StatisticList => "What is counted, and by what it breaks down",
            StatisticQuery => "What a statistic was in an interval",
            StatisticStream => {
                "Statistics as they happen, a second at a time: texts with StatisticSubscribe one way, StatisticSecond the other"
            }
            WorksheetList => "All worksheets",
            WorksheetCreate => "Save graphs as a worksheet",
            WorksheetShow => "One worksheet",
            WorksheetSet => "Change a worksheet",
            WorksheetDelete => "Delete a worksheet, and give up the interval that it pinned",
            WorksheetExport => "Everything that a worksheet's graphs show, as a file",
            ReportList => "All reports",
            ReportCreate => "Keep a report",
            ReportShow => "One report, without its pages",
            ReportDelete => "Delete a report",
            ReportDownload => "A report's pages or figures",
            MetricsShow => {
                "Counters, gauges and histograms in Prometheus' text format; clients are never labels"
            }
        }
    }
}
