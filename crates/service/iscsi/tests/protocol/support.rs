//! A target over a disk in memory and an initiator, connected by nothing but function calls.

use forebay_base::Nanos;
use forebay_iscsi::initiator::{self, Connected, Event, LoginError, ScsiRequest, Wanted};
use forebay_iscsi::pdu::Bhs;
use forebay_iscsi::{
    Action, Algorithm, Authorization, Closed, Command, Completion, Discovered, Established, Login,
    LoginAction, LoginConfig, LoginStatus, Parameters, Piece, Purpose, Receiver, Session, Tag, TaskAnswer,
    Violation,
};
use forebay_runtime::{Arena, Buf};
use std::collections::VecDeque;

pub const TARGET: &str = "iqn.2026-11.io.forebay:pool";
pub const INITIATOR: &str = "iqn.1993-08.org.example:host";
pub const NOW: Nanos = Nanos(1_000_000_000);
pub const BLOCK: usize = 512;

pub fn bytes(parts: &[Buf]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}

pub fn wanted() -> Wanted {
    Wanted {
        initiator: INITIATOR.into(),
        purpose: Purpose::Normal { target: TARGET.into() },
        parameters: Parameters::TARGET,
        isid: [0x80, 0, 0, 1, 2, 3],
        tsih: 0,
        credentials: None,
        algorithms: "7,5",
        target: None,
    }
}

pub fn config(parameters: Parameters) -> LoginConfig {
    LoginConfig { portal_group_tag: 3, parameters, chap_minimum: Algorithm::Md5 }
}

/// A login between both, `cut` bytes at a time; how each of them saw it end.
pub fn log_in(
    wanted: Wanted,
    config: LoginConfig,
    authorize: impl Fn(&forebay_iscsi::Request) -> Result<Authorization, LoginStatus>,
    cut: usize,
) -> (Result<Connected, LoginError>, Result<Established, Violation>) {
    let arena = Arena::new();
    let (mut initiator, mut target) = (initiator::Login::new(wanted), Login::new(config, &arena));
    let (mut outcome, mut established) = (None, None);
    for _ in 0..100 {
        let stream = bytes(&initiator.take_batch(&arena));
        let mut answers = Vec::new();
        for piece in stream.chunks(cut) {
            let mut piece = piece;
            loop {
                target.handle_input(&mut piece);
                let Some(action) = target.poll_action() else { break };
                match action {
                    LoginAction::Send(parts) => answers.extend(bytes(&parts)),
                    LoginAction::Authorize(request) => target.authorize(authorize(&request)),
                    LoginAction::Join { .. } => target.joined(Ok(77)),
                    LoginAction::Established(found) => established = Some(Ok(*found)),
                    LoginAction::Close(violation) => established = Some(Err(violation)),
                }
            }
        }
        for mut piece in answers.chunks(cut) {
            if outcome.is_none() {
                outcome = initiator.handle_input(&mut piece).transpose();
            }
        }
        if let (Some(outcome), Some(established)) = (&outcome, &established) {
            return (outcome.clone(), established.clone());
        }
        if let Some(Err(error)) = outcome {
            return (Err(error), established.unwrap_or(Err(Violation::LoginTooLong)));
        }
    }
    panic!("the login never ends");
}

/// Both sides of a session, and a disk of 512-byte blocks behind the target.
pub struct Pair {
    pub arena: Arena,
    pub initiator: initiator::Session,
    pub target: Session,
    pub disk: Vec<u8>,
    pub now: Nanos,
    /// Commands are left to the test while this holds.
    pub paused: bool,
    pub commands: VecDeque<Command>,
    pub forgotten: Vec<Tag>,
    pub aborted: Vec<Tag>,
    pub managed: Vec<(u8, u64)>,
    pub closed: Option<Closed>,
    /// What the target sent, PDU by PDU, since somebody looked.
    pub sent: Vec<(Bhs, Vec<u8>)>,
    watch: Receiver,
    cut: usize,
}

impl Pair {
    pub fn new(ours: Parameters, theirs: Parameters) -> Pair {
        Pair::cut(ours, theirs, usize::MAX)
    }

    pub fn cut(initiator: Parameters, target: Parameters, cut: usize) -> Pair {
        let wanted = Wanted { parameters: initiator, ..wanted() };
        Pair::login(wanted, target, cut)
    }

    pub fn login(wanted: Wanted, target: Parameters, cut: usize) -> Pair {
        let open = |_: &forebay_iscsi::Request| Ok(Authorization::Open);
        let (connected, established) = log_in(wanted, config(target), open, cut.min(1 << 20));
        let (connected, established) = (connected.unwrap(), established.unwrap());
        let Parameters { header_digest, data_digest, .. } = established.parameters;
        Pair {
            arena: Arena::new(),
            initiator: initiator::Session::new(&connected),
            target: Session::new(&established, NOW),
            disk: vec![0; 4 << 20],
            now: NOW,
            paused: false,
            commands: VecDeque::new(),
            forgotten: Vec::new(),
            aborted: Vec::new(),
            managed: Vec::new(),
            closed: None,
            sent: Vec::new(),
            watch: Receiver::new(header_digest, data_digest, 1 << 20),
            cut,
        }
    }

    /// Lets both talk until neither has anything to say; what the initiator learnt.
    pub fn run(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let stream = bytes(&self.initiator.take_batch(&self.arena));
            for mut piece in stream.chunks(self.cut) {
                self.target.handle_input(self.now, &mut piece, &self.arena);
            }
            self.act();
            let answers = bytes(&self.target.take_batch(&self.arena));
            self.record(&answers);
            for mut piece in answers.chunks(self.cut) {
                self.initiator
                    .handle_input(&mut piece, &self.arena)
                    .expect("the target keeps to the protocol");
            }
            events.extend(std::iter::from_fn(|| self.initiator.poll_event()));
            if stream.is_empty() && answers.is_empty() {
                return events;
            }
        }
    }

    fn record(&mut self, mut answers: &[u8]) {
        while let Some(piece) = self.watch.next(&mut answers).unwrap() {
            match piece {
                Piece::Header(bhs) => self.sent.push((bhs, Vec::new())),
                Piece::Data(data) => self.sent.last_mut().unwrap().1.extend(data),
                Piece::End { intact } => assert!(intact),
            }
        }
    }

    /// Opcodes of what the target sent since the last look.
    pub fn opcodes(&mut self) -> Vec<u8> {
        self.sent.drain(..).map(|(bhs, _)| bhs.opcode()).collect()
    }

    /// Does what the target wants of its driver.
    pub fn act(&mut self) {
        while let Some(action) = self.target.poll_action() {
            match action {
                Action::Command(command) if self.paused => self.commands.push_back(command),
                Action::Command(command) => self.execute(command),
                Action::Solicit { tag, expected_out, .. } => {
                    self.target.solicit(tag, u64::from(expected_out))
                }
                Action::Forget(tag) => self.forgotten.push(tag),
                Action::Abort(tag) => self.aborted.push(tag),
                Action::Manage { id, function, lun } => {
                    self.managed.push((function, lun));
                    self.target.managed(id, if lun == 0 { TaskAnswer::Complete } else { TaskAnswer::NoLun });
                }
                Action::FindTargets(_) => {
                    let portals = vec![("10.0.0.1:3260".to_owned(), 1), ("[fd00::1]:3260".to_owned(), 2)];
                    let names = (0..self.disk[0].max(1)).map(|n| format!("{TARGET}{n}"));
                    let targets: Vec<_> =
                        names.map(|name| Discovered { name, portals: portals.clone() }).collect();
                    self.target.targets(&targets);
                }
                Action::Close(why) => self.closed = Some(why),
            }
        }
    }

    /// READ (10) and WRITE (10); everything else is CHECK CONDITION with some sense.
    pub fn execute(&mut self, command: Command) {
        let at = u32::from_be_bytes(command.cdb[2..6].try_into().unwrap()) as usize * BLOCK;
        let len = usize::from(u16::from_be_bytes(command.cdb[7..9].try_into().unwrap())) * BLOCK;
        let mut completion = Completion { needed_len: len as u64, ..Completion::default() };
        match command.cdb[0] {
            0x28 => {
                // In two parts, as an engine may give them.
                let data = self.arena.copy(&self.disk[at..at + len]).freeze();
                let half = len / 3;
                completion.data_in = vec![data.slice(0, half), data.slice(half, len - half)];
            }
            0x2a => {
                let data = bytes(&command.data);
                let count = len.min(data.len());
                self.disk[at..at + count].copy_from_slice(&data[..count]);
            }
            _ => {
                completion.status = 2;
                completion.sense = vec![0x70, 0, 5, 0, 0, 0, 0, 10];
                completion.needed_len = 0;
            }
        }
        self.target.complete(command.tag, completion);
    }

    pub fn read(&self, block: usize, len: usize) -> ScsiRequest {
        ScsiRequest { cdb: cdb(0x28, block, len), expected_in: len as u32, ..ScsiRequest::default() }
    }

    pub fn write(&self, block: usize, data: &[u8]) -> ScsiRequest {
        // In parts whose bounds fall anywhere.
        let parts: Vec<Buf> = data.chunks(70_001).map(|part| self.arena.copy(part).freeze()).collect();
        ScsiRequest { cdb: cdb(0x2a, block, data.len()), data_out: parts, ..ScsiRequest::default() }
    }
}

pub fn cdb(opcode: u8, block: usize, len: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&(block as u32).to_be_bytes());
    cdb[7..9].copy_from_slice(&((len / BLOCK) as u16).to_be_bytes());
    cdb
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (((i + seed) * 2_654_435_761) >> 13) as u8).collect()
}
