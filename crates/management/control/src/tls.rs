//! TLS of HTTP: with a certificate that is given, or, beyond loopback, with one of our own.
//!
//! Without a given one the daemon makes an authority for itself at its first start, in `DIR/tls`: `ca.pem` for those who are to trust it, and `ca.key`, private to the owner. With
//! that it signs a certificate for the names under which it is reached. Browsers that know the authority go on when the certificate is renewed, which happens when
//! [`RENEW_DAYS`] are left of it or it has to have other names, also while the daemon runs ([`Tls::renew`]). The authority's subject follows from its key, so
//! the key is all that is needed to sign; when the two files are not both there, both are made anew. Of X.509 only the date is read that a certificate ends.

use crate::directory::DataDir;
use crate::tokens::hex;
use forebay_api::{Code, Problem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SerialNumber, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

const DIRECTORY: &str = "tls";
const AUTHORITY: &str = "tls/ca.pem";
const AUTHORITY_KEY: &str = "tls/ca.key";
const CERTIFICATE: &str = "tls/server.pem";
const CERTIFICATE_KEY: &str = "tls/server.key";
/// What the certificate is for, a name a line.
const NAMES: &str = "tls/server.names";
/// The authority outlives the machine.
const AUTHORITY_DAYS: u64 = 20 * 365;
/// What browsers take at most, and a little less.
const CERTIFICATE_DAYS: u64 = 390;
const RENEW_DAYS: u64 = 30;
const DAY_SECONDS: u64 = 24 * 3600;

/// The certificate that is shown, which may become another.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().expect("no holder of this lock panics").clone())
    }
}

/// What the server is known by.
pub struct Tls {
    current: Arc<Current>,
    /// When a certificate that was given ends; our own are renewed.
    pub given_ends_unix_ms: Option<u64>,
    /// Our own authority: where it is, and its SHA-256.
    pub authority: Option<(PathBuf, String)>,
    /// What the certificate is for.
    names: Vec<String>,
}

/// Something that was made, for an event.
pub type Made = (&'static str, String);

fn failed(what: &str, error: impl std::fmt::Display) -> Problem {
    Problem::new(Code::Internal, format!("{what}: {error}"))
        .remedy("Give a certificate of your own with --http-cert and --http-key.")
}

fn refused(path: &Path, why: impl std::fmt::Display) -> Problem {
    Problem::new(Code::Invalid, format!("the file cannot be used for TLS: {why}"))
        .object(path.display().to_string())
        .remedy("Name PEM files with --http-cert (the certificate and its intermediate certificates) and --http-key (its key, not encrypted).")
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, rustls::Error> {
    CertifiedKey::from_der(chain, key, &ring::default_provider())
}

/// A regular file of a megabyte at most: a device or a pipe would have no end.
fn read_regular(path: &Path) -> std::io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    match found.is_file() && found.len() <= 1 << 20 {
        true => std::fs::read(path),
        false => Err(std::io::Error::other("it is not a regular file of at most 1 MiB")),
    }
}

/// Whether HTTPS can be served with these PEM files.
pub fn check_certificate(certificate: &Path, key: &Path) -> Result<(), Problem> {
    Tls::given(certificate, key).map(drop)
}

impl Tls {
    /// A given certificate, from PEM files.
    pub fn given(certificate: &Path, key: &Path) -> Result<Tls, Problem> {
        let read = |path: &Path| read_regular(path).map_err(|error| refused(path, error));
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(certificate)?)
            .collect::<Result<_, _>>()
            .map_err(|error| refused(certificate, error))?;
        let first = chain.first().ok_or_else(|| refused(certificate, "it has no certificate"))?;
        let given_ends_unix_ms = ends_unix_ms(first);
        let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| refused(key, error))?;
        let certified = certified(chain, private).map_err(|error| refused(certificate, error))?;
        Ok(Tls::of(certified, given_ends_unix_ms, None, Vec::new()))
    }

    /// Our own certificate for these names, made where it is not there; and what was made.
    pub fn own(dir: &DataDir, names: Vec<String>, now_unix_ms: u64) -> Result<(Tls, Vec<Made>), Problem> {
        let mut made = Vec::new();
        let (authority, signer) = authority(dir, now_unix_ms, &mut made)?;
        let certified = certificate(dir, &signer, &names, now_unix_ms, &mut made)?;
        let known = Some((dir.file(AUTHORITY), fingerprint(&authority)));
        Ok((Tls::of(certified, None, known, names), made))
    }

    fn of(
        certified: CertifiedKey,
        given_ends_unix_ms: Option<u64>,
        authority: Option<(PathBuf, String)>,
        names: Vec<String>,
    ) -> Tls {
        let current = Arc::new(Current(RwLock::new(Arc::new(certified))));
        Tls { current, given_ends_unix_ms, authority, names }
    }

    /// Makes another certificate when ours is about to end; new connections are shown it. Blocks on the disk.
    pub fn renew(&self, dir: &DataDir, now_unix_ms: u64) -> Result<Vec<Made>, Problem> {
        if self.authority.is_none() {
            return Ok(Vec::new());
        }
        let mut made = Vec::new();
        let (_, signer) = authority(dir, now_unix_ms, &mut made)?;
        let next = certificate(dir, &signer, &self.names, now_unix_ms, &mut made)?;
        *self.current.0.write().expect("no holder of this lock panics") = Arc::new(next);
        Ok(made)
    }

    pub fn config(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider knows TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

/// The authority's certificate, and what signs with its key.
fn authority(
    dir: &DataDir,
    now_unix_ms: u64,
    made: &mut Vec<Made>,
) -> Result<(CertificateDer<'static>, Issuer<'static, KeyPair>), Problem> {
    let lost = |error| failed("the authority for TLS cannot be made", error);
    if let (Some(key), Some(certificate)) = (read(dir, AUTHORITY_KEY)?, read(dir, AUTHORITY)?)
        && let Ok(key) = KeyPair::from_pem(&key)
        && let Ok(certificate) = CertificateDer::from_pem_slice(certificate.as_bytes())
        && lasts(&certificate, now_unix_ms, CERTIFICATE_DAYS)
    {
        return Ok((certificate, Issuer::new(authority_params(&key, now_unix_ms)?, key)));
    }
    let key = KeyPair::generate().map_err(lost)?;
    let params = authority_params(&key, now_unix_ms)?;
    let certificate = params.self_signed(&key).map_err(lost)?;
    write(dir, AUTHORITY_KEY, &key.serialize_pem())?;
    write(dir, AUTHORITY, &certificate.pem())?;
    made.push((
        "certificate.authority",
        format!(
            "a certificate authority for HTTPS was created, {}; the SHA-256 of its certificate is {}",
            dir.file(AUTHORITY).display(),
            fingerprint(certificate.der())
        ),
    ));
    Ok((certificate.der().clone(), Issuer::new(params, key)))
}

fn authority_params(key: &KeyPair, now_unix_ms: u64) -> Result<CertificateParams, Problem> {
    let mut params = params(Vec::new(), now_unix_ms, AUTHORITY_DAYS)?;
    let which = hex(&Sha256::digest(key.public_key_raw())[..4]);
    params.distinguished_name = subject(&format!("Forebay {which}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// The certificate in the directory if it will do, or a new one.
fn certificate(
    dir: &DataDir,
    signer: &Issuer<'static, KeyPair>,
    names: &[String],
    now_unix_ms: u64,
    made: &mut Vec<Made>,
) -> Result<CertifiedKey, Problem> {
    let lost = |error| failed("the certificate for TLS cannot be made", error);
    let wanted = names.join("\n") + "\n";
    if !made.iter().any(|(code, _)| *code == "certificate.authority")
        && read(dir, NAMES)?.as_deref() == Some(&*wanted)
        && let (Some(key), Some(pem)) = (read(dir, CERTIFICATE_KEY)?, read(dir, CERTIFICATE)?)
        && let Ok(key) = PrivateKeyDer::from_pem_slice(key.as_bytes())
        && let Ok(certificate) = CertificateDer::from_pem_slice(pem.as_bytes())
        && lasts(&certificate, now_unix_ms, RENEW_DAYS)
        && let Ok(certified) = certified(vec![certificate], key)
        && certified.keys_match().is_ok()
    {
        return Ok(certified);
    }
    let key = KeyPair::generate().map_err(lost)?;
    let mut params = params(names.to_vec(), now_unix_ms, CERTIFICATE_DAYS)?;
    params.distinguished_name = subject(names.first().map_or("forebay", |name| name));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, signer).map_err(lost)?;
    // First what it is for: after a crash in between it is not taken for what it is not, because key and certificate do not fit.
    write(dir, NAMES, &wanted)?;
    write(dir, CERTIFICATE_KEY, &key.serialize_pem())?;
    write(dir, CERTIFICATE, &certificate.pem())?;
    made.push(("certificate.made", format!("a certificate for HTTPS was created, for {}", names.join(", "))));
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).map_err(lost_key)?;
    certified(vec![certificate.der().clone()], key).map_err(lost_key)
}

fn lost_key(error: impl std::fmt::Display) -> Problem {
    failed("the certificate for TLS cannot be used", error)
}

fn params(names: Vec<String>, now_unix_ms: u64, days: u64) -> Result<CertificateParams, Problem> {
    let mut params = CertificateParams::new(names).map_err(|error| {
        Problem::new(Code::Invalid, format!("no certificate can be made for these names: {error}"))
            .remedy("Give DNS names or addresses with --http-name.")
    })?;
    let mut serial = [0; 16];
    getrandom::fill(&mut serial).map_err(|error| failed("the system gives no random numbers", error))?;
    // Positive, and without a leading zero.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    let epoch = date_time_ymd(1970, 1, 1);
    let now = now_unix_ms / 1000;
    // Clocks of others may be behind.
    params.not_before = epoch + Duration::from_secs(now.saturating_sub(DAY_SECONDS));
    params.not_after = epoch + Duration::from_secs(now + days * DAY_SECONDS);
    Ok(params)
}

fn subject(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "Forebay");
    subject.push(DnType::CommonName, name);
    subject
}

fn read(dir: &DataDir, name: &str) -> Result<Option<String>, Problem> {
    let bytes = dir.read(name).map_err(|error| {
        Problem::new(Code::Io, format!("it cannot be read: {error}"))
            .object(dir.file(name).display().to_string())
            .remedy("Move it away; the daemon creates a new one.")
    })?;
    Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()))
}

fn write(dir: &DataDir, name: &str, text: &str) -> Result<(), Problem> {
    let written = dir.make(DIRECTORY).and_then(|()| dir.write(name, text.as_bytes()));
    written.map_err(|error| dir.cannot_write("it", name, &error))
}

/// SHA-256 as people compare it.
fn fingerprint(certificate: &CertificateDer) -> String {
    let bytes = Sha256::digest(certificate);
    bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

/// Whether it lasts for more than so many days from now.
fn lasts(certificate: &CertificateDer, now_unix_ms: u64, days: u64) -> bool {
    ends_unix_ms(certificate).is_some_and(|ends| ends > now_unix_ms + days * DAY_SECONDS * 1000)
}

/// When a certificate ends: the second date of its validity (RFC 5280, section 4.1).
fn ends_unix_ms(certificate: &[u8]) -> Option<u64> {
    const SEQUENCE: u8 = 0x30;
    let (tag, certificate, _) = element(certificate)?;
    let (inner, body, _) = element(certificate)?;
    (tag == SEQUENCE && inner == SEQUENCE).then_some(())?;
    let (first, _, mut rest) = element(body)?;
    // An explicit version, then serial number, algorithm and issuer.
    if first == 0xa0 {
        rest = element(rest)?.2;
    }
    for _ in 0..2 {
        rest = element(rest)?.2;
    }
    let (tag, validity, _) = element(rest)?;
    (tag == SEQUENCE).then_some(())?;
    let (_, _, rest) = element(validity)?;
    let (tag, text, _) = element(rest)?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    // Two digits of the year mean 1950 to 2049.
    let (year, rest) = match tag {
        0x17 => {
            let year: i64 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        0x18 => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let number = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day) = (number(0)?, number(2)?);
    let (hour, minute, second) = (number(4)?, number(6)?, number(8)?);
    ((1..=12).contains(&month) && rest.len() == 10).then_some(())?;
    // Days since 1970-01-01 in the Gregorian calendar, years beginning with March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day
        - 1
        - 719_468;
    u64::try_from(((days * 24 + hour) * 60 + minute) * 60 + second).ok()?.checked_mul(1000)
}

/// One element of DER: its tag, its content, and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut len = usize::from(first);
    if first >= 0x80 {
        let count = usize::from(first & 0x7f);
        if !(1..=4).contains(&count) {
            return None;
        }
        let (digits, after) = rest.split_at_checked(count)?;
        len = digits.iter().fold(0, |len, &digit| len << 8 | usize::from(digit));
        rest = after;
    }
    let (content, after) = rest.split_at_checked(len)?;
    Some((tag, content, after))
}

/// Under which names a listener beyond this host is reached: those that are given, this host's name, and the address; where it listens on all of them, those
/// from which this host would reach others.
pub fn names(bound: SocketAddr, given: &[String], host: &str) -> Vec<String> {
    let mut names: Vec<String> = given.to_vec();
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    names.extend(Some(host.to_string()).filter(|host| is_name(host)));
    if bound.ip().is_unspecified() {
        // No packet is sent by this. The addresses are those of documentation (RFC 5737, RFC 3849).
        for (from, to) in [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")] {
            let address = UdpSocket::bind(from)
                .and_then(|socket| socket.connect(to).and_then(|()| socket.local_addr()))
                .ok();
            names.extend(address.map(|address| address.ip().to_string()));
        }
    } else {
        names.push(bound.ip().to_string());
    }
    names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_string));
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.to_ascii_lowercase()));
    names
}

/// `HOST:PORT` for links: the first of these names.
pub fn authority_of(names: &[String], port: u16) -> String {
    let name = names.first().map_or("localhost", |name| name);
    match name.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        _ => format!("{name}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;
    use std::os::unix::fs::PermissionsExt;

    const NOW: u64 = 1_800_000_000_000;
    const DAY: u64 = DAY_SECONDS * 1000;

    fn shown(tls: &Tls) -> Vec<u8> {
        tls.current.0.read().unwrap().cert[0].to_vec()
    }

    fn names() -> Vec<String> {
        vec!["box".into(), "192.0.2.7".into()]
    }

    #[test]
    fn the_authority_stays_and_the_certificate_is_renewed_in_time() {
        let temp = test_directory();
        let dir = DataDir::open(temp.path()).unwrap();
        let (tls, made) = Tls::own(&dir, names(), NOW).unwrap();
        let codes: Vec<&str> = made.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, ["certificate.authority", "certificate.made"]);
        let (path, print) = tls.authority.clone().unwrap();
        assert!(made[0].1.contains(&print) && print.len() == 95, "{print}");
        assert_eq!(ends_unix_ms(&shown(&tls)), Some(NOW + CERTIFICATE_DAYS * DAY));
        for name in [AUTHORITY_KEY, CERTIFICATE_KEY] {
            assert_eq!(std::fs::metadata(dir.file(name)).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::metadata(dir.file(DIRECTORY)).unwrap().permissions().mode() & 0o777, 0o700);
        let kept = std::fs::read(&path).unwrap();

        let (again, made) = Tls::own(&dir, names(), NOW + 300 * DAY).unwrap();
        assert_eq!((made, shown(&again)), (vec![], shown(&tls)));
        assert_eq!(again.renew(&dir, NOW + 359 * DAY).unwrap(), []);
        assert_eq!(again.renew(&dir, NOW + 361 * DAY).unwrap()[0].0, "certificate.made");
        assert_ne!(shown(&again), shown(&tls));
        assert_eq!(std::fs::read(&path).unwrap(), kept, "who trusts the authority goes on doing so");

        let (other, made) = Tls::own(&dir, vec!["another".into()], NOW + 361 * DAY).unwrap();
        assert_eq!(made.len(), 1, "other names, another certificate");
        assert_eq!(other.authority.clone().unwrap().1, print);
        // What a crash in between leaves: a key that is not the certificate's.
        std::fs::write(dir.file(CERTIFICATE_KEY), KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let (mended, made) = Tls::own(&dir, vec!["another".into()], NOW + 361 * DAY).unwrap();
        assert_eq!((made.len(), mended.authority.unwrap().1), (1, print.clone()));
        std::fs::remove_file(dir.file(AUTHORITY_KEY)).unwrap();
        let (anew, made) = Tls::own(&dir, vec!["another".into()], NOW).unwrap();
        assert_eq!(made.len(), 2);
        assert_ne!(anew.authority.unwrap().1, print);
    }

    #[test]
    fn given_files_are_used_or_refused_in_words() {
        let temp = test_directory();
        let dir = DataDir::open(temp.path()).unwrap();
        Tls::own(&dir, names(), NOW).unwrap();
        let tls = Tls::given(&dir.file(CERTIFICATE), &dir.file(CERTIFICATE_KEY)).unwrap();
        assert_eq!(tls.given_ends_unix_ms, Some(NOW + CERTIFICATE_DAYS * DAY));
        assert_eq!(tls.renew(&dir, NOW + 1000 * DAY).unwrap(), [], "it is not ours");
        for (certificate, key) in [
            (CERTIFICATE, AUTHORITY_KEY),
            (CERTIFICATE_KEY, CERTIFICATE_KEY),
            (CERTIFICATE, CERTIFICATE),
            ("nothing", CERTIFICATE_KEY),
        ] {
            let problem = Tls::given(&dir.file(certificate), &dir.file(key)).err().expect("refused");
            assert!(problem.code == Code::Invalid && problem.remedy.unwrap().contains("--http-key"));
        }
    }

    #[test]
    fn nonsense_is_no_certificate() {
        let temp = test_directory();
        let dir = DataDir::open(temp.path()).unwrap();
        let (tls, _) = Tls::own(&dir, names(), NOW).unwrap();
        let whole = shown(&tls);
        for len in 0..200 {
            assert_eq!(ends_unix_ms(&whole[..len]), None, "{len} bytes");
        }
        let mut random = forebay_base::Random::new(7);
        for _ in 0..10_000 {
            let mut damaged = whole.clone();
            for _ in 0..3 {
                let at = random.below(damaged.len() as u64) as usize;
                damaged[at] = random.below(256) as u8;
            }
            // Whatever it says, it does not panic.
            ends_unix_ms(&damaged);
        }
    }

    #[test]
    fn a_listener_s_names_are_what_it_is_reached_by() {
        let one = super::names("192.0.2.7:8080".parse().unwrap(), &["box.example".into()], "box");
        assert_eq!(one, ["box.example", "box", "192.0.2.7", "localhost", "127.0.0.1", "::1"]);
        assert_eq!(authority_of(&one, 8080), "box.example:8080");
        let all = super::names("[::]:1".parse().unwrap(), &[], "not a name");
        assert!(!all.contains(&"::".to_string()) && all.contains(&"localhost".to_string()), "{all:?}");
        assert_eq!(authority_of(&["2001:db8::1".into()], 1), "[2001:db8::1]:1");
    }
}
