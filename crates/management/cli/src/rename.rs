//! `rename` of what has a name: one command for every noun.

use crate::arguments::DryRun;
use crate::client::Call;
use crate::commands::{Outcome, Session};
use clap::Args;
use forebay_api::Operation;
use serde_json::json;

#[derive(Args, Debug)]
pub struct Rename {
    /// Its name or UUID
    name: String,
    /// The new name
    new: String,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Session {
    /// Renames with the operation that changes an object of this kind.
    pub fn rename(&self, what: &str, operation: Operation, rename: Rename) -> Outcome {
        let Rename { name, new, dry_run } = rename;
        let call = Call::of(operation, &name).body(&json!({ "name": new })).dry_run(dry_run.dry_run);
        let answer = self.client.call(call)?;
        if dry_run.dry_run {
            return self.plan(&answer);
        }
        self.changed(&answer.parse::<serde_json::Value>()?, format!("{what} {name} is now named {new}."))
    }
}
