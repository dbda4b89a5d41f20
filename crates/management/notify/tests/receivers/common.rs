//! What the tests with real receivers share: programs that end with the test, certificates, a reporter, and waiting with a limit.

use forebay_api::{Alert, AlertObject, AlertSeverity};
use forebay_notify::{Appliance, Channel, Reporter, Setup};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::ffi::OsStr;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A receiver's program, which is killed with this value, or with the thread that started it.
pub struct Program(Child);

impl Program {
    pub fn start(program: &Path, arguments: &[&OsStr], temp: &Path) -> Program {
        let log = std::fs::File::create(temp.join("program.log")).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .env("SNMP_PERSISTENT_DIR", temp)
            .env("SNMPCONFPATH", temp)
            .env("MIBS", "")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("setpriv of util-linux is part of every Debian");
        Program(child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program, or `None` and a line that says what was not tested.
pub fn find(program: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin";
    let found =
        path.split(':').map(|directory| Path::new(directory).join(program)).find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: {program} is not installed (Debian package {package})");
    }
    found
}

pub fn free_tcp_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub fn free_udp_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub fn wait_for_listener(port: u16) {
    wait_for("a listener", || TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(()));
}

/// Asks until there is an answer, for half a minute: the machine may be busy.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{what} did not come");
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// The same, while the tasks of the test's runtime go on.
pub async fn wait_async<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{what} did not come");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

pub fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// An authority, and a server's certificate of it, in files and as text.
pub struct Certificates {
    pub authority: String,
    pub authority_file: PathBuf,
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
}

pub fn certificates(temp: &Path, name: &str) -> Certificates {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "test authority");
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let server_key = KeyPair::generate().unwrap();
    let server =
        CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&server_key, &issuer).unwrap();
    let file = |name: &str, text: &str| {
        let path = temp.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    Certificates {
        authority_file: file("ca.pem", &authority),
        certificate_file: file("server.pem", &server.pem()),
        key_file: file("server.key", &server_key.serialize_pem()),
        authority,
    }
}

pub fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

pub fn reporter(boots: u32) -> Reporter {
    let appliance = Appliance { name: "nas1".into(), id: "6f1c2b1e-5a0c-4d9f-9f3e-0a1b2c3d4e5f".into() };
    Reporter::new(Setup { appliance, boots, clock: Arc::new(now_unix_ms) }).unwrap()
}

pub fn alert(id: &str, severity: AlertSeverity) -> Alert {
    Alert {
        id: id.into(),
        severity,
        since_unix_ms: 1_767_225_600_000,
        object: AlertObject { resource: "pools".into(), name: "tank".into() },
        cause: "Disk 3 of pool tank failed.".into(),
        impact: "One more failure loses data.".into(),
        action: "Replace the disk.".into(),
        command: Some("forebay disk replace tank/3".into()),
    }
}

/// A channel from the JSON that a person would write.
pub fn channel(name: &str, delivery: serde_json::Value) -> Channel {
    let spec =
        serde_json::json!({ "delivery": delivery, "severity_min": "info", "kinds": ["raised", "cleared"] });
    Channel { id: name.into(), name: name.into(), spec: serde_json::from_value(spec).unwrap() }
}
