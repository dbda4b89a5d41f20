//! One client in the transmission phase: one task on the core that owns the volume.
//!
//! The task does the same round whenever anything wakes it: take what finished, decode what was received and
//! start it, receive, send. Requests run concurrently and are answered in the order in which they finish. While
//! one batch of replies is being sent the next one collects; so the busier the client, the larger the batches.
//!
//! Backpressure is by not reading: with [`REQUESTS_MAX`] requests running, [`BYTES_MAX`] held, [`REPLIES_MAX`] unsent
//! or its part of the core's memory used up ([`crate::local`]), the rest of what was received waits, and nothing more is
//! received until it has been decoded.
//!
//! However it ends, requests that run are finished first: a write that the engine has begun is never dropped. When the client is gone without
//! having asked to disconnect, or the server stops, those that still wait (for a ceiling, say) are cancelled.

use crate::admission::Place;
use crate::backing::Device;
use crate::contained::Contained;
use crate::facts::Watched;
use crate::local::{Member, Stop};
use crate::request::{Answer, Outcome, carry_out, held};
use crate::slots::{SLOTS_MAX, Slots};
use crate::transport::{Outbox, Receiving, Sending, Transport};
use forebay_base::Nanos;
use forebay_base::panics::Panicked;
use forebay_nbd::{Agreement, Command, Decoded, ErrorCode, Replies, Request, Transmission, Violation};
use forebay_pool::Cancellation;
use forebay_runtime::{Arena, BufMut, Rt, Sleep};
use futures_util::future::select;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// Requests of one client that run at a time. Clients have 16 to 128 in flight; more would only wait in the engine.
pub const REQUESTS_MAX: usize = SLOTS_MAX;
/// Bytes that requests of one client hold before the next one must wait: one of the largest, or 128 of 256 KiB.
pub const BYTES_MAX: u64 = 32 << 20;
/// Bytes of replies without their data that may wait for the client before its next request must: room for 256
/// replies, block status among them. Requests that are refused, or done at once, take no slot and no memory else.
const REPLIES_MAX: usize = 256 << 10;
/// A receive buffer is as large as what comes, within these bounds: the smallest holds one 8 KiB write with its
/// header, the largest is what a core's second-level cache keeps warm.
const RECEIVED_MIN: usize = 16 << 10;
const RECEIVED_MAX: usize = 256 << 10;

/// How long a session that ends waits for the client to take its last replies.
const LINGER: Duration = Duration::from_secs(5);

/// What a session has done; written by its core, read by management.
#[derive(Default)]
pub struct Counters {
    pub requests: AtomicU64,
    pub bytes_read: AtomicU64,
    pub bytes_written: AtomicU64,
}

/// How a session ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The client said so, or hung up.
    ByClient,
    Violation(Violation),
    /// The server is stopping.
    Stopped,
    /// The volume is no longer there.
    Gone,
    /// The client was too slow with what it had begun.
    Stalled,
    /// A bug in the protocol.
    Panicked(Panicked),
    /// It had taken no answer when others needed its place.
    Displaced,
}

/// Serves one client until it ends.
pub async fn serve<D: Device>(
    rt: Rt,
    transport: Transport,
    device: D,
    agreement: &Agreement,
    leftover: &[u8],
    (member, place): (Member, &mut Place),
    (counters, watched): (Arc<Counters>, Rc<Watched>),
) -> Ended {
    let arena = rt.arena().clone();
    let input = match leftover {
        [] => Input::Idle,
        bytes => Input::Holding { buffer: arena.copy(bytes), from: 0, to: bytes.len() },
    };
    let cancellation = Cancellation::default();
    let device = device.cancellable(&cancellation);
    let mut session = Session {
        start: |request, now| carry_out(device.clone(), arena.clone(), request, now),
        cancellation,
        now: rt.now(),
        volume_bytes: agreement.export.size,
        watched,
        arena: arena.clone(),
        rt: rt.clone(),
        transport: transport.clone(),
        decoder: Contained::new(Transmission::new(agreement)),
        replies: Contained::new(Replies::new(agreement.style)),
        slots: Slots::new(),
        finished: Vec::new(),
        input,
        receive_len: RECEIVED_MIN,
        outbox: Outbox::default(),
        sending: None,
        held_by_replies: 0,
        held_by_sending: 0,
        held_by_payload: 0,
        member,
        place,
        settled: false,
        counters,
        done: Done::default(),
        ending: None,
        linger: None,
    };
    let ended = std::future::poll_fn(|context| session.round(context)).await;
    drop(session);
    if matches!(ended, Ended::ByClient | Ended::Stopped | Ended::Gone) {
        select(pin!(transport.goodbye()), rt.sleep(LINGER)).await;
    }
    ended
}

enum Input {
    Idle,
    Receiving(Receiving),
    /// Received, and used up to `from`.
    Holding {
        buffer: BufMut,
        from: usize,
        to: usize,
    },
    /// No more is wanted, or nothing more comes.
    Over,
}

/// Counted in a round, published at its end.
#[derive(Default)]
struct Done {
    requests: u64,
    bytes_read: u64,
    bytes_written: u64,
}

struct Session<'a, F: Future<Output = Outcome>, S: Fn(Request, Nanos) -> F> {
    rt: Rt,
    /// When this turn of the round began: what it takes up came then, what it finishes was ready then.
    now: Nanos,
    volume_bytes: u64,
    watched: Rc<Watched>,
    arena: Arena,
    transport: Transport,
    start: S,
    /// Of all requests.
    cancellation: Cancellation,
    decoder: Contained<Transmission>,
    replies: Contained<Replies>,
    slots: Slots<F>,
    /// Empty between rounds; kept for its memory.
    finished: Vec<Outcome>,
    input: Input,
    receive_len: usize,
    outbox: Outbox,
    sending: Option<Sending>,
    /// Bytes held by data in `replies`, by the batch being sent, and by the payload being received.
    held_by_replies: u64,
    held_by_sending: u64,
    held_by_payload: u64,
    member: Member,
    place: &'a mut Place,
    /// It has taken answers, and goes on: it stays.
    settled: bool,
    counters: Arc<Counters>,
    done: Done,
    ending: Option<Ended>,
    /// Runs while this session ends and its last replies are under way.
    linger: Option<Sleep>,
}

impl<F: Future<Output = Outcome>, S: Fn(Request, Nanos) -> F> Session<'_, F, S> {
    fn round(&mut self, context: &mut Context) -> Poll<Ended> {
        self.member.control.register(context.waker());
        if let Some(why) = self.member.control.stopped() {
            match why {
                Stop::Server => {
                    self.end(Ended::Stopped);
                    // What waits for a ceiling is answered now: a stop takes no longer than what the disks are doing.
                    self.cancellation.cancel();
                }
                Stop::Stalled => self.cut(Ended::Stalled),
            }
        }
        if self.member.control.has_halted() && self.settled {
            self.settled = false;
            self.place.unsettle();
        }
        if !self.settled && self.place.poll_displaced(context).is_ready() {
            self.cut(Ended::Displaced);
        }
        loop {
            self.now = self.rt.now();
            self.finish_requests(context);
            self.decode(context);
            let panicked = self.decoder.panicked().or(self.replies.panicked());
            if let Some(panicked) = panicked.filter(|_| self.ending.is_none()) {
                self.cut(Ended::Panicked(panicked.clone()));
            }
            let received = self.receive(context);
            let sent = self.send(context);
            if !received && !sent {
                break;
            }
        }
        self.publish();
        let Some(ended) = self.ending.clone() else { return Poll::Pending };
        if self.slots.len() > 0 {
            return Poll::Pending;
        }
        if self.sending.is_none() {
            return Poll::Ready(ended);
        }
        let rt = &self.rt;
        let linger = self.linger.get_or_insert_with(|| rt.sleep(LINGER));
        if Pin::new(linger).poll(context).is_ready() {
            // The send ends with an error, which wakes this task.
            self.cut(ended);
        }
        Poll::Pending
    }

    /// Ends after all that runs has been answered. The first reason stands.
    fn end(&mut self, why: Ended) {
        self.ending.get_or_insert(why);
    }

    /// Ends without a further word; what runs is finished all the same.
    fn cut(&mut self, why: Ended) {
        self.end(why);
        self.cancellation.cancel();
        self.input = Input::Over;
        self.transport.shutdown();
        self.drop_replies();
    }

    fn drop_replies(&mut self) {
        self.outbox.clear();
        let arena = &self.arena;
        drop(self.replies.call(|replies| replies.take_batch(arena)));
        self.member.release(std::mem::take(&mut self.held_by_replies));
    }

    fn finish_requests(&mut self, context: &mut Context) {
        let mut finished = std::mem::take(&mut self.finished);
        self.slots.poll(context, &mut finished);
        finished.drain(..).for_each(|outcome| self.answer(outcome, self.now));
        self.finished = finished;
    }

    fn answer(&mut self, outcome: Outcome, now: Nanos) {
        let Outcome { cookie, offset, asked, held, result, gone } = outcome;
        self.watched.answered(&asked, self.volume_bytes, now, result.is_ok());
        let mut released = held;
        match result {
            Ok(Answer::Done) => self.replies.call(|replies| replies.done(cookie, offset)),
            Ok(Answer::Data(data)) => {
                // Held on, until it has been sent.
                released = 0;
                self.held_by_replies += held;
                self.replies.call(|replies| replies.data(cookie, offset, data));
            }
            Ok(Answer::Extents(extents)) => {
                let extents = extents.iter().map(|extent| (extent.len, extent.mapped));
                self.replies.call(|replies| replies.block_status(cookie, offset, extents));
            }
            Err((code, message)) => {
                self.replies.call(|replies| replies.error(cookie, offset, code, &message))
            }
        }
        self.member.release(released);
        if gone {
            self.end(Ended::Gone);
        }
    }

    fn decode(&mut self, context: &mut Context) {
        while let Input::Holding { buffer, from, to } = &mut self.input {
            // A payload that has begun is accounted for, and goes on. What finishes or is sent wakes the task.
            let between_requests = self.held_by_payload == 0;
            let blocked = self.slots.len() == REQUESTS_MAX
                || self.member.control.held() >= BYTES_MAX
                || self.replies.call(|replies| replies.header_bytes()) >= REPLIES_MAX;
            if between_requests && blocked {
                return;
            }
            let mut bytes = &buffer[*from..*to];
            let (member, arena) = (&self.member, &self.arena);
            let mut has_room = |command: &Command| member.has_room(held(command), context.waker());
            let decoded = self.decoder.call(|decoder| {
                let decoded = decoder.decode(&mut bytes, arena, &mut has_room);
                Some((decoded, decoder.receiving()))
            });
            *from = *to - bytes.len();
            let Some((decoded, payload)) = decoded else { break };
            match decoded {
                Ok(Some(Decoded::Request(request))) => {
                    // Its payload, if it has one, is accounted to the request from here on.
                    self.member.release(std::mem::take(&mut self.held_by_payload));
                    self.member.control.input.end();
                    self.begin(request);
                }
                // The task is woken when there is memory for it.
                Ok(Some(Decoded::Postponed)) => return,
                Ok(Some(Decoded::Refused(refused))) => {
                    self.done.requests += 1;
                    self.replies.call(|replies| {
                        replies.error(refused.cookie, refused.offset, refused.code, refused.message)
                    });
                }
                Ok(None) => {
                    self.member.hold(payload - self.held_by_payload);
                    self.held_by_payload = payload;
                    if payload > 0 {
                        self.member.control.input.begin();
                    }
                    self.input = Input::Idle;
                }
                Ok(Some(Decoded::Disconnect)) => {
                    self.input = Input::Over;
                    self.end(Ended::ByClient);
                }
                Err(violation) => {
                    self.cut(Ended::Violation(violation));
                }
            }
        }
    }

    fn begin(&mut self, request: Request) {
        self.done.requests += 1;
        if matches!(self.ending, Some(Ended::Stopped | Ended::Gone)) {
            let message = "the server is shutting down, or the volume is no longer available";
            let Request { cookie, offset, .. } = request;
            return self.replies.call(|replies| replies.error(cookie, offset, ErrorCode::Shutdown, message));
        }
        match request.command {
            Command::Read { len } => self.done.bytes_read += u64::from(len),
            Command::Write { len, .. } => self.done.bytes_written += u64::from(len),
            _ => {}
        }
        self.member.hold(held(&request.command));
        if let Some(outcome) = self.slots.start((self.start)(request, self.now)) {
            // Done on the spot: that took what the turn of the round does not show.
            self.answer(outcome, self.rt.now());
        }
    }

    /// Receives when there is nothing to decode; true when something came. A server that stops goes on receiving while it
    /// finishes, to tell the client why.
    fn receive(&mut self, context: &mut Context) -> bool {
        if matches!(self.input, Input::Idle) {
            let buffer = self.rt.buffer(self.receive_len);
            self.input = Input::Receiving(self.transport.recv(buffer));
        }
        let Input::Receiving(receiving) = &mut self.input else { return false };
        let Poll::Ready((buffer, result)) = Pin::new(receiving).poll(context) else { return false };
        match result {
            Ok(count) if count > 0 => {
                self.member.control.input.moved(count as u64);
                if count == buffer.len() {
                    self.receive_len = (buffer.len() * 2).min(RECEIVED_MAX);
                } else if count < buffer.len() / 4 {
                    self.receive_len = (buffer.len() / 2).max(RECEIVED_MIN);
                }
                self.input = Input::Holding { buffer, from: 0, to: count };
            }
            _ => {
                self.input = Input::Over;
                self.end(Ended::ByClient);
                self.cancellation.cancel();
            }
        }
        true
    }

    /// Sends everything that is ready in one batch, one batch at a time; true when something went out.
    fn send(&mut self, context: &mut Context) -> bool {
        let mut sent = false;
        loop {
            if let Some(sending) = &mut self.sending {
                let Poll::Ready(result) = Pin::new(sending).poll(context) else {
                    self.member.control.output.begin();
                    return sent;
                };
                self.sending = None;
                self.member.control.output.end();
                sent = true;
                if result.is_err() {
                    // Nobody listens any more.
                    self.cut(Ended::ByClient);
                } else if !self.settled && self.outbox.is_empty() {
                    self.settled = true;
                    if !self.place.settle() {
                        self.cut(Ended::Displaced);
                    }
                }
                let done = if self.outbox.is_empty() { u64::MAX } else { self.outbox.piece_bytes() };
                let released = self.held_by_sending.min(done);
                self.held_by_sending -= released;
                self.member.release(released);
            }
            if self.outbox.is_empty() {
                if self.replies.call(|replies| replies.is_empty()) {
                    return sent;
                }
                self.held_by_sending = std::mem::take(&mut self.held_by_replies);
                let arena = &self.arena;
                self.outbox.fill(self.replies.call(|replies| replies.take_batch(arena)));
            }
            self.sending = self.outbox.take_piece().map(|piece| self.transport.send(piece));
        }
    }

    fn publish(&mut self) {
        let done = std::mem::take(&mut self.done);
        if done.requests > 0 {
            self.counters.requests.fetch_add(done.requests, Ordering::Relaxed);
            self.counters.bytes_read.fetch_add(done.bytes_read, Ordering::Relaxed);
            self.counters.bytes_written.fetch_add(done.bytes_written, Ordering::Relaxed);
        }
    }
}
