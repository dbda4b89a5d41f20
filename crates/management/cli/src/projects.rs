//! The commands about projects.

use crate::arguments::{BestEffort, DryRun, FormatArgument, SyncArgument};
use crate::client::Call;
use crate::commands::{Outcome, Session, of_pool};
use crate::failure::{Exit, Failure, printable};
use crate::levels::rate;
use crate::listing::{self, Shown};
use crate::rename::Rename;
use crate::show::{hosts_in_words, level_in_words, schedule_in_words, word};
use crate::size::{or_none, parse_every, parse_iops, parse_rate, parse_size, show_time};
use crate::table::Cell;
use clap::{ArgGroup, Args, Subcommand};
use forebay_api as api;
use forebay_api::{Operation, ProjectCreate, ProjectSet, Property, SnapshotKeep, Source, show_size};

#[derive(Subcommand, Debug)]
pub enum Project {
    /// Create a project; volumes POOL/PROJECT/NAME belong to it
    Create {
        /// POOL/PROJECT
        name: String,
        #[command(flatten)]
        properties: Properties,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List projects
    List {
        /// Only projects of this pool
        #[arg(long)]
        pool: Option<String>,
    },
    /// Show a project and the properties that its volumes inherit
    Show {
        /// POOL/PROJECT or UUID
        name: String,
    },
    /// Change a project's properties, at once for all volumes that inherit them
    #[command(group = ArgGroup::new("change").required(true).multiple(true).args([
        "sync", "compression", "snapshot_every", "snapshot_keep", "block_size", "format", "quota", "max_iops",
        "max_bandwidth", "host", "level", "inherit",
    ]))]
    Set {
        /// POOL/PROJECT or UUID
        name: String,
        #[command(flatten)]
        properties: Properties,
        /// Properties to reset to the default: sync, compression, snapshot-schedule, block-size, format, hosts, level
        #[arg(long, value_name = "PROPERTY", value_parser = property, value_delimiter = ',')]
        inherit: Vec<Property>,
        #[command(flatten)]
        best_effort: BestEffort,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Rename a project, and its volumes with it; clients that have them open keep them
    Rename(Rename),
    /// Delete a project that has no volumes
    Delete {
        /// POOL/PROJECT or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

/// Properties that volumes without a value of their own inherit, and limits for all of them together.
#[derive(Args, Debug)]
pub struct Properties {
    /// When a write is acknowledged
    #[arg(long)]
    sync: Option<SyncArgument>,
    /// Compression of new writes: off, lz4, lzjb, gzip-1 to gzip-9 or zstd-1 to zstd-19
    #[arg(long, value_name = "KIND")]
    compression: Option<String>,
    /// Interval between scheduled snapshots of all volumes at one moment, such as 1h; 0 or off for none
    #[arg(long, value_name = "DURATION", value_parser = parse_every)]
    snapshot_every: Option<u32>,
    /// Scheduled snapshots to keep of each volume: the newest N (1 to 1000), or the newest of each of the last hours, days, weeks and months (UTC), like hourly=24,daily=7,weekly=4,monthly=12; last=N adds the newest N
    #[arg(long, value_name = "N|TIER=N,...")]
    snapshot_keep: Option<SnapshotKeep>,
    /// Block size of new volumes, a power of two from 4K to 128K
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    block_size: Option<u64>,
    /// How space is reserved for new volumes
    #[arg(long)]
    format: Option<FormatArgument>,
    /// Quota: maximum space of all volumes and snapshots together, such as 1T, or none
    #[arg(long, value_name = "SIZE", value_parser = or_none(parse_size))]
    quota: Option<u64>,
    /// Maximum IOPS of all volumes together, or none
    #[arg(long, value_name = "N", value_parser = or_none(parse_iops))]
    max_iops: Option<u64>,
    /// Maximum throughput of all volumes together such as 50M (50 MB/s), or none
    #[arg(long, value_name = "RATE", value_parser = or_none(parse_rate))]
    max_bandwidth: Option<u64>,
    /// All hosts and host groups to map the volumes to; each volume gets a free LUN
    #[arg(long, value_name = "HOST", num_args = 1..)]
    host: Vec<String>,
    /// Service level of each volume, or none
    #[arg(long, value_name = "NAME")]
    level: Option<String>,
}

/// A property by its name.
pub fn property(text: &str) -> Result<Property, String> {
    one_of(text, |_| true)
}

/// One that a volume can have from its project: its block size and format are its own.
pub fn volume_property(text: &str) -> Result<Property, String> {
    one_of(text, |property| !matches!(property, Property::BlockSize | Property::Format))
}

fn one_of(text: &str, is_possible: impl Fn(&Property) -> bool) -> Result<Property, String> {
    let possible: Vec<Property> = Property::ALL.into_iter().filter(is_possible).collect();
    let names: Vec<&str> = possible.iter().map(|property| property.name()).collect();
    let found = possible.iter().copied().find(|property| property.name() == text);
    found.ok_or_else(|| format!("give some of {}", names.join(", ")))
}

/// A block size as the API takes it.
pub fn block_size(bytes: Option<u64>) -> Result<Option<u32>, Failure> {
    bytes.map(u32::try_from).transpose().map_err(|_| {
        let remedy = "Give a power of two from 4K to 128K.";
        Failure::new(Exit::Usage, "the block size is out of range", remedy)
    })
}

impl Session {
    pub fn project(&self, command: Project) -> Outcome {
        match command {
            Project::Rename(rename) => self.rename("Project", Operation::ProjectSet, rename),
            Project::Create { name, properties, dry_run } => {
                let body = ProjectCreate {
                    name,
                    sync: properties.sync.map(Into::into),
                    compression: properties.compression,
                    snapshot_every_seconds: properties.snapshot_every,
                    snapshot_keep: properties.snapshot_keep,
                    block_size_bytes: block_size(properties.block_size)?,
                    format: properties.format.map(Into::into),
                    quota_bytes: properties.quota,
                    max_iops: properties.max_iops,
                    max_bytes_per_second: properties.max_bandwidth,
                    hosts: Some(properties.host).filter(|hosts| !hosts.is_empty()),
                    level: properties.level,
                };
                let call = Call::new(Operation::ProjectCreate).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::Project>()?, |project| {
                    println!("Project {} is created.", printable(&project.name));
                })
            }
            Project::List { pool } => {
                self.list(&self.client.all(Operation::ProjectList, &of_pool(pool))?, show_projects)
            }
            Project::Show { name } => {
                let project: api::Project = self.client.get(Call::of(Operation::ProjectShow, &name))?;
                self.one(&project, show_project)
            }
            Project::Set { name, properties, inherit, best_effort, dry_run } => {
                let body = ProjectSet {
                    name: None,
                    sync: properties.sync.map(Into::into),
                    compression: properties.compression,
                    snapshot_every_seconds: properties.snapshot_every,
                    snapshot_keep: properties.snapshot_keep,
                    block_size_bytes: block_size(properties.block_size)?,
                    format: properties.format.map(Into::into),
                    quota_bytes: properties.quota,
                    max_iops: properties.max_iops,
                    max_bytes_per_second: properties.max_bandwidth,
                    hosts: Some(properties.host).filter(|hosts| !hosts.is_empty()),
                    level: properties.level,
                    inherit,
                };
                let call = Call::of(Operation::ProjectSet, &name).body(&body).dry_run(dry_run.dry_run);
                let call = call.best_effort(best_effort.best_effort);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                let project = answer.parse::<api::Project>()?;
                self.changed(&project, format!("Project {} is changed.", project.name))
            }
            Project::Delete { name, dry_run } => {
                let call = Call::of(Operation::ProjectDelete, &name).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.done(&name, "project.delete", format!("Project {name} is deleted."))
            }
        }
    }
}

fn show_projects(projects: &[api::Project]) -> Shown {
    // What the project does not say, its volumes have by default.
    let said = |value: String, source: Source| match source {
        Source::Default => Cell::text(format!("{value} (default)")),
        _ => Cell::text(value),
    };
    let rows = projects.iter().map(|project| {
        let (spec, status, sources) = (&project.spec, &project.status, &project.spec.sources);
        let schedule = schedule_in_words(spec.snapshot_every_seconds, spec.snapshot_keep);
        vec![
            Cell::text(&project.name),
            Cell::number(status.volumes),
            Cell::number(show_size(status.size_bytes)),
            Cell::number(show_size(status.used_bytes)),
            Cell::number(spec.quota_bytes.map_or("-".into(), show_size)),
            said(word(&spec.sync), sources.sync),
            said(spec.compression.clone(), sources.compression),
            said(schedule, sources.snapshot_schedule),
            said(spec.level.clone(), sources.level),
        ]
    });
    listing::table(
        &["NAME", "VOLUMES", "SIZE", "USED", "QUOTA", "SYNC", "COMPRESSION", "SCHEDULE", "LEVEL"],
        rows.collect(),
        "No projects. Create one with: forebay project create POOL/PROJECT",
    )
}

fn show_project(project: &api::Project) {
    let (spec, status, sources) = (&project.spec, &project.status, &project.spec.sources);
    println!("{}", printable(&project.name));
    println!("  id          {}", printable(&project.id));
    println!("  volumes     {}, {} in the trash", status.volumes, status.volumes_trashed);
    println!("  size        {}", show_size(status.size_bytes));
    println!("  written     {}", show_size(status.mapped_bytes));
    println!("  used        {}, including snapshots", show_size(status.used_bytes));
    match (spec.quota_bytes, status.quota_left_bytes) {
        (Some(quota), Some(left)) => {
            println!("  quota       {}, {} left", show_size(quota), show_size(left));
        }
        _ => println!("  quota       -"),
    }
    println!("  compression {} ({})", printable(&spec.compression), word(&sources.compression));
    println!("  sync        {} ({})", word(&spec.sync), word(&sources.sync));
    let schedule = schedule_in_words(spec.snapshot_every_seconds, spec.snapshot_keep);
    println!("  schedule    {schedule} ({})", word(&sources.snapshot_schedule));
    println!("  level       {}", level_in_words(&spec.level, sources.level, &project.conditions));
    println!("  limit       {}", rate(spec.max_iops, spec.max_bytes_per_second));
    println!("  hosts       {} ({})", hosts_in_words(&spec.hosts), word(&sources.hosts));
    let block_size = show_size(u64::from(spec.block_size_bytes));
    println!("  block size  {block_size} ({}), of new volumes", word(&sources.block_size));
    println!("  format      {} ({}), of new volumes", word(&spec.format), word(&sources.format));
    println!("  created     {} UTC", show_time(status.created_unix_ms));
}
