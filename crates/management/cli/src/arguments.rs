//! The command line as clap sees it. What it says is committed as `docs/reference/cli.md`.

use crate::bookmarks::Bookmark;
use crate::channels::ChannelCommand;
use crate::disks::Disk;
use crate::events::Event;
use crate::hosts::{Host, SessionCommand};
use crate::levels::Level;
use crate::projects::{Project, volume_property};
use crate::rename::Rename;
use crate::reports::ReportCommand;
use crate::serve::{Config, Configured, Serve};
use crate::size::{Resize, Sector, parse_duration, parse_every, parse_resize, parse_sector, parse_size};
use crate::snapshots::{CloneCommand, Snapshot};
use crate::statistics::{Stat, WorksheetCommand};
use crate::support::Support;
use crate::thresholds::ThresholdCommand;
use crate::top::Top;
use crate::users::{AlertCommand, Audit, SetupCommand, User};
use crate::validate::Validate;
use crate::{moves, trash};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use forebay_api::{Access, Layout, Property, SnapshotKeep, Sync, VolumeFormat};
use std::path::PathBuf;

/// Crash-safe storage pools, served over NBD and iSCSI.
#[derive(Parser, Debug)]
#[command(
    name = "forebay",
    version,
    disable_help_subcommand = true,
    after_help = "Sizes take K, M, G, T and P, powers of 1024: 8K, 100G, 1.5T.\n\
                  Exit status: 0 ok, 1 failed, 2 wrong usage, 3 not found, 4 conflict, 5 refused as unsafe, 6 degraded, \
                  7 daemon unreachable, 8 data is lost and the loss is not accepted, 9 permission denied.\n\
                  Environment: FOREBAY_DATA (the daemon's data directory), FOREBAY_URL and FOREBAY_TOKEN (a remote \
                  daemon and its token), FOREBAY_CA (a PEM file of certificate authorities for https://), NO_COLOR."
)]
pub struct Arguments {
    /// The daemon's data directory [default: $FOREBAY_DATA, the configuration file's, or /var/lib/forebay]
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print JSON: stable names, integers in base units
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub noun: Noun,
}

#[derive(Subcommand, Debug)]
pub enum Noun {
    /// Run the daemon
    Serve(Configured),
    /// Run the daemon with a demonstration pool on files and a light load; Ctrl-C stops it
    Demo(Serve),
    /// The configuration file; backup of the settings
    #[command(subcommand)]
    Config(Config),
    /// Storage pools: groups of disks with redundancy
    #[command(subcommand)]
    Pool(Pool),
    /// Disks of the pools and the machine
    #[command(subcommand)]
    Disk(Disk),
    /// Projects: volumes that share properties
    #[command(subcommand)]
    Project(Project),
    /// Volumes: virtual disks
    #[command(subcommand)]
    Volume(Volume),
    /// Snapshots of volumes; sending and receiving them
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Bookmarks: incremental send bases that hold no data
    #[command(subcommand)]
    Bookmark(Bookmark),
    /// Clones: volumes that are made from snapshots
    #[command(subcommand)]
    Clone(CloneCommand),
    /// iSCSI hosts and host groups
    #[command(subcommand)]
    Host(Host),
    /// Service levels: minimums, limits and latency goals
    #[command(subcommand)]
    Level(Level),
    /// iSCSI sessions of initiators
    #[command(subcommand)]
    Session(SessionCommand),
    /// Live load of volumes, clients and disks
    #[command(subcommand)]
    Top(Top),
    /// Statistics over time: IOPS, throughput, latency
    #[command(subcommand)]
    Stat(Stat),
    /// Worksheets: saved graphs of statistics
    #[command(subcommand)]
    Worksheet(WorksheetCommand),
    /// Stored reports, such as validation results
    #[command(subcommand)]
    Report(ReportCommand),
    /// Long-running tasks
    #[command(subcommand)]
    Task(Task),
    /// The event log
    #[command(subcommand)]
    Event(Event),
    /// Current alerts, and what to do
    #[command(subcommand)]
    Alert(AlertCommand),
    /// Thresholds of statistics that raise alerts
    #[command(subcommand)]
    Threshold(ThresholdCommand),
    /// Alert channels: mail, webhooks, syslog, SNMP traps
    #[command(subcommand)]
    Channel(ChannelCommand),
    /// Users, their roles and passwords
    #[command(subcommand)]
    User(User),
    /// Support bundles
    #[command(subcommand)]
    Support(Support),
    /// The setup link for the first administrator
    #[command(subcommand)]
    Setup(SetupCommand),
    /// The audit log: changes over the API
    #[command(subcommand)]
    Audit(Audit),
    /// Access tokens for the HTTP API
    #[command(subcommand)]
    Token(Token),
    /// Check a pool for consistency without a daemon; exit 0 only if it is consistent
    Check(Check),
    /// Performance of layouts, modelled or measured
    ///
    /// Runs published reference architectures or your own configurations, on modelled disks or on a running pool.
    #[command(subcommand)]
    Validate(Validate),
    /// Print a shell's completion script
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write a manual page for each command; read one with `man -l DIR/forebay-volume-create.1`
    Man {
        /// The target directory; it is created if it does not exist
        directory: PathBuf,
    },
    /// Print the help of a command
    Help {
        /// The command, such as `volume create`
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Print the version
    Version,
}

/// Whether a level may be given that the pool cannot guarantee.
#[derive(Args, Debug)]
pub struct BestEffort {
    /// Accept best effort if the pool cannot guarantee the level, instead of an error
    #[arg(long)]
    pub best_effort: bool,
}

/// For commands that change something.
#[derive(Args, Debug, Clone, Copy)]
pub struct DryRun {
    /// Check the command and print what it would change; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// For commands that lose data or redundancy.
#[derive(Args, Debug, Clone, Copy)]
pub struct Yes {
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}

/// For long work.
#[derive(Args, Debug, Clone, Copy)]
pub struct Wait {
    /// Wait until the task ends (the default)
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    /// Start the task, print it and return at once
    #[arg(long)]
    pub no_wait: bool,
}

fn layout(text: &str) -> Result<Layout, String> {
    text.parse()
}

fn enclosure(text: &str) -> Result<(String, String), String> {
    // A path may hold an equals sign.
    let (disk, name) = text
        .rsplit_once('=')
        .filter(|(disk, name)| !disk.is_empty() && !name.is_empty())
        .ok_or("write DISK=NAME, such as /dev/sdb=shelf1")?;
    Ok((disk.into(), name.into()))
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SyncArgument {
    /// A write is acknowledged when it is durable
    Always,
    /// A write is acknowledged at once; it is durable with FUA or the next flush
    Standard,
    /// A write is acknowledged at once; for scratch data
    Disabled,
}

impl From<SyncArgument> for Sync {
    fn from(sync: SyncArgument) -> Sync {
        match sync {
            SyncArgument::Always => Sync::Always,
            SyncArgument::Standard => Sync::Standard,
            SyncArgument::Disabled => Sync::Disabled,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "lowercase")]
pub enum FormatArgument {
    /// Space is allocated when data is written
    Thin,
    /// The whole size is reserved; only written data counts as used
    #[value(alias = "thick")]
    ZeroedThick,
    /// The whole size is reserved and counts as used
    EagerZeroedThick,
}

impl From<FormatArgument> for VolumeFormat {
    fn from(format: FormatArgument) -> VolumeFormat {
        match format {
            FormatArgument::Thin => VolumeFormat::Thin,
            FormatArgument::ZeroedThick => VolumeFormat::ZeroedThick,
            FormatArgument::EagerZeroedThick => VolumeFormat::EagerZeroedThick,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleArgument {
    /// May read everything
    Viewer,
    /// May also change volumes, service levels and hosts
    Operator,
    /// May also change pools, disks, tokens and users
    Admin,
}

impl From<RoleArgument> for Access {
    fn from(role: RoleArgument) -> Access {
        match role {
            RoleArgument::Viewer => Access::Viewer,
            RoleArgument::Operator => Access::Operator,
            RoleArgument::Admin => Access::Admin,
        }
    }
}

#[derive(Subcommand, Debug)]
pub enum Pool {
    /// Create a pool; the data on its disks is lost
    Create {
        /// Letters, digits and `._-`, starting with a letter
        name: String,
        /// Layout: single, mirror (2 copies), mirror3, or D+P for 2 to 16 data and 1 to 3 parity disks
        #[arg(long, value_parser = layout)]
        layout: Layout,
        /// Block devices or files for data, at least as many as the layout needs
        #[arg(value_name = "DISK", required = true)]
        disks: Vec<String>,
        /// Devices or files for the intent log: one, or two or three that are mirrored
        #[arg(long, value_name = "DISK", num_args = 1..)]
        log: Vec<String>,
        /// Devices or files for spare disks, which replace a disk that fails
        #[arg(long, value_name = "DISK", num_args = 1..)]
        spare: Vec<String>,
        /// Flash disks that cache data that is read at random; losing one loses no data
        #[arg(long, value_name = "DISK", num_args = 1..)]
        cache: Vec<String>,
        /// The enclosure of a disk; where possible, data is laid out so that the pool survives the loss of one enclosure
        #[arg(long, value_name = "DISK=NAME", num_args = 1.., value_parser = enclosure)]
        enclosure: Vec<(String, String)>,
        /// Physical sector size of disks that report it wrongly, 512 to 64K: for all disks, or for one
        #[arg(long, value_name = "[DISK=]SIZE", num_args = 1.., value_parser = parse_sector)]
        sector: Vec<Sector>,
        /// Take disks that are not empty; their data is lost. Disks in use are never taken
        #[arg(long)]
        force: bool,
        /// Do not measure the performance of the new pool, which takes some seconds in the background
        #[arg(long)]
        no_calibrate: bool,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// List pools
    List,
    /// Show pools with their groups and disks; exit 6 if one is degraded, suspended or unavailable, 8 if one has lost data
    Status {
        /// The pool's name or UUID [default: all pools]
        name: Option<String>,
        /// List the lost data instead: byte ranges of volumes and snapshots
        #[arg(long)]
        errors: bool,
    },
    /// Accept the data loss found so far; the pool no longer counts as damaged because of it
    AcceptDamage {
        /// The pool's name or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Change a pool's properties
    Set(trash::Settings),
    /// Verify all data on every disk of a pool, and repair bad copies; exit 8 if data is lost
    Scrub {
        /// The pool's name or UUID
        name: String,
        /// Pause the scrub; it resumes when it is started again, or when the pool is next imported
        #[arg(long, conflicts_with = "stop")]
        pause: bool,
        /// Stop the scrub before it is complete
        #[arg(long)]
        stop: bool,
        /// Start a scrub automatically this long after the last one completed, such as 30d, or off for never [default of a new pool: 30d]
        #[arg(long, value_name = "DURATION", value_parser = parse_every, conflicts_with_all = ["pause", "stop"])]
        every: Option<u32>,
        #[command(flatten)]
        wait: Wait,
    },
    /// Report free space to the disks of a pool, so that flash can erase it and thin disks and files can release it
    Trim {
        /// The pool's name or UUID
        name: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Measure the performance of a pool, on which service levels are based; the pool is busy for some seconds
    Calibrate {
        /// The pool's name or UUID
        name: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Add disks to a pool in use: to a group, over which its data then spreads, or as a new group
    Add {
        /// The pool's name or UUID
        name: String,
        /// Block devices or files; their data is lost
        #[arg(value_name = "DISK", required = true)]
        disks: Vec<String>,
        /// Make the disks a new group with this layout, which must survive as many lost disks as the other groups
        #[arg(long, value_parser = layout, conflicts_with_all = ["group", "spare", "cache"])]
        layout: Option<Layout>,
        /// Number of the group to extend; required if the pool has several data groups
        #[arg(long, value_name = "NUMBER", conflicts_with_all = ["spare", "cache"])]
        group: Option<u16>,
        /// Add the disks as spares, which replace a disk that fails
        #[arg(long, conflicts_with = "cache")]
        spare: bool,
        /// Add the disks as cache, which holds only copies of data that is read at random
        #[arg(long)]
        cache: bool,
        /// Enclosure of all the disks; or DISK=NAME, once for each disk
        #[arg(long, value_name = "NAME")]
        enclosure: Vec<String>,
        /// Physical sector size, 512 to 64K, of disks that report it wrongly; or DISK=SIZE, once for each disk
        #[arg(long, value_name = "SIZE", value_parser = parse_sector)]
        sector: Vec<Sector>,
        /// Take disks that are not empty; their data is lost. Disks in use are never taken
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Drain and remove a group of disks from a pool in use; its data moves to the other groups first
    Remove {
        /// The pool's name or UUID
        name: String,
        /// The group's number, as `pool status` shows it
        #[arg(long, value_name = "NUMBER")]
        group: u16,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Import a pool from its disks; without a name, list the pools on the disks
    #[command(override_usage = "forebay pool import [OPTIONS] [NAME] <DISK>...")]
    Import {
        /// The pool's name or UUID, then its disks. The first word is the name, unless it has a slash or is a pool's disk here
        #[arg(value_name = "NAME_AND_DISKS", required = true)]
        words: Vec<String>,
        /// Import read-only: nothing is written to the disks, volumes can be read, and every change is refused
        #[arg(long)]
        read_only: bool,
        /// Import a pool that another host did not export, or whose log has lost its end. With --read-only also if too many disks are missing
        #[arg(long)]
        force: bool,
        /// Rename the pool; its iSCSI target and NBD exports get the new name, too
        #[arg(long = "as", value_name = "NEW", conflicts_with = "read_only")]
        new_name: Option<String>,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Export a pool: close it, so that another host can import it
    Export {
        /// Name or UUID
        name: String,
        /// Proceed even if clients are connected to the pool's volumes
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Destroy a pool and all its volumes
    Destroy {
        /// Name or UUID
        name: String,
        /// Proceed even if clients are connected to the pool's volumes
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
}

#[derive(Subcommand, Debug)]
pub enum Volume {
    /// Create a volume, empty or as a clone of a snapshot
    Create {
        /// POOL/[PROJECT/]NAME
        name: String,
        /// Size, 1M to 64T; with --from, the snapshot's size is the default and the minimum
        #[arg(long, value_parser = parse_size, required_unless_present = "from")]
        size: Option<u64>,
        /// Block size, a power of two from 4K to 128K [default: the project's, or 8K]
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        block_size: Option<u64>,
        /// When a write is acknowledged [default: the project's, or always]
        #[arg(long)]
        sync: Option<SyncArgument>,
        /// Compression: off, lz4, lzjb, gzip-1 to gzip-9 or zstd-1 to zstd-19 [default: the project's, or lz4]
        #[arg(long, value_name = "KIND")]
        compression: Option<String>,
        /// How space is reserved [default: the project's, or thin]
        #[arg(long)]
        format: Option<FormatArgument>,
        /// Clone this snapshot of the same pool; the volume shares its blocks until they are overwritten
        #[arg(long, value_name = "VOLUME@NAME", conflicts_with = "block_size")]
        from: Option<String>,
        /// Hosts and host groups to map the volume to [default: the project's]
        #[arg(long, value_name = "HOST", num_args = 1..)]
        host: Vec<String>,
        /// Service level, or none [default: the project's, or none]
        #[arg(long, value_name = "NAME")]
        level: Option<String>,
        #[command(flatten)]
        best_effort: BestEffort,
        /// Logical block size that these hosts see: 512 or 4K [default: 512]
        #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "host")]
        logical_block: Option<u64>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List volumes
    List {
        /// Only volumes of this pool
        #[arg(long)]
        pool: Option<String>,
    },
    /// Show a volume
    Show {
        /// POOL/NAME or UUID
        name: String,
    },
    /// Change a volume's properties while clients use it
    #[command(group = ArgGroup::new("property").required(true).multiple(true))]
    Set {
        /// POOL/NAME or UUID
        name: String,
        /// When a write is acknowledged
        #[arg(long, group = "property")]
        sync: Option<SyncArgument>,
        /// Compression of new writes: off, lz4, lzjb, gzip-1 to gzip-9 or zstd-1 to zstd-19
        #[arg(long, value_name = "KIND", group = "property")]
        compression: Option<String>,
        /// Interval between scheduled snapshots, such as 1h; 0 or off for none
        #[arg(long, value_name = "DURATION", value_parser = parse_every, group = "property")]
        snapshot_every: Option<u32>,
        /// Scheduled snapshots to keep: the newest N (1 to 1000), or the newest of each of the last hours, days, weeks and months (UTC), like hourly=24,daily=7,weekly=4,monthly=12; last=N adds the newest N
        #[arg(long, value_name = "N|TIER=N,...", group = "property")]
        snapshot_keep: Option<SnapshotKeep>,
        /// Service level, or none; it applies at once
        #[arg(long, value_name = "NAME", group = "property")]
        level: Option<String>,
        #[command(flatten)]
        best_effort: BestEffort,
        /// Properties to inherit again from the project or the defaults: sync, compression, snapshot-schedule, hosts, level
        #[arg(long, value_name = "PROPERTY", value_parser = volume_property, value_delimiter = ',', group = "property")]
        inherit: Vec<Property>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Grow a volume while clients use it; NBD clients see the new size after they reconnect
    Resize {
        /// POOL/NAME or UUID
        name: String,
        /// The new size, or `+SIZE` to grow by that much
        #[arg(long, value_name = "SIZE", value_parser = parse_resize)]
        size: Resize,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Rename a volume while clients use it, also into or out of a project; NBD clients connect by name
    Rename(Rename),
    /// Convert a volume to another format while clients use it
    Convert {
        /// POOL/NAME or UUID
        name: String,
        /// How space is reserved from now on
        #[arg(long)]
        format: FormatArgument,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Map a volume to a host or host group over iSCSI
    Map {
        /// POOL/NAME or UUID
        name: String,
        /// Name or UUID of a host or host group; repeat it for several
        #[arg(long, required = true)]
        host: Vec<String>,
        /// LUN, 0 to 16383 [default: its former one there, or one that no other volume had lately]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=16383))]
        lun: Option<u16>,
        /// Logical block size, 512 or 4K [default: the one that other hosts of the volume see, or 512]
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        logical_block: Option<u64>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Unmap a volume from a host or host group at once; programs that still use it there get errors
    Unmap {
        /// POOL/NAME or UUID
        name: String,
        /// Name or UUID of a host or host group; repeat it for several
        #[arg(long, required = true)]
        host: Vec<String>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Find blocks of zeros in a volume and free their space, while clients use it
    ///
    /// Guests may write zeros instead of discarding. A volume without compression, or with reserved space, stores such zeros.
    Reclaim {
        /// POOL/NAME or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Record the requests of a volume's clients, and print them as a trace
    ///
    /// The trace has the time, offset, length and latency of each request, and no data. `forebay validate` replays it on modelled pools.
    Trace(crate::streams::Trace),
    /// Move a volume to another pool while clients use it
    Move(moves::Move),
    /// List interrupted moves, which wait for a pool that is not imported
    Moves,
    /// Keep the remainder of an interrupted move as a volume with a new UUID, if the other pool is lost
    Keep(moves::Keep),
    /// Delete the remainder of an interrupted move, if the other pool is lost
    Abandon(moves::Abandon),
    /// Delete a volume: it moves to the pool's trash and can be restored, or with --purge is gone for good
    Delete(trash::Delete),
    /// List volumes in the trash
    Trash(trash::List),
    /// Restore a volume and its snapshots from the trash
    Restore(trash::Restore),
    /// Delete a volume in the trash for good
    Purge(trash::Purge),
}

#[derive(Subcommand, Debug)]
pub enum Task {
    /// List tasks, the newest first
    List,
    /// Wait for a task, and exit with its result
    Watch {
        /// The task's UUID
        id: String,
    },
    /// Cancel a queued task, or a running one that can be cancelled
    Cancel {
        /// The task's UUID
        id: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

#[derive(Subcommand, Debug)]
pub enum Token {
    /// Create a token and print its secret, which is shown only once
    Create {
        /// Letters, digits and `._-`, starting with a letter
        name: String,
        /// Role of the token
        #[arg(long, default_value = "viewer")]
        role: RoleArgument,
        /// Lifetime: 45s, 30m, 12h, 90d
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "90d")]
        expires: u64,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List tokens, without their secrets
    List,
    /// Rename a token; its secret stays
    Rename(Rename),
    /// Revoke a token
    Delete {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

#[derive(Args, Debug)]
pub struct Check {
    /// Required: the check reads the disks directly, and no daemon may have the pool imported
    #[arg(long, required = true)]
    pub offline: bool,
    /// All present disks of the pool
    #[arg(value_name = "DISK", required = true)]
    pub disks: Vec<String>,
}
