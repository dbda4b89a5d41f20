//! The daemon, put together: data directory, cores, engine, management, NBD and iSCSI; started in this order, stopped in the
//! opposite one.
//!
//! The directory's lock comes first, so that a second daemon changes nothing. The readiness line and `addresses.json`
//! come last, when pools are imported and exports can be opened. A stop is orderly (no new requests, those that run are
//! finished, pools checkpointed and closed), but nothing depends on it: after a `kill -9` the next start imports the
//! pools from their last checkpoint and log, and takes over the lock and the socket.

use crate::descriptors::Descriptors;
use crate::iscsi;
use crate::notify::Manager;
use forebay_api::Severity;
use forebay_base::{Checksum, GIB, Id, MIB};
use forebay_cli::{Exit, Failure, ServeOptions};
use forebay_control::{ADDRESSES, Daemon, DataDir, EventLog, File, Nbd, Options, problem};
use forebay_pool::{Engine, EngineConfig, Host};
use forebay_runtime::{Cores, uring};
use forebay_target::{IscsiServer, NbdConfig, NbdServer, TlsFiles};
use serde_json::json;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

// The browser interface, `FILES: &[File]`, sorted by path.
include!(concat!(env!("OUT_DIR"), "/interface.rs"));

/// Less does not hold the tree nodes that one checkpoint touches.
const MEMORY_BYTES_MIN: u64 = 64 * MIB;
/// When the machine does not say how much it has.
const MEMORY_BYTES_UNKNOWN: u64 = GIB;

/// `forebay serve`.
pub fn serve(options: ServeOptions) -> Result<(), Failure> {
    let manager = Manager::from_environment();
    manager.starting();
    let mut appliance = Appliance::start(&options)?;
    let addresses = appliance.announce(&options)?;
    if let Some(link) = appliance.daemon.setup_link()? {
        say(&format!("forebay: no user exists yet; create the first administrator at {link}"));
    }
    manager.ready(&appliance, &addresses);
    appliance.daemon.wait_for_signal();
    manager.stopping();
    appliance.stop()
}

/// Everything that runs.
pub struct Appliance {
    dir: Arc<DataDir>,
    pub events: EventLog,
    pub cores: Cores,
    pub engine: Engine,
    pub daemon: Daemon,
    descriptors: Descriptors,
    nbd: Option<Arc<NbdServer>>,
    iscsi: Option<Arc<IscsiServer>>,
    running: uring::Running,
}

impl Appliance {
    /// Starts everything but NBD and iSCSI, and imports the pools that the directory remembers.
    pub fn start(options: &ServeOptions) -> Result<Appliance, Failure> {
        crate::set_broken_pipe(libc::SIG_IGN);
        let dir = Arc::new(DataDir::open(&options.data)?);
        // Of a daemon that is dead by now: its addresses would lead whoever waits for ours astray.
        remove_addresses(&dir);
        let events = EventLog::open(dir.clone()).map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("the event log cannot be opened: {error}"),
                "Check that the directory is writable and has space.",
            )
            .object(options.data.display().to_string())
        })?;
        let descriptors = Descriptors::raise();
        if let Some(shortage) = descriptors.shortage() {
            eprintln!("forebay: {shortage}");
            events.record(Severity::Warning, "server.descriptors", "open files", &shortage);
        }
        let wanted =
            options.cores.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        let (cores, running) =
            uring::start(wanted).map_err(|error| Failure::new(Exit::Failed, error.to_string(), ""))?;
        let memory = memory_bytes(options)?;
        let engine = Engine::new(cores.clone(), EngineConfig { memory, events: events.sink(), host: host() });
        let control = Options {
            listen: options.listen.clone(),
            http_names: options.http_names.clone(),
            http_tls: options.http_tls.clone(),
            https: options.https,
            cores: cores.count(),
            interface: FILES,
        };
        let daemon = Daemon::start(dir.clone(), events.clone(), engine.clone(), control)?;
        daemon.import();
        daemon.collect(cores.clone());
        Ok(Appliance { dir, events, cores, engine, daemon, descriptors, nbd: None, iscsi: None, running })
    }

    /// Opens NBD and iSCSI and tells the world: from now on clients are served.
    pub fn announce(&mut self, options: &ServeOptions) -> Result<Addresses, Failure> {
        let nbd = options.nbd.as_deref().map(|listen| self.start_nbd(listen, options)).transpose()?;
        let (cores, engine) = (self.cores.clone(), self.engine.clone());
        let (portals, minimum) = (&options.iscsi, options.iscsi_chap_minimum);
        let clients = self.descriptors.clients();
        let (iscsi, warning) =
            iscsi::start(&self.daemon, cores, engine, portals, (minimum, clients), &self.events)?;
        let addresses = Addresses {
            http: self.daemon.http().to_string(),
            http_url: self.daemon.http_url(),
            nbd,
            iscsi: iscsi.portals().iter().map(|portal| portal.listen.clone()).collect(),
        };
        self.iscsi = Some(iscsi);
        let socket = self.daemon.socket();
        let file = json!({
            "http": addresses.http,
            "http_url": addresses.http_url,
            "nbd": addresses.nbd.as_ref().map(|nbd| &nbd.listen),
            "nbd_uri": addresses.nbd.as_ref().map(|nbd| nbd.uri("")),
            "iscsi": addresses.iscsi,
            "socket": socket.display().to_string(),
        });
        // Volumes are served also where the directory is full; whoever has to read that it is finds the daemon through its socket.
        if let Err(error) = self.dir.write(ADDRESSES, format!("{file}\n").as_bytes()) {
            let at = self.dir.file(ADDRESSES).display().to_string();
            say(&format!(
                "forebay: warning: {at} cannot be written: {error}. Check that the directory is writable and has space"
            ));
        }
        say(&format!("forebay: ready, {addresses}, socket {}", socket.display()));
        if let Some(warning) = warning {
            say(&format!("forebay: warning: {warning}"));
        }
        if let Some((certificate, fingerprint)) = self.daemon.http_authority() {
            let certificate = certificate.display();
            say(&format!(
                "forebay: HTTPS certificates are signed by the authority in {certificate}, SHA-256 {fingerprint}"
            ));
        }
        Ok(addresses)
    }

    fn start_nbd(&mut self, listen: &str, options: &ServeOptions) -> Result<NbdAddress, Failure> {
        let is_tls = options.nbd_tls.is_some();
        let config = NbdConfig { connections_max: self.descriptors.clients(), ..nbd_config(listen, options) };
        let start = NbdServer::start(self.cores.clone(), self.engine.clone(), config, self.events.sink());
        let waiting =
            format!("{listen} is in use; waiting, because a process that was just killed may still hold it");
        let nbd = Arc::new(self.daemon.block_on_telling(start, &waiting).map_err(problem)?);
        self.daemon.attach_nbd(Arc::new(Desk(nbd.clone())));
        let listen = nbd.address().to_string();
        self.nbd = Some(nbd);
        Ok(NbdAddress { listen, is_tls })
    }

    /// The data directory, absolute.
    pub fn directory(&self) -> &Path {
        self.dir.path()
    }

    /// The orderly end.
    pub fn stop(mut self) -> Result<(), Failure> {
        remove_addresses(&self.dir);
        self.daemon.stop();
        if let Some(nbd) = &self.nbd {
            self.daemon.block_on(nbd.stop());
        }
        if let Some(iscsi) = &self.iscsi {
            self.daemon.block_on(iscsi.stop());
        }
        self.daemon.block_on(self.engine.stop());
        self.daemon.flush_events();
        self.running.stop().map_err(|error| {
            Failure::new(Exit::Failed, error.to_string(), "The pools are crash-safe; start the daemon again.")
        })
    }
}

/// What management asks of the NBD server.
struct Desk(Arc<NbdServer>);

impl Nbd for Desk {
    fn clients(&self, volume: Id) -> Vec<String> {
        let sessions = self.0.sessions().into_iter().filter(|session| session.volume == volume);
        sessions.map(|session| session.peer).collect()
    }
}

/// Where clients connect.
pub struct Addresses {
    /// `HOST:PORT`.
    pub http: String,
    /// With scheme, as people write it into a browser.
    pub http_url: String,
    /// Nothing when NBD is off.
    pub nbd: Option<NbdAddress>,
    /// `HOST:PORT` of each portal.
    pub iscsi: Vec<String>,
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let nbd = self.nbd.as_ref().map_or("off".into(), |nbd| nbd.uri(""));
        write!(f, "API {}, NBD {nbd}, iSCSI {}", self.http_url, self.iscsi.join(" "))
    }
}

/// Where NBD clients connect.
pub struct NbdAddress {
    /// `HOST:PORT`, or `unix:PATH`.
    pub listen: String,
    is_tls: bool,
}

impl NbdAddress {
    /// What clients are given to open an export; without one, the server.
    pub fn uri(&self, export: &str) -> String {
        let scheme = if self.is_tls { "nbds" } else { "nbd" };
        match self.listen.strip_prefix("unix:") {
            Some(path) => format!("{scheme}+unix:///{export}?socket={}", escaped(path)),
            None if export.is_empty() => format!("{scheme}://{}", self.listen),
            None => format!("{scheme}://{}/{export}", self.listen),
        }
    }
}

/// A path as a part of a URI.
fn escaped(path: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
            (byte as char).to_string()
        }
        other => format!("%{other:02X}"),
    };
    path.bytes().map(escape).collect()
}

/// Prints a line; whoever does not listen misses nothing but the line.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn remove_addresses(dir: &DataDir) {
    // Commonly there is none.
    let _ = std::fs::remove_file(dir.file(ADDRESSES));
}

/// Who this machine is: the same over restarts and reinstallations of the appliance. The id is made of machine-id(5), which
/// asks not to be shown as it is, or else of the name.
fn host() -> Host {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let name = read("/proc/sys/kernel/hostname");
    let machine = Some(read("/etc/machine-id")).filter(|id| !id.is_empty()).unwrap_or_else(|| name.clone());
    Host { id: Id(Checksum::of(format!("forebay {machine}").as_bytes()).0), name }
}

/// NBD as the options want it, for as many clients as there may be.
pub fn nbd_config(listen: &str, options: &ServeOptions) -> NbdConfig {
    let tls = options.nbd_tls.as_ref().map(|tls| TlsFiles {
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        client_ca: tls.authority.clone(),
    });
    NbdConfig { tls, ..NbdConfig::plain(listen) }
}

/// The engine's memory. More than the machine has would end the process as soon as the cache has filled.
pub fn memory_bytes(options: &ServeOptions) -> Result<u64, Failure> {
    let machine = memory_total(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default());
    match (options.memory_bytes, machine) {
        (Some(wanted), Some(machine)) if wanted > machine => Err(Failure::new(
            Exit::Usage,
            format!("--memory is {} MiB, and the machine has {} MiB", wanted / MIB, machine / MIB),
            "Give less, or omit --memory: the default is a quarter of the machine's memory",
        )),
        (Some(wanted), _) if wanted < MEMORY_BYTES_MIN => Err(Failure::new(
            Exit::Usage,
            format!("--memory is {wanted} bytes, and the minimum is {} MiB", MEMORY_BYTES_MIN / MIB),
            format!(
                "{}M or more, or omit --memory: the default is a quarter of the machine's memory",
                MEMORY_BYTES_MIN / MIB
            ),
        )),
        (Some(wanted), _) => Ok(wanted),
        (None, machine) => Ok(machine.map_or(MEMORY_BYTES_UNKNOWN, |bytes| bytes / 4).max(MEMORY_BYTES_MIN)),
    }
}

/// `MemTotal` in bytes.
fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_has_a_uri_that_clients_take() {
        let uri = |listen: &str, is_tls, export| NbdAddress { listen: listen.into(), is_tls }.uri(export);
        assert_eq!(uri("127.0.0.1:10809", false, "tank/vm1"), "nbd://127.0.0.1:10809/tank/vm1");
        assert_eq!(uri("[::1]:10809", true, ""), "nbds://[::1]:10809");
        assert_eq!(uri("unix:/run/my nbd", false, "tank/vm1"), "nbd+unix:///tank/vm1?socket=/run/my%20nbd");
    }

    #[test]
    fn memory_is_read_from_the_kernel_s_words() {
        assert_eq!(memory_total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(memory_total("MemTotal: lots\n"), None);
        assert_eq!(memory_total(""), None);
    }
}
