//! Answers are compared with what was put in, value by value.

use super::*;
use forebay_base::Random;

#[test]
fn a_percentile_of_many_rows_and_seconds_is_that_of_their_values() {
    let temp = tempfile::tempdir().unwrap();
    let mut store = open(temp.path());
    let mut random = Random::new(11);
    let mut values: Vec<Vec<u64>> = vec![Vec::new(); 120];
    for (nth, values) in values.iter_mut().enumerate() {
        let rows = ["a", "b", "c"].map(|client| {
            // Clients that differ by far: a mean of their percentiles would be none of them all.
            let scale = 10u64.pow(4 + u32::from(client.as_bytes()[0] - b'a'));
            let mut histogram = Histogram::default();
            for _ in 0..random.below(50) {
                let value = random.below(scale) + random.below(1000) * random.below(1000);
                histogram.record(value);
                values.push(value);
            }
            row(client, "v", "read", histogram.count(), &histogram)
        });
        store.append(second(START + nth as u64, rows.into())).unwrap();
    }
    for step in [1, 7, 60] {
        let steps = values.chunks(step as usize).map(|chunk| chunk.concat());
        // Steps of 7 do not begin where the hour does.
        let from = START.next_multiple_of(step);
        let skip = (from - START) as usize;
        let steps: Vec<Vec<u64>> = match skip {
            0 => steps.collect(),
            _ => values[skip..].chunks(step as usize).map(|chunk| chunk.concat()).collect(),
        };
        let answer = ask(&store, "nbd.latency", from, START + 120, step);
        assert_eq!(answer.series.len(), 5);
        for (line, permille) in answer.series.iter().zip([500, 950, 990, 999, 1000]) {
            assert_eq!(line.values.len(), steps.len(), "{step}");
            for (found, values) in line.values.iter().zip(&steps) {
                let mut sorted = values.clone();
                sorted.sort();
                let rank = (sorted.len() * permille).div_ceil(1000).max(1);
                let exact = sorted[rank - 1] as f64;
                let found = found.unwrap();
                assert!(found >= exact && found <= exact * 1.125, "{permille} of {step} s: {found}, {exact}");
            }
            let mut all: Vec<u64> = steps.concat();
            all.sort();
            let exact = all[(all.len() * permille).div_ceil(1000) - 1] as f64;
            assert!(line.mean >= exact && line.mean <= exact * 1.125, "{permille}: {}, {exact}", line.mean);
        }
    }
}

#[test]
fn totals_are_exact_in_every_resolution_and_breakdown() {
    let temp = tempfile::tempdir().unwrap();
    let mut store = open(temp.path());
    let mut random = Random::new(12);
    let empty = Histogram::default();
    let seconds = 2 * 3600 + 130;
    let mut counts: Vec<u64> = Vec::new();
    for nth in 0..seconds {
        let mut total = 0;
        let rows = (0..4).map(|client| {
            let ops = random.below(1000);
            total += ops;
            row(&format!("c{client}"), &format!("v{}", client % 2), "read", ops, &empty)
        });
        store.append(second(START + nth, rows.collect())).unwrap();
        counts.push(total);
    }
    for step in [1, 10, 60, 300, 3600] {
        for expression in ["nbd.ops", "nbd.ops[client]", "nbd.ops[volume][op=read]", "nbd.ops[client!=c1]"] {
            let answer = ask(&store, expression, START, START + seconds, step);
            let total = answer.total.unwrap();
            let whole = !expression.contains("!=");
            for (nth, chunk) in counts.chunks(step as usize).enumerate().filter(|_| whole) {
                let exact = chunk.iter().sum::<u64>() as f64 / chunk.len() as f64;
                let found = total.values[nth].unwrap();
                assert!((found - exact).abs() < 1e-6, "{expression}, {step} s, {nth}: {found} for {exact}");
            }
            let sum: f64 = answer.series.iter().map(|line| line.mean).sum();
            assert!((sum - total.mean).abs() < 1e-6 && answer.others.is_none());
            // Hours, minutes and seconds have been read, and none of them twice.
            let blocks = match step {
                3600 => 2 + 2 + 10,
                60 | 300 => 122 + 10,
                _ => seconds,
            };
            assert_eq!(answer.rows_read, blocks * 4, "{expression}, {step} s");
        }
    }
}

#[test]
fn what_was_not_kept_has_no_value_and_does_not_lower_a_rate() {
    let temp = tempfile::tempdir().unwrap();
    let mut store = open(temp.path());
    let empty = Histogram::default();
    for nth in (0..30).filter(|nth| !(5..15).contains(nth)) {
        let mut rows = vec![row("a", "v", "read", 100, &empty)];
        if nth < 20 {
            rows.push(gauge(Layer::Pool, vec![(Dimension::Pool, "tank")], Noun::Used, 70));
        }
        store.append(second(START + nth, rows)).unwrap();
    }
    let ops = ask(&store, "nbd.ops[client]", START, START + 30, 10);
    assert_eq!(ops.series[0].values, [Some(100.0), Some(100.0), Some(100.0)]);
    assert_eq!((ops.series[0].mean, ops.series[0].greatest), (100.0, 100.0));
    let fine = ask(&store, "nbd.ops[client=a]", START, START + 30, 1);
    assert_eq!((fine.series[0].values[5], fine.series[0].values[15]), (None, Some(100.0)));
    let used = ask(&store, "pool.used[pool]", START, START + 30, 10);
    assert_eq!(used.series[0].values, [Some(70.0), Some(70.0), None]);
    let nobody = ask(&store, "nbd.ops[client=b]", START, START + 30, 10);
    assert_eq!(nobody.series[0].values, [Some(0.0); 3]);
    let nothing = ask(&store, "nbd.ops[client=b][volume]", START, START + 30, 10);
    assert_eq!((nothing.series.len(), nothing.total.unwrap().values), (0, vec![Some(0.0); 3]));
}

#[test]
fn the_least_lines_are_others_and_the_sum_stays() {
    let temp = tempfile::tempdir().unwrap();
    let mut store = open(temp.path());
    let empty = Histogram::default();
    for nth in 0..10 {
        let rows = (0..50).map(|client| row(&format!("c{client}"), "v", "read", client, &empty));
        store.append(second(START + nth, rows.collect())).unwrap();
    }
    let expression = Expression::parse("nbd.ops[client]").unwrap();
    let asked = Ask { expression, from: START, to: START + 10, step_seconds: None, limit: 3 };
    let answer = query(&store.view(), &asked).unwrap();
    let names: Vec<&str> = answer.series.iter().map(|line| &*line.labels[0].1).collect();
    assert_eq!((names, answer.step_seconds), (vec!["c49", "c48", "c47"], 1));
    let others = answer.others.unwrap();
    let rest = (0..47).sum::<u64>() as f64;
    assert_eq!((others.lines, others.mean, others.values), (47, rest, vec![Some(rest); 10]));
    assert_eq!(answer.total.unwrap().mean, rest + 49.0 + 48.0 + 47.0);
}

#[test]
fn a_heat_map_has_every_request_in_its_row() {
    let temp = tempfile::tempdir().unwrap();
    let mut store = open(temp.path());
    for nth in 0..4 {
        let mut histogram = Histogram::default();
        (0..10 * (nth + 1)).for_each(|value| histogram.record(1000 + value * 100));
        let rows = vec![
            row("a", "v", "read", histogram.count(), &histogram),
            row("b", "v", "write", histogram.count(), &histogram),
        ];
        if nth != 2 {
            store.append(second(START + nth, rows)).unwrap();
        }
    }
    for (expression, clients) in [("nbd.ops[latency]", 2.0), ("nbd.ops[latency][client=b]", 1.0)] {
        let map = ask(&store, expression, START, START + 4, 1).heat_map.unwrap();
        assert_eq!((map.dimension, map.unit), (Noun::Latency, "ns"));
        assert!(map.bounds[0] <= 1000 && *map.bounds.last().unwrap() > 1000 + 39 * 100, "{:?}", map.bounds);
        assert!(map.bounds.is_sorted());
        for (nth, column) in map.columns.iter().enumerate() {
            let Some(column) = column else {
                assert_eq!(nth, 2);
                continue;
            };
            assert_eq!(column.len() + 1, map.bounds.len());
            assert_eq!(column.iter().sum::<f64>(), clients * 10.0 * (nth + 1) as f64);
            for (row, count) in column.iter().enumerate() {
                let within = |value: &u64| (map.bounds[row]..map.bounds[row + 1]).contains(value);
                let exact = (0..10 * (nth as u64 + 1)).map(|value| 1000 + value * 100).filter(within).count();
                assert_eq!(*count, clients * exact as f64, "row {row} of {nth}");
            }
        }
    }
    let nothing = ask(&store, "nbd.ops[size]", START, START + 4, 1).heat_map.unwrap();
    assert!(nothing.bounds.is_empty() && nothing.columns[0].as_ref().unwrap().is_empty());
}

#[test]
fn gauges_of_rows_come_together_as_they_mean() {
    let temp = tempfile::tempdir().unwrap();
    let mut store = open(temp.path());
    let volume = |name| vec![(Dimension::Volume, name)];
    for nth in 0..120 {
        let rows = vec![
            gauge(Layer::Qos, volume("a"), Noun::Waiting, 4),
            gauge(Layer::Qos, volume("b"), Noun::Waiting, nth % 2),
            gauge(Layer::Qos, volume("a"), Noun::P99, 1000),
            gauge(Layer::Qos, volume("b"), Noun::P99, nth),
            gauge(Layer::Disk, vec![(Dimension::Device, "0")], Noun::Busy, 900),
            gauge(Layer::Disk, vec![(Dimension::Device, "1")], Noun::Busy, 100),
        ];
        store.append(second(START + nth, rows)).unwrap();
    }
    for step in [10, 60] {
        let first = |expression: &str| ask(&store, expression, START, START + 120, step).series[0].values[0];
        assert_eq!(first("qos.waiting"), Some(4.5));
        assert_eq!(first("qos.p99"), Some(1000.0));
        assert_eq!(first("qos.p99[volume=b]"), Some(step as f64 - 1.0));
        assert_eq!(first("disk.busy"), Some(500.0));
        assert!(ask(&store, "disk.busy", START, START + 120, step).total.is_none());
    }
}
