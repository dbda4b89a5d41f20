//! The NBD server: listens, lets clients in, knows who is there, stops.
//!
//! Core 0 listens and greets; each session then lives on the core of its volume. What management sees is a list
//! behind a lock that is taken when a client comes and goes, never per request.
//!
//! Limits, each with its reason: places for connections, and shares of them ([`crate::admission`]); [`HANDSHAKE_MAX`] to
//! reach an agreement, because a client that connects and says nothing must not keep its place, with [`PER_EXPORT`] more for
//! each export that a client was told of, because it may ask about every one. NBD has no authentication of its own: without
//! TLS the server listens on loopback addresses only, or on a socket that only its owner can open.

use crate::admission::{Admission, CONNECTIONS_MAX, Listening, Place};
use crate::backing::Catalog;
use crate::event::{Events, Reporter};
use crate::facts::{Protocol, address_of, watched};
use crate::greet::{Door, Greeted, Lists, Parted, greet};
use crate::local::{Local, PACE_BYTES, PACE_TIME};
use crate::session::{Counters, Ended, serve};
use crate::tls::{TlsFailure, TlsFiles, TlsServer};
use crate::transport::Transport;
use forebay_base::{Id, WallTime};
use forebay_pool::{Error, ErrorKind, Severity};
use forebay_runtime::{Completer, Cores, Listener, Rt, Stream, completion};
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Time from connection to agreement, TLS included.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(30);
/// Time to ask about one export of a list: five questions and answers over a network of 20 ms, and what holds the last part of a question
/// back in the client's kernel (libnbd sends it with MSG_MORE, which Linux waits 200 ms for).
pub const PER_EXPORT: Duration = Duration::from_millis(500);
/// Pause after a failed accept (out of descriptors, say), so that it is not repeated in a loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How the server listens.
#[derive(Clone, Debug)]
pub struct NbdConfig {
    /// `ADDRESS:PORT` with a literal address; port 0 lets the system choose. Or `unix:PATH`: a socket for this user alone.
    pub listen: String,
    /// With TLS every client must use it, and every address may be listened on.
    pub tls: Option<TlsFiles>,
    /// Clients at a time, those in negotiation included.
    pub connections_max: usize,
}

impl NbdConfig {
    /// Without TLS, and with as many clients as there may be.
    pub fn plain(listen: impl Into<String>) -> NbdConfig {
        NbdConfig { listen: listen.into(), tls: None, connections_max: CONNECTIONS_MAX }
    }

    /// What would keep a server from starting, as far as it can be seen without one: the address, and the files for TLS.
    pub fn check(&self) -> Result<(), Error> {
        self.prepare().map(drop)
    }

    fn prepare(&self) -> Result<(String, Option<TlsServer>), Error> {
        Ok((check_address(self)?, self.tls.as_ref().map(TlsServer::load).transpose()?))
    }
}

/// A client in the transmission phase.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    pub peer: String,
    /// What it was called when the client opened it.
    pub export: String,
    pub volume: Id,
    pub tls: bool,
    pub since: WallTime,
    pub requests: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// A running server. Dropping it leaves it running; [`NbdServer::stop`] ends it.
pub struct NbdServer {
    registry: Arc<Registry>,
    cores: Cores,
    address: String,
}

/// Who is there; shared by all cores and management.
struct Registry {
    id: u64,
    reporter: Reporter,
    admission: Arc<Admission>,
    sessions: Mutex<BTreeMap<u64, Session>>,
}

struct Session {
    peer: String,
    export: String,
    volume: Id,
    tls: bool,
    since: WallTime,
    counters: Arc<Counters>,
}

/// A line in the list of sessions; leaves when dropped.
struct Listed {
    registry: Arc<Registry>,
    id: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.registry.sessions().remove(&self.id);
    }
}

impl Registry {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<u64, Session>> {
        self.sessions.lock().expect("no holder of this lock panics")
    }

    fn list(self: &Arc<Self>, session: Session) -> Listed {
        let id = next_id();
        self.sessions().insert(id, session);
        Listed { registry: self.clone(), id }
    }
}

/// Numbers that name servers and sessions within the process.
pub fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What stops a server's listener and its negotiations, on core 0.
#[derive(Default)]
pub struct Stoppers(RefCell<HashMap<u64, Vec<Completer<()>>>>);

impl Stoppers {
    /// Completes when the server `id` stops.
    pub fn watch(&self, id: u64) -> forebay_runtime::Completion<()> {
        let (done, stopped) = completion();
        let mut stoppers = self.0.borrow_mut();
        let list = stoppers.entry(id).or_default();
        list.retain(|done| !done.is_orphan());
        list.push(done);
        stopped
    }

    pub fn stop(&self, id: u64) {
        let list = self.0.borrow_mut().remove(&id).unwrap_or_default();
        list.into_iter().for_each(|done| done.complete(()));
    }
}

impl NbdServer {
    /// Starts a server for what `catalog` has.
    pub async fn start<C: Catalog>(
        cores: Cores,
        catalog: C,
        config: NbdConfig,
        events: Events,
    ) -> Result<NbdServer, Error> {
        let (address, tls) = config.prepare()?;
        let registry = Arc::new(Registry {
            id: next_id(),
            reporter: Reporter::new(events),
            admission: Admission::new(config.connections_max),
            sessions: Mutex::default(),
        });
        let (report, listening) = oneshot::channel();
        let house = House { registry: registry.clone(), cores: cores.clone(), catalog, tls };
        cores.core(0).run(move |rt| {
            // An address that a killed server still holds is waited for in there.
            let listener = rt.listen(&address);
            let answer = listener.as_ref().map(|listener| listener.address()).map_err(|&error| error);
            if let Ok(listener) = listener {
                let listening = house.registry.admission.listen();
                // Nobody can stop a server whose starter has gone.
                if report.send(answer).is_ok() {
                    rt.spawn(welcome(rt.clone(), listener, listening, house));
                }
            } else {
                let _ = report.send(answer);
            }
        });
        let stopped = || Error::new(ErrorKind::Stopped, &config.listen, "the cores have stopped");
        let address = listening.await.map_err(|_| stopped())?.map_err(|error| {
            let why = error.os.map(std::io::Error::from_raw_os_error);
            let why = why.map_or("the address cannot be used".into(), |why| why.to_string());
            Error::new(ErrorKind::Conflict, &config.listen, format!("cannot listen for NBD: {why}"))
                .remedy("Choose another address or path with --nbd, or switch NBD off with --nbd off")
        })?;
        Ok(NbdServer { registry, cores, address })
    }

    /// The address it listens on, with the port that the system chose.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The clients in the transmission phase, oldest first.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let sessions = self.registry.sessions();
        let sessions = sessions.values().map(|session| SessionInfo {
            peer: session.peer.clone(),
            export: session.export.clone(),
            volume: session.volume,
            tls: session.tls,
            since: session.since,
            requests: session.counters.requests.load(Ordering::Relaxed),
            bytes_read: session.counters.bytes_read.load(Ordering::Relaxed),
            bytes_written: session.counters.bytes_written.load(Ordering::Relaxed),
        });
        sessions.collect()
    }

    /// Stops listening, lets requests that run finish, refuses further ones with ESHUTDOWN, and closes all connections. Returns
    /// when the last one is closed: a client that does not take its replies is given 5 s, a disk as long as it needs.
    pub async fn stop(&self) {
        self.registry.admission.stop();
        let id = self.registry.id;
        for core in 0..self.cores.count() {
            self.cores.core(core).run(move |rt| {
                rt.local::<Stoppers>().stop(id);
                rt.local::<Local>().stop(id);
            });
        }
        if let Some(emptied) = self.registry.admission.emptied() {
            // An error means that the registry is gone, and with it every connection.
            let _ = emptied.await;
        }
    }
}

/// The address to listen on, if this server may.
fn check_address(config: &NbdConfig) -> Result<String, Error> {
    if let Some(path) = config.listen.strip_prefix("unix:") {
        return match path.starts_with('/') {
            true => Ok(config.listen.clone()),
            false => Err(Error::new(ErrorKind::Invalid("nbd"), &config.listen, "is not an absolute path")
                .remedy("Write it like unix:/run/forebay/nbd.sock")),
        };
    }
    let literal = config.listen.replacen("localhost:", "127.0.0.1:", 1);
    let address: SocketAddr = literal.parse().map_err(|_| {
        Error::new(ErrorKind::Invalid("nbd"), &config.listen, "is not an IP address and a port")
            .remedy("Write it like 127.0.0.1:10809, [::1]:10809 or unix:/run/forebay/nbd.sock, or 'off' to switch NBD off")
    })?;
    if config.tls.is_none() && !address.ip().is_loopback() {
        let message = "NBD without TLS would give every volume to everyone who can reach this address";
        return Err(Error::new(ErrorKind::Unsafe, &config.listen, message)
            .remedy("Listen on 127.0.0.1, or configure a certificate and a key"));
    }
    Ok(address.to_string())
}

/// What every part of one server needs.
#[derive(Clone)]
struct House<C: Catalog> {
    registry: Arc<Registry>,
    cores: Cores,
    catalog: C,
    tls: Option<TlsServer>,
}

/// Accepts clients until the server stops.
async fn welcome<C: Catalog>(rt: Rt, listener: Listener, listening: Listening, house: House<C>) {
    accept(&rt, &listener, &house).await;
    // In this order: who hears that nobody listens may use the address again.
    drop(listener);
    drop(listening);
}

async fn accept<C: Catalog>(rt: &Rt, listener: &Listener, house: &House<C>) {
    let registry = &house.registry;
    let mut stopped = rt.local::<Stoppers>().watch(registry.id);
    let lists = Rc::new(Lists::default());
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
                        rt.spawn(negotiate(rt.clone(), stream, house.clone(), lists.clone(), place));
                    }
                    Err(full) => {
                        let message = full.to_string();
                        registry.reporter.report(rt, Severity::Warning, "nbd.client.refused", &peer, message);
                        stream.shutdown();
                    }
                }
            }
            Err(error) => {
                let why = error.os.map(std::io::Error::from_raw_os_error);
                let why = why.map_or("an unknown error".into(), |why| why.to_string());
                let object = listener.address();
                let message = format!("clients cannot be accepted: {why}");
                registry.reporter.report(rt, Severity::Error, "nbd.accept.failed", &object, message);
                if let Either::Right(_) = select(rt.sleep(ACCEPT_PAUSE), &mut stopped).await {
                    return;
                }
            }
        }
    }
}

/// Greets one client and hands it to the core of its volume.
async fn negotiate<C: Catalog>(rt: Rt, stream: Stream, house: House<C>, lists: Rc<Lists>, place: Place) {
    let (peer, place) = (stream.peer(), RefCell::new(place));
    if let Some(greeted) = greet_in_time(&rt, stream, &house, &lists, &place).await {
        let mut place = place.into_inner();
        place.agree();
        hand_over(greeted, house, place, peer);
    }
}

async fn greet_in_time<C: Catalog>(
    rt: &Rt,
    stream: Stream,
    house: &House<C>,
    lists: &Rc<Lists>,
    place: &RefCell<Place>,
) -> Option<Greeted> {
    let peer = stream.peer();
    let stopped = rt.local::<Stoppers>().watch(house.registry.id);
    let (begun, limit) = (rt.now(), Cell::new(HANDSHAKE_MAX));
    let expired = pin!(async {
        // A list of exports on the way allows for more.
        while rt.now() < begun.after(limit.get()) {
            rt.sleep_until(begun.after(limit.get())).await;
        }
    });
    let displaced = poll_fn(|context| place.borrow_mut().poll_displaced(context));
    let limits = select(expired, select(displaced, stopped));
    let door = Door { place, catalog: &house.catalog, tls: house.tls.as_ref(), lists, limit: &limit };
    let greeting = pin!(greet(rt, door, stream));
    let (code, message) = match select(greeting, limits).await {
        Either::Left((Ok(greeted), _)) => return Some(greeted),
        Either::Left((Err(Parted::ByClient), _)) => return None,
        Either::Left((Err(Parted::Violation(violation)), _)) => {
            ("nbd.client.violation", format!("disconnected in negotiation: {violation}"))
        }
        Either::Left((Err(Parted::Panicked(panicked)), _)) => {
            house.registry.reporter.panicked(rt, "nbd.session.panicked", &peer, &panicked);
            return None;
        }
        Either::Left((Err(Parted::Tls(TlsFailure::HungUp)), _)) => {
            ("nbd.tls.failed", "the client hung up during the TLS handshake".into())
        }
        Either::Left((Err(Parted::Tls(TlsFailure::Tls(error))), _)) => {
            ("nbd.tls.failed", format!("TLS handshake failed: {error}"))
        }
        Either::Right((Either::Left(_), _)) => {
            let seconds = limit.get().as_secs();
            ("nbd.client.slow", format!("disconnected: it did not agree on an export within {seconds} s"))
        }
        Either::Right((Either::Right((Either::Left(_), _)), _)) => (
            "nbd.client.slow",
            "disconnected to make room for other clients: it had agreed on no export".into(),
        ),
        Either::Right((Either::Right((Either::Right(_), _)), _)) => return None,
    };
    house.registry.reporter.report(rt, Severity::Warning, code, &peer, message);
    None
}

/// Sends a client to the core of its volume, to be served there.
fn hand_over<C: Catalog>(greeted: Greeted, house: House<C>, mut place: Place, peer: String) {
    let Greeted { transport, agreement, found, leftover } = greeted;
    let tls = matches!(transport, Transport::Tls(_));
    let parcel = transport.pack();
    let House { registry, cores, catalog, .. } = house;
    cores.core(found.core).run(move |rt| {
        let member = rt.local::<Local>().join(rt, registry.id, next_id(), &peer);
        // Looked at after joining: either this sees the flag, or the stop sees the member.
        if registry.admission.is_stopping() {
            return;
        }
        // It may have been deleted a moment ago: to the client that is a server that hung up.
        let Ok(device) = catalog.open(rt, found.id) else { return };
        let (main, transport) = (rt.clone(), Transport::unpack(rt, parcel));
        rt.spawn(async move {
            let counters = Arc::new(Counters::default());
            let listed = registry.list(Session {
                peer: peer.clone(),
                export: agreement.export.name.clone(),
                volume: found.id,
                tls,
                since: main.wall(),
                counters: counters.clone(),
            });
            let counted = (counters, watched(&main, Protocol::Nbd, address_of(&peer), found.id));
            let seat = (member, &mut place);
            let ended = serve(main.clone(), transport, device, &agreement, &leftover, seat, counted).await;
            drop(listed);
            if let Ended::Panicked(panicked) = &ended {
                registry.reporter.panicked(&main, "nbd.session.panicked", &peer, panicked);
            }
            if let Some((code, message)) = farewell(ended, &agreement.export.name) {
                registry.reporter.report(&main, Severity::Warning, code, &peer, message);
            }
            drop(place);
        });
    });
}

/// What the administrator should hear of a session's end.
fn farewell(ended: Ended, export: &str) -> Option<(&'static str, String)> {
    match ended {
        // A panic has an event of its own.
        Ended::ByClient | Ended::Stopped | Ended::Panicked(_) => None,
        Ended::Gone => Some(("nbd.export.gone", format!("disconnected: {export} is no longer available"))),
        Ended::Violation(violation) => Some(("nbd.client.violation", format!("disconnected: {violation}"))),
        Ended::Stalled => Some((
            "nbd.client.slow",
            format!(
                "disconnected: it transferred less than {} KiB of its pending requests in {} s",
                PACE_BYTES >> 10,
                PACE_TIME.as_secs()
            ),
        )),
        Ended::Displaced => Some((
            "nbd.client.slow",
            "disconnected to make room for other clients: it had read no reply".into(),
        )),
    }
}
