//! Do settings keep their secrets, and do wrong ones get a useful answer? Every complaint of `Channel::check` is provoked once.

use crate::channel::Channel;
use forebay_api::{ChannelSpec, Delivery, Secret};
use serde_json::{Value, json};

const WEBHOOK_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// One channel of each kind, as JSON with all its secrets.
fn all() -> Vec<Value> {
    let deliveries = [
        json!({ "mail": {
            "host": "mail.example.com", "port": 2525, "security": "tls", "from": "nas@example.com",
            "to": ["ann@example.com"], "login": { "user": "nas", "password": "SECRET-one" },
        } }),
        json!({ "webhook": { "url": "https://hooks.example.com/x", "secret": WEBHOOK_SECRET } }),
        json!({ "syslog": { "host": "192.0.2.7", "transport": "tls", "facility": 10 } }),
        json!({ "snmp_trap": {
            "host": "2001:db8::7", "user": "ops", "level": "auth_priv",
            "authentication_password": "SECRET-two", "privacy_password": "SECRET-three",
        } }),
    ];
    deliveries
        .into_iter()
        .map(|delivery| {
            json!({
                "enabled": true, "delivery": delivery, "severity_min": "warning",
                "kinds": ["raised", "cleared", "heartbeat"], "heartbeat_hours": 12,
                "quiet_hours": { "days": ["saturday", "sunday"], "from_minute": 0, "to_minute": 1440, "critical": "deliver" },
            })
        })
        .collect()
}

fn spec(json: &Value) -> ChannelSpec {
    serde_json::from_value(json.clone()).unwrap()
}

fn channel(json: &Value) -> Channel {
    Channel { id: "operators".into(), name: "operators".into(), spec: spec(json) }
}

#[test]
fn what_is_stored_is_read_back_and_what_is_shown_has_no_secrets() {
    for json in all() {
        let spec = spec(&json);
        assert_eq!(channel(&json).check(), Ok(()), "{json}");
        assert_eq!(spec.with_secrets(), json, "stored as it was written");
        for shown in [serde_json::to_string(&spec).unwrap(), format!("{spec:?}"), format!("{spec:#?}")] {
            assert!(!shown.contains("SECRET") && !shown.contains("AAECAwQ"), "{shown}");
        }
        // What a display sends back keeps its secrets as long as it goes to the same place.
        let mut back: ChannelSpec = serde_json::from_value(serde_json::to_value(&spec).unwrap()).unwrap();
        back.heartbeat_hours = 1;
        back.keep_secrets(&spec);
        assert_eq!(back.delivery, spec.delivery);
    }
}

#[test]
fn a_secret_is_not_handed_to_another_host() {
    let moved = [
        ("/delivery/mail/host", "evil.example.com"),
        ("/delivery/webhook/url", "https://evil.example.com/"),
        ("/delivery/snmp_trap/host", "evil.example.com"),
    ];
    for (place, elsewhere) in moved {
        let stored =
            all().into_iter().find(|json| json.pointer(place).is_some()).map(|json| spec(&json)).unwrap();
        let mut shown = serde_json::to_value(&stored).unwrap();
        *shown.pointer_mut(place).unwrap() = json!(elsewhere);
        let mut back = channel(&shown);
        back.spec.keep_secrets(&stored);
        let problems = back.check().unwrap_err();
        assert!(
            problems[0].message.contains("missing") && problems[0].remedy == "Enter it again.",
            "{problems:?}"
        );
    }
    let mut plain = spec(&all()[0]);
    let mut shown = serde_json::to_value(&plain).unwrap();
    shown["delivery"]["mail"]["security"] = json!("none");
    let mut back = spec(&shown);
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
        (mail, "/kinds", json!([]), "spec.kinds"),
        (mail, "/kinds", json!(["audit"]), "spec.kinds"),
        (mail, "/heartbeat_hours", json!(0), "spec.heartbeat_hours"),
        (mail, "/heartbeat_hours", json!(745), "spec.heartbeat_hours"),
        (mail, "/quiet_hours/days", json!([]), "spec.quiet_hours.days"),
        (mail, "/quiet_hours/from_minute", json!(1440), "spec.quiet_hours"),
        (mail, "/quiet_hours/to_minute", json!(1441), "spec.quiet_hours"),
        (mail, "/delivery/mail/host", json!("mail.example.com:25"), "spec.delivery.mail.host"),
        (mail, "/delivery/mail/host", json!("https://mail"), "spec.delivery.mail.host"),
        (mail, "/delivery/mail/host", json!("a\r\nb"), "spec.delivery.mail.host"),
        (mail, "/delivery/mail/host", json!(""), "spec.delivery.mail.host"),
        (mail, "/delivery/mail/port", json!(0), "spec.delivery.mail.port"),
        (mail, "/delivery/mail/from", json!("nas"), "spec.delivery.mail.from"),
        (mail, "/delivery/mail/from", json!("a\r\nBcc: b <c@d.example>"), "spec.delivery.mail.from"),
        (mail, "/delivery/mail/to", json!([]), "spec.delivery.mail.to"),
        (mail, "/delivery/mail/to", json!(["a@b.example\r\nDATA"]), "spec.delivery.mail.to"),
        (mail, "/delivery/mail/to", json!(vec!["a@b.example"; 33]), "spec.delivery.mail.to"),
        (mail, "/delivery/mail/login/user", json!("a\nb"), "spec.delivery.mail.login.user"),
        (mail, "/delivery/mail/login/password", json!("a\nb"), "spec.delivery.mail.login.password"),
        (mail, "/delivery/mail/login/password", json!(""), "spec.delivery.mail.login.password"),
        (mail, "/delivery/mail/security", json!("none"), "spec.delivery.mail.security"),
        (hook, "/delivery/webhook/url", json!("hooks.example.com"), "spec.delivery.webhook.url"),
        (hook, "/delivery/webhook/url", json!("https://u:p@hooks.example.com"), "spec.delivery.webhook.url"),
        (hook, "/delivery/webhook/secret", json!("password"), "spec.delivery.webhook.secret"),
        (hook, "/delivery/webhook/secret", json!(null), "spec.delivery.webhook.secret"),
        (syslog, "/delivery/syslog/facility", json!(24), "spec.delivery.syslog.facility"),
        (trap, "/delivery/snmp_trap/user", json!("x".repeat(33)), "spec.delivery.snmp_trap.user"),
        (
            trap,
            "/delivery/snmp_trap/authentication_password",
            json!("short"),
            "spec.delivery.snmp_trap.authentication_password",
        ),
        (
            trap,
            "/delivery/snmp_trap/privacy_password",
            json!(null),
            "spec.delivery.snmp_trap.privacy_password",
        ),
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
        let kind = if which == mail { "mail" } else { "syslog" };
        json["delivery"][kind]["ca_pem"] = json!(pem);
        assert_eq!(channel(&json).check().unwrap_err()[0].field, format!("spec.delivery.{kind}.ca_pem"));
    }
    let mut always = all().remove(mail);
    always["quiet_hours"]["days"] =
        json!(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]);
    assert_eq!(channel(&always).check().unwrap_err()[0].field, "spec.quiet_hours");
    for name in ["", "a\nb", &long] {
        let named = Channel { id: name.into(), name: name.into(), spec: spec(&all()[0]) };
        assert_eq!(named.check().unwrap_err()[0].field, "name");
    }
}

#[test]
fn what_is_left_out_has_sensible_values_and_what_is_unknown_is_refused() {
    let json = json!({ "delivery": { "syslog": { "host": "log.example.com", "transport": "udp" } } });
    assert_eq!(channel(&json).check(), Ok(()));
    let log = spec(&json);
    assert_eq!(
        (log.enabled, log.severity_min.name(), log.kinds.len(), log.heartbeat_hours),
        (true, "warning", 2, 24)
    );
    let Delivery::Syslog(syslog) = &log.delivery else { panic!("{log:?}") };
    assert_eq!((syslog.port, syslog.facility), (None, 16));
    for (place, unknown) in [("", "colour"), ("/delivery/syslog", "pasword")] {
        let mut json = json.clone();
        json.pointer_mut(place).unwrap()[unknown] = json!("x");
        let error = serde_json::from_value::<ChannelSpec>(json).unwrap_err().to_string();
        assert!(error.contains(unknown), "{error}");
    }
}

/// Goal: what of a URL lets anybody post to a receiver is not shown, and stays when it comes back as it was shown.
#[test]
fn a_webhook_s_path_is_kept_and_not_shown() {
    let hook = |url: &str| {
        let json = serde_json::json!({ "delivery": { "webhook": { "url": url, "secret": null } } });
        serde_json::from_value::<forebay_api::ChannelSpec>(json).unwrap()
    };
    let stored = hook("https://hooks.example.com/services/T0/token?key=1");
    let shown = serde_json::to_string(&stored.shown()).unwrap();
    assert!(shown.contains("https://hooks.example.com/…") && !shown.contains("token"), "{shown}");
    for plain in ["https://hooks.example.com", "https://hooks.example.com/", "http://[::1]:8080/"] {
        assert_eq!(hook(plain).shown(), hook(plain));
    }
    let mut same = stored.shown();
    same.keep_secrets(&stored);
    assert_eq!(same, stored);
    let mut other = hook("https://evil.example.com/…");
    other.keep_secrets(&stored);
    assert_eq!(other, hook("https://evil.example.com/…"));
}
