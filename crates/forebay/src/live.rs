//! `forebay validate run --live`: a running pool is asked what a modelled one is, and both are put side by side.

use forebay_cli::{Connect, Exit, Failure, ValidateRun};
use forebay_live::{BOUNDS, LiveClient, Span, drive_live};
use forebay_reference::{Case, Configuration, Report};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// What a client got of the running pool, and of the model if that was asked, too.
struct Row {
    workload: String,
    live: Got,
    model: Option<Got>,
    failed: u64,
}

struct Got {
    iops: f64,
    bytes_per_second: f64,
    mean_ms: f64,
    p99_ms: f64,
}

impl Got {
    fn json(&self) -> Value {
        let Got { iops, bytes_per_second, mean_ms, p99_ms } = self;
        json!({ "iops": iops, "bytes_per_second": bytes_per_second, "mean_ms": mean_ms, "p99_ms": p99_ms })
    }
}

impl Row {
    /// How far the model is off: of the rate and of the 99th percentile.
    fn errors(&self) -> Option<[f64; 2]> {
        let model = self.model.as_ref()?;
        Some([model.iops / self.live.iops - 1.0, model.p99_ms / self.live.p99_ms - 1.0])
    }
}

/// Runs all cases; exit status 1 if a request failed or the model is too far off.
pub fn run(
    options: &ValidateRun,
    configurations: &[Configuration],
    json: bool,
    connect: Connect,
) -> Result<Exit, Failure> {
    let mut reports = Vec::new();
    let mut is_good = true;
    let mut all = configurations.iter().flat_map(|one| &one.cases);
    if let Some(case) = all.find(|case| case.pools.iter().any(|pool| pool.fails.is_some())) {
        let remedy = "Run it with --model only, or without `fails`: a running pool's disks are left alone";
        return Err(Failure::new(Exit::Usage, "a disk would have to fail", remedy).object(&case.name));
    }
    for configuration in configurations {
        for case in &configuration.cases {
            let mut rows = live(options, configuration, case, connect)?;
            if options.model {
                add_model(options, configuration, case, &mut rows)?;
            }
            let far = |[rate, p99]: [f64; 2]| rate.abs() > BOUNDS[0] || p99.abs() > BOUNDS[1];
            is_good &= rows.iter().all(|row| row.failed == 0 && !row.errors().is_some_and(far));
            match json {
                true => reports.push(report(configuration, case, options, &rows)),
                false => print(configuration, case, options, &rows),
            }
        }
    }
    if json {
        println!("{}", Value::from(reports));
    }
    Ok(if is_good { Exit::Ok } else { Exit::Failed })
}

fn live(
    options: &ValidateRun,
    configuration: &Configuration,
    case: &Case,
    connect: Connect,
) -> Result<Vec<Row>, Failure> {
    let daemon = connect()?;
    let pool = options.pool.as_deref().expect("clap requires it");
    let machine = &configuration.machine;
    let mut scratch = daemon.scratch(pool)?;
    let mut clients = Vec::new();
    for (nth, name) in case.pools.iter().flat_map(|pool| &pool.workloads).enumerate() {
        let client = configuration.client(name).expect("the configuration was checked");
        let bytes = client.workload.size_gib * GIB / machine.scale / MIB * MIB;
        let block = (client.volume_block_kib << 10) as u32;
        let export = scratch.volume(&format!("{name}-{nth}"), bytes, block)?;
        clients.push(LiveClient { workload: client.workload.clone(), export });
    }
    let span = Span { warm_seconds: machine.warm_seconds, seconds: machine.seconds };
    let driven = drive_live(&options.nbd, clients.clone(), options.seed, span);
    let tallies = driven.map_err(|error| {
        let remedy = "Give --nbd where `forebay serve` listens, and see `forebay event list`";
        Failure::new(Exit::Failed, error, remedy).object(pool)
    });
    scratch.remove()?;
    let row = |(client, tally): (LiveClient, forebay_live::Tally)| Row {
        workload: client.workload.name,
        live: Got {
            iops: tally.iops(),
            bytes_per_second: tally.bytes_per_second(),
            mean_ms: tally.all.mean().as_secs_f64() * 1e3,
            p99_ms: tally.all.quantile(990).as_secs_f64() * 1e3,
        },
        model: None,
        failed: tally.failures(),
    };
    Ok(clients.into_iter().zip(tallies?).map(row).collect())
}

fn add_model(
    options: &ValidateRun,
    configuration: &Configuration,
    case: &Case,
    rows: &mut [Row],
) -> Result<(), Failure> {
    let one = Configuration { cases: vec![case.clone()], ..configuration.clone() };
    let remedy =
        "This is a mistake of Forebay's or of the configuration; `--seed` tries another course of events";
    let report = Report::make(one, options.seed)
        .map_err(|error| Failure::new(Exit::Failed, error, remedy).object(&configuration.name))?;
    for (row, client) in rows.iter_mut().zip(report.cases.iter().flat_map(|case| &case.clients)) {
        row.model = Some(Got {
            iops: client.iops,
            bytes_per_second: client.bytes_per_second,
            mean_ms: client.mean_ms,
            p99_ms: client.p99_ms,
        });
    }
    Ok(())
}

fn report(configuration: &Configuration, case: &Case, options: &ValidateRun, rows: &[Row]) -> Value {
    let row = |row: &Row| {
        json!({
            "workload": row.workload, "live": row.live.json(), "model": row.model.as_ref().map(Got::json),
            "iops_error": row.errors().map(|errors| errors[0]), "p99_error": row.errors().map(|errors| errors[1]),
            "failed": row.failed,
        })
    };
    json!({
        "kind": "live", "configuration": configuration, "case": case.name, "pool": options.pool, "seed": options.seed,
        "clients": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn print(configuration: &Configuration, case: &Case, options: &ValidateRun, rows: &[Row]) {
    let pool = options.pool.as_deref().unwrap_or_default();
    println!("{}: {}, live on pool {pool}", configuration.name, case.name);
    println!("  {:<28}{:>10}{:>10}{:>10}{:>10}", "", "got/s", "MB/s", "mean ms", "p99 ms");
    for row in rows {
        let line = |kind: &str, got: &Got| {
            let name = format!("{} {kind}", row.workload);
            let mega = got.bytes_per_second / 1e6;
            println!("  {name:<28}{:>10.0}{mega:>10.1}{:>10.2}{:>10.2}", got.iops, got.mean_ms, got.p99_ms);
        };
        line("live", &row.live);
        if let (Some(model), Some([rate, p99])) = (&row.model, row.errors()) {
            line("model", model);
            let name = format!("{} error", row.workload);
            println!("  {name:<28}{:>9.0}%{:>30.0}%", rate * 100.0, p99 * 100.0);
        }
        if row.failed > 0 {
            println!("  {} FAILED requests", row.failed);
        }
    }
    let Configuration { machine, .. } = configuration;
    println!(
        "- {} s were measured after {} s of the same load, with seed {}, over NBD; volumes were {} times smaller than they are said to be, \
         not compressed, without levels, and filled before.",
        machine.seconds, machine.warm_seconds, options.seed, machine.scale
    );
}
