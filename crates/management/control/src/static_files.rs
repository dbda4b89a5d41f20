//! The browser interface and, under `/docs`, the documentation: files that the program has in it.
//!
//! They are for any client, because they hold nothing but the interface. Names under `/assets` carry a hash of their content, so they are kept by browsers for ever; the rest is asked for again each time and
//! answered with 304 when it has not changed. A path without a dot is a place inside the interface and gives its first page. Nothing is looked up on a disk: a
//! path is a key of a table, and one that is not in it is not found, whatever dots and slashes it has.

use crate::request::{Failure, tag_of_bytes};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_api::{Code, Problem};

/// A file of the interface.
pub struct File {
    /// Below the root, as in URLs: `assets/index-1a2b.js`.
    pub path: &'static str,
    pub bytes: &'static [u8],
}

/// What is served.
pub struct Interface {
    /// Sorted by path.
    files: &'static [File],
    /// The hash of each, quoted.
    tags: Vec<String>,
}

const INDEX: &str = "index.html";
/// The documentation, a site of its own (`web/docs`).
const DOCS: &str = "docs/";
const DOCS_INDEX: &str = "docs/index.html";
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// What a page may do: load from here, and nothing from elsewhere; no inline scripts; in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Whether a path needs a known principal.
pub fn is_api(path: &str) -> bool {
    ["/api", "/metrics"]
        .iter()
        .any(|prefix| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// A year, as is usual. Browsers heed it only where they trust the certificate, and not for addresses.
const ONLY_HTTPS: &str = "max-age=31536000";

/// On every answer, also those of the API: a browser that is led to one must not run it, and one that came by HTTPS must not come without again.
pub fn secure(headers: &mut HeaderMap, tls: bool) {
    if tls {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(ONLY_HTTPS));
    }
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        // What is stricter stays.
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

impl Interface {
    pub fn new(files: &'static [File]) -> Interface {
        Interface { files, tags: files.iter().map(|file| tag_of_bytes(file.bytes)).collect() }
    }

    /// A file, or why not.
    pub fn answer(&self, request: &Request) -> Response {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Failure(
                Problem::new(Code::MethodNotAllowed, format!("{} is not allowed here", request.method()))
                    .remedy("The API is under /api/v1."),
            )
            .into_response();
        }
        let path = request.uri().path().trim_start_matches('/');
        if path == DOCS.trim_end_matches('/') {
            // Pages name each other relative to where they are.
            return (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, format!("/{DOCS}"))])
                .into_response();
        }
        match self.find(path) {
            Some(at) => self.file(at, request.headers()),
            None => {
                let shown: String = path.chars().take(200).collect();
                Failure(
                    Problem::new(Code::NotFound, format!("there is nothing at /{shown}"))
                        .remedy("The interface is at /, the API under /api/v1."),
                )
                .into_response()
            }
        }
    }

    /// The file for a path without its first slash. Files have a dot in their last part; the rest are places inside the interface.
    fn find(&self, path: &str) -> Option<usize> {
        let known = |path| self.files.binary_search_by(|file| file.path.cmp(path)).ok();
        if path == DOCS {
            return known(DOCS_INDEX);
        }
        let is_place = !path.rsplit('/').next().unwrap_or_default().contains('.') && !path.starts_with(DOCS);
        known(path).or_else(|| is_place.then(|| known(INDEX)).flatten())
    }

    fn file(&self, at: usize, asked: &HeaderMap) -> Response {
        let (file, tag) = (&self.files[at], &self.tags[at]);
        let is_kept = file.path.starts_with("assets/");
        let cache = if is_kept { FOR_EVER } else { "no-cache" };
        let headers = [
            (header::CONTENT_TYPE, kind(file.path)),
            (header::CACHE_CONTROL, cache),
            (header::ETAG, tag.as_str()),
        ];
        let seen = asked.get(header::IF_NONE_MATCH).and_then(|seen| seen.to_str().ok()).unwrap_or_default();
        let is_seen = seen.split(',').any(|seen| seen.trim().trim_start_matches("W/") == tag);
        match is_seen {
            true => (StatusCode::NOT_MODIFIED, headers).into_response(),
            false => (headers, Body::from(file.bytes)).into_response(),
        }
    }
}

fn kind(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &[File] = &[
        File { path: "assets/a-1.js", bytes: b"1" },
        File { path: "docs/index.html", bytes: b"2" },
        File { path: INDEX, bytes: b"3" },
    ];

    #[test]
    fn places_give_the_first_page_and_files_themselves_or_nothing() {
        let interface = Interface::new(FILES);
        let find = |path: &str| interface.find(path);
        for path in ["", "volumes", "pools/tank", "a/b/c/"] {
            assert_eq!(find(path), Some(2), "{path}");
        }
        assert_eq!((find("docs/"), find("assets/a-1.js")), (Some(1), Some(0)));
        for path in [
            "nothing.js",
            "docs/nothing",
            "assets/nothing.css",
            "../Cargo.toml",
            "..",
            "a/..",
            "%2e%2e/etc/passwd.txt",
            "assets/../../x.y",
        ] {
            assert_eq!(find(path), None, "{path}");
        }
    }

    #[test]
    fn only_the_interface_is_for_anybody() {
        for path in ["/api", "/api/", "/api/v1/pools", "/metrics", "/metrics/x"] {
            assert!(is_api(path), "{path}");
        }
        for path in ["/", "/apis", "/metricsx", "/assets/api/x.js", "//api/v1/pools"] {
            assert!(!is_api(path), "{path}");
        }
    }
}
