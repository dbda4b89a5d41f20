//! Do the clients that people have work with it? Without them installed these tests say so and pass.

use crate::house::{Host, TARGET, mapping};
use crate::support::Served;
use forebay_target::Proof;
use std::process::Command;

/// A server that lets everybody in; URIs of its units.
fn open_house() -> Served {
    let served = Served::new();
    let luns = served.disks.iter().enumerate().map(|(lun, disk)| mapping(lun as u16, disk)).collect();
    served.table.0.lock().unwrap().insert("*".into(), Host { proof: Proof::Name, luns, ceiling: None });
    served
}

/// What a program prints; `None` when it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new("timeout").arg("60").arg(program).args(arguments).output() {
        Ok(output) if output.status.code() != Some(127) => output,
        _ => {
            println!("{program} is not installed");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text} {errors}");
    Some(text)
}

#[test]
fn libiscsi_finds_its_disks() {
    let served = open_house();
    if let Some(list) = run("iscsi-ls", &["-s", &format!("iscsi://{}", served.address(0))]) {
        assert!(list.contains(TARGET) && list.contains(served.address(1)), "{list}");
        assert_eq!(list.matches("Type:DIRECT_ACCESS").count(), 6, "three units on two paths: {list}");
    }
    let unit = format!("iscsi://{}/{TARGET}/1", served.address(0));
    if let Some(inquiry) = run("iscsi-inq", &[&unit]) {
        assert!(inquiry.contains("Vendor:FOREBAY"), "{inquiry}");
    }
    served.stop();
}

#[test]
fn qemu_reads_what_it_wrote() {
    let served = open_house();
    let has_driver = run("qemu-io", &["--help"]).is_some_and(|help| help.contains("qemu-io"));
    for lun in 0..2 {
        let unit = format!("iscsi://{}/{TARGET}/{lun}", served.address(lun));
        let commands = [
            "write -P 0xa5 0 8M",
            "write -P 0x5a 1M 64k",
            "flush",
            "read -P 0xa5 0 1M",
            "read -P 0x5a 1M 64k",
            "discard 4M 1M",
            "read -P 0 4M 1M",
        ];
        let mut arguments = vec!["-f", "raw"];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        arguments.push(&unit);
        // Debian keeps the driver in qemu-block-extra.
        if !has_driver
            || !Command::new("qemu-io")
                .args(["-f", "raw", "-c", "length", &unit])
                .status()
                .is_ok_and(|s| s.success())
        {
            println!("qemu-io or its iSCSI driver is not installed");
            break;
        }
        let text = run("qemu-io", &arguments).expect("it ran a moment ago");
        assert!(!text.contains("verification failed"), "{text}");
        let mut stored = vec![0; 65_536];
        served.disks[lun].copy_out(1 << 20, &mut stored);
        assert!(stored.iter().all(|&byte| byte == 0x5a));
    }
    served.stop();
}

/// Families of libiscsi's suite that are about the transport.
#[test]
fn libiscsis_suite_passes_where_it_tests_the_transport() {
    let served = open_house();
    let unit = format!("iscsi://{}/{TARGET}/0", served.address(0));
    for (family, tests) in
        [("ALL.iSCSIResiduals", 10), ("ALL.iSCSIcmdsn", 2), ("ALL.iSCSIdatasn", 1), ("ALL.iSCSITMF", 2)]
    {
        let Some(text) = run("iscsi-test-cu", &["-d", "-n", "-V", "-t", family, &unit]) else { break };
        let summary = text.lines().find(|line| line.trim_start().starts_with("tests")).unwrap_or_default();
        let numbers: Vec<u32> = summary.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert_eq!(numbers.get(..4), Some(&[tests, tests, tests, 0][..]), "{family}: {text}");
        assert!(!text.contains("[SKIPPED]"), "{family}: {text}");
    }
    served.stop();
}
