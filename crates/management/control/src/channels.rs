//! Channels that are remembered, with their secrets, and who the appliance is to those who receive its notices.

use crate::random_id;
use crate::store::{Kept, Store};
use forebay_api::{ChannelSpec, Code, Problem};
use forebay_base::Id;
use forebay_notify::{CHANNELS_MAX, Channel};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::HashSet;

const VERSION: u32 = 1;

/// A channel as the file has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Remembered {
    pub id: String,
    pub name: String,
    pub created_unix_ms: u64,
    pub changed_unix_ms: u64,
    /// Grows with each change, also of its secrets: the ETag.
    pub revision: u64,
    #[serde(serialize_with = "with_secrets")]
    pub spec: ChannelSpec,
}

fn with_secrets<S: Serializer>(spec: &ChannelSpec, serializer: S) -> Result<S::Ok, S::Error> {
    spec.with_secrets().serialize(serializer)
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Content {
    pub version: u32,
    /// Who sends, for the appliance's life: the SNMP engine follows from it.
    pub appliance: String,
    /// How often the daemon was started: receivers of traps refuse what seems older than what they had (snmpEngineBoots, RFC 3414).
    pub boots: u32,
    pub channels: Vec<Remembered>,
}

pub type Channels = Store<Content>;

impl Default for Content {
    fn default() -> Content {
        Content { version: VERSION, appliance: random_id(), boots: 0, channels: Vec::new() }
    }
}

impl Content {
    fn place(&self, name: &str) -> Result<usize, Problem> {
        let place = self.channels.iter().position(|one| one.id == name || one.name == name);
        place.ok_or_else(|| {
            Problem::new(Code::NotFound, "there is no such channel")
                .object(name)
                .remedy("`forebay channel list` shows them.")
        })
    }

    pub fn find(&self, name: &str) -> Result<&Remembered, Problem> {
        self.place(name).map(|place| &self.channels[place])
    }

    pub fn find_mut(&mut self, name: &str) -> Result<&mut Remembered, Problem> {
        self.place(name).map(|place| &mut self.channels[place])
    }

    pub fn remove(&mut self, name: &str) -> Result<Remembered, Problem> {
        self.place(name).map(|place| self.channels.remove(place))
    }

    /// As the reporter takes them.
    pub fn for_reporter(&self) -> Vec<Channel> {
        self.channels.iter().map(for_reporter).collect()
    }
}

/// Only certificates of what was pasted are kept; a text without any is, and refused for that.
pub fn tidy(spec: &mut ChannelSpec) {
    if let Some(pem) = spec.delivery.authorities() {
        let certificates = forebay_notify::only_certificates(pem);
        if !certificates.is_empty() && !pem.contains("PRIVATE KEY") {
            *pem = certificates;
        }
    }
}

pub fn for_reporter(one: &Remembered) -> Channel {
    Channel { id: one.id.clone(), name: one.name.clone(), spec: one.spec.clone() }
}

impl Kept for Content {
    const FILE: &'static str = "channels";
    const VERSION: u32 = VERSION;
    const WHAT: &'static str = "channels";
    const REMEDY: &'static str = "Restore the file from a backup. Or move it away, start the daemon again, and create the channels (see `forebay \
                                  channel mail --help`).";

    fn version(&self) -> u32 {
        self.version
    }

    fn check(&self) -> Result<(), Problem> {
        if self.channels.len() > CHANNELS_MAX {
            return Err(Problem::new(Code::Busy, format!("there are {CHANNELS_MAX} channels already"))
                .remedy("Delete one that is no longer needed. A mail channel may have several recipients."));
        }
        let mut known = HashSet::new();
        for one in &self.channels {
            if !one.id.parse::<Id>().is_ok_and(|id| id.to_string() == one.id) {
                return Err(Problem::new(
                    Code::Invalid,
                    format!("`{}` is not the UUID of a channel", one.id),
                ));
            }
            if let Some(wrong) = for_reporter(one).check().err().and_then(|all| all.into_iter().next()) {
                return Err(Problem::new(Code::Invalid, wrong.message.trim_end_matches('.'))
                    .object(&*one.name)
                    .field(wrong.field)
                    .remedy(wrong.remedy));
            }
            if !known.insert(&one.name) || !known.insert(&one.id) {
                return Err(Problem::new(Code::Conflict, "a channel with this name exists")
                    .object(&*one.name)
                    .field("name")
                    .remedy("Choose another name, or change the existing channel."));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::DataDir;
    use std::sync::Arc;

    fn channel(name: &str, delivery: serde_json::Value) -> Remembered {
        Remembered {
            id: random_id(),
            name: name.into(),
            created_unix_ms: 1,
            changed_unix_ms: 1,
            revision: 1,
            spec: serde_json::from_value(serde_json::json!({ "delivery": delivery })).unwrap(),
        }
    }

    #[test]
    fn secrets_and_who_we_are_outlive_a_restart() {
        let temp = crate::test_directory();
        let open = || Channels::open(Arc::new(DataDir::open(temp.path()).unwrap())).unwrap();
        let secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
        let hook = channel(
            "hook",
            serde_json::json!({ "webhook": { "url": "https://a.example", "secret": secret } }),
        );
        let add = |content: &mut Content| {
            content.boots += 1;
            content.channels.push(hook.clone());
            Ok(())
        };
        let store = open();
        store.change(add).unwrap();
        let before = store.content();
        drop(store);
        let after = open().content();
        assert_eq!((&after.appliance, after.boots), (&before.appliance, 1));
        assert_eq!(after.find("hook").unwrap(), &hook, "with its secret");
        let text = std::fs::read_to_string(temp.path().join("channels")).unwrap();
        assert!(text.contains(secret), "{text}");
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_field_and_a_remedy() {
        let temp = crate::test_directory();
        let store = Channels::open(Arc::new(DataDir::open(temp.path()).unwrap())).unwrap();
        let add = |one: Remembered| {
            move |content: &mut Content| {
                content.channels.push(one);
                Ok(())
            }
        };
        let log = |name: &str| {
            channel(name, serde_json::json!({ "syslog": { "host": "log.example", "transport": "udp" } }))
        };
        store.change(add(log("log"))).unwrap();
        let twice = store.plan(add(log("log"))).unwrap_err();
        assert_eq!((twice.code, twice.field.as_deref()), (Code::Conflict, Some("name")));
        let mail = serde_json::json!({ "mail": { "host": "m", "from": "nobody", "to": ["a@b.example"] } });
        let wrong = store.plan(add(channel("mail", mail))).unwrap_err();
        assert_eq!((wrong.code, wrong.field.as_deref()), (Code::Invalid, Some("spec.delivery.mail.from")));
        assert!(wrong.remedy.is_some_and(|remedy| remedy.contains("nas@example.com")));
        let gone = store.content().find("nothing").unwrap_err();
        assert_eq!(gone.code, Code::NotFound);
        for number in 1..CHANNELS_MAX {
            store.change(add(log(&number.to_string()))).unwrap();
        }
        assert_eq!(store.plan(add(log("one more"))).unwrap_err().code, Code::Busy);
    }
}
