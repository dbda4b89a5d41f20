//! Who asks: found out once for each request, before anything else is.
//!
//! Three kinds are known. The owner, by the Unix socket that only the owner can open. A token, in the header `Authorization`, which no browser sends by itself. A user, by the cookie of a
//! login, which a browser sends with whatever any page makes it ask for; so what comes with a cookie has to show besides that it comes from our own pages: a change by
//! the login's token in `X-CSRF-Token`, everything by its `Origin` where there is one, and a WebSocket, which no other rule of browsers guards, by an `Origin` that
//! must be there. (For a GET of the same origin, event streams too, browsers send none.) Where a token is sent, the cookie does not count.
//!
//! On loopback the name in `Host` has to be one of ours: otherwise a page of another name, which its DNS server points at
//! 127.0.0.1 after it was loaded, would be of our origin. Authentication is around everything under `/api` and `/metrics`, also around paths that do not exist, so that a
//! stranger learns nothing; the browser interface itself is for any client, and holds nothing.

use crate::connections::Place;
use crate::events::now_unix_ms;
use crate::logins::{self, CookieHash};
use crate::request::{Failure, Principal};
use crate::{Shared, static_files};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use forebay_api::{Access, Code, Operation, Problem};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::time::timeout;

/// The login's cookie on plain HTTP, and on HTTPS: browsers take the latter only from HTTPS and for this very host.
const COOKIE: &str = "forebay_session";
const COOKIE_TLS: &str = "__Host-forebay_session";
const CSRF: &str = "x-csrf-token";
/// How often it is looked whether a token or login has come to its end.
const ADMISSION_LOOK: Duration = Duration::from_secs(1);

/// How a request came in: the socket's owner needs no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    Socket,
    Http,
}

/// Where a connection comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peer {
    Address(IpAddr),
    /// The owner's socket, and who is behind it in words.
    Socket(Arc<str>),
}

impl Peer {
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Peer::Address(address) => Some(*address),
            Peer::Socket(_) => None,
        }
    }
}

/// How a principal is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Not at all; open operations can change that.
    Nobody,
    Socket,
    Token {
        id: String,
    },
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
    if let Err(problem) = check_target(request.uri(), request.headers()) {
        return Failure(problem).into_response();
    }
    if transport == Transport::Http
        && let Some(hosts) = &shared.front().hosts
        && !host_is_ours(request.headers(), hosts)
    {
        let remedy = "Use the address at which the daemon listens, or add the name with --http-name.";
        return Failure(
            Problem::new(Code::Forbidden, "the request is for a host name that is not this daemon's")
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
        Ok(Some(principal)) => {
            if let Some(place) = request.extensions().get::<Place>() {
                place.set_known();
            }
            principal
        }
        Ok(None) if is_open(&request) => Principal::nobody(),
        Ok(None) => return Failure(unauthenticated(request.headers())).into_response(),
    };
    request.extensions_mut().insert(principal);
    next.run(request).await
}

pub fn unauthenticated(headers: &HeaderMap) -> Problem {
    let (detail, field) = if headers.contains_key(header::AUTHORIZATION) {
        ("the token is unknown, revoked or expired", "Authorization")
    } else if [COOKIE, COOKIE_TLS].iter().any(|name| cookies(headers, name).next().is_some()) {
        ("the login has ended", "Cookie")
    } else {
        ("no token was sent", "Authorization")
    };
    Problem::new(Code::Unauthenticated, detail).field(field).remedy(
        "Log in. Or create a token on the daemon's host with `forebay token create NAME`, and send it as `Authorization: Bearer SECRET` (the \
         command line reads it from FOREBAY_TOKEN).",
    )
}

/// Whether it is for an open operation.
fn is_open(request: &Request) -> bool {
    let (method, path) = (request.method().as_str(), request.uri().path());
    let method = if method == "HEAD" { "GET" } else { method };
    Operation::ALL.iter().any(|operation| {
        operation.is_open() && operation.path() == path && operation.method().name() == method
    })
}

/// The principal that a token or a cookie names. An error is a cookie that came in the wrong way.
fn http_principal(shared: &Shared, request: &Request) -> Result<Option<Principal>, Problem> {
    let headers = request.headers();
    if headers.contains_key(header::AUTHORIZATION) {
        let found = bearer(headers).and_then(|secret| shared.tokens.check(secret, now_unix_ms()));
        return Ok(found.map(|token| Principal {
            name: token.name,
            access: token.role,
            identity: Identity::Token { id: token.id },
        }));
    }
    let Some(cookie) = cookie(headers, shared.front().tls)? else { return Ok(None) };
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

/// What the login's cookie is called.
pub fn cookie_name(tls: bool) -> &'static str {
    if tls { COOKIE_TLS } else { COOKIE }
}

/// The values of the cookies of a name.
fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(move |(known, value)| *known == name && !value.is_empty()).map(|(_, value)| value)
}

/// The login's cookie. Which of two was ours is not to be seen: another server on this host, on another port, can set one of this name.
pub fn cookie(headers: &HeaderMap, tls: bool) -> Result<Option<&str>, Problem> {
    let name = cookie_name(tls);
    let mut found = cookies(headers, name);
    let cookie = found.next();
    match found.next() {
        None => Ok(cookie),
        Some(_) => {
            Err(Problem::new(Code::Invalid, format!("the request has several cookies `{name}`")).field("Cookie").remedy(
                "Remove this site's cookies in the browser and log in again. Another server on this host may have set one.",
            ))
        }
    }
}

/// One host, named once: a proxy or a filter in front may have read another than we do.
fn check_target(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let wrong = |detail: &str| {
        Problem::new(Code::Invalid, detail)
            .field("Host")
            .remedy("Send one `Host` header, and a path or a URI of the same host.")
    };
    let mut hosts = headers.get_all(header::HOST).into_iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(wrong("the request has more than one `Host` header"));
    }
    let Some(authority) = uri.authority() else { return Ok(()) };
    let port = if uri.scheme_str() == Some("https") { ":443" } else { ":80" };
    let plain = |text: &str| text.strip_suffix(port).unwrap_or(text).to_ascii_lowercase();
    let host = host.and_then(|host| host.to_str().ok());
    match host.is_some_and(|host| plain(host) == plain(authority.as_str())) {
        true => Ok(()),
        false => Err(wrong("the URI of the request names another host than its `Host` header")),
    }
}

fn refused(detail: &str, field: &str) -> Problem {
    Problem::new(Code::Forbidden, detail).field(field).remedy(
        "Send the request from the daemon's own pages, or with a token in `Authorization` instead of the cookie.",
    )
}

fn check_csrf(headers: &HeaderMap, cookie: &str) -> Result<(), Problem> {
    let sent = headers.get(CSRF).map(|value| value.as_bytes()).unwrap_or_default();
    match bool::from(sent.ct_eq(logins::csrf(cookie).as_bytes())) {
        true => Ok(()),
        false => Err(refused("a change with a cookie needs the login's CSRF token", "X-CSRF-Token")),
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
        Principal { name: "anonymous".into(), access: Access::Viewer, identity: Identity::Nobody }
    }

    /// Unlike the name, unique.
    pub fn unique(&self) -> String {
        match self.identity {
            Identity::Nobody | Identity::Socket => self.name.clone(),
            Identity::Token { .. } => format!("token {}", self.name),
            Identity::User { .. } => format!("user {}", self.name),
        }
    }
}

impl Shared {
    /// Whether an admitted principal still would be.
    fn is_still_admitted(&self, principal: &Principal) -> bool {
        match &principal.identity {
            // What strangers may ask for they may go on with.
            Identity::Socket | Identity::Nobody => true,
            Identity::Token { id } => self.tokens.lasts(id, now_unix_ms()),
            Identity::User { login, .. } => self.logins().lasts(login, self.uptime_ms()),
        }
    }

    /// A token or login was ended, or may have been: its requests are checked again.
    pub fn admissions_changed(&self) {
        self.admissions.send_replace(());
    }

    /// Until an admitted principal no longer is: a token was revoked, or a login has ended. For answers that take their time.
    pub async fn dismissed(self: Arc<Self>, principal: Principal) {
        let mut changed = self.admissions.subscribe();
        while self.is_still_admitted(&principal) {
            // Both also end by themselves, and that is not told.
            let _ = timeout(ADMISSION_LOOK, changed.changed()).await;
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
            assert_eq!(cookie(&headers(&[("cookie", value)]), false).unwrap(), found, "{value}");
        }
        assert_eq!(cookie(&headers(&[]), false).unwrap(), None);
        let both = headers(&[("cookie", "forebay_session=abc; __Host-forebay_session=def")]);
        assert_eq!(cookie(&both, false).unwrap(), Some("abc"));
        assert_eq!(cookie(&both, true).unwrap(), Some("def"));
    }

    #[test]
    fn of_two_cookies_of_the_name_none_counts() {
        for tls in [false, true] {
            let name = cookie_name(tls);
            let twice = format!("{name}=abc; theme=dark; {name}=def");
            let one_header = headers(&[("cookie", &twice)]);
            let mut two_headers = headers(&[("cookie", &format!("{name}=abc"))]);
            two_headers.append("cookie", HeaderValue::from_str(&format!("{name}=abc")).unwrap());
            for headers in [one_header, two_headers] {
                let problem = cookie(&headers, tls).unwrap_err();
                assert_eq!((problem.code, problem.field.as_deref()), (Code::Invalid, Some("Cookie")));
            }
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let check = |uri: &str, hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append("host", HeaderValue::from_str(host).unwrap());
            }
            check_target(&uri.parse().unwrap(), &headers).is_ok()
        };
        for (uri, host) in [
            ("/", "box:8080"),
            ("http://box:8080/api", "BOX:8080"),
            ("http://box/", "box:80"),
            ("https://box:443/", "box"),
        ] {
            assert!(check(uri, &[host]), "{uri} {host}");
        }
        assert!(check("/", &[]), "what has none is for the next check");
        for (uri, hosts) in [
            ("/", &["box:8080", "box:8080"][..]),
            ("/", &["box:8080", "evil"]),
            ("http://evil/", &["box:8080"]),
            ("http://box:8080/", &["box:8081"]),
            ("http://evil@box:8080/", &["box:8080"]),
            ("http://box:8080/", &[]),
        ] {
            assert!(!check(uri, hosts), "{uri} {hosts:?}");
        }
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
