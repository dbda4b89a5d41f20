//! Talks to the daemon: one request per connection, over the owner's Unix socket or over HTTP with a token.
//!
//! It knows the API's table of operations and nothing of the daemon's inside. Answers are bounded in size and time, so
//! that a wrong address cannot hang a script or fill its memory; streams, which are as long as they are, by the time in which nothing moves.

use crate::failure::{Exit, Failure};
use crate::tls;
use forebay_api::{Operation, Page, Problem, encode_segment};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;

const CONNECT_SECONDS_MAX: u64 = 5;
/// Twice the longest that the daemon lets a request wait.
const ANSWER_SECONDS_MAX: u64 = 120;
const ANSWER_BYTES_MAX: usize = 64 << 20;
const PAGE_ITEMS: usize = 1000;
/// Longer than the daemon waits for either side of a stream.
const STREAM_SECONDS_MAX: u64 = 360;
/// Of a stream to the daemon, what is read at once, and how many such pieces wait.
const PIECE_BYTES: usize = 256 << 10;
const PIECES_MAX: usize = 4;

/// Whom to trust.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// A file with authorities; without it, the system's.
    pub ca: Option<String>,
}

/// Where the daemon is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    Socket(PathBuf),
    Http {
        /// `HOST:PORT`.
        authority: String,
        token: Option<String>,
        /// How it is reached over TLS, if it is.
        tls: Option<Tls>,
    },
}

impl Target {
    /// A data directory named on the command line wins, then `FOREBAY_URL`, then `FOREBAY_DATA` and the default.
    pub fn choose(
        data: Option<&Path>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Target, Failure> {
        let wanted = |name| environment(name).filter(|value| !value.is_empty());
        if data.is_none()
            && let Some(url) = wanted("FOREBAY_URL")
        {
            return Target::parse(&url, wanted("FOREBAY_TOKEN"), wanted("FOREBAY_CA"));
        }
        let data = data.map(Path::to_path_buf).unwrap_or_else(|| crate::data_directory(None, &environment));
        Ok(Target::Socket(data.join("forebay.sock")))
    }

    fn parse(url: &str, token: Option<String>, ca: Option<String>) -> Result<Target, Failure> {
        let wrong =
            |detail: &str, remedy: &str| Err(Failure::new(Exit::Usage, detail, remedy).object("FOREBAY_URL"));
        let Ok(uri) = url.parse::<Uri>() else {
            return wrong("it is not a URL", "Write it like http://127.0.0.1:8080.");
        };
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => (Some(Tls { ca }), 443),
            _ => {
                return wrong(
                    "it begins with neither http:// nor https://",
                    "Write it like http://127.0.0.1:8080.",
                );
            }
        };
        if !uri.path().trim_end_matches('/').is_empty() || uri.query().is_some() {
            return wrong("it has a path", "Write only scheme, host and port, like http://127.0.0.1:8080.");
        }
        let Some(authority) = uri.authority().filter(|authority| !authority.as_str().contains('@')) else {
            return wrong("it has no host, or it has a user name", "Write it like http://127.0.0.1:8080.");
        };
        let authority = match authority.port() {
            Some(_) => authority.to_string(),
            None => format!("{authority}:{port}"),
        };
        Ok(Target::Http { authority, token, tls })
    }

    /// Paths of disks are the daemon's: on the same host they may be written relative to here.
    pub fn is_local(&self) -> bool {
        matches!(self, Target::Socket(_))
    }

    /// Why there is no connection.
    fn refused(&self, error: std::io::Error) -> Failure {
        match self {
            Target::Socket(path) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let remedy =
                    "Run the command as the user of the daemon, or over HTTP with FOREBAY_URL and a token.";
                Failure::new(Exit::Denied, "this user may not use the daemon's socket", remedy)
                    .object(path.display().to_string())
            }
            _ => self.unreachable(error),
        }
    }

    fn unreachable(&self, why: impl std::fmt::Display) -> Failure {
        let (object, remedy) = match self {
            Target::Socket(path) => (
                path.display().to_string(),
                "Start it with `forebay serve --data DIR`, or name its data directory with --data or FOREBAY_DATA.",
            ),
            Target::Http { authority, .. } => {
                (authority.clone(), "Check FOREBAY_URL, and that the daemon runs there.")
            }
        };
        Failure::new(Exit::Unreachable, format!("the daemon does not answer: {why}"), remedy).object(object)
    }
}

/// Of a stream that ended before it was whole.
pub const BROKEN_OFF: &str = "the daemon interrupted the stream";

/// A request to make.
#[derive(Clone)]
pub struct Call<'a> {
    pub operation: Operation,
    /// The object in the path.
    pub name: &'a str,
    pub query: Vec<(&'static str, String)>,
    pub body: Option<serde_json::Value>,
    pub if_match: Option<String>,
}

impl<'a> Call<'a> {
    pub fn new(operation: Operation) -> Call<'a> {
        Call::of(operation, "")
    }
    pub fn of(operation: Operation, name: &'a str) -> Call<'a> {
        Call { operation, name, query: Vec::new(), body: None, if_match: None }
    }
    pub fn query(mut self, name: &'static str, value: impl ToString) -> Call<'a> {
        self.query.push((name, value.to_string()));
        self
    }
    pub fn force(self, force: bool) -> Call<'a> {
        if force { self.query("force", true) } else { self }
    }
    pub fn best_effort(self, best_effort: bool) -> Call<'a> {
        if best_effort { self.query("best_effort", true) } else { self }
    }
    pub fn dry_run(self, dry_run: bool) -> Call<'a> {
        if dry_run { self.query("dry_run", true) } else { self }
    }
    pub fn body(mut self, body: &impl Serialize) -> Call<'a> {
        self.body = Some(serde_json::to_value(body).expect("the API's objects are plain data"));
        self
    }

    /// Only if the object is still as it was in that answer.
    pub fn if_seen(mut self, seen: &Answer) -> Call<'a> {
        self.if_match = seen.headers.get("etag").and_then(|tag| tag.to_str().ok()).map(str::to_string);
        self
    }

    fn path(&self) -> String {
        let mut path = self.operation.path_of(self.name);
        for (index, (name, value)) in self.query.iter().enumerate() {
            path.push(if index == 0 { '?' } else { '&' });
            path.push_str(name);
            path.push('=');
            path.push_str(&encode_segment(value));
        }
        path
    }
}

/// What came back.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// Itself; a problem document becomes a failure.
    fn success(self) -> Result<Answer, Failure> {
        if self.status.is_success() {
            return Ok(self);
        }
        match serde_json::from_slice::<Problem>(&self.body) {
            Ok(problem) => Err(problem.into()),
            Err(_) => Err(Failure::new(
                Exit::Failed,
                format!("the daemon answered {} without a reason", self.status),
                "Check that FOREBAY_URL names a Forebay daemon.",
            )),
        }
    }

    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("the daemon's answer cannot be parsed: {error}"),
                "Check that the daemon and this command have the same version.",
            )
        })
    }
}

/// The daemon, as far as a client sees it.
pub struct Client {
    target: Target,
    runtime: Runtime,
}

impl Client {
    pub fn new(target: Target) -> Result<Client, Failure> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
                Failure::new(Exit::Failed, format!("the event loop cannot be started: {error}"), "")
            })?;
        Ok(Client { target, runtime })
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Makes a call; a problem document becomes a failure.
    pub fn call(&self, call: Call<'_>) -> Result<Answer, Failure> {
        let body = call.body.as_ref().map(|value| value.to_string()).unwrap_or_default();
        let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed();
        let answering = async { self.answer(self.exchange(&call, body).await?).await };
        let late = |_| self.target.unreachable("no answer in time");
        let exchange =
            async { timeout(Duration::from_secs(ANSWER_SECONDS_MAX), answering).await.map_err(late)? };
        self.runtime.block_on(exchange)?.success()
    }

    /// Makes a call that is answered with a stream, which goes to `sink`; how many bytes it has.
    pub fn download(&self, call: Call<'_>, sink: &mut impl Write) -> Result<u64, Failure> {
        let silent = || self.target.unreachable("the stream has stalled");
        let failed = |error: io::Error| {
            let remedy = "To resume a snapshot's stream, use the token that `forebay snapshot receives` shows at the receiver.";
            Failure::new(Exit::Failed, format!("the stream cannot be written: {error}"), remedy)
        };
        let patience = Duration::from_secs(STREAM_SECONDS_MAX);
        self.runtime.block_on(async {
            let body = Full::new(Bytes::new()).map_err(|never| match never {}).boxed();
            let response = timeout(patience, self.exchange(&call, body)).await.map_err(|_| silent())??;
            if !response.status().is_success() {
                return self.answer(response).await?.success().map(|_| 0);
            }
            let (mut body, mut bytes) = (response.into_body(), 0);
            while let Some(frame) = timeout(patience, body.frame()).await.map_err(|_| silent())? {
                let frame = frame.map_err(|_| {
                    let remedy = "See `forebay event list` on the daemon's host for the reason. Then resume the stream (`--resume`).";
                    Failure::new(Exit::Failed, BROKEN_OFF, remedy)
                })?;
                if let Some(data) = frame.data_ref() {
                    sink.write_all(data).map_err(failed)?;
                    bytes += data.len() as u64;
                }
            }
            sink.flush().map_err(failed)?;
            Ok(bytes)
        })
    }

    /// Makes a call whose body is what `source` has.
    pub fn upload(&self, call: Call<'_>, source: impl Read + Send + 'static) -> Result<Answer, Failure> {
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        // It ends with the source, or when nobody takes its pieces.
        std::thread::spawn(move || read_all(source, &sender));
        let moved = Arc::new(AtomicU64::new(0));
        let body = Pieces { pieces, moved: moved.clone() }.boxed();
        let patience = Duration::from_secs(STREAM_SECONDS_MAX);
        self.runtime.block_on(async {
            let answering = async { self.answer(self.exchange(&call, body).await?).await };
            let mut answering = std::pin::pin!(answering);
            let mut before = 0;
            loop {
                if let Ok(answer) = timeout(patience, answering.as_mut()).await {
                    return answer?.success();
                }
                let now = moved.load(Ordering::Relaxed);
                if std::mem::replace(&mut before, now) == now {
                    return Err(self.target.unreachable("no answer in time"));
                }
            }
        })
    }

    pub fn get<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T, Failure> {
        self.call(call)?.parse()
    }

    /// All items of a list, page after page.
    pub fn all<T: DeserializeOwned>(
        &self,
        operation: Operation,
        query: &[(&'static str, String)],
    ) -> Result<Vec<T>, Failure> {
        self.pages(|| {
            let mut call = Call::new(operation);
            call.query.extend_from_slice(query);
            call
        })
    }

    /// All items of a list that belongs to an object.
    pub fn all_of<T: DeserializeOwned>(&self, operation: Operation, name: &str) -> Result<Vec<T>, Failure> {
        self.pages(|| Call::of(operation, name))
    }

    fn pages<'a, T: DeserializeOwned>(&self, call: impl Fn() -> Call<'a>) -> Result<Vec<T>, Failure> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut call = call().query("limit", PAGE_ITEMS);
            if let Some(cursor) = &cursor {
                call = call.query("cursor", cursor);
            }
            let page: Page<T> = self.get(call)?;
            items.extend(page.items);
            match page.next_cursor {
                // A daemon that repeats itself would otherwise keep us here for ever.
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => return Ok(items),
            }
        }
    }

    async fn exchange(&self, call: &Call<'_>, body: Outgoing) -> Result<Response<Incoming>, Failure> {
        let connecting = Duration::from_secs(CONNECT_SECONDS_MAX);
        let late = || self.target.unreachable("it did not accept a connection in time");
        match &self.target {
            Target::Socket(path) => {
                let stream = timeout(connecting, UnixStream::connect(path)).await.map_err(|_| late())?;
                let stream = stream.map_err(|error| self.target.refused(error))?;
                self.send(stream, call, body, "localhost", None).await
            }
            Target::Http { authority, token, tls } => {
                let stream = timeout(connecting, TcpStream::connect(authority)).await.map_err(|_| late())?;
                let stream = stream.map_err(|error| self.target.unreachable(error))?;
                match tls {
                    None => self.send(stream, call, body, authority, token.as_deref()).await,
                    Some(Tls { ca }) => {
                        let handshake = tls::connect(stream, authority, ca.as_deref());
                        let stream = timeout(connecting, handshake).await.map_err(|_| late())??;
                        self.send(stream, call, body, authority, token.as_deref()).await
                    }
                }
            }
        }
    }

    async fn send<S>(
        &self,
        stream: S,
        call: &Call<'_>,
        body: Outgoing,
        host: &str,
        token: Option<&str>,
    ) -> Result<Response<Incoming>, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let broken =
            |error: hyper::Error| self.target.unreachable(format!("the connection was interrupted: {error}"));
        // Writes of one piece are sends without SIGPIPE, which would end a command in silence when the daemon goes at that moment; those of several are not.
        let connecting = http1::Builder::new().writev(false).handshake(TokioIo::new(stream));
        let (mut sender, connection) = connecting.await.map_err(broken)?;
        // It ends with the connection; what went wrong the sender reports.
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(call.operation.method().name())
            .uri(call.path())
            .header("host", host)
            .header("user-agent", concat!("forebay/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(tag) = &call.if_match {
            request = request.header("if-match", tag);
        }
        if call.body.is_some() {
            request = request.header("content-type", "application/json");
        } else if call.operation.takes_stream() {
            request = request.header("content-type", "application/octet-stream");
        }
        let request = request.body(body).map_err(|_| {
            Failure::new(Exit::Usage, "FOREBAY_TOKEN or a name has characters that cannot be sent", "")
        })?;
        sender.send_request(request).await.map_err(broken)
    }

    /// The whole of an answer.
    async fn answer(&self, response: Response<Incoming>) -> Result<Answer, Failure> {
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| self.target.unreachable(format!("the answer was interrupted: {error}")))?;
        Ok(Answer { status: parts.status, headers: parts.headers, body: body.to_bytes() })
    }
}

type Outgoing = BoxBody<Bytes, io::Error>;

/// The body of a stream to the daemon, and how many pieces of it have gone.
struct Pieces {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    moved: Arc<AtomicU64>,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;
    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        this.pieces.poll_recv(context).map(|piece| {
            this.moved.fetch_add(1, Ordering::Relaxed);
            piece.map(|piece| piece.map(Frame::data))
        })
    }
}

fn read_all(mut source: impl Read, sink: &mpsc::Sender<io::Result<Bytes>>) {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let piece = match source.read(&mut buffer) {
            Ok(0) => return,
            Ok(len) => Ok(Bytes::copy_from_slice(&buffer[..len])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_over = piece.is_err();
        if sink.blocking_send(piece).is_err() || is_over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(data: Option<&str>, environment: &[(&str, &str)]) -> Result<Target, Exit> {
        let environment: Vec<(String, String)> =
            environment.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Target::choose(data.map(Path::new), |name| {
            environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        })
        .map_err(|failure| failure.exit)
    }

    #[test]
    fn the_command_line_wins_over_the_environment() {
        let socket = |path: &str| Ok(Target::Socket(PathBuf::from(path)));
        assert_eq!(choose(None, &[]), socket("/var/lib/forebay/forebay.sock"));
        assert_eq!(choose(None, &[("FOREBAY_DATA", "/d")]), socket("/d/forebay.sock"));
        let both = [("FOREBAY_DATA", "/d"), ("FOREBAY_URL", "http://h:1/"), ("FOREBAY_TOKEN", "t")];
        assert_eq!(choose(Some("/x"), &both), socket("/x/forebay.sock"));
        let http = |authority: &str, token: Option<&str>| {
            Ok(Target::Http { authority: authority.into(), token: token.map(str::to_string), tls: None })
        };
        assert_eq!(choose(None, &both), http("h:1", Some("t")));
        assert_eq!(choose(None, &[("FOREBAY_URL", "http://[::1]")]), http("[::1]:80", None));
        let secure = [("FOREBAY_URL", "https://h"), ("FOREBAY_CA", "f")];
        let expected =
            Target::Http { authority: "h:443".into(), token: None, tls: Some(Tls { ca: Some("f".into()) }) };
        assert_eq!(choose(None, &secure), Ok(expected));
        for url in ["h:1", "http://", "http://h/api", "http://u:p@h/", "not a url", "http://h?x"] {
            assert_eq!(choose(None, &[("FOREBAY_URL", url)]), Err(Exit::Usage), "{url}");
        }
    }

    #[test]
    fn names_and_values_are_encoded() {
        let call = Call::of(Operation::VolumeShow, "tank/a b").query("cursor", "x&y=z");
        assert_eq!(call.path(), "/api/v1/volumes/tank%2Fa%20b?cursor=x%26y%3Dz");
    }
}
