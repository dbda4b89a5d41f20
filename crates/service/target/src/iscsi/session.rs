//! One initiator in full feature phase: one task on the core that owns its volumes.
//!
//! The task does the same round whenever anything wakes it: read its mail, take what finished, feed what was received
//! to the protocol, start what came of it, receive, send. Commands run concurrently in reusable slots; while one
//! batch of PDUs is being sent the next one collects.
//!
//! **Memory.** Commands that run, data that were asked for, and answers that wait for the initiator, hold at most [`BYTES_MAX`] and one command
//! more; data that came unasked are bounded by the command window. All sessions of a core share what [`crate::local`] gives them. Commands beyond that wait in their order, and the command window
//! is closed. Input goes on being read: it may say that commands are aborted, or that the initiator is gone, and only input can end the
//! gathering of a write's data. More data is asked for only while that share lasts ([`Session::solicit`]); until then it is not the initiator's turn,
//! and it may take as long as it takes. An initiator that does not take its answers is not listened to.
//!
//! However a session ends, commands that run are finished first: a write that the engine has begun is never dropped. Those that still wait
//! for a limit or their turn are cancelled: their initiator gets no answers any more. Should the protocol panic, the session ends in the same way.

use super::access::Volumes;
use super::mail::{Address, Farewell, Mail};
use super::route::{Client, Outcome, Work, held, work};
use crate::contained::Contained;
use crate::local::{Member, Stop};
use crate::session::{BYTES_MAX, Counters};
use crate::slots::Slots;
use crate::transport::Outbox;
use forebay_base::Nanos;
use forebay_base::panics::Panicked;
use forebay_iscsi::{
    Action, Closed, Command, Completion as Completed, Discovered, Established, Session as Protocol, Tag,
    TargetsWanted, Violation,
};
use forebay_runtime::{Arena, BufMut, Completion, NetError, Rt, Sleep, Stream};
use forebay_scsi::Status;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

/// Bytes of PDUs without their data that may wait for the initiator before more input is looked at: answers to a
/// full window of commands, and as many pings.
const OUTPUT_MAX: usize = 256 << 10;
/// A receive buffer is as large as what comes, within these bounds: the smallest holds one 8 KiB write with its
/// header, the largest is what a core's second-level cache keeps warm.
const RECEIVED_MIN: usize = 16 << 10;
const RECEIVED_MAX: usize = 256 << 10;
/// How long a session that ends waits for the initiator to take its last PDUs.
const LINGER: Duration = Duration::from_secs(5);

/// How a session ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    Logout,
    /// The connection broke, or the initiator closed it, without a logout.
    Lost(Option<i32>),
    Violation(Violation),
    /// No answer to a ping.
    Silent,
    /// The initiator kept memory that others waited for.
    Stalled,
    /// It asked for a cold reset.
    ColdReset,
    /// The initiator is not to see this target any more.
    Revoked,
    Told(Farewell),
    /// A bug in the protocol or the device server.
    Panicked(Panicked),
}

/// What a session begins with.
pub struct Beginning<V: Volumes> {
    pub client: Rc<Client<V>>,
    pub stream: Stream,
    pub established: Box<Established>,
    /// Received behind the login.
    pub leftover: Vec<u8>,
    pub member: Member,
    pub address: Address,
    pub counters: Arc<Counters>,
}

/// Serves one initiator until it ends. Of its targets, `discover` tells it.
pub async fn serve<V: Volumes>(
    beginning: Beginning<V>,
    discover: impl Fn(&TargetsWanted) -> Vec<Discovered>,
) -> Ended {
    let Beginning { client, stream, established, leftover, member, address, counters } = beginning;
    let rt = client.rt.clone();
    let arena = rt.arena().clone();
    let input = match &leftover[..] {
        [] => Input::Idle,
        bytes => Input::Holding { buffer: arena.copy(bytes), from: 0, to: bytes.len() },
    };
    let mut session = Session {
        start: |asked| work(client.clone(), asked),
        client: &client,
        discover,
        protocol: Contained::new(Protocol::new(&established, rt.now())),
        arena,
        now: rt.now(),
        rt: rt.clone(),
        stream,
        slots: Slots::new(),
        finished: Vec::new(),
        asking: VecDeque::new(),
        postponed: VecDeque::new(),
        input,
        receive_len: RECEIVED_MIN,
        outbox: Outbox::default(),
        sending: None,
        running: 0,
        held_by_output: 0,
        held_by_sending: 0,
        held_by_gathering: 0,
        solicited: false,
        keepalive: None,
        member,
        address,
        counters,
        done: Done::default(),
        ending: None,
        linger: None,
    };
    let ended = std::future::poll_fn(|context| session.round(context)).await;
    drop(session);
    client.leave();
    ended
}

enum Input {
    Idle,
    Receiving(Completion<(BufMut, Result<usize, NetError>)>),
    /// Received, and used up to `from`.
    Holding {
        buffer: BufMut,
        from: usize,
        to: usize,
    },
    /// No more is wanted, or nothing more comes.
    Over,
}

fn data_len(command: &Command) -> u64 {
    command.data.iter().map(|part| part.len() as u64).sum()
}

/// Counted in a round, published at its end.
#[derive(Default)]
struct Done {
    commands: u64,
    bytes_read: u64,
    bytes_written: u64,
}

struct Session<'a, V: Volumes, F: Future<Output = Outcome>, S: Fn(Work) -> F, T> {
    start: S,
    client: &'a Client<V>,
    discover: T,
    protocol: Contained<Protocol>,
    arena: Arena,
    rt: Rt,
    /// When this round began.
    now: Nanos,
    stream: Stream,
    slots: Slots<F>,
    /// Empty between rounds; kept for its memory.
    finished: Vec<Outcome>,
    /// Writes that want to know how much of their data to ask for, and how much that is.
    asking: VecDeque<(Tag, u64)>,
    /// Commands that wait for memory: at most a window of them.
    postponed: VecDeque<Command>,
    input: Input,
    receive_len: usize,
    outbox: Outbox,
    sending: Option<Completion<Result<(), NetError>>>,
    /// Bytes held by commands that run, by data in the output, by the batch being sent, and by data of writes that are not
    /// complete.
    running: u64,
    held_by_output: u64,
    held_by_sending: u64,
    held_by_gathering: u64,
    /// Data that were asked for may not have come.
    solicited: bool,
    /// Fires when the protocol wants to know the time, or before.
    keepalive: Option<(Nanos, Sleep)>,
    member: Member,
    address: Address,
    counters: Arc<Counters>,
    done: Done,
    ending: Option<Ended>,
    /// Runs while this session ends and its last PDUs are under way.
    linger: Option<Sleep>,
}

impl<V, F, S, T> Session<'_, V, F, S, T>
where
    V: Volumes,
    F: Future<Output = Outcome>,
    S: Fn(Work) -> F,
    T: Fn(&TargetsWanted) -> Vec<Discovered>,
{
    fn round(&mut self, context: &mut Context) -> Poll<Ended> {
        self.now = self.rt.now();
        self.member.control.register(context.waker());
        if let Some(Stop::Stalled) = self.member.control.stopped() {
            self.cut(Ended::Stalled);
        }
        self.read_mail(context);
        self.keep_alive(context);
        loop {
            self.finish_work(context);
            self.feed(context);
            self.start_commands(context);
            if let Some(panicked) = self.protocol.panicked().filter(|_| self.ending.is_none()) {
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
        if self.slots.len() == 0 && self.sending.is_none() {
            return Poll::Ready(ended);
        }
        if self.sending.is_some() {
            let rt = &self.rt;
            let linger = self.linger.get_or_insert_with(|| rt.sleep(LINGER));
            if Pin::new(linger).poll(context).is_ready() {
                // The send ends with an error, which wakes this task.
                self.cut(ended);
            }
        }
        Poll::Pending
    }

    /// Takes no more, and ends when what runs is finished and what is queued is sent. The first reason stands.
    fn end(&mut self, why: Ended) {
        if self.ending.is_none() {
            self.ending = Some(why);
            self.client.cancel_all();
        }
        self.input = Input::Over;
        for command in std::mem::take(&mut self.postponed) {
            self.drop_postponed(&command);
        }
    }

    /// Ends without a further word.
    fn cut(&mut self, why: Ended) {
        self.end(why);
        self.stream.shutdown();
        self.outbox.clear();
        let arena = &self.arena;
        drop(self.protocol.call(|protocol| protocol.take_batch(arena)));
        self.member.release(std::mem::take(&mut self.held_by_output));
    }

    fn read_mail(&mut self, context: &mut Context) {
        for mail in self.address.mailbox.take(context.waker()) {
            match mail {
                Mail::Abort(volume, receipt) => {
                    let client = self.client;
                    self.protocol.call(|protocol| protocol.abort(|lun| client.is_volume(lun, volume)));
                    // Before anything else is begun here, and before the receipt: none of those commands begins behind it.
                    self.act();
                    receipt.give_back(&client.seat.cores, &self.rt);
                }
                Mail::AccessChanged => {
                    if self.ending.is_none() && !self.client.access_changed() {
                        self.protocol.call(Protocol::drop_session);
                        self.end(Ended::Revoked);
                    }
                }
                Mail::End(farewell) => {
                    if self.ending.is_none() {
                        self.protocol.call(Protocol::drop_session);
                        self.end(Ended::Told(farewell));
                    }
                }
            }
        }
    }

    fn keep_alive(&mut self, context: &mut Context) {
        while self.ending.is_none() {
            let now = self.now;
            match self.keepalive {
                // It was registered for this task, and need not be again.
                Some((at, _)) if now < at => return,
                Some(_) => {
                    // An initiator is not silent whose words wait here to be heard.
                    if matches!(self.input, Input::Holding { .. }) {
                        self.protocol.call(|protocol| protocol.set_heard(now));
                    }
                    self.protocol.call(|protocol| protocol.handle_timeout(now));
                    // It may have given the initiator up.
                    self.keepalive = None;
                    self.act();
                    continue;
                }
                None => {}
            }
            let Some(at) = self.protocol.call(|protocol| Some(protocol.next_timeout())) else { break };
            let (_, timer) = self.keepalive.insert((at, self.rt.sleep_until(at)));
            if Pin::new(timer).poll(context).is_pending() {
                return;
            }
            // It has come meanwhile.
            self.now = self.rt.now();
        }
        self.keepalive = None;
    }

    fn finish_work(&mut self, context: &mut Context) {
        let mut finished = std::mem::take(&mut self.finished);
        self.slots.poll(context, &mut finished);
        finished.drain(..).for_each(|outcome| self.answer(outcome));
        self.finished = finished;
        self.act();
    }

    fn answer(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Completed { tag, completion, held, panicked } => {
                self.running -= held;
                let answer: u64 = completion.data_in.iter().map(|part| part.len() as u64).sum();
                let kept = answer.min(held);
                self.done.bytes_read += answer;
                self.member.release(held - kept);
                // Held on, until it has been sent.
                self.held_by_output += kept;
                self.protocol.call(|protocol| protocol.complete(tag, completion));
                if let Some(panicked) = panicked {
                    self.cut(Ended::Panicked(panicked));
                }
            }
            Outcome::Managed { id, answer, is_cold_reset } => {
                self.protocol.call(|protocol| protocol.managed(id, answer));
                if is_cold_reset && self.ending.is_none() {
                    self.protocol.call(Protocol::drop_session);
                    self.end(Ended::ColdReset);
                }
            }
        }
    }

    /// Bytes that commands and their answers hold.
    fn held(&self) -> u64 {
        self.running + self.held_by_output + self.held_by_sending
    }

    /// Gives received bytes to the protocol, unless too much is held already. What finishes or is sent wakes the task, and so
    /// does memory that others release.
    fn feed(&mut self, context: &mut Context) {
        let has_room = self.member.has_room(0, context.waker());
        let full = self.held() >= BYTES_MAX;
        let is_short = !has_room || full || !self.postponed.is_empty();
        let output_bytes = self.protocol.call(|protocol| {
            protocol.set_memory_short(is_short);
            protocol.output_bytes()
        });
        let unsent = self.held_by_output + self.held_by_sending;
        let busy = unsent >= BYTES_MAX || output_bytes >= OUTPUT_MAX;
        // A write that gathers data goes on doing so: only input can end it. And commands that run or wait can be aborted.
        let starved =
            !has_room && self.held_by_gathering == 0 && self.postponed.is_empty() && self.running == 0;
        if let Input::Holding { buffer, from, to } = &mut self.input
            && !busy
            && !starved
        {
            let mut bytes = &buffer[*from..*to];
            let (now, arena) = (self.now, &self.arena);
            self.protocol.call(|protocol| protocol.handle_input(now, &mut bytes, arena));
            self.input = Input::Idle;
            self.act();
        }
        self.solicit(context);
    }

    /// Lets writes ask for their data, as far as there is memory for them. While nothing else of this session moves, one always may: what came
    /// unasked of those that wait is never given back otherwise, and all sessions could wait for each other.
    fn solicit(&mut self, context: &mut Context) {
        while let Some(&(tag, wanted)) = self.asking.front().filter(|_| self.ending.is_none()) {
            let waiting = self.protocol.call(|protocol| protocol.memory_asking());
            let moving = self.held_by_gathering - waiting + self.running;
            let fits = moving + wanted <= BYTES_MAX;
            if moving > 0 && !(fits && self.member.has_room(wanted, context.waker())) {
                return;
            }
            self.asking.pop_front();
            self.protocol.call(|protocol| protocol.solicit(tag, wanted));
            self.solicited = true;
            self.act();
        }
    }

    /// Starts commands in the order in which they came, as far as there is memory for what they will answer.
    fn start_commands(&mut self, context: &mut Context) {
        while let Some(command) = self.postponed.front() {
            let answer = held(command) - data_len(command);
            let fits = self.held() < BYTES_MAX && self.member.has_room(answer, context.waker());
            if answer > 0 && !fits {
                return;
            }
            let command = self.postponed.pop_front().expect("it is the front one");
            self.running += answer;
            self.member.hold(answer);
            self.launch(Work::Command(command));
            self.act();
        }
    }

    /// Ends a command that nobody wants any more: at once if it waits for memory, else as soon as it can be.
    fn abort(&mut self, tag: Tag) {
        match self.postponed.iter().position(|command| command.tag == tag) {
            None => self.client.cancel(tag),
            Some(index) => {
                let command = self.postponed.remove(index).expect("it was found just now");
                self.drop_postponed(&command);
                let completion = Completed { status: Status::TaskAborted as u8, ..Completed::default() };
                self.protocol.call(|protocol| protocol.complete(tag, completion));
            }
        }
    }

    fn drop_postponed(&mut self, command: &Command) {
        let data = data_len(command);
        self.running -= data;
        self.member.release(data);
    }

    /// Does what the protocol wants done.
    fn act(&mut self) {
        while let Some(action) = self.protocol.call(Protocol::poll_action) {
            match action {
                Action::Command(command) => self.begin(command),
                Action::Solicit { tag, lun, cdb, .. } => {
                    self.asking.push_back((tag, self.client.data_out_len(lun, &cdb)));
                }
                Action::Forget(tag) => self.asking.retain(|(asked, _)| *asked != tag),
                Action::Abort(tag) => self.abort(tag),
                Action::Manage { id, function, lun } => self.launch(Work::Manage { id, function, lun }),
                Action::FindTargets(wanted) => {
                    let targets = (self.discover)(&wanted);
                    self.protocol.call(|protocol| protocol.targets(&targets));
                }
                Action::Close(Closed::Logout) => self.end(Ended::Logout),
                Action::Close(Closed::Silent) => self.cut(Ended::Silent),
                Action::Close(Closed::Violation(violation)) => self.end(Ended::Violation(violation)),
                // Whoever dropped it has said why.
                Action::Close(Closed::Dropped) => {}
            }
        }
        // What was asked for will come, and counts from then on.
        let (memory, awaited) = self.protocol.call(|protocol| (protocol.memory(), protocol.awaited()));
        let awaited = if self.solicited { awaited } else { 0 };
        self.solicited = awaited > 0;
        let gathering = memory + awaited;
        if gathering > self.held_by_gathering {
            self.member.hold(gathering - self.held_by_gathering);
        } else {
            self.member.release(self.held_by_gathering - gathering);
        }
        self.held_by_gathering = gathering;
    }

    /// Takes a command over with its data; it starts in its turn.
    fn begin(&mut self, command: Command) {
        let data = data_len(&command);
        self.done.commands += 1;
        self.done.bytes_written += data;
        self.running += data;
        self.member.hold(data);
        if self.ending.is_some() {
            return self.drop_postponed(&command);
        }
        self.postponed.push_back(command);
    }

    fn launch(&mut self, work: Work) {
        if let Some(outcome) = self.slots.start((self.start)(work)) {
            self.answer(outcome);
        }
    }

    /// Receives when there is nothing to look at; true when something came.
    fn receive(&mut self, context: &mut Context) -> bool {
        if matches!(self.input, Input::Idle) {
            self.input = Input::Receiving(self.stream.recv(self.rt.buffer(self.receive_len)));
        }
        let Input::Receiving(receiving) = &mut self.input else { return false };
        let Poll::Ready((buffer, result)) = Pin::new(receiving).poll(context) else { return false };
        match result {
            Ok(0) => self.end(Ended::Lost(None)),
            Err(error) => self.cut(Ended::Lost(error.os)),
            Ok(count) => {
                self.member.control.input.moved(count as u64);
                if count == buffer.len() {
                    self.receive_len = (buffer.len() * 2).min(RECEIVED_MAX);
                } else if count < buffer.len() / 4 {
                    self.receive_len = (buffer.len() / 2).max(RECEIVED_MIN);
                }
                self.input = Input::Holding { buffer, from: 0, to: count };
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
                if let Err(error) = result {
                    // Nobody listens any more.
                    self.cut(Ended::Lost(error.os));
                }
                let done = if self.outbox.is_empty() { u64::MAX } else { self.outbox.piece_bytes() };
                let released = self.held_by_sending.min(done);
                self.held_by_sending -= released;
                self.member.release(released);
            }
            if self.outbox.is_empty() {
                if !self.protocol.call(|protocol| protocol.has_output()) {
                    // What was held for answers that are not sent (of aborted commands) is held no longer.
                    let unsent = std::mem::take(&mut self.held_by_output);
                    self.member.release(unsent);
                    return sent || unsent > 0;
                }
                self.held_by_sending = std::mem::take(&mut self.held_by_output);
                let arena = &self.arena;
                self.outbox.fill(self.protocol.call(|protocol| protocol.take_batch(arena)));
            }
            self.sending = self.outbox.take_piece().map(|piece| self.stream.send(piece));
        }
    }

    fn publish(&mut self) {
        // Only while this side listens, and it is the initiator that has to go on. A slow disk is not its fault.
        let is_listening = self.held_by_gathering > 0 && matches!(self.input, Input::Receiving(_));
        if is_listening && self.protocol.call(|protocol| protocol.awaits_initiator()) {
            self.member.control.input.begin();
        } else {
            self.member.control.input.end();
        }
        let done = std::mem::take(&mut self.done);
        if done.commands > 0 || done.bytes_read > 0 {
            self.counters.requests.fetch_add(done.commands, Ordering::Relaxed);
            self.counters.bytes_read.fetch_add(done.bytes_read, Ordering::Relaxed);
            self.counters.bytes_written.fetch_add(done.bytes_written, Ordering::Relaxed);
        }
    }
}
