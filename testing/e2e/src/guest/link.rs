//! A link between the guest and one portal that can be cut.
//!
//! Every connection is passed on byte by byte by two threads. A cut link is one of the two kinds that initiators have to
//! cope with: *refused*, as after a target's restart or behind a firewall that rejects (connections end at once and new
//! ones are refused), and *silent*, as with a pulled cable (connections stay, nothing comes through, and only the
//! initiator's own pings tell).
//!
//! Refused means that the port is closed. A connection that is accepted and closed at once is something else, and iscsid 2.1.8 may not get over it: when
//! that happens while it sets a connection's parameters, it never has the kernel clean up, which then refuses every further connection of the session
//! (open-iscsi, pull request 388).

use crate::host::{Context, Outcome};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Between two looks for new connections.
const PAUSE: Duration = Duration::from_millis(5);
/// How long another process may have taken the port while it was closed.
const PORT_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Whole,
    Refused,
    Silent,
}

struct Shared {
    now: Mutex<Now>,
    changed: Condvar,
}

struct Now {
    state: State,
    connections: Vec<TcpStream>,
    /// Whether the link's port is open.
    listens: bool,
    /// The link is no longer needed.
    closed: bool,
}

pub struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Link {
    /// A whole link to `portal`, at an address of its own.
    pub fn new(portal: SocketAddr) -> Outcome<Link> {
        let listener = TcpListener::bind("127.0.0.1:0").context("a link's port")?;
        let address = listener.local_addr().context("a link's port")?;
        let now = Now { state: State::Whole, connections: Vec::new(), listens: true, closed: false };
        let shared = Arc::new(Shared { now: Mutex::new(now), changed: Condvar::new() });
        let ours = shared.clone();
        thread::spawn(move || accept(listener, address, portal, &ours));
        Ok(Link { address, shared })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Cuts or mends it. Every change but to silence ends the connections there are: those that were silent have lost bytes.
    pub fn set(&self, state: State) -> Outcome {
        let mut now = self.shared.lock();
        if state != State::Silent {
            now.end_connections();
        }
        now.state = state;
        self.shared.changed.notify_all();
        let is_coming = |now: &mut Now| now.listens != (now.state != State::Refused);
        let waited = self.shared.changed.wait_timeout_while(now, PORT_LIMIT, is_coming);
        match waited.expect("no thread panics with it").1.timed_out() {
            true => Err(format!(
                "the link at {} is not {state:?} after {PORT_LIMIT:?}: another process may have taken its port",
                self.address
            )),
            false => Ok(()),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut now = self.shared.lock();
        now.end_connections();
        // What is silent is over as well.
        (now.state, now.closed) = (State::Refused, true);
        self.shared.changed.notify_all();
    }
}

impl Now {
    fn end_connections(&mut self) {
        for connection in self.connections.drain(..) {
            // The connection may have ended already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().expect("no thread panics with it")
    }

    /// Returns when bytes may pass.
    fn wait_until_audible(&self) {
        let now = self.lock();
        let audible = self.changed.wait_while(now, |now| now.state == State::Silent);
        drop(audible.expect("no thread panics with it"));
    }
}

/// Passes connections on as long as the link is needed; listens only while it is not refused.
fn accept(listener: TcpListener, address: SocketAddr, portal: SocketAddr, shared: &Arc<Shared>) {
    let mut listener = Some(listener);
    loop {
        let (state, closed) = {
            let now = shared.lock();
            (now.state, now.closed)
        };
        if closed {
            return;
        }
        listener = match (state, listener) {
            (State::Refused, _) => None,
            (_, None) => TcpListener::bind(address).ok(),
            (_, listening) => listening,
        };
        let is_polled = listener.as_ref().is_some_and(|listener| listener.set_nonblocking(true).is_ok());
        {
            let mut now = shared.lock();
            now.listens = is_polled;
            shared.changed.notify_all();
        }
        match listener.as_ref().map(TcpListener::accept) {
            Some(Ok((client, _))) => connect(client, portal, shared),
            // No connection, or one that has ended already.
            _ => thread::sleep(PAUSE),
        }
    }
}

fn connect(client: TcpStream, portal: SocketAddr, shared: &Arc<Shared>) {
    // A portal that refuses, as after the target's kill: closed, as the portal would.
    let Ok(server) = TcpStream::connect(portal) else { return };
    for (from, to) in [(&client, &server), (&server, &client)] {
        let (Ok(from), Ok(to), Ok(kept)) = (from.try_clone(), to.try_clone(), from.try_clone()) else {
            continue;
        };
        let _ = from.set_nodelay(true);
        let mut now = shared.lock();
        now.connections.push(kept);
        if now.state == State::Refused {
            now.end_connections();
        }
        drop(now);
        let shared = shared.clone();
        thread::spawn(move || pass(from, to, &shared));
    }
}

/// Passes bytes on until either end closes.
fn pass(mut from: TcpStream, mut to: TcpStream, shared: &Shared) {
    let mut part = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut part) {
        shared.wait_until_audible();
        if to.write_all(&part[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(through: &Link) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", through.port()))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(b"a")?;
        stream.read_exact(&mut [0])?;
        Ok(stream)
    }

    #[test]
    fn a_cut_link_refuses_and_a_mended_one_passes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let portal = listener.local_addr().expect("its address");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut to = stream.try_clone().expect("a second handle");
                    std::io::copy(&mut &stream, &mut to)
                });
            }
        });
        let link = Link::new(portal).expect("a link");
        let mut stream = echo(&link).expect("a whole link passes");
        link.set(State::Refused).expect("it is cut");
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)), "its connections have ended");
        let refused =
            TcpStream::connect(("127.0.0.1", link.port())).expect_err("a cut link refuses connections");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        link.set(State::Whole).expect("it is mended");
        let mut stream = echo(&link).expect("a mended link passes");
        link.set(State::Silent).expect("it is silent");
        stream.write_all(b"b").expect("a silent link takes bytes");
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a limit");
        stream.read(&mut [0]).expect_err("and passes none");
        link.set(State::Whole).expect("it is mended");
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)), "mended, the old connection is over");
        echo(&link).expect("and a new one passes");
    }
}
