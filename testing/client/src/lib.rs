//! A plain NBD client for tests and load: what it sends and when is exactly what the caller says.
//!
//! Fixed newstyle handshake with `NBD_OPT_GO`, then requests and simple replies; no structured replies, no TLS, no
//! reconnecting. Constants and shapes are those of the NBD protocol document (networkblockdevice/nbd, doc/proto.md).
//! Deliberately nothing is shared with the server's own protocol crate: a mistake made twice would look like
//! agreement.
//!
//! One [`Connection`] belongs to one thread. Requests are queued in memory and sent with one system call by
//! [`Connection::send`]; replies are taken from whatever one read returned. At queue depth 32 that is a few
//! system calls for many requests, so that the client is not what a benchmark measures.
//!
//! The caller bounds what is in flight. Reads and large writes must not be mixed in flight on one connection: both
//! sides could then wait for the other to take what it sends.

mod handshake;

use std::io::{self, Read, Write};
use std::net::TcpStream;

pub use handshake::Export;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const REPLY_HEADER: usize = 16;
/// Largest read or write: what servers have to accept by the protocol document.
pub const PAYLOAD_MAX: usize = 32 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Command {
    Read = 0,
    Write = 1,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
}

const DISCONNECT: u16 = 2;
pub const FLAG_FUA: u16 = 1 << 0;

/// One answer. `cookie` is what the request was queued with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    pub cookie: u64,
    /// 0, or the protocol's error number (Linux's).
    pub error: u32,
    /// What was read; empty for other commands and after an error.
    pub data: &'a [u8],
}

pub struct Connection {
    stream: TcpStream,
    export: Export,
    /// Requests that are not yet sent.
    out: Vec<u8>,
    /// Received: `input[start..end]` is not yet taken.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Payload lengths of reads in flight; `None` for commands without.
    expected: std::collections::HashMap<u64, usize>,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server's {what}"))
}

impl Connection {
    /// Connects to `address` (`host:port`) and opens `export`.
    pub fn open(address: &str, export: &str) -> io::Result<Connection> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let export = handshake::open(&mut stream, export)?;
        Ok(Connection {
            stream,
            export,
            out: Vec::new(),
            input: vec![0; 1 << 20],
            start: 0,
            end: 0,
            expected: std::collections::HashMap::new(),
        })
    }

    pub fn export(&self) -> &Export {
        &self.export
    }

    /// Requests queued or sent that have no reply yet.
    pub fn in_flight(&self) -> usize {
        self.expected.len()
    }

    fn header(&mut self, command: u16, flags: u16, cookie: u64, at: u64, len: u32) {
        self.out.extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
        self.out.extend_from_slice(&flags.to_be_bytes());
        self.out.extend_from_slice(&command.to_be_bytes());
        self.out.extend_from_slice(&cookie.to_be_bytes());
        self.out.extend_from_slice(&at.to_be_bytes());
        self.out.extend_from_slice(&len.to_be_bytes());
    }

    fn queue(&mut self, command: Command, flags: u16, cookie: u64, at: u64, len: usize) {
        let reply = if command == Command::Read { len } else { 0 };
        assert!(self.expected.insert(cookie, reply).is_none(), "a cookie names one request in flight");
        let len = u32::try_from(len).expect("the protocol's lengths have 32 bits");
        self.header(command as u16, flags, cookie, at, len);
    }

    pub fn read(&mut self, cookie: u64, at: u64, len: usize) {
        assert!(len <= PAYLOAD_MAX, "a read of at most {PAYLOAD_MAX} bytes");
        self.queue(Command::Read, 0, cookie, at, len);
    }

    pub fn write(&mut self, cookie: u64, at: u64, data: &[u8], flags: u16) {
        assert!(data.len() <= PAYLOAD_MAX, "a write of at most {PAYLOAD_MAX} bytes");
        self.queue(Command::Write, flags, cookie, at, data.len());
        self.out.extend_from_slice(data);
    }

    /// A flush (with `at` and `len` 0), trim or write-zeroes.
    pub fn command(&mut self, command: Command, cookie: u64, at: u64, len: usize, flags: u16) {
        assert!(
            !matches!(command, Command::Read | Command::Write),
            "reads and writes have methods of their own"
        );
        self.queue(command, flags, cookie, at, len);
    }

    /// Sends what is queued.
    pub fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// The next reply; `wait`: blocks until there is one. `None` only without `wait`, when what was received holds no
    /// whole reply.
    pub fn reply(&mut self, wait: bool) -> io::Result<Option<Reply<'_>>> {
        loop {
            let have = self.end - self.start;
            let mut need = REPLY_HEADER;
            if have >= REPLY_HEADER {
                let (cookie, error, len) = self.parse_header()?;
                need = REPLY_HEADER + len;
                if have >= need {
                    self.expected.remove(&cookie);
                    let data = self.start + REPLY_HEADER..self.start + need;
                    self.start += need;
                    return Ok(Some(Reply { cookie, error, data: &self.input[data] }));
                }
            }
            if !wait {
                return Ok(None);
            }
            self.fill(need)?;
        }
    }

    fn parse_header(&self) -> io::Result<(u64, u32, usize)> {
        let header = &self.input[self.start..self.start + REPLY_HEADER];
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
        if word(0) != REPLY_MAGIC {
            return Err(damaged("reply does not start with the reply magic"));
        }
        let error = word(4);
        let cookie = u64::from_be_bytes(header[8..16].try_into().expect("eight bytes"));
        let len = *self.expected.get(&cookie).ok_or_else(|| damaged("reply answers no request in flight"))?;
        Ok((cookie, error, if error == 0 { len } else { 0 }))
    }

    /// Receives once, with room for a reply of `need` bytes.
    fn fill(&mut self, need: usize) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.input.len() - self.start < need.max(REPLY_HEADER) {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.input.len() < need {
                self.input.resize(need, 0);
            }
        }
        match self.stream.read(&mut self.input[self.end..])? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            n => {
                self.end += n;
                Ok(())
            }
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
    pub fn close(mut self) -> io::Result<()> {
        self.header(DISCONNECT, 0, 0, 0, 0);
        self.send()
    }
}
