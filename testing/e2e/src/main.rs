//! `forebay-e2e --server PATH [SCENARIO…]`: runs the scenarios, by default all but the long ones, and says what each one showed.
//!
//! One at a time: they share two cores, and a failure is easier to read alone. Each has a directory of its own under
//! `/var/tmp`. The failures are said once more at the end; the last line is `N passed, N failed`.

use forebay_e2e::host::{self, Directory, Outcome};
use forebay_e2e::{
    analytics, docs, filesystem, guest, hang, heal, hostile, iscsi, kill, readme, reservations, tools,
};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

struct Scenario {
    name: &'static str,
    shows: &'static str,
    run: fn(&Path, &Directory) -> Outcome<String>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "readme", shows: "what the README's first screen says is true", run: readme::is_true },
    Scenario {
        name: "docs",
        shows: "so is what tutorials and how-to pages have a reader type",
        run: docs::are_true,
    },
    Scenario {
        name: "checker-forgetful",
        shows: "the kill -9 checker sees losses where there are some",
        run: |_, directory| kill::forgetful(directory),
    },
    Scenario {
        name: "checker-remembering",
        shows: "and none where there are none",
        run: |_, directory| kill::remembering(directory),
    },
    Scenario {
        name: "tools",
        shows: "fio, nbdcopy, nbdinfo, qemu-img and qemu-io agree about what is on a volume",
        run: tools::all,
    },
    Scenario {
        name: "analytics",
        shows: "what fio counted is what the analytics tell, also after a kill",
        run: analytics::agree,
    },
    Scenario { name: "iscsi-suite", shows: "libiscsi's conformance suite, whole", run: iscsi::suite },
    Scenario { name: "iscsi-tools", shows: "qemu-img and qemu-io over iSCSI", run: iscsi::tools },
    Scenario {
        name: "kill",
        shows: "50 kills under load lose no acknowledged write",
        run: kill::fifty_rounds,
    },
    Scenario { name: "kill-iscsi", shows: "20 kills under load over iSCSI", run: kill::rounds_over_iscsi },
    Scenario {
        name: "reservations",
        shows: "persistent reservations hold through kills",
        run: reservations::survive,
    },
    Scenario {
        name: "ext4",
        shows: "20 000 files and every fsync'ed one survive kill -9 on ext4",
        run: |binary, directory| filesystem::survives(binary, directory, filesystem::Kind::Ext4),
    },
    Scenario {
        name: "xfs",
        shows: "and on XFS",
        run: |binary, directory| filesystem::survives(binary, directory, filesystem::Kind::Xfs),
    },
    Scenario {
        name: "heal",
        shows: "garbage on a disk is scrubbed away, a dead disk is replaced under load, and then another dies",
        run: heal::every_layout,
    },
    Scenario {
        name: "hang",
        shows: "a disk that hangs under load is taken out of service, and taken back when it answers",
        run: hang::one_disk,
    },
    Scenario {
        name: "guest",
        shows: "a Linux guest's file system sees no error while one path or the other is cut",
        run: guest::short,
    },
];

/// Run only when they are named.
const AT_LENGTH: &[Scenario] = &[
    Scenario {
        name: "guest-long",
        shows: "neither do ext4 and XFS, over more data and cuts of every kind",
        run: guest::long,
    },
    Scenario {
        name: "hostile",
        shows: "good clients of every listener are answered in 100 ms beside 10 000 connections that mean no good",
        run: hostile::beside,
    },
];

fn all() -> impl Iterator<Item = &'static Scenario> {
    SCENARIOS.iter().chain(AT_LENGTH)
}

fn main() -> ExitCode {
    let mut binary = None;
    let mut chosen = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--server" {
            binary = arguments.next().map(PathBuf::from);
        } else if all().any(|scenario| scenario.name == argument) {
            chosen.push(argument);
        } else {
            return usage();
        }
    }
    let Some(binary) = binary else { return usage() };
    let binary = match binary.canonicalize() {
        Ok(binary) => binary,
        Err(error) => {
            eprintln!("{}: {error}", binary.display());
            return ExitCode::from(2);
        }
    };
    host::prepare();

    let (mut passed, mut failures) = (0, Vec::new());
    let chosen: Vec<&Scenario> = match chosen.is_empty() {
        true => SCENARIOS.iter().collect(),
        false => all().filter(|scenario| chosen.iter().any(|name| name == scenario.name)).collect(),
    };
    for scenario in chosen {
        println!("{}: {}", scenario.name, scenario.shows);
        let start = Instant::now();
        let outcome = Directory::new(scenario.name).and_then(|directory| (scenario.run)(&binary, &directory));
        let took = start.elapsed().as_secs_f64();
        match outcome {
            Ok(figures) => {
                passed += 1;
                println!("    ok in {took:.1} s: {figures}");
            }
            Err(failure) => {
                println!("    FAILED after {took:.1} s: {failure}");
                failures.push(format!("{}: {failure}", scenario.name));
            }
        }
    }
    for failure in &failures {
        println!("\nFAILED: {failure}");
    }
    // Once more at the end, where a log that was cut has it.
    for failure in &failures {
        println!("FAILED: {}", failure.lines().next().unwrap_or_default());
    }
    println!("{passed} passed, {} failed", failures.len());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    eprintln!("usage: forebay-e2e --server PATH/TO/forebay [SCENARIO…]");
    for scenario in all() {
        eprintln!("  {:20} {}", scenario.name, scenario.shows);
    }
    ExitCode::from(2)
}
