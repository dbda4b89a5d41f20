//! The commands about service levels.

use crate::arguments::{BestEffort, DryRun};
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::printable;
use crate::listing::{self, Shown};
use crate::rename::Rename;
use crate::size::{or_none, parse_every, parse_iops, parse_micros, parse_rate, show_time};
use crate::table::Cell;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use forebay_api::{self as api, LevelClass, LevelCreate, LevelSet, LevelSpec, Operation};
use forebay_api::{show_duration, show_micros, show_rate_exact};

#[derive(Subcommand, Debug)]
pub enum Level {
    /// Create a service level; volumes and projects get it with their option --level
    Create {
        /// Letters, digits and `._-`, starting with a letter
        name: String,
        #[command(flatten)]
        promise: Promise,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List service levels, including the built-in ones
    List,
    /// Show a service level
    Show {
        /// Name or UUID
        name: String,
    },
    /// Change a service level; this applies at once to all volumes that have it
    #[command(group = ArgGroup::new("change").required(true).multiple(true).args([
        "class", "min_iops", "min_bandwidth", "latency", "max_iops", "max_bandwidth", "burst",
    ]))]
    Set {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        promise: Promise,
        #[command(flatten)]
        best_effort: BestEffort,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Rename a level
    Rename(Rename),
    /// Delete a service level that no volume and no project uses
    Delete {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

/// Each value applies to each volume separately. A value that may be `none` is `none` by default.
#[derive(Args, Debug)]
pub struct Promise {
    /// Priority class: the share of the performance that is not guaranteed [default for a new level: business-critical]
    #[arg(long)]
    class: Option<ClassArgument>,
    /// Guaranteed minimum IOPS per volume, or none [default for a new level: none]
    #[arg(long, value_name = "N", value_parser = or_none(parse_iops))]
    min_iops: Option<u64>,
    /// Guaranteed minimum throughput per volume such as 50M (50 MB/s), or none [default for a new level: none]
    #[arg(long, value_name = "RATE", value_parser = or_none(parse_rate))]
    min_bandwidth: Option<u64>,
    /// Latency goal for the p99: 500us, 10ms, 1s, or none [default for a new level: none]
    #[arg(long, value_name = "TIME", value_parser = or_none(parse_micros))]
    latency: Option<u64>,
    /// Maximum IOPS per volume, or none [default for a new level: none]
    #[arg(long, value_name = "N", value_parser = or_none(parse_iops))]
    max_iops: Option<u64>,
    /// Maximum throughput per volume such as 50M (50 MB/s), or none [default for a new level: none]
    #[arg(long, value_name = "RATE", value_parser = or_none(parse_rate))]
    max_bandwidth: Option<u64>,
    /// Burst: how much of an unused limit a volume may use later, as time at the limit, such as 30s, or none [default for a new level: none]
    #[arg(long, value_name = "DURATION", value_parser = or_none(parse_every))]
    burst: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ClassArgument {
    /// 16 shares
    #[value(name = "mission-critical")]
    Mission,
    /// 4 shares
    #[value(name = "business-critical")]
    Business,
    /// 1 share
    NonCritical,
}

impl From<ClassArgument> for LevelClass {
    fn from(class: ClassArgument) -> LevelClass {
        match class {
            ClassArgument::Mission => LevelClass::MissionCritical,
            ClassArgument::Business => LevelClass::BusinessCritical,
            ClassArgument::NonCritical => LevelClass::NonCritical,
        }
    }
}

impl From<Promise> for LevelSet {
    fn from(promise: Promise) -> LevelSet {
        let number = |given: Option<u64>| given.map(|number| Some(number).filter(|number| *number > 0));
        LevelSet {
            name: None,
            class: promise.class.map(Into::into),
            min_iops: number(promise.min_iops),
            min_bytes_per_second: number(promise.min_bandwidth),
            latency_us: number(promise.latency),
            max_iops: number(promise.max_iops),
            max_bytes_per_second: number(promise.max_bandwidth),
            burst_seconds: promise.burst.map(|seconds| Some(seconds).filter(|seconds| *seconds > 0)),
        }
    }
}

impl Session {
    pub fn level(&self, command: Level) -> Outcome {
        match command {
            Level::Create { name, promise, dry_run } => {
                let asked = LevelSet::from(promise);
                let body = LevelCreate {
                    name,
                    class: asked.class.unwrap_or_default(),
                    min_iops: asked.min_iops.flatten(),
                    min_bytes_per_second: asked.min_bytes_per_second.flatten(),
                    latency_us: asked.latency_us.flatten(),
                    max_iops: asked.max_iops.flatten(),
                    max_bytes_per_second: asked.max_bytes_per_second.flatten(),
                    burst_seconds: asked.burst_seconds.flatten(),
                };
                let call = Call::new(Operation::LevelCreate).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::Level>()?, |level| {
                    println!("Level {} is created.", printable(&level.name));
                })
            }
            Level::List => self.list(&self.client.all(Operation::LevelList, &[])?, show_levels),
            Level::Show { name } => {
                let level: api::Level = self.client.get(Call::of(Operation::LevelShow, &name))?;
                self.one(&level, show_level)
            }
            Level::Set { name, promise, best_effort, dry_run } => {
                let body = LevelSet::from(promise);
                let call = Call::of(Operation::LevelSet, &name).body(&body).dry_run(dry_run.dry_run);
                let call = call.best_effort(best_effort.best_effort);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                let level = answer.parse::<api::Level>()?;
                self.changed(&level, format!("Level {} is changed.", level.name))
            }
            Level::Rename(rename) => self.rename("Level", Operation::LevelSet, rename),
            Level::Delete { name, dry_run } => {
                let call = Call::of(Operation::LevelDelete, &name).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.done(&name, "level.delete", format!("Level {name} is deleted."))
            }
        }
    }
}

pub fn rate(iops: Option<u64>, bytes: Option<u64>) -> String {
    let iops = iops.map(|iops| format!("{iops} IOPS"));
    let bytes = bytes.map(show_rate_exact);
    let both: Vec<String> = iops.into_iter().chain(bytes).collect();
    if both.is_empty() { "-".into() } else { both.join(", ") }
}

/// Class, minimum, latency goal, limit and burst.
fn promise(spec: &LevelSpec) -> [String; 5] {
    [
        spec.class.name().into(),
        rate(spec.min_iops, spec.min_bytes_per_second),
        spec.latency_us.map_or("-".into(), show_micros),
        rate(spec.max_iops, spec.max_bytes_per_second),
        spec.burst_seconds.map_or("-".into(), show_duration),
    ]
}

fn show_levels(levels: &[api::Level]) -> Shown {
    let rows = levels.iter().map(|level| {
        let cells = promise(&level.spec).map(Cell::text);
        let name = [Cell::text(&level.name)];
        name.into_iter().chain(cells).chain([Cell::number(level.status.volumes)]).collect()
    });
    let titles = ["NAME", "CLASS", "MINIMUM", "LATENCY", "LIMIT", "BURST", "VOLUMES"];
    listing::table(&titles, rows.collect(), "No levels.")
}

fn show_level(level: &api::Level) {
    println!("{}", printable(&level.name));
    println!("  id          {}", printable(&level.id));
    let [class, minimum, latency, limit, burst] = promise(&level.spec);
    println!("  class       {class}");
    println!("  minimum     {minimum}");
    println!("  latency     {latency}");
    println!("  limit       {limit}");
    println!("  burst       {burst}");
    println!("  volumes     {}", level.status.volumes);
    match level.status.created_unix_ms {
        Some(created) => println!("  created     {} UTC", show_time(created)),
        None => println!("  built in"),
    }
}
