//! What the service manager is told: that the daemon is ready, what it does, that it stops, and that it is alive (sd_notify(3)).
//!
//! The protocol is a datagram of `NAME=VALUE` lines to the socket that `NOTIFY_SOCKET` names. The watchdog's word is given only after
//! every core has run a job of ours and the API has answered a request over the owner's socket: a process that merely exists is not alive. Nothing here waits for a disk, so a
//! disk that hangs ends no daemon. Without a service manager all of this does nothing.

use crate::appliance::{Addresses, Appliance};
use forebay_runtime::Cores;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Of the watchdog's time, one part passes between two looks and one is the most that a look takes: of two looks one may fail.
const PARTS: u32 = 4;

/// The service manager, if there is one.
pub struct Manager {
    socket: Option<Arc<UnixDatagram>>,
    /// When nothing has come for so long, the manager ends the daemon.
    watchdog: Option<Duration>,
    stopping: Arc<AtomicBool>,
}

impl Manager {
    /// As the environment names it.
    pub fn from_environment() -> Manager {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let socket = variable("NOTIFY_SOCKET").and_then(|name| match connect(&name) {
            Ok(socket) => Some(Arc::new(socket)),
            Err(error) => {
                eprintln!("forebay: the service manager cannot be reached at {name}: {error}");
                None
            }
        });
        // The variables are inherited: they may mean a parent.
        let is_ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = variable("WATCHDOG_USEC").filter(|_| is_ours).and_then(|usec| usec.parse().ok());
        let watchdog = watchdog.filter(|&usec| usec > 0).map(Duration::from_micros);
        Manager { socket, watchdog, stopping: Arc::default() }
    }

    /// The daemon has begun and serves nobody yet.
    pub fn starting(&self) {
        self.tell("STATUS=Importing pools");
    }

    /// Clients are served. From here on the watchdog is answered.
    pub fn ready(&self, appliance: &Appliance, addresses: &Addresses) {
        self.tell(&format!("READY=1\nSTATUS=Ready, {addresses}"));
        let (Some(socket), Some(time)) = (self.socket.clone(), self.watchdog) else { return };
        let (cores, api) = (appliance.cores.clone(), appliance.daemon.socket().clone());
        let stopping = self.stopping.clone();
        std::thread::spawn(move || watch(&socket, time, &cores, &api, &stopping));
    }

    /// No more clients are served.
    pub fn stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.tell("STOPPING=1\nSTATUS=Finishing requests and closing pools");
    }

    fn tell(&self, what: &str) {
        if let Some(socket) = &self.socket {
            say(socket, what);
        }
    }
}

/// A manager that does not listen is no reason to stop serving.
fn say(socket: &UnixDatagram, what: &str) {
    if let Err(error) = socket.send(what.as_bytes()) {
        eprintln!("forebay: a notice to the service manager failed: {error}");
    }
}

fn connect(name: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match name.strip_prefix('@') {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(name)?,
    }
    Ok(socket)
}

/// Looks whether all is alive, and says so, until the process ends.
fn watch(socket: &UnixDatagram, time: Duration, cores: &Cores, api: &Path, stopping: &AtomicBool) {
    let mut was_silent = false;
    loop {
        // How long a stop takes is bounded by the manager's own time for it.
        let silent = match stopping.load(Ordering::Relaxed) {
            true => None,
            false => silent_core(cores, time / PARTS).or_else(|| silent_api(api, time / PARTS)),
        };
        match &silent {
            None => say(socket, "WATCHDOG=1"),
            Some(who) if !was_silent => {
                eprintln!("forebay: {who}; the watchdog gets no answer until this ends")
            }
            Some(_) => {}
        }
        was_silent = silent.is_some();
        std::thread::sleep(time / PARTS);
    }
}

/// A core that has not run a job of ours in time.
fn silent_core(cores: &Cores, patience: Duration) -> Option<String> {
    let begun = Instant::now();
    let (answer, answers) = channel();
    for core in 0..cores.count() {
        let answer = answer.clone();
        cores.core(core).run(move |_| {
            // Whoever asked may have lost patience.
            let _ = answer.send(core);
        });
    }
    let mut silent: Vec<bool> = vec![true; cores.count()];
    while silent.contains(&true) {
        match answers.recv_timeout(patience.saturating_sub(begun.elapsed())) {
            Ok(core) => silent[core] = false,
            Err(_) => break,
        }
    }
    let core = silent.iter().position(|&silent| silent)?;
    Some(format!("core {core} has not responded for {} ms", patience.as_millis()))
}

/// Why the API counts as silent.
fn silent_api(socket: &Path, patience: Duration) -> Option<String> {
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(b"GET /api/v1/server HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        match &answer {
            b"HTTP/1.1 200" => Ok(()),
            other => Err(io::Error::other(String::from_utf8_lossy(other).into_owned())),
        }
    };
    ask().err().map(|error: io::Error| format!("the API does not answer: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_runtime::uring;
    use std::os::unix::net::UnixListener;

    const PATIENCE: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_core_that_hangs_is_named_and_one_that_works_is_not() {
        let (cores, running) = uring::start(2).unwrap();
        assert_eq!(silent_core(&cores, LONG), None);
        let (release, held) = channel::<()>();
        cores.core(1).run(move |_| assert!(held.recv().is_err()));
        let silent = silent_core(&cores, PATIENCE).expect("core 1 waits for us");
        assert!(silent.starts_with("core 1 "), "{silent}");
        drop(release);
        assert_eq!(silent_core(&cores, LONG), None);
        running.stop().unwrap();
    }

    #[test]
    fn an_api_that_takes_connections_and_says_nothing_is_silent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert!(silent_api(&path, PATIENCE).is_some());
        let listener = UnixListener::bind(&path).unwrap();
        assert!(silent_api(&path, PATIENCE).is_some());
        drop(listener);
        for (status, is_silent) in [("200 OK", false), ("503 Service Unavailable", true)] {
            std::fs::remove_file(&path).unwrap();
            let listener = UnixListener::bind(&path).unwrap();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut [0; 8]).unwrap();
                stream.write_all(format!("HTTP/1.1 {status}\r\n").as_bytes()).unwrap();
            });
            let silent = silent_api(&path, LONG);
            assert_eq!(silent.is_some(), is_silent, "{status}: {silent:?}");
            server.join().unwrap();
        }
    }

    #[test]
    fn a_manager_may_be_an_abstract_name() {
        let name = format!("forebay-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        say(&connect(&format!("@{name}")).unwrap(), "READY=1");
        let mut notice = [0; 16];
        assert_eq!(manager.recv(&mut notice).unwrap(), 7);
    }
}
