//! TLS to a daemon elsewhere. It is trusted if an authority in the file that `FOREBAY_CA` names has signed its certificate, or without that one of the system's.

use crate::failure::{Exit, Failure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where distributions keep the authorities that they trust: Debian and its kin, Red Hat and its kin, SUSE.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// Speaks TLS over a connection to `authority`, `HOST:PORT`.
pub async fn connect(
    stream: TcpStream,
    authority: &str,
    ca: Option<&str>,
) -> Result<TlsStream<TcpStream>, Failure> {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
    let name = ServerName::try_from(host).map_err(|_| {
        Failure::new(
            Exit::Usage,
            "this is not a host name for a certificate",
            "Write FOREBAY_URL like https://box.example:8080.",
        )
        .object(authority)
    })?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
        .with_root_certificates(roots(ca)?)
        .with_no_client_auth();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    connecting.await.map_err(|error| {
        let is_unknown = error.get_ref().is_some_and(|inner| {
            matches!(inner.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)))
        });
        let (detail, remedy) = match is_unknown {
            true => (
                format!("the daemon's certificate is not trusted: {error}"),
                "Copy tls/ca.pem from the daemon's data directory, compare its SHA-256 with the one that the daemon printed, and name the file in FOREBAY_CA.",
            ),
            false => (format!("TLS with the daemon failed: {error}"), "Check FOREBAY_URL: the daemon may use http:// there."),
        };
        Failure::new(Exit::Unreachable, detail, remedy).object(authority)
    })
}

fn roots(ca: Option<&str>) -> Result<RootCertStore, Failure> {
    let path = match ca {
        Some(path) => Some(Path::new(path)),
        None => SYSTEM.iter().map(Path::new).find(|path| path.is_file()),
    };
    let mut roots = RootCertStore::empty();
    let Some(path) = path else { return Ok(roots) };
    let wrong = |why: String| {
        Failure::new(Exit::Usage, why, "Name a PEM file with certificates of authorities in FOREBAY_CA.")
            .object(path.display().to_string())
    };
    let pem = std::fs::read(path).map_err(|error| wrong(format!("it cannot be read: {error}")))?;
    let certificates: Vec<CertificateDer> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(format!("it is not PEM: {error}")))?;
    // Of the system's some may be of a kind that nobody uses any more.
    let (taken, _) = roots.add_parsable_certificates(certificates);
    match taken {
        0 => Err(wrong("it has no certificate".into())),
        _ => Ok(roots),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_authorities_is_refused() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        for path in ["/nothing/there.pem", manifest] {
            assert_eq!(roots(Some(path)).unwrap_err().exit, Exit::Usage, "{path}");
        }
    }
}
