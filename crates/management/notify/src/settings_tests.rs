//! Do settings keep their secrets, and do wrong ones get a useful answer? Every complaint of `Channel::check` is provoked once.

use crate::channel::{Channel, Delivery};
use crate::secret::Secret;
use serde_json::{Value, json};

const WEBHOOK_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// One channel of each kind, as JSON with all its secrets.
fn all() -> Vec<Value> {
    let deliveries = [
        json!({
            "type": "mail", "host": "mail.example.com", "port": 2525, "security": "tls", "from": "nas@example.com",
            "to": ["ann@example.com"], "login": { "user": "nas", "password": "SECRET-one" },
        }),
        json!({ "type": "webhook", "url": "https://hooks.example.com/x", "secret": WEBHOOK_SECRET }),
        json!({ "type": "syslog", "host": "192.0.2.7", "transport": "tls", "facility": 10 }),
        json!({
            "type": "snmp_trap", "host": "2001:db8::7", "user": "ops", "level": "auth_priv",
            "authentication_password": "SECRET-two", "privacy_password": "SECRET-three",
        }),
    ];
    deliveries
        .into_iter()
        .map(|delivery| {
            json!({
                "name": "operators", "enabled": true, "delivery": delivery, "severity_min": "warning",
                "kinds": ["raised", "cleared", "heartbeat"], "heartbeat_hours": 12,
                "quiet_hours": { "days": ["saturday", "sunday"], "from_minute": 0, "to_minute": 1440, "critical": "deliver" },
            })
        })
        .collect()
}

fn channel(json: &Value) -> Channel {
    serde_json::from_value(json.clone()).unwrap()
}

#[test]
fn what_is_stored_is_read_back_and_what_is_shown_has_no_secrets() {
    for json in all() {
        let channel = channel(&json);
        assert_eq!(channel.check(), Ok(()), "{json}");
        assert_eq!(channel.to_stored(), json, "stored as it was written");
        for shown in
            [serde_json::to_string(&channel).unwrap(), format!("{channel:?}"), format!("{channel:#?}")]
        {
            assert!(!shown.contains("SECRET") && !shown.contains("AAECAwQ"), "{shown}");
        }
        // What a display sends back keeps its secrets as long as it goes to the same place.
        let mut back: Channel = serde_json::from_value(serde_json::to_value(&channel).unwrap()).unwrap();
        back.name = "another name".into();
        back.keep_secrets(&channel);
        assert_eq!(back.delivery, channel.delivery);
    }
}

#[test]
fn a_secret_is_not_handed_to_another_host() {
    for (json, place) in all().iter().zip(["host", "url", "", "host"]) {
        let stored = channel(json);
        let mut shown = serde_json::to_value(&stored).unwrap();
        if place.is_empty() {
            continue;
        }
        shown["delivery"][place] =
            if place == "url" { json!("https://evil.example.com/") } else { json!("evil.example.com") };
        let mut back = channel(&shown);
        back.keep_secrets(&stored);
        let problems = back.check().unwrap_err();
        assert!(
            problems[0].message.contains("missing") && problems[0].remedy == "Enter it again.",
            "{problems:?}"
        );
    }
    let mut plain = channel(&all()[0]);
    let mut shown = serde_json::to_value(&plain).unwrap();
    shown["delivery"]["security"] = json!("none");
    let mut back = channel(&shown);
    back.keep_secrets(&plain);
    assert!(
        back.delivery.secrets().iter().all(|(_, secret)| secret.is_hidden()),
        "nor over an unprotected connection"
    );
    assert!(plain.delivery.secrets().iter().all(|(_, secret)| !secret.is_hidden()));
    assert_eq!(
        format!("{:?} {:?}", Secret::new("x"), Secret::default()),
        "Secret(not shown) Secret(kept elsewhere)"
    );
}

#[test]
fn every_mistake_is_named_with_its_field() {
    let [mail, hook, syslog, trap] = [0, 1, 2, 3];
    let long = "x".repeat(2000);
    for (which, place, value, field) in [
        (mail, "/name", json!(""), "name"),
        (mail, "/name", json!("a\nb"), "name"),
        (mail, "/name", json!(long), "name"),
        (mail, "/kinds", json!([]), "kinds"),
        (mail, "/kinds", json!(["audit"]), "kinds"),
        (mail, "/heartbeat_hours", json!(0), "heartbeat_hours"),
        (mail, "/heartbeat_hours", json!(745), "heartbeat_hours"),
        (mail, "/quiet_hours/days", json!([]), "quiet_hours.days"),
        (mail, "/quiet_hours/from_minute", json!(1440), "quiet_hours"),
        (mail, "/quiet_hours/to_minute", json!(1441), "quiet_hours"),
        (mail, "/delivery/host", json!("mail.example.com:25"), "delivery.host"),
        (mail, "/delivery/host", json!("https://mail"), "delivery.host"),
        (mail, "/delivery/host", json!("a\r\nb"), "delivery.host"),
        (mail, "/delivery/host", json!(""), "delivery.host"),
        (mail, "/delivery/port", json!(0), "delivery.port"),
        (mail, "/delivery/from", json!("nas"), "delivery.from"),
        (mail, "/delivery/from", json!("a\r\nBcc: b <c@d.example>"), "delivery.from"),
        (mail, "/delivery/to", json!([]), "delivery.to"),
        (mail, "/delivery/to", json!(["a@b.example\r\nDATA"]), "delivery.to"),
        (mail, "/delivery/to", json!(vec!["a@b.example"; 33]), "delivery.to"),
        (mail, "/delivery/login/user", json!("a\nb"), "delivery.login.user"),
        (mail, "/delivery/login/password", json!("a\nb"), "delivery.login.password"),
        (mail, "/delivery/login/password", json!(""), "delivery.login.password"),
        (mail, "/delivery/security", json!("none"), "delivery.security"),
        (hook, "/delivery/url", json!("hooks.example.com"), "delivery.url"),
        (hook, "/delivery/url", json!("https://u:p@hooks.example.com"), "delivery.url"),
        (hook, "/delivery/secret", json!("password"), "delivery.secret"),
        (hook, "/delivery/secret", json!(null), "delivery.secret"),
        (syslog, "/delivery/facility", json!(24), "delivery.facility"),
        (trap, "/delivery/user", json!("x".repeat(33)), "delivery.user"),
        (trap, "/delivery/authentication_password", json!("short"), "delivery.authentication_password"),
        (trap, "/delivery/privacy_password", json!(null), "delivery.privacy_password"),
    ] {
        let mut json = all().remove(which);
        *json.pointer_mut(place).unwrap() = value.clone();
        let problems = channel(&json).check().unwrap_err();
        assert_eq!(problems[0].field, field, "{place} {value}");
        for problem in problems {
            assert!(
                problem.message.ends_with('.') && problem.remedy.ends_with(['.', '7']),
                "sentences: {problem}"
            );
            assert!(!problem.to_string().contains(['\r', '\n']), "{problem}");
        }
    }
    for (which, pem) in
        [(mail, "x"), (syslog, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")]
    {
        let mut json = all().remove(which);
        json["delivery"]["ca_pem"] = json!(pem);
        assert_eq!(channel(&json).check().unwrap_err()[0].field, "delivery.ca_pem");
    }
    let mut always = all().remove(mail);
    always["quiet_hours"]["days"] =
        json!(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]);
    assert_eq!(channel(&always).check().unwrap_err()[0].field, "quiet_hours");
}

#[test]
fn what_is_left_out_has_sensible_values_and_what_is_unknown_is_refused() {
    let json = json!({ "name": "log", "delivery": { "type": "syslog", "host": "log.example.com", "transport": "udp" } });
    let log = channel(&json);
    assert_eq!(log.check(), Ok(()));
    assert_eq!(
        (log.enabled, log.severity_min.name(), log.kinds.len(), log.heartbeat_hours),
        (true, "warning", 2, 24)
    );
    let Delivery::Syslog(syslog) = &log.delivery else { panic!("{log:?}") };
    assert_eq!((syslog.port, syslog.facility), (None, 16));
    for (place, unknown) in [("", "colour"), ("/delivery", "pasword")] {
        let mut json = json.clone();
        json.pointer_mut(place).unwrap()[unknown] = json!("x");
        let error = serde_json::from_value::<Channel>(json).unwrap_err().to_string();
        assert!(error.contains(unknown), "{error}");
    }
}
