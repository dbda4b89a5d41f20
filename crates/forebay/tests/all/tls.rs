//! Is HTTP beyond this host, or where it is asked for, encrypted by somebody whom clients can know, and by nobody else?
//!
//! Method: the command line and a plain TLS client with the authority that the daemon made; the same without it.

use crate::common::{Daemon, Finished, PATIENCE, Place, program};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

/// The command line of somebody elsewhere.
fn from_elsewhere(daemon: &Daemon, secret: &str, ca: Option<&Path>, words: &[&str]) -> Finished {
    let mut command = program();
    command.args(words).env("FOREBAY_URL", format!("https://{}", daemon.http)).env("FOREBAY_TOKEN", secret);
    if let Some(ca) = ca {
        command.env("FOREBAY_CA", ca);
    }
    Finished::of(command, words)
}

/// One request over TLS; the whole answer.
fn ask(daemon: &Daemon, ca: &Path, request: &str) -> Result<String, String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(&daemon.http).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(client, stream);
    stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    // The daemon may close without a last word of TLS; what counts is what came.
    let _ = stream.read_to_end(&mut answer);
    Ok(String::from_utf8(answer).unwrap())
}

fn secret(place: &Place) -> String {
    place.json(&["token", "create", "t", "--role", "viewer"])["secret"].as_str().unwrap().to_string()
}

#[test]
fn its_own_authority_is_made_once_and_trusted_by_who_has_it() {
    let place = Place::new();
    let mut daemon = Daemon::start_as(&place, "serve", &["--https", "--http-name", "box.example"]);
    let told = daemon.line();
    let (_, print) = told.split_once("ca.pem, SHA-256 ").unwrap_or_else(|| panic!("{told}"));
    let link = daemon.line();
    let (_, setup) = link
        .split_once(&format!(" https://{}/#/setup?secret=", daemon.http))
        .unwrap_or_else(|| panic!("{link}"));
    let events = place.json(&["event", "list"]).to_string();
    assert!(events.contains("certificate.authority") && events.contains(print) && !events.contains(setup));
    let ca = place.data().join("tls/ca.pem");
    let token = secret(&place);
    from_elsewhere(&daemon, &token, Some(&ca), &["pool", "list"]).expect(0);
    // Without the authority, or with another, nobody is told anything.
    from_elsewhere(&daemon, &token, None, &["pool", "list"]).expect(7).says("FOREBAY_CA");

    let body =
        json!({"secret": setup, "name": "anna", "password": "a pass phrase of some length"}).to_string();
    let request = format!(
        "POST /api/v1/setup HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = ask(&daemon, &ca, &request).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let cookie = answer.lines().find(|line| line.to_ascii_lowercase().starts_with("set-cookie:")).unwrap();
    assert!(cookie.split("; ").any(|part| part.trim() == "Secure"), "{cookie}");
    // Browsers take a cookie of such a name only by HTTPS and for this very host, and remember that there is HTTPS.
    let cookie = cookie.split_once(": ").unwrap().1;
    assert!(cookie.starts_with("__Host-forebay_session=") && !cookie.contains("Domain"), "{cookie}");
    assert!(
        answer.to_ascii_lowercase().contains("strict-transport-security: max-age=31536000\r\n"),
        "{answer}"
    );
    let cookie = cookie.split(';').next().unwrap();
    let who = |cookie: &str| {
        let request = format!(
            "GET /api/v1/login HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        );
        ask(&daemon, &ca, &request).unwrap()[..12].to_string()
    };
    assert_eq!(who(cookie), "HTTP/1.1 200");
    assert_eq!(
        who(cookie.strip_prefix("__Host-").unwrap()),
        "HTTP/1.1 401",
        "that is the name of plain HTTP"
    );

    // Plain HTTP gets no answer, not even that there is one.
    let mut plain = TcpStream::connect(&daemon.http).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");

    use std::os::unix::fs::PermissionsExt;
    for name in ["tls/ca.key", "tls/server.key"] {
        let mode = std::fs::metadata(place.data().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let (kept, shown) = (std::fs::read(&ca).unwrap(), place.data().join("tls/server.pem"));
    let before = std::fs::read(&shown).unwrap();
    daemon.kill();
    let mut daemon = Daemon::start_as(&place, "serve", &["--https", "--http-name", "box.example"]);
    assert!(daemon.line().ends_with(print), "the same authority");
    assert_eq!((std::fs::read(&ca).unwrap(), std::fs::read(&shown).unwrap()), (kept, before));
    from_elsewhere(&daemon, &token, Some(&ca), &["pool", "list"]).expect(0);
    daemon.stop();
}

#[test]
fn a_given_certificate_is_used_and_others_are_refused_at_the_start() {
    let maker = Place::new();
    Daemon::start_as(&maker, "serve", &["--https"]).stop();
    let file = |name: &str| maker.data().join("tls").join(name).display().to_string();
    let place = Place::new();
    let words = ["--http-cert", &file("server.pem"), "--http-key", &file("server.key")];
    let daemon = Daemon::start_as(&place, "serve", &words);
    let token = secret(&place);
    from_elsewhere(&daemon, &token, Some(Path::new(&file("ca.pem"))), &["pool", "list"]).expect(0);
    assert!(!place.data().join("tls").exists(), "nothing of our own is made");
    daemon.stop();
    let place = Place::new();
    let free = ["--listen", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--iscsi", "127.0.0.1:0", "--shards", "1"];
    for (certificate, key) in
        [("server.pem", "ca.key"), ("server.key", "server.key"), ("nothing", "server.key")]
    {
        let (certificate, key) = (file(certificate), file(key));
        let words = [&["serve", "--http-cert", &certificate, "--http-key", &key], &free[..]].concat();
        place.run(&words).expect(2).says("--http-key");
    }
}
