//! Servers under test: Forebay, and others that show what the checks themselves are worth.
//!
//! A [`Server`] has a life (start, kill, start again on the same storage) and NBD exports. The tests with clients are
//! written against it, so that each can be tried on a server known to be good (`nbdkit file`, `qemu-nbd`) and, for the
//! crash checker, on one known to forget everything (`nbdkit memory`).

use crate::host::{Context, Directory, Outcome, Process, command, run, run_command};
use serde_json::Value;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program that does not answer after this long is broken, not slow, also while other tests use the processors.
pub const START_LIMIT: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
pub struct Export {
    pub name: String,
    pub size: u64,
    /// Every acknowledged write is durable; otherwise only with FUA or a flush.
    pub sync_always: bool,
}

pub trait Server {
    /// Starts it, or starts it again; returns when its exports can be opened.
    fn start(&mut self) -> Outcome;
    /// SIGKILL.
    fn kill(&mut self);
    /// Its process while it runs.
    fn pid(&self) -> u32;
    /// Where it listens for NBD now, `host:port`.
    fn address(&self) -> &str;
    fn exports(&self) -> &[Export];
    /// What else can be said about the storage while the server is down.
    fn check_offline(&self) -> Outcome {
        Ok(())
    }
    fn uri(&self, export: &Export) -> String {
        format!("nbd://{}/{}", self.address(), export.name)
    }
}

/// Forebay's daemon with its data directory.
pub struct Forebay {
    binary: PathBuf,
    data: PathBuf,
    log: PathBuf,
    disks: Vec<PathBuf>,
    memory: &'static str,
    process: Option<Process>,
    http: String,
    nbd: String,
    /// Its portals.
    iscsi: Vec<String>,
    exports: Vec<Export>,
}

impl Forebay {
    /// A daemon over a new pool `e2e` with `layout` on `disks` sparse files of `disk_size` bytes.
    pub fn create(
        binary: &Path,
        directory: &Directory,
        layout: &str,
        disks: usize,
        disk_size: u64,
    ) -> Outcome<Forebay> {
        let files: Outcome<Vec<PathBuf>> =
            (0..disks).map(|i| directory.sparse_file(&format!("disk{i}"), disk_size)).collect();
        Forebay::create_on(binary, directory, layout, files?, "256M")
    }

    /// The same on `disks` that are there, with a given budget of memory for caches.
    pub fn create_on(
        binary: &Path,
        directory: &Directory,
        layout: &str,
        disks: Vec<PathBuf>,
        memory: &'static str,
    ) -> Outcome<Forebay> {
        let mut server = Forebay {
            binary: binary.to_owned(),
            data: directory.create("data")?,
            log: directory.join("forebay.log"),
            disks,
            memory,
            process: None,
            http: String::new(),
            nbd: String::new(),
            iscsi: Vec::new(),
            exports: Vec::new(),
        };
        server.start()?;
        let mut words = vec!["pool", "create", "e2e", "--no-calibrate", "--layout", layout];
        words.extend(server.disks.iter().map(|disk| disk.to_str().expect("our paths are ASCII")));
        server.cli(&words)?;
        Ok(server)
    }

    /// Runs one command of the command line against this daemon.
    pub fn cli(&self, words: &[&str]) -> Outcome<String> {
        let line = format!("forebay {}", words.join(" "));
        let result = run_command(command(&self.binary).args(words).arg("--data").arg(&self.data), &line);
        result.map_err(|error| match &self.process {
            Some(process) => format!("{error}\n{}", process.log_tail()),
            None => error,
        })
    }

    pub fn create_volume(
        &mut self,
        name: &str,
        size: u64,
        block_size: &str,
        sync_always: bool,
    ) -> Outcome<Export> {
        let name = format!("e2e/{name}");
        let sync = if sync_always { "always" } else { "standard" };
        let bytes = size.to_string();
        self.cli(&["volume", "create", &name, "--size", &bytes, "--block-size", block_size, "--sync", sync])?;
        let export = Export { name, size, sync_always };
        self.exports.push(export.clone());
        Ok(export)
    }

    /// A graceful end, as `systemctl stop` would cause it.
    pub fn stop(&mut self) -> Outcome {
        self.process.take().expect("a running daemon").terminate(START_LIMIT)
    }

    /// Where it listens for HTTP.
    pub fn http(&self) -> &str {
        &self.http
    }

    /// Where it listens for iSCSI: two portals.
    pub fn portals(&self) -> &[String] {
        &self.iscsi
    }

    pub fn log_tail(&self) -> String {
        self.process.as_ref().map(Process::log_tail).unwrap_or_default()
    }
}

impl Server for Forebay {
    fn start(&mut self) -> Outcome {
        let addresses = self.data.join("addresses.json");
        // Ports of a daemon that was killed are still written there.
        let _ = fs::remove_file(&addresses);
        let mut start = command(&self.binary);
        start.arg("serve").arg("--data").arg(&self.data);
        start.args(["--listen", "127.0.0.1:0", "--nbd", "127.0.0.1:0"]);
        start.args(["--iscsi", "127.0.0.1:0", "--iscsi", "127.0.0.1:0", "--memory", self.memory]);
        let mut process = Process::start(&mut start, &self.log)?;
        let limit = START_LIMIT;
        (self.http, self.nbd, self.iscsi) = process.wait_for("forebay's addresses", limit, || {
            let text = fs::read_to_string(&addresses).ok()?;
            let value: Value = serde_json::from_str(&text).ok()?;
            let portals = value["iscsi"].as_array()?.iter();
            let portals: Option<Vec<String>> = portals.map(|at| Some(at.as_str()?.to_owned())).collect();
            let text = |name: &str| Some(value[name].as_str()?.to_owned());
            Some((text("http")?, text("nbd")?, portals?))
        })?;
        self.process = Some(process);
        Ok(())
    }
    fn kill(&mut self) {
        self.process = None;
    }
    fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running daemon").pid()
    }
    fn address(&self) -> &str {
        &self.nbd
    }
    fn exports(&self) -> &[Export] {
        &self.exports
    }
    fn check_offline(&self) -> Outcome {
        let line = "forebay check --offline";
        run_command(command(&self.binary).args(["check", "--offline"]).args(&self.disks), line).map(|_| ())
    }
}

/// The same daemon, reached over iSCSI by the client of the tests.
pub struct Iscsi {
    pub forebay: Forebay,
    address: String,
    exports: Vec<Export>,
}

const HOST: &str = "client";

impl Iscsi {
    pub fn new(forebay: Forebay) -> Outcome<Iscsi> {
        forebay.cli(&["host", "create", HOST, "--iqn", forebay_client::iscsi::INITIATOR])?;
        let address = portal(&forebay);
        Ok(Iscsi { forebay, address, exports: Vec::new() })
    }

    /// A volume that the client sees as the next LUN.
    pub fn create_volume(
        &mut self,
        name: &str,
        size: u64,
        block_size: &str,
        sync_always: bool,
    ) -> Outcome<Export> {
        self.create_volume_with(name, size, block_size, sync_always, &[])
    }

    /// The same, mapped with further options.
    pub fn create_volume_with(
        &mut self,
        name: &str,
        size: u64,
        block_size: &str,
        sync_always: bool,
        options: &[&str],
    ) -> Outcome<Export> {
        let volume = self.forebay.create_volume(name, size, block_size, sync_always)?;
        self.forebay.cli(&[&["volume", "map", &volume.name, "--host", HOST], options].concat())?;
        let lun = self.exports.len();
        let export = Export { name: format!("iqn.2026-11.io.forebay:e2e/{lun}"), ..volume };
        self.exports.push(export.clone());
        Ok(export)
    }
}

impl Server for Iscsi {
    fn start(&mut self) -> Outcome {
        self.forebay.start()?;
        self.address = portal(&self.forebay);
        Ok(())
    }
    fn kill(&mut self) {
        self.forebay.kill();
    }
    fn pid(&self) -> u32 {
        self.forebay.pid()
    }
    fn address(&self) -> &str {
        &self.address
    }
    fn exports(&self) -> &[Export] {
        &self.exports
    }
    fn check_offline(&self) -> Outcome {
        self.forebay.check_offline()
    }
}

/// The first portal, as the client wants it.
fn portal(forebay: &Forebay) -> String {
    format!("iscsi://{}", forebay.portals()[0])
}

/// Linux' SCSI target daemon in user space (tgt) with one unit on a file.
pub struct Tgt {
    control: String,
    log: PathBuf,
    file: PathBuf,
    logical_block: u32,
    process: Option<Process>,
    address: String,
    exports: Vec<Export>,
}

impl Tgt {
    /// Asynchronous direct I/O on `file`, what its manual has for speed; in logical blocks of so many bytes.
    pub fn new(directory: &Directory, file: &Path, size: u64, logical_block: u32) -> Tgt {
        let name = format!("{TGT_TARGET}/1");
        Tgt {
            // A number that names the control socket of this machine's tgtd processes.
            control: (std::process::id() % 30_000 + 100).to_string(),
            log: directory.join("tgtd.log"),
            file: file.to_owned(),
            logical_block,
            process: None,
            address: String::new(),
            exports: vec![Export { name, size, sync_always: false }],
        }
    }

    fn admin(&self, words: &str) -> Outcome {
        run(&format!("tgtadm -C {} --lld iscsi {words}", self.control)).map(drop)
    }
}

const TGT_TARGET: &str = "iqn.2026-11.io.forebay.test:tgt";

impl Server for Tgt {
    fn start(&mut self) -> Outcome {
        let port = free_port()?;
        let portal = format!("portal=127.0.0.1:{port}");
        let mut start = command("tgtd");
        start.args(["-f", "-C", &self.control, "--iscsi", &portal]);
        let mut process = Process::start(&mut start, &self.log)?;
        process.wait_for("tgtd", START_LIMIT, || self.admin("--mode system --op show").ok())?;
        self.admin(&format!("--mode target --op new --tid 1 -T {TGT_TARGET}"))?;
        let (block, file) = (self.logical_block, self.file.display());
        let unit = format!("--tid 1 --lun 1 --bstype aio --blocksize {block} -b {file}");
        self.admin(&format!("--mode logicalunit --op new {unit}"))?;
        self.admin("--mode target --op bind --tid 1 -I ALL")?;
        self.address = format!("iscsi://127.0.0.1:{port}");
        self.process = Some(process);
        Ok(())
    }
    fn kill(&mut self) {
        self.process = None;
    }
    fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running server").pid()
    }
    fn address(&self) -> &str {
        &self.address
    }
    fn exports(&self) -> &[Export] {
        &self.exports
    }
}

/// For servers that cannot be asked which port they got: one that was free a moment ago has to do.
pub fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
    Ok(listener.local_addr().context("a free port")?.port())
}

/// Somebody else's server with one export.
pub struct Other {
    /// The command line; `PORT` stands for the port.
    line: String,
    log: PathBuf,
    process: Option<Process>,
    address: String,
    exports: Vec<Export>,
}

impl Other {
    /// The server that `line` starts in the foreground; `PORT` in it becomes a free one.
    pub fn new(directory: &Directory, line: String, size: u64) -> Other {
        Other {
            line,
            log: directory.join("server.log"),
            process: None,
            address: String::new(),
            // Neither server makes plain writes durable: FUA or flush does.
            exports: vec![Export { name: String::new(), size, sync_always: false }],
        }
    }
    /// nbdkit on a file: durable as far as a killed process goes.
    pub fn nbdkit_file(directory: &Directory, size: u64) -> Outcome<Other> {
        let file = directory.sparse_file("nbdkit.img", size)?;
        Ok(Other::new(directory, format!("nbdkit -f -i 127.0.0.1 -p PORT file {}", file.display()), size))
    }
    pub fn qemu_nbd(directory: &Directory, size: u64) -> Outcome<Other> {
        let file = directory.sparse_file("qemu.img", size)?;
        let line = format!(
            "qemu-nbd --persistent --shared=8 --bind=127.0.0.1 --port=PORT --format=raw --export-name= {}",
            file.display()
        );
        Ok(Other::new(directory, line, size))
    }
    /// nbdkit on memory: gone with the process, whatever was acknowledged.
    pub fn nbdkit_memory(directory: &Directory, size: u64) -> Other {
        Other::new(directory, format!("nbdkit -f -i 127.0.0.1 -p PORT memory {size}"), size)
    }
}

impl Server for Other {
    fn start(&mut self) -> Outcome {
        let port = free_port()?;
        let line = self.line.replace("PORT", &port.to_string());
        let mut words = line.split(' ');
        let mut start = command(words.next().expect("a command line has a program"));
        let mut process = Process::start(start.args(words), &self.log)?;
        self.address = format!("127.0.0.1:{port}");
        let address = self.address.clone();
        process.wait_for(&line, START_LIMIT, || TcpStream::connect(&address).ok())?;
        self.process = Some(process);
        Ok(())
    }
    fn kill(&mut self) {
        self.process = None;
    }
    fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running server").pid()
    }
    fn address(&self) -> &str {
        &self.address
    }
    fn exports(&self) -> &[Export] {
        &self.exports
    }
}
