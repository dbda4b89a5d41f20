//! How requests are read and answers written: bodies, queries, pages, problems.
//!
//! Nothing a client sends is taken without a limit: a body has [`BODY_BYTES_MAX`] and [`BODY_SECONDS_MAX`], a page
//! [`LIMIT_MAX`]. Whatever is wrong with a request becomes a problem document that names the field.

use crate::authentication::Identity;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_api::{Access, Code, Plan, Problem};
use forebay_base::Checksum;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Frame;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// The longest request names a thousand disks; a tenth of this would do for all that people send.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// A page with pictures and its figures, as JSON.
pub const REPORT_BODY_BYTES_MAX: usize = 10 << 20;
/// From the end of the header to the end of the body.
const BODY_SECONDS_MAX: u64 = 10;
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1000;
/// Long polls: below the minute after which proxies in between lose patience.
const WAIT_SECONDS_MAX: u64 = 60;

/// A body that is made while it is sent: pieces in the order in which they come, until their source has gone.
pub struct Pieces(pub mpsc::Receiver<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;
    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// A problem on its way to the client.
#[derive(Debug)]
pub struct Failure(pub Problem);

pub type Answered = Result<Response, Failure>;

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure(problem)
    }
}

impl From<forebay_pool::Error> for Failure {
    fn from(error: forebay_pool::Error) -> Failure {
        Failure(crate::convert::problem(error))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).expect("a code's status is an HTTP status");
        let mut response = json(status, &self.0);
        response.extensions_mut().insert(Failed(self.0.code));
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Who asks, as found out by the server.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The user's or token's name; `socket` for the owner on the Unix socket.
    pub name: String,
    pub access: Access,
    pub identity: Identity,
}

/// With an answer: who it was, when only the request itself told.
#[derive(Clone)]
pub struct By(pub String);

/// With an answer, for the audit log: nothing came of the request. Also with one whose status says that it was answered.
#[derive(Clone, Copy)]
pub struct Failed(pub Code);

pub fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    let body = serde_json::to_vec(value).expect("the API's objects are plain data");
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body).into_response()
}

pub fn ok<T: Serialize>(value: &T) -> Answered {
    Ok(json(StatusCode::OK, value))
}

/// 201 or 202 with the place of the new object.
pub fn made<T: Serialize>(status: StatusCode, place: &str, value: &T) -> Answered {
    let mut response = json(status, value);
    let place = HeaderValue::from_str(place).expect("places are percent-encoded");
    response.headers_mut().insert(header::LOCATION, place);
    Ok(response)
}

/// Adds an ETag, quotes included.
pub fn tagged(mut response: Response, tag: &str) -> Response {
    let tag = HeaderValue::from_str(tag).expect("tags are visible ASCII");
    response.headers_mut().insert(header::ETAG, tag);
    response
}

/// The ETag of an object that has no number of its own for it: a hash of its identity and `spec`.
pub fn tag_of_spec(id: &str, name: &str, spec: &impl Serialize) -> String {
    let identity = serde_json::to_vec(&(id, name, spec)).expect("plain data");
    format!("\"{:016x}\"", Checksum::of(&identity).0 as u64)
}

/// The ETag of bytes that never change while the program runs.
pub fn tag_of_bytes(bytes: &[u8]) -> String {
    format!("\"{:016x}\"", Checksum::of(bytes).0 as u64)
}

/// RFC 9110, section 13.1.1: strong comparison, a list or `*`. `tag` is that of the object as it is, `kind` what it is.
pub fn check_precondition(headers: &HeaderMap, tag: &str, kind: &str, name: &str) -> Result<(), Problem> {
    let Some(wanted) = headers.get(header::IF_MATCH) else { return Ok(()) };
    let wanted = wanted.to_str().unwrap_or_default();
    if wanted.trim() == "*" || wanted.split(',').any(|candidate| candidate.trim() == tag) {
        return Ok(());
    }
    Err(Problem::new(Code::PreconditionFailed, format!("the {kind} has changed: If-Match has another ETag"))
        .object(name)
        .field("If-Match")
        .remedy(format!("Read the {kind} again, check that the change still fits, and send the new ETag.")))
}

/// The answer to a dry run.
pub fn plan(action: &str, object: &str, changes: Vec<String>) -> Answered {
    ok(&Plan { action: action.into(), object: object.into(), changes })
}

/// Reads a whole body, within the limits.
pub async fn collect(body: Body, most: usize) -> Result<Bytes, Problem> {
    let reading = Limited::new(body, most).collect();
    let late =
        || Problem::new(Code::Timeout, format!("the body did not arrive within {BODY_SECONDS_MAX} seconds"));
    let read =
        tokio::time::timeout(Duration::from_secs(BODY_SECONDS_MAX), reading).await.map_err(|_| late())?;
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Problem::new(Code::TooLarge, format!("the body is larger than {most} bytes"))
                .remedy("No request of this kind is that large."))
        }
        Err(_) => Err(Problem::new(Code::Invalid, "the connection broke in the middle of the body")),
    }
}

/// A JSON body.
pub struct Input<T>(pub T);

impl<S: Sync, T: DeserializeOwned + Serialize> FromRequest<S> for Input<T> {
    type Rejection = Failure;
    async fn from_request(request: Request, _: &S) -> Result<Input<T>, Failure> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|value| value.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            return Err(Problem::new(
                Code::UnsupportedMediaType,
                "the body must be JSON and say so in its Content-Type",
            )
            .field("Content-Type")
            .remedy("Send it with Content-Type: application/json.")
            .into());
        }
        // It is in memory by now, within its limit.
        let bytes = collect(request.into_body(), REPORT_BODY_BYTES_MAX).await?;
        parse(&bytes).map(Input).map_err(Failure)
    }
}

/// A value of the API, and nothing but it.
pub fn parse<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value: T = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        // The path of a missing or unknown field ends at its parent; the message has the name in backquotes.
        let message = error.inner().to_string();
        let mut field = error.path().to_string().trim_matches('.').to_string();
        if (message.starts_with("missing field") || message.starts_with("unknown field"))
            && let Some(name) = message.split('`').nth(1)
            && field.rsplit('.').next() != Some(name)
        {
            field = if field.is_empty() { name.to_string() } else { format!("{field}.{name}") };
        }
        Problem::new(Code::Invalid, format!("the body does not fit this operation: {message}"))
            .field(field)
            .remedy("docs/reference/openapi.json has the fields and their types.")
    })?;
    reader.end().map_err(|_| Problem::new(Code::Invalid, "the body continues after the JSON value"))?;
    // serde also takes a list for an object, as the values of its fields in the order of our source.
    let sent =
        serde_json::from_slice(bytes).map_err(|_| Problem::new(Code::Invalid, "the body is not JSON"))?;
    let meant = serde_json::to_value(&value).expect("the API's objects are plain data");
    match list_for_object(&sent, &meant, String::new()) {
        None => Ok(value),
        Some(field) => Err(Problem::new(Code::Invalid, "this is a list, but must be an object")
            .field(field)
            .remedy("docs/reference/openapi.json has the fields and their types.")),
    }
}

/// Where a list was taken for an object. What is as sent has the shape of what it was made of.
fn list_for_object(sent: &Value, meant: &Value, at: String) -> Option<String> {
    match (sent, meant) {
        (Value::Array(_), Value::Object(_)) => Some(at),
        (Value::Object(sent), Value::Object(meant)) => sent.iter().find_map(|(name, sent)| {
            let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            list_for_object(sent, meant.get(name)?, at)
        }),
        (Value::Array(sent), Value::Array(meant)) => {
            let mut pairs = sent.iter().zip(meant).enumerate();
            pairs.find_map(|(nth, (sent, meant))| list_for_object(sent, meant, format!("{at}[{nth}]")))
        }
        _ => None,
    }
}

/// Everything that may stand in a query. Unknown parameters are refused: a misspelt `dry_run` must not be the real thing.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    pub limit: Option<usize>,
    pub cursor: Option<String>,
    pub filter: Option<String>,
    pub sort: Option<String>,
    pub pool: Option<String>,
    pub after: Option<u64>,
    pub wait_seconds: Option<u64>,
    #[serde(default)]
    pub dry_run: bool,
    pub volume: Option<String>,
    pub host: Option<String>,
    #[serde(default)]
    pub unmap: bool,
    #[serde(default)]
    pub with_snapshots: bool,
    #[serde(default)]
    pub purge: bool,
    #[serde(default)]
    pub force: bool,
    pub from: Option<String>,
    pub resume: Option<String>,
    #[serde(default)]
    pub discard_changes: bool,
    #[serde(default)]
    pub best_effort: bool,
    pub seconds: Option<u64>,
}

impl<S: Sync> FromRequestParts<S> for Ask {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Ask, Failure> {
        let Query(ask): Query<Ask> = Query::try_from_uri(&parts.uri).map_err(|error| {
            let message = error.body_text();
            let field = message.split('`').nth(1).unwrap_or_default().to_string();
            Problem::new(Code::Invalid, format!("the query is wrong: {message}"))
                .field(field)
                .remedy("docs/reference/openapi.json has the parameters of each operation.")
        })?;
        if ask.limit.is_some_and(|limit| !(1..=LIMIT_MAX).contains(&limit)) {
            return Err(Problem::new(Code::Invalid, "limit is out of range")
                .field("limit")
                .remedy("Give 1 to 1000, and follow next_cursor for more.")
                .into());
        }
        if ask.wait_seconds.is_some_and(|seconds| seconds > WAIT_SECONDS_MAX) {
            return Err(Problem::new(Code::Invalid, "wait_seconds is out of range")
                .field("wait_seconds")
                .remedy("Give at most 60, and ask again.")
                .into());
        }
        Ok(ask)
    }
}

impl Ask {
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(LIMIT_DEFAULT)
    }
    pub fn wait(&self) -> Duration {
        Duration::from_secs(self.wait_seconds.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::{PoolCreate, VolumeCreate};

    fn wrong_field<T: DeserializeOwned + Serialize>(text: &str) -> String {
        let problem = parse::<T>(text.as_bytes()).err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert_eq!(problem.code, Code::Invalid);
        problem.field.unwrap_or_default()
    }

    #[test]
    fn the_wrong_field_is_named() {
        assert_eq!(wrong_field::<VolumeCreate>(r#"{"size_bytes":1}"#), "name");
        assert_eq!(wrong_field::<VolumeCreate>(r#"{"name":1,"size_bytes":1}"#), "name");
        assert_eq!(wrong_field::<VolumeCreate>(r#"{"name":"a/b","size_bytes":-1}"#), "size_bytes");
        assert_eq!(wrong_field::<VolumeCreate>(r#"{"name":"a/b","size_bytes":1,"sise":2}"#), "sise");
        assert_eq!(wrong_field::<VolumeCreate>(r#"{"name":"a/b","size_bytes":1,"sync":"x"}"#), "sync");
        let text = r#"{"name":"a","layout":"mirror","disks":["/a",7]}"#;
        assert_eq!(wrong_field::<PoolCreate>(text), "disks[1]");
        for text in ["", "{", "[]", "null", "{} {}", "\u{0}"] {
            wrong_field::<VolumeCreate>(text);
        }
        let deep = "[".repeat(100_000);
        wrong_field::<VolumeCreate>(&deep);
    }

    #[test]
    fn a_list_is_not_taken_for_the_fields_in_their_order() {
        for text in ["[]", "[null, null]", " \n[null]", r#"["sheet"]"#] {
            wrong_field::<forebay_api::PoolSet>(text);
            wrong_field::<forebay_api::VolumeMove>(text);
        }
        parse::<forebay_api::PoolSet>(b" {}").unwrap();
        // Also deeper down.
        let chap = r#"{"name":"esx1","initiators":["iqn.1998-01.com.vmware:esx1"],"chap":["esx1","a secret of some length"]}"#;
        assert_eq!(wrong_field::<forebay_api::HostCreate>(chap), "chap");
        let graph = r#"{"name":"sheet","spec":{"seconds":60,"graphs":[["nbd.ops","title",3]]}}"#;
        assert_eq!(wrong_field::<forebay_api::WorksheetCreate>(graph), "spec.graphs[0]");
    }

    #[tokio::test]
    async fn bodies_are_limited() {
        assert_eq!(
            collect(Body::from(vec![0; BODY_BYTES_MAX]), BODY_BYTES_MAX).await.unwrap().len(),
            BODY_BYTES_MAX
        );
        let problem = collect(Body::from(vec![0; BODY_BYTES_MAX + 1]), BODY_BYTES_MAX).await.unwrap_err();
        assert_eq!(problem.code, Code::TooLarge);
    }
}
