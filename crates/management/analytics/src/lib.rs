//! Who uses the storage, and why it is slow: what was counted each second, kept on disk, and asked for.
//!
//! Three parts. *Intake*: a second's [`Row`]s come in, are bounded ([`ROWS_MAX`] a layer, the least added into *others*, so that totals stay exact
//! whatever the number of clients), and become a block. *Store*: blocks are appended to files, added up into minutes and hours, and dropped when they are
//! old or too many ([`Store`]). *Query*: an [`Expression`] over an interval becomes an [`Answer`] ([`query`]).
//!
//! Everything is a function of its arguments and of files: no clock, no threads, no async. A store belongs to the appending thread; a [`View`] of it, which
//! is cheap, may be asked by others meanwhile, because files are only appended to and removed.
//!
//! Sums are exact at every step: rows, seconds, minutes and hours are only ever added, histograms bucket by bucket, and percentiles are taken from
//! what was added last. What this does not do: count, which is the servers' work, and know what a client is.

mod block;
mod catalogue;
mod expression;
mod files;
mod intake;
mod pins;
mod query;
mod rollup;
mod row;
mod series;
mod store;
mod view;

pub use block::Resolution;
pub use catalogue::{
    Dimension, Kind, Layer, NONE, Noun, OFFSET_PARTS, OTHERS, STATISTICS, Scale, Statistic, Together, find,
};
pub use expression::{BRACKETS_MAX, CHARS_MAX, Expression, ExpressionError, Part};
pub use intake::ROWS_MAX;
pub use pins::PinError;
pub use query::{Answer, Ask, AskError, HeatMap, LIMIT_MAX, POINTS_MAX, Rest, Series, query};
pub use row::{LABELS_MAX, Row, Second, Value};
pub use store::{Options, Store};
pub use view::View;
