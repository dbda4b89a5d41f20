//! What `/metrics` shows: counters since the start, the last second's gauges, in Prometheus' text format 0.0.4.
//!
//! Counted from rows as they come in, before the analytics bound them, and bounded in another way: clients are never labels, and a layer has
//! [`SERIES_MAX`] combinations of the others, beyond which volumes are *others*. Histograms have an operation and a pool as labels and nothing else, and their
//! bounds are powers of two, which are edges of the buckets that were counted: counts are exact. Only their sums are not: each value counts as the middle of its bucket.

use forebay_analytics::{Dimension, Kind, Layer, Noun, OTHERS, Row, STATISTICS, Scale, Statistic, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

/// Combinations of labels of a layer; each has some counters.
const SERIES_MAX: usize = 2000;
/// 16 µs to 17 s, and 512 B to 16 MiB.
const POWERS_NANOS: std::ops::RangeInclusive<u32> = 14..=34;
const POWERS_BYTES: std::ops::RangeInclusive<u32> = 9..=24;

type Labels = Vec<(Dimension, Arc<str>)>;

#[derive(Clone, Default)]
struct Histogram {
    /// By bucket.
    counts: BTreeMap<u16, u64>,
}

/// What was counted since the start.
#[derive(Clone, Default)]
pub struct Totals {
    counters: BTreeMap<(Layer, Noun), BTreeMap<Labels, u64>>,
    gauges: BTreeMap<(Layer, Noun), BTreeMap<Labels, Gathered>>,
    histograms: BTreeMap<(Layer, Noun), BTreeMap<Labels, Histogram>>,
    known: BTreeMap<Layer, BTreeSet<Labels>>,
}

/// A gauge of several rows.
#[derive(Clone, Copy, Default)]
struct Gathered {
    sum: u64,
    greatest: u64,
    rows: u64,
}

impl Totals {
    /// Adds a second.
    pub fn add(&mut self, rows: &[Row]) {
        // Gauges are of this second: who is not in it has none.
        self.gauges.clear();
        for row in rows {
            let mut labels: Labels = row.labels.clone();
            labels.retain(|(dimension, _)| *dimension != Dimension::Client);
            labels.sort();
            let known = self.known.entry(row.layer).or_default();
            if !known.contains(&labels) {
                if known.len() >= SERIES_MAX {
                    labels
                        .iter_mut()
                        .filter(|(dimension, _)| is_many(*dimension))
                        .for_each(|(_, value)| *value = OTHERS.into());
                } else {
                    known.insert(labels.clone());
                }
            }
            for (noun, value) in &row.values {
                let place = (row.layer, *noun);
                match value {
                    Value::Count(count) => {
                        let total =
                            self.counters.entry(place).or_default().entry(labels.clone()).or_default();
                        *total = total.wrapping_add(*count);
                    }
                    Value::Level(level) => {
                        let gathered =
                            self.gauges.entry(place).or_default().entry(labels.clone()).or_default();
                        gathered.sum = gathered.sum.saturating_add(*level);
                        gathered.greatest = gathered.greatest.max(*level);
                        gathered.rows += 1;
                    }
                    Value::Spread(buckets) => {
                        let mut labels = labels.clone();
                        labels.retain(|(dimension, _)| matches!(dimension, Dimension::Op | Dimension::Pool));
                        let histogram = self.histograms.entry(place).or_default().entry(labels).or_default();
                        for (bucket, count) in buckets {
                            *histogram.counts.entry(*bucket).or_default() += u64::from(*count);
                        }
                    }
                }
            }
        }
    }

    pub fn render(&self, lost: u64) -> String {
        let mut out = String::new();
        for one in STATISTICS {
            self.statistic(&mut out, one);
        }
        let name = "forebay_observer_seconds_lost_total";
        let _ = write!(
            out,
            "# HELP {name} Seconds of statistics that were lost because the disk was too slow.\n# TYPE {name} counter\n{name} {lost}\n"
        );
        out
    }

    fn statistic(&self, out: &mut String, one: &Statistic) {
        let place = (one.layer, one.noun);
        let (name, scale) = named(one);
        match one.kind {
            Kind::Counter => {
                let Some(series) = self.counters.get(&place) else { return };
                head(out, &name, "counter", one.sentence);
                for (labels, count) in series {
                    line(out, &name, labels, None, *count as f64 / scale);
                }
            }
            Kind::Gauge(together) => {
                let Some(series) = self.gauges.get(&place) else { return };
                head(out, &name, "gauge", one.sentence);
                for (labels, gathered) in series {
                    let value = match together {
                        forebay_analytics::Together::Sum => gathered.sum as f64,
                        forebay_analytics::Together::Mean => {
                            gathered.sum as f64 / gathered.rows.max(1) as f64
                        }
                        forebay_analytics::Together::Greatest => gathered.greatest as f64,
                    };
                    line(out, &name, labels, None, value / scale);
                }
            }
            Kind::Spread(Scale::Log) => {
                let Some(series) = self.histograms.get(&place) else { return };
                head(out, &name, "histogram", one.sentence);
                let powers = if one.unit == "ns" { POWERS_NANOS } else { POWERS_BYTES };
                for (labels, histogram) in series {
                    histogram.render(out, &name, labels, powers.clone(), scale);
                }
            }
            // Places of a volume are for heat maps.
            Kind::Spread(Scale::Linear(_)) => {}
        }
    }
}

impl Histogram {
    fn render(
        &self,
        out: &mut String,
        name: &str,
        labels: &Labels,
        powers: std::ops::RangeInclusive<u32>,
        scale: f64,
    ) {
        let bucket = format!("{name}_bucket");
        let below = |edge: u64| {
            let counts = self.counts.iter().take_while(|(bucket, _)| Scale::Log.greatest(**bucket) <= edge);
            counts.map(|(_, count)| *count).sum::<u64>()
        };
        for power in powers {
            // Buckets end one before a power of two; what is exactly that size is in the next.
            let edge = (1u64 << power) - 1;
            line(out, &bucket, labels, Some(&(edge as f64 / scale).to_string()), below(edge) as f64);
        }
        let count: u64 = self.counts.values().sum();
        line(out, &bucket, labels, Some("+Inf"), count as f64);
        let middle = |bucket: u16| (Scale::Log.least(bucket) + Scale::Log.greatest(bucket)) as f64 / 2.0;
        let sum: f64 = self.counts.iter().map(|(bucket, count)| middle(*bucket) * *count as f64).sum();
        line(out, &format!("{name}_sum"), labels, None, sum / scale);
        line(out, &format!("{name}_count"), labels, None, count as f64);
    }
}

/// Dimensions that may have any number of values.
fn is_many(dimension: Dimension) -> bool {
    use Dimension::*;
    matches!(dimension, Volume | Project | Device | Group | Cause | Level | Pool)
}

/// The suffix of a unit, and what values are divided by to be of it (which rounds once): Prometheus has seconds and parts of one.
fn unit(unit: &str) -> (&'static str, f64) {
    match unit {
        "ns" | "ns-per-second" => ("seconds", 1e9),
        "bytes" | "bytes-per-second" => ("bytes", 1.0),
        "thousandths" => ("ratio", 1e3),
        _ => ("", 1.0),
    }
}

/// What a statistic is called, and what its values are divided by.
fn named(one: &Statistic) -> (String, f64) {
    let (suffix, scale) = unit(one.unit);
    let mut name = format!("forebay_{}_{}", one.layer, one.noun);
    // `bytes` is both what is counted and its unit.
    if !suffix.is_empty() && one.noun.name() != suffix {
        name.push('_');
        name.push_str(suffix);
    }
    if one.kind == Kind::Counter {
        name.push_str("_total");
    }
    (name, scale)
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn line(out: &mut String, name: &str, labels: &Labels, le: Option<&str>, value: f64) {
    out.push_str(name);
    let labels = labels.iter().map(|(dimension, value)| (dimension.name(), &**value));
    for (nth, (label, text)) in labels.chain(le.map(|le| ("le", le))).enumerate() {
        out.push(if nth == 0 { '{' } else { ',' });
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{label}=\"{text}\"");
    }
    let has_labels = out.ends_with('"');
    let _ = writeln!(out, "{} {value}", if has_labels { "}" } else { "" });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(client: &str, volume: &str, ops: u64, buckets: Vec<(u16, u32)>) -> Row {
        let labels = vec![
            (Dimension::Op, "read".into()),
            (Dimension::Client, client.into()),
            (Dimension::Volume, volume.into()),
        ];
        let values = vec![
            (Noun::Ops, Value::Count(ops)),
            (Noun::Bytes, Value::Count(ops * 4096)),
            (Noun::Latency, Value::Spread(buckets)),
        ];
        Row { layer: Layer::Nbd, labels, values }
    }

    fn gauge(volume: &str, level: u64) -> Row {
        let labels = vec![(Dimension::Volume, volume.into())];
        Row { layer: Layer::Qos, labels, values: vec![(Noun::P99, Value::Level(level))] }
    }

    #[test]
    fn clients_are_never_named_and_counters_never_fall() {
        let mut totals = Totals::default();
        let bucket = forebay_analytics::Scale::Log;
        let of = |value: u64| (0..bucket.buckets()).find(|one| bucket.greatest(*one) >= value).unwrap();
        for _ in 0..2 {
            let slow = of(100_000);
            totals.add(&[
                row("secret-1", "t/a\"b", 3, vec![(of(20_000), 2), (slow, 1)]),
                row("secret-2", "t/a\"b", 4, vec![(slow, 4)]),
                gauge("t/x", 5_000_000),
            ]);
        }
        totals.add(&[gauge("t/y", 7)]);
        let text = totals.render(9);
        assert!(!text.contains("secret"), "{text}");
        for expected in [
            "# TYPE forebay_nbd_ops_total counter\nforebay_nbd_ops_total{op=\"read\",volume=\"t/a\\\"b\"} 14\n",
            "forebay_nbd_bytes_total{op=\"read\",volume=\"t/a\\\"b\"} 57344\n",
            "# TYPE forebay_nbd_latency_seconds histogram\n",
            "forebay_nbd_latency_seconds_bucket{op=\"read\",le=\"0.000016383\"} 0\n",
            "forebay_nbd_latency_seconds_bucket{op=\"read\",le=\"0.000032767\"} 4\n",
            "forebay_nbd_latency_seconds_bucket{op=\"read\",le=\"+Inf\"} 14\n",
            "forebay_nbd_latency_seconds_count{op=\"read\"} 14\n",
            "forebay_qos_p99_seconds{volume=\"t/y\"} 0.000000007",
            "\nforebay_observer_seconds_lost_total 9\n",
        ] {
            assert!(text.contains(expected), "{expected}\nis not in\n{text}");
        }
        assert!(!text.contains("t/x"), "a gauge of an earlier second");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }

    /// The dashboard that comes with the appliance asks for nothing that there is not.
    #[test]
    fn names_of_the_dashboard_are_ours() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/grafana/forebay.json");
        let text = std::fs::read_to_string(path).unwrap();
        let mut ours: BTreeSet<String> = BTreeSet::new();
        for one in STATISTICS {
            let (name, _) = named(one);
            ours.extend(["_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}")));
            ours.insert(name);
        }
        let mut found = 0;
        for (at, _) in text.match_indices("forebay_") {
            let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let name: String = text[at..].chars().take_while(|c| is_part(*c)).collect();
            assert!(ours.contains(&name), "{name} is in the dashboard, and nowhere else");
            found += 1;
        }
        assert!(found > 10, "only {found} names: is it the dashboard?");
    }

    #[test]
    fn there_are_not_more_series_than_anybody_can_take() {
        let mut totals = Totals::default();
        for nth in 0..SERIES_MAX * 2 {
            totals.add(&[row("c", &format!("v{nth}"), 1, vec![])]);
        }
        let text = totals.render(0);
        let ops: Vec<&str> = text.lines().filter(|line| line.starts_with("forebay_nbd_ops_total")).collect();
        assert_eq!(ops.len(), SERIES_MAX + 1);
        let others = ops.iter().find(|line| line.contains("volume=\"others\"")).unwrap();
        assert!(others.ends_with(&format!(" {SERIES_MAX}")), "{others}");
    }
}
