//! Who asks: found out once for each request, before anything else is.
//!
//! Three kinds are known. The owner, by the Unix socket that only he can open. A token, in the header `Authorization`, which no browser sends by itself. A user, by the cookie of a
//! login, which a browser sends with whatever any page makes it ask for; so what comes with a cookie has to show besides that it comes from our own pages: a change by
//! the login's token in `X-CSRF-Token`, everything by its `Origin` where there is one, and a WebSocket, which no other rule of browsers guards, by an `Origin` that
//! must be there. (For a GET of the same origin, event streams too, browsers send none.) Where a token is sent, the cookie does not count.
//!
//! On loopback the name in `Host` has to be one of ours: otherwise a page of another name, which its DNS server points at
//! 127.0.0.1 after it was loaded, would be of our origin. Authentication is around everything under `/api` and `/metrics`, also around paths that do not exist, so that a
//! stranger learns nothing; the browser interface itself is for anybody, and holds nothing.

use crate::events::now_unix_ms;
use crate::logins::{self, CookieHash};
use crate::request::{Failure, Principal};
use crate::{Shared, static_files};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use forebay_api::{Access, Code, Operation, Problem};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tokio::sync::Notify;

pub const COOKIE: &str = "forebay_session";
const CSRF: &str = "x-csrf-token";

/// How a request came in: the socket's owner needs no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    Socket,
    Http,
}

/// Where a connection comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(pub Option<IpAddr>);

/// Ends the connection that a request came over, also while nobody reads what is sent over it.
#[derive(Clone, Default)]
pub struct Hangup(Arc<Notify>);

impl Hangup {
    pub fn now(&self) {
        self.0.notify_one();
    }

    pub async fn wanted(&self) {
        self.0.notified().await;
    }
}

/// By what somebody is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Not at all: he may begin to be.
    Nobody,
    Socket,
    Token,
    User {
        id: String,
        login: CookieHash,
    },
}

/// How HTTP is reached, as far as requests have to fit it.
#[derive(Clone, Debug)]
pub struct Front {
    pub tls: bool,
    /// `HOST:PORT` for people, in links.
    pub authority: String,
    /// What `Host` may name besides a port, in lower case; `None`: whatever it likes.
    pub hosts: Option<Vec<String>>,
    /// Of a certificate that was given.
    pub certificate_ends_unix_ms: Option<u64>,
    /// Where our own authority's certificate is, and its SHA-256.
    pub certificate_authority: Option<(PathBuf, String)>,
}

/// Refuses, or finds out who asks and lets it go on.
pub async fn authenticate(
    State((shared, transport)): State<(Arc<Shared>, Transport)>,
    mut request: Request,
    next: Next,
) -> Response {
    if transport == Transport::Http
        && let Some(hosts) = &shared.front().hosts
        && !host_is_ours(request.headers(), hosts)
    {
        let remedy = "Use the address at which the daemon listens, or give the name to it with --http-name.";
        return Failure(
            Problem::new(Code::Forbidden, "the request is for a host of another name")
                .field("Host")
                .remedy(remedy),
        )
        .into_response();
    }
    if !static_files::is_api(request.uri().path()) {
        return next.run(request).await;
    }
    let principal = match transport {
        Transport::Socket => Ok(Some(Principal::owner())),
        Transport::Http => http_principal(&shared, &request),
    };
    let principal = match principal {
        Err(problem) => return Failure(problem).into_response(),
        Ok(Some(principal)) => principal,
        Ok(None) if is_open(&request) => Principal::nobody(),
        Ok(None) => return Failure(unauthenticated(request.headers())).into_response(),
    };
    request.extensions_mut().insert(principal);
    next.run(request).await
}

pub fn unauthenticated(headers: &HeaderMap) -> Problem {
    let (detail, field) = if headers.contains_key(header::AUTHORIZATION) {
        ("the token is unknown, revoked or expired", "Authorization")
    } else if cookie(headers).is_some() {
        ("the login has ended", "Cookie")
    } else {
        ("no token was sent", "Authorization")
    };
    Problem::new(Code::Unauthenticated, detail).field(field).remedy(
        "Log in, or make a token on the daemon's host with `forebay token create NAME` and send it as \
         `Authorization: Bearer SECRET` (the command line takes it from FOREBAY_TOKEN).",
    )
}

/// Whether it is for an operation that is for anybody.
fn is_open(request: &Request) -> bool {
    let (method, path) = (request.method().as_str(), request.uri().path());
    let method = if method == "HEAD" { "GET" } else { method };
    Operation::ALL.iter().any(|operation| {
        operation.is_open() && operation.path() == path && operation.method().name() == method
    })
}

/// Whoever a token or a cookie names. An error is a cookie that came in the wrong way.
fn http_principal(shared: &Shared, request: &Request) -> Result<Option<Principal>, Problem> {
    let headers = request.headers();
    if headers.contains_key(header::AUTHORIZATION) {
        let found = bearer(headers).and_then(|secret| shared.tokens.check(secret, now_unix_ms()));
        return Ok(found.map(|(name, access)| Principal { name, access, identity: Identity::Token }));
    }
    let Some(cookie) = cookie(headers) else { return Ok(None) };
    let login = logins::hash(cookie);
    let Some(id) = shared.logins().used(&login, shared.uptime_ms()) else { return Ok(None) };
    let users = shared.users.content();
    let Some(user) = users.users.iter().find(|user| user.id == id) else { return Ok(None) };
    check_origin(headers)?;
    if !matches!(*request.method(), Method::GET | Method::HEAD) && !is_open(request) {
        check_csrf(headers, cookie)?;
    }
    let identity = Identity::User { id, login };
    Ok(Some(Principal { name: user.name.clone(), access: user.role, identity }))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, secret) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

/// The login's cookie, the first of that name.
pub fn cookie(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, value)| *name == COOKIE && !value.is_empty()).map(|(_, value)| value)
}

fn refused(detail: &str, field: &str) -> Problem {
    Problem::new(Code::Forbidden, detail).field(field).remedy(
        "Send it from the daemon's own pages, or with a token in `Authorization` instead of the cookie.",
    )
}

fn check_csrf(headers: &HeaderMap, cookie: &str) -> Result<(), Problem> {
    let sent = headers.get(CSRF).map(|value| value.as_bytes()).unwrap_or_default();
    match bool::from(sent.ct_eq(logins::csrf(cookie).as_bytes())) {
        true => Ok(()),
        false => Err(refused("a change that comes with a cookie needs the login's token", "X-CSRF-Token")),
    }
}

/// What comes with a cookie comes from the page that the cookie is for.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    let is_websocket = text(header::UPGRADE).is_some_and(|kind| kind.eq_ignore_ascii_case("websocket"));
    let is_ours = match headers.get(header::ORIGIN) {
        None => !is_websocket,
        Some(origin) => {
            let origin = origin.to_str().unwrap_or_default();
            let host = origin.split_once("://").map(|(_, host)| host);
            host.is_some_and(|origin| {
                text(header::HOST).is_some_and(|host| host.eq_ignore_ascii_case(origin))
            })
        }
    };
    let is_cross_site =
        headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site" || site == "same-site");
    match is_ours && !is_cross_site {
        true => Ok(()),
        false => Err(refused("the request comes from a page of another origin", "Origin")),
    }
}

/// `Host` without its port is one of these.
fn host_is_ours(headers: &HeaderMap, ours: &[String]) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|value| value.to_str().ok()) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(host, |(address, _)| address),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    ours.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// The names under which a loopback listener is reached.
pub fn hosts_of(address: IpAddr, names: &[String]) -> Option<Vec<String>> {
    let fixed = ["localhost".to_string(), "127.0.0.1".into(), "::1".into(), address.to_string()];
    let names = names.iter().map(|name| name.to_ascii_lowercase());
    address.is_loopback().then(|| fixed.into_iter().chain(names).collect())
}

impl Principal {
    pub fn owner() -> Principal {
        Principal { name: "socket".into(), access: Access::Admin, identity: Identity::Socket }
    }

    /// May call what is open, and nothing else.
    pub fn nobody() -> Principal {
        Principal { name: "nobody".into(), access: Access::Viewer, identity: Identity::Nobody }
    }

    /// Unlike the name, nobody else's.
    pub fn unique(&self) -> String {
        match self.identity {
            Identity::Nobody | Identity::Socket => self.name.clone(),
            Identity::Token => format!("token {}", self.name),
            Identity::User { .. } => format!("user {}", self.name),
        }
    }
}

impl Shared {
    /// Whether somebody who was admitted still would be; for streams, which outlive the request that began them.
    pub fn is_still_admitted(&self, principal: &Principal) -> bool {
        match &principal.identity {
            Identity::Socket => true,
            Identity::Nobody => false,
            Identity::Token => self.tokens.list().iter().any(|token| {
                token.name == principal.name
                    && token.role == principal.access
                    && token.expires_unix_ms > now_unix_ms()
            }),
            Identity::User { login, .. } => self.logins().lasts(login, self.uptime_ms()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |&(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        for (value, found) in [
            ("forebay_session=abc", Some("abc")),
            ("theme=dark; forebay_session=abc; x=y", Some("abc")),
            ("theme=dark;forebay_session=abc", Some("abc")),
            ("forebay_session=", None),
            ("xforebay_session=abc", None),
            ("forebay_session", None),
            ("", None),
        ] {
            assert_eq!(cookie(&headers(&[("cookie", value)])), found, "{value}");
        }
        assert_eq!(cookie(&headers(&[])), None);
    }

    #[test]
    fn a_change_needs_the_login_s_own_token() {
        let right = logins::csrf("abc");
        check_csrf(&headers(&[("x-csrf-token", &right)]), "abc").unwrap();
        for wrong in ["", "abc", &logins::csrf("abd"), &right[1..], &right.to_uppercase()] {
            assert!(check_csrf(&headers(&[("x-csrf-token", wrong)]), "abc").is_err(), "{wrong}");
        }
        assert_eq!(check_csrf(&headers(&[]), "abc").unwrap_err().code, Code::Forbidden);
    }

    #[test]
    fn what_comes_with_a_cookie_comes_from_our_pages() {
        let host = ("host", "box:8080");
        for good in [
            vec![host],
            vec![host, ("origin", "http://box:8080")],
            vec![host, ("origin", "https://BOX:8080"), ("sec-fetch-site", "same-origin")],
            vec![host, ("upgrade", "websocket"), ("origin", "http://box:8080")],
        ] {
            check_origin(&headers(&good)).unwrap();
        }
        for bad in [
            vec![host, ("origin", "http://box:8081")],
            vec![host, ("origin", "http://evil")],
            vec![host, ("origin", "null")],
            vec![host, ("origin", "")],
            vec![host, ("upgrade", "WebSocket")],
            vec![host, ("sec-fetch-site", "cross-site")],
            vec![("origin", "http://box:8080")],
        ] {
            assert!(check_origin(&headers(&bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn on_loopback_only_our_own_names_are_answered() {
        let ours = hosts_of("127.0.0.2".parse().unwrap(), &["Box.Example".into()]).unwrap();
        for host in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:8080",
            "[::1]:8080",
            "[::1]",
            "127.0.0.2",
            "box.example:80",
        ] {
            assert!(host_is_ours(&headers(&[("host", host)]), &ours), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[evil]",
            "[::1",
        ] {
            assert!(!host_is_ours(&headers(&[("host", host)]), &ours), "{host}");
        }
        assert!(!host_is_ours(&headers(&[]), &ours));
        assert_eq!(hosts_of("192.0.2.1".parse().unwrap(), &[]), None);
    }
}
