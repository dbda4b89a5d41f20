//! The iSCSI server: listens on its portals, lets initiators in, knows who is there, stops.
//!
//! Core 0 listens and logs in; each session then lives on the core that owns most of its volumes.
//!
//! Limits, each with its reason: places for connections, shares of them, and logins at a time ([`crate::admission`]); and
//! [`LOGIN_MAX`] for a login, because a client that connects and says nothing must not keep its place.

use super::access::{Access, Volumes};
use super::execute::Seat;
use super::greet::{Door, Greeted, Parted, greet};
use super::mail::{Farewell, Mail, PostOffice};
use super::registry::{IscsiSession, Registry};
use super::route::Client;
use super::session::{Beginning, Ended, serve};
use super::unit::Units;
use crate::admission::{CONNECTIONS_MAX, Listening, Place};
use crate::event::{Events, Reporter};
use crate::local::{Local, PACE_BYTES, PACE_TIME};
use crate::server::Stoppers;
use forebay_iscsi::{Algorithm, Discovered, TargetsWanted};
use forebay_pool::{Error, ErrorKind, Severity};
use forebay_runtime::{Cores, Listener, Rt, Stream};
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Time from connection to full feature phase.
pub const LOGIN_MAX: Duration = Duration::from_secs(15);
/// Pause after a failed accept (out of descriptors, say), so that it is not repeated in a loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// One address that is listened on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Portal {
    /// `ADDRESS:PORT` with a literal address; port 0 lets the system choose.
    pub listen: String,
    /// The tag of its portal group, from 1: initiators see portals of different groups as different paths.
    pub group: u16,
}

impl Portal {
    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        let literal = self.listen.replacen("localhost:", "127.0.0.1:", 1);
        if self.group == 0 {
            let message = "portal groups are numbered from 1";
            return Err(Error::new(ErrorKind::Invalid("iscsi"), &self.listen, message));
        }
        literal.parse().map_err(|_| {
            Error::new(ErrorKind::Invalid("iscsi"), &self.listen, "is not an IP address and a port")
                .remedy("Write it like 127.0.0.1:3260 or [::1]:3260")
        })
    }
}

/// How to listen and to serve.
#[derive(Clone, Debug)]
pub struct IscsiConfig {
    pub portals: Vec<Portal>,
    /// The weakest algorithm by which an initiator may prove its secret.
    pub chap_minimum: Algorithm,
    /// Connections at a time, logins under way included.
    pub connections_max: usize,
}

/// With any algorithm and as many connections as there may be.
impl From<Vec<Portal>> for IscsiConfig {
    fn from(portals: Vec<Portal>) -> IscsiConfig {
        IscsiConfig { portals, chap_minimum: Algorithm::Md5, connections_max: CONNECTIONS_MAX }
    }
}

/// A running server. Dropping it leaves it running; [`IscsiServer::stop`] ends it.
pub struct IscsiServer {
    registry: Arc<Registry>,
    cores: Cores,
    portals: Vec<Portal>,
    /// [`set_fill`] for the volumes that this server has.
    set_fill: SetFill,
}

/// What every part of one server needs.
struct House<V: Volumes> {
    registry: Arc<Registry>,
    cores: Cores,
    volumes: V,
    access: Arc<dyn Access>,
    /// As bound, for discovery.
    portals: Arc<Vec<Portal>>,
    chap_minimum: Algorithm,
}

impl<V: Volumes> Clone for House<V> {
    fn clone(&self) -> House<V> {
        House {
            registry: self.registry.clone(),
            cores: self.cores.clone(),
            volumes: self.volumes.clone(),
            access: self.access.clone(),
            portals: self.portals.clone(),
            chap_minimum: self.chap_minimum,
        }
    }
}

impl IscsiServer {
    /// Starts a server for whom `access` lets in, on all portals of `config` or on none.
    pub async fn start<V: Volumes>(
        cores: Cores,
        volumes: V,
        access: Arc<dyn Access>,
        config: impl Into<IscsiConfig>,
        events: Events,
    ) -> Result<IscsiServer, Error> {
        let IscsiConfig { portals, chap_minimum, connections_max } = config.into();
        let addresses: Vec<SocketAddr> = portals.iter().map(Portal::address).collect::<Result<_, _>>()?;
        let mut groups: Vec<u16> = portals.iter().map(|portal| portal.group).collect();
        groups.sort_unstable();
        groups.dedup();
        let registry = Registry::new(Reporter::new(events), groups, connections_max);
        let (report, listening) = oneshot::channel();
        let (house_registry, house_cores) = (registry.clone(), cores.clone());
        let asked = portals.clone();
        cores.core(0).run(move |rt| {
            let mut listeners = Vec::new();
            for (address, portal) in addresses.iter().zip(&asked) {
                // An address that a killed server still holds is waited for in there.
                match rt.listen(&address.to_string()) {
                    Ok(listener) => listeners.push(listener),
                    Err(error) => return drop(report.send(Err((portal.listen.clone(), error)))),
                }
            }
            let bound = listeners.iter().zip(&asked);
            let bound: Vec<Portal> = bound
                .map(|(listener, portal)| Portal { listen: listener.address(), group: portal.group })
                .collect();
            // Nobody can stop a server whose starter has gone.
            if report.send(Ok(bound.clone())).is_err() {
                return;
            }
            let portals = Arc::new(bound);
            let house = House {
                registry: house_registry,
                cores: house_cores,
                volumes,
                access,
                portals,
                chap_minimum,
            };
            for (listener, portal) in listeners.into_iter().zip(asked) {
                let listening = house.registry.admission.listen();
                rt.spawn(welcome(rt.clone(), listener, portal.group, listening, house.clone()));
            }
        });
        let stopped = || Error::new(ErrorKind::Stopped, "iscsi", "the cores have stopped");
        let bound = listening.await.map_err(|_| stopped())?.map_err(|(listen, error)| {
            let why = error.os.map(std::io::Error::from_raw_os_error);
            let why = why.map_or("the address cannot be used".into(), |why| why.to_string());
            Error::new(ErrorKind::Conflict, listen, format!("cannot listen for iSCSI: {why}"))
                .remedy("Choose another address with --iscsi ADDRESS:PORT")
        })?;
        Ok(IscsiServer { registry, cores, portals: bound, set_fill: set_fill::<V> })
    }

    /// The portals, with the ports that the system chose.
    pub fn portals(&self) -> &[Portal] {
        &self.portals
    }

    /// The sessions, oldest first.
    pub fn sessions(&self) -> Vec<IscsiSession> {
        self.registry.sessions()
    }

    /// Ends a session: its initiator is told, what runs is finished. False when there is none of this number.
    pub fn drop_session(&self, id: u64) -> bool {
        self.registry.end(&self.cores, id, Farewell::Dropped)
    }

    /// To be called after what [`Access`] answers has changed: sessions of initiators that may not be there any more end, the
    /// others are told with a unit attention when what they see has changed.
    pub fn access_changed(&self) {
        self.tell_all(|| Mail::AccessChanged);
    }

    /// Tells how full the space behind a target is, in thousandths, and from where on its initiators are told.
    pub fn set_fill(&self, target: &str, fill_permille: u32, threshold_permille: u32) {
        (self.set_fill)(&self.cores, target, fill_permille, threshold_permille);
    }

    fn tell_all(&self, mail: fn() -> Mail) {
        let id = self.registry.id;
        for core in 0..self.cores.count() {
            self.cores.core(core).run(move |rt| rt.local::<PostOffice>().deliver_all(id, mail));
        }
    }

    /// Stops listening, tells all initiators, lets commands that run finish, and closes all connections. Returns when the last
    /// one is closed: an initiator that does not take its last PDUs is given 5 s, a disk as long as it needs.
    pub async fn stop(&self) {
        self.registry.admission.stop();
        let id = self.registry.id;
        self.cores.core(0).run(move |rt| rt.local::<Stoppers>().stop(id));
        self.tell_all(|| Mail::End(Farewell::Stopping));
        if let Some(emptied) = self.registry.admission.emptied() {
            // An error means that the registry is gone, and with it every connection.
            let _ = emptied.await;
        }
    }
}

type SetFill = fn(&Cores, &str, u32, u32);

fn set_fill<V: Volumes>(cores: &Cores, target: &str, fill_permille: u32, threshold_permille: u32) {
    for core in 0..cores.count() {
        let target = target.to_owned();
        cores.core(core).run(move |rt| {
            for live in rt.local::<Units<V::Disk>>().all().iter().filter(|live| live.target == target) {
                live.unit.borrow_mut().set_fill(fill_permille, threshold_permille);
            }
        });
    }
}

/// Accepts clients on one portal until the server stops.
async fn welcome<V: Volumes>(rt: Rt, listener: Listener, group: u16, listening: Listening, house: House<V>) {
    accept(&rt, &listener, group, &house).await;
    // In this order: who hears that nobody listens may use the address again.
    drop(listener);
    drop(listening);
}

async fn accept<V: Volumes>(rt: &Rt, listener: &Listener, group: u16, house: &House<V>) {
    let registry = &house.registry;
    let mut stopped = rt.local::<Stoppers>().watch(registry.id);
    loop {
        let accepted = match select(listener.accept(), &mut stopped).await {
            Either::Left((accepted, _)) => accepted,
            Either::Right(_) => return,
        };
        match accepted {
            Ok(stream) => {
                let peer = stream.peer();
                match registry.admission.admit(&peer) {
                    Ok(place) => {
                        rt.spawn(log_in(rt.clone(), stream, group, house.clone(), place));
                    }
                    Err(full) => {
                        let (code, message) = ("iscsi.client.refused", full.to_string());
                        registry.reporter.report(rt, Severity::Warning, code, &peer, message);
                        stream.shutdown();
                    }
                }
            }
            Err(error) => {
                let why = error.os.map(std::io::Error::from_raw_os_error);
                let why = why.map_or("an unknown error".into(), |why| why.to_string());
                let object = listener.address();
                let message = format!("clients cannot be accepted: {why}");
                registry.reporter.report(rt, Severity::Error, "iscsi.accept.failed", &object, message);
                if let Either::Right(_) = select(rt.sleep(ACCEPT_PAUSE), &mut stopped).await {
                    return;
                }
            }
        }
    }
}

/// Logs one client in and hands it to its core.
async fn log_in<V: Volumes>(rt: Rt, stream: Stream, group: u16, house: House<V>, place: Place) {
    let place = RefCell::new(place);
    if let Some(greeted) = greet_in_time(&rt, stream, group, &house, &place).await
        && place.borrow_mut().settle()
    {
        hand_over(greeted, house, place.into_inner());
    }
}

async fn greet_in_time<V: Volumes>(
    rt: &Rt,
    stream: Stream,
    group: u16,
    house: &House<V>,
    place: &RefCell<Place>,
) -> Option<Greeted> {
    let peer = stream.peer();
    let stopped = rt.local::<Stoppers>().watch(house.registry.id);
    let (access, registry, cores) = (&*house.access, &house.registry, &house.cores);
    let door = Door { place, access, registry, cores, portal_group: group, chap_minimum: house.chap_minimum };
    let greeting = pin!(greet(rt, door, stream));
    let displaced = poll_fn(|context| place.borrow_mut().poll_displaced(context));
    let limits = select(select(rt.sleep(LOGIN_MAX), displaced), stopped);
    let outcome = select(greeting, limits).await;
    let seconds = LOGIN_MAX.as_secs();
    let named =
        |initiator: Option<String>| initiator.map_or(peer.to_owned(), |name| format!("{name} at {peer}"));
    let (code, object, message) = match outcome {
        Either::Left((Ok(greeted), _)) => return Some(greeted),
        Either::Left((Err(Parted::ByClient), _)) => return None,
        Either::Left((Err(Parted::Refused { violation, initiator, cause }), _)) => {
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            ("iscsi.login.refused", named(initiator), format!("disconnected: {violation}{cause}"))
        }
        Either::Left((Err(Parted::Panicked(panicked, initiator)), _)) => {
            let object = named(initiator);
            house.registry.reporter.panicked(rt, "iscsi.session.panicked", &object, &panicked);
            return None;
        }
        Either::Right((Either::Left((Either::Left(_), _)), _)) => {
            ("iscsi.client.slow", peer, format!("disconnected: it did not log in within {seconds} s"))
        }
        Either::Right((Either::Left((Either::Right(_), _)), _)) => {
            let message =
                "disconnected to make room: others began to log in after it, and its login was not complete"
                    .into();
            ("iscsi.client.slow", peer, message)
        }
        Either::Right((Either::Right(_), _)) => return None,
    };
    house.registry.reporter.report(rt, Severity::Warning, code, &object, message);
    None
}

/// Sends an initiator to its core, to be served there.
fn hand_over<V: Volumes>(greeted: Greeted, house: House<V>, place: Place) {
    let Greeted { stream, established, leftover, listed } = greeted;
    let detached = stream.detach();
    let House { registry, cores, volumes, access, portals, .. } = house;
    let home = listed.who.home;
    cores.clone().core(home).run(move |rt| {
        let who = listed.who.clone();
        let member = rt.local::<Local>().join(rt, registry.id, who.session, &who.peer);
        let address = rt.local::<PostOffice>().open(registry.id, who.session);
        // Looked at after opening the mailbox: either this sees the flag, or the mail finds the session.
        if registry.admission.is_stopping() || listed.farewell().is_some() {
            return;
        }
        let (rt, stream) = (rt.clone(), rt.attach(detached));
        let reporter = registry.reporter.clone();
        let seat = Seat { cores, volumes, access: access.clone(), reporter, who: who.clone() };
        rt.clone().spawn(async move {
            let client = Rc::new(Client::new(rt.clone(), seat));
            let counters = listed.counters.clone();
            let tell = |wanted: &TargetsWanted| discover(&*access, &portals, &who.initiator, wanted);
            let beginning = Beginning { client, stream, established, leftover, member, address, counters };
            let ended = serve(beginning, tell).await;
            drop(listed);
            let object = format!("{} at {}", who.initiator, who.peer);
            if let Ended::Panicked(panicked) = &ended {
                registry.reporter.panicked(&rt, "iscsi.session.panicked", &object, panicked);
            } else if let Some(message) = obituary(ended) {
                let message = match &who.target[..] {
                    "" => format!("its discovery session ended: {message}"),
                    target => format!("its session with {target} ended: {message}"),
                };
                registry.reporter.report(&rt, Severity::Warning, "iscsi.session.lost", &object, message);
            }
            drop(place);
        });
    });
}

/// The targets that an initiator may know of. A portal on all addresses is found under the one that was asked.
fn discover(
    access: &dyn Access,
    portals: &[Portal],
    initiator: &str,
    wanted: &TargetsWanted,
) -> Vec<Discovered> {
    let listen = |portal: &Portal| portal.listen.parse::<SocketAddr>().ok();
    let named = |portal: &&Portal| listen(portal).is_some_and(|address| !address.ip().is_unspecified());
    let portals: Vec<(String, u16)> =
        portals.iter().filter(named).map(|portal| (portal.listen.clone(), portal.group)).collect();
    let mut names = access.targets(initiator);
    if let TargetsWanted::Named(name) = wanted {
        names.retain(|known| known == name);
    }
    names.into_iter().map(|name| Discovered { name, portals: portals.clone() }).collect()
}

/// What the administrator should hear of a session's end.
fn obituary(ended: Ended) -> Option<String> {
    Some(match ended {
        // A panic has an event of its own.
        Ended::Logout | Ended::Told(_) | Ended::Panicked(_) => return None,
        Ended::Lost(None) => "it closed the connection without logging out".into(),
        Ended::Lost(Some(os)) => {
            format!("the connection was interrupted: {}", std::io::Error::from_raw_os_error(os))
        }
        Ended::Violation(violation) => violation.to_string(),
        Ended::Silent => forebay_iscsi::Closed::Silent.to_string(),
        Ended::Stalled => format!(
            "it transferred less than {} KiB of its pending requests in {} s",
            PACE_BYTES >> 10,
            PACE_TIME.as_secs()
        ),
        Ended::ColdReset => "it asked for a cold reset of the target".into(),
        Ended::Revoked => "it is no longer allowed to use the target".into(),
    })
}
