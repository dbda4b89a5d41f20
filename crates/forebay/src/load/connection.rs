//! A plain NBD connection from a chosen address: one request at a time, each waited for.

use forebay_nbd::Style;
use forebay_nbd::client::{Answer, OptionReply, Reply, RequestHeader, info_data, option, take_reply};
use forebay_nbd::wire::{command, handshake_flag, info, option as options, option_reply};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

/// Longer than a disk takes to be given up.
const ANSWER: Duration = Duration::from_secs(60);
/// The server's greeting: two magic numbers and flags.
const GREETING_BYTES: usize = 18;
/// More than any answer to an option.
const OPTION_BYTES_MAX: usize = 64 << 10;

/// Why a connection is of no more use.
pub enum Ended {
    /// It could not be opened, it broke, or the server refused a request.
    Broken,
    /// Something was read that was not written.
    Wrong(String),
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Ended {
        Ended::Broken
    }
}

pub struct Connection {
    stream: TcpStream,
    size: u64,
    cookie: u64,
    input: Vec<u8>,
}

fn garbled(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Connection {
    /// Connects to `to` from `from` and opens `export`.
    pub fn open(from: Ipv4Addr, to: SocketAddr, export: &str) -> io::Result<Connection> {
        let stream = match to {
            SocketAddr::V4(_) => {
                let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
                // Only the loopback network has addresses for everybody.
                if to.ip().is_loopback() {
                    bind(&socket, &SocketAddrV4::new(from, 0))?;
                }
                connect(&socket, &to)?;
                TcpStream::from(socket)
            }
            SocketAddr::V6(_) => TcpStream::connect(to)?,
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        let mut connection = Connection { stream, size: 0, cookie: 0, input: Vec::new() };
        connection.negotiate(export)?;
        Ok(connection)
    }

    /// Bytes of the volume.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn negotiate(&mut self, export: &str) -> io::Result<()> {
        let mut greeting = [0; GREETING_BYTES];
        self.stream.read_exact(&mut greeting)?;
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        self.stream.write_all(&flags.to_be_bytes())?;
        self.stream.write_all(&option(options::GO, &info_data(export, &[])))?;
        loop {
            let reply = self
                .take(OPTION_BYTES_MAX, |input| OptionReply::take(input).map_err(|error| garbled(error.0)))?;
            match reply {
                OptionReply { kind: option_reply::ACK, .. } if self.size > 0 => return Ok(()),
                OptionReply { kind: option_reply::INFO, data, .. } => {
                    if data.len() >= 10 && data[..2] == info::EXPORT.to_be_bytes() {
                        self.size = u64::from_be_bytes(data[2..10].try_into().expect("eight bytes"));
                    }
                }
                other => return Err(garbled(format!("{export} cannot be opened: {}", other.kind))),
            }
        }
    }

    /// Reads until `parse` finds something whole, in at most so many bytes.
    fn take<T>(
        &mut self,
        bytes_max: usize,
        parse: impl Fn(&mut &[u8]) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        loop {
            let mut rest = &self.input[..];
            let found = parse(&mut rest)?;
            let used = self.input.len() - rest.len();
            if let Some(found) = found {
                self.input.drain(..used);
                return Ok(found);
            }
            if self.input.len() >= bytes_max {
                return Err(garbled("the answer is too long"));
            }
            let had = self.input.len();
            self.input.resize(had + (64 << 10), 0);
            let count = self.stream.read(&mut self.input[had..]);
            self.input.truncate(had + *count.as_ref().unwrap_or(&0));
            if count? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn call(&mut self, kind: u16, offset: u64, len: usize, payload: &[u8]) -> io::Result<Answer> {
        self.cookie += 1;
        let mut out = Vec::with_capacity(64 + payload.len());
        RequestHeader { flags: 0, kind, cookie: self.cookie, offset, len: len as u64 }
            .encode(Style::Simple, &mut out);
        out.extend_from_slice(payload);
        self.stream.write_all(&out)?;
        let expected = if kind == command::READ { len } else { 0 };
        let reply = self.take(expected + OPTION_BYTES_MAX, |input| {
            take_reply(input, Style::Simple, |_| expected).map_err(|error| garbled(error.0))
        })?;
        let Reply { cookie, result } = reply;
        if cookie != self.cookie {
            return Err(garbled("an answer to another request"));
        }
        result.map_err(|failure| io::Error::other(format!("refused with {}", failure.code)))
    }

    pub fn read(&mut self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        match self.call(command::READ, at, len, &[])? {
            Answer::Data(data) if data.len() == len => Ok(data),
            _ => Err(garbled("an answer without the data")),
        }
    }

    pub fn write(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        self.call(command::WRITE, at, data.len(), data).map(drop)
    }

    /// Says goodbye, if anybody listens.
    pub fn close(mut self) {
        let mut out = Vec::new();
        RequestHeader { flags: 0, kind: command::DISC, cookie: 0, offset: 0, len: 0 }
            .encode(Style::Simple, &mut out);
        let _ = self.stream.write_all(&out);
    }
}
