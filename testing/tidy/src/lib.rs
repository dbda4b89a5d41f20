//! What a reviewer would otherwise have to remember: the rules of the house, checked on the whole tree.
//!
//! [`check`] looks at a workspace as it lies on disk and returns every breach, each with its rule, its place and
//! what to do. Rules about text are in [`text`], the one about events in [`events`], the one about terms in [`vocabulary`], the one about what pages keep in [`documented`], rules about who may import whom in [`floors`], rules about other
//! people's crates in [`licences`]. `tests/project.rs` runs them on this project; `tests/planted.rs` builds a small
//! workspace for each rule with one breach in it and expects exactly that breach: a rule that cannot fail is no rule.
//!
//! Nothing here formats or mends anything: `cargo fmt --check` and clippy are steps of `make check` of their own.

pub mod documented;
pub mod events;
pub mod floors;
pub mod graph;
pub mod licences;
pub mod text;
pub mod vocabulary;

use std::fmt;
use std::path::Path;

/// One breach of one rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Breach {
    /// The rule's short name, stable.
    pub rule: &'static str,
    /// `path`, `path:line` or the crate, relative to the workspace.
    pub place: String,
    /// What is wrong and what to do instead.
    pub message: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.place, self.message, self.rule)
    }
}

/// Every breach in the workspace at `root`.
///
/// # Panics
/// When the tree cannot be read or `cargo metadata` fails: then nothing is known about it.
pub fn check(root: &Path) -> Vec<Breach> {
    let mut breaches = text::check(root);
    breaches.extend(events::check(root));
    breaches.extend(documented::check(root));
    breaches.extend(vocabulary::check(root));
    let graph = graph::Graph::load(root);
    breaches.extend(floors::check(&graph));
    breaches.extend(licences::check(&graph));
    breaches
}
