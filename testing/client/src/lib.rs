//! Plain clients for tests and load: what they send and when is exactly what the caller says.
//!
//! One [`Connection`] belongs to one thread and speaks NBD ([`nbd`]) or iSCSI ([`iscsi`]). Requests are queued in memory
//! and sent with one system call by [`Connection::send`]; replies are taken from whatever one read returned. At
//! queue depth 32 that is a few system calls for many requests, so that the client is not what a benchmark measures.
//!
//! Deliberately nothing is shared with the servers' own protocol crates: a mistake made twice would look like agreement.
//!
//! The caller bounds what is in flight. Reads and large writes must not be mixed in flight on one connection: both
//! sides could then wait for the other to take what it sends.

pub mod iscsi;
pub mod nbd;

use std::io::{self, Read};
use std::net::TcpStream;

/// Largest read or write: what NBD servers have to accept by the protocol document.
pub const PAYLOAD_MAX: usize = 32 << 20;

/// What to do with a range; iSCSI's commands of the same meaning are behind it, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Command {
    Read = 0,
    Write = 1,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
}

/// Durable before the answer.
pub const FLAG_FUA: u16 = 1 << 0;

/// One answer. `cookie` is what the request was queued with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    pub cookie: u64,
    /// 0, or the protocol's number: NBD's error (Linux's), or SCSI's sense key × 256 + status.
    pub error: u32,
    /// What was read; empty for other commands and after an error.
    pub data: &'a [u8],
}

/// What the server says that it can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    pub flush: bool,
    pub fua: bool,
    pub write_zeroes: bool,
    /// Whether write-zeroes takes [`FLAG_FUA`]; SCSI's WRITE SAME has no such bit.
    pub write_zeroes_fua: bool,
}

/// A connection to one volume.
pub enum Connection {
    Nbd(Box<nbd::Connection>),
    Iscsi(Box<iscsi::Connection>),
}

use Connection::{Iscsi, Nbd};

impl Connection {
    /// Opens export `name` at `address` (`host:port`) over NBD; with `iscsi://` before the address, `name` is
    /// `TARGET/LUN`.
    pub fn open(address: &str, name: &str) -> io::Result<Connection> {
        match address.strip_prefix("iscsi://") {
            Some(portal) => iscsi::Connection::open(portal, name).map(Box::new).map(Iscsi),
            None => nbd::Connection::open(address, name).map(Box::new).map(Nbd),
        }
    }

    pub fn abilities(&self) -> Abilities {
        match self {
            Nbd(nbd) => {
                let export = nbd.export();
                Abilities {
                    flush: export.flush(),
                    fua: export.fua(),
                    write_zeroes: export.write_zeroes(),
                    write_zeroes_fua: export.fua(),
                }
            }
            Iscsi(iscsi) => {
                Abilities { flush: true, fua: true, write_zeroes: iscsi.thin(), write_zeroes_fua: false }
            }
        }
    }

    /// Bytes of the volume.
    pub fn size(&self) -> u64 {
        match self {
            Nbd(nbd) => nbd.export().size,
            Iscsi(iscsi) => iscsi.size(),
        }
    }

    /// Requests queued or sent that have no reply yet.
    pub fn in_flight(&self) -> usize {
        match self {
            Nbd(nbd) => nbd.in_flight(),
            Iscsi(iscsi) => iscsi.in_flight(),
        }
    }

    pub fn read(&mut self, cookie: u64, at: u64, len: usize) {
        match self {
            Nbd(nbd) => nbd.read(cookie, at, len),
            Iscsi(iscsi) => iscsi.read(cookie, at, len),
        }
    }

    pub fn write(&mut self, cookie: u64, at: u64, data: &[u8], flags: u16) {
        match self {
            Nbd(nbd) => nbd.write(cookie, at, data, flags),
            Iscsi(iscsi) => iscsi.write(cookie, at, data, flags),
        }
    }

    /// A flush (with `at` and `len` 0), trim or write-zeroes.
    pub fn command(&mut self, command: Command, cookie: u64, at: u64, len: usize, flags: u16) {
        assert!(
            !matches!(command, Command::Read | Command::Write),
            "reads and writes have methods of their own"
        );
        match self {
            Nbd(nbd) => nbd.command(command, cookie, at, len, flags),
            Iscsi(iscsi) => iscsi.command(command, cookie, at, len),
        }
    }

    /// Sends what is queued.
    pub fn send(&mut self) -> io::Result<()> {
        match self {
            Nbd(nbd) => nbd.send(),
            Iscsi(iscsi) => iscsi.send(),
        }
    }

    /// The next reply; `wait`: blocks until there is one. `None` only without `wait`, when what was received holds no
    /// whole reply.
    pub fn reply(&mut self, wait: bool) -> io::Result<Option<Reply<'_>>> {
        match self {
            Nbd(nbd) => nbd.reply(wait),
            Iscsi(iscsi) => iscsi.reply(wait),
        }
    }

    /// Sends one request and waits for its reply; nothing else may be in flight. The data read, or the error number.
    fn alone(&mut self) -> io::Result<Result<&[u8], u32>> {
        assert_eq!(self.in_flight(), 1, "nothing else is in flight");
        self.send()?;
        let reply = self.reply(true)?.expect("waiting yields a reply");
        Ok(if reply.error == 0 { Ok(reply.data) } else { Err(reply.error) })
    }

    pub fn read_now(&mut self, at: u64, len: usize) -> io::Result<Result<&[u8], u32>> {
        self.read(0, at, len);
        self.alone()
    }

    pub fn write_now(&mut self, at: u64, data: &[u8], flags: u16) -> io::Result<Result<(), u32>> {
        self.write(0, at, data, flags);
        Ok(self.alone()?.map(|_| ()))
    }

    pub fn flush_now(&mut self) -> io::Result<Result<(), u32>> {
        self.command(Command::Flush, 0, 0, 0, 0);
        Ok(self.alone()?.map(|_| ()))
    }

    /// Says goodbye; the server closes.
    pub fn close(self) -> io::Result<()> {
        match self {
            Nbd(nbd) => nbd.close(),
            Iscsi(iscsi) => iscsi.close(),
        }
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server's {what}"))
}

/// Bytes received that are not yet taken.
struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    fn new() -> Input {
        Input { bytes: vec![0; 1 << 20], start: 0, end: 0 }
    }

    fn len(&self) -> usize {
        self.end - self.start
    }

    /// The first `len` bytes, which must be there.
    fn peek(&self, len: usize) -> &[u8] {
        &self.bytes[self.start..self.start + len]
    }

    /// Takes the first `len` bytes.
    fn take(&mut self, len: usize) -> &[u8] {
        self.start += len;
        &self.bytes[self.start - len..self.start]
    }

    /// Receives once, with room for a message of `need` bytes.
    fn fill(&mut self, stream: &mut TcpStream, need: usize) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.len() - self.start < need {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.bytes.len() < need {
                self.bytes.resize(need, 0);
            }
        }
        match stream.read(&mut self.bytes[self.end..])? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            n => {
                self.end += n;
                Ok(())
            }
        }
    }
}
