//! Does a receiver get each message once, signed over exactly what it receives, also when it fails at first? And is the appliance safe from receivers
//! that redirect, never end or never answer?

use crate::common::{alert, certificates, channel, reporter, wait_async};
use forebay_api::AlertSeverity::{Critical, Warning};
use forebay_notify::{Channel, Retry};
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use sha2::Sha256;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// `openssl rand -base64 32`, and what it decodes to.
const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const KEY: [u8; 32] = {
    let mut key = [0; 32];
    let mut at = 0;
    while at < 32 {
        key[at] = at as u8;
        at += 1;
    }
    key
};

#[derive(Clone)]
struct Received {
    at: Instant,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

type Log = Arc<Mutex<Vec<Received>>>;
/// Answers the n-th request.
type Answer = fn(usize) -> Response<Full<Bytes>>;

/// A receiver on a port of its own, which ends with the test's runtime.
async fn receiver(answer: Answer, tls: Option<TlsAcceptor>) -> (u16, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let log = Log::default();
    let seen = log.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = seen.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let seen = seen.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes().to_vec();
                    let (path, headers) = (parts.uri.to_string(), parts.headers);
                    let mut seen = seen.lock().unwrap();
                    seen.push(Received { at: Instant::now(), path, headers, body });
                    Ok::<_, Infallible>(answer(seen.len()))
                }
            });
            let server = hyper::server::conn::http1::Builder::new();
            // Clients that go away are part of the tests.
            match &tls {
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        let _ = server.serve_connection(TokioIo::new(stream), service).await;
                    }
                }
                None => drop(server.serve_connection(TokioIo::new(stream), service).await),
            }
        }
    });
    (port, log)
}

fn status(code: u16) -> Response<Full<Bytes>> {
    Response::builder().status(code).body(Full::default()).unwrap()
}

fn hook(url: String) -> Channel {
    channel("hook", json!({ "webhook": { "url": url, "secret": SECRET } }))
}

/// As the documentation tells a receiver to do it.
fn verify(received: &Received) -> Value {
    let header = |name: &str| received.headers[name].to_str().unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&KEY).unwrap();
    mac.update(format!("{}.{}.", header("webhook-id"), header("webhook-timestamp")).as_bytes());
    mac.update(&received.body);
    use base64::Engine;
    let signature = base64::engine::general_purpose::STANDARD
        .decode(header("webhook-signature").strip_prefix("v1,").unwrap())
        .unwrap();
    mac.verify_slice(&signature).expect("the signature is over what was received");
    let sent: i64 = header("webhook-timestamp").parse().unwrap();
    assert!((sent - (crate::common::now_unix_ms() / 1000) as i64).abs() < 60, "{sent}");
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(body["id"], header("webhook-id"));
    body
}

#[tokio::test]
async fn a_receiver_that_fails_first_gets_the_same_message_again() {
    let answer = |request| match request {
        1 => status(500),
        2 => Response::builder().status(503).header("retry-after", "7").body(Full::default()).unwrap(),
        _ => status(204),
    };
    let (port, log) = receiver(answer, None).await;
    let reporter = reporter(1);
    reporter.configure(vec![hook(format!("http://127.0.0.1:{port}/a?b=c"))]).unwrap();
    reporter.standing(&[alert("disk.failed/tank/3", Critical)]);
    wait_async("three requests", || (log.lock().unwrap().len() == 3).then_some(())).await;
    let seen = log.lock().unwrap().clone();
    let bodies: Vec<Value> = seen.iter().map(verify).collect();
    assert!(bodies.iter().all(|body| body == &bodies[0]), "{bodies:?}");
    assert_eq!((&*seen[0].path, &bodies[0]["type"]), ("/a?b=c", &json!("alert.raised")));
    assert_eq!(bodies[0]["appliance"]["name"], "nas1");
    assert_eq!(
        bodies[0]["alerts"][0],
        json!({
            "id": "disk.failed/tank/3", "severity": "critical", "state": "standing",
            "since": "2026-01-01T00:00:00.000Z", "changed": bodies[0]["alerts"][0]["changed"],
            "object": { "resource": "pools", "name": "tank" },
            "cause": "Disk 3 of pool tank failed.", "impact": "One more failure loses data.",
            "action": "Replace the disk.", "command": "forebay disk replace tank/3",
            "times_raised": 1, "times_cleared": 0,
        })
    );
    let waits: Vec<Duration> = seen.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!((2.4..6.0).contains(&waits[0].as_secs_f64()), "{waits:?}");
    assert!((6.9..11.0).contains(&waits[1].as_secs_f64()), "as Retry-After asked: {waits:?}");
    let state =
        wait_async("success", || Some(reporter.states().remove(0)).filter(|s| s.delivered == 1)).await;
    assert_eq!((state.error, state.dropped, state.waiting), (None, 0, 0));
}

#[tokio::test]
async fn a_refused_alert_is_told_once_the_receiver_takes_something() {
    let (port, log) = receiver(|request| if request == 1 { status(404) } else { status(200) }, None).await;
    let reporter = reporter(1);
    reporter.configure(vec![hook(format!("http://127.0.0.1:{port}/"))]).unwrap();
    reporter.standing(&[alert("a", Warning)]);
    let state =
        wait_async("refusal", || Some(reporter.states().remove(0)).filter(|s| s.error.is_some())).await;
    let error = state.error.unwrap();
    assert!(error.message.contains("answered 404 Not Found"), "{error:?}");
    assert!(error.remedy.contains("path of the URL"), "{error:?}");
    reporter.standing(&[alert("a", Warning), alert("b", Warning)]);
    wait_async("both", || (log.lock().unwrap().len() == 3).then_some(())).await;
    let told: Vec<String> =
        log.lock().unwrap()[1..].iter().map(|request| verify(request).to_string()).collect();
    assert!(told[0].contains("\"b\"") && told[1].contains("\"a\""), "{told:?}");
}

/// Goal: a receiver that answers with what it was asked for does not have the secret of its URL shown.
#[tokio::test]
async fn an_answer_that_repeats_the_url_is_not_quoted() {
    let echo = |_| {
        let body = Bytes::from_static(b"Cannot POST /services/T0SECRET?key=K");
        Response::builder().status(500).body(Full::new(body)).unwrap()
    };
    let (port, _) = receiver(echo, None).await;
    let reporter = reporter(1);
    let channel = hook(format!("http://127.0.0.1:{port}/services/T0SECRET?key=K"));
    let failure = reporter.test(&channel).await.unwrap_err();
    assert!(failure.message.contains("answered 500") && !failure.message.contains("T0SECRET"), "{failure:?}");
}

#[tokio::test]
async fn https_is_verified_against_the_authority_of_the_channel() {
    let temp = tempfile::tempdir().unwrap();
    let ours = certificates(temp.path(), "localhost");
    let chain = vec![CertificateDer::from_pem_file(&ours.certificate_file).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&ours.key_file).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let (port, log) = receiver(|_| status(200), Some(TlsAcceptor::from(Arc::new(config)))).await;
    let mut channel = hook(format!("https://localhost:{port}/"));
    let failure = reporter(1).test(&channel).await.unwrap_err();
    assert!(failure.message.contains("not trusted here"), "{failure}");
    if let forebay_api::Delivery::Webhook(webhook) = &mut channel.spec.delivery {
        webhook.ca_pem = Some(ours.authority);
    }
    reporter(1).test(&channel).await.unwrap();
    assert_eq!(verify(&log.lock().unwrap()[0])["type"], "test");
    channel.spec.delivery = hook(format!("https://127.0.0.1:{port}/")).spec.delivery;
    assert!(reporter(1).test(&channel).await.is_err());
    assert_eq!(log.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (elsewhere, log) = receiver(|_| status(200), None).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let answer =
            format!("HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:{elsewhere}/\r\ncontent-length: 0\r\n\r\n");
        let _ = stream.read(&mut [0; 4096]).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let failure = reporter(1).test(&hook(format!("http://127.0.0.1:{port}/"))).await.unwrap_err();
    assert!(failure.retry == Retry::Never && failure.remedy.contains("redirects to"), "{failure:?}");
    assert!(log.lock().unwrap().is_empty());
}

/// A receiver that answers without an end: headers, or a body.
#[tokio::test]
async fn an_answer_without_an_end_is_not_read_to_the_end() {
    for begin in ["HTTP/1.1 500 X\r\n\r\n", "HTTP/1.1 200 X\r\nx: "] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let sent = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let mut sent = 0;
            let mut result = stream.write_all(begin.as_bytes()).await;
            while result.is_ok() && sent < 1 << 30 {
                result = stream.write_all(&[b'a'; 65_536]).await;
                sent += 65_536;
            }
            sent
        });
        reporter(1).test(&hook(format!("http://127.0.0.1:{port}/"))).await.unwrap_err();
        // What the kernel's buffers take is some MiB.
        let sent = sent.await.unwrap();
        assert!(sent < 64 << 20, "{sent} bytes were taken");
    }
}
