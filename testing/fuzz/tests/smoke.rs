//! Does every target hold over its corpus and over variations of it? The same on every run: the seed is fixed. For longer runs without libFuzzer
//! `FOREBAY_VARIATIONS` says how many, `FOREBAY_SEED` which, and `FOREBAY_TARGET` of which target.

use forebay_base::Random;
use forebay_fuzz::{TARGETS, Target, mutate};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Of each target's corpus: what two cores do in about a minute for all of them together.
const VARIATIONS: u64 = 100_000;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} has no seed", directory.display());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().expect("a number"))
}

fn hold(target: &Target) {
    if std::env::var("FOREBAY_TARGET").is_ok_and(|only| only != target.name) {
        return;
    }
    let corpus = corpus(target.name);
    corpus.iter().for_each(|data| (target.run)(data));
    let mut random = Random::new(number("FOREBAY_SEED", 1));
    for number in 0..number("FOREBAY_VARIATIONS", VARIATIONS) {
        let data = mutate(&corpus, &mut random);
        let outcome = std::panic::catch_unwind(|| (target.run)(&data));
        assert!(outcome.is_ok(), "{}: variation {number} fails: {data:?}", target.name);
    }
}

#[test]
fn targets_hold_over_their_corpora_and_variations() {
    let next = AtomicUsize::new(0);
    // When a target fails, its thread ends with the failure, and the others do the rest.
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    hold(target);
                }
            });
        }
    });
}

/// A target that nobody runs with libFuzzer is forgotten soon.
#[test]
fn every_target_has_its_line_for_libfuzzer() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer");
    let manifest = std::fs::read_to_string(directory.join("Cargo.toml")).unwrap();
    for target in TARGETS {
        let source = directory.join(format!("fuzz_targets/{}.rs", target.name));
        let text = std::fs::read_to_string(&source).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
        assert!(text.contains(&format!("\"{}\"", target.name)), "{}", source.display());
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
    }
}
