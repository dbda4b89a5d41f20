//! NBD: fixed newstyle handshake with `NBD_OPT_GO`, then requests and simple replies; no structured replies, no TLS, no
//! reconnecting. Constants and shapes are those of the NBD protocol document (networkblockdevice/nbd, doc/proto.md).

mod handshake;

use crate::{Command, Input, PAYLOAD_MAX, Reply, damaged};
use std::io::{self, Write};
use std::net::TcpStream;

pub use handshake::Export;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const REPLY_HEADER: usize = 16;
const DISCONNECT: u16 = 2;

pub struct Connection {
    stream: TcpStream,
    export: Export,
    /// Requests that are not yet sent.
    out: Vec<u8>,
    input: Input,
    /// Payload lengths of reads in flight; `None` for commands without.
    expected: std::collections::HashMap<u64, usize>,
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
            input: Input::new(),
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

    pub fn command(&mut self, command: Command, cookie: u64, at: u64, len: usize, flags: u16) {
        self.queue(command, flags, cookie, at, len);
    }

    /// Sends what is queued.
    pub fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    pub fn reply(&mut self, wait: bool) -> io::Result<Option<Reply<'_>>> {
        loop {
            let mut need = REPLY_HEADER;
            if self.input.len() >= REPLY_HEADER {
                let (cookie, error, len) = self.parse_header()?;
                need = REPLY_HEADER + len;
                if self.input.len() >= need {
                    self.expected.remove(&cookie);
                    let data = &self.input.take(need)[REPLY_HEADER..];
                    return Ok(Some(Reply { cookie, error, data }));
                }
            }
            if !wait {
                return Ok(None);
            }
            self.input.fill(&mut self.stream, need)?;
        }
    }

    fn parse_header(&self) -> io::Result<(u64, u32, usize)> {
        let header = self.input.peek(REPLY_HEADER);
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
        if word(0) != REPLY_MAGIC {
            return Err(damaged("reply does not start with the reply magic"));
        }
        let error = word(4);
        let cookie = u64::from_be_bytes(header[8..16].try_into().expect("eight bytes"));
        let len = *self.expected.get(&cookie).ok_or_else(|| damaged("reply answers no request in flight"))?;
        Ok((cookie, error, if error == 0 { len } else { 0 }))
    }

    /// Says goodbye; the server closes.
    pub fn close(mut self) -> io::Result<()> {
        self.header(DISCONNECT, 0, 0, 0, 0);
        self.send()
    }
}
