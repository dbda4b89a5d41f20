//! What an iSCSI peer can do to us.
//!
//! [`pdus`] and [`login`] feed raw bytes twice, whole and cut in pieces, and compare what comes of it; [`text`] reads
//! text and negotiates with it, as either side. [`session`] makes sequences of PDUs that are mostly plausible (tags
//! that are in use, CmdSNs near the expected one, data where they belong or just beside), runs them against a
//! target whose driver completes commands early, late or out of order, and checks that every command is completed
//! once and that memory is bounded. [`initiator`] gives the initiator's side what a target might say.
//!
//! The first bytes of an input choose the mode and the cuts, the rest is what the peer sends.

use crate::nbd::pieces;
use forebay_base::Nanos;
use forebay_iscsi::initiator::{self, Connected, ScsiRequest, Wanted};
use forebay_iscsi::pdu::{
    BHS_LEN, Bhs, DataOut, LogoutRequest, NopOut, ScsiCommand, TaskRequest, TextRequest, additional,
};
use forebay_iscsi::{
    Action, Algorithm, Authorization, COMMANDS_MAX, Challenge, Chap, Completion, Credentials, Discovered,
    Established, IMMEDIATE_MAX, Login, LoginAction, LoginConfig, LoginStatus, Negotiation, PART, Parameters,
    Piece, Purpose, Receiver, Request, Secret, Session, Tag, TaskAnswer, Violation, text as values,
};
use forebay_runtime::Arena;

const LEN_MAX: u32 = 4096;

fn parameters(mode: u8) -> Parameters {
    Parameters {
        header_digest: mode & 1 != 0,
        data_digest: mode & 2 != 0,
        initial_r2t: mode & 4 != 0,
        immediate_data: mode & 8 != 0,
        segment_max_own: LEN_MAX,
        segment_max_peer: 512,
        burst_max: 2048,
        first_burst_max: 1024,
        r2t_outstanding_max: 1 + u32::from(mode >> 6),
        ..Parameters::DEFAULTS
    }
}

/// Everything that a stream is cut into, in words.
fn cut(mode: u8, bytes: &[u8], seed: u8) -> Vec<String> {
    let mut receiver = Receiver::new(mode & 1 != 0, mode & 2 != 0, LEN_MAX);
    let (mut words, mut data) = (Vec::new(), Vec::new());
    for mut piece in pieces(bytes, seed) {
        loop {
            match receiver.next(&mut piece) {
                Ok(None) => break,
                Ok(Some(Piece::Header(bhs))) => {
                    assert!(bhs.data_len() <= LEN_MAX);
                    let headers: Vec<_> = additional(receiver.ahs()).collect();
                    words.push(format!("{bhs:?} {headers:?}"));
                }
                Ok(Some(Piece::Data(bytes))) => data.extend_from_slice(bytes),
                Ok(Some(Piece::End { intact })) => {
                    words.push(format!("{intact} {data:?}"));
                    data.clear();
                }
                Err(violation) => {
                    words.push(format!("{violation}"));
                    return words;
                }
            }
        }
        assert!(piece.is_empty(), "all input is used up when more is asked for");
    }
    words
}

pub fn pdus(data: &[u8]) {
    let [mode, seed, bytes @ ..] = data else { return };
    assert_eq!(cut(*mode, bytes, 0), cut(*mode, bytes, seed | 1));
}

pub fn text(data: &[u8]) {
    let [mode, bytes @ ..] = data else { return };
    let Ok(pairs) = values::parse(bytes) else { return };
    for (_, value) in &pairs {
        if let Some(name) = values::name(value) {
            assert_eq!(values::name(&name).as_ref(), Some(&name));
        }
        if let Some(bytes) = values::binary(value) {
            assert_eq!(values::binary(&values::hexadecimal(&bytes)), Some(bytes));
        }
        values::number(value);
    }
    let mut answers = Vec::new();
    let mut side = if mode & 1 == 0 {
        Negotiation::target(Parameters::TARGET)
    } else {
        let mut initiator = Negotiation::initiator(Parameters::TARGET);
        initiator.offer(&mut Vec::new());
        initiator
    };
    side.set_discovery(mode & 2 != 0);
    let handled = side.handle(&pairs, &mut answers);
    if handled.is_ok() && mode & 1 == 0 {
        assert!(answers.len() <= 8192, "answers fit the smallest segment: {} bytes", answers.len());
    }
    let agreed = side.agreed();
    assert!((512..1 << 24).contains(&agreed.segment_max_peer) && (512..1 << 24).contains(&agreed.burst_max));
    assert!(agreed.r2t_outstanding_max >= 1 && agreed.time2wait <= 3600);
    assert!(values::parse(&answers).is_ok());
    let _ = side.handle_later(&pairs, &mut answers);
}

fn credentials(user: &str, secret: &str) -> Credentials {
    Credentials { user: user.into(), secret: Secret::new(secret).expect("it is long enough") }
}

fn authorization(mode: u8) -> Result<Authorization, LoginStatus> {
    match mode % 4 {
        0 => Ok(Authorization::Open),
        1 => Err(LoginStatus::Forbidden),
        _ => Ok(Authorization::Chap {
            chap: Chap {
                initiator: credentials("host", "twelve bytes"),
                target: (mode % 4 == 3).then(|| credentials("pool", "other twelve bytes")),
            },
            challenge: Challenge { id: 7, bytes: [7; 32] },
        }),
    }
}

/// Carries a login as far as the bytes reach: everything that was sent, and how it ended.
fn negotiate(mode: u8, bytes: &[u8], seed: u8) -> (Vec<u8>, Option<Result<Box<Established>, Violation>>) {
    let arena = Arena::new();
    let config =
        LoginConfig { portal_group_tag: 1, parameters: Parameters::TARGET, chap_minimum: Algorithm::Md5 };
    let (mut login, mut sent) = (Login::new(config, &arena), Vec::new());
    for mut piece in pieces(bytes, seed) {
        loop {
            login.handle_input(&mut piece);
            match login.poll_action() {
                None => break,
                Some(LoginAction::Send(parts)) => parts.iter().for_each(|part| sent.extend_from_slice(part)),
                Some(LoginAction::Authorize(_)) => login.authorize(authorization(mode)),
                Some(LoginAction::Join { .. }) => login.joined(Ok(1)),
                Some(LoginAction::Established(established)) => {
                    assert_eq!(mode % 4, 0, "nobody knows the secrets");
                    return (sent, Some(Ok(established)));
                }
                Some(LoginAction::Close(violation)) => return (sent, Some(Err(violation))),
            }
        }
    }
    (sent, None)
}

pub fn login(data: &[u8]) {
    let [mode, seed, bytes @ ..] = data else { return };
    assert_eq!(negotiate(*mode, bytes, 0), negotiate(*mode, bytes, seed | 1));
    let wanted = Wanted {
        initiator: "iqn.a".into(),
        purpose: Purpose::Discovery,
        parameters: Parameters::TARGET,
        isid: [0; 6],
        tsih: 0,
        credentials: (mode & 1 != 0).then(|| credentials("host", "twelve bytes")),
        algorithms: "7,5",
        target: (mode & 2 != 0)
            .then(|| (credentials("pool", "other twelve bytes"), Challenge { id: 1, bytes: [1; 32] })),
    };
    let mut initiator = initiator::Login::new(wanted);
    let _ = pieces(bytes, *seed).try_for_each(|mut piece| initiator.handle_input(&mut piece).map(|_| ()));
}

/// A driver that has commands in its hands, and finishes them when a step says so.
struct Driver {
    session: Session,
    arena: Arena,
    running: Vec<(Tag, u32)>,
    asking: Vec<(Tag, u32)>,
    managing: Vec<u32>,
    finding: bool,
    closed: bool,
}

impl Driver {
    fn act(&mut self) {
        while let Some(action) = self.session.poll_action() {
            assert!(!self.closed, "nothing follows a close: {action:?}");
            match action {
                Action::Command(command) => {
                    let sent: usize = command.data.iter().map(|part| part.len()).sum();
                    assert!(sent <= command.expected_out as usize);
                    assert!(
                        self.running.iter().all(|(tag, _)| *tag != command.tag),
                        "a tag names one command"
                    );
                    self.running.push((command.tag, command.expected_in));
                }
                Action::Solicit { tag, expected_out, .. } => self.asking.push((tag, expected_out)),
                Action::Forget(tag) => {
                    let at = self.asking.iter().position(|(asked, _)| *asked == tag);
                    self.asking.remove(at.expect("what is forgotten was asked"));
                }
                Action::Abort(tag) => assert!(self.running.iter().any(|(running, _)| *running == tag)),
                Action::Manage { id, .. } => self.managing.push(id),
                Action::FindTargets(_) => self.finding = true,
                Action::Close(_) => self.closed = true,
            }
        }
        let live = (COMMANDS_MAX + IMMEDIATE_MAX) as usize;
        assert!(self.running.len() + self.asking.len() <= live);
        assert!(self.session.memory() <= (live * PART) as u64);
    }

    fn finish(&mut self, pick: usize, status: u8, len: usize) {
        if !self.running.is_empty() {
            let (tag, expected_in) = self.running.swap_remove(pick % self.running.len());
            let data_in =
                if expected_in > 0 { vec![self.arena.take_zeroed(len).freeze()] } else { Vec::new() };
            let completion = Completion { status, sense: Vec::new(), data_in, needed_len: len as u64 };
            self.session.complete(tag, completion);
        }
    }

    fn answer(&mut self, pick: usize) {
        if !self.asking.is_empty() && !self.closed {
            let (tag, expected_out) = self.asking.swap_remove(pick % self.asking.len());
            let wanted = if pick & 0x80 == 0 { u64::from(expected_out) } else { pick as u64 * 64 };
            self.session.solicit(tag, wanted);
        }
        if let Some(id) = self.managing.pop() {
            self.session.managed(id, TaskAnswer::Complete);
        }
        if std::mem::take(&mut self.finding) {
            let portals = vec![("10.0.0.1:3260".to_owned(), 1); pick % 64];
            self.session.targets(&[Discovered { name: "iqn.b".into(), portals }]);
        }
    }
}

pub fn session(data: &[u8]) {
    let [mode, seed, bytes @ ..] = data else { return };
    let established = Established {
        request: Request {
            initiator: "iqn.a".into(),
            purpose: if mode & 0x10 != 0 {
                Purpose::Discovery
            } else {
                Purpose::Normal { target: "iqn.b".into() }
            },
        },
        parameters: Parameters { header_digest: false, data_digest: false, ..parameters(*mode) },
        isid: [0; 6],
        tsih: 1,
        cid: 0,
        stat_sn: 5,
        exp_cmd_sn: 0xffff_fffe,
    };
    let mut driver = Driver {
        session: Session::new(&established, Nanos(0)),
        arena: Arena::new(),
        running: Vec::new(),
        asking: Vec::new(),
        managing: Vec::new(),
        finding: false,
        closed: false,
    };
    let (mut cmd_sn, mut time) = (established.exp_cmd_sn, Nanos(0));
    for step in bytes.chunks_exact(8) {
        let &[what, a, b, c, d, e, f, g] = step else { unreachable!("chunks of eight") };
        let (itt, flags, len) = (u32::from(a % 16), b, u32::from(u16::from_be_bytes([c, d])) % 5000);
        let immediate = what & 0x40 != 0;
        let sn = if e == 0 { cmd_sn } else { cmd_sn.wrapping_add(u32::from(e)).wrapping_sub(4) };
        let (bhs, data_len) = match what % 16 {
            0..=4 => {
                let command = ScsiCommand {
                    flags,
                    itt,
                    expected_len: len * u32::from(f),
                    cmd_sn: sn,
                    ..Default::default()
                };
                (command.encode(), len % 1100)
            }
            5..=8 => {
                let ttt = if f & 1 == 0 { u32::from(f >> 1) } else { u32::MAX };
                let data_out = DataOut {
                    flags,
                    itt,
                    ttt,
                    data_sn: u32::from(e % 4),
                    buffer_offset: u32::from(g) * 256,
                    ..Default::default()
                };
                (data_out.encode(), len)
            }
            9 => (NopOut { itt, ttt: u32::MAX, cmd_sn: sn, ..NopOut::default() }.encode(), len % 600),
            10 => {
                let lun = u64::from(g & 1);
                let request =
                    TaskRequest { flags, lun, itt, referenced_itt: u32::from(c), ..Default::default() };
                (
                    TaskRequest {
                        cmd_sn: sn,
                        referenced_cmd_sn: cmd_sn.wrapping_add(u32::from(d)),
                        ..request
                    }
                    .encode(),
                    0,
                )
            }
            11 => {
                let ttt = if f & 1 == 0 { u32::from(f >> 1) } else { u32::MAX };
                (TextRequest { flags, itt, ttt, cmd_sn: sn, ..TextRequest::default() }.encode(), len)
            }
            12 if g == 7 => {
                (LogoutRequest { flags, itt, cmd_sn: sn, ..LogoutRequest::default() }.encode(), 0)
            }
            12 => (Bhs::new(b), len % 100),
            13 => {
                driver.answer(usize::from(a));
                continue;
            }
            14 => {
                driver.finish(usize::from(a), if b % 4 == 0 { 2 } else { 0 }, len as usize);
                continue;
            }
            _ => {
                match a % 8 {
                    0 => driver.session.abort(|lun| b & 1 != 0 || lun == u64::from(c & 1)),
                    1 => driver.session.set_memory_short(b & 1 == 0),
                    2 => driver.session.notify(1, &[0x70; 18]),
                    3 => driver.session.request_logout(u16::from(b)),
                    4 if b == 9 => driver.session.drop_session(),
                    _ => {
                        time = Nanos(time.0 + (u64::from(b) << 27));
                        driver.session.handle_timeout(time);
                    }
                }
                driver.act();
                continue;
            }
        };
        let mut bhs = if immediate { bhs.immediate() } else { bhs };
        bhs.set_data_len(data_len);
        let mut message = bhs.0.to_vec();
        message.resize(BHS_LEN + (data_len as usize).next_multiple_of(4), g);
        if what % 16 == 11 && len > 20 {
            message[BHS_LEN..BHS_LEN + 16].copy_from_slice(b"SendTargets=All\0");
        }
        if !immediate && sn == cmd_sn && !(5..=8).contains(&(what % 16)) {
            cmd_sn = cmd_sn.wrapping_add(1);
        }
        for mut piece in pieces(&message, *seed) {
            driver.session.handle_input(time, &mut piece, &driver.arena);
            assert!(piece.is_empty());
        }
        driver.act();
        if driver.session.output_bytes() > 4096 {
            drop(driver.session.take_batch(&driver.arena));
        }
    }
    // What is in the driver's hands can be finished in any state, and then nothing is left.
    while !driver.running.is_empty() || !driver.managing.is_empty() || driver.finding {
        driver.finish(0, 0, 512);
        driver.act();
        if let Some(id) = driver.managing.pop() {
            driver.session.managed(id, TaskAnswer::Complete);
        }
        if std::mem::take(&mut driver.finding) {
            driver.session.targets(&[]);
        }
    }
    driver.session.abort(|_| true);
    driver.act();
    assert_eq!((driver.session.commands(), driver.session.memory()), (0, 0));
    drop(driver.session);
    assert_eq!(driver.arena.bytes_out(), 0);
}

pub fn initiator(data: &[u8]) {
    let [mode, seed, bytes @ ..] = data else { return };
    let connected = Connected {
        parameters: Parameters { header_digest: false, data_digest: false, ..parameters(*mode) },
        tsih: 1,
        portal_group_tag: None,
        cmd_sn: 1,
        max_cmd_sn: 64,
        exp_stat_sn: 0,
    };
    let (mut session, arena) = (initiator::Session::new(&connected), Arena::new());
    for number in 0..4 {
        let data_out = if number % 2 == 0 { vec![arena.take_zeroed(4000).freeze()] } else { Vec::new() };
        let expected_in = if number % 2 == 1 { 4000 } else { 0 };
        session
            .command(ScsiRequest { data_out, expected_in, ..ScsiRequest::default() })
            .expect("the window is open");
    }
    for mut piece in pieces(bytes, *seed) {
        if session.handle_input(&mut piece, &arena).is_err() {
            break;
        }
        while session.poll_event().is_some() {}
        drop(session.take_batch(&arena));
    }
    assert!(arena.bytes_out() <= 8 * 8192);
}
