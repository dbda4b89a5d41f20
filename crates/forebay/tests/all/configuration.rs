//! Does the daemon do what its configuration file says, and is every mistake in one found, in the right line?
//!
//! Method: files with one mistake each, and the shipped one with every comment removed; what `config show` says is compared with where the
//! daemon listens.

use crate::common::{Daemon, Finished, Place, program};
use serde_json::Value;
use std::fs;

/// Runs a command that looks at no daemon and no variable.
fn forebay(words: &[&str]) -> Finished {
    let mut command = program();
    command.args(words);
    Finished::of(command, words)
}

impl Place {
    fn configuration(&self, text: &str) -> String {
        let path = self.path().join("forebay.toml");
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

#[test]
fn every_mistake_is_found_in_its_line_with_what_is_allowed() {
    let place = Place::new();
    for (text, line, key, problem, allowed) in [
        ("lisen = \"127.0.0.1:0\"", 1, "lisen", "no option", "`listen`"),
        ("http_name = \"a\"", 1, "http_name", "no option", "`http-name`"),
        ("# a\n\n[http]\ncert = \"a\"", 3, "http", "a section", "serve --help"),
        ("shards = 2\nmemory = \"lots\"", 2, "memory", "is not a size", "SIZE"),
        ("shards = 65", 1, "shards", "not in 1..=64", "N: Engine cores"),
        ("listen = 8080", 1, "listen", "not a host and a port", "HOST:PORT"),
        ("listen = [\"127.0.0.1:0\"]", 1, "listen", "the value is array", "one text"),
        ("iscsi = []", 1, "iscsi", "the value is array", "list of texts"),
        ("iscsi = [\"127.0.0.1:0\", \"nowhere\"]", 1, "iscsi", "`nowhere`", "HOST:PORT"),
        ("iscsi = \"storage.example.org:3260\"", 1, "iscsi", "an IP address", "127.0.0.1:3260"),
        ("iscsi-chap-minimum = \"md4\"", 1, "iscsi-chap-minimum", "`md4`", "md5 or sha256"),
        ("https = \"yes\"", 1, "https", "`yes`", "true or false"),
        ("\nnbd = \"0.0.0.0:10809\"", 2, "nbd", "without TLS", "certificate"),
        ("shards = 2\nmemory = \"4K\"", 2, "memory", "the minimum is 64 MiB", "64M or more"),
        (
            "listen = \"127.0.0.1:47999\"\nnbd = \"127.0.0.1:47999\"",
            2,
            "nbd",
            "of `listen`, too",
            "nothing else listens",
        ),
        (
            "iscsi = [\"127.0.0.1:47999\", \"127.0.0.1:47999\"]",
            1,
            "iscsi",
            "of `iscsi`, too",
            "nothing else listens",
        ),
        ("nbd = \"127.0.0.1:3260\"", 1, "nbd", "of `iscsi`, too", "nothing else listens"),
        ("memory = \"1P\"", 1, "memory", "the machine has", "a quarter"),
        ("http-cert = \"/none\"\nhttp-key = \"/none\"", 1, "http-cert", "No such file", "PEM"),
        (
            "nbd-tls-cert = \"/none\"\nnbd-tls-key = \"/none\"",
            1,
            "nbd-tls-cert",
            "No such file",
            "FILE: Certificate chain",
        ),
        ("shards = 2\nlisten = \"127.0.0.1:0", 2, "", "", "listen ="),
        ("shards = 2\nshards = 3", 2, "", "duplicate key", ""),
    ] {
        let file = place.configuration(text);
        let report: Value =
            serde_json::from_str(&forebay(&["config", "check", &file, "--json"]).expect(2).out).unwrap();
        let finding = &report["findings"][0];
        assert_eq!((&finding["line"], &finding["key"]), (&line.into(), &key.into()), "{text}: {report}");
        for (part, words) in [("problem", problem), ("allowed", allowed)] {
            assert!(finding[part].as_str().unwrap().contains(words), "{text}: no `{words}` in {report}");
        }
        let said = forebay(&["config", "check", &file]).expect(2).out;
        assert!(said.starts_with(&format!("{file}:{line}: ")), "{said}");
        // The daemon does not start with it either, and says the same.
        let data = place.data().display().to_string();
        let refused = forebay(&["serve", "--config", &file, "--data", &data]);
        assert!(matches!(refused.code, Some(1 | 2 | 4 | 5)), "{text}: {refused:?}");
    }
    // Of two that belong together one is missing.
    let file = place.configuration("http-key = \"/none\"");
    let said = forebay(&["config", "check", &file]).expect(2).out;
    assert!(said.contains(": http-cert: it is missing"), "{said}");
    forebay(&["config", "check", "/none/forebay.toml"]).expect(3).says("/none/forebay.toml");
    forebay(&["serve", "--config", "/none/forebay.toml"]).expect(3).says("/none/forebay.toml");
}

#[test]
fn certificates_are_read_and_compared_with_their_keys() {
    let place = Place::new();
    // A daemon's own are as good as any.
    Daemon::start_as(&place, "serve", &["--https"]).stop();
    let file = |name: &str| place.data().join("tls").join(name).display().to_string();
    let (certificate, key, other) = (file("server.pem"), file("server.key"), file("ca.key"));
    for service in ["http", "nbd-tls"] {
        let text = |key: &str| format!("{service}-cert = \"{certificate}\"\n{service}-key = \"{key}\"\n");
        forebay(&["config", "check", &place.configuration(&text(&key))]).expect(0);
        let said = forebay(&["config", "check", &place.configuration(&text(&other))]).expect(2).out;
        assert!(said.contains(&format!(":1: {service}-cert: {certificate}: ")), "{said}");
    }
}

#[test]
fn the_command_line_overrides_the_file_and_the_file_the_defaults() {
    let place = Place::new();
    let file = place.configuration(
        "# Comments stay.\nlisten = \"127.0.0.1:0\"\nshards = 2\nmemory = \"64M\"\nhttps = true\n\
         nbd = \"off\"\niscsi = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\n",
    );
    let data = place.data().display().to_string();
    let words = ["--config", &file, "--data", &data, "--nbd", "127.0.0.1:0", "--https=false"];
    let shown = forebay(&[&["config", "show", "--json"], &words[..]].concat()).expect(0).out;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["file"], file);
    let setting = |key: &str| {
        let setting =
            shown["settings"].as_array().unwrap().iter().find(|setting| setting["key"] == key).unwrap();
        let values: Vec<&str> =
            setting["values"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        (values.join(" "), setting["source"].as_str().unwrap().to_string(), setting["line"].as_u64())
    };
    let expect = |key: &str, value: &str, source: &str, line| {
        assert_eq!(setting(key), (value.to_string(), source.to_string(), line), "{key}");
    };
    expect("data", &data, "option", None);
    expect("listen", "127.0.0.1:0", "file", Some(2));
    expect("shards", "2", "file", Some(3));
    expect("https", "false", "option", None);
    expect("nbd", "127.0.0.1:0", "option", None);
    expect("iscsi", "127.0.0.1:0 127.0.0.1:0", "file", Some(7));
    expect("iscsi-chap-minimum", "md5", "default", None);
    expect("http-cert", "", "default", None);
    let table = forebay(&[&["config", "show"], &words[..]].concat()).expect(0).out;
    assert!(table.contains(&format!("{file}:3")) && table.contains("one of its own"), "{table}");

    let daemon =
        Daemon::start_with(&place, "serve", &["--config", &file, "--nbd", "127.0.0.1:0", "--https=false"]);
    assert_eq!(daemon.iscsi.len(), 2);
    assert!(!daemon.nbd.is_empty());
    assert_eq!(daemon.ask("GET", "/api/v1/openapi.json", &[], None).status, 401);
    daemon.stop();
}

#[test]
fn the_shipped_file_says_the_defaults_and_takes_what_it_shows() {
    let place = Place::new();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/forebay.toml");
    forebay(&["config", "check", shipped]).expect(0);
    let show = |file: &str| {
        let shown = forebay(&["config", "show", "--json", "--config", file]).expect(0).out;
        let shown: Value = serde_json::from_str(&shown).unwrap();
        shown["settings"].as_array().unwrap().clone()
    };
    let unset = show(shipped);
    assert!(unset.iter().all(|setting| setting["source"] == "default"));
    // A comment that is a key and not a sentence.
    let text = fs::read_to_string(shipped).unwrap();
    let keys = text.lines().map(|line| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => key,
        _ => line,
    });
    let set = show(&place.configuration(&keys.collect::<Vec<_>>().join("\n")));
    assert_eq!(set.len(), unset.len());
    for (set, unset) in set.iter().zip(&unset) {
        assert_eq!(set["source"], "file", "{set}");
        let values = unset["values"].as_array().unwrap();
        assert!(values.is_empty() || set["values"] == unset["values"], "{set} {unset}");
    }
}
