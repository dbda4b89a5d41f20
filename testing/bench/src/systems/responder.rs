//! A target without anything behind it: what connections and wake-ups alone cost on this machine.
//!
//! It answers the plain client of the tests and nobody else: one thread for each connection, which reads what has come,
//! answers each whole PDU in memory and writes all answers with one call. No task of a real target is left out more
//! cheaply: a server that looks at storage, too, is slower than this, and with one request in flight its IOPS are a share of
//! what this one has. Reads yield zeros, writes are forgotten.

use forebay_e2e::host::{Context, Directory, Outcome, Process, command};
use forebay_e2e::server::{Export, Server, free_port};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

const HEADER: usize = 48;
const BLOCK: u64 = 512;
/// Of a Data-In; the client takes as much.
const DATA_IN_MAX: usize = 256 << 10;
const DATA_OUT_MAX: usize = 256 << 10;

mod opcode {
    pub const COMMAND: u8 = 0x01;
    pub const LOGIN: u8 = 0x03;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const RESPONSE: u8 = 0x21;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const R2T: u8 = 0x31;
}

/// This program again, as `--responder PORT SIZE`.
pub struct Responder {
    log: PathBuf,
    process: Option<Process>,
    address: String,
    exports: Vec<Export>,
}

impl Responder {
    pub fn start(directory: &Directory, size: u64) -> Outcome<Responder> {
        let export = Export { name: "responder/0".into(), size, sync_always: false };
        let mut responder = Responder {
            log: directory.join("responder.log"),
            process: None,
            address: String::new(),
            exports: vec![export],
        };
        Server::start(&mut responder)?;
        Ok(responder)
    }
}

impl Server for Responder {
    fn start(&mut self) -> Outcome {
        let (port, size) = (free_port()?.to_string(), self.exports[0].size.to_string());
        let this = std::env::current_exe().context("this program's path")?;
        let mut process = Process::start(command(this).args(["--responder", &port, &size]), &self.log)?;
        let portal = format!("127.0.0.1:{port}");
        process.wait_for("the responder", Duration::from_secs(10), || TcpStream::connect(&portal).ok())?;
        self.address = format!("iscsi://{portal}");
        self.process = Some(process);
        Ok(())
    }
    fn kill(&mut self) {
        self.process = None;
    }
    fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running responder").pid()
    }
    fn address(&self) -> &str {
        &self.address
    }
    fn exports(&self) -> &[Export] {
        &self.exports
    }
}

/// Answers until it is killed.
pub fn serve(port: u64, size: u64) -> Outcome {
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).context("listening")?;
    answer_all(&listener, size);
    Ok(())
}

fn answer_all(listener: &TcpListener, size: u64) {
    for stream in listener.incoming().flatten() {
        // A client that is gone is not this program's business.
        thread::spawn(move || Answers { size, status: 0, sequence: 0, out: Vec::new() }.carry_on(stream));
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// One connection's.
struct Answers {
    size: u64,
    /// The next StatSN.
    status: u32,
    /// The last CmdSN.
    sequence: u32,
    out: Vec<u8>,
}

impl Answers {
    fn carry_on(&mut self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let (mut input, mut held) = (vec![0; 2 << 20], 0);
        loop {
            match stream.read(&mut input[held..])? {
                0 => return Ok(()),
                count => held += count,
            }
            let mut used = 0;
            while let Some(len) = whole(&input[used..held]) {
                self.answer(&input[used..used + len]);
                used += len;
            }
            input.copy_within(used..held, 0);
            held -= used;
            stream.write_all(&self.out)?;
            self.out.clear();
        }
    }

    fn answer(&mut self, pdu: &[u8]) {
        let expected = be32(pdu, 20);
        // Data have none.
        if pdu[0] & 0x3f != opcode::DATA_OUT {
            self.sequence = be32(pdu, 24);
        }
        let sent = be32(pdu, 4) & 0xff_ffff;
        match pdu[0] & 0x3f {
            opcode::LOGIN => {
                let text = format!("ImmediateData=Yes\0MaxRecvDataSegmentLength={DATA_OUT_MAX}\0");
                self.put(pdu, opcode::LOGIN_RESPONSE, 0x87, &[], text.as_bytes());
            }
            opcode::LOGOUT => self.put(pdu, opcode::LOGOUT_RESPONSE, 0x80, &[], &[]),
            opcode::COMMAND => match pdu[32] {
                // READ CAPACITY (16) and READ (16).
                0x9e => {
                    let mut capacity = [0; 32];
                    capacity[..8].copy_from_slice(&(self.size / BLOCK - 1).to_be_bytes());
                    capacity[8..12].copy_from_slice(&(BLOCK as u32).to_be_bytes());
                    self.put(pdu, opcode::DATA_IN, 0x81, &[], &capacity);
                }
                0x88 => self.data_in(pdu, expected as usize),
                // The rest of a write is asked for at once.
                0x8a if sent < expected => {
                    self.put(pdu, opcode::R2T, 0x80, &[(40, sent), (44, expected - sent)], &[]);
                }
                _ => self.put(pdu, opcode::RESPONSE, 0x80, &[], &[]),
            },
            opcode::DATA_OUT if pdu[1] & 0x80 != 0 => self.put(pdu, opcode::RESPONSE, 0x80, &[], &[]),
            _ => {}
        }
    }

    fn data_in(&mut self, pdu: &[u8], len: usize) {
        static ZEROS: [u8; DATA_IN_MAX] = [0; DATA_IN_MAX];
        for at in (0..len).step_by(DATA_IN_MAX) {
            let part = (len - at).min(DATA_IN_MAX);
            // Final, and with the status.
            let flags = if at + part == len { 0x81 } else { 0 };
            self.put(pdu, opcode::DATA_IN, flags, &[(40, at as u32)], &ZEROS[..part]);
        }
    }

    /// An answer to `pdu`, with further fields and data.
    fn put(&mut self, pdu: &[u8], opcode: u8, flags: u8, fields: &[(usize, u32)], data: &[u8]) {
        let mut header = [0; HEADER];
        (header[0], header[1]) = (opcode, flags);
        header[16..20].copy_from_slice(&pdu[16..20]);
        let (last, len) = (self.sequence, data.len() as u32);
        // Any window that the client does not fill.
        let standard =
            [(4, len), (24, self.status), (28, last.wrapping_add(1)), (32, last.wrapping_add(128))];
        for (at, value) in standard.iter().chain(fields) {
            header[*at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        self.status += u32::from(opcode != opcode::R2T && flags != 0);
        self.out.extend_from_slice(&header);
        self.out.extend_from_slice(data);
        self.out.resize(self.out.len().next_multiple_of(4), 0);
    }
}

/// The length of the first PDU, when all of it is there.
fn whole(bytes: &[u8]) -> Option<usize> {
    let header = bytes.get(..HEADER)?;
    let len = HEADER + (be32(header, 4) as usize & 0xff_ffff).next_multiple_of(4);
    (bytes.len() >= len).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_client::Connection;

    #[test]
    fn the_client_is_answered() {
        const SIZE: u64 = 64 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("iscsi://{}", listener.local_addr().expect("its address"));
        thread::spawn(move || answer_all(&listener, SIZE));
        let mut connection = Connection::open(&address, "responder/0").expect("a login");
        assert_eq!(connection.size(), SIZE);
        // More than a window of them.
        for len in [vec![8 << 10; 200], vec![128 << 10; 200], vec![1 << 20]].concat() {
            connection.write_now(0, &vec![1; len], 0).expect("an answer").expect("a write");
            let read = connection.read_now(8192, len).expect("an answer").expect("a read");
            assert_eq!((read.len(), read.iter().max()), (len, Some(&0)));
        }
        connection.flush_now().expect("an answer").expect("a flush");
        connection.close().expect("a logout");
    }
}
