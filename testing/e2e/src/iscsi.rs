//! Other people's iSCSI clients on a volume: libiscsi's conformance suite, and qemu's block layer.
//!
//! The suite ([`suite`]) prints a skipped test as passed; so what it prints is read: a test counts as passed only when
//! nothing was skipped inside it. Which may be skipped, and why, is in `iscsi-suite.txt`; a test that is skipped and not
//! listed there is a failure, as is one that is listed and was not skipped: the list stays true.

use crate::host::{Context, Directory, Outcome, command, run};
use crate::server::{Export, Forebay, Iscsi, Server, Tgt};
use forebay_client::iscsi::INITIATOR;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

const SIZE: u64 = 256 << 20;
const SUITE_LIST: &str = include_str!("../iscsi-suite.txt");
/// The second name that the suite logs in with where a test needs two initiators.
const SECOND_INITIATOR: &str = "iqn.2026-11.io.forebay.test:second";
/// Suites that expect as many logical as physical blocks (one test of it asks for the status of block i+1 and wants that of
/// the next physical one): they run on a unit with blocks of 4 KiB.
const ON_LARGE_BLOCKS: &[&str] = &["ALL.GetLBAStatus"];
/// Seconds for one suite; only a target that does not answer takes so long.
const SUITE_LIMIT: &str = "600";
/// What the suite must really have passed, at least.
const PASSED_MIN: usize = 200;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Passed,
    Skipped,
    Failed,
}

/// The conformance suite, whole, over two portals and with two initiators.
pub fn suite(binary: &Path, directory: &Directory) -> Outcome<String> {
    let forebay = Forebay::create(binary, directory, "single", 1, 4 << 30)?;
    let mut server = Iscsi::new(forebay)?;
    server.forebay.cli(&["host", "create", "second", "--iqn", SECOND_INITIATOR])?;
    let small = unit(&mut server, "small", "512")?;
    let large = unit(&mut server, "large", "4K")?;

    let (suites, expected) = listed()?;
    let allowed = allowed();
    let (mut passed, mut skipped, mut wrong) = (0, 0, Vec::new());
    let mut ran = 0;
    for suite in &suites {
        let urls = if ON_LARGE_BLOCKS.contains(&suite.as_str()) { &large } else { &small };
        for (test, verdict) in run_suite(suite, urls)? {
            ran += 1;
            let name = format!("{}.{test}", suite.trim_start_matches("ALL."));
            match (verdict, allowed.contains_key(name.as_str())) {
                (Verdict::Passed, false) => passed += 1,
                (Verdict::Skipped, true) => skipped += 1,
                (Verdict::Passed, true) => wrong.push(format!("{name} is listed as skipped and passed")),
                (Verdict::Skipped, false) => wrong.push(format!("{name} was skipped and is not listed")),
                (Verdict::Failed, _) => wrong.push(format!("{name} failed")),
            }
        }
    }
    if ran != expected {
        wrong.push(format!("{ran} tests ran, of {expected} that the suite lists"));
    }
    if passed < PASSED_MIN {
        wrong.push(format!("{passed} passed, fewer than {PASSED_MIN}"));
    }
    if !wrong.is_empty() {
        return Err(format!("{}\n{}", wrong.join("\n"), server.forebay.log_tail()));
    }
    server.forebay.stop()?;
    Ok(format!("{passed} of {ran} passed, {skipped} skipped for reasons in iscsi-suite.txt, none failed"))
}

/// A unit that both initiators see: its address at each portal.
fn unit(server: &mut Iscsi, name: &str, logical_block: &str) -> Outcome<Vec<String>> {
    let export = server.create_volume_with(name, SIZE, "4K", true, &["--logical-block", logical_block])?;
    server.forebay.cli(&["volume", "map", &format!("e2e/{name}"), "--host", "second"])?;
    Ok(server.forebay.portals().iter().map(|at| url(at, &export)).collect())
}

/// Tests that may be skipped, with the reason.
fn allowed() -> BTreeMap<&'static str, &'static str> {
    let lines = SUITE_LIST.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_once(' ').expect("a name and a reason")).collect()
}

/// The suites of the family that has every test once, and how many tests that are.
fn listed() -> Outcome<(Vec<String>, usize)> {
    let list = run("iscsi-test-cu --list")?;
    let of_family = |dots| move |line: &&str| line.starts_with("ALL.") && line.matches('.').count() == dots;
    let suites = list.lines().filter(of_family(1)).map(str::to_owned).collect();
    Ok((suites, list.lines().filter(of_family(2)).count()))
}

fn run_suite(suite: &str, urls: &[String]) -> Outcome<Vec<(String, Verdict)>> {
    let mut program = command("timeout");
    program.args([SUITE_LIMIT, "iscsi-test-cu", "-d", "-i", INITIATOR, "-I", SECOND_INITIATOR]);
    // The suite's own lines and CUnit's go different ways; in one pipe they stay in order.
    let output = program.args(["-t", suite]).args(urls).stderr(Stdio::null()).output().context(suite)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !text.contains("Run Summary:") {
        return Err(format!("{suite} did not end by itself:\n{text}"));
    }
    Ok(verdicts(&text))
}

/// `Test: NAME ...`, what the test says meanwhile, `passed` or `FAILED`.
fn verdicts(text: &str) -> Vec<(String, Verdict)> {
    let mut verdicts: Vec<(String, Verdict)> = Vec::new();
    for part in text.split("  Test: ").skip(1) {
        let name = part.split(' ').next().unwrap_or_default().to_owned();
        let part = part.split("Run Summary:").next().unwrap_or_default();
        // In brackets the suite complains of a single command, which a test may well expect.
        let said = part.replace("[FAILED]", "");
        let verdict = match () {
            () if said.contains("FAILED") || !said.contains("passed") => Verdict::Failed,
            () if said.contains("[SKIPPED]") => Verdict::Skipped,
            () => Verdict::Passed,
        };
        verdicts.push((name, verdict));
    }
    verdicts
}

fn url(address: &str, export: &Export) -> String {
    format!("iscsi://{}/{}", address.trim_start_matches("iscsi://"), export.name)
}

/// qemu's iSCSI client: images in, out and compared, patterns verified; first on a target known to be good.
pub fn tools(binary: &Path, directory: &Directory) -> Outcome<String> {
    let file = directory.sparse_file("tgt.img", SIZE)?;
    let mut known = Tgt::new(directory, &file, SIZE, 512);
    known.start()?;
    let export = known.exports()[0].clone();
    steps(&known, &export, directory).map_err(|error| format!("on tgt, where it works: {error}"))?;
    known.kill();

    let mut server = Iscsi::new(Forebay::create(binary, directory, "mirror", 2, 2 << 30)?)?;
    let export = server.create_volume("tools", SIZE, "8K", true)?;
    steps(&server, &export, directory).map_err(|e| format!("{e}\n{}", server.forebay.log_tail()))?;
    server.forebay.stop()?;
    server.check_offline()?;
    Ok("qemu-img and qemu-io agree about what is on a volume".into())
}

fn steps(server: &dyn Server, export: &Export, directory: &Directory) -> Outcome {
    let (target, lun) = export.name.rsplit_once('/').expect("TARGET/LUN");
    let portal = server.address().trim_start_matches("iscsi://");
    let image = format!(
        "driver=raw,file.driver=iscsi,file.transport=tcp,file.portal={portal},file.target={target},file.lun={lun},\
         file.initiator-name={INITIATOR}"
    );
    let source = crate::tools::source(directory, SIZE)?;
    let from = source.display();
    run(&format!("qemu-img convert -n -f raw --target-image-opts {from} {image}"))?;
    run(&format!("qemu-img compare --image-opts driver=raw,file.driver=file,file.filename={from} {image}"))?;
    for commands in [
        "-c write_-P_0x5a_0_8M -c read_-P_0x5a_0_8M",
        "-c write_-P_0xa5_-f_4095K_12K -c read_-P_0xa5_4095K_12K",
        "-c write_-z_-u_16M_8M -c read_-P_0_16M_8M",
        "-c discard_32M_8M -c flush",
    ] {
        let mut program = command("qemu-io");
        program.args(["--image-opts", "-t", "none"]);
        let words = commands.split(' ').map(|word| word.replace('_', " "));
        let output = program.args(words).arg(&image).output().context("qemu-io")?;
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // qemu-io tells of a wrong pattern in words only.
        if !output.status.success() || said.contains("failed") || said.contains("rror") {
            return Err(format!("qemu-io {commands}: {said}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_has_not_passed() {
        let text = "Suite: StartStopUnit\n  Test: Simple ...    [SKIPPED] Media is not removable.\npassed\n  \
                    Test: PwrCnd ...passed\n  \
                    Test: Reset ...passed    [FAILED] PRIN command\n  Test: NoLoej ...FAILED\n    1. test.c:1  - CU_ASSERT\n  Test: Hung ...\n\n\
                    Run Summary:    Type  Total    Ran Passed Failed Inactive\n";
        let expected = [
            ("Simple", Verdict::Skipped),
            ("PwrCnd", Verdict::Passed),
            ("Reset", Verdict::Passed),
            ("NoLoej", Verdict::Failed),
            ("Hung", Verdict::Failed),
        ];
        let expected: Vec<(String, Verdict)> =
            expected.into_iter().map(|(name, verdict)| (name.to_owned(), verdict)).collect();
        assert_eq!(verdicts(text), expected);
    }
}
