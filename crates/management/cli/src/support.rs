//! `forebay support`: everything that somebody needs who helps, in one file.
//!
//! It is what the API tells, so it has no secret: nothing that the API answers has one. It does have names, addresses and serial numbers.

use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::{Exit, Failure};
use clap::Subcommand;
use forebay_api::{Method, Operation, ReplyBody};
use serde_json::{Map, Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Subcommand, Debug)]
pub enum Support {
    /// Write everything that the appliance tells of itself to a file, without secrets, for whoever helps
    Bundle {
        /// A file that does not exist yet [default: forebay-support-SECONDS.json]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// What is asked of the appliance as a whole.
fn is_asked(operation: Operation) -> bool {
    let is_answer = matches!(operation.reply(), ReplyBody::Page(_) | ReplyBody::Object(_));
    operation.method() == Method::Get && is_answer && !operation.path().contains('{')
        // It needs a question; the others tell of whoever asks.
        && !matches!(operation, Operation::StatisticQuery | Operation::LoginShow | Operation::SetupShow)
}

/// What is asked of each pool.
const OF_POOLS: [Operation; 2] = [Operation::DamageList, Operation::PoolLedger];

impl Session {
    pub fn support(&self, command: Support) -> Outcome {
        let Support::Bundle { file } = command;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let file = file.unwrap_or_else(|| PathBuf::from(format!("forebay-support-{now}.json")));
        let mut bundle = Map::new();
        for operation in Operation::ALL.into_iter().filter(|one| is_asked(*one)) {
            bundle.insert(format!("{operation:?}"), self.told(operation, None));
        }
        let pools = bundle["PoolList"].as_array().cloned().unwrap_or_default();
        for pool in pools.iter().filter_map(|pool| pool["name"].as_str()) {
            for operation in OF_POOLS {
                bundle.insert(format!("{operation:?} {pool}"), self.told(operation, Some(pool)));
            }
        }
        let parts = bundle.len();
        let whole = json!({
            "forebay_support": 1, "program": env!("CARGO_PKG_VERSION"), "made_unix_s": now, "told": bundle,
        });
        let mut text = serde_json::to_vec_pretty(&whole).expect("it is plain data");
        text.push(b'\n');
        let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file);
        out.and_then(|mut out| out.write_all(&text)).map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("it cannot be written: {error}"),
                "Name a file that does not exist yet.",
            )
            .object(file.display().to_string())
        })?;
        self.one(&json!({ "file": file, "parts": parts, "bytes": text.len() }), |_| {
            println!(
                "{} has all that helps, and no secrets. It has names, addresses and serial numbers.",
                file.display()
            );
        })
    }

    /// An answer, or why there is none: what helps most may be what cannot be told.
    fn told(&self, operation: Operation, of: Option<&str>) -> Value {
        let told = match (operation.reply(), of) {
            (ReplyBody::Page(_), None)
                if operation != Operation::EventList && operation != Operation::AuditList =>
            {
                self.client.all::<Value>(operation, &[]).map(Value::Array)
            }
            (ReplyBody::Page(_), Some(of)) if operation != Operation::PoolLedger => {
                self.client.all_of::<Value>(operation, of).map(Value::Array)
            }
            (_, Some(of)) => self.client.get(Call::of(operation, of)),
            // Numbered: the newest thousand.
            (ReplyBody::Page(_), None) => self.client.get(Call::new(operation).query("limit", 1000)),
            (_, None) => self.client.get(Call::new(operation)),
        };
        told.unwrap_or_else(|failure: Failure| json!({ "failed": failure.detail }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_can_be_told_without_a_question_is_asked() {
        for operation in
            [Operation::PoolList, Operation::EventList, Operation::ChannelList, Operation::MachineDiskList]
        {
            assert!(is_asked(operation), "{operation:?}");
        }
        // Nothing is changed by it, and nobody's contents are in it.
        for operation in Operation::ALL.into_iter().filter(|one| is_asked(*one)) {
            assert!(!operation.reveals_contents(), "{operation:?}");
        }
    }
}
