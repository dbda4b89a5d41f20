//! The daemon's management side: implements the API over the engine, on threads of its own.
//!
//! The engine's cores never wait for anything here; what passes between is messages ([`forebay_pool::Engine`]) and
//! events ([`EventLog::sink`]). Owned here: the data directory and its lock, the list of pools to import at start,
//! tokens, tasks, events, and the two listeners. Not owned: the engine and the protocol servers, which the binary
//! wires up, because starting and stopping have an order that spans all of them.
//!
//! Order of life: [`DataDir::open`] (refuses a second daemon before anything is touched), [`EventLog::open`], the
//! engine, [`Daemon::start`] (the API answers), [`Daemon::import`], the protocol servers; and backwards:
//! [`Daemon::stop`] (no new requests, running tasks end), the protocol servers, the engine.

// A problem document has 152 bytes; management makes few of them, and boxes would only be in the way.
#![allow(clippy::result_large_err)]

mod access;
mod alerts;
mod attempts;
mod audit;
mod audit_words;
mod authentication;
mod capture;
mod carried;
mod carrier;
mod changes;
mod channels;
mod collect;
mod configuration;
mod connections;
mod convert;
mod directory;
mod events;
mod filling;
mod handlers;
mod hosts;
mod inherited;
mod iscsi_names;
mod journal;
mod levels;
mod lists;
mod logins;
mod machine;
mod numbers;
mod pace;
mod passwords;
mod replays;
mod reports;
mod request;
mod routes;
mod rules;
mod seats;
mod server;
mod setup;
mod stall;
mod static_files;
mod statistics;
mod store;
mod tasks;
mod thresholds;
mod tls;
mod tokens;
mod users;

pub use access::{AccessMap, Admission, Iscsi, IscsiSession, MappedVolume, Nbd};
pub use configuration::ADDRESSES;
pub use convert::problem;
pub use directory::DataDir;
pub use events::EventLog;
pub use hosts::Credentials;
pub use iscsi_names::target_name;
pub use static_files::File;
pub use tls::check_certificate;

use authentication::{Front, Transport};
use forebay_api::{Code, PoolCreate, Problem, Severity};
use forebay_base::Id;
use forebay_pool::{Engine, VolumeInfo};
use forebay_runtime::Cores;
use server::Listening;
use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex as Lock, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

/// Two: one for a request that computes, one for the rest. Management is small beside the data path.
const THREADS: usize = 2;
/// Tasks are bounded by the engine's own work; an import replays its log within ten seconds.
const TASKS_SECONDS_MAX: u64 = 60;
/// A pool does not fill up in less.
const FILL_SECONDS: u64 = 10;
/// From here on hosts are warned: a tenth of a pool is enough to react.
const FILL_TOLD_PERMILLE: u32 = 900;
/// What a shell reports for a program that a second Ctrl-C killed: 128 + SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

/// What all handlers share.
pub(crate) struct Shared {
    engine: Engine,
    dir: Arc<DataDir>,
    events: EventLog,
    configuration: configuration::Configuration,
    filling: filling::Filling,
    tokens: tokens::Tokens,
    users: users::Users,
    passwords: passwords::Passwords,
    attempts: Lock<attempts::Attempts>,
    logins: Lock<logins::Logins>,
    setup: setup::Setup,
    audit: audit::Audit,
    strangers: Lock<audit::Refusals>,
    changes: changes::Changes,
    /// The machine's disks.
    machine: Arc<machine::Machine>,
    /// Since when what is wrong is wrong.
    alerts: Lock<alerts::Since>,
    /// There before anything is served.
    front: OnceLock<Front>,
    tasks: Arc<tasks::Tasks>,
    replays: Arc<replays::Replays>,
    hosts: hosts::Hosts,
    levels: levels::Levels,
    carrier: carrier::Carrier,
    statistics: statistics::Statistics,
    worksheets: statistics::worksheets::Worksheets,
    /// Whether statistics are counted.
    counts: watch::Sender<bool>,
    reports: reports::Reports,
    thresholds: thresholds::Thresholds,
    /// Which of them are crossed.
    crossings: Lock<thresholds::Known>,
    channels: channels::Channels,
    /// Channels change one at a time: what is remembered last is what the reporter goes by.
    channel_turn: Mutex<()>,
    reporter: forebay_notify::Reporter,
    /// Worksheets, and what they pin, change one at a time.
    worksheet_turn: Mutex<()>,
    access: Arc<access::AccessMap>,
    /// There from [`Daemon::attach_iscsi`] on.
    iscsi: OnceLock<Arc<dyn access::Iscsi>>,
    /// There from [`Daemon::attach_nbd`] on.
    nbd: OnceLock<Arc<dyn access::Nbd>>,
    /// Mappings that projects want and that are not possible.
    refusals: inherited::Refusals,
    /// Volumes, their snapshots, levels, hosts, and what is mapped to whom change one at a time.
    volume_turn: Mutex<()>,
    stopping: watch::Sender<bool>,
    /// For snapshots that are being sent.
    sends: Arc<seats::Seats>,
    /// For requests that wait for news.
    waits: Arc<seats::Seats>,
    /// For reports on their way to clients.
    downloads: Arc<seats::Seats>,
    /// Told when an admission may have ended.
    admissions: watch::Sender<()>,
    /// Traces begin and end one at a time: each has all cores or none.
    trace_turn: Mutex<()>,
    /// Where clients are served, from [`Daemon::collect`] on.
    clients: OnceLock<Cores>,
    cores: usize,
    interface: static_files::Interface,
    started_unix_ms: u64,
    started: Instant,
}

/// What is remembered besides the pools, and volumes and projects are shown with.
pub(crate) struct Known {
    hosts: Arc<hosts::Content>,
    levels: Arc<levels::Content>,
}

impl Shared {
    fn front(&self) -> &Front {
        self.front.get().expect("HTTP is bound before it is served")
    }

    fn logins(&self) -> MutexGuard<'_, logins::Logins> {
        self.logins.lock().expect("no holder of this lock panics")
    }

    fn crossings(&self) -> MutexGuard<'_, thresholds::Known> {
        self.crossings.lock().expect("no holder of this lock panics")
    }

    fn strangers(&self) -> MutexGuard<'_, audit::Refusals> {
        self.strangers.lock().expect("no holder of this lock panics")
    }

    fn attempts(&self) -> MutexGuard<'_, attempts::Attempts> {
        self.attempts.lock().expect("no holder of this lock panics")
    }

    /// Of a clock that is never set.
    fn uptime_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn known(&self) -> Known {
        Known { hosts: self.hosts.content(), levels: self.levels.content() }
    }

    /// Has volumes follow their projects, makes a new snapshot of who sees what, and tells the iSCSI server when it differs. Needs the volumes' turn, so that
    /// an older list of volumes does not become the newer snapshot.
    async fn refresh_access(self: &Arc<Self>) {
        let (volumes, _) = self.volumes().await;
        handlers::inherited::follow(self, &volumes).await;
        if self.access.update(&self.hosts.content(), &volumes) {
            self.tell_iscsi(|iscsi| iscsi.access_changed());
        }
        self.carrier.changed();
    }

    /// All volumes at one moment, each in one pool also while it moves; and whether these are all. A pool that is just closing says nothing:
    /// then they are those of one pool after the other.
    async fn volumes(&self) -> (Vec<VolumeInfo>, bool) {
        if let Ok(volumes) = self.engine.volumes(None).await {
            return (volumes, true);
        }
        let mut volumes = Vec::new();
        for pool in self.engine.pools().await {
            volumes.extend(self.engine.volumes(Some(&pool.name)).await.unwrap_or_default());
        }
        (volumes, false)
    }

    fn tell_iscsi(&self, tell: impl FnOnce(&dyn access::Iscsi)) {
        if let Some(iscsi) = self.iscsi.get() {
            tell(iscsi.as_ref());
        }
    }
}

/// What the binary chooses.
pub struct Options {
    /// Where HTTP listens, `HOST:PORT`; port 0 takes a free one.
    pub listen: String,
    /// Names of this host under which HTTP is reached, besides its addresses.
    pub http_names: Vec<String>,
    /// Certificate and key for HTTPS, in PEM; without them beyond this host our own are made.
    pub http_tls: Option<(PathBuf, PathBuf)>,
    /// Our own also on loopback.
    pub https: bool,
    /// How many cores the engine has: the default number of a new pool's shards.
    pub cores: usize,
    /// The browser interface, sorted by path.
    pub interface: &'static [File],
}

/// The running management side.
pub struct Daemon {
    runtime: Runtime,
    shared: Arc<Shared>,
    servers: Vec<JoinHandle<()>>,
    http: SocketAddr,
    socket: PathBuf,
    signalled: watch::Receiver<bool>,
}

impl Daemon {
    /// Opens what is in the directory and answers on both listeners.
    pub fn start(
        dir: Arc<DataDir>,
        events: EventLog,
        engine: Engine,
        options: Options,
    ) -> Result<Daemon, Problem> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(8)
            .thread_name("control")
            .enable_all()
            .build()
            .map_err(|error| Problem::new(Code::Io, format!("threads cannot be started: {error}")))?;
        let channels = channels::Channels::open(dir.clone())?;
        let reporter = reporter(&channels)?;
        let worksheets = statistics::worksheets::Worksheets::open(dir.clone())?;
        let kept = forebay_analytics::Options::default();
        let pinned = worksheets.content().pinned();
        let shared = Arc::new(Shared {
            engine,
            dir: dir.clone(),
            statistics: statistics::Statistics::open(&dir, events.clone(), kept, &pinned)?,
            worksheets,
            counts: watch::Sender::new(true),
            reports: reports::Reports::open(dir.clone())?,
            thresholds: thresholds::Thresholds::open(dir.clone())?,
            crossings: Lock::default(),
            channels,
            channel_turn: Mutex::new(()),
            reporter,
            worksheet_turn: Mutex::new(()),
            configuration: configuration::Configuration::open(dir.clone())?,
            filling: filling::Filling::default(),
            tokens: tokens::Tokens::open(dir.clone())?,
            users: users::Users::open(dir.clone())?,
            passwords: passwords::Passwords::default(),
            attempts: Lock::default(),
            logins: Lock::default(),
            setup: setup::Setup::default(),
            audit: audit::Audit::open(dir.clone()).map_err(|error| {
                Problem::new(Code::Io, format!("the audit log cannot be opened: {error}"))
                    .object(dir.path().display().to_string())
                    .remedy("Check that the directory is writable and has space.")
            })?,
            strangers: Lock::default(),
            changes: changes::Changes::default(),
            machine: Arc::default(),
            alerts: Lock::default(),
            front: OnceLock::new(),
            tasks: tasks::Tasks::new(events.clone()),
            replays: Arc::default(),
            hosts: hosts::Hosts::open(dir.clone())?,
            levels: levels::Levels::open(dir.clone())?,
            carrier: carrier::Carrier::default(),
            access: Arc::default(),
            iscsi: OnceLock::new(),
            nbd: OnceLock::new(),
            refusals: inherited::Refusals::default(),
            volume_turn: Mutex::new(()),
            stopping: watch::Sender::new(false),
            sends: handlers::streams::sends(),
            waits: seats::waits(),
            downloads: seats::downloads(),
            admissions: watch::Sender::default(),
            trace_turn: Mutex::new(()),
            clients: OnceLock::new(),
            cores: options.cores,
            interface: static_files::Interface::new(options.interface),
            started_unix_ms: events::now_unix_ms(),
            started: Instant::now(),
            events,
        });
        // Before there is a volume that has one.
        runtime.block_on(handlers::levels::apply(&shared))?;
        runtime.block_on(handlers::channels::begin(shared.clone()))?;
        let (listener_http, http) = runtime.block_on(server::bind_http(&options.listen))?;
        let (listener_socket, socket) = {
            let _context = runtime.enter();
            server::bind_socket(&dir)?
        };
        let tls = tls_of(&dir, &options, http)?;
        for (code, message) in &tls.as_ref().map_or(Vec::new(), |(_, made)| made.clone()) {
            shared.events.record(Severity::Info, code, &http.to_string(), message);
        }
        let tls = tls.map(|(tls, _)| Arc::new(tls));
        let front = Front {
            tls: tls.is_some(),
            authority: match http.ip().is_unspecified() {
                true => tls::authority_of(&tls::names(http, &options.http_names, &host_name()), http.port()),
                false => http.to_string(),
            },
            hosts: authentication::hosts_of(http.ip(), &options.http_names),
            certificate_ends_unix_ms: tls.as_ref().and_then(|tls| tls.given_ends_unix_ms),
            certificate_authority: tls.as_ref().and_then(|tls| tls.authority.clone()),
        };
        assert!(shared.front.set(front).is_ok(), "HTTP is bound once");
        let listening = match &tls {
            Some(tls) => Listening::Https(listener_http, tls.config().into()),
            None => Listening::Http(listener_http),
        };
        if let Some(tls) = tls {
            runtime.spawn(renew(shared.clone(), dir.clone(), tls));
        }
        let listeners =
            [(listening, Transport::Http), (Listening::Socket(listener_socket), Transport::Socket)];
        let servers = listeners.map(|(listening, transport)| {
            let router = routes::router(shared.clone(), transport);
            runtime.spawn(server::serve(listening, router, shared.stopping.subscribe()))
        });
        runtime.spawn(carrier::carry_on(shared.clone()));
        let signalled = runtime.block_on(listen_for_signals())?;
        Ok(Daemon { runtime, shared, servers: servers.into(), http, socket, signalled })
    }

    /// Imports every remembered pool; returns when all are imported or have failed (and an event says why).
    pub fn import(&self) {
        self.runtime.block_on(handlers::pools::import_remembered(&self.shared));
        self.runtime.spawn(handlers::disks::follow_all(self.shared.clone()));
    }

    /// From now on what these cores and their pools do is counted. Once.
    pub fn collect(&self, cores: Cores) {
        assert!(self.shared.clients.set(cores.clone()).is_ok(), "once");
        self.runtime.spawn(collect::collect(self.shared.clone(), cores));
        self.runtime.spawn(capture::capture(self.shared.clone()));
    }

    /// Creates a pool as a client's request would, and waits for it.
    pub fn create_pool(&self, request: PoolCreate) -> Result<(), Problem> {
        self.runtime.block_on(handlers::pools::create_here(&self.shared, request))
    }

    /// Imports a pool as a client's request would, and waits for it.
    pub fn import_pool(&self, name: &str, disks: Vec<String>) -> Result<(), Problem> {
        self.runtime.block_on(handlers::pools::import_here(&self.shared, name, disks))
    }

    /// Makes a host known, unless one with its name or one of its initiators is, and maps a volume to it, unless it sees
    /// it already.
    pub fn ensure_host(&self, host: &str, initiators: &[&str], volume: &str) -> Result<(), Problem> {
        self.runtime.block_on(handlers::mappings::ensure(&self.shared, host, initiators, volume))
    }

    /// The link that makes the first administrator; `None` when there is one.
    pub fn setup_link(&self) -> Result<Option<String>, Problem> {
        if !self.shared.users.content().users.is_empty() {
            return Ok(None);
        }
        let link = handlers::logins::make_link(&self.shared)?;
        let message =
            "a link for the first administrator was printed; anyone with the link can create this user";
        self.shared.events.record(Severity::Info, "setup.link", "setup", message);
        Ok(Some(link.url))
    }

    /// Who may use what over iSCSI; follows what changes.
    pub fn access(&self) -> Arc<AccessMap> {
        self.shared.access.clone()
    }

    /// From now on the server is told what changes, and its sessions are shown. Once.
    pub fn attach_iscsi(&self, iscsi: Arc<dyn Iscsi>) {
        // A second server would be the binary's mistake.
        assert!(self.shared.iscsi.set(iscsi).is_ok(), "one iSCSI server is attached");
        // What changed between its start and now.
        self.shared.tell_iscsi(|iscsi| iscsi.access_changed());
        self.runtime.spawn(watch_fill(self.shared.clone()));
        self.runtime.spawn(watch_thresholds(self.shared.clone()));
    }

    /// From now on the server's clients are known. Once.
    pub fn attach_nbd(&self, nbd: Arc<dyn Nbd>) {
        // A second server would be the binary's mistake.
        assert!(self.shared.nbd.set(nbd).is_ok(), "one NBD server is attached");
    }

    /// Where HTTP listens.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// With scheme, as people write it into a browser.
    pub fn http_url(&self) -> String {
        let scheme = if self.shared.front().tls { "https" } else { "http" };
        format!("{scheme}://{}", self.shared.front().authority)
    }

    /// The authority of our own that HTTPS goes by, if it does: its certificate, and the SHA-256 of that.
    pub fn http_authority(&self) -> Option<(PathBuf, String)> {
        self.shared.front().certificate_authority.clone()
    }

    /// The owner's socket.
    pub fn socket(&self) -> &PathBuf {
        &self.socket
    }

    /// Runs a future on the management threads and waits for it; for the binary's own calls of the engine.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Like [`Daemon::block_on`]; says `line` on stderr when it takes more than a second.
    pub fn block_on_telling<F: Future>(&self, future: F, line: &str) -> F::Output {
        self.runtime.block_on(async {
            let mut future = std::pin::pin!(future);
            match tokio::time::timeout(Duration::from_secs(1), future.as_mut()).await {
                Ok(output) => output,
                Err(_) => {
                    eprintln!("forebay: {line}");
                    future.await
                }
            }
        })
    }

    /// Waits for SIGTERM or SIGINT, also one that came since the start. A second one ends the process at once, because
    /// the pools are crash-safe and its sender is in a hurry.
    pub fn wait_for_signal(&self) {
        let mut signalled = self.signalled.clone();
        // An error means that the task that listens is gone, and with it the runtime.
        let _ = self.runtime.block_on(signalled.wait_for(|&signalled| signalled));
    }

    /// Stops accepting, answers what is in flight, lets tasks end, and removes the socket.
    pub fn stop(&mut self) {
        self.shared.stopping.send_replace(true);
        let servers = std::mem::take(&mut self.servers);
        let shared = self.shared.clone();
        self.runtime.block_on(async move {
            for server in servers {
                // A server that panicked has stopped, too.
                let _ = server.await;
            }
            let idle = tokio::time::timeout(Duration::from_secs(TASKS_SECONDS_MAX), shared.tasks.idle());
            if idle.await.is_err() {
                eprintln!("forebay: tasks are still running; stopping without them");
            }
        });
        let settled = self.shared.clone();
        self.runtime.block_on(async move { carrier::settle(&settled).await });
        self.shared.statistics.stop();
        let refused = self.shared.strangers().due(u64::MAX);
        refused.into_iter().for_each(|entry| self.shared.audit.push(entry));
        // It may be gone already; a stale one does no harm.
        let _ = std::fs::remove_file(&self.socket);
    }

    /// Waits until every event so far is in the file, and who did what.
    pub fn flush_events(&self) {
        self.shared.audit.flush();
        self.shared.events.flush();
    }
}

/// Looks now and then how full the pools are, tells of thresholds that they cross, and tells the iSCSI server: hosts of thin volumes want to hear it before they are.
async fn watch_fill(shared: Arc<Shared>) {
    let mut told: HashMap<String, u32> = HashMap::new();
    let started = std::time::Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs(FILL_SECONDS));
    loop {
        ticks.tick().await;
        let pools = shared.engine.pools().await;
        shared.filling.keep(&pools);
        for pool in pools {
            let fill = filling::taken_permille(&pool) as u32;
            let remembered = shared.configuration.find(&pool.name);
            let thresholds = remembered.as_ref().map_or(&filling::THRESHOLDS[..], |entry| entry.thresholds());
            shared.filling.watch(&shared.events, &pool, thresholds, started.elapsed().as_secs());
            // Volumes may have come to be since, and a unit that knows it already raises nothing.
            if fill >= FILL_TOLD_PERMILLE || told.get(&pool.name).is_some_and(|&before| before != fill) {
                let target = iscsi_names::target_name(&pool.name);
                shared.tell_iscsi(|iscsi| iscsi.set_fill(&target, fill, FILL_TOLD_PERMILLE));
            }
            told.insert(pool.name, fill);
        }
        let refused = shared.strangers().due(events::now_unix_ms());
        refused.into_iter().for_each(|entry| shared.audit.push(entry));
        let alerts = handlers::alerts::look(&shared).await;
        shared.reporter.standing(&alerts);
    }
}

/// Looks at thresholds of statistics: by itself, because asking for statistics may take long, and other alerts must not wait for that.
async fn watch_thresholds(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(FILL_SECONDS));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        handlers::thresholds::look(&shared).await;
    }
}

/// How HTTP is protected: as it was asked for, or as it has to be.
fn tls_of(
    dir: &DataDir,
    options: &Options,
    http: SocketAddr,
) -> Result<Option<(tls::Tls, Vec<tls::Made>)>, Problem> {
    match &options.http_tls {
        Some((certificate, key)) => Ok(Some((tls::Tls::given(certificate, key)?, Vec::new()))),
        None if http.ip().is_loopback() && !options.https => Ok(None),
        None => {
            let names = tls::names(http, &options.http_names, &host_name());
            tls::Tls::own(dir, names, events::now_unix_ms()).map(Some)
        }
    }
}

/// Who calls for help, once more.
fn reporter(channels: &channels::Channels) -> Result<forebay_notify::Reporter, Problem> {
    let started = |content: &mut channels::Content| {
        content.boots = content.boots.saturating_add(1);
        Ok((content.appliance.clone(), content.boots))
    };
    // Pools are served also where the directory is full: then some receivers take no traps of this life.
    let (id, boots) = channels.change(started).or_else(|_| channels.plan(started))?;
    let appliance = forebay_notify::Appliance { name: host_name(), id };
    let clock = Arc::new(events::now_unix_ms);
    forebay_notify::Reporter::new(forebay_notify::Setup { appliance, boots, clock })
        .map_err(|error| Problem::new(Code::Internal, format!("the system gives no random numbers: {error}")))
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_ascii_lowercase()
}

/// Looks once a day whether our certificate is about to end.
async fn renew(shared: Arc<Shared>, dir: Arc<DataDir>, tls: Arc<tls::Tls>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(24 * 3600));
    // The first is at once, and it was looked just now.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let (dir, tls) = (dir.clone(), tls.clone());
        match blocking(move || tls.renew(&dir, events::now_unix_ms())).await {
            Ok(made) => made.iter().for_each(|(code, message)| {
                shared.events.record(Severity::Info, code, "certificate", message);
            }),
            Err(problem) => {
                shared.events.record(Severity::Error, "certificate.failed", "certificate", &problem.detail);
            }
        }
    }
}

/// Tells the first SIGTERM or SIGINT; exits on the second.
async fn listen_for_signals() -> Result<watch::Receiver<bool>, Problem> {
    let failed = |error| Problem::new(Code::Internal, format!("signals cannot be received: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let (tell, signalled) = watch::channel(false);
    tokio::spawn(async move {
        for attempt in 0.. {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if attempt > 0 {
                eprintln!("forebay: second signal, exiting at once");
                std::process::exit(EXIT_INTERRUPTED);
            }
            tell.send_replace(true);
        }
    });
    Ok(signalled)
}

/// Runs what blocks on the disk beside the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(Problem::new(Code::Internal, "a bug stopped the operation; see the daemon's log"))
    })
}

/// For secrets.
fn random_bytes() -> Result<[u8; 32], Problem> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        Problem::new(Code::Internal, format!("the system gives no random numbers: {error}"))
    })?;
    Ok(bytes)
}

fn random_id() -> String {
    let mut bytes = [0; 16];
    // The system's generator fails only before it is seeded, and the daemon starts long after that.
    getrandom::fill(&mut bytes).expect("the system gives random numbers");
    let bits = u128::from_le_bytes(bytes);
    Id::from_random((bits >> 64) as u64, bits as u64).to_string()
}

#[cfg(test)]
fn test_directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}
