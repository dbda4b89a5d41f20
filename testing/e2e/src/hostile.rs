//! Ten thousand connections that mean no good, and good clients beside them.
//!
//! The attacker is one thread at nice 19 that keeps its connections up: what the daemon ends it opens again. They are spread
//! over the three listeners, and are of every kind that a stranger can be: silent, sending a byte now and then, agreed and
//! silent, in the middle of a write, deaf to answers. Good clients have connections from before, and make new ones; what an
//! answer takes is measured until it is there. A figure of a busy machine, so this runs only when it is named.

use crate::host::{Context, Directory, Outcome};
use crate::server::{Forebay, Iscsi, Server};
use forebay_client::iscsi::{INITIATOR, Port};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::FromRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const HOSTILE: usize = 10_000;
/// How long good clients are measured, beside connections of each origin.
const SPAN: Duration = Duration::from_secs(40);
/// Between a good client's requests.
const PAUSE: Duration = Duration::from_millis(20);
/// A good client that is not answered in this time is not answered.
const PATIENCE: Duration = Duration::from_secs(20);
/// 95 % of a good client's answers have to come within this; a connection that is closed on it is an answer that did not.
const LIMIT: Duration = Duration::from_millis(100);

pub fn beside(binary: &Path, directory: &Directory) -> Outcome<String> {
    raise_descriptors()?;
    let forebay = Forebay::create(binary, directory, "single", 1, 2 << 30)?;
    let mut server = Iscsi::new(forebay)?;
    let lun = server.create_volume("lun", 64 << 20, "8K", true)?;
    let volume = server.forebay.create_volume("good", 64 << 20, "8K", true)?;
    let listeners = Listeners {
        http: server.forebay.http().to_owned(),
        nbd: server.forebay.address().to_owned(),
        iscsi: server.address().to_owned(),
        export: volume.name,
        target: lun.name,
    };
    let figures = [
        measure(&listeners, "other addresses", 2..250, &Good::ALL)?,
        // The API has shares of addresses, too, and no login by which to tell one client of an address from another.
        measure(&listeners, "their own address", 1..2, &Good::ALL[..4])?,
    ];
    server.forebay.stop()?;
    Ok(figures.join("; "))
}

#[derive(Clone)]
struct Listeners {
    http: String,
    nbd: String,
    iscsi: String,
    export: String,
    target: String,
}

/// Good clients beside hostile ones from `127.0.0.ADDRESSES`, which are at the listeners that the good ones use.
fn measure(
    listeners: &Listeners,
    origin: &str,
    addresses: std::ops::Range<u8>,
    goods: &[Good],
) -> Outcome<String> {
    let protocols = if goods.iter().any(|good| matches!(good, Good::Http)) { 3 } else { 2 };
    let stop = Arc::new(AtomicBool::new(false));
    let open = Arc::new(AtomicUsize::new(0));
    let attacker = {
        let (listeners, stop, open) = (listeners.clone(), stop.clone(), open.clone());
        thread::spawn(move || attack(&listeners, protocols, addresses, &stop, &open))
    };
    let begun = Instant::now();
    while open.load(Ordering::Relaxed) < HOSTILE && begun.elapsed() < 3 * PATIENCE {
        thread::sleep(Duration::from_millis(100));
    }
    let hostile = open.load(Ordering::Relaxed);
    let good: Vec<_> = goods
        .iter()
        .map(|&good| {
            let listeners = listeners.clone();
            thread::spawn(move || good.latencies(&listeners))
        })
        .collect();
    let latencies: Vec<_> =
        good.into_iter().map(|thread| thread.join().expect("it does not panic")).collect();
    stop.store(true, Ordering::Relaxed);
    attacker.join().expect("it does not panic");
    let mut words = Vec::new();
    for (good, latencies) in goods.iter().zip(latencies) {
        let mut latencies =
            latencies.map_err(|error| format!("beside connections of {origin}, {}: {error}", good.name()))?;
        latencies.sort_unstable();
        let closed = latencies.iter().filter(|&&latency| latency == PATIENCE).count();
        let p95 = latencies[latencies.len() * 95 / 100];
        let line = format!(
            "{} {} answers, {closed} refused, p95 {:.1} ms",
            good.name(),
            latencies.len(),
            p95.as_secs_f64() * 1e3
        );
        if p95 > LIMIT {
            return Err(format!("beside connections of {origin}: {line}"));
        }
        words.push(line);
    }
    Ok(format!("beside {hostile} connections from {origin}: {}", words.join(", ")))
}

#[derive(Clone, Copy)]
enum Good {
    NbdOld,
    NbdNew,
    IscsiOld,
    IscsiNew,
    Http,
}

impl Listeners {
    /// The iSCSI address without its scheme.
    fn portal(&self) -> &str {
        self.iscsi.trim_start_matches("iscsi://")
    }
}

impl Good {
    const ALL: [Good; 5] = [Good::NbdOld, Good::NbdNew, Good::IscsiOld, Good::IscsiNew, Good::Http];

    fn name(self) -> &'static str {
        match self {
            Good::NbdOld => "NBD reads",
            Good::NbdNew => "NBD connections with a read",
            Good::IscsiOld => "iSCSI reads",
            Good::IscsiNew => "iSCSI logins with a read",
            Good::Http => "HTTP requests",
        }
    }

    /// What each of its answers took, over [`SPAN`]; [`PATIENCE`] for a new connection that was closed before it had one. One from
    /// before has to stay.
    fn latencies(self, at: &Listeners) -> Outcome<Vec<Duration>> {
        let mut old = match self {
            Good::NbdOld => {
                Some(forebay_client::Connection::open(&at.nbd, &at.export).context("an NBD client")?)
            }
            Good::IscsiOld => {
                Some(forebay_client::Connection::open(&at.iscsi, &at.target).context("an initiator")?)
            }
            _ => None,
        };
        let (begun, mut all) = (Instant::now(), Vec::new());
        while begun.elapsed() < SPAN {
            let asked = Instant::now();
            let answered = match &mut old {
                Some(old) => {
                    read(old)?;
                    true
                }
                None => self.ask_anew(at).is_ok(),
            };
            all.push(if answered { asked.elapsed() } else { PATIENCE });
            thread::sleep(PAUSE);
        }
        Ok(all)
    }

    /// An answer on a new connection.
    fn ask_anew(self, at: &Listeners) -> Outcome {
        match self {
            Good::Http => get(&at.http).context("an HTTP request"),
            Good::IscsiOld | Good::IscsiNew => {
                let port = Port { name: INITIATOR, isid: 77 };
                let mut new = forebay_client::iscsi::Connection::open_as(at.portal(), &at.target, port)
                    .context("a login")?;
                new.read(1, 0, 4096);
                new.send().context("a login's read")?;
                new.reply(true).context("a login's read")?;
                new.close().context("a logout")
            }
            Good::NbdOld | Good::NbdNew => {
                read(&mut forebay_client::Connection::open(&at.nbd, &at.export).context("a connection")?)
            }
        }
    }
}

fn read(connection: &mut forebay_client::Connection) -> Outcome {
    let answer = connection.read_now(0, 4096).context("a read")?;
    answer.map(|_| ()).map_err(|code| format!("a read: error {code}"))
}

fn get(address: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /api/v1/setup HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.starts_with("HTTP/1.1 200") {
        true => Ok(()),
        false => Err(std::io::Error::other(answer.lines().next().unwrap_or("no answer").to_owned())),
    }
}

/// Keeps [`HOSTILE`] connections up until it is told to stop.
fn attack(
    at: &Listeners,
    protocols: usize,
    addresses: std::ops::Range<u8>,
    stop: &AtomicBool,
    open: &AtomicUsize,
) {
    // SAFETY: a plain system call; 0 is the thread that calls.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    let mut all: Vec<Option<TcpStream>> = (0..HOSTILE).map(|_| None).collect();
    let spread = usize::from(addresses.end - addresses.start);
    while !stop.load(Ordering::Relaxed) {
        let mut count = 0;
        for (number, place) in all.iter_mut().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let from = Ipv4Addr::new(127, 0, 0, addresses.start + (number % spread) as u8);
            // Every fifth of them trickles; the others are only looked at.
            let lives = place.as_mut().is_some_and(|stream| {
                let ended = matches!(stream.peek(&mut [0]), Ok(0))
                    || number / protocols % KINDS == 1 && stream.write_all(b"x").is_err_and(|e| !is_full(&e));
                !ended
            });
            if !lives {
                *place = stranger(at, number % protocols, number / protocols % KINDS, from);
            }
            count += usize::from(place.is_some());
            open.store(count.max(open.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

fn is_full(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::WouldBlock
}

/// Kinds of hostile connections to each listener.
const KINDS: usize = 5;

/// A hostile connection of one of them.
fn stranger(at: &Listeners, protocol: usize, kind: usize, from: Ipv4Addr) -> Option<TcpStream> {
    let to = [&at.nbd, &at.iscsi, &at.http][protocol];
    let mut stream = connect_from(from, to.parse().ok()?)?;
    let words: Vec<u8> = match (protocol, kind) {
        (_, 0) => Vec::new(),
        (0, 1) => nbd_option(&at.export)[..20].to_vec(),
        (0, 2) => nbd_option(&at.export),
        // A write of 32 MiB of which little comes.
        (0, 3) => [nbd_option(&at.export), nbd_request(1, 32 << 20), vec![5; 60_000]].concat(),
        // Reads of 32 MiB that nobody takes.
        (0, _) => [nbd_option(&at.export), nbd_request(0, 32 << 20), nbd_request(0, 32 << 20)].concat(),
        (1, kind) => [&[0x43, 0x87][..], &vec![0; 10 * kind]].concat(),
        (_, 1) => b"GET / HT".to_vec(),
        (_, 2) => {
            format!("POST /api/v1/login HTTP/1.1\r\nHost: {}\r\nContent-Length: 99\r\n\r\n{{", at.http).into()
        }
        // Pages that nobody takes.
        (_, _) => format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", at.http).repeat(40).into(),
    };
    // It may have been refused already.
    stream.write_all(&words).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// Flags and GO, in one go.
fn nbd_option(export: &str) -> Vec<u8> {
    let name = export.as_bytes();
    let len = 4 + name.len() as u32 + 2;
    let head = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &7u32.to_be_bytes(), &len.to_be_bytes()].concat();
    [&head[..], &(name.len() as u32).to_be_bytes(), name, &[0, 0]].concat()
}

fn nbd_request(kind: u16, len: u32) -> Vec<u8> {
    let head = [&0x2560_9513u32.to_be_bytes()[..], &0u16.to_be_bytes(), &kind.to_be_bytes()].concat();
    [&head[..], &[0; 16], &len.to_be_bytes()].concat()
}

fn connect_from(from: Ipv4Addr, to: SocketAddrV4) -> Option<TcpStream> {
    let address = |at: SocketAddrV4| libc::sockaddr_in {
        sin_family: libc::AF_INET as _,
        sin_port: at.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(at.ip().octets()) },
        sin_zero: [0; 8],
    };
    let (own, peer) = (address(SocketAddrV4::new(from, 0)), address(to));
    let (len, one) = (size_of_val(&own) as libc::socklen_t, 1i32);
    // SAFETY: the descriptor is new and becomes the stream's; what is pointed to lives across the calls and is as long as said.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return None;
        }
        let stream = TcpStream::from_raw_fd(fd);
        // The port is chosen with the peer's, so that there are enough for one address.
        let size = size_of_val(&one) as libc::socklen_t;
        libc::setsockopt(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, (&raw const one).cast(), size);
        let bound = libc::bind(fd, (&raw const own).cast(), len) == 0;
        (bound && libc::connect(fd, (&raw const peer).cast(), len) == 0).then_some(stream)
    }
}

/// As many open files as the system allows; enough for all connections.
fn raise_descriptors() -> Outcome {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives across the calls.
    let raised = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0
    };
    match raised && limit.rlim_max > HOSTILE as u64 + 200 {
        true => Ok(()),
        false => Err(format!("{} files may be open, too few for {HOSTILE} connections", limit.rlim_max)),
    }
}
