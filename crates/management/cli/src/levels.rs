//! The commands about service levels.

use crate::arguments::{BestEffort, DryRun};
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::printable;
use crate::show;
use crate::size::{or_none, parse_every, parse_iops, parse_micros, parse_size, show_time};
use crate::table::Cell;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use forebay_api::{self as api, LevelClass, LevelCreate, LevelSet, LevelSpec, Operation};
use forebay_api::{show_duration, show_micros, show_size_exact};

#[derive(Subcommand, Debug)]
pub enum Level {
    /// Create a service level, business-critical unless told otherwise; volumes and projects are given it with --level
    Create {
        /// Letters, digits and `._-`, starting with a letter
        name: String,
        #[command(flatten)]
        promise: Promise,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List service levels, those that are built in, too
    List,
    /// Show a service level
    Show {
        /// Name or UUID
        name: String,
    },
    /// Change a service level, for all volumes that have it, at once
    #[command(group = ArgGroup::new("change").required(true).multiple(true).args([
        "class", "floor_iops", "floor_bandwidth", "latency", "ceiling_iops", "ceiling_bandwidth", "burst",
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
    /// Delete a service level that no volume and no project has
    Delete {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

/// All of it is of each volume by itself; what may be `none` is so unless it is given.
#[derive(Args, Debug)]
pub struct Promise {
    /// How much it matters: its share of what nobody was promised
    #[arg(long)]
    class: Option<ClassArgument>,
    /// Requests a second that it gets whenever it asks for them, or none
    #[arg(long, value_name = "N", value_parser = or_none(parse_iops))]
    floor_iops: Option<u64>,
    /// Bytes a second that it gets whenever it asks for them, like 50M, or none
    #[arg(long, value_name = "SIZE", value_parser = or_none(parse_size))]
    floor_bandwidth: Option<u64>,
    /// What 99 of 100 requests should take at most: 500us, 10ms, 1s, or none
    #[arg(long, value_name = "TIME", value_parser = or_none(parse_micros))]
    latency: Option<u64>,
    /// Requests a second that it gets at most, or none
    #[arg(long, value_name = "N", value_parser = or_none(parse_iops))]
    ceiling_iops: Option<u64>,
    /// Bytes a second that it gets at most, like 50M, or none
    #[arg(long, value_name = "SIZE", value_parser = or_none(parse_size))]
    ceiling_bandwidth: Option<u64>,
    /// For how long of its ceiling it may make up after it asked for less, like 30s, or none
    #[arg(long, value_name = "DURATION", value_parser = or_none(parse_every))]
    burst: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ClassArgument {
    /// 16 parts
    #[value(name = "mission-critical")]
    Mission,
    /// 4 parts
    #[value(name = "business-critical")]
    Business,
    /// 1 part
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
            class: promise.class.map(Into::into),
            floor_iops: number(promise.floor_iops),
            floor_bytes_per_second: number(promise.floor_bandwidth),
            latency_us: number(promise.latency),
            ceiling_iops: number(promise.ceiling_iops),
            ceiling_bytes_per_second: number(promise.ceiling_bandwidth),
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
                    floor_iops: asked.floor_iops.flatten(),
                    floor_bytes_per_second: asked.floor_bytes_per_second.flatten(),
                    latency_us: asked.latency_us.flatten(),
                    ceiling_iops: asked.ceiling_iops.flatten(),
                    ceiling_bytes_per_second: asked.ceiling_bytes_per_second.flatten(),
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
                self.one(&answer.parse::<api::Level>()?, show_level)
            }
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
    let bytes = bytes.map(|bytes| format!("{}/s", show_size_exact(bytes)));
    let both: Vec<String> = iops.into_iter().chain(bytes).collect();
    if both.is_empty() { "-".into() } else { both.join(", ") }
}

/// Class, floor, latency goal, ceiling and burst.
fn promise(spec: &LevelSpec) -> [String; 5] {
    [
        spec.class.name().into(),
        rate(spec.floor_iops, spec.floor_bytes_per_second),
        spec.latency_us.map_or("-".into(), show_micros),
        rate(spec.ceiling_iops, spec.ceiling_bytes_per_second),
        spec.burst_seconds.map_or("-".into(), show_duration),
    ]
}

fn show_levels(levels: &[api::Level]) {
    let rows = levels.iter().map(|level| {
        let cells = promise(&level.spec).map(Cell::text);
        let name = [Cell::text(&level.name)];
        name.into_iter().chain(cells).chain([Cell::number(level.status.volumes)]).collect()
    });
    let titles = ["NAME", "CLASS", "FLOOR", "LATENCY", "CEILING", "BURST", "VOLUMES"];
    show::table(&titles, rows.collect(), "No levels.");
}

fn show_level(level: &api::Level) {
    println!("{}", printable(&level.name));
    println!("  id          {}", printable(&level.id));
    let [class, floor, latency, ceiling, burst] = promise(&level.spec);
    println!("  class       {class}");
    println!("  floor       {floor}");
    println!("  latency     {latency}");
    println!("  ceiling     {ceiling}");
    println!("  burst       {burst}");
    println!("  volumes     {}", level.status.volumes);
    match level.status.created_unix_ms {
        Some(created) => println!("  created     {} UTC", show_time(created)),
        None => println!("  built in"),
    }
}
