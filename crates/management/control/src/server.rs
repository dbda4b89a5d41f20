//! Listening: the Unix socket for the owner, HTTP for everyone else.
//!
//! hyper drives each connection directly, because the limits matter more than convenience: a time for the header and a size for it, a time for a client that does not
//! read ([`Watched`]), a number of connections for each listener and address ([`Connections`]). The two listeners have separate places, so that strangers who
//! fill the HTTP side cannot lock the owner out. The socket is made private before it appears under its name, and every
//! peer's user is checked besides: only the daemon's own user and root are served.

use crate::authentication::Peer;
use crate::connections::{Connections, Place, Request};
use crate::directory::DataDir;
use crate::stall::{UNSENT_BYTES_MAX, Watched};
use axum::Router;
use axum::body::{Body, Bytes};
use forebay_api::{Code, Problem};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

const HEADER_BYTES_MAX: usize = 32 << 10;
const HEADERS_MAX: usize = 64;
/// To send a header, also the next one on a kept connection.
const HEADER_SECONDS_MAX: u64 = 10;
const HANDSHAKE_SECONDS_MAX: u64 = 10;
/// Between two tries to take a connection while the process has no descriptors left.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);
/// After the stop, for requests that are being answered.
const DRAIN_SECONDS_MAX: u64 = 5;

const SOCKET: &str = "forebay.sock";

/// Something that connections come from.
pub enum Listening {
    Socket(UnixListener),
    Http(TcpListener),
    Https(TcpListener, TlsAcceptor),
}

/// Binds the owner's socket, in the place of a dead daemon's. The caller holds the directory's lock.
pub fn bind_socket(dir: &DataDir) -> Result<(UnixListener, PathBuf), Problem> {
    let (path, new) = (dir.file(SOCKET), dir.file(".forebay.sock.new"));
    let failed = |error: io::Error| {
        let remedy = match error.kind() {
            // sun_path has 108 bytes.
            io::ErrorKind::InvalidInput => "The path is too long for a socket; choose a shorter --data DIR.",
            _ => "Check that the data directory is on a local file system and writable.",
        };
        Problem::new(Code::Io, format!("the socket cannot be created: {error}"))
            .object(path.display().to_string())
            .remedy(remedy)
    };
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&new).map_err(failed)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600)).map_err(failed)?;
    fs::rename(&new, &path).map_err(failed)?;
    Ok((listener, path))
}

/// Binds HTTP; port 0 takes a free one.
pub async fn bind_http(address: &str) -> Result<(TcpListener, SocketAddr), Problem> {
    let failed = |error: io::Error| {
        let (code, remedy) = match error.kind() {
            io::ErrorKind::AddrInUse => (
                Code::Conflict,
                "Another program listens there. Choose another address or port with --listen.",
            ),
            io::ErrorKind::InvalidInput => {
                (Code::Invalid, "Give --listen an address of this host and a port, like 127.0.0.1:8080.")
            }
            _ => (Code::Io, "Give --listen an address of this host and a port, like 127.0.0.1:8080."),
        };
        Problem::new(code, format!("HTTP cannot listen there: {error}")).object(address).remedy(remedy)
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Serves until `stopping` becomes true, then until the requests in flight are answered.
pub async fn serve(listening: Listening, router: Router, mut stopping: watch::Receiver<bool>) {
    let connections = Arc::new(Connections::default());
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listening) => accepted,
            _ = stopping.wait_for(|&stop| stop) => break,
        };
        match accepted {
            Ok(connection) => {
                // Without a place it is closed.
                if let Some(place) = connections.admit(connection.address()) {
                    connection.spawn(router.clone(), stopping.clone(), place);
                }
            }
            Err(error) if is_shortage(&error) => {
                connections.make_room();
                tokio::time::sleep(SHORTAGE_PAUSE).await;
            }
            // It was gone already, or is another user's.
            Err(_) => {}
        }
    }
    drop(listening);
    // Who has not been answered by then is cut off.
    let _ = tokio::time::timeout(Duration::from_secs(DRAIN_SECONDS_MAX), connections.empty()).await;
}

/// Out of descriptors or memory: the next try has no better luck at once.
fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    number.is_some_and(|number| [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].contains(&number))
}

enum Connection {
    Socket(UnixStream, Arc<str>),
    Http(TcpStream, IpAddr),
    Https(TcpStream, IpAddr, TlsAcceptor),
}

async fn accept(listening: &Listening) -> io::Result<Connection> {
    let prepare = |stream: &TcpStream| {
        stream.set_nodelay(true)?;
        SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
    };
    match listening {
        Listening::Http(listener) => {
            let (stream, peer) = listener.accept().await?;
            prepare(&stream)?;
            Ok(Connection::Http(stream, peer.ip()))
        }
        Listening::Https(listener, acceptor) => {
            let (stream, peer) = listener.accept().await?;
            prepare(&stream)?;
            Ok(Connection::Https(stream, peer.ip(), acceptor.clone()))
        }
        Listening::Socket(listener) => {
            let (stream, _) = listener.accept().await?;
            let credentials = stream.peer_cred()?;
            let user = credentials.uid();
            if user != 0 && user != rustix::process::geteuid().as_raw() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            Ok(Connection::Socket(stream, behind(user, credentials.pid()).into()))
        }
    }
}

/// `socket of anna, as root`: who has logged in on the host (the audit subsystem's login user), and as which user the client acts.
fn behind(user: u32, process: Option<i32>) -> String {
    /// Without a login user: a service.
    const UNSET: u32 = u32::MAX;
    let login = process.and_then(|process| std::fs::read_to_string(format!("/proc/{process}/loginuid")).ok());
    let login = login.and_then(|text| text.trim().parse().ok()).filter(|login| *login != UNSET);
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = |id: u32| {
        let of = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)? == id.to_string()).then(|| name.to_string())
        };
        users.lines().find_map(of).unwrap_or_else(|| format!("user {id}"))
    };
    match login {
        Some(login) if login != user => format!("socket of {}, as {}", name(login), name(user)),
        _ => format!("socket of {}", name(user)),
    }
}

impl Connection {
    /// Where it comes from; the owner's socket is no address.
    fn address(&self) -> Option<IpAddr> {
        match self {
            Connection::Socket(..) => None,
            Connection::Http(_, peer) | Connection::Https(_, peer, _) => Some(*peer),
        }
    }

    fn spawn(self, router: Router, stopping: watch::Receiver<bool>, place: Place) {
        let peer = match &self {
            Connection::Socket(_, behind) => Peer::Socket(behind.clone()),
            Connection::Http(_, address) | Connection::Https(_, address, _) => Peer::Address(*address),
        };
        match self {
            Connection::Socket(stream, _) => {
                let stream = Watched::new(stream, place.clone());
                drop(tokio::spawn(drive(stream, peer, router, stopping, place)));
            }
            Connection::Http(stream, _) => {
                let stream = Watched::new(stream, place.clone());
                drop(tokio::spawn(drive(stream, peer, router, stopping, place)));
            }
            Connection::Https(stream, _, acceptor) => drop(tokio::spawn(async move {
                let stream = acceptor.accept(Watched::new(stream, place.clone()));
                let patience = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
                let greeted = tokio::select! {
                    greeted = tokio::time::timeout(patience, stream) => greeted,
                    () = place.hung_up() => return,
                };
                // Who does not speak TLS, or does not like our certificate, has gone.
                if let Ok(Ok(stream)) = greeted {
                    drive(stream, peer, router, stopping, place).await;
                }
            })),
        }
    }
}

async fn drive<S>(stream: S, peer: Peer, router: Router, mut stopping: watch::Receiver<bool>, place: Place)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (router, own) = (TowerToHyperService::new(router), place.clone());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let in_progress = own.begin_request();
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(own.clone());
        let answer = router.call(request);
        async move { Ok::<_, Infallible>(answer.await?.map(|body| Answer { body, _in_progress: in_progress })) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(HEADER_SECONDS_MAX))
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut told = false;
    loop {
        tokio::select! {
            // A peer's error ends its connection and concerns no other peer.
            _ = connection.as_mut() => break,
            () = place.hung_up() => break,
            _ = stopping.wait_for(|&stop| stop), if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The body of an answer, whose request is in progress until all of it is on its way.
struct Answer {
    body: Body,
    _in_progress: Request,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;
    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
