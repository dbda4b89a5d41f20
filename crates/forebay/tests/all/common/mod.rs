//! A daemon of its own for each test: the real program in a temporary directory, on free ports.
//!
//! Whatever happens in a test, the process is killed and waited for, and the directory removed, when the harness goes
//! out of scope.

use forebay_nbd::{Style, client};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A daemon or answer that takes longer is broken, not slow: nothing here waits for time to pass.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Two, so that every test runs with more than one.
const ISCSI_PORTALS: [&str; 4] = ["--iscsi", "127.0.0.1:0", "--iscsi", "127.0.0.1:0"];

pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    // What the developer's own environment says about a daemon is not meant here.
    for name in [
        "FOREBAY_DATA",
        "FOREBAY_URL",
        "FOREBAY_TOKEN",
        "FOREBAY_CA",
        "NO_COLOR",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
    ] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// A place that disappears.
pub struct Place {
    temp: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place { temp: tempfile::tempdir().expect("a temporary directory can be made") }
    }
    pub fn path(&self) -> &Path {
        self.temp.path()
    }
    pub fn data(&self) -> PathBuf {
        self.path().join("data")
    }
    /// Makes the data directory before the daemon does.
    pub fn make_data(&self) {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(self.data()).expect("a directory can be made");
    }
    /// A sparse file to serve as a disk.
    pub fn disk(&self, name: &str, bytes: u64) -> String {
        let path = self.path().join(name);
        File::create(&path).and_then(|file| file.set_len(bytes)).expect("a sparse file can be made");
        path.display().to_string()
    }
    /// Two disks of 256 MiB.
    pub fn disks(&self) -> [String; 2] {
        ["a", "b"].map(|name| self.disk(name, 256 << 20))
    }

    /// Runs a command against the daemon in this place. A pool that it creates is not measured: most tests do not ask how fast it is.
    pub fn run(&self, words: &[&str]) -> Finished {
        let mut command = program();
        let more: &[&str] = if words.starts_with(&["pool", "create"]) { &["--no-calibrate"] } else { &[] };
        command.args(words).args(more).arg("--data").arg(self.data()).current_dir(self.path());
        Finished::of(command, words)
    }
    /// Runs a command with this on its stdin.
    pub fn run_with(&self, words: &[&str], input: &str) -> Finished {
        let path = self.path().join("stdin");
        fs::write(&path, input).expect("a file can be written");
        let mut command = program();
        command.args(words).arg("--data").arg(self.data()).current_dir(self.path());
        command.stdin(File::open(&path).expect("it was written just now"));
        Finished::of(command, words)
    }
    /// Runs a command that has to succeed; returns its JSON.
    pub fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        let finished = self.run(&words).expect(0);
        serde_json::from_str(&finished.out)
            .unwrap_or_else(|error| panic!("{words:?}: {error}\n{}", finished.out))
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Finished {
    line: String,
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Finished {
    pub fn of(mut command: Command, words: &[&str]) -> Finished {
        let output = command.output().expect("the program can be run");
        Finished {
            line: words.join(" "),
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("output is UTF-8"),
            err: String::from_utf8(output.stderr).expect("output is UTF-8"),
        }
    }
    /// Panics unless it ended with this status.
    pub fn expect(self, code: i32) -> Finished {
        assert_eq!(self.code, Some(code), "forebay {}\n{}{}", self.line, self.out, self.err);
        self
    }
    /// Panics unless stderr has these words.
    pub fn says(self, words: &str) -> Finished {
        assert!(self.err.contains(words), "forebay {}: no `{words}` in:\n{}", self.line, self.err);
        self
    }
}

/// A running daemon.
pub struct Daemon {
    child: Child,
    pub http: String,
    pub nbd: String,
    /// Of each portal.
    pub iscsi: Vec<String>,
    /// What it prints, line by line.
    lines: Receiver<String>,
    log: PathBuf,
}

impl Daemon {
    pub fn start(place: &Place) -> Daemon {
        Daemon::start_as(place, "serve", &[])
    }

    pub fn start_as(place: &Place, verb: &str, more: &[&str]) -> Daemon {
        let more = [&["--listen", "127.0.0.1:0", "--nbd", "127.0.0.1:0"], &ISCSI_PORTALS[..], more].concat();
        Daemon::start_with(place, verb, &more)
    }

    /// At addresses that were free a moment ago.
    pub fn start_at(place: &Place, http: &str, nbd: &str) -> Daemon {
        Daemon::start_with(place, "serve", &["--listen", http, "--nbd", nbd, "--iscsi", "127.0.0.1:0"])
    }

    /// With NBD there, or off.
    pub fn start_nbd(place: &Place, nbd: &str) -> Daemon {
        let more = [&["--listen", "127.0.0.1:0", "--nbd", nbd], &ISCSI_PORTALS[..]].concat();
        Daemon::start_with(place, "serve", &more)
    }

    /// With a limit of so many open files, which it cannot raise.
    pub fn start_with_files(place: &Place, files: u32) -> Daemon {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -n {files} && exec \"$0\" \"$@\""));
        command.arg(program().get_program()).stdin(Stdio::null());
        let more = [&["--listen", "127.0.0.1:0", "--nbd", "127.0.0.1:0"], &ISCSI_PORTALS[..]].concat();
        Daemon::start_as_told(place, command, "serve", &more)
    }

    /// By this command, which is the program in an environment of its own.
    pub fn start_by(place: &Place, command: Command) -> Daemon {
        let more = [&["--listen", "127.0.0.1:0", "--nbd", "127.0.0.1:0"], &ISCSI_PORTALS[..]].concat();
        Daemon::start_as_told(place, command, "serve", &more)
    }

    pub fn start_with(place: &Place, verb: &str, more: &[&str]) -> Daemon {
        Daemon::start_as_told(place, program(), verb, more)
    }

    fn start_as_told(place: &Place, mut command: Command, verb: &str, more: &[&str]) -> Daemon {
        let log = place.path().join("stderr");
        let errors = File::options().create(true).append(true).open(&log).expect("a log can be made");
        command.arg(verb).arg("--data").arg(place.data()).args(["--memory", "64M", "--shards", "2"]);
        command.args(more);
        let mut child =
            command.stdout(Stdio::piped()).stderr(errors).spawn().expect("the program can be run");
        let output = child.stdout.take().expect("stdout is a pipe");
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let mut daemon =
            Daemon { child, http: String::new(), nbd: String::new(), iscsi: Vec::new(), lines, log };
        let ready = daemon.line();
        let is_ready = ["http", "https"]
            .iter()
            .any(|scheme| ready.starts_with(&format!("forebay: ready, API {scheme}://127.0.0.1:")));
        assert!(is_ready, "{ready}");
        let addresses =
            fs::read_to_string(place.data().join("addresses.json")).expect("addresses are written");
        let addresses: Value = serde_json::from_str(&addresses).expect("addresses are JSON");
        daemon.http = addresses["http"].as_str().expect("an address").to_string();
        // There is none when NBD is off.
        daemon.nbd = addresses["nbd"].as_str().unwrap_or_default().to_string();
        let portals = addresses["iscsi"].as_array().expect("a list of addresses");
        daemon.iscsi =
            portals.iter().map(|portal| portal.as_str().expect("an address").to_string()).collect();
        assert!(!portals.is_empty() && daemon.iscsi.iter().all(|portal| ready.contains(portal)), "{ready}");
        assert!(
            ready.contains(&daemon.http) && ready.contains(daemon.nbd.trim_start_matches("unix:")),
            "{ready}"
        );
        daemon
    }

    /// The next line that the daemon prints.
    pub fn line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            panic!(
                "the daemon says nothing more; on stderr:\n{}",
                fs::read_to_string(&self.log).unwrap_or_default()
            )
        })
    }

    /// The secret of the link that is printed while there is no user; it is the next line.
    pub fn setup_secret(&mut self) -> String {
        let line = self.line();
        let front = format!("://{}/#/setup?secret=", self.http);
        let (_, secret) = line.split_once(&front).unwrap_or_else(|| panic!("no link in: {line}"));
        assert_eq!(secret.len(), 64, "{line}");
        secret.to_string()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("our child can be signalled");
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let (send, ended) = channel::<()>();
        // A daemon that does not end would hold the test up for ever.
        let pid = rustix::process::Pid::from_child(&self.child);
        let watchdog = std::thread::spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                // Not waited for yet, so the number is still our child's.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
        let status = self.child.wait().expect("our child can be waited for");
        drop(send);
        watchdog.join().expect("the watchdog does not panic");
        status
    }

    /// SIGTERM and an orderly end.
    pub fn stop(mut self) {
        self.signal(rustix::process::Signal::TERM);
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{}", fs::read_to_string(&self.log).unwrap_or_default());
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("our child can be killed");
        self.wait();
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/statm", self.pid())).expect("our child is there");
        let pages: u64 = text.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("statm has numbers");
        pages * 4096
    }

    /// One HTTP request over a connection of its own. `head` is request line and headers without the last empty line.
    pub fn http(&self, head: &str, body: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(&self.http).expect("the daemon accepts connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let host = match head.to_ascii_lowercase().contains("\nhost:") {
            true => String::new(),
            false => format!("Host: {}\r\n", self.http),
        };
        let mut bytes = format!("{head}\r\n{host}Connection: close\r\n").into_bytes();
        if !body.is_empty() && !head.to_ascii_lowercase().contains("content-length") {
            bytes.extend(format!("Content-Length: {}\r\n", body.len()).bytes());
        }
        bytes.extend(b"\r\n");
        bytes.extend(body);
        // The daemon may answer and close before it has read everything.
        let _ = stream.write_all(&bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Reply::parse(&answer)
    }

    /// A request with these headers, those that are not empty, and a JSON body.
    pub fn ask(&self, method: &str, path: &str, headers: &[&str], body: Option<Value>) -> Reply {
        let mut head = format!("{method} {path} HTTP/1.1");
        let body = body.map(|value| value.to_string()).unwrap_or_default();
        let json = if body.is_empty() { "" } else { "Content-Type: application/json" };
        for header in headers.iter().copied().chain([json]).filter(|header| !header.is_empty()) {
            head.push_str("\r\n");
            head.push_str(header);
        }
        self.http(&head, body.as_bytes())
    }

    pub fn api(&self, secret: &str) -> Api<'_> {
        Api { daemon: self, secret: secret.to_string() }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The API over HTTP with a token.
pub struct Api<'a> {
    daemon: &'a Daemon,
    secret: String,
}

impl Api<'_> {
    pub fn call(&self, method: &str, path: &str, headers: &str, body: Option<Value>) -> Reply {
        let who = format!("Authorization: Bearer {}", self.secret);
        self.daemon.ask(method, path, &[&who, headers], body)
    }
    pub fn get(&self, path: &str) -> Reply {
        self.call("GET", path, "", None)
    }
    pub fn post(&self, path: &str, body: Value) -> Reply {
        self.call("POST", path, "", Some(body))
    }
}

/// `VOLUME HOST LUN` of each mapping, sorted.
pub fn mapped(api: &Api<'_>) -> Vec<String> {
    let all = api.get("/api/v1/mappings").json();
    let in_words = |mapping: &Value| {
        let spec = &mapping["spec"];
        let [volume, host] = ["volume", "host"].map(|field| spec[field].as_str().expect("a name"));
        format!("{volume} {host} {}", spec["lun"])
    };
    let mut mapped: Vec<String> = all["items"].as_array().expect("a list").iter().map(in_words).collect();
    mapped.sort();
    mapped
}

/// Waits, for a bounded time, until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// An HTTP response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Reply {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        assert!(!chunked, "answers have a length");
        Reply { status, head: head.to_string(), body: body.to_string() }
    }
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
    /// Panics unless it is a problem document with this status and code; returns it.
    pub fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        assert_eq!(problem["type"], format!("urn:forebay:problem:{code}"), "{self:?}");
        assert!(!problem["detail"].as_str().unwrap_or_default().is_empty(), "{self:?}");
        problem
    }
}

/// The least of an NBD client: one request at a time, simple replies.
pub struct Nbd<S = TcpStream> {
    pub stream: S,
}

impl Nbd {
    pub fn open(address: &str, export: &str) -> Nbd {
        let stream = TcpStream::connect(address).expect("the NBD server accepts connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        Nbd::over(stream, export)
    }
}

impl<S: Read + Write> Nbd<S> {
    /// Over a connection just made.
    pub fn over(mut stream: S, export: &str) -> Nbd<S> {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("a greeting");
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // Fixed newstyle, no zeroes; then GO (7).
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(client::option(7, &client::info_data(export, &[])));
        stream.write_all(&hello).expect("the server reads");
        loop {
            let mut head = [0; 20];
            stream.read_exact(&mut head).expect("a reply to GO");
            let kind = u32::from_be_bytes(head[12..16].try_into().expect("four bytes"));
            let len = u32::from_be_bytes(head[16..].try_into().expect("four bytes"));
            let mut data = vec![0; len as usize];
            stream.read_exact(&mut data).expect("the reply's data");
            match kind {
                1 => return Nbd { stream },
                3 => {}
                kind => panic!("GO {export}: {kind:#x} {}", String::from_utf8_lossy(&data)),
            }
        }
    }

    fn request(&mut self, kind: u16, offset: u64, len: u64, data: &[u8], answer: &mut [u8]) {
        let error = self.ask(kind, offset, len, data);
        assert_eq!(error, 0, "an NBD error for a request of type {kind} at {offset}");
        self.stream.read_exact(answer).expect("the reply's data");
    }

    /// Sends a request and reads the head of its reply: the error number.
    fn ask(&mut self, kind: u16, offset: u64, len: u64, data: &[u8]) -> u32 {
        let mut bytes = Vec::new();
        client::RequestHeader { flags: 0, kind, cookie: 1, offset, len }.encode(Style::Simple, &mut bytes);
        bytes.extend(data);
        self.stream.write_all(&bytes).expect("the server reads");
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).expect("a reply");
        u32::from_be_bytes(head[4..8].try_into().expect("four bytes"))
    }

    /// Sends a write, and does not wait for its reply.
    pub fn send_write(&mut self, offset: u64, data: &[u8]) {
        let mut bytes = Vec::new();
        let header = client::RequestHeader { flags: 0, kind: 1, cookie: 1, offset, len: data.len() as u64 };
        header.encode(Style::Simple, &mut bytes);
        bytes.extend(data);
        self.stream.write_all(&bytes).expect("the server reads");
    }

    /// The error number with which a write is refused; 0 when it is not.
    pub fn try_write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.ask(1, offset, data.len() as u64, data)
    }

    /// Acknowledged when it returns.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.request(1, offset, data.len() as u64, data, &mut []);
    }

    /// What was acknowledged before is durable when it returns.
    pub fn flush(&mut self) {
        self.request(3, 0, 0, &[], &mut []);
    }

    /// The bytes, or the error number with which the read ends.
    pub fn try_read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, u32> {
        match self.ask(0, offset, len as u64, &[]) {
            0 => {
                let mut answer = vec![0; len];
                self.stream.read_exact(&mut answer).expect("the reply's data");
                Ok(answer)
            }
            error => Err(error),
        }
    }

    pub fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        let mut answer = vec![0; len];
        self.request(0, offset, len as u64, &[], &mut answer);
        answer
    }
}
