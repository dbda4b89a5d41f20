//! Who gets in, by which way, and what he may do then?
//!
//! Method: what a browser sends, in plain bytes, against the real daemon.

use crate::common::{Daemon, PATIENCE, Place, Reply};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

const PASSWORD: &str = "a pass phrase of some length";

/// A browser: it keeps its cookie, and the token that goes with it.
struct Browser<'a> {
    daemon: &'a Daemon,
    cookie: String,
    csrf: String,
}

impl<'a> Browser<'a> {
    /// From an answer that begins a login.
    fn of(daemon: &'a Daemon, reply: &Reply) -> Browser<'a> {
        assert_eq!(reply.status, 200, "{reply:?}");
        let cookie = reply.header("set-cookie").expect("a login sets a cookie");
        for word in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.split("; ").any(|part| part == word), "{cookie}");
        }
        assert!(!cookie.contains("Secure"), "a cookie that only TLS carries would be lost on plain HTTP");
        let cookie = cookie.split(';').next().unwrap().to_string();
        assert!(cookie.starts_with("forebay_session="), "{cookie}");
        Browser { daemon, cookie, csrf: reply.json()["csrf"].as_str().unwrap().to_string() }
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: Option<Value>) -> Reply {
        let who = format!("Cookie: theme=dark; {}", self.cookie);
        self.daemon.ask(method, path, &[&who, headers], body)
    }

    fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "", None)
    }

    fn change(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        self.send(method, path, &format!("X-CSRF-Token: {}", self.csrf), body)
    }
}

fn post(daemon: &Daemon, path: &str, body: Value) -> Reply {
    daemon
        .http(&format!("POST {path} HTTP/1.1\r\nContent-Type: application/json"), body.to_string().as_bytes())
}

fn log_in(daemon: &Daemon, name: &str, password: &str) -> Reply {
    post(daemon, "/api/v1/login", json!({"name": name, "password": password}))
}

/// A daemon with an administrator, `anna`.
fn set_up(place: &Place) -> Daemon {
    let mut daemon = Daemon::start(place);
    let secret = daemon.setup_secret();
    let made =
        post(&daemon, "/api/v1/setup", json!({"secret": secret, "name": "anna", "password": PASSWORD}));
    assert_eq!(made.status, 200, "{made:?}");
    daemon
}

#[test]
fn the_first_administrator_is_made_once_with_the_printed_link() {
    let place = Place::new();
    let mut daemon = Daemon::start(&place);
    let secret = daemon.setup_secret();
    assert_eq!(daemon.http("GET /api/v1/setup HTTP/1.1", b"").json(), json!({"needed": true}));
    let body = |secret: &str, name: &str, password: &str| json!({"secret": secret, "name": name, "password": password});
    let finish = |secret: &str, name: &str, password: &str| {
        post(&daemon, "/api/v1/setup", body(secret, name, password))
    };
    finish("", "eve", PASSWORD).problem(401, "unauthenticated");
    finish(&secret[1..], "eve", PASSWORD).problem(401, "unauthenticated");
    assert_eq!(finish(&secret, "eve", "too short").problem(400, "invalid")["field"], "password");
    assert_eq!(finish(&secret, "a/b", PASSWORD).problem(400, "invalid")["field"], "name");
    log_in(&daemon, "admin", "admin").problem(401, "unauthenticated");

    // The owner makes another link, and the first is worth nothing.
    let link = place.run(&["setup", "link", "--json"]).expect(0).out;
    let link: Value = serde_json::from_str(&link).unwrap();
    let url = link["url"].as_str().unwrap();
    let (front, second) = url.split_once("/#/setup?secret=").unwrap();
    assert_eq!(front, format!("http://{}", daemon.http));
    finish(&secret, "eve", PASSWORD).problem(401, "unauthenticated");

    let made = finish(second, "anna", PASSWORD);
    let anna = Browser::of(&daemon, &made);
    assert_eq!(made.json()["user"], json!({"name": "anna", "role": "admin"}));
    assert_eq!(anna.get("/api/v1/login").json(), made.json());
    assert_eq!(anna.get("/api/v1/users").json()["items"][0]["name"], "anna");
    assert_eq!(daemon.http("GET /api/v1/setup HTTP/1.1", b"").json(), json!({"needed": false}));
    finish(second, "eve", PASSWORD).problem(409, "conflict");
    place.run(&["setup", "link"]).expect(4).says("administrator already");

    // Neither secret nor password is anywhere in the data directory.
    for entry in std::fs::read_dir(place.data()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            let text = String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).into_owned();
            for word in [secret.as_str(), second, PASSWORD, &anna.cookie[16..], &anna.csrf] {
                assert!(!text.contains(word), "{:?} has a secret", entry.path());
            }
        }
    }
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(place.data().join("users")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let events = place.json(&["event", "list"]);
    assert!(events.to_string().contains("setup.link") && !events.to_string().contains(second));
    daemon.stop();

    // With a user there is no link any more; users survive, logins do not.
    let daemon = Daemon::start(&place);
    let stale = format!("GET /api/v1/login HTTP/1.1\r\nCookie: {}", anna_cookie(&made));
    daemon.http(&stale, b"").problem(401, "unauthenticated");
    assert_eq!(log_in(&daemon, "Anna", PASSWORD).status, 200, "capitals are no other name");
    finish_refused(&daemon, second);
    daemon.stop();
}

fn anna_cookie(reply: &Reply) -> String {
    reply.header("set-cookie").unwrap().split(';').next().unwrap().to_string()
}

fn finish_refused(daemon: &Daemon, secret: &str) {
    let body = json!({"secret": secret, "name": "eve", "password": PASSWORD});
    post(daemon, "/api/v1/setup", body).problem(409, "conflict");
}

#[test]
fn a_cookie_alone_changes_nothing() {
    let place = Place::new();
    let daemon = set_up(&place);
    let anna = Browser::of(&daemon, &log_in(&daemon, "anna", PASSWORD));
    let token = || Some(json!({"name": "t", "role": "viewer"}));
    for headers in ["", "X-CSRF-Token: ", "X-CSRF-Token: 0", &format!("X-CSRF-Token: {}", &anna.cookie[16..])]
    {
        let problem = anna.send("POST", "/api/v1/tokens", headers, token()).problem(403, "forbidden");
        assert_eq!(problem["field"], "X-CSRF-Token");
    }
    anna.send("DELETE", "/api/v1/login", "", None).problem(403, "forbidden");
    assert_eq!(anna.change("POST", "/api/v1/tokens", token()).status, 201);
    // Nor does a page of somebody else's, whatever it sends.
    let right = format!("X-CSRF-Token: {}", anna.csrf);
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1"] {
        let headers = format!("{right}\r\nOrigin: {origin}");
        anna.send("DELETE", "/api/v1/tokens/t", &headers, None).problem(403, "forbidden");
        anna.send("GET", "/api/v1/events/stream", &format!("Origin: {origin}"), None)
            .problem(403, "forbidden");
    }
    anna.send("GET", "/api/v1/events/stream", "Sec-Fetch-Site: cross-site", None).problem(403, "forbidden");
    let own = format!("{right}\r\nOrigin: http://{}", daemon.http);
    assert_eq!(anna.send("DELETE", "/api/v1/tokens/t", &own, None).status, 204);
    // A token that is wrong is not made up for by a cookie.
    anna.send("GET", "/api/v1/pools", "Authorization: Bearer forebay_0", None)
        .problem(401, "unauthenticated");
    // Logging out ends it, for the browser and for whoever copied the cookie.
    assert_eq!(anna.change("DELETE", "/api/v1/login", None).status, 204);
    anna.get("/api/v1/login").problem(401, "unauthenticated");
    anna.change("POST", "/api/v1/tokens", token()).problem(401, "unauthenticated");
    daemon.stop();
}

#[test]
fn requests_for_other_names_are_refused_on_loopback() {
    let place = Place::new();
    let daemon = Daemon::start_as(&place, "serve", &["--http-name", "box.example"]);
    let port = daemon.http.rsplit(':').next().unwrap();
    for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1.evil.example"] {
        for path in ["/", "/api/v1/setup"] {
            let head = format!("GET {path} HTTP/1.1\r\nHost: {host}");
            assert_eq!(daemon.http(&head, b"").problem(403, "forbidden")["field"], "Host");
        }
    }
    for host in [format!("localhost:{port}"), "[::1]".into(), "Box.example".into(), daemon.http.clone()] {
        assert_eq!(daemon.http(&format!("GET /api/v1/setup HTTP/1.1\r\nHost: {host}"), b"").status, 200);
    }
    daemon.stop();
}

#[test]
fn each_role_does_what_it_may_and_nothing_else() {
    let place = Place::new();
    let daemon = set_up(&place);
    let anna = Browser::of(&daemon, &log_in(&daemon, "anna", PASSWORD));
    for (name, role) in [("vera", "viewer"), ("otto", "operator")] {
        let user = json!({"name": name, "role": role, "password": PASSWORD});
        let made = anna.change("POST", "/api/v1/users", Some(user.clone()));
        assert_eq!((made.status, made.header("location")), (201, Some(&*format!("/api/v1/users/{name}"))));
        assert!(!made.body.contains("assword") && !made.body.contains("argon"), "{}", made.body);
        anna.change("POST", "/api/v1/users", Some(user)).problem(409, "conflict");
    }
    let short = json!({"name": "x", "role": "viewer", "password": "12345678901"});
    assert_eq!(
        anna.change("POST", "/api/v1/users", Some(short)).problem(400, "invalid")["field"],
        "password"
    );
    let vera = Browser::of(&daemon, &log_in(&daemon, "vera", PASSWORD));
    let otto = Browser::of(&daemon, &log_in(&daemon, "otto", PASSWORD));
    let volume = || Some(json!({"name": "tank/a", "size_bytes": 1 << 20}));
    let pool = || Some(json!({"name": "tank", "layout": "single", "disks": ["/nothing"]}));
    for (browser, to_volume, to_pool) in [(&vera, 403, 403), (&otto, 404, 403), (&anna, 404, 202)] {
        assert_eq!(browser.get("/api/v1/pools").status, 200);
        assert_eq!(browser.get("/api/v1/alerts").status, 200);
        assert_eq!(browser.change("POST", "/api/v1/volumes", volume()).status, to_volume);
        assert_eq!(browser.change("POST", "/api/v1/pools", pool()).status, to_pool);
    }
    for browser in [&vera, &otto] {
        for path in
            ["/api/v1/users", "/api/v1/audit", "/api/v1/tokens", "/api/v1/users/anna", "/api/v1/users/nobody"]
        {
            browser.get(path).problem(403, "forbidden");
        }
        let upwards = json!({"role": "admin"});
        let name = browser.get("/api/v1/login").json()["user"]["name"].as_str().unwrap().to_string();
        let own = format!("/api/v1/users/{name}");
        assert_eq!(browser.get(&own).json()["name"], name.as_str());
        browser.change("PATCH", &own, Some(upwards.clone())).problem(403, "forbidden");
        browser.change("PATCH", "/api/v1/users/anna", Some(upwards)).problem(403, "forbidden");
        browser.change("DELETE", &own, None).problem(403, "forbidden");
    }
    // A token is not a user, whatever its role.
    let token = place.json(&["token", "create", "vera", "--role", "operator"])["secret"]
        .as_str()
        .unwrap()
        .to_string();
    daemon.api(&token).get("/api/v1/users/vera").problem(403, "forbidden");
    assert_eq!(
        daemon.api(&token).get("/api/v1/login").json(),
        json!({"user": {"name": "vera", "role": "operator"}})
    );

    // One's own password takes the old one, and ends all logins.
    let change = |old: Option<&str>| {
        let mut body = json!({"password": "another long pass phrase"});
        if let Some(old) = old {
            body["old_password"] = old.into();
        }
        vera.change("PATCH", "/api/v1/users/vera", Some(body))
    };
    assert_eq!(change(None).problem(403, "forbidden")["field"], "old_password");
    assert_eq!(change(Some("wrong")).problem(403, "forbidden")["field"], "old_password");
    let also = Browser::of(&daemon, &log_in(&daemon, "vera", PASSWORD));
    assert_eq!(change(Some(PASSWORD)).status, 200);
    for browser in [&vera, &also] {
        browser.get("/api/v1/login").problem(401, "unauthenticated");
    }
    log_in(&daemon, "vera", PASSWORD).problem(401, "unauthenticated");
    assert_eq!(log_in(&daemon, "vera", "another long pass phrase").status, 200);
    // Another role does so, too.
    assert_eq!(anna.change("PATCH", "/api/v1/users/otto", Some(json!({"role": "viewer"}))).status, 200);
    otto.get("/api/v1/login").problem(401, "unauthenticated");
    // The last administrator stays one, even for the owner.
    let less = Some(json!({"role": "operator"}));
    anna.change("PATCH", "/api/v1/users/anna", less).problem(409, "conflict");
    anna.change("DELETE", "/api/v1/users/anna", None).problem(409, "conflict");
    place.run(&["user", "delete", "anna"]).expect(4).says("administrator");
    assert_eq!(anna.get("/api/v1/login").status, 200);
    assert_eq!(anna.change("DELETE", "/api/v1/users/vera", None).status, 204);
    log_in(&daemon, "vera", "another long pass phrase").problem(401, "unauthenticated");
    daemon.stop();
}

#[test]
fn guessing_is_slowed_down_and_written_down() {
    let place = Place::new();
    let daemon = set_up(&place);
    let anna = Browser::of(&daemon, &log_in(&daemon, "anna", PASSWORD));
    for n in 0..7 {
        let name = if n < 5 { "anna" } else { "my password by mistake" };
        let problem = log_in(&daemon, name, "wrong").problem(401, "unauthenticated");
        assert_eq!(problem["detail"], "the name or the password is wrong", "the same for every name");
    }
    let refused = log_in(&daemon, "anna", PASSWORD);
    refused.problem(429, "busy");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    // Whoever is in stays in.
    assert_eq!(anna.get("/api/v1/login").status, 200);
    let made = anna.change("POST", "/api/v1/tokens", Some(json!({"name": "ci", "role": "viewer"})));
    assert_eq!(made.status, 201);
    // It is shown when it is in the file.
    let begun = Instant::now();
    let audit = loop {
        let audit = anna.get("/api/v1/audit").json();
        if audit.to_string().contains("TokenCreate") {
            break audit;
        }
        assert!(begun.elapsed() < PATIENCE, "{audit}");
        thread::sleep(Duration::from_millis(20));
    };
    let lines: Vec<(String, String, u64)> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let text = |field: &str| entry[field].as_str().unwrap().to_string();
            assert_eq!(text("address"), "127.0.0.1");
            (text("principal"), text("operation"), entry["status"].as_u64().unwrap())
        })
        .collect();
    let expect = |principal: &str, operation: &str, status, times| {
        let line = (principal.to_string(), operation.to_string(), status);
        assert_eq!(lines.iter().filter(|&known| *known == line).count(), times, "{line:?} in {lines:?}");
    };
    expect("user anna", "SetupFinish", 200, 1);
    expect("user anna", "LoginCreate", 200, 1);
    // Refused ones of one name are a line at once, and the others one line a minute later.
    expect("user anna", "LoginCreate", 401, 1);
    expect("anonymous", "LoginCreate", 401, 1);
    expect("user anna", "TokenCreate", 201, 1);
    let secret = made.json()["secret"].as_str().unwrap().to_string();
    for word in ["by mistake", "wrong", PASSWORD, &secret] {
        assert!(!audit.to_string().contains(word), "{word} is in the audit log");
    }
    let last = audit["items"].as_array().unwrap().last().unwrap()["sequence"].as_u64().unwrap();
    let after = anna.get(&format!("/api/v1/audit?after={}&limit=1", last - 1)).json();
    assert_eq!(after["items"].as_array().unwrap().len(), 1);
    // It goes on after a kill.
    daemon.kill();
    let daemon = Daemon::start(&place);
    place.run(&["token", "delete", "ci"]).expect(0);
    let audit = place.json(&["audit", "list"]);
    let entry = audit["items"].as_array().unwrap().last().unwrap();
    assert_eq!(entry["sequence"], last + 1);
    assert_eq!(entry["principal"], "socket");
    // Who of the host is behind it.
    assert!(entry["address"].as_str().unwrap().starts_with("socket of "), "{entry}");
    assert_eq!((&entry["path"], &entry["status"]), (&json!("/api/v1/tokens/ci"), &json!(204)));
    daemon.stop();
}

#[test]
fn the_command_line_makes_changes_and_removes_users() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    // The first is an administrator, whoever makes him; with him the printed link is over.
    place
        .run_with(&["user", "create", "otto", "--role", "operator"], &format!("{PASSWORD}\n"))
        .expect(4)
        .says("administrator");
    place.run_with(&["user", "create", "anna", "--role", "admin"], &format!("{PASSWORD}\n")).expect(0);
    place
        .run_with(&["user", "create", "otto", "--role", "operator"], "short\n")
        .expect(2)
        .says("12 characters");
    place.run(&["user", "create", "otto"]).expect(2).says("--password-file");
    std::fs::write(place.path().join("word"), PASSWORD).unwrap();
    let otto = ["user", "create", "otto", "--role", "operator", "--password-file", "word"];
    place.run(&[&otto[..], &["--dry-run"]].concat()).expect(0);
    assert_eq!(place.json(&["user", "list"])["items"].as_array().unwrap().len(), 1);
    place.run(&otto).expect(0);
    place.run(&otto).expect(4).says("a user with this name exists");
    assert_eq!(log_in(&daemon, "otto", PASSWORD).json()["user"], json!({"name": "otto", "role": "operator"}));
    // The owner needs no old password.
    place.run_with(&["user", "set", "otto", "--password"], "another long pass phrase\n").expect(0);
    log_in(&daemon, "otto", PASSWORD).problem(401, "unauthenticated");
    place.run(&["user", "set", "otto", "--role", "viewer"]).expect(0);
    let seen = log_in(&daemon, "otto", "another long pass phrase");
    assert_eq!(seen.json()["user"]["role"], "viewer");
    let listed = place.run(&["user", "list"]).expect(0).out;
    assert!(listed.contains("otto") && listed.contains("viewer") && !listed.contains("argon2"), "{listed}");
    place.run(&["user", "set", "anna", "--role", "viewer"]).expect(4).says("administrator");
    place.run(&["user", "delete", "otto", "--dry-run"]).expect(0);
    place.run(&["user", "delete", "otto"]).expect(0);
    place.run(&["user", "delete", "otto"]).expect(3);
    log_in(&daemon, "otto", "another long pass phrase").problem(401, "unauthenticated");
    daemon.stop();
}
