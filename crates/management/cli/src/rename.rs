//! `rename` of what has a name: one command for every noun.

use crate::arguments::DryRun;
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::{Exit, Failure};
use clap::Args;
use forebay_api::Operation;
use serde_json::json;

#[derive(Args, Debug)]
pub struct Rename {
    /// Its name or UUID
    #[arg(value_name = "OBJECT")]
    name: String,
    /// The new name: of a volume or project POOL/[PROJECT/]NAME in the same pool, of a snapshot or bookmark the part after @ or #
    new: String,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Rename {
    /// Of a snapshot or a bookmark: what follows the `@` or `#` in the new name, which may stand alone.
    pub fn of_part(mut self, mark: char) -> Result<Rename, Failure> {
        let Some((volume, new)) = self.new.split_once(mark) else { return Ok(self) };
        if self.name.split_once(mark).is_none_or(|(of, _)| of != volume) {
            let detail = format!("the new name is of volume {volume}, and it stays with its volume");
            let remedy = format!("Give only the part after the {mark}.");
            return Err(Failure::new(Exit::Usage, detail, remedy).object(self.name));
        }
        self.new = new.into();
        Ok(self)
    }
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
        let answer = answer.parse::<serde_json::Value>()?;
        let new = answer["name"].as_str().unwrap_or(&new).to_string();
        self.changed(&answer, format!("{what} {name} is now named {new}."))
    }
}
