//! TLS over a stream: rustls as a value between the socket and the protocol.
//!
//! The session has no socket of its own: ciphertext is fed to it and taken from it here, so it moves between
//! cores with the connection. Plaintext waits inside it for at most one record (16 KiB); ciphertext that was
//! received beyond that waits in our buffer, and no more is received meanwhile.
//!
//! Certificates' dates are judged by the runtime's wall clock, brought up to date at each handshake. The keys'
//! randomness is the operating system's, also in simulation: it never decides what the server does.

use forebay_base::WallTime;
use forebay_pool::{Error, ErrorKind};
use forebay_runtime::{Buf, BufMut, NetError, Rt, Stream};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::cell::RefCell;
use std::io::{self, ErrorKind as IoErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Received at a time: sixteen records of the largest size and their overhead fit.
const CIPHER_RECEIVED: usize = 256 << 10;
/// Plaintext turned into ciphertext at a time; rustls buffers that much by default.
const PLAIN_STEP: usize = 32 << 10;
/// Ciphertext sent at a time.
const CIPHER_SENT: usize = 256 << 10;

/// Where the server's identity lies, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate and those between it and the root, in this order.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// When set, clients must show a certificate that one of these signed.
    pub client_ca: Option<PathBuf>,
}

#[derive(Clone)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    clock: Arc<Clock>,
}

/// Seconds since 1970, as of the last handshake.
#[derive(Debug, Default)]
struct Clock(AtomicU64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::Relaxed))))
    }
}

fn refused(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid("nbd-tls"), path.display().to_string(), why.to_string())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = std::fs::read(path).map_err(|error| refused(path, error))?;
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = parsed.map_err(|error| refused(path, format!("not readable as PEM: {error}")))?;
    if found.is_empty() {
        return Err(refused(path, "contains no certificate")
            .remedy("Name a PEM file with a BEGIN CERTIFICATE section"));
    }
    Ok(found)
}

impl TlsServer {
    /// Reads and checks the files; done once, before the server starts.
    pub fn load(files: &TlsFiles) -> Result<TlsServer, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clock = Arc::new(Clock::default());
        let chain = certificates(&files.certificate)?;
        let pem = std::fs::read(&files.key).map_err(|error| refused(&files.key, error))?;
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
            refused(&files.key, format!("contains no usable private key: {error}"))
                .remedy("Name a PEM file with an unencrypted private key")
        })?;
        let builder = ServerConfig::builder_with_details(provider.clone(), clock.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider knows TLS 1.2 and 1.3");
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(path)? {
                    roots.add(root).map_err(|error| refused(path, error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| refused(path, error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(chain, key).map_err(|error| {
            refused(&files.certificate, format!("does not work with its key: {error}"))
                .remedy("Check that certificate and key belong together")
        })?;
        Ok(TlsServer { config: Arc::new(config), clock })
    }

    fn begin(&self, now: WallTime) -> Result<ServerConnection, rustls::Error> {
        self.clock.0.store(now.0 / 1000, Ordering::Relaxed);
        ServerConnection::new(self.config.clone())
    }
}

/// Why a TLS handshake failed.
#[derive(Debug)]
pub enum TlsFailure {
    HungUp,
    /// The peer spoke wrongly, or showed a wrong certificate.
    Tls(rustls::Error),
}

impl From<NetError> for TlsFailure {
    fn from(_: NetError) -> TlsFailure {
        TlsFailure::HungUp
    }
}

/// The parts of a TLS connection that travel between cores.
pub struct TlsState {
    session: Box<ServerConnection>,
    cipher: Vec<u8>,
}

/// A TLS connection on one executor.
pub struct TlsStream {
    rt: Rt,
    stream: Stream,
    session: RefCell<Box<ServerConnection>>,
    cipher: RefCell<Cipher>,
}

/// Ciphertext received and not yet taken by the session.
#[derive(Default)]
struct Cipher {
    buffer: Option<BufMut>,
    from: usize,
    to: usize,
}

impl TlsStream {
    /// Becomes a TLS server on `stream`, on which the client has been told to begin.
    pub async fn accept(rt: &Rt, stream: Stream, server: &TlsServer) -> Result<TlsStream, TlsFailure> {
        let session = server.begin(rt.wall()).map_err(TlsFailure::Tls)?;
        let tls = TlsStream::new(rt, stream, Box::new(session));
        loop {
            tls.flush().await?;
            if !tls.session.borrow().is_handshaking() {
                return Ok(tls);
            }
            let fed = tls.feed();
            if let Err(error) = fed {
                // The alert that tells the client why.
                let _ = tls.flush().await;
                return Err(TlsFailure::Tls(error));
            }
            let waits = {
                let session = tls.session.borrow();
                session.is_handshaking() && !session.wants_write() && tls.is_starved()
            };
            if waits && tls.receive().await? == 0 {
                return Err(TlsFailure::HungUp);
            }
        }
    }

    fn new(rt: &Rt, stream: Stream, session: Box<ServerConnection>) -> TlsStream {
        let (session, cipher) = (RefCell::new(session), RefCell::default());
        TlsStream { rt: rt.clone(), stream, session, cipher }
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Takes the connection apart, to be put together on another core.
    pub fn into_parts(self) -> (Stream, TlsState) {
        let cipher = self.cipher.into_inner();
        let waiting = cipher.buffer.map_or(Vec::new(), |buffer| buffer[cipher.from..cipher.to].to_vec());
        (self.stream, TlsState { session: self.session.into_inner(), cipher: waiting })
    }

    pub fn from_parts(rt: &Rt, stream: Stream, state: TlsState) -> TlsStream {
        let tls = TlsStream::new(rt, stream, state.session);
        if !state.cipher.is_empty() {
            let to = state.cipher.len();
            *tls.cipher.borrow_mut() = Cipher { buffer: Some(rt.arena().copy(&state.cipher)), from: 0, to };
        }
        tls
    }

    /// Like [`Stream::recv`], for plaintext.
    pub async fn recv(&self, mut into: BufMut) -> (BufMut, Result<usize, NetError>) {
        let mut filled = 0;
        loop {
            let read = self.session.borrow_mut().reader().read(&mut into[filled..]);
            match read {
                // The peer has said goodbye.
                Ok(0) => return (into, Ok(filled)),
                Ok(count) => filled += count,
                Err(error) if error.kind() == IoErrorKind::WouldBlock => {
                    if !self.is_starved() {
                        if self.feed().is_err() {
                            return (into, Err(NetError { os: None }));
                        }
                        continue;
                    }
                    if filled > 0 {
                        return (into, Ok(filled));
                    }
                    match self.receive().await {
                        // Without goodbye; the protocol above has its own.
                        Ok(0) => return (into, Ok(0)),
                        Ok(_) => {}
                        Err(error) => return (into, Err(error)),
                    }
                }
                Err(_) => return (into, Err(NetError { os: None })),
            }
            if filled == into.len() {
                return (into, Ok(filled));
            }
        }
    }

    /// Like [`Stream::send`], for plaintext.
    pub async fn send(&self, parts: Vec<Buf>) -> Result<(), NetError> {
        for part in parts {
            for step in part.chunks(PLAIN_STEP) {
                let mut rest = step;
                while !rest.is_empty() {
                    let taken = self.session.borrow_mut().writer().write(rest);
                    rest = &rest[taken.map_err(|_| NetError { os: None })?..];
                    if self.session.borrow().wants_write() && !rest.is_empty() {
                        self.flush().await?;
                    }
                }
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Tells the peer that this was all.
    pub async fn goodbye(&self) {
        self.session.borrow_mut().send_close_notify();
        // It may be gone already.
        let _ = self.flush().await;
    }

    /// Sends all ciphertext that the session has ready.
    async fn flush(&self) -> Result<(), NetError> {
        while self.session.borrow().wants_write() {
            let mut out = Filling { buffer: self.rt.buffer(CIPHER_SENT), filled: 0 };
            while self.session.borrow().wants_write() && out.filled < CIPHER_SENT {
                let written = self.session.borrow_mut().write_tls(&mut out);
                written.expect("a buffer with room takes bytes");
            }
            let Filling { mut buffer, filled } = out;
            buffer.truncate(filled);
            self.stream.send(vec![buffer.freeze()]).await?;
        }
        Ok(())
    }

    /// Whether no ciphertext waits.
    fn is_starved(&self) -> bool {
        let cipher = self.cipher.borrow();
        cipher.from == cipher.to
    }

    /// Gives waiting ciphertext to the session until it has plaintext or wants to answer.
    fn feed(&self) -> Result<(), rustls::Error> {
        let (mut session, mut cipher) = (self.session.borrow_mut(), self.cipher.borrow_mut());
        let Cipher { buffer: Some(buffer), from, to } = &mut *cipher else { return Ok(()) };
        while from < to && session.wants_read() {
            let mut bytes = &buffer[*from..*to];
            match session.read_tls(&mut bytes) {
                Ok(0) => break,
                Ok(count) => *from += count,
                // Its buffer is full; processing empties it.
                Err(_) => {}
            }
            session.process_new_packets()?;
        }
        Ok(())
    }

    /// Receives more ciphertext; none may be waiting.
    async fn receive(&self) -> Result<usize, NetError> {
        let buffer = self.cipher.borrow_mut().buffer.take();
        let buffer = buffer.unwrap_or_else(|| self.rt.buffer(CIPHER_RECEIVED));
        let (buffer, result) = self.stream.recv(buffer).await;
        let to = *result.as_ref().unwrap_or(&0);
        *self.cipher.borrow_mut() = Cipher { buffer: Some(buffer), from: 0, to };
        result
    }
}

/// Writes into a buffer of fixed size.
struct Filling {
    buffer: BufMut,
    filled: usize,
}

impl Write for Filling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = (&mut self.buffer[self.filled..]).write(bytes)?;
        self.filled += count;
        Ok(count)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
