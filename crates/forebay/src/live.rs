//! `forebay validate run --live`: a running pool is asked what a modelled one is, and both are put side by side.

use forebay_cli::{Connect, Exit, Failure, ValidateRun};
use forebay_live::{Door, Initiator, LiveClient, REQUEST_BYTES_MAX, Span, drive_live};
use forebay_reference::{Case, Configuration, LiveCase, LiveReport, Report};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Runs all cases; the reports, and whether no request failed and no model was too far off.
pub fn run(
    options: &ValidateRun,
    configurations: Vec<Configuration>,
    connect: Connect,
) -> Result<(Vec<Report>, bool), Failure> {
    for configuration in &configurations {
        check(options, configuration)?;
    }
    let live = configurations.iter().map(|configuration| {
        configuration.cases.iter().map(|case| live(options, configuration, case, connect)).collect()
    });
    let live = live.collect::<Result<Vec<Vec<LiveCase>>, Failure>>()?;
    // After it: the model would take processors from clients and daemon.
    let mut reports = match options.model {
        true => super::validate::make(options, configurations)?,
        false => configurations.into_iter().map(|one| Report::unmodelled(one, options.seed)).collect(),
    };
    reports.iter_mut().zip(&live).for_each(|(report, live)| report.add_live(live));
    let mut all = reports.iter().flat_map(|report| &report.cases).filter_map(|case| case.live.as_ref());
    let is_good = all.all(LiveReport::is_good);
    Ok((reports, is_good))
}

/// Whether a running pool can be asked that.
fn check(options: &ValidateRun, configuration: &Configuration) -> Result<(), Failure> {
    let fails = |case: &&Case| case.pools.iter().any(|pool| pool.fails.is_some());
    if let Some(case) = configuration.cases.iter().find(fails) {
        let remedy = "Run it with --model only, or without `fails`";
        return Err(Failure::new(
            Exit::Usage,
            "the case has a disk that fails, which is not possible on a pool in use",
            remedy,
        )
        .object(&case.name));
    }
    let is_long = |workload: &str| {
        let client = configuration.client(workload).expect("the configuration was checked");
        client.workload.block_kib * 1024 > REQUEST_BYTES_MAX
    };
    let mut workloads =
        configuration.cases.iter().flat_map(|case| &case.pools).flat_map(|pool| &pool.workloads);
    if options.iscsi.is_some()
        && let Some(workload) = workloads.find(|workload| is_long(workload))
    {
        let detail = format!("its requests are longer than {} MiB", REQUEST_BYTES_MAX / MIB);
        return Err(Failure::new(Exit::Usage, detail, "Use NBD instead").object(workload));
    }
    Ok(())
}

fn live(
    options: &ValidateRun,
    configuration: &Configuration,
    case: &Case,
    connect: Connect,
) -> Result<LiveCase, Failure> {
    let daemon = connect()?;
    let pool = options.pool.as_deref().expect("clap requires it");
    let machine = &configuration.machine;
    let mut scratch = daemon.scratch(pool)?;
    let (door, over, remedy) = match &options.iscsi {
        Some(portal) => {
            let name = format!("iqn.2026-11.io.forebay.validate:{}", std::process::id());
            scratch.host(&name)?;
            let door = Door::Iscsi(Initiator { portal: portal.clone(), name });
            (
                door,
                "iSCSI",
                "Give the iSCSI portal of `forebay serve` with --iscsi, and see `forebay event list`",
            )
        }
        None => {
            let door = Door::Nbd(options.nbd.clone());
            (door, "NBD", "Give the NBD address of `forebay serve` with --nbd, and see `forebay event list`")
        }
    };
    let mut clients = Vec::new();
    for (nth, name) in case.pools.iter().flat_map(|pool| &pool.workloads).enumerate() {
        let client = configuration.client(name).expect("the configuration was checked");
        let bytes = client.workload.size_gib * GIB / machine.scale / MIB * MIB;
        let block = (client.volume_block_kib << 10) as u32;
        let volume = scratch.volume(&format!("{name}-{nth}"), bytes, block)?;
        let (workload, serial) = (client.workload.clone(), volume.id.replace('-', ""));
        clients.push(LiveClient { workload, volume: volume.name, serial });
    }
    let span = Span {
        warm_seconds: case.warm_seconds.unwrap_or(machine.warm_seconds),
        seconds: case.seconds.unwrap_or(machine.seconds),
    };
    let names: Vec<String> = clients.iter().map(|client| client.workload.name.clone()).collect();
    let driven = drive_live(&door, clients, options.seed, span);
    let tallies = driven.map_err(|error| Failure::new(Exit::Failed, error, remedy).object(pool));
    scratch.remove()?;
    Ok(LiveCase { pool: pool.into(), over, clients: names.into_iter().zip(tallies?).collect() })
}
