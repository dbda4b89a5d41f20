//! The daemon, put together: data directory, cores, engine, management, NBD and iSCSI; started in this order, stopped in the
//! opposite one.
//!
//! The directory's lock comes first, so that a second daemon changes nothing. The readiness line and `addresses.json`
//! come last, when pools are imported and exports can be opened. A stop is orderly (no new requests, those that run are
//! finished, pools checkpointed and closed), but nothing depends on it: after a `kill -9` the next start imports the
//! pools from their last checkpoint and log, and takes over the lock and the socket.

use crate::iscsi;
use forebay_base::{Checksum, GIB, Id, MIB};
use forebay_cli::{Exit, Failure, ServeOptions};
use forebay_control::{ADDRESSES, Daemon, DataDir, EventLog, Nbd, Options, problem};
use forebay_pool::{Engine, EngineConfig, Host};
use forebay_runtime::{Cores, uring};
use forebay_target::{IscsiServer, NbdConfig, NbdServer, TlsFiles};
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Less does not hold the tree nodes that one checkpoint touches.
const MEMORY_BYTES_MIN: u64 = 64 * MIB;
/// When the machine does not say how much it has.
const MEMORY_BYTES_UNKNOWN: u64 = GIB;

/// `forebay serve`.
pub fn serve(options: ServeOptions) -> Result<(), Failure> {
    let mut appliance = Appliance::start(&options)?;
    appliance.announce(&options)?;
    appliance.daemon.wait_for_signal();
    appliance.stop()
}

/// Everything that runs.
pub struct Appliance {
    dir: Arc<DataDir>,
    pub events: EventLog,
    pub cores: Cores,
    pub engine: Engine,
    pub daemon: Daemon,
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
        let wanted =
            options.cores.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        let (cores, running) =
            uring::start(wanted).map_err(|error| Failure::new(Exit::Failed, error.to_string(), ""))?;
        let memory = options.memory_bytes.unwrap_or_else(quarter_of_memory).max(MEMORY_BYTES_MIN);
        let engine = Engine::new(cores.clone(), EngineConfig { memory, events: events.sink(), host: host() });
        let control = Options {
            listen: options.listen.clone(),
            http_names: options.http_names.clone(),
            http_tls: options.http_tls.clone(),
            https: options.https,
            cores: cores.count(),
        };
        let daemon = Daemon::start(dir.clone(), events.clone(), engine.clone(), control)?;
        daemon.import();
        daemon.collect(cores.clone());
        Ok(Appliance { dir, events, cores, engine, daemon, nbd: None, iscsi: None, running })
    }

    /// Opens NBD and iSCSI and tells the world: from now on clients are served.
    pub fn announce(&mut self, options: &ServeOptions) -> Result<Addresses, Failure> {
        let tls = options.nbd_tls.as_ref().map(|tls| TlsFiles {
            certificate: tls.certificate.clone(),
            key: tls.key.clone(),
            client_ca: tls.authority.clone(),
        });
        let scheme = if tls.is_some() { "nbds" } else { "nbd" };
        let config = NbdConfig { listen: options.nbd.clone(), tls };
        let start = NbdServer::start(self.cores.clone(), self.engine.clone(), config, self.events.sink());
        let waiting = format!("{} is in use; waiting in case its owner was killed just now", options.nbd);
        let nbd = self.daemon.block_on_telling(start, &waiting).map_err(problem)?;
        let (nbd_address, nbd_uri) = (nbd.address().to_string(), format!("{scheme}://{}", nbd.address()));
        let nbd = Arc::new(nbd);
        self.daemon.attach_nbd(Arc::new(Desk(nbd.clone())));
        self.nbd = Some(nbd);
        let (cores, engine) = (self.cores.clone(), self.engine.clone());
        let (portals, minimum) = (&options.iscsi, options.iscsi_chap_minimum);
        let (iscsi, warning) = iscsi::start(&self.daemon, cores, engine, portals, minimum, &self.events)?;
        let addresses = Addresses {
            http: self.daemon.http().to_string(),
            nbd: nbd_address,
            nbd_uri,
            iscsi: iscsi.portals().iter().map(|portal| portal.listen.clone()).collect(),
        };
        self.iscsi = Some(iscsi);
        let socket = self.daemon.socket();
        let file = json!({
            "http": addresses.http,
            "http_url": self.daemon.http_url(),
            "nbd": addresses.nbd,
            "nbd_uri": addresses.nbd_uri,
            "iscsi": addresses.iscsi,
            "socket": socket.display().to_string(),
        });
        self.dir.write(ADDRESSES, format!("{file}\n").as_bytes()).map_err(|error| {
            Failure::new(Exit::Failed, format!("the addresses cannot be written: {error}"), "")
                .object(self.dir.file(ADDRESSES).display().to_string())
        })?;
        say(&format!(
            "forebay: ready, API {}, NBD {}, iSCSI {}, socket {}",
            self.daemon.http_url(),
            addresses.nbd_uri,
            addresses.iscsi.join(" "),
            socket.display()
        ));
        if let Some(warning) = warning {
            say(&format!("forebay: warning: {warning}"));
        }
        if let Some((certificate, fingerprint)) = self.daemon.http_authority() {
            let certificate = certificate.display();
            say(&format!("forebay: HTTPS goes by the authority in {certificate}, SHA-256 {fingerprint}"));
        }
        if let Some(link) = self.daemon.setup_link()? {
            say(&format!("forebay: nobody can log in yet; make the first administrator at {link}"));
        }
        Ok(addresses)
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
    /// `HOST:PORT`.
    pub nbd: String,
    /// With scheme.
    pub nbd_uri: String,
    /// `HOST:PORT` of each portal.
    pub iscsi: Vec<String>,
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

fn quarter_of_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    memory_total(&text).map_or(MEMORY_BYTES_UNKNOWN, |bytes| bytes / 4)
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
    fn memory_is_read_from_the_kernel_s_words() {
        assert_eq!(memory_total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(memory_total("MemTotal: lots\n"), None);
        assert_eq!(memory_total(""), None);
    }
}
