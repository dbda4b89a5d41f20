//! iSCSI (RFC 7143) with the SCSI commands of block devices (SBC-3): one connection, no digests, no authentication, no
//! reconnecting.
//!
//! Writes send what the target takes as immediate data with the command, and the rest when it asks for it. Commands
//! beyond the target's window wait here. A command that is answered with a unit attention was not carried out and is
//! sent again, as every initiator does.

use crate::{Command, FLAG_FUA, Input, PAYLOAD_MAX, Reply, damaged};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::net::TcpStream;

const HEADER: usize = 48;
/// The name that tests log in with.
pub const INITIATOR: &str = "iqn.2026-11.io.forebay.test:client";
/// What one Data-In may carry: what this side declares.
const RECEIVE_MAX: usize = 256 << 10;
const NO_TAG: u32 = u32::MAX;
const UNIT_ATTENTION: u32 = 6;

mod opcode {
    pub const NOP_OUT: u8 = 0x00;
    pub const COMMAND: u8 = 0x01;
    pub const LOGIN: u8 = 0x03;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const NOP_IN: u8 = 0x20;
    pub const RESPONSE: u8 = 0x21;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const R2T: u8 = 0x31;
    pub const ASYNC: u8 = 0x32;
}

/// Who logs in: reservations belong to an initiator port, which is a name and an ISID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    pub name: &'static str,
    /// What tells this port from others of the same name.
    pub isid: u32,
}

/// A command in flight.
#[derive(Default)]
struct InFlight {
    cookie: u64,
    cdb: [u8; 16],
    /// Bytes that it reads.
    read: usize,
    /// Of a read, what has come; of a write, what the target may yet ask for.
    data: Vec<u8>,
}

pub struct Connection {
    stream: TcpStream,
    lun: u64,
    size: u64,
    block: u64,
    /// Whether the unit is thin, and so can unmap.
    thin: bool,
    /// PDUs that are not yet sent.
    out: Vec<u8>,
    /// Commands that the window has no room for: header, and how much of their data goes with them.
    held: VecDeque<([u8; HEADER], usize)>,
    input: Input,
    /// By initiator task tag.
    commands: HashMap<u32, InFlight>,
    /// Buffers of finished commands, for the next.
    spare: Vec<Vec<u8>>,
    /// What the last reply lent out.
    lent: Vec<u8>,
    tag: u32,
    sequence: u32,
    sequence_max: u32,
    status: u32,
    /// What the target takes in one PDU, and with the command.
    send_max: usize,
    immediate_max: usize,
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// A header with its data segment's length.
fn header(opcode: u8, flags: u8, data: usize, tag: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    (header[0], header[1]) = (opcode, flags);
    put32(&mut header, 4, data as u32);
    put32(&mut header, 16, tag);
    header
}

impl Connection {
    /// Logs in at `portal` (`host:port`) as a port that no other connection is, and opens `name`, which is `TARGET/LUN`.
    pub fn open(portal: &str, name: &str) -> io::Result<Connection> {
        let stream = TcpStream::connect(portal)?;
        // Different for each connection of a run, so that none reinstates another.
        let isid = std::process::id() ^ (u32::from(stream.local_addr()?.port()) << 16);
        Connection::log_in(stream, name, Port { name: INITIATOR, isid })
    }

    /// The same as this port. A session that the port has already ends.
    pub fn open_as(portal: &str, name: &str, port: Port) -> io::Result<Connection> {
        Connection::log_in(TcpStream::connect(portal)?, name, port)
    }

    fn log_in(stream: TcpStream, name: &str, port: Port) -> io::Result<Connection> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is not TARGET/LUN"));
        let (target, lun) = name.rsplit_once('/').ok_or_else(invalid)?;
        let lun: u64 = lun.parse().ok().filter(|lun| *lun < 256).ok_or_else(invalid)?;
        stream.set_nodelay(true)?;
        let mut connection = Connection {
            stream,
            // SAM-5, peripheral device addressing: bus 0 and the number.
            lun: lun << 48,
            size: 0,
            block: 512,
            thin: false,
            out: Vec::new(),
            held: VecDeque::new(),
            input: Input::new(),
            commands: HashMap::new(),
            spare: Vec::new(),
            lent: Vec::new(),
            tag: 0,
            sequence: 1,
            sequence_max: 1,
            status: 0,
            send_max: 8192,
            immediate_max: 0,
        };
        connection.login(target, port)?;
        connection.capacity()?;
        Ok(connection)
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn thin(&self) -> bool {
        self.thin
    }

    pub fn in_flight(&self) -> usize {
        self.commands.len()
    }

    /// One login request straight to the operational stage, with everything that is to be negotiated.
    fn login(&mut self, target: &str, port: Port) -> io::Result<()> {
        let receive = RECEIVE_MAX.to_string();
        let keys = [
            ("InitiatorName", port.name),
            ("TargetName", target),
            ("SessionType", "Normal"),
            ("HeaderDigest", "None"),
            ("DataDigest", "None"),
            ("InitialR2T", "Yes"),
            ("ImmediateData", "Yes"),
            ("MaxRecvDataSegmentLength", &receive),
            ("MaxBurstLength", "1048576"),
            ("FirstBurstLength", "65536"),
            ("MaxOutstandingR2T", "1"),
            ("MaxConnections", "1"),
            ("ErrorRecoveryLevel", "0"),
            ("DefaultTime2Wait", "0"),
            ("DefaultTime2Retain", "0"),
        ];
        let text: String = keys.iter().map(|(key, value)| format!("{key}={value}\0")).collect();
        // Transit, from operational negotiation to full feature.
        let mut login = header(opcode::LOGIN | 0x40, 0x87, text.len(), 0);
        // ISID, the random format.
        login[8] = 0x80;
        login[9..13].copy_from_slice(&port.isid.to_be_bytes());
        put32(&mut login, 24, self.sequence);
        self.out.extend_from_slice(&login);
        self.out.extend_from_slice(text.as_bytes());
        self.out.resize(padded(self.out.len()), 0);
        self.send()?;
        let (answer, data) = self.pdu(true)?.expect("waiting yields a PDU");
        if answer[0] & 0x3f != opcode::LOGIN_RESPONSE {
            return Err(damaged("answer to the login is another PDU"));
        }
        if answer[36] != 0 {
            let (class, detail) = (answer[36], answer[37]);
            return Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                format!("the target refused the login with status {class:#04x}{detail:02x}"),
            ));
        }
        if answer[1] & 0x83 != 0x83 {
            return Err(damaged("login asks for more than a plain client gives"));
        }
        let (mut immediate, mut first_burst, mut send_max) = (true, 65536, 8192);
        for pair in data.split(|byte| *byte == 0) {
            let pair = String::from_utf8_lossy(pair);
            match pair.split_once('=') {
                Some(("ImmediateData", value)) => immediate = value == "Yes",
                Some(("FirstBurstLength", value)) => first_burst = value.parse().unwrap_or(0),
                Some(("MaxRecvDataSegmentLength", value)) => {
                    send_max = value.parse().map_err(|_| damaged("segment length is no number"))?;
                }
                _ => {}
            }
        }
        self.send_max = send_max;
        self.immediate_max = if immediate { first_burst.min(self.send_max) } else { 0 };
        self.status = be32(&answer, 24).wrapping_add(1);
        self.sequence_max = be32(&answer, 32);
        Ok(())
    }

    fn capacity(&mut self) -> io::Result<()> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
        self.queue(0, cdb, 32, &[]);
        let data = self.alone()?.map_err(|error| damaged(&format!("capacity is unknown: {error:#x}")))?;
        if data.len() < 16 {
            return Err(damaged("capacity is too short"));
        }
        let last = u64::from_be_bytes(data[..8].try_into().expect("eight bytes"));
        let (block, thin) = (u64::from(be32(data, 8)), data[14] & 0x80 != 0);
        (self.block, self.thin) = (block, thin);
        self.size = (last + 1) * self.block;
        Ok(())
    }

    fn alone(&mut self) -> io::Result<Result<&[u8], u32>> {
        self.send()?;
        let reply = self.reply(true)?.expect("waiting yields a reply");
        Ok(if reply.error == 0 { Ok(reply.data) } else { Err(reply.error) })
    }

    /// A command that reads `read` bytes or writes `data`.
    fn queue(&mut self, cookie: u64, cdb: [u8; 16], read: usize, data: &[u8]) {
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(data);
        self.issue(cookie, cdb, read, kept);
    }

    fn issue(&mut self, cookie: u64, cdb: [u8; 16], read: usize, data: Vec<u8>) {
        self.tag = (self.tag + 1) % NO_TAG;
        let immediate = data.len().min(self.immediate_max);
        let direction = u8::from(read > 0) << 6 | u8::from(!data.is_empty()) << 5;
        // Final, since nothing unsolicited follows; simple task attribute.
        let mut command = header(opcode::COMMAND, 0x81 | direction, immediate, self.tag);
        command[8..16].copy_from_slice(&self.lun.to_be_bytes());
        put32(&mut command, 20, (read + data.len()) as u32);
        command[32..].copy_from_slice(&cdb);
        self.commands.insert(self.tag, InFlight { cookie, cdb, read, data });
        self.held.push_back((command, immediate));
        self.release();
    }

    /// Moves commands that the window has room for to what is sent next.
    fn release(&mut self) {
        while self.sequence_max.wrapping_sub(self.sequence) as i32 >= 0
            && let Some((mut command, immediate)) = self.held.pop_front()
        {
            put32(&mut command, 24, self.sequence);
            put32(&mut command, 28, self.status);
            self.sequence = self.sequence.wrapping_add(1);
            self.out.extend_from_slice(&command);
            let data = &self.commands[&be32(&command, 16)].data[..immediate];
            self.out.extend_from_slice(data);
            self.out.resize(padded(self.out.len()), 0);
        }
    }

    /// Carries out one command that reads `read` bytes or writes `data`; nothing else may be in flight. What it read, or
    /// its sense key × 256 + status.
    pub fn execute(&mut self, cdb: [u8; 16], read: usize, data: &[u8]) -> io::Result<Result<&[u8], u32>> {
        assert_eq!(self.in_flight(), 0, "nothing else is in flight");
        self.queue(0, cdb, read, data);
        self.alone()
    }

    fn range(&self, opcode: u8, flags: u8, at: u64, len: usize) -> [u8; 16] {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (opcode, flags);
        cdb[2..10].copy_from_slice(&(at / self.block).to_be_bytes());
        put32(&mut cdb, 10, (len as u64 / self.block) as u32);
        cdb
    }

    pub fn read(&mut self, cookie: u64, at: u64, len: usize) {
        assert!(len <= PAYLOAD_MAX, "a read of at most {PAYLOAD_MAX} bytes");
        let cdb = self.range(0x88, 0, at, len);
        self.queue(cookie, cdb, len, &[]);
    }

    pub fn write(&mut self, cookie: u64, at: u64, data: &[u8], flags: u16) {
        assert!(data.len() <= PAYLOAD_MAX, "a write of at most {PAYLOAD_MAX} bytes");
        let fua = if flags & FLAG_FUA != 0 { 8 } else { 0 };
        let cdb = self.range(0x8a, fua, at, data.len());
        self.queue(cookie, cdb, 0, data);
    }

    /// SYNCHRONIZE CACHE (16), UNMAP, or WRITE SAME (16) with zeros that may be unmapped.
    pub fn command(&mut self, command: Command, cookie: u64, at: u64, len: usize) {
        match command {
            Command::Flush => self.queue(cookie, self.range(0x91, 0, 0, 0), 0, &[]),
            Command::WriteZeroes => {
                let zeros = vec![0; self.block as usize];
                self.queue(cookie, self.range(0x93, 8, at, len), 0, &zeros);
            }
            Command::Trim => {
                let mut list = [0; 24];
                (list[1], list[3]) = (22, 16);
                list[8..16].copy_from_slice(&(at / self.block).to_be_bytes());
                put32(&mut list, 16, (len as u64 / self.block) as u32);
                let mut cdb = [0; 16];
                (cdb[0], cdb[8]) = (0x42, 24);
                self.queue(cookie, cdb, 0, &list);
            }
            Command::Read | Command::Write => unreachable!("they have methods of their own"),
        }
    }

    pub fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// The next whole PDU: header and data segment.
    fn pdu(&mut self, wait: bool) -> io::Result<Option<([u8; HEADER], &[u8])>> {
        loop {
            let mut need = HEADER;
            if self.input.len() >= HEADER {
                let header: [u8; HEADER] = self.input.peek(HEADER).try_into().expect("a whole header");
                let (extra, data) = (usize::from(header[4]) * 4, be32(&header, 4) as usize & 0xff_ffff);
                if data > PAYLOAD_MAX {
                    return Err(damaged("data segment is longer than any should be"));
                }
                need = HEADER + extra + padded(data);
                if self.input.len() >= need {
                    let pdu = self.input.take(need);
                    return Ok(Some((header, &pdu[HEADER + extra..HEADER + extra + data])));
                }
            }
            if !wait {
                return Ok(None);
            }
            self.input.fill(&mut self.stream, need)?;
        }
    }

    pub fn reply(&mut self, wait: bool) -> io::Result<Option<Reply<'_>>> {
        loop {
            let Some((pdu, _)) = self.pdu(wait)? else { return Ok(None) };
            let (data_end, data_len) = (self.input.start, be32(&pdu, 4) as usize & 0xff_ffff);
            let data = data_end - padded(data_len)..data_end - padded(data_len) + data_len;
            let tag = be32(&pdu, 16);
            self.sequence_max = be32(&pdu, 32);
            let mut finished = None;
            match pdu[0] & 0x3f {
                opcode::DATA_IN => {
                    let command =
                        self.commands.get_mut(&tag).ok_or_else(|| damaged("data is for no command"))?;
                    let at = be32(&pdu, 40) as usize;
                    if at != command.data.len() || at + data_len > PAYLOAD_MAX {
                        return Err(damaged("data does not follow what came before"));
                    }
                    command.data.extend_from_slice(&self.input.bytes[data]);
                    if pdu[1] & 1 != 0 {
                        self.status = be32(&pdu, 24).wrapping_add(1);
                        finished = Some(u32::from(pdu[3]));
                    }
                }
                opcode::RESPONSE => {
                    self.status = be32(&pdu, 24).wrapping_add(1);
                    // Sense data, fixed or descriptor format, behind its length.
                    let sense = &self.input.bytes[data];
                    let key = match sense.get(2) {
                        Some(0x72 | 0x73) => sense.get(3).map_or(0, |byte| byte & 15),
                        _ => sense.get(4).map_or(0, |byte| byte & 15),
                    };
                    // A response code other than 0: the target could not carry the command out at all.
                    let failed = if pdu[2] == 0 { 0 } else { 0xff };
                    finished = Some(u32::from(key) << 8 | u32::from(pdu[3]) | failed);
                }
                opcode::R2T => self.answer_r2t(&pdu)?,
                opcode::NOP_IN if be32(&pdu, 20) != NO_TAG => {
                    let mut nop = header(opcode::NOP_OUT | 0x40, 0x80, 0, NO_TAG);
                    nop[8..16].copy_from_slice(&pdu[8..16]);
                    put32(&mut nop, 20, be32(&pdu, 20));
                    put32(&mut nop, 24, self.sequence);
                    put32(&mut nop, 28, self.status);
                    self.out.extend_from_slice(&nop);
                    self.send()?;
                }
                opcode::NOP_IN | opcode::ASYNC => {}
                other => return Err(damaged(&format!("PDU {other:#04x} is not expected here"))),
            }
            if !self.held.is_empty() {
                self.release();
                self.send()?;
            }
            let Some(error) = finished else { continue };
            let mut command =
                self.commands.remove(&tag).ok_or_else(|| damaged("answer is for no command"))?;
            if error >> 8 == UNIT_ATTENTION {
                if command.read > 0 {
                    command.data.clear();
                }
                self.issue(command.cookie, command.cdb, command.read, command.data);
                self.send()?;
                continue;
            }
            let before = std::mem::replace(&mut self.lent, command.data);
            self.spare.push(before);
            let data = if error == 0 { &self.lent[..] } else { &[] };
            return Ok(Some(Reply { cookie: command.cookie, error, data }));
        }
    }

    /// Sends the data that the target asks for.
    fn answer_r2t(&mut self, r2t: &[u8; HEADER]) -> io::Result<()> {
        let (tag, at, len) = (be32(r2t, 16), be32(r2t, 40) as usize, be32(r2t, 44) as usize);
        let command = self.commands.get(&tag).ok_or_else(|| damaged("request for data is for no command"))?;
        let data =
            command.data.get(at..at + len).ok_or_else(|| damaged("request is for more than there is"))?;
        for (number, part) in data.chunks(self.send_max).enumerate() {
            let offset = number * self.send_max;
            let last = offset + part.len() == len;
            let mut out = header(opcode::DATA_OUT, if last { 0x80 } else { 0 }, part.len(), tag);
            out[8..16].copy_from_slice(&r2t[8..16]);
            put32(&mut out, 20, be32(r2t, 20));
            put32(&mut out, 28, self.status);
            put32(&mut out, 36, number as u32);
            put32(&mut out, 40, (at + offset) as u32);
            self.out.extend_from_slice(&out);
            self.out.extend_from_slice(part);
            self.out.resize(padded(self.out.len()), 0);
        }
        self.send()
    }

    /// Logs out and waits for the answer; replies that come before it are dropped.
    pub fn close(mut self) -> io::Result<()> {
        let mut logout = header(opcode::LOGOUT | 0x40, 0x80, 0, NO_TAG - 1);
        put32(&mut logout, 24, self.sequence);
        put32(&mut logout, 28, self.status);
        self.out.extend_from_slice(&logout);
        self.send()?;
        while self.pdu(true)?.is_some_and(|(pdu, _)| pdu[0] & 0x3f != opcode::LOGOUT_RESPONSE) {}
        Ok(())
    }
}
