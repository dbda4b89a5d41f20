//! How fast the simulator is: requests of clients and of disks for each second of a processor, with more and more disks and requests at a time; or, with the name
//! of a reference or a file (and a part of a case's name, and seconds to measure), what its report says and how long that took.
//!
//! `cargo run --profile test -p forebay-reference --example speed [NAME [CASE [SECONDS]]]`

use forebay_reference::{Configuration, Report, references};
use std::time::Instant;

/// Random requests to a pool of mirrors, or to one disk.
fn case(disks: u32, outstanding: u32) -> Configuration {
    // A group has 128 disks at most.
    let (layout, groups) = if disks == 1 { ("single", 1) } else { ("mirror", disks.div_ceil(128)) };
    let each = disks / groups;
    let text = format!(
        r#"
        name = "speed"
        title = "random requests"
        machine = {{ disk = "7.2K", log = "SATA flash", memory-mib = 32, scale = 1024, warm-seconds = 1, seconds = 20 }}
        [[workload]]
        name = "random"
        block-kib = 8
        read-percent = 60
        access = "random"
        size-gib = 512
        outstanding = {outstanding}
        volume-block-kib = 8
        [[case]]
        name = "{disks} disks"
        pool = [{{ layout = "{layout}", disks = {each}, groups = {groups}, workloads = ["random"] }}]
        "#
    );
    Configuration::parse(&text).expect("it is in order")
}

/// Seconds that this process has had of a processor, to a hundredth: others may be busy beside it.
fn worked() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux tells");
    let (_, after_name) = stat.rsplit_once(')').expect("the name is in brackets");
    let mut ticks =
        after_name.split_whitespace().skip(11).map(|ticks| ticks.parse::<f64>().expect("a number"));
    let mut next = || ticks.next().expect("user and system");
    (next() + next()) / 100.0
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let Some(name) = arguments.next() {
        let mut chosen = references();
        match std::fs::read_to_string(&name) {
            Ok(text) => chosen = vec![Configuration::parse(&text).expect("it is in order")],
            Err(_) => chosen.retain(|reference| reference.name == name),
        }
        let part = arguments.next().unwrap_or_default();
        let seconds = arguments.next().and_then(|seconds| seconds.parse().ok());
        for one in &mut chosen {
            one.cases.retain(|case| case.name.contains(&part));
            one.machine.seconds = seconds.unwrap_or(one.machine.seconds);
            // Published figures are of all cases.
            one.cases.iter_mut().for_each(|case| case.figures.clear());
        }
        let begun = Instant::now();
        match Report::make_all(chosen, 1, 1, &|_, _| {}) {
            Ok(reports) => reports.iter().for_each(|report| print!("{}", report.text())),
            Err(error) => println!("{error}"),
        }
        println!("{:.1} s, {:.1} s of processors", begun.elapsed().as_secs_f64(), worked());
        return;
    }
    println!(
        "{:>6} {:>12} {:>14} {:>12} {:>12} {:>15}",
        "disks", "outstanding", "requests/s", "disks' /s", "to begin, s", "virtual ÷ real"
    );
    for disks in [1, 8, 32, 136] {
        for outstanding in [1, 32, 256] {
            // Filling the volume is no part of the load: what a run of one second takes is taken off.
            // As long as some hundred thousand requests take, so that hundredths of a second do not matter.
            let seconds = u64::from(3000 / disks.min(outstanding)).clamp(60, 1800);
            let [begins, ends] = [1, 1 + seconds].map(|seconds| {
                let mut configuration = case(disks, outstanding);
                configuration.machine.seconds = seconds;
                let begun = worked();
                let report = Report::make(configuration, 1).expect("it runs");
                let case = &report.cases[0];
                let requests = case.clients[0].iops * seconds as f64;
                (worked() - begun, requests, case.disk_requests as f64)
            });
            let took = ends.0 - begins.0;
            println!(
                "{disks:>6} {outstanding:>12} {:>14.0} {:>12.0} {:>12.2} {:>15.1}",
                (ends.1 - begins.1) / took,
                (ends.2 - begins.2) / took,
                begins.0,
                seconds as f64 / took
            );
        }
    }
}
