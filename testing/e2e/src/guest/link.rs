//! A link between the guest and one portal that can be cut.
//!
//! Every connection is passed on byte by byte by two threads. A cut link is one of the two kinds that initiators have to
//! cope with: *refused*, as after a target's restart or behind a firewall that rejects (connections end at once and new
//! ones are closed), and *silent*, as with a pulled cable (connections stay, nothing comes through, and only the
//! initiator's own pings tell).

use crate::host::{Context, Outcome};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Whole,
    Refused,
    Silent,
}

struct Shared {
    state: Mutex<(State, Vec<TcpStream>)>,
    changed: Condvar,
    closed: AtomicBool,
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
        let shared = Arc::new(Shared {
            state: Mutex::new((State::Whole, Vec::new())),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
        });
        let ours = shared.clone();
        thread::spawn(move || accept(&listener, portal, &ours));
        Ok(Link { address, shared })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Cuts or mends it. Every change ends the connections there are: those that were silent have lost bytes.
    pub fn set(&self, state: State) {
        let mut now = self.shared.lock();
        if state != State::Silent {
            for connection in now.1.drain(..) {
                // It may have ended by itself.
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
        now.0 = state;
        self.shared.changed.notify_all();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        self.set(State::Refused);
        // The thread that accepts sees it with its next connection.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (State, Vec<TcpStream>)> {
        self.state.lock().expect("no thread panics with it")
    }
    /// Returns when bytes may pass.
    fn wait_until_audible(&self) {
        let now = self.lock();
        let audible = self.changed.wait_while(now, |now| now.0 == State::Silent);
        drop(audible.expect("no thread panics with it"));
    }
}

fn accept(listener: &TcpListener, portal: SocketAddr, shared: &Arc<Shared>) {
    for connection in listener.incoming() {
        if shared.closed.load(Ordering::Relaxed) {
            return;
        }
        // A peer that is gone again, or a portal that refuses, as after the target's kill: closed, as the portal would.
        let Ok(client) = connection else { continue };
        if shared.lock().0 == State::Refused {
            continue;
        }
        let Ok(server) = TcpStream::connect(portal) else { continue };
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (Ok(from), Ok(to), Ok(kept)) = (from.try_clone(), to.try_clone(), from.try_clone()) else {
                continue;
            };
            let _ = from.set_nodelay(true);
            shared.lock().1.push(kept);
            let shared = shared.clone();
            thread::spawn(move || pass(from, to, &shared));
        }
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
    use std::time::Duration;

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
        link.set(State::Refused);
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)), "its connections have ended");
        echo(&link).expect_err("a cut link passes nothing");
        link.set(State::Whole);
        let mut stream = echo(&link).expect("a mended link passes");
        link.set(State::Silent);
        stream.write_all(b"b").expect("a silent link takes bytes");
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a limit");
        stream.read(&mut [0]).expect_err("and passes none");
        link.set(State::Whole);
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)), "mended, the old connection is over");
        echo(&link).expect("and a new one passes");
    }
}
