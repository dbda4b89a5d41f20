//! The store and its answers, from outside.

mod keeping;
mod skew;
mod truth;

use forebay_analytics::{
    Answer, Ask, Dimension, Expression, Layer, Noun, Options, Row, Second, Store, Value, query,
};
use forebay_probe::Histogram;
use std::path::Path;

/// A multiple of an hour.
pub const START: u64 = 1_789_999_200;

pub fn open(dir: &Path) -> Store {
    Store::open(dir, Options::default()).unwrap()
}

pub fn ask(store: &Store, expression: &str, from: u64, to: u64, step: u64) -> Answer {
    let expression = Expression::parse(expression).unwrap();
    let ask = Ask { expression, from, to, step_seconds: Some(step), limit: 100 };
    query(&store.view(), &ask).unwrap()
}

/// A row of what a client did.
pub fn row(client: &str, volume: &str, op: &str, ops: u64, latencies: &Histogram) -> Row {
    Row {
        layer: Layer::Nbd,
        labels: vec![
            (Dimension::Op, op.into()),
            (Dimension::Client, client.into()),
            (Dimension::Volume, volume.into()),
            (Dimension::Level, "business-critical".into()),
        ],
        values: vec![
            (Noun::Ops, Value::Count(ops)),
            (Noun::Bytes, Value::Count(ops * 8192)),
            (Noun::Latency, Value::Spread(latencies.buckets().collect())),
        ],
    }
}

pub fn gauge(layer: Layer, labels: Vec<(Dimension, &str)>, noun: Noun, level: u64) -> Row {
    let labels = labels.into_iter().map(|(dimension, value)| (dimension, value.into())).collect();
    Row { layer, labels, values: vec![(noun, Value::Level(level))] }
}

pub fn second(at_unix_s: u64, rows: Vec<Row>) -> Second {
    Second { at_unix_s, rows }
}
