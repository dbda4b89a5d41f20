//! iSCSI, put together: the server on the engine's cores, and management's view of who may come in.
//!
//! Neither knows the other: the server asks [`Access`], management shows sessions through [`Iscsi`], and this module
//! answers both from the other side. Each portal is a portal group of its own, in the order of the command line, so that
//! initiators see as many paths as there are portals.

use forebay_api::Severity;
use forebay_cli::{ChapAlgorithm, Failure};
use forebay_control::{AccessMap, Credentials, Daemon, EventLog, Iscsi, IscsiSession, MappedVolume, problem};
use forebay_iscsi::{Algorithm, Chap, Secret};
use forebay_pool::{Ceiling, Engine};
use forebay_runtime::Cores;
use forebay_scsi::{BlockFormat, Lun};
use forebay_target::{Access, IscsiConfig, IscsiServer, Mapping, Portal, Proof, Unknown};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// Listens on all of `addresses`, for so many clients, and attaches the server to management; what to warn of, if anything.
pub fn start(
    daemon: &Daemon,
    cores: Cores,
    engine: Engine,
    addresses: &[String],
    (chap_minimum, connections_max): (ChapAlgorithm, usize),
    events: &EventLog,
) -> Result<(Arc<IscsiServer>, Option<String>), Failure> {
    let portal = |(listen, group): (&String, u16)| Portal { listen: listen.clone(), group };
    let portals = addresses.iter().zip(1..).map(portal).collect();
    let chap_minimum = match chap_minimum {
        ChapAlgorithm::Md5 => Algorithm::Md5,
        ChapAlgorithm::Sha256 => Algorithm::Sha256,
    };
    let config = IscsiConfig { portals, chap_minimum, connections_max };
    let access = Arc::new(Doorman(daemon.access()));
    let starting = IscsiServer::start(cores, engine, access, config, events.sink());
    let waiting = format!(
        "{} is in use; waiting, because a process that was just killed may still hold it",
        addresses.join(", ")
    );
    let server = Arc::new(daemon.block_on_telling(starting, &waiting).map_err(problem)?);
    let (access, events) = (daemon.access(), events.clone());
    let desk = Desk { server: server.clone(), access, events, warned: Mutex::default() };
    let warning = desk.warn_of_hosts_without_secret();
    daemon.attach_iscsi(Arc::new(desk));
    Ok((server, warning))
}

/// Lets in whom the configuration names.
struct Doorman(Arc<AccessMap>);

impl Access for Doorman {
    fn admit(&self, initiator: &str) -> Result<Proof, Unknown> {
        let admission = self.0.admit(initiator).ok_or(Unknown)?;
        let Some(chap) = &admission.chap else { return Ok(Proof::Name) };
        let target = admission.mutual.as_ref().map(credentials).transpose()?;
        Ok(Proof::Chap(Chap { initiator: credentials(chap)?, target }))
    }

    fn targets(&self, initiator: &str) -> Vec<String> {
        self.0.admit(initiator).map(|admission| admission.targets().cloned().collect()).unwrap_or_default()
    }

    fn ceiling(&self, initiator: &str) -> Option<Arc<Ceiling>> {
        self.0.admit(initiator)?.ceiling.clone().map(|ceiling| ceiling.0)
    }

    fn luns(&self, initiator: &str, target: &str) -> Vec<Mapping> {
        let admission = self.0.admit(initiator);
        admission.map(|admission| admission.luns(target).iter().map(mapping).collect()).unwrap_or_default()
    }
}

/// A secret that is too short or too long was written into the file by hand; then nobody is let in with it.
fn credentials(from: &Credentials) -> Result<forebay_iscsi::Credentials, Unknown> {
    let secret = Secret::new(from.secret.as_bytes()).ok_or(Unknown)?;
    Ok(forebay_iscsi::Credentials { user: from.user.clone(), secret })
}

fn mapping(from: &MappedVolume) -> Mapping {
    Mapping {
        lun: Lun::new(from.lun).expect("numbers are checked when they are given"),
        volume: from.volume,
        core: from.core,
        name: from.name.clone(),
        format: if from.logical_block_bytes == 4096 { BlockFormat::B4096 } else { BlockFormat::B512 },
    }
}

/// What management asks of the server.
struct Desk {
    server: Arc<IscsiServer>,
    access: Arc<AccessMap>,
    events: EventLog,
    /// Hosts without a secret that were warned of, as long as they have none.
    warned: Mutex<Vec<String>>,
}

impl Desk {
    /// Warns of hosts that others can pass for, once of each; what it said.
    fn warn_of_hosts_without_secret(&self) -> Option<String> {
        let portals = self.portals_beyond_loopback();
        if portals.is_empty() {
            return None;
        }
        let hosts = self.access.hosts_without_secret();
        let mut warned = self.warned.lock().expect("no holder of this lock panics");
        let before = std::mem::replace(&mut *warned, hosts.clone());
        let new: Vec<String> = hosts.into_iter().filter(|host| !before.contains(host)).collect();
        let first = new.first()?;
        let others = match new.len() {
            1 => String::new(),
            count => format!(" and {} others", count - 1),
        };
        let message = format!(
            "host {first}{others} can log in with the initiator name alone, and iSCSI listens on {}. Every machine that \
             reaches this address and knows the name can read and overwrite the host's volumes. Give hosts a secret: \
             'forebay host set {first} --chap USER'",
            portals.join(", ")
        );
        self.events.record(Severity::Warning, "iscsi.host.without_secret", first, &message);
        Some(message)
    }
}

impl Iscsi for Desk {
    fn sessions(&self) -> Vec<IscsiSession> {
        let portal = |group: u16| {
            let portal = self.server.portals().iter().find(|portal| portal.group == group);
            portal.map(|portal| portal.listen.clone()).unwrap_or_default()
        };
        let shown = |session: forebay_target::IscsiSession| IscsiSession {
            id: session.id,
            initiator: session.initiator,
            target: Some(session.target).filter(|target| !target.is_empty()),
            peer: session.peer,
            portal: portal(session.portal_group),
            portal_group: session.portal_group,
            since_unix_ms: session.since.0,
            commands: session.commands,
            read_bytes: session.bytes_read,
            written_bytes: session.bytes_written,
        };
        self.server.sessions().into_iter().map(shown).collect()
    }

    fn drop_session(&self, id: u64) -> bool {
        self.server.drop_session(id)
    }

    fn access_changed(&self) {
        self.server.access_changed();
        self.warn_of_hosts_without_secret();
    }

    fn set_fill(&self, target: &str, fill_permille: u32, threshold_permille: u32) {
        self.server.set_fill(target, fill_permille, threshold_permille);
    }

    fn portals_beyond_loopback(&self) -> Vec<String> {
        let portals = self.server.portals().iter().map(|portal| &portal.listen);
        let is_reached = |listen: &&String| {
            listen.parse().is_ok_and(|address: SocketAddr| !address.ip().to_canonical().is_loopback())
        };
        portals.filter(is_reached).cloned().collect()
    }
}
