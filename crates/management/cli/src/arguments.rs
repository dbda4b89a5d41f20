//! The command line as clap sees it. What it says is committed as `docs/cli.md`.

use crate::bookmarks::Bookmark;
use crate::channels::ChannelCommand;
use crate::disks::Disk;
use crate::hosts::{Host, SessionCommand};
use crate::levels::Level;
use crate::projects::{Project, volume_property};
use crate::reports::ReportCommand;
use crate::serve::{Config, Configured, Serve};
use crate::size::{Sector, parse_duration, parse_every, parse_sector, parse_size};
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
use forebay_api::{Access, Layout, Property, Sync, VolumeFormat};
use std::path::PathBuf;

/// Crash-safe storage pools, served to hypervisors, databases and everyone else.
#[derive(Parser, Debug)]
#[command(
    name = "forebay",
    version,
    disable_help_subcommand = true,
    after_help = "Sizes take K, M, G, T and P, powers of 1024: 8K, 100G, 1.5T.\n\
                  Exit status: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 5 refused as unsafe, 6 degraded, \
                  7 unreachable, 8 data is lost that nobody has accepted.\n\
                  Environment: FOREBAY_DATA (the daemon's directory), FOREBAY_URL and FOREBAY_TOKEN (a daemon \
                  elsewhere), FOREBAY_CA (a file with the authorities that its https:// is trusted by), NO_COLOR."
)]
pub struct Arguments {
    /// The daemon's data directory [default: $FOREBAY_DATA, what the configuration file says, or /var/lib/forebay]
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
    /// Run the daemon with a pool on files, volumes and a light load to look at; Ctrl-C stops it
    Demo(Serve),
    /// The daemon's configuration file
    #[command(subcommand)]
    Config(Config),
    /// Pools: named sets of disks
    #[command(subcommand)]
    Pool(Pool),
    /// Disks of pools
    #[command(subcommand)]
    Disk(Disk),
    /// Projects: volumes that have properties in common
    #[command(subcommand)]
    Project(Project),
    /// Volumes: virtual disks
    #[command(subcommand)]
    Volume(Volume),
    /// Snapshots: volumes as they were
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Bookmarks: moments of volumes, from which increments are sent when the snapshots are gone
    #[command(subcommand)]
    Bookmark(Bookmark),
    /// Clones: volumes made of snapshots
    #[command(subcommand)]
    Clone(CloneCommand),
    /// Hosts: who may use volumes over iSCSI
    #[command(subcommand)]
    Host(Host),
    /// Service levels: what volumes are promised, and what they may take
    #[command(subcommand)]
    Level(Level),
    /// Initiators that are logged in over iSCSI
    #[command(subcommand)]
    Session(SessionCommand),
    /// Who uses what now, second by second
    #[command(subcommand)]
    Top(Top),
    /// Who did how much, and how long it took: now and in the past
    #[command(subcommand)]
    Stat(Stat),
    /// Graphs that somebody has saved
    #[command(subcommand)]
    Worksheet(WorksheetCommand),
    /// Reports that the appliance keeps
    #[command(subcommand)]
    Report(ReportCommand),
    /// Long work
    #[command(subcommand)]
    Task(Task),
    /// What happened
    #[command(subcommand)]
    Event(Event),
    /// What is wrong now, and what to do about it
    #[command(subcommand)]
    Alert(AlertCommand),
    /// Statistics that raise an alert above or below a limit
    #[command(subcommand)]
    Threshold(ThresholdCommand),
    /// Who is told of alerts: mail, webhooks, syslog, SNMP traps
    #[command(subcommand)]
    Channel(ChannelCommand),
    /// Who may log in
    #[command(subcommand)]
    User(User),
    /// Help from others
    #[command(subcommand)]
    Support(Support),
    /// The first administrator
    #[command(subcommand)]
    Setup(SetupCommand),
    /// Who changed what over the API
    #[command(subcommand)]
    Audit(Audit),
    /// Access tokens for HTTP
    #[command(subcommand)]
    Token(Token),
    /// Check the pool on some disks without a daemon: exit 0 only if every invariant holds
    Check(Check),
    /// What a layout delivers before it is bought: the published reference architectures, and your own
    #[command(subcommand)]
    Validate(Validate),
    /// Print a shell's completion script
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write manual pages, one for each command: `man -l DIR/forebay-volume-create.1`
    Man {
        /// Where to; made if it is not there
        directory: PathBuf,
    },
    /// Print the version
    Version,
}

/// Whether a promise may be made that the pool cannot keep.
#[derive(Args, Debug)]
pub struct BestEffort {
    /// Also if the pool cannot keep what the level promises: it is best effort then
    #[arg(long)]
    pub best_effort: bool,
}

/// For commands that change something.
#[derive(Args, Debug, Clone, Copy)]
pub struct DryRun {
    /// Check it and say what would be done; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// For commands that lose data or redundancy.
#[derive(Args, Debug, Clone, Copy)]
pub struct Yes {
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// For long work.
#[derive(Args, Debug, Clone, Copy)]
pub struct Wait {
    /// Wait until it is done (the default)
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    /// Print the task and return at once
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
    /// At once; durable with FUA or the next flush
    Standard,
    /// At once; for scratch data
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
    /// Space is taken as it is written
    Thin,
    /// Space for its whole size is held; what is written counts as used
    #[value(alias = "thick")]
    ZeroedThick,
    /// Space for its whole size is held and counts as used
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
    /// Reads everything
    Viewer,
    /// Also changes volumes, service levels and the hosts that see volumes
    Operator,
    /// Also pools, disks, tokens and users
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
    /// Create a pool; what its disks hold is lost
    Create {
        /// Letters, digits and `._-`, starting with a letter
        name: String,
        /// single, mirror (2 copies), mirror3, or D+P: 2 to 16 data and 1 to 3 parity disks
        #[arg(long, value_parser = layout)]
        layout: Layout,
        /// Block devices or files for data: as many as the layout needs, or more
        #[arg(value_name = "DISK", required = true)]
        disks: Vec<String>,
        /// Devices or files for the intent log: one, or two or three that mirror each other
        #[arg(long, value_name = "DISK", num_args = 1..)]
        log: Vec<String>,
        /// Devices or files that wait to take the place of a disk that fails
        #[arg(long, value_name = "DISK", num_args = 1..)]
        spare: Vec<String>,
        /// Flash that holds copies of what is read from the data disks at random; nothing is lost with it
        #[arg(long, value_name = "DISK", num_args = 1..)]
        cache: Vec<String>,
        /// The boxes that disks are in: data is laid so that the pool survives the loss of one, if it can be
        #[arg(long, value_name = "DISK=NAME", num_args = 1.., value_parser = enclosure)]
        enclosure: Vec<(String, String)>,
        /// Physical sectors of disks that do not say them right: 512 to 64K, for all or for one
        #[arg(long, value_name = "[DISK=]SIZE", num_args = 1.., value_parser = parse_sector)]
        sector: Vec<Sector>,
        /// Take disks that are not empty, whatever is on them; never disks in use
        #[arg(long)]
        force: bool,
        /// Do not measure what it can do once it is there, which takes some seconds in the background
        #[arg(long)]
        no_calibrate: bool,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// List pools
    List,
    /// Show pools with their groups and disks; exit 6 when one has lost redundancy, 8 when one has lost data
    Status {
        /// Name or UUID; all pools without it
        name: Option<String>,
        /// Show what is lost: which bytes of which volumes and snapshots
        #[arg(long)]
        errors: bool,
    },
    /// Say that all that a pool has lost so far is known: it is called damaged for it no longer
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
    /// Read everything that a pool stores, on every disk, and put right what is bad; exit 8 when data is lost
    Scrub {
        /// The pool's name or UUID
        name: String,
        /// Halt it; it goes on where it was when it is started again, or the pool is next imported
        #[arg(long, conflicts_with = "stop")]
        pause: bool,
        /// End it
        #[arg(long)]
        stop: bool,
        /// Have scrubs begin by themselves so long after the last was through, like 30d (the default of a new pool), or off for never
        #[arg(long, value_name = "DURATION", value_parser = parse_every, conflicts_with_all = ["pause", "stop"])]
        every: Option<u32>,
        #[command(flatten)]
        wait: Wait,
    },
    /// Tell the disks of a pool which of their space is free, so that flash can erase it and thin disks and files give it back
    Trim {
        /// The pool's name or UUID
        name: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Measure what a pool can do, from which service levels reckon; it is busy with that for some seconds
    Calibrate {
        /// The pool's name or UUID
        name: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Add disks to a pool while it serves: to a group, over which data then spreads, or as another group
    Add {
        /// The pool's name or UUID
        name: String,
        /// Block devices or files; what they hold is lost
        #[arg(value_name = "DISK", required = true)]
        disks: Vec<String>,
        /// They become a group with this layout, which can lose as many disks as the pool's others
        #[arg(long, value_parser = layout, conflicts_with_all = ["group", "spare", "cache"])]
        layout: Option<Layout>,
        /// Number of the group that they join, when the pool has several for data
        #[arg(long, value_name = "NUMBER", conflicts_with_all = ["spare", "cache"])]
        group: Option<u16>,
        /// They wait to take the place of a disk that fails
        #[arg(long, conflicts_with = "cache")]
        spare: bool,
        /// They hold copies of what is read from the data disks at random, and nothing else
        #[arg(long)]
        cache: bool,
        /// The box that they are in; or, once for each disk, DISK=NAME
        #[arg(long, value_name = "NAME")]
        enclosure: Vec<String>,
        /// Physical sector of disks that do not say it right: 512 to 64K; or, once for each disk, DISK=SIZE
        #[arg(long, value_name = "SIZE", value_parser = parse_sector)]
        sector: Vec<Sector>,
        /// Take disks that are not empty, whatever is on them; never disks in use
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Have a whole group of disks leave a pool while it serves: what is in it moves to the other groups first
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
    /// Import a pool from its disks; without a name, list the pools that are found on them
    #[command(override_usage = "forebay pool import [OPTIONS] [NAME] <DISK>...")]
    Import {
        /// Name or UUID, then disks. A first word without a slash is the name: write ./disk0 for a file in this directory
        #[arg(value_name = "NAME_AND_DISKS", required = true)]
        words: Vec<String>,
        /// Write nothing to the disks: volumes can be read, and every change is refused
        #[arg(long)]
        read_only: bool,
        /// Even if another host did not export it, or the end of its log is lost; with --read-only also if too many disks are missing
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Close a pool, so that another host can import it
    Export {
        /// Name or UUID
        name: String,
        /// Although clients are connected to its volumes
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
        /// Although clients are connected to its volumes
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
        /// 1M to 64T; a clone is as large as its snapshot, or as this if that is larger
        #[arg(long, value_parser = parse_size, required_unless_present = "from")]
        size: Option<u64>,
        /// A power of two from 4K to 128K [default: the project's, or 8K]
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        block_size: Option<u64>,
        /// When a write is acknowledged [default: as the project says, or always]
        #[arg(long)]
        sync: Option<SyncArgument>,
        /// off, lz4, lzjb, gzip-1 to gzip-9 or zstd-1 to zstd-19 [default: as the project says, or lz4]
        #[arg(long, value_name = "KIND")]
        compression: Option<String>,
        /// What is kept ready for it [default: the project's, or thin]
        #[arg(long)]
        format: Option<FormatArgument>,
        /// A snapshot of the same pool: the volume begins as it is, and shares its blocks until they are overwritten
        #[arg(long, value_name = "VOLUME@NAME", conflicts_with = "block_size")]
        from: Option<String>,
        /// Hosts and host groups to map it to [default: those of the project]
        #[arg(long, value_name = "HOST", num_args = 1..)]
        host: Vec<String>,
        /// Its service level, or none [default: as the project says, or none]
        #[arg(long, value_name = "NAME")]
        level: Option<String>,
        #[command(flatten)]
        best_effort: BestEffort,
        /// The logical block that these hosts see: 512 or 4K [default: 512]
        #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "host")]
        logical_block: Option<u64>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List volumes
    List {
        /// Only this pool's
        #[arg(long)]
        pool: Option<String>,
    },
    /// Show a volume
    Show {
        /// POOL/NAME or UUID
        name: String,
    },
    /// Change a volume's properties; clients notice nothing
    #[command(group = ArgGroup::new("property").required(true).multiple(true))]
    Set {
        /// POOL/NAME or UUID
        name: String,
        /// When a write is acknowledged
        #[arg(long, group = "property")]
        sync: Option<SyncArgument>,
        /// How what is written from now on is compressed: off, lz4, lzjb, gzip-1 to gzip-9 or zstd-1 to zstd-19
        #[arg(long, value_name = "KIND", group = "property")]
        compression: Option<String>,
        /// Have a snapshot taken so often, like 1h; 0 or off for never
        #[arg(long, value_name = "DURATION", value_parser = parse_every, group = "property")]
        snapshot_every: Option<u32>,
        /// How many of these are kept, 1 to 1000: the oldest is deleted when there are more
        #[arg(long, value_name = "N", group = "property")]
        snapshot_keep: Option<u32>,
        /// Its service level, or none; in force at once
        #[arg(long, value_name = "NAME", group = "property")]
        level: Option<String>,
        #[command(flatten)]
        best_effort: BestEffort,
        /// What it has from its project again, or by default: sync, compression, snapshot-schedule, hosts, level
        #[arg(long, value_name = "PROPERTY", value_parser = volume_property, value_delimiter = ',', group = "property")]
        inherit: Vec<Property>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Grow a volume while clients use it; NBD clients see the new size when they connect again
    Resize {
        /// POOL/NAME or UUID
        name: String,
        /// The new size
        #[arg(long, value_parser = parse_size)]
        size: u64,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Give a volume another format while clients use it
    Convert {
        /// POOL/NAME or UUID
        name: String,
        /// What is kept ready for it
        #[arg(long)]
        format: FormatArgument,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Show a volume to a host or host group over iSCSI
    Map {
        /// POOL/NAME or UUID
        name: String,
        /// Name or UUID of a host or host group
        #[arg(long)]
        host: String,
        /// Its number there, 0 to 16383 [default: the lowest that is free]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=16383))]
        lun: Option<u16>,
        /// The logical block, 512 or 4K [default: what its other hosts see, or 512]
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        logical_block: Option<u64>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Take a volume from a host or host group, at once: what runs on it there gets errors, so end that first
    Unmap {
        /// POOL/NAME or UUID
        name: String,
        /// Name or UUID of a host or host group
        #[arg(long)]
        host: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Look through a volume for blocks of zeros, and give their space back, while clients use it
    ///
    /// Guests write zeros where they could discard, and a volume that is not compressed, or had its space held, keeps them.
    Reclaim {
        /// POOL/NAME or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Print what clients ask of a volume, request by request, while they ask it
    ///
    /// When, where, how much, and how long the answer took; nothing of the data. `forebay validate` asks it again of pools that are modelled.
    Trace(crate::streams::Trace),
    /// Move a volume to another pool while clients use it
    Move(moves::Move),
    /// List what moves have left that wait for a pool which is not imported
    Moves,
    /// Make a volume, with a new UUID, of what a move has left, when the other pool is lost
    Keep(moves::Keep),
    /// Delete what a move has left, when the other pool is lost
    Abandon(moves::Abandon),
    /// Delete a volume: it waits in the trash and can be had back, or is gone for good
    Delete(trash::Delete),
    /// List volumes in the trash
    Trash(trash::List),
    /// Have a volume back from the trash, with its snapshots
    Restore(trash::Restore),
    /// Delete a volume in the trash and its data for good
    Purge(trash::Purge),
}

#[derive(Subcommand, Debug)]
pub enum Task {
    /// List tasks, the newest first
    List,
    /// Wait for a task and end as it ends
    Watch {
        /// The task's UUID
        id: String,
    },
    /// Cancel a task that waits for its turn
    Cancel {
        /// The task's UUID
        id: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

#[derive(Subcommand, Debug)]
pub enum Event {
    /// List the newest events, the oldest of them first
    List {
        /// Go on printing events as they happen
        #[arg(long)]
        follow: bool,
        /// At most this many, to begin with
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
}

#[derive(Subcommand, Debug)]
pub enum Token {
    /// Make a token and print its secret, this once
    Create {
        /// Letters, digits and `._-`, starting with a letter
        name: String,
        /// What it may do
        #[arg(long, default_value = "viewer")]
        role: RoleArgument,
        /// How long it lives: 45s, 30m, 12h, 90d
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "90d")]
        expires: u64,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List tokens, without their secrets
    List,
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
    /// Required: the check reads the disks itself, and no daemon may have the pool imported
    #[arg(long, required = true)]
    pub offline: bool,
    /// The pool's disks, all that are there
    #[arg(value_name = "DISK", required = true)]
    pub disks: Vec<String>,
}
