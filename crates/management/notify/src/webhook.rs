//! A POST of JSON, signed as Standard Webhooks describes (standardwebhooks.com, the scheme of Svix and others), so that receivers verify it with an existing library.
//!
//! # What a receiver gets
//!
//! | Header | Content |
//! |---|---|
//! | `webhook-id` | identifies the message; the same for every attempt, so a receiver that has seen it answers 200 and does nothing |
//! | `webhook-timestamp` | seconds since 1970 of this attempt; refuse what is more than five minutes off |
//! | `webhook-signature` | `v1,` and the base64 of HMAC-SHA256 over `ID.TIMESTAMP.BODY` with the key |
//!
//! The key is what the base64 after `whsec_` in the secret says. To verify: put the two headers and the body *as received* together with dots, compute the
//! HMAC, and compare in constant time with each signature of the header (they are separated by spaces).
//!
//! The body is [`body`]: `type` is `alert.raised`, `alert.cleared`, `alert.summary`, `heartbeat` or `test`.
//!
//! # What the appliance makes of the answer
//!
//! 2xx is success. 429, 5xx and failures of the network are tried again, not before Retry-After. All else is final: a redirect is not followed, because it
//! could lead the signed content, or the appliance, anywhere.

use crate::connect::{self, Io, io_failure};
use crate::failure::{Failure, Retry};
use crate::notice::{Appliance, Change, Content, Message, Standing};
use crate::text::{line, rfc3339};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use forebay_api::Secret;
use forebay_api::Webhook;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::Sha256;
use std::time::Duration;
use tokio::time::timeout;

const SECRET_PREFIX: &str = "whsec_";
/// Standard Webhooks, "Signature scheme".
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const URL_BYTES_MAX: usize = 2048;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);
/// What of an answer's body is read, to show a person why the receiver refused.
const ANSWER_BYTES_MAX: usize = 4 << 10;
const HEADERS_BYTES_MAX: usize = 32 << 10;

/// A URL in its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub is_https: bool,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// For the Host header.
    authority: String,
    path: String,
}

impl Target {
    /// The error completes "The URL cannot be used: ".
    pub fn parse(url: &str) -> Result<Target, &'static str> {
        if !url.is_ascii() {
            return Err(
                "it has characters that need to be percent-encoded; `…` only stands for the stored path",
            );
        }
        if url.contains('#') {
            return Err("it has a part behind #, which is never sent");
        }
        if url.len() > URL_BYTES_MAX {
            return Err("it is longer than 2048 characters");
        }
        let uri: Uri =
            url.parse().map_err(|_| "it is not a URL, or has characters that need to be percent-encoded")?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("it begins with neither https:// nor http://"),
        };
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("it has a user name or password, which would be visible wherever the URL is shown");
        }
        if authority.host().is_empty() {
            return Err("it has no host");
        }
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if authority.as_str().ends_with(':')
                || authority.as_str().len() > authority.host().len() =>
            {
                return Err("its port is not a number from 1 to 65535");
            }
            None if is_https => 443,
            None => 80,
        };
        if port == 0 {
            return Err("its port is not a number from 1 to 65535");
        }
        Ok(Target {
            is_https,
            host: authority.host().trim_matches(['[', ']']).into(),
            port,
            authority: authority.as_str().into(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).into(),
        })
    }
}

/// The key that a secret stands for.
pub fn signing_key(secret: &Secret) -> Option<Vec<u8>> {
    let key = STANDARD.decode(secret.expose().strip_prefix(SECRET_PREFIX)?).ok()?;
    KEY_BYTES.contains(&key.len()).then_some(key)
}

/// A new secret of 32 random bytes, to be shown once.
///
/// # Errors
/// When the system gives no random numbers.
pub fn generate_secret() -> std::io::Result<String> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(std::io::Error::other)?;
    Ok(format!("{SECRET_PREFIX}{}", STANDARD.encode(key)))
}

/// The value of `webhook-signature`.
pub fn signature(key: &[u8], id: &str, timestamp_s: u64, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in [id.as_bytes(), b".", timestamp_s.to_string().as_bytes(), b".", body] {
        mac.update(part);
    }
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// The JSON of a message. Fields are only ever added.
pub fn body(appliance: &Appliance, message: &Message) -> Value {
    let kind = match &message.content {
        Content::Alert(change) => match change.standing {
            Standing::Standing => "alert.raised",
            Standing::Cleared => "alert.cleared",
        },
        Content::Summary(_) => "alert.summary",
        Content::Audit(_) => "audit",
        Content::Heartbeat(_) => "heartbeat",
        Content::Test => "test",
    };
    let mut body = json!({
        "id": message.id,
        "type": kind,
        "at": rfc3339(message.at_unix_ms),
        "appliance": { "name": appliance.name, "id": appliance.id },
        "lost": message.lost,
        "alerts": message.changes().iter().map(alert).collect::<Vec<_>>(),
    });
    if let Content::Heartbeat(tally) = &message.content {
        body["standing"] =
            json!({ "critical": tally.critical, "warning": tally.warning, "info": tally.info });
    }
    body
}

fn alert(change: &Change) -> Value {
    let alert = &change.alert;
    json!({
        "id": alert.id,
        "severity": alert.severity.name(),
        "state": change.standing.name(),
        "since": rfc3339(alert.since_unix_ms),
        "changed": rfc3339(change.at_unix_ms),
        "object": { "resource": alert.object.resource, "name": alert.object.name },
        "cause": alert.cause,
        "impact": alert.impact,
        "action": alert.action,
        "command": alert.command,
        "times_raised": change.raised,
        "times_cleared": change.cleared,
    })
}

/// Posts a message. `now_unix_ms` is the time of this attempt.
pub async fn deliver(
    webhook: &Webhook,
    appliance: &Appliance,
    message: &Message,
    now_unix_ms: u64,
) -> Result<(), Failure> {
    let target = Target::parse(&webhook.url).map_err(|why| {
        Failure::is_final(format!("The URL cannot be used: {why}"), "Correct the channel's URL.")
    })?;
    let key = signing_key(&webhook.secret).ok_or_else(|| {
        Failure::is_final("The signing secret is missing or not valid", "Enter the channel's secret again.")
    })?;
    let body = body(appliance, message).to_string();
    let timestamp_s = now_unix_ms / 1000;
    let request = Request::post(&*target.path)
        .header("host", &*target.authority)
        .header("content-type", "application/json")
        .header("user-agent", "Forebay")
        .header("webhook-id", &*message.id)
        .header("webhook-timestamp", timestamp_s)
        .header("webhook-signature", signature(&key, &message.id, timestamp_s, body.as_bytes()))
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| {
            Failure::is_final(format!("The URL cannot be used: {error}"), "Correct the channel's URL.")
        })?;
    let (host, port) = (&*target.host, target.port);
    let tcp = connect::tcp(host, port).await?;
    let stream: Box<dyn Io> = match target.is_https {
        true => connect::tls(tcp, host, port, webhook.ca_pem.as_deref()).await?,
        false => Box::new(tcp),
    };
    let broken = |error: hyper::Error| {
        let text = line(&error.to_string(), 200);
        io_failure(host, port, "gave no answer", &std::io::Error::other(text))
    };
    let exchange = async {
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(HEADERS_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        // Driven here and not by a task of its own, so that nothing is left when this ends.
        let answer = async {
            let response = sender.send_request(request).await.map_err(broken)?;
            Ok(judge(response, &target, now_unix_ms).await)
        };
        tokio::pin!(answer);
        tokio::pin!(connection);
        tokio::select! {
            answer = &mut answer => answer,
            ended = &mut connection => match ended {
                Ok(()) => answer.await,
                Err(error) => Err(broken(error)),
            },
        }
    };
    timeout(ANSWER_TIME_MAX, exchange).await.unwrap_or_else(|_| {
        Err(Failure::passing(
            format!("{host}:{port} did not answer the request within {} s", ANSWER_TIME_MAX.as_secs()),
            "Have the receiver answer first and work afterwards.",
        ))
    })?
}

/// What an answer means.
async fn judge(response: Response<Incoming>, target: &Target, now_unix_ms: u64) -> Result<(), Failure> {
    let (host, port) = (&*target.host, target.port);
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let retry = retry(status, retry_after, now_unix_ms);
    // An answer that is longer, or breaks off, has no more to say.
    let said = match Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await {
        Ok(body) => line(&String::from_utf8_lossy(&body.to_bytes()), 200),
        Err(_) => String::new(),
    };
    // Some answer with what they were asked for, and that may be the secret.
    let is_secret =
        target.path.split(['/', '?', '&', '=']).any(|part| part.len() >= 4 && said.contains(part));
    let said = if said.trim().is_empty() || is_secret { String::new() } else { format!(": {}", said.trim()) };
    let message = format!("{host}:{port} answered {status}{said}");
    let remedy = match (status, retry) {
        (status, _) if status.is_redirection() => {
            "Write the URL that it redirects to; redirects are not followed."
        }
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
            "Check that the receiver has the channel's signing secret and that its clock is right."
        }
        (StatusCode::NOT_FOUND | StatusCode::GONE, _) => {
            "Check the path of the URL, and that the receiver still has it."
        }
        (_, Retry::Never) => "See the receiver's log for why it refuses the request.",
        _ => "See the receiver's log.",
    };
    Err(Failure { message, remedy: remedy.into(), retry })
}

fn retry(status: StatusCode, retry_after: Option<&str>, now_unix_ms: u64) -> Retry {
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return Retry::Never;
    }
    // Seconds or a date (RFC 9110, section 10.2.3).
    let asked = retry_after.and_then(|text| match text.trim().parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let at = httpdate::parse_http_date(text.trim()).ok()?;
            let at = at.duration_since(std::time::UNIX_EPOCH).ok()?;
            Some(at.saturating_sub(Duration::from_millis(now_unix_ms)))
        }
    });
    asked.map_or(Retry::Backoff, Retry::After)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification (standard-webhooks, `spec/standard-webhooks.md` and its libraries' tests).
    #[test]
    fn the_signature_is_that_of_the_specification() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let key = signing_key(&secret).unwrap();
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(
            signature(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn what_an_answer_asks_for() {
        // Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110.
        let date_s = 784_111_777;
        for (status, header, expected) in [
            (500, None, Retry::Backoff),
            (503, Some("120"), Retry::After(Duration::from_secs(120))),
            (429, Some("Sun, 06 Nov 1994 08:49:37 GMT"), Retry::After(Duration::from_secs(7))),
            (503, Some("soon"), Retry::Backoff),
            (429, None, Retry::Backoff),
            (400, Some("1"), Retry::Never),
            (404, None, Retry::Never),
            (302, None, Retry::Never),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(retry(status, header, (date_s - 7) * 1000), expected, "{status} {header:?}");
        }
    }

    #[test]
    fn urls_are_taken_apart_or_refused() {
        let target = Target::parse("https://[2001:db8::7]:8443/a?b=c").unwrap();
        assert_eq!((target.is_https, &*target.host, target.port), (true, "2001:db8::7", 8443));
        assert_eq!((&*target.authority, &*target.path), ("[2001:db8::7]:8443", "/a?b=c"));
        assert_eq!(Target::parse("http://a.example").unwrap().port, 80);
        for url in [
            "",
            "a.example/x",
            "ftp://a.example",
            "https://",
            "https:///x",
            "https://user:secret@a.example/",
            "https://a.example:99999/",
            "https://a.example:0/",
            "https://a.example/\r\nx: y",
            "https://a.example/a b",
        ] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
        assert!(Target::parse(&format!("https://a.example/{}", "x".repeat(3000))).is_err());
    }

    #[test]
    fn a_secret_that_was_made_is_a_key() {
        let secret = generate_secret().unwrap();
        assert_eq!(signing_key(&Secret::new(secret)).unwrap().len(), 32);
        for bad in ["", "whsec_", "whsec_AAAA", "whsec_*", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            assert!(signing_key(&Secret::new(bad)).is_none(), "{bad}");
        }
    }
}
