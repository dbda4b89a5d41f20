//! How fast the simulator is: requests of clients and of disks for each second of one core, with more and more disks and requests at a time; or, with the name
//! of a reference or a file (and a part of a case's name, and seconds to measure), what its report says and how long that took.
//!
//! `cargo run --profile test -p forebay-reference --example speed [NAME [CASE [SECONDS]]]`

use forebay_reference::{Configuration, Report, references};
use std::time::Instant;

/// Random requests to a pool of mirrors.
fn case(disks: u32, outstanding: u32) -> Configuration {
    let text = format!(
        r#"
        name = "speed"
        title = "random requests to mirrors"
        machine = {{ disk = "7.2K", log = "SATA flash", memory-mib = 64, scale = 1024, warm-seconds = 1, seconds = 20 }}
        [[workload]]
        name = "random"
        block-kib = 8
        read-percent = 60
        access = "random"
        size-gib = 1024
        outstanding = {outstanding}
        volume-block-kib = 8
        [[case]]
        name = "{disks} disks"
        pool = [{{ layout = "mirror", disks = {disks}, groups = 1, workloads = ["random"] }}]
        "#
    );
    Configuration::parse(&text).expect("it is in order")
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
        }
        let begun = Instant::now();
        match Report::make_all(chosen, 1, 1) {
            Ok(reports) => reports.iter().for_each(|report| print!("{}", report.text())),
            Err(error) => println!("{error}"),
        }
        println!("{:.1} s", begun.elapsed().as_secs_f64());
        return;
    }
    println!(
        "{:>6} {:>12} {:>14} {:>14} {:>16}",
        "disks", "outstanding", "requests/s", "disks' /s", "virtual ÷ real"
    );
    for (disks, outstanding) in [(4, 64), (16, 64), (64, 64), (128, 64), (128, 16), (128, 256), (128, 1024)] {
        let configuration = case(disks, outstanding);
        let virtual_seconds = (configuration.machine.warm_seconds + configuration.machine.seconds) as f64;
        let begun = Instant::now();
        let report = Report::make(configuration, 1).expect("it runs");
        let (took, case) = (begun.elapsed().as_secs_f64(), &report.cases[0]);
        println!(
            "{disks:>6} {outstanding:>12} {:>14.0} {:>14.0} {:>16.1}",
            case.clients[0].iops * virtual_seconds / took,
            case.disk_requests as f64 / took,
            virtual_seconds / took
        );
    }
}
