//! What a change came to, in the audit log: what of an object was, and what it is.
//!
//! Taken from answers, which have no secrets, and from requests as far as they have none ([`tried`]).

use forebay_api::{Method, Operation, ReplyBody};
use forebay_base::WallTime;
use forebay_pool::utc;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Of one entry, and of a value in it: what is longer is cut.
const LINES_MAX: usize = 32;
const VALUE_CHARS_MAX: usize = 120;

/// The operation that shows what this one changes or deletes.
pub fn shows(operation: Operation) -> Option<Operation> {
    let is_same = |other: &Operation| other.path() == operation.path() && other.method() == Method::Get;
    // A login is deleted, too, and is nothing that was decided.
    let is_one = operation.path().ends_with('}');
    let has_before = match operation.method() {
        Method::Patch => matches!(operation.reply(), ReplyBody::Object(_)),
        Method::Delete => is_one,
        Method::Get | Method::Post => false,
    };
    has_before.then(|| Operation::ALL.into_iter().find(is_same)).flatten()
}

/// Of what was asked for, what may be written down whatever came of it.
pub fn tried(operation: Operation, request: &Value) -> Vec<String> {
    use Operation::*;
    match operation {
        // Strangers type passwords into the wrong field.
        LoginCreate | SetupFinish => Vec::new(),
        // With secrets, or much too long.
        UserCreate | UserSet | HostCreate | HostSet | ChannelCreate | ChannelSet | ReportCreate => {
            asked(&serde_json::json!({ "name": request["name"] }))
        }
        _ => asked(request),
    }
}

/// Every value of a request, by its place: `disks.0`.
fn flat(value: &Value, at: &str, into: &mut BTreeMap<String, String>) {
    let below = |name: &str| if at.is_empty() { name.to_string() } else { format!("{at}.{name}") };
    match value {
        Value::Null => {}
        Value::Object(all) => all.iter().for_each(|(name, value)| flat(value, &below(name), into)),
        Value::Array(all) if all.iter().any(|one| one.is_object() || one.is_array()) => {
            all.iter().enumerate().for_each(|(nth, value)| flat(value, &below(&nth.to_string()), into));
        }
        Value::Array(all) => {
            let all: Vec<String> = all.iter().map(plain).collect();
            into.insert(at.into(), cut(&all.join(", ")));
        }
        value => drop(into.insert(at.into(), cut(&plain(value)))),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

fn cut(text: &str) -> String {
    match text.chars().count() > VALUE_CHARS_MAX {
        true => text.chars().take(VALUE_CHARS_MAX).chain(['…']).collect(),
        false => text.into(),
    }
}

/// What a person decides of an object.
fn decided(object: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    // What was made may stand beside its secret, or be several.
    let object = object.get("token").unwrap_or(object);
    flat(&object["name"], "name", &mut all);
    flat(&object["role"], "role", &mut all);
    flat(&object["spec"], "", &mut all);
    if let Some(items) = object["items"].as_array() {
        let names: Vec<Value> = items.iter().map(|one| one["name"].clone()).collect();
        flat(&names.into(), "names", &mut all);
    }
    // What cannot be undone is a decision, though it is not a property.
    let first = object["items"].get(0).unwrap_or(object);
    if let Some(until) = first["status"]["retained_until_unix_ms"].as_u64() {
        // It is computed from two clocks.
        let until = WallTime(until.saturating_add(500) / 1000 * 1000);
        all.insert("retained_until".into(), utc(until));
    }
    all
}

/// `size_bytes: 1073741824, was 536870912`, of everything that is another.
pub fn changed(before: &Value, after: &Value) -> Vec<String> {
    let (before, after) = (decided(before), decided(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let value =
        |of: &BTreeMap<String, String>, name: &String| of.get(name).cloned().unwrap_or_else(|| "none".into());
    let lines = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    lines
        .take(LINES_MAX)
        .map(|name| format!("{name}: {}, was {}", value(&after, name), value(&before, name)))
        .collect()
}

/// `size_bytes: 1073741824`, of everything that was decided of an object: a new one, or one that is deleted.
pub fn decided_of(object: &Value) -> Vec<String> {
    lines(decided(object))
}

/// The same of a request.
pub fn asked(request: &Value) -> Vec<String> {
    let mut all = BTreeMap::new();
    flat(request, "", &mut all);
    lines(all)
}

fn lines(all: BTreeMap<String, String>) -> Vec<String> {
    all.into_iter().take(LINES_MAX).map(|(name, value)| format!("{name}: {value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_and_what_is_stands_side_by_side() {
        let before = json!({"name": "a", "spec": {"size_bytes": 1, "hosts": ["x"], "level": "gold"}, "status": {"used": 1}});
        let after =
            json!({"name": "b", "spec": {"size_bytes": 2, "hosts": ["x", "y"]}, "status": {"used": 2}});
        assert_eq!(
            changed(&before, &after),
            ["hosts: x, y, was x", "level: none, was gold", "name: b, was a", "size_bytes: 2, was 1"]
        );
        assert_eq!(changed(&before, &before), [""; 0]);
        assert_eq!(decided_of(&after), ["hosts: x, y", "name: b", "size_bytes: 2"]);
        let asked = asked(&json!({"name": "tank", "groups": [{"disks": ["/a", "/b"]}], "force": null}));
        assert_eq!(asked, ["groups.0.disks: /a, /b", "name: tank"]);
        let long = decided_of(&json!({"spec": {"text": "x".repeat(1000)}}));
        assert_eq!(long[0].chars().count(), "text: ".len() + VALUE_CHARS_MAX + 1);
    }

    #[test]
    fn whatever_is_changed_in_place_can_be_looked_at_before() {
        // Tokens are looked up where they are changed.
        let is_shown = |one: &Operation| one.method() == Method::Patch && *one != Operation::TokenSet;
        let changes = Operation::ALL.into_iter().filter(is_shown);
        for operation in changes {
            assert!(shows(operation).is_some(), "{operation:?}");
        }
        assert_eq!(shows(Operation::VolumeSet), Some(Operation::VolumeShow));
        assert_eq!(shows(Operation::ThresholdDelete), Some(Operation::ThresholdShow));
        assert_eq!(shows(Operation::MappingDelete), Some(Operation::MappingShow));
        assert!(shows(Operation::VolumePromote).is_none() && shows(Operation::LoginEnd).is_none());
    }

    #[test]
    fn what_was_made_is_named_and_its_secret_is_not() {
        let token = json!({"token": {"id": "7", "name": "ci", "role": "viewer"}, "secret": "abc"});
        assert_eq!(decided_of(&token), ["name: ci", "role: viewer"]);
        let snapshots = json!({"items": [{"name": "tank/a@now"}, {"name": "tank/b@now"}]});
        assert_eq!(decided_of(&snapshots), ["names: tank/a@now, tank/b@now"]);
        let kept = |until: u64| json!({"name": "a@s", "status": {"retained_until_unix_ms": until}});
        assert_eq!(changed(&kept(1_999), &kept(2_001)), [""; 0]);
        let longer = "retained_until: 1970-01-01T00:00:09Z, was 1970-01-01T00:00:02Z";
        assert_eq!(changed(&kept(2_001), &kept(9_000)), [longer]);
        let mapping = json!({"id": "7", "name": "x", "spec": {"volume": "tank/a", "host": "esx1", "lun": 0}});
        assert_eq!(decided_of(&mapping), ["host: esx1", "lun: 0", "name: x", "volume: tank/a"]);
    }

    /// Every schema that a request of this one can have in it.
    fn schemas<'a>(document: &'a Value, name: &str, into: &mut BTreeMap<String, &'a Value>) {
        let schema = &document["components"]["schemas"][name];
        if into.insert(name.into(), schema).is_none() {
            let text = schema.to_string();
            let names = text.split("#/components/schemas/").skip(1);
            names.filter_map(|rest| rest.split('"').next()).for_each(|name| schemas(document, name, into));
        }
    }

    #[test]
    fn of_a_request_with_a_secret_only_the_name_is_written_down() {
        let secrets = ["password", "secret", "chap", "token", "key", "csrf"];
        let document: Value = serde_json::from_str(&forebay_api::document()).unwrap();
        let request = json!({"name": "a", "spec": {"x": 1}, "other": 2});
        let mut with_secrets = Vec::new();
        for operation in Operation::ALL {
            let Some(input) = operation.input() else { continue };
            let mut all = BTreeMap::new();
            schemas(&document, input, &mut all);
            let properties = all.values().filter_map(|schema| schema["properties"].as_object());
            let mut names = properties.flat_map(|properties| properties.keys());
            if names.any(|name| secrets.iter().any(|word| name.contains(word))) {
                assert!(tried(operation, &request).len() <= 1, "{operation:?}");
                with_secrets.push(operation);
            }
        }
        for operation in [Operation::UserCreate, Operation::ChannelSet, Operation::HostCreate] {
            assert!(with_secrets.contains(&operation), "{operation:?}");
            assert_eq!(tried(operation, &request), ["name: a"]);
        }
        assert_eq!(tried(Operation::VolumeCreate, &request), ["name: a", "other: 2", "spec.x: 1"]);
        assert_eq!(tried(Operation::LoginCreate, &request), [""; 0]);
        assert_eq!(tried(Operation::UserSet, &Value::Null), [""; 0]);
    }
}
