//! The server's side of option haggling.
//!
//! The caller feeds bytes and carries out actions until one of them ends the negotiation. Between a question
//! ([`Action::Find`], [`Action::List`]) and its answer nothing else happens: the protocol forbids the client to
//! send an option before the last one is answered, and a client that does finds its bytes waiting. The caller
//! should not read from the socket meanwhile; that is the bound on what waits.
//!
//! Limits: an option's data may have 32 KiB (an export name and several queries of 4 KiB); longer data are skipped
//! unread and answered `ERR_TOO_BIG`. A negotiation is over after 128 options or 1 MiB: real clients need under twenty
//! options for one export. A client that was told of more may ask about each of them: it has four options more for each,
//! and the bytes for them. A list is answered part by part, as the caller gives it. Non-fixed newstyle clients get EXPORT_NAME and nothing else. With TLS configured
//! nothing but STARTTLS and ABORT is answered before it (the specification's FORCEDTLS).

use crate::options::{InfoRequest, Malformed, MetaRequest, push_reply, string};
use crate::reply::Style;
use crate::wire::{
    CONTEXT_ALLOCATION, CONTEXT_ALLOCATION_ID, INIT_MAGIC, OPTION_LEN, OPTION_MAGIC, REQUEST_MAX, Reader,
    STRING_MAX, Violation, export_flag, handshake_flag, info, option, option_reply,
};
use forebay_base::planted::{Bug, active};
use std::collections::VecDeque;

/// Name, queries and some room: an export name and seven queries of the longest kind.
const OPTION_DATA_MAX: usize = 8 * 4096;
const OPTIONS_MAX: u64 = 128;
const NEGOTIATION_BYTES_MAX: u64 = 1 << 20;
/// Options that a client may send about each export of a list. nbdinfo and qemu-nbd send up to three: information, and the
/// metadata contexts with and without a query.
const OPTIONS_PER_EXPORT: u64 = 4;
/// Bytes of each of them besides the name: its header, and queries.
const OPTION_BYTES_PER_EXPORT: u64 = 128;

/// Whether TLS is configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsMode {
    Off,
    Required,
}

/// An export as the caller knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// The canonical name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Bytes below which a write costs a read: a power of two from 512 to 32 MiB.
    pub block_size: u32,
    /// Clients may not change it.
    pub read_only: bool,
}

/// Why the caller does not give an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is none of that name; the text is for the client's user.
    Unknown(String),
    /// The server is shutting down.
    Stopping,
}

/// What the caller must do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Send(Vec<u8>),
    /// Look an export up and answer with [`Handshake::found`].
    Find(String),
    /// List all exports but for the first `skip`, which were listed just before, and answer with [`Handshake::listed`].
    List {
        skip: usize,
    },
    /// Become a TLS server on this connection (after sending what came before), then call [`Handshake::secured`].
    StartTls,
    /// Send what came before and go over to [`crate::Transmission`]; [`Handshake::into_leftover`] has its first bytes.
    Transmit(Agreement),
    /// Send what came before and close. `None`: the client asked for it.
    Close(Option<Violation>),
}

/// What both sides agreed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreement {
    pub export: Export,
    pub style: Style,
    /// `base:allocation` was selected for this export.
    pub allocation: bool,
}

/// One negotiation.
pub struct Handshake {
    state: State,
    tls: TlsMode,
    terms: Terms,
    input: VecDeque<u8>,
    actions: VecDeque<Action>,
    options_seen: u64,
    bytes_seen: u64,
    /// What may be seen: more, once there was a list.
    options_max: u64,
    bytes_max: u64,
}

enum State {
    ClientFlags,
    Option,
    /// Skipping data that are too long to keep.
    Skip {
        option: u32,
        remaining: u64,
    },
    Asked(Question),
    Securing,
    Over,
}

enum Question {
    ExportName,
    Info { option: u32, request: InfoRequest },
    Meta { option: u32, request: MetaRequest },
    List(Listing),
}

/// What was listed so far.
#[derive(Default)]
struct Listing {
    exports: usize,
    name_bytes: u64,
}

/// What the options said so far. STARTTLS resets all but the client's flags.
#[derive(Default)]
struct Terms {
    fixed_newstyle: bool,
    no_zeroes: bool,
    secured: bool,
    style: Style,
    /// Canonical name of the export for which `base:allocation` was selected.
    allocation_of: Option<String>,
}

impl Handshake {
    /// A negotiation whose first action is to send the greeting.
    pub fn new(tls: TlsMode) -> Handshake {
        let flags = (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES) as u16;
        let greeting =
            [&INIT_MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &flags.to_be_bytes()].concat();
        Handshake {
            state: State::ClientFlags,
            tls,
            terms: Terms::default(),
            input: VecDeque::new(),
            actions: VecDeque::from([Action::Send(greeting)]),
            options_seen: 0,
            bytes_seen: 0,
            options_max: OPTIONS_MAX,
            bytes_max: NEGOTIATION_BYTES_MAX,
        }
    }

    /// Bytes from the peer.
    pub fn handle_input(&mut self, bytes: &[u8]) {
        assert!(!active(Bug::HandshakePanics), "planted");
        self.input.extend(bytes);
    }

    /// The next thing to do; `None` when the peer, or the caller's answer, is awaited.
    pub fn poll_action(&mut self) -> Option<Action> {
        while self.actions.is_empty() && self.advance() {}
        // One send for all replies that are ready: a client reads them in one go.
        let first = self.actions.pop_front()?;
        let Action::Send(mut bytes) = first else { return Some(first) };
        while let Some(Action::Send(more)) = self.actions.front_mut() {
            bytes.append(more);
            self.actions.pop_front();
        }
        Some(Action::Send(bytes))
    }

    /// Answers [`Action::Find`].
    pub fn found(&mut self, answer: Result<Export, Refusal>) {
        let State::Asked(question) = std::mem::replace(&mut self.state, State::Option) else {
            panic!("an export was found without having been asked for");
        };
        match (question, answer) {
            (Question::ExportName, Ok(export)) => self.accept_by_name(export),
            (Question::ExportName, Err(Refusal::Unknown(_))) => self.close(Some(Violation::UnknownExport)),
            (Question::ExportName, Err(Refusal::Stopping)) => self.close(Some(Violation::Stopping)),
            (Question::Info { option, request }, Ok(export)) => self.accept(option, &request, export),
            (Question::Meta { option, request }, Ok(export)) => self.contexts(option, &request, export),
            (Question::Info { option, .. } | Question::Meta { option, .. }, Err(refusal)) => match refusal {
                Refusal::Unknown(why) => self.error(option, option_reply::ERR_UNKNOWN, &why),
                Refusal::Stopping => {
                    self.error(option, option_reply::ERR_SHUTDOWN, "the server is shutting down")
                }
            },
            (Question::List(_), _) => panic!("a list was asked for, not an export"),
        }
    }

    /// Answers [`Action::List`] with some of the exports, or with the last of them. Others are asked for when these are sent.
    pub fn listed(&mut self, names: &[String], is_last: bool) {
        let State::Asked(Question::List(listing)) = &mut self.state else {
            panic!("exports were listed without having been asked for");
        };
        listing.exports += names.len();
        listing.name_bytes += names.iter().map(|name| name.len() as u64).sum::<u64>();
        let mut out = Vec::new();
        for name in names {
            let len = (name.len() as u32).to_be_bytes();
            push_reply(&mut out, option::LIST, option_reply::SERVER, &[&len, name.as_bytes()]);
        }
        if is_last {
            let (exports, name_bytes) = (listing.exports as u64, listing.name_bytes);
            self.options_max = self.options_max.max(OPTIONS_MAX + OPTIONS_PER_EXPORT * exports);
            let bytes = OPTIONS_PER_EXPORT * (name_bytes + OPTION_BYTES_PER_EXPORT * exports);
            self.bytes_max = self.bytes_max.max(NEGOTIATION_BYTES_MAX + bytes);
            push_reply(&mut out, option::LIST, option_reply::ACK, &[]);
            self.state = State::Option;
            self.send(out);
        } else {
            let skip = listing.exports;
            self.send(out);
            self.actions.push_back(Action::List { skip });
        }
    }

    /// The TLS handshake that [`Action::StartTls`] asked for is complete; input is plaintext from inside it from now on.
    pub fn secured(&mut self) {
        assert!(matches!(self.state, State::Securing), "TLS starts when the client asked for it");
        let Terms { fixed_newstyle, no_zeroes, .. } = self.terms;
        self.terms = Terms { secured: true, fixed_newstyle, no_zeroes, ..Terms::default() };
        self.state = State::Option;
    }

    /// Bytes that came behind the end of the negotiation.
    pub fn into_leftover(self) -> Vec<u8> {
        self.input.into()
    }

    /// Takes one step on the input; false when it needs more, or an answer.
    fn advance(&mut self) -> bool {
        match self.state {
            State::ClientFlags => {
                let Some(bytes) = self.take(4) else { return false };
                let flags = Reader::new(&bytes).u32().expect("four bytes were taken");
                if flags & !(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES) != 0 {
                    self.close(Some(Violation::ClientFlags(flags)));
                    return true;
                }
                self.terms.fixed_newstyle = flags & handshake_flag::FIXED_NEWSTYLE != 0;
                self.terms.no_zeroes = flags & handshake_flag::NO_ZEROES != 0;
                self.state = State::Option;
                true
            }
            State::Option => self.advance_option(),
            State::Skip { option, remaining } => {
                let skipped = remaining.min(self.input.len() as u64);
                self.input.drain(..skipped as usize);
                if remaining == skipped {
                    self.state = State::Option;
                    self.error(option, option_reply::ERR_TOO_BIG, "the option data are too long");
                } else {
                    self.state = State::Skip { option, remaining: remaining - skipped };
                }
                skipped > 0
            }
            State::Asked(_) | State::Securing | State::Over => false,
        }
    }

    fn advance_option(&mut self) -> bool {
        if self.input.len() < OPTION_LEN {
            return false;
        }
        let header: Vec<u8> = self.input.iter().take(OPTION_LEN).copied().collect();
        let mut reader = Reader::new(&header);
        let numbers = (|| Ok::<_, crate::wire::Truncated>((reader.u64()?, reader.u32()?, reader.u32()?)))();
        let (magic, option, len) = numbers.expect("a whole header is there");
        if magic != OPTION_MAGIC {
            self.close(Some(Violation::OptionMagic(magic)));
            return true;
        }
        if len as usize <= OPTION_DATA_MAX && self.input.len() < OPTION_LEN + len as usize {
            return false;
        }
        self.options_seen += 1;
        self.bytes_seen += OPTION_LEN as u64 + u64::from(len);
        if self.options_seen > self.options_max {
            self.close(Some(Violation::TooManyOptions));
        } else if self.bytes_seen > self.bytes_max {
            self.close(Some(Violation::TooManyBytes));
        } else if !self.terms.fixed_newstyle && option != option::EXPORT_NAME {
            self.close(Some(Violation::NotFixedNewstyle(option)));
        } else if len as usize > OPTION_DATA_MAX {
            self.input.drain(..OPTION_LEN);
            if option == option::EXPORT_NAME {
                self.close(Some(Violation::UnknownExport));
            } else {
                self.state = State::Skip { option, remaining: u64::from(len) };
            }
        } else {
            self.input.drain(..OPTION_LEN);
            let data = self.take(len as usize).expect("the option's data are there");
            self.option(option, &data);
        }
        true
    }

    fn option(&mut self, number: u32, data: &[u8]) {
        if self.tls == TlsMode::Required && !self.terms.secured {
            match number {
                option::STARTTLS | option::ABORT => {}
                option::EXPORT_NAME => return self.close(Some(Violation::TlsRequired)),
                _ => {
                    let message = "TLS is required: send STARTTLS first";
                    return self.error(number, option_reply::ERR_TLS_REQD, message);
                }
            }
        }
        let takes_no_data = matches!(
            number,
            option::LIST | option::STARTTLS | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS
        );
        if takes_no_data && !data.is_empty() {
            return self.error(number, option_reply::ERR_INVALID, "this option takes no data");
        }
        match number {
            option::EXPORT_NAME => match string(data) {
                Ok(name) => self.ask(Question::ExportName, Action::Find(name.to_owned())),
                Err(_) => self.close(Some(Violation::UnknownExport)),
            },
            option::ABORT => {
                self.ack(number);
                self.close(None);
            }
            option::LIST => self.ask(Question::List(Listing::default()), Action::List { skip: 0 }),
            option::STARTTLS => self.start_tls(),
            option::INFO | option::GO => match InfoRequest::parse(data) {
                Ok(request) => {
                    let name = request.name.clone();
                    self.ask(Question::Info { option: number, request }, Action::Find(name));
                }
                Err(malformed) => self.malformed(number, malformed),
            },
            option::STRUCTURED_REPLY if self.terms.style == Style::Extended => {
                let message = "extended headers are already agreed on and include structured replies";
                self.error(number, option_reply::ERR_EXT_HEADER_REQD, message);
            }
            option::STRUCTURED_REPLY => {
                self.terms.style = Style::Structured;
                self.ack(number);
            }
            option::EXTENDED_HEADERS => {
                self.terms.style = Style::Extended;
                self.ack(number);
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                let set = number == option::SET_META_CONTEXT;
                if set {
                    // Even a failing request replaces what was selected before.
                    self.terms.allocation_of = None;
                    if self.terms.style == Style::Simple {
                        let message = "structured replies must be agreed on first";
                        return self.error(number, option_reply::ERR_INVALID, message);
                    }
                }
                match MetaRequest::parse(data) {
                    Ok(request) => {
                        let name = request.name.clone();
                        self.ask(Question::Meta { option: number, request }, Action::Find(name));
                    }
                    Err(malformed) => self.malformed(number, malformed),
                }
            }
            _ => self.error(number, option_reply::ERR_UNSUP, "this server does not know the option"),
        }
    }

    fn start_tls(&mut self) {
        if self.tls == TlsMode::Off {
            self.error(option::STARTTLS, option_reply::ERR_POLICY, "TLS is not configured on this server");
        } else if self.terms.secured {
            self.error(option::STARTTLS, option_reply::ERR_INVALID, "TLS was started already");
        } else if !self.input.is_empty() {
            // An honest client waits for the answer. Whoever writes behind its STARTTLS would have the bytes taken for its own.
            self.close(Some(Violation::PlaintextAfterTls));
        } else {
            self.ack(option::STARTTLS);
            self.actions.push_back(Action::StartTls);
            self.state = State::Securing;
        }
    }

    fn export_flags(&self, export: &Export) -> u16 {
        let fragments = if self.terms.style == Style::Simple { 0 } else { export_flag::SEND_DF };
        let changes = if export.read_only {
            export_flag::READ_ONLY
        } else {
            export_flag::SEND_FUA
                | export_flag::SEND_TRIM
                | export_flag::SEND_WRITE_ZEROES
                | export_flag::SEND_FAST_ZERO
        };
        export_flag::HAS_FLAGS
            | export_flag::SEND_FLUSH
            | export_flag::CAN_MULTI_CONN
            | export_flag::SEND_CACHE
            | fragments
            | changes
    }

    fn accept_by_name(&mut self, export: Export) {
        let mut out = export.size.to_be_bytes().to_vec();
        out.extend(self.export_flags(&export).to_be_bytes());
        if !self.terms.no_zeroes {
            out.extend([0; 124]);
        }
        self.send(out);
        self.transmit(export);
    }

    fn accept(&mut self, option: u32, request: &InfoRequest, export: Export) {
        let mut out = Vec::new();
        let (size, flags) = (export.size.to_be_bytes(), self.export_flags(&export).to_be_bytes());
        push_reply(
            &mut out,
            option,
            option_reply::INFO,
            &[&info::EXPORT.to_be_bytes(), size.as_slice(), &flags],
        );
        if request.wants_name {
            let name = export.name.as_bytes();
            push_reply(&mut out, option, option_reply::INFO, &[&info::NAME.to_be_bytes(), name]);
        }
        if request.wants_block_size {
            // The engine takes any alignment, at the cost of a read below its block size.
            let sizes = [1, export.block_size, REQUEST_MAX].map(u32::to_be_bytes).concat();
            push_reply(&mut out, option, option_reply::INFO, &[&info::BLOCK_SIZE.to_be_bytes(), &sizes]);
        }
        push_reply(&mut out, option, option_reply::ACK, &[]);
        self.send(out);
        if option == option::GO {
            self.transmit(export);
        }
    }

    fn contexts(&mut self, option: u32, request: &MetaRequest, export: Export) {
        let set = option == option::SET_META_CONTEXT;
        let mut out = Vec::new();
        if if set { request.selects_allocation } else { request.lists_allocation } {
            let id = if set { CONTEXT_ALLOCATION_ID } else { 0 }.to_be_bytes();
            push_reply(&mut out, option, option_reply::META_CONTEXT, &[&id, CONTEXT_ALLOCATION.as_bytes()]);
        }
        push_reply(&mut out, option, option_reply::ACK, &[]);
        self.send(out);
        if set && request.selects_allocation {
            self.terms.allocation_of = Some(export.name);
        }
    }

    fn transmit(&mut self, export: Export) {
        let allocation = self.terms.allocation_of.as_ref() == Some(&export.name);
        self.actions.push_back(Action::Transmit(Agreement { export, style: self.terms.style, allocation }));
        self.state = State::Over;
    }

    fn ask(&mut self, question: Question, action: Action) {
        self.state = State::Asked(question);
        self.actions.push_back(action);
    }

    fn close(&mut self, why: Option<Violation>) {
        self.actions.push_back(Action::Close(why));
        self.state = State::Over;
    }

    fn send(&mut self, bytes: Vec<u8>) {
        self.actions.push_back(Action::Send(bytes));
    }

    fn ack(&mut self, option: u32) {
        let mut out = Vec::new();
        push_reply(&mut out, option, option_reply::ACK, &[]);
        self.send(out);
    }

    fn error(&mut self, option: u32, kind: u32, message: &str) {
        // A message may quote what the client sent, which may be as long as a string may be.
        let fits = |&end: &usize| message.is_char_boundary(end);
        let end = (0..=message.len().min(STRING_MAX)).rev().find(fits).expect("0 is a boundary");
        let message = &message[..end];
        let mut out = Vec::new();
        push_reply(&mut out, option, kind, &[message.as_bytes()]);
        self.send(out);
    }

    fn malformed(&mut self, option: u32, malformed: Malformed) {
        self.error(option, option_reply::ERR_INVALID, malformed.message());
    }

    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        (self.input.len() >= len).then(|| self.input.drain(..len).collect())
    }
}
