//! What a change came to, in the audit log: what of an object was, and what it is.
//!
//! Taken from answers, which have no secrets, and from the requests of tasks, which have none either.

use forebay_api::{Method, Operation, ReplyBody};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Of one entry, and of a value in it: what is longer is cut.
const LINES_MAX: usize = 32;
const VALUE_CHARS_MAX: usize = 120;

/// The operation that shows what this one changes, if it answers with it.
pub fn shows(operation: Operation) -> Option<Operation> {
    let is_same = |other: &Operation| other.path() == operation.path() && other.method() == Method::Get;
    let answers = matches!(operation.reply(), ReplyBody::Object(_));
    (operation.method() == Method::Patch && answers)
        .then(|| Operation::ALL.into_iter().find(is_same))
        .flatten()
}

/// Whether what was asked for says what is done: tasks answer before they have done it.
pub fn keeps_request(operation: Operation) -> bool {
    operation.reply() == ReplyBody::Task
}

/// Every value of what somebody asked for, by its place: `disks.0`.
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
    flat(&object["name"], "name", &mut all);
    flat(&object["spec"], "", &mut all);
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

/// `size_bytes: 1073741824`, of everything that was decided of a new object.
pub fn made(object: &Value) -> Vec<String> {
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
        assert_eq!(made(&after), ["hosts: x, y", "name: b", "size_bytes: 2"]);
        let asked = asked(&json!({"name": "tank", "groups": [{"disks": ["/a", "/b"]}], "force": null}));
        assert_eq!(asked, ["groups.0.disks: /a, /b", "name: tank"]);
        let long = made(&json!({"spec": {"text": "x".repeat(1000)}}));
        assert_eq!(long[0].chars().count(), "text: ".len() + VALUE_CHARS_MAX + 1);
    }

    #[test]
    fn whatever_is_changed_in_place_can_be_looked_at_before() {
        let changes = Operation::ALL.into_iter().filter(|one| one.method() == Method::Patch);
        for operation in changes {
            assert!(shows(operation).is_some(), "{operation:?}");
        }
        assert_eq!(shows(Operation::VolumeSet), Some(Operation::VolumeShow));
        assert!(shows(Operation::VolumePromote).is_none() && keeps_request(Operation::PoolCreate));
    }

    #[test]
    fn no_request_of_a_task_has_a_secret() {
        let secrets = ["password", "secret", "chap", "token", "key"];
        let document: Value = serde_json::from_str(&forebay_api::document()).unwrap();
        for operation in Operation::ALL.into_iter().filter(|one| keeps_request(*one)) {
            let Some(input) = operation.input() else { continue };
            let schema = document["components"]["schemas"][input].to_string();
            assert!(!secrets.iter().any(|word| schema.contains(&format!("\"{word}"))), "{operation:?}");
        }
    }
}
