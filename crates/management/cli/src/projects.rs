//! The commands about projects.

use crate::arguments::{BestEffort, DryRun, FormatArgument, SyncArgument};
use crate::client::Call;
use crate::commands::{Outcome, Session, of_pool};
use crate::failure::{Exit, Failure, printable};
use crate::levels::rate;
use crate::show::{self, hosts_in_words, level_in_words, schedule_in_words, word};
use crate::size::{or_none, parse_every, parse_iops, parse_size, show_time};
use crate::table::Cell;
use clap::{ArgGroup, Args, Subcommand};
use forebay_api as api;
use forebay_api::{Operation, ProjectCreate, ProjectSet, Property, Source, show_size};

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
        /// Only this pool's
        #[arg(long)]
        pool: Option<String>,
    },
    /// Show a project: what its volumes inherit
    Show {
        /// POOL/PROJECT or UUID
        name: String,
    },
    /// Change what all volumes of a project inherit, at once
    #[command(group = ArgGroup::new("change").required(true).multiple(true).args([
        "sync", "compression", "snapshot_every", "snapshot_keep", "block_size", "format", "quota", "ceiling_iops",
        "ceiling_bandwidth", "host", "level", "inherit",
    ]))]
    Set {
        /// POOL/PROJECT or UUID
        name: String,
        #[command(flatten)]
        properties: Properties,
        /// What the project does not say any more: sync, compression, snapshot-schedule, block-size, format, hosts, level
        #[arg(long, value_name = "PROPERTY", value_parser = property, value_delimiter = ',')]
        inherit: Vec<Property>,
        #[command(flatten)]
        best_effort: BestEffort,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Delete a project without volumes
    Delete {
        /// POOL/PROJECT or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

/// What volumes inherit that have no value of their own, and what bounds them.
#[derive(Args, Debug)]
pub struct Properties {
    /// When a write is acknowledged
    #[arg(long)]
    sync: Option<SyncArgument>,
    /// How what is written from now on is compressed: off, lz4, lzjb, gzip-1 to gzip-9 or zstd-1 to zstd-19
    #[arg(long, value_name = "KIND")]
    compression: Option<String>,
    /// Have a snapshot of each volume taken so often, all at one moment, like 1h; 0 or off for never
    #[arg(long, value_name = "DURATION", value_parser = parse_every)]
    snapshot_every: Option<u32>,
    /// How many of these are kept of each volume, 1 to 1000
    #[arg(long, value_name = "N")]
    snapshot_keep: Option<u32>,
    /// Of new volumes: a power of two from 4K to 128K
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    block_size: Option<u64>,
    /// Of new volumes: what is kept ready for them
    #[arg(long)]
    format: Option<FormatArgument>,
    /// What all its volumes and their snapshots may take together, like 1T, or none
    #[arg(long, value_name = "SIZE", value_parser = or_none(parse_size))]
    quota: Option<u64>,
    /// Requests a second that clients of all its volumes together get at most, or none
    #[arg(long, value_name = "N", value_parser = or_none(parse_iops))]
    ceiling_iops: Option<u64>,
    /// Bytes a second that they get at most, like 50M, or none
    #[arg(long, value_name = "SIZE", value_parser = or_none(parse_size))]
    ceiling_bandwidth: Option<u64>,
    /// Hosts and host groups that its volumes are mapped to: all of them, each volume with its lowest free LUN
    #[arg(long, value_name = "HOST", num_args = 1..)]
    host: Vec<String>,
    /// Their service level, or none
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
                    ceiling_iops: properties.ceiling_iops,
                    ceiling_bytes_per_second: properties.ceiling_bandwidth,
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
                    sync: properties.sync.map(Into::into),
                    compression: properties.compression,
                    snapshot_every_seconds: properties.snapshot_every,
                    snapshot_keep: properties.snapshot_keep,
                    block_size_bytes: block_size(properties.block_size)?,
                    format: properties.format.map(Into::into),
                    quota_bytes: properties.quota,
                    ceiling_iops: properties.ceiling_iops,
                    ceiling_bytes_per_second: properties.ceiling_bandwidth,
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
                self.one(&answer.parse::<api::Project>()?, show_project)
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

fn show_projects(projects: &[api::Project]) {
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
    show::table(
        &["NAME", "VOLUMES", "SIZE", "USED", "QUOTA", "SYNC", "COMPRESSION", "SCHEDULE", "LEVEL"],
        rows.collect(),
        "No projects. Create one with: forebay project create POOL/PROJECT",
    );
}

fn show_project(project: &api::Project) {
    let (spec, status, sources) = (&project.spec, &project.status, &project.spec.sources);
    println!("{}", printable(&project.name));
    println!("  id          {}", printable(&project.id));
    println!("  volumes     {}, {} in the trash", status.volumes, status.volumes_trashed);
    println!("  size        {}", show_size(status.size_bytes));
    println!("  written     {}", show_size(status.mapped_bytes));
    println!("  used        {}, with snapshots", show_size(status.used_bytes));
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
    println!("  ceiling     {}", rate(spec.ceiling_iops, spec.ceiling_bytes_per_second));
    println!("  hosts       {} ({})", hosts_in_words(&spec.hosts), word(&sources.hosts));
    let block_size = show_size(u64::from(spec.block_size_bytes));
    println!("  block size  {block_size} ({}), of new volumes", word(&sources.block_size));
    println!("  format      {} ({}), of new volumes", word(&spec.format), word(&sources.format));
    println!("  created     {} UTC", show_time(status.created_unix_ms));
}
