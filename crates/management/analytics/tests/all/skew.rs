//! Ten thousand clients, most of them hardly there.

use super::*;
use forebay_analytics::{OTHERS, ROWS_MAX};
use forebay_base::Random;
use std::collections::HashMap;
use std::time::{Duration, Instant};

const CLIENTS: usize = 10_000;

/// Which client, when the nth gets 1/n of what the first gets.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new() -> Zipf {
        let mut sum = 0.0;
        let add = |nth: usize| {
            sum += 1.0 / nth as f64;
            sum
        };
        Zipf { sums: (1..=CLIENTS).map(add).collect() }
    }

    fn pick(&self, random: &mut Random) -> usize {
        let at = random.below(1 << 40) as f64 / (1u64 << 40) as f64 * self.sums[CLIENTS - 1];
        self.sums.partition_point(|sum| *sum <= at).min(CLIENTS - 1)
    }
}

/// Goal: the ten clients that did most in an interval are those that a query shows, with what they did, and the sum of all is what all did; at many
/// requests a second and at so few that the tenth has two or so. Method: traffic with Zipf's skew, each client with two volumes and two operations.
#[test]
fn the_top_ten_of_ten_thousand_are_right() {
    let zipf = Zipf::new();
    for (a_second, seconds) in [(20_000, 90), (2000, 90), (200, 600)] {
        let temp = tempfile::tempdir().unwrap();
        let mut store = open(temp.path());
        let mut random = Random::new(a_second);
        let mut truth: HashMap<String, u64> = HashMap::new();
        let (mut most, mut took, empty) = (0, Duration::ZERO, Histogram::default());
        for nth in 0..seconds {
            let mut counts: HashMap<(usize, u64, u64), u64> = HashMap::new();
            for _ in 0..a_second {
                let key = (zipf.pick(&mut random), random.below(2), random.below(2));
                *counts.entry(key).or_default() += 1;
            }
            let rows = counts.iter().map(|((client, volume, op), ops)| {
                let op = ["read", "write"][*op as usize];
                *truth.entry(format!("c{client}")).or_default() += ops;
                row(&format!("c{client}"), &format!("c{client}/v{volume}"), op, *ops, &empty)
            });
            let rows: Vec<Row> = rows.collect();
            most = most.max(rows.len());
            let began = Instant::now();
            store.append(second(START + nth, rows)).unwrap();
            took += began.elapsed();
        }
        let mut exact: Vec<(&String, &u64)> = truth.iter().collect();
        exact.sort_by_key(|(client, count)| (std::cmp::Reverse(**count), *client));
        for step in [1, 60] {
            let answer = ask(&store, "nbd.ops[client]", START, START + seconds, step);
            let named: Vec<_> = answer.series.iter().filter(|line| line.labels[0].1 != OTHERS).collect();
            for (line, (client, count)) in named.iter().zip(&exact).take(10) {
                let found = line.mean * seconds as f64;
                assert_eq!(&line.labels[0].1, *client, "{a_second} a second, steps of {step}");
                let missed = **count as f64 - found;
                println!("{a_second}/s, step {step}: {client} did {count}, {found:.0} found");
                // What it did in seconds in which it was among the least.
                assert!((-1e-3..=**count as f64 * 0.05).contains(&missed), "{client}: {found} of {count}");
            }
            let total = answer.total.unwrap();
            let all = total.mean * seconds as f64;
            assert!((all - (a_second * seconds) as f64).abs() < 1e-3, "{all}");
        }
        let rows = ask(&store, "observer.rows", START, START + seconds, 1);
        assert!(rows.series[0].greatest <= ROWS_MAX as f64, "{}", rows.series[0].greatest);
        let merged = ask(&store, "observer.merged", START, START + seconds, 1);
        println!(
            "{a_second}/s: up to {most} rows came in, {:.0} a second were merged",
            merged.series[0].mean
        );
        assert_eq!(merged.series[0].mean > 0.0, most > ROWS_MAX);
    }
}
