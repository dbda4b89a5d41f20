//! TCP and local sockets over the ring.
//!
//! While no disk works for this core, a send is done on the spot as far as the socket has room, which nearly always is all
//! of it: nothing waits then, and a completion would only cost the sender another turn. Otherwise it goes with the
//! turn's other requests, and what the sender gathers meanwhile makes the next send larger. Over the ring it is carried
//! on until all of it is with the kernel (MSG_WAITALL lets the kernel do most of that). A receive returns what
//! there is. Whoever drops the last handle of a stream or listener with a request still in flight shuts the socket down,
//! so that the request ends and the descriptor is closed.
//!
//! Addresses are literal ("127.0.0.1:10809", "[::1]:0"): name resolution would block the executor. A listener may also be a
//! socket of the file system ("unix:/run/nbd.sock"), see [`super::local_socket`].

use super::disk::gather;
use super::local_socket;
use super::ring::{Op, Ring};
use crate::buffer::{Buf, BufMut};
use crate::completion::{Completer, Completion, completion};
use crate::net::{Detached, Listener, ListenerBackend, NetError, Stream, StreamBackend};
use io_uring::{opcode, squeue, types};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::time::{Duration, Instant};

const NOT_AN_ADDRESS: NetError = NetError { os: Some(libc::EINVAL) };
/// What a stream answers after it was shut down here.
const ENDED: NetError = NetError { os: Some(libc::ESHUTDOWN) };

/// How long an address in use is waited for. The kernel ends the requests of a killed process some time after the
/// process, and until then its sockets live: a server that is restarted at once finds its own address taken.
/// This blocks the executor, once, when it starts to listen.
const PREDECESSOR: Duration = Duration::from_millis(500);

impl From<io::Error> for NetError {
    fn from(error: io::Error) -> NetError {
        NetError { os: error.raw_os_error() }
    }
}

/// A connection and what is in flight on it.
pub(super) struct Socket {
    fd: OwnedFd,
    peer: Peer,
    receiving: Cell<bool>,
    sending: Cell<bool>,
    /// Shut down by this side.
    ended: Cell<bool>,
}

/// Who is at the other end.
#[derive(Clone, Copy)]
enum Peer {
    Net(SocketAddr),
    /// Somebody on this host who may open the socket.
    Local,
}

impl Socket {
    /// A TCP connection just made.
    fn fresh(fd: OwnedFd) -> io::Result<Socket> {
        let stream = TcpStream::from(fd);
        stream.set_nodelay(true)?;
        let peer = Peer::Net(stream.peer_addr()?);
        Ok(Socket::idle(Moving { fd: stream.into(), peer }))
    }

    fn idle(Moving { fd, peer }: Moving) -> Socket {
        let (receiving, sending, ended) = (Cell::new(false), Cell::new(false), Cell::new(false));
        Socket { fd, peer, receiving, sending, ended }
    }

    fn end(&self) {
        self.ended.set(true);
        // SAFETY: no pointers; the descriptor is open. It fails only when the peer has gone first.
        unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// What [`Detached`] holds.
struct Moving {
    fd: OwnedFd,
    peer: Peer,
}

struct UringStream {
    ring: Rc<Ring>,
    /// `None` once detached.
    socket: RefCell<Option<Rc<Socket>>>,
}

fn into_stream(ring: Rc<Ring>, socket: Socket) -> Stream {
    Stream::new(Rc::new(UringStream { ring, socket: RefCell::new(Some(Rc::new(socket))) }))
}

impl UringStream {
    fn usable(&self) -> Result<Rc<Socket>, NetError> {
        let socket = self.socket.borrow();
        let socket = socket.as_ref().ok_or(NetError { os: Some(libc::EBADF) })?;
        if socket.ended.get() { Err(ENDED) } else { Ok(socket.clone()) }
    }
}

impl StreamBackend for UringStream {
    fn recv(&self, into: BufMut, done: Completer<(BufMut, Result<usize, NetError>)>) {
        assert!(
            !into.is_empty(),
            "a receive needs room: its answer of 0 bytes means that the peer has closed"
        );
        match self.usable() {
            Err(error) => done.complete((into, Err(error))),
            Ok(socket) => {
                assert!(!socket.receiving.replace(true), "two receives at a time on one stream");
                self.ring.start(Op::Net(NetRequest::Receive { socket, into, done }));
            }
        }
    }

    fn send(&self, parts: Vec<Buf>, done: Completer<Result<(), NetError>>) {
        match self.usable() {
            Err(error) => done.complete(Err(error)),
            Ok(_) if parts.iter().all(|part| part.is_empty()) => done.complete(Ok(())),
            Ok(socket) => {
                assert!(!socket.sending.get(), "two sends at a time on one stream");
                let len = parts.iter().map(|part| part.len() as u64).sum();
                let mut vectors = self.ring.take_vectors();
                gather(&parts, 0, &mut vectors);
                let now = if self.ring.disks_are_idle() {
                    send_now(socket.fd.as_raw_fd(), &mut vectors)
                } else {
                    Ok(0)
                };
                match now {
                    Ok(sent) if sent < len => {
                        socket.sending.set(true);
                        let message = Box::new(Message { header: empty_header(), vectors });
                        self.ring.start(Op::Net(NetRequest::Send {
                            socket,
                            parts,
                            message,
                            sent,
                            len,
                            done,
                        }));
                    }
                    answer => {
                        self.ring.return_vectors(vectors);
                        done.complete(answer.map(|_| ()));
                    }
                }
            }
        }
    }

    fn shutdown(&self) {
        if let Some(socket) = &*self.socket.borrow() {
            socket.end();
        }
    }

    fn acknowledge(&self) {
        if let Some(socket) = &*self.socket.borrow()
            && matches!(socket.peer, Peer::Net(_))
        {
            let (one, level) = (1i32, libc::IPPROTO_TCP);
            let len = size_of_val(&one) as libc::socklen_t;
            // SAFETY: the descriptor is open, and the number lives across the call. Where it fails, the peer waits.
            unsafe {
                libc::setsockopt(
                    socket.fd.as_raw_fd(),
                    level,
                    libc::TCP_QUICKACK,
                    (&raw const one).cast(),
                    len,
                )
            };
        }
    }

    fn peer(&self) -> String {
        match self.socket.borrow().as_ref().map(|socket| socket.peer) {
            None => "detached".into(),
            Some(Peer::Net(address)) => address.to_string(),
            Some(Peer::Local) => "unix".into(),
        }
    }

    fn detach(&self) -> Detached {
        let socket = self.socket.borrow_mut().take().expect("a stream is detached once");
        let socket = Rc::into_inner(socket).expect("a stream is detached with nothing in flight");
        Detached(Box::new(Moving { fd: socket.fd, peer: socket.peer }))
    }
}

impl Drop for UringStream {
    fn drop(&mut self) {
        if let Some(socket) = &*self.socket.borrow()
            && Rc::strong_count(socket) > 1
        {
            socket.end();
        }
    }
}

struct UringListener {
    ring: Rc<Ring>,
    bound: Rc<Bound>,
}

/// What is listened on.
pub(super) enum Bound {
    Net(TcpListener),
    Local { listener: UnixListener, path: String },
}

impl AsRawFd for Bound {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Bound::Net(listener) => listener.as_raw_fd(),
            Bound::Local { listener, .. } => listener.as_raw_fd(),
        }
    }
}

impl ListenerBackend for UringListener {
    fn accept(&self, done: Completer<Result<Stream, NetError>>) {
        self.ring.start(Op::Net(NetRequest::Accept { bound: self.bound.clone(), done }));
    }

    fn address(&self) -> String {
        match &*self.bound {
            Bound::Net(listener) => {
                listener.local_addr().map_or_else(|error| error.to_string(), |address| address.to_string())
            }
            Bound::Local { path, .. } => format!("unix:{path}"),
        }
    }
}

impl Drop for UringListener {
    fn drop(&mut self) {
        if Rc::strong_count(&self.bound) > 1 {
            // SAFETY: no pointers; the descriptor is open. Pending accepts end with EINVAL.
            unsafe { libc::shutdown(self.bound.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }
}

pub(super) fn listen(ring: Rc<Ring>, address: &str) -> Result<Listener, NetError> {
    let start = Instant::now();
    loop {
        match bind(address) {
            Ok(bound) => return Ok(Listener::new(Rc::new(UringListener { ring, bound: Rc::new(bound) }))),
            Err(error) if error.os == Some(libc::EADDRINUSE) && start.elapsed() < PREDECESSOR => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error),
        }
    }
}

fn bind(address: &str) -> Result<Bound, NetError> {
    if let Some(path) = address.strip_prefix("unix:") {
        return Ok(Bound::Local { listener: local_socket::bind(path.as_ref())?, path: path.into() });
    }
    let address: SocketAddr = address.parse().map_err(|_| NOT_AN_ADDRESS)?;
    // The standard library sets SO_REUSEADDR before it binds.
    Ok(Bound::Net(TcpListener::bind(address)?))
}

pub(super) fn connect(ring: &Ring, address: &str) -> Completion<Result<Stream, NetError>> {
    let prepared = || -> Result<(OwnedFd, Box<Address>), NetError> {
        let address: SocketAddr = address.parse().map_err(|_| NOT_AN_ADDRESS)?;
        Ok((new_socket(&address)?, Box::new(Address::new(address))))
    };
    match prepared() {
        Err(error) => Completion::ready(Err(error)),
        Ok((socket, address)) => {
            let (done, result) = completion();
            ring.start(Op::Net(NetRequest::Connect { socket, address, done }));
            result
        }
    }
}

pub(super) fn attach(ring: Rc<Ring>, stream: Detached) -> Stream {
    let moving = stream.0.downcast::<Moving>().expect("a stream that this backend has detached");
    into_stream(ring, Socket::idle(*moving))
}

/// `msghdr` and the vectors it points to.
pub(super) struct Message {
    header: libc::msghdr,
    vectors: Vec<libc::iovec>,
}

fn empty_header() -> libc::msghdr {
    // SAFETY: integers and pointers, for which zero is valid and means "none".
    unsafe { std::mem::zeroed() }
}

/// Sends what a socket has room for; how many bytes that was.
fn send_now(fd: RawFd, vectors: &mut [libc::iovec]) -> Result<u64, NetError> {
    let mut header = empty_header();
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = vectors.len() as _;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the header and what it points to live across the call; the descriptor is open.
    let sent = unsafe { libc::sendmsg(fd, &raw const header, flags) };
    let answer = u64::try_from(sent).map_err(|_| NetError::from(io::Error::last_os_error()));
    match answer {
        Err(NetError { os: Some(libc::EAGAIN | libc::EINTR) }) => Ok(0),
        answer => answer,
    }
}

pub(super) enum NetRequest {
    Receive {
        socket: Rc<Socket>,
        into: BufMut,
        done: Completer<(BufMut, Result<usize, NetError>)>,
    },
    Send {
        socket: Rc<Socket>,
        parts: Vec<Buf>,
        message: Box<Message>,
        sent: u64,
        len: u64,
        done: Completer<Result<(), NetError>>,
    },
    Accept {
        bound: Rc<Bound>,
        done: Completer<Result<Stream, NetError>>,
    },
    Connect {
        socket: OwnedFd,
        address: Box<Address>,
        done: Completer<Result<Stream, NetError>>,
    },
}

impl NetRequest {
    /// The rest of the request. See [`Op`] for what it may point to.
    pub(super) fn entry(&mut self) -> squeue::Entry {
        match self {
            NetRequest::Receive { socket, into, .. } => {
                opcode::Recv::new(types::Fd(socket.fd.as_raw_fd()), into.as_mut_ptr(), into.len() as u32)
                    .build()
            }
            NetRequest::Send { socket, parts, message, sent, .. } => {
                let fd = types::Fd(socket.fd.as_raw_fd());
                let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
                gather(parts, *sent, &mut message.vectors);
                if let [one] = message.vectors[..] {
                    return opcode::Send::new(fd, one.iov_base.cast(), one.iov_len as u32)
                        .flags(flags)
                        .build();
                }
                message.header.msg_iov = message.vectors.as_mut_ptr();
                message.header.msg_iovlen = message.vectors.len() as _;
                opcode::SendMsg::new(fd, &raw const message.header).flags(flags as u32).build()
            }
            NetRequest::Accept { bound, .. } => {
                opcode::Accept::new(types::Fd(bound.as_raw_fd()), std::ptr::null_mut(), std::ptr::null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            NetRequest::Connect { socket, address, .. } => {
                opcode::Connect::new(types::Fd(socket.as_raw_fd()), address.pointer(), address.len).build()
            }
        }
    }

    /// Takes the kernel's answer: delivers, or goes on with what is left.
    pub(super) fn complete(self, ring: &Ring, result: i32) {
        if result == -libc::EINTR || result == -libc::EAGAIN {
            return ring.start(Op::Net(self));
        }
        let answer = if result < 0 { Err(NetError { os: Some(-result) }) } else { Ok(result as usize) };
        match self {
            NetRequest::Receive { socket, into, done } => {
                socket.receiving.set(false);
                let answer = match answer {
                    Ok(0) if socket.ended.get() => Err(ENDED),
                    answer => answer,
                };
                done.complete((into, answer));
            }
            NetRequest::Send { socket, parts, message, sent, len, done } => {
                let sent = sent + *answer.as_ref().unwrap_or(&0) as u64;
                if answer.is_ok() && sent < len {
                    return ring.start(Op::Net(NetRequest::Send { socket, parts, message, sent, len, done }));
                }
                socket.sending.set(false);
                ring.return_vectors(message.vectors);
                done.complete(answer.map(|_| ()));
            }
            NetRequest::Accept { bound, done } => {
                // A connection that went away while it waited is not the listener's trouble.
                if result == -libc::ECONNABORTED {
                    return ring.start(Op::Net(NetRequest::Accept { bound, done }));
                }
                // SAFETY: a successful accept returns a new descriptor that nobody else owns.
                let fd = answer.map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
                let socket = fd.and_then(|fd| match &*bound {
                    Bound::Net(_) => Ok(Socket::fresh(fd)?),
                    Bound::Local { .. } => Ok(Socket::idle(Moving { fd, peer: Peer::Local })),
                });
                done.complete(with_ring(ring, socket));
            }
            NetRequest::Connect { socket, done, .. } => {
                let socket = answer.and_then(|_| Ok(Socket::fresh(socket)?));
                done.complete(with_ring(ring, socket));
            }
        }
    }
}

fn with_ring(ring: &Ring, socket: Result<Socket, NetError>) -> Result<Stream, NetError> {
    let ring = ring.handle().ok_or(NetError { os: Some(libc::ECANCELED) })?;
    socket.map(|socket| into_stream(ring, socket))
}

fn new_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no pointers; a result of 0 or more is a new descriptor that nobody else owns.
    unsafe {
        match libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// An address as the kernel wants it.
pub(super) struct Address {
    form: Form,
    len: libc::socklen_t,
}

enum Form {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl Address {
    fn new(address: SocketAddr) -> Address {
        match address {
            SocketAddr::V4(address) => Address {
                form: Form::V4(libc::sockaddr_in {
                    sin_family: libc::AF_INET as _,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                }),
                len: size_of::<libc::sockaddr_in>() as _,
            },
            SocketAddr::V6(address) => Address {
                form: Form::V6(libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as _,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                }),
                len: size_of::<libc::sockaddr_in6>() as _,
            },
        }
    }

    fn pointer(&self) -> *const libc::sockaddr {
        match &self.form {
            Form::V4(address) => (&raw const *address).cast(),
            Form::V6(address) => (&raw const *address).cast(),
        }
    }
}
