//! `forebay support`: everything that support needs, in one file.
//!
//! It is what the API answers, so it has no secret: nothing that the API answers has one. It does have names, addresses and serial numbers.

use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::{Exit, Failure, printable};
use clap::Subcommand;
use forebay_api::{Method, Operation, ReplyBody};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Subcommand, Debug)]
pub enum Support {
    /// Write the appliance's state and settings to a file for support, without secrets
    Bundle {
        /// The file, which must not exist yet [default: forebay-support-SECONDS.json]
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

/// In the place of an answer: why there is none.
const FAILED: &str = "failed";
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
        let (parts, missing) = (bundle.len(), missing(&bundle));
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
        let said = json!({ "file": file, "parts": parts, "bytes": text.len(), "missing": missing });
        self.one(&said, |_| {
            let has = if missing.is_empty() { "is complete and has no" } else { "has no" };
            println!("{} {has} secrets. It has names, addresses and serial numbers.", file.display());
            for (why, parts) in &missing {
                println!("Missing: {}: {}.", parts.join(", "), printable(why.trim_end_matches('.')));
            }
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
        told.unwrap_or_else(|failure: Failure| json!({ FAILED: why(&failure) }))
    }
}

/// With what helps: an administrator may read what an operator may not.
fn why(failure: &Failure) -> String {
    match &failure.remedy {
        Some(remedy) => format!("{}. {remedy}", failure.detail),
        None => failure.detail.clone(),
    }
}

/// Parts that could not be told, by the reason.
fn missing(bundle: &Map<String, Value>) -> BTreeMap<String, Vec<String>> {
    let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (part, told) in bundle {
        if let Some(why) = told.get(FAILED).and_then(Value::as_str) {
            missing.entry(why.into()).or_default().push(part.clone());
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_role_may_not_read_is_said_to_be_missing() {
        let refused = json!({ FAILED: "token ci has role operator, and role admin is needed" });
        let bundle = json!({ "AuditList": refused, "PoolList": [{"name": "tank"}], "UserList": refused });
        let missing = missing(bundle.as_object().unwrap());
        assert_eq!(missing.len(), 1);
        assert_eq!(
            missing["token ci has role operator, and role admin is needed"],
            ["AuditList", "UserList"]
        );
    }

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
