//! A client of an NBD server on the runtime's sockets: many requests at a time over one connection.
//!
//! One task receives; requests leave in the order in which they were made, as many in one send as gathered while the last one was on its way.

use forebay_base::Random;
use forebay_nbd::Style;
use forebay_nbd::client::{OptionReply, Reply, RequestHeader, info_data, option, take_reply};
use forebay_nbd::wire::{command, handshake_flag, info, option as options, option_reply};
use forebay_runtime::{Buf, Completer, Completion, Rt, Stream, completion};
use forebay_workload::{Remote, Request};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The server's greeting: two magic numbers and flags.
const GREETING_BYTES: usize = 18;
/// More than any answer to an option, or than the answers to what one client has asked at a time.
const INPUT_MAX: usize = 256 << 20;
const RECEIVE_BYTES: usize = 256 << 10;

struct Waiting {
    /// Bytes that a read asked for.
    bytes: usize,
    done: Completer<bool>,
}

pub struct Nbd {
    rt: Rt,
    stream: Stream,
    size: u64,
    waiting: RefCell<HashMap<u64, Waiting>>,
    cookie: Cell<u64>,
    out: RefCell<Vec<Buf>>,
    is_sending: Cell<bool>,
    is_broken: Cell<bool>,
}

async fn receive(rt: &Rt, stream: &Stream, input: &mut Vec<u8>) -> Result<(), String> {
    if input.len() > INPUT_MAX {
        return Err("the server's answer is too long".into());
    }
    let (buffer, came) = stream.recv(rt.buffer(RECEIVE_BYTES)).await;
    match came {
        Ok(0) => Err("the server closed the connection".into()),
        Ok(len) => {
            input.extend_from_slice(&buffer[..len]);
            Ok(())
        }
        Err(error) => Err(format!("the connection was interrupted: {:?}", error.os)),
    }
}

async fn send(rt: &Rt, stream: &Stream, bytes: &[u8]) -> Result<(), String> {
    let sent = stream.send(vec![rt.arena().copy(bytes).freeze()]).await;
    sent.map_err(|error| format!("the connection was interrupted: {:?}", error.os))
}

impl Nbd {
    /// Opens `export` of the server at `address` (`127.0.0.1:10809`).
    pub async fn open(rt: &Rt, address: &str, export: &str) -> Result<Rc<Nbd>, String> {
        let stream = rt.connect(address).await;
        let stream = stream.map_err(|error| format!("there is no answer at {address}: {:?}", error.os))?;
        let mut input = Vec::new();
        while input.len() < GREETING_BYTES {
            receive(rt, &stream, &mut input).await?;
        }
        input.drain(..GREETING_BYTES);
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        send(rt, &stream, &flags.to_be_bytes()).await?;
        send(rt, &stream, &option(options::GO, &info_data(export, &[]))).await?;
        let mut size = 0;
        loop {
            let mut rest = &input[..];
            let reply = OptionReply::take(&mut rest).map_err(|error| error.0)?;
            let used = input.len() - rest.len();
            input.drain(..used);
            match reply {
                None => receive(rt, &stream, &mut input).await?,
                Some(OptionReply { kind: option_reply::ACK, .. }) if size > 0 => break,
                Some(OptionReply { kind: option_reply::INFO, data, .. }) => {
                    if data.len() >= 10 && data[..2] == info::EXPORT.to_be_bytes() {
                        size = u64::from_be_bytes(data[2..10].try_into().expect("eight bytes"));
                    }
                }
                Some(other) => return Err(format!("the server refused export {export}: {:#x}", other.kind)),
            }
        }
        let nbd = Rc::new(Nbd {
            rt: rt.clone(),
            stream,
            size,
            waiting: RefCell::default(),
            cookie: Cell::new(0),
            out: RefCell::default(),
            is_sending: Cell::new(false),
            is_broken: Cell::new(false),
        });
        let own = nbd.clone();
        rt.spawn(async move { own.listen(input).await });
        Ok(nbd)
    }

    /// Bytes of the volume.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Until the connection ends, which whoever waits is told.
    async fn listen(self: Rc<Nbd>, mut input: Vec<u8>) {
        loop {
            let mut rest = &input[..];
            let bytes_of = |cookie| self.waiting.borrow().get(&cookie).map_or(0, |waiting| waiting.bytes);
            let is_whole = loop {
                match take_reply(&mut rest, Style::Simple, bytes_of) {
                    Ok(Some(Reply { cookie, result })) => match self.waiting.borrow_mut().remove(&cookie) {
                        Some(waiting) => waiting.done.complete(result.is_ok()),
                        None => break false,
                    },
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            let used = input.len() - rest.len();
            input.drain(..used);
            // What answers nothing, or is no answer, leaves nothing to go by.
            if !is_whole || receive(&self.rt, &self.stream, &mut input).await.is_err() {
                self.end();
                return;
            }
        }
    }

    fn end(&self) {
        self.is_broken.set(true);
        self.stream.shutdown();
        let all = self.waiting.take();
        all.into_values().for_each(|waiting| waiting.done.complete(false));
    }

    /// Says goodbye.
    pub fn close(&self) {
        self.push(command::DISC, 0, 0, None);
    }

    fn push(&self, kind: u16, offset: u64, len: u64, data: Option<Buf>) -> u64 {
        let cookie = self.cookie.replace(self.cookie.get() + 1);
        let mut bytes = Vec::new();
        RequestHeader { flags: 0, kind, cookie, offset, len }.encode(Style::Simple, &mut bytes);
        let mut out = self.out.borrow_mut();
        out.push(self.rt.arena().copy(&bytes).freeze());
        out.extend(data);
        cookie
    }
}

/// Sends what has gathered, until nothing has.
fn send_all(nbd: &Rc<Nbd>) {
    if nbd.is_sending.replace(true) {
        return;
    }
    let own = nbd.clone();
    nbd.rt.spawn(async move {
        loop {
            let parts = own.out.take();
            if parts.is_empty() {
                break;
            }
            if own.stream.send(parts).await.is_err() {
                own.end();
                break;
            }
        }
        own.is_sending.set(false);
    });
}

/// One connection as a store.
pub struct Export(pub Rc<Nbd>);

impl Remote for Export {
    fn ask(&self, request: &Request, data: Buf) -> Completion<bool> {
        let nbd = &self.0;
        if nbd.is_broken.get() {
            return Completion::ready(false);
        }
        let (done, answered) = completion();
        let Request { at, bytes, is_write } = *request;
        let (kind, read, data) = match is_write {
            true => (command::WRITE, 0, Some(data)),
            false => (command::READ, bytes as usize, None),
        };
        let cookie = nbd.push(kind, at, bytes, data);
        nbd.waiting.borrow_mut().insert(cookie, Waiting { bytes: read, done });
        send_all(nbd);
        answered
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.0.close();
        send_all(&self.0);
    }
}

/// What a volume is filled with: it cannot be made smaller, and is the same every time.
pub fn filling(rt: &Rt, bytes: usize) -> Buf {
    let mut buffer = rt.arena().take_zeroed(bytes);
    Random::new(1).fill(&mut buffer);
    buffer.freeze()
}
