//! Connections to the receivers: found, opened and protected within time limits.
//!
//! Certificates are always verified, against the system's authorities or against those that the channel names; there is no switch to turn that
//! off, because a receiver that cannot be told apart from another one gets passwords and the state of the appliance.

use crate::failure::{Failure, Retry};
use crate::text::line;
use base64::prelude::{BASE64_STANDARD, Engine};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const LOOKUP_TIME_MAX: Duration = Duration::from_secs(10);
/// For each address that a name has; an address family without a route costs this much.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(8);
const ADDRESSES_MAX: usize = 4;
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(15);
/// A chain of authorities is some KiB; all that the web trusts are 220 KiB.
const AUTHORITIES_BYTES_MAX: usize = 512 << 10;

/// Bytes in and out, protected or not.
pub trait Io: AsyncRead + AsyncWrite + Send + Sync + Unpin + Debug {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin + Debug> Io for T {}

/// The addresses of a name, at least one.
pub async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    let remedy = "Check the host name, and that the appliance's DNS servers know it.";
    match timeout(LOOKUP_TIME_MAX, tokio::net::lookup_host((host, port))).await {
        Err(_) => Err(Failure::passing(
            format!("Looking up {host} took longer than {} s", LOOKUP_TIME_MAX.as_secs()),
            remedy,
        )),
        Ok(Err(error)) => Err(Failure::passing(format!("{host} cannot be looked up: {error}"), remedy)),
        Ok(Ok(found)) => {
            let found: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
            if found.is_empty() {
                return Err(Failure::passing(format!("{host} has no address"), remedy));
            }
            Ok(found)
        }
    }
}

/// A TCP connection to the first address that answers.
pub async fn tcp(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let mut last = None;
    for address in look_up(host, port).await? {
        last = Some(match timeout(CONNECT_TIME_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Only latency is at stake.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => io_failure(host, port, "did not accept a connection", &error),
            Err(_) => Failure::passing(
                format!("{host}:{port} did not answer within {} s", CONNECT_TIME_MAX.as_secs()),
                "Check the address, and that no firewall drops connections to this port.",
            ),
        });
    }
    Err(last.expect("a name has at least one address, and each was tried"))
}

/// A failure of the network in the midst of something.
pub fn io_failure(host: &str, port: u16, what: &str, error: &std::io::Error) -> Failure {
    use std::io::ErrorKind;
    let remedy = match error.kind() {
        ErrorKind::ConnectionRefused => "Check that the service runs there and listens on this port.",
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            "Check the appliance's network and routes."
        }
        ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => {
            "The service closed the connection: check its log. Check also whether this port expects TLS."
        }
        _ => "Check the service and the network between.",
    };
    Failure::passing(format!("{host}:{port} {what}: {error}"), remedy)
}

/// The authorities in a PEM text, at least one.
pub fn given_authorities(pem: &str) -> Result<RootCertStore, String> {
    if pem.len() > AUTHORITIES_BYTES_MAX {
        return Err(format!("the text is longer than {} KiB", AUTHORITIES_BYTES_MAX >> 10));
    }
    // Settings are shown to every user with access, and are in bundles for support.
    if pem.contains("PRIVATE KEY") {
        return Err("there is a private key in the text, which does not belong there".into());
    }
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("not PEM: {error}"))?;
        store.add(certificate).map_err(|error| format!("not a certificate: {error}"))?;
    }
    if store.is_empty() { Err("there is none in the text".into()) } else { Ok(store) }
}

/// The certificates of a text, and nothing else of it: settings are shown, and people paste more than is meant.
pub fn only_certificates(pem: &str) -> String {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
    let framed = certificates.map(|certificate| {
        let text = BASE64_STANDARD.encode(&certificate);
        let lines: Vec<&str> =
            (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    });
    framed.collect()
}

/// Reads the system's authorities where none are given, so it blocks on the disk.
fn client_config(pem: Option<&str>) -> Result<ClientConfig, Failure> {
    let store = match pem {
        Some(pem) => given_authorities(pem).map_err(|why| {
            Failure::is_final(
                format!("The channel's authorities cannot be used: {why}"),
                "Paste the PEM text of the authority's certificate again.",
            )
        })?,
        None => {
            let mut store = RootCertStore::empty();
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            store
        }
    };
    if store.is_empty() {
        return Err(Failure::passing(
            "The system trusts no certificate authority",
            "Install the package ca-certificates, or give the channel the authority's certificate.",
        ));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(config)
}

/// Protects a connection, and verifies that the peer is `host`.
pub async fn tls(
    stream: TcpStream,
    host: &str,
    port: u16,
    pem: Option<&str>,
) -> Result<Box<dyn Io>, Failure> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        Failure::is_final(
            format!("{host} is not a name that a certificate can have"),
            "Write a host name or an IP address.",
        )
    })?;
    let pem = pem.map(str::to_owned);
    let config = tokio::task::spawn_blocking(move || client_config(pem.as_deref()))
        .await
        .map_err(|_| Failure::passing("The appliance is shutting down", "Try again afterwards."))??;
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    match timeout(HANDSHAKE_TIME_MAX, connecting).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(error)) => Err(tls_failure(host, port, &error)),
        Err(_) => Err(Failure::passing(
            format!(
                "{host}:{port} did not finish the TLS handshake within {} s",
                HANDSHAKE_TIME_MAX.as_secs()
            ),
            "Check that this port expects TLS from the first byte.",
        )),
    }
}

fn tls_failure(host: &str, port: u16, error: &std::io::Error) -> Failure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let (why, remedy) = match inner {
        Some(rustls::Error::InvalidCertificate(problem)) => match problem {
            // Another authority of the same name, made anew perhaps, shows as a signature that does not fit.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => (
                "its certificate is from an authority that is not trusted here".to_owned(),
                "Give the channel the authority's certificate (ca_pem), or install it on the appliance.",
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => (
                "its certificate has expired".to_owned(),
                "Renew the receiver's certificate; check the appliance's clock.",
            ),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
                "its certificate is not valid yet".to_owned(),
                "Check the clocks of the appliance and the receiver.",
            ),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
                "its certificate is for another name".to_owned(),
                "Write the name that the certificate has, or get a certificate for this one.",
            ),
            other => (format!("its certificate is not valid: {other}"), "Renew the receiver's certificate."),
        },
        Some(other) => (
            line(&other.to_string(), 200),
            "Check that this port expects TLS 1.2 or 1.3 from the first byte.",
        ),
        None => return io_failure(host, port, "interrupted the TLS handshake", error),
    };
    Failure {
        message: format!("{host}:{port} cannot be trusted with TLS: {why}"),
        remedy: remedy.into(),
        retry: Retry::Backoff,
    }
}
