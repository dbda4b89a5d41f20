//! Listening: the Unix socket for the owner, HTTP for everyone else.
//!
//! hyper drives each connection directly, because the limits matter more than convenience: a time for the header, a
//! size for it, a number of connections per listener. The two listeners have separate numbers, so that strangers who
//! fill the HTTP side cannot lock the owner out. The socket is made private before it appears under its name, and every
//! peer's user is checked besides: only the daemon's own user and root are served.

use crate::authentication::{Hangup, Peer};
use crate::directory::DataDir;
use axum::Router;
use forebay_api::{Code, Problem};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// A browser opens six; scripts one. Each costs some 32 KiB.
pub const CONNECTIONS_MAX: usize = 256;
const HEADER_BYTES_MAX: usize = 32 << 10;
const HEADERS_MAX: usize = 64;
/// To send a header, also the next one on a kept connection.
const HEADER_SECONDS_MAX: u64 = 10;
const HANDSHAKE_SECONDS_MAX: u64 = 10;
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
        Problem::new(Code::Io, format!("the socket cannot be made: {error}"))
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
            io::ErrorKind::AddrInUse => {
                (Code::Conflict, "Another program listens there; choose another with --listen.")
            }
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
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while !*stopping.borrow_and_update() {
        // First a place, then a connection: what has no place waits in the kernel's queue.
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place.expect("the semaphore is never closed"),
            _ = stopping.changed() => continue,
        };
        tokio::select! {
            accepted = accept(&listening) => match accepted {
                Ok(connection) => connection.spawn(router.clone(), stopping.clone(), place),
                // Out of file descriptors, or the peer was gone already: wait for better times.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
            _ = stopping.changed() => continue,
        }
    }
    drop(listening);
    let all = places.acquire_many(CONNECTIONS_MAX as u32);
    // Who has not been answered by then is cut off.
    let _ = tokio::time::timeout(Duration::from_secs(DRAIN_SECONDS_MAX), all).await;
}

enum Connection {
    Socket(UnixStream),
    Http(TcpStream, IpAddr),
    Https(TcpStream, IpAddr, TlsAcceptor),
}

async fn accept(listening: &Listening) -> io::Result<Connection> {
    match listening {
        Listening::Http(listener) => {
            let (stream, peer) = listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok(Connection::Http(stream, peer.ip()))
        }
        Listening::Https(listener, acceptor) => {
            let (stream, peer) = listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok(Connection::Https(stream, peer.ip(), acceptor.clone()))
        }
        Listening::Socket(listener) => {
            let (stream, _) = listener.accept().await?;
            let user = stream.peer_cred()?.uid();
            if user != 0 && user != rustix::process::geteuid().as_raw() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            Ok(Connection::Socket(stream))
        }
    }
}

impl Connection {
    fn spawn(self, router: Router, stopping: watch::Receiver<bool>, place: OwnedSemaphorePermit) {
        match self {
            Connection::Socket(stream) => {
                drop(tokio::spawn(drive(stream, Peer(None), router, stopping, place)));
            }
            Connection::Http(stream, peer) => {
                drop(tokio::spawn(drive(stream, Peer(Some(peer)), router, stopping, place)));
            }
            Connection::Https(stream, peer, acceptor) => drop(tokio::spawn(async move {
                let patience = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
                // Who does not speak TLS, or does not like our certificate, has gone.
                if let Ok(Ok(stream)) = tokio::time::timeout(patience, acceptor.accept(stream)).await {
                    drive(stream, Peer(Some(peer)), router, stopping, place).await;
                }
            })),
        }
    }
}

async fn drive<S>(
    stream: S,
    peer: Peer,
    router: Router,
    mut stopping: watch::Receiver<bool>,
    place: OwnedSemaphorePermit,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let hangup = Hangup::default();
    let (router, wanted) = (TowerToHyperService::new(router), hangup.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(hangup.clone());
        router.call(request)
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
            // A peer's error ends its connection and concerns nobody else.
            _ = connection.as_mut() => break,
            _ = wanted.wanted() => break,
            _ = stopping.wait_for(|&stop| stop), if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
    drop(place);
}
