//! What an iSCSI initiator can say in a login that goes on, and in texts after it.
//!
//! Raw bytes seldom get past CHAP's first stage. So here an input is a script: steps of four bytes, each of which adds a pair to a text or
//! sends what was gathered as one request. Pairs are mostly those that belong there (the right answer to the challenge among them), with
//! values on and beside their bounds, in any order and number. [`chap`] logs in where a secret is asked for; [`keys`] where none is, and
//! goes on with text requests in the session that comes of it.
//!
//! Checked: an answer fits the smallest data segment and is text; an initiator that is in has proven its secret with an algorithm that is allowed; what was
//! agreed on is within bounds; cut into pieces it is the same.

use crate::nbd::pieces;
use forebay_base::Nanos;
use forebay_iscsi::pdu::{BHS_LEN, LoginRequest, LoginResponse, TextRequest, TextResponse};
use forebay_iscsi::wire::{SEGMENT_DEFAULT, opcode};
use forebay_iscsi::{
    Action, Algorithm, Authorization, Challenge, Chap, Credentials, Discovered, Established, Login,
    LoginAction, LoginConfig, Parameters, Piece, Receiver, Secret, Session, Violation, text as values,
};
use forebay_runtime::{Arena, Buf};

const ID: u8 = 7;
const CHALLENGE: [u8; 32] = [7; 32];
const USER: &str = "host";

const NAMES: [&str; 32] = [
    "InitiatorName",
    "SessionType",
    "TargetName",
    "InitiatorAlias",
    "TargetAlias",
    "TargetAddress",
    "TargetPortalGroupTag",
    "HeaderDigest",
    "DataDigest",
    "MaxConnections",
    "InitialR2T",
    "ImmediateData",
    "MaxRecvDataSegmentLength",
    "MaxBurstLength",
    "FirstBurstLength",
    "DefaultTime2Wait",
    "DefaultTime2Retain",
    "MaxOutstandingR2T",
    "DataPDUInOrder",
    "DataSequenceInOrder",
    "ErrorRecoveryLevel",
    "TaskReporting",
    "iSCSIProtocolLevel",
    "IFMarker",
    "OFMarkInt",
    "AuthMethod",
    "CHAP_A",
    "CHAP_N",
    "CHAP_R",
    "CHAP_I",
    "CHAP_C",
    "SendTargets",
];
const VALUES: [&str; 32] = [
    "Yes",
    "No",
    "None",
    "CRC32C",
    "CRC32C,None",
    "None,CRC32C",
    "0",
    "1",
    "2",
    "511",
    "512",
    "8192",
    "262144",
    "16777215",
    "16777216",
    "65535",
    "65536",
    "3600",
    "4294967295",
    "4294967296",
    "0x200",
    "RFC3720",
    "FastAbort,RFC3720",
    "Reject",
    "NotUnderstood",
    "Irrelevant",
    "",
    "CHAP",
    "KRB5,CHAP,None",
    "5,7",
    "All",
    "iqn.b",
];

fn secret() -> Secret {
    Secret::new("twelve bytes").expect("it is long enough")
}

/// The text of the next request, and what was sent so far.
#[derive(Default)]
struct Script {
    text: Vec<u8>,
    /// Whether a request had the user's name with the right answer, by algorithm: MD5, SHA-256.
    proves: [bool; 2],
    is_named: bool,
    answers: [bool; 2],
}

impl Script {
    fn pair(&mut self, name: &str, value: &str) {
        self.text.extend_from_slice(format!("{name}={value}\0").as_bytes());
    }

    /// Takes a step that adds to the text; false for one that sends it.
    fn add(&mut self, [what, a, b, c]: [u8; 4]) -> bool {
        match what % 12 {
            0 => self.pair("InitiatorName", "iqn.a"),
            1 => match a % 3 {
                0 => self.pair("SessionType", "Discovery"),
                _ => self.pair("TargetName", "iqn.b"),
            },
            2 => self.pair("AuthMethod", ["CHAP", "CHAP,None", "None", "KRB5"][usize::from(a % 4)]),
            3 => self.pair("CHAP_A", ["7", "5", "5,7", "8,7", "8", ""][usize::from(a % 6)]),
            4 => {
                let algorithm = if a & 1 == 0 { Algorithm::Sha256 } else { Algorithm::Md5 };
                let answer = algorithm.answer(ID, &secret(), &CHALLENGE);
                self.answers[usize::from(a & 1 == 0)] = true;
                self.is_named = true;
                self.pair("CHAP_N", USER);
                self.pair("CHAP_R", &values::hexadecimal(&answer));
            }
            5 => {
                self.pair("CHAP_I", &a.to_string());
                let bytes = if c & 1 == 0 { CHALLENGE.to_vec() } else { vec![b; usize::from(b) * 8] };
                self.pair("CHAP_C", &values::hexadecimal(&bytes));
            }
            // One unknown key of any length, around the bound or far beyond.
            6 => {
                let name = "X".repeat(usize::from(b & 0x7f) % 70);
                let count = if b & 0x80 == 0 { u32::from(a % 40) } else { u32::from(a) * 3 };
                (0..count).for_each(|_| self.pair(&name, ["", "y"][usize::from(c & 1)]));
            }
            7 | 8 => {
                let (name, value) = (NAMES[usize::from(a % 32)], VALUES[usize::from(b % 32)]);
                self.pair(name, value);
            }
            9 => self.text.extend_from_slice(&[a, b, c]),
            10 => self.pair(NAMES[usize::from(a % 32)], &"9".repeat(usize::from(b) * 16 + usize::from(c))),
            _ => return false,
        }
        // No initiator says more; what is beyond is refused by its length.
        self.text.truncate(80 << 10);
        true
    }

    /// The text is sent.
    fn take(&mut self) -> Vec<u8> {
        for (proves, answers) in self.proves.iter_mut().zip(std::mem::take(&mut self.answers)) {
            *proves |= answers && self.is_named;
        }
        self.is_named = false;
        std::mem::take(&mut self.text)
    }
}

/// Everything that was said to the initiator, in words; every answer is checked.
struct Heard {
    receiver: Receiver,
    words: Vec<String>,
    data: Vec<u8>,
    /// Whether this answer goes on in the next PDU, if it is text; whether the last did.
    goes_on: Option<bool>,
    went_on: bool,
}

impl Heard {
    fn new() -> Heard {
        let receiver = Receiver::new(false, false, SEGMENT_DEFAULT);
        Heard { receiver, words: Vec::new(), data: Vec::new(), goes_on: None, went_on: false }
    }

    fn hear(&mut self, parts: &[Buf], segment_max: u32) {
        self.receiver.set_segment_max(segment_max);
        for part in parts {
            let mut bytes = &part[..];
            while let Some(piece) = self.receiver.next(&mut bytes).expect("no answer is too long") {
                match piece {
                    Piece::Header(bhs) => {
                        self.goes_on = match bhs.opcode() {
                            opcode::LOGIN_RESPONSE => Some(LoginResponse::decode(&bhs).flags & 0x40 != 0),
                            opcode::TEXT_RESPONSE => Some(TextResponse::decode(&bhs).flags & 0x40 != 0),
                            _ => None,
                        };
                        self.words.push(format!("{bhs:?}"));
                    }
                    Piece::Data(bytes) if self.goes_on.is_some() => self.data.extend_from_slice(bytes),
                    Piece::Data(_) => {}
                    Piece::End { .. } => {
                        let Some(goes_on) = self.goes_on else { continue };
                        // One that goes on may be given up for another, in the middle of a pair.
                        if !goes_on && !self.went_on {
                            let pairs = values::parse(&self.data).expect("an answer is text");
                            self.words.push(format!("{pairs:?}"));
                        }
                        if !goes_on {
                            self.data.clear();
                        }
                        self.went_on = goes_on;
                    }
                }
            }
        }
    }
}

/// How a login ended: who is in, and what it had sent behind that.
type Ended = Option<Result<Box<Established>, Violation>>;

/// Plays a script up to the end of the login: what was heard, how it ended, and the steps that are left.
fn log_in<'a>(
    config: LoginConfig,
    authorization: &Authorization,
    script: &mut Script,
    steps: &'a [u8],
    seed: u8,
) -> (Vec<String>, Ended, &'a [u8]) {
    let arena = Arena::new();
    let (mut login, mut heard) = (Login::new(config, &arena), Heard::new());
    let mut rest = steps;
    while let Some((&[what, a, b, c], behind)) = rest.split_first_chunk() {
        rest = behind;
        if script.add([what, a, b, c]) {
            continue;
        }
        let text = script.take();
        // In one request, or in as many as it takes.
        let size = if b & 1 == 0 { SEGMENT_DEFAULT as usize } else { 16 << 10 };
        let mut parts: Vec<&[u8]> = text.chunks(size).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let last = parts.len() - 1;
        for (nth, part) in parts.into_iter().enumerate() {
            let flags = if nth == last { [0, 0x81, 0x04, 0x87, 0x83, a][usize::from(a % 6)] } else { 0x40 };
            let request = LoginRequest { flags, itt: 5, isid: [1; 6], ..LoginRequest::default() };
            let mut bhs = request.encode().immediate();
            bhs.set_data_len(part.len() as u32);
            let mut message = bhs.0.to_vec();
            message.extend_from_slice(part);
            message.resize(BHS_LEN + part.len().next_multiple_of(4), 0);
            for mut piece in pieces(&message, seed) {
                loop {
                    login.handle_input(&mut piece);
                    match login.poll_action() {
                        None => break,
                        Some(LoginAction::Send(parts)) => heard.hear(&parts, SEGMENT_DEFAULT),
                        Some(LoginAction::Authorize(_)) => login.authorize(Ok(authorization.clone())),
                        Some(LoginAction::Join { .. }) => login.joined(Ok(1)),
                        Some(LoginAction::Established(established)) => {
                            return (heard.words, Some(Ok(established)), rest);
                        }
                        Some(LoginAction::Close(violation)) => {
                            return (heard.words, Some(Err(violation)), rest);
                        }
                    }
                }
            }
        }
    }
    (heard.words, None, &[])
}

/// A login where a secret is asked for.
pub fn chap(data: &[u8]) {
    let [mode, seed, steps @ ..] = data else { return };
    let minimum = if mode & 1 == 0 { Algorithm::Md5 } else { Algorithm::Sha256 };
    let config = LoginConfig { portal_group_tag: 1, parameters: Parameters::TARGET, chap_minimum: minimum };
    let target = (mode & 2 != 0).then(|| Credentials {
        user: "pool".into(),
        secret: Secret::new("other twelve bytes").expect("long"),
    });
    let authorization = Authorization::Chap {
        chap: Chap { initiator: Credentials { user: USER.into(), secret: secret() }, target },
        challenge: Challenge { id: ID, bytes: CHALLENGE },
    };
    let play = |seed| {
        let mut script = Script::default();
        let (heard, ended, _) = log_in(config, &authorization, &mut script, steps, seed);
        (heard, ended, script.proves)
    };
    let (heard, ended, [md5, sha256]) = play(0);
    if matches!(ended, Some(Ok(_))) {
        assert!(sha256 || md5 && minimum == Algorithm::Md5, "it came in without its secret");
    }
    assert_eq!((heard, ended, [md5, sha256]), play(seed | 1));
}

/// A login where none is, with texts behind it.
pub fn keys(data: &[u8]) {
    let [mode, seed, steps @ ..] = data else { return };
    let config =
        LoginConfig { portal_group_tag: 1, parameters: Parameters::TARGET, chap_minimum: Algorithm::Md5 };
    let play = |seed| {
        let mut script = Script::default();
        let (heard, ended, rest) = log_in(config, &Authorization::Open, &mut script, steps, seed);
        let texts = match &ended {
            Some(Ok(established)) => exchange(established, &mut script, rest, *mode, seed),
            _ => Vec::new(),
        };
        (heard, ended, texts)
    };
    assert_eq!(play(0), play(seed | 1));
}

fn exchange(established: &Established, script: &mut Script, steps: &[u8], mode: u8, seed: u8) -> Vec<String> {
    let Parameters { segment_max_peer, burst_max, first_burst_max, r2t_outstanding_max, time2wait, .. } =
        established.parameters;
    assert!((512..1 << 24).contains(&segment_max_peer) && (512..1 << 24).contains(&burst_max));
    assert!((512..1 << 24).contains(&first_burst_max) && r2t_outstanding_max >= 1 && time2wait <= 3600);
    let parameters = Parameters { header_digest: false, data_digest: false, ..established.parameters };
    let mut session = Session::new(&Established { parameters, ..established.clone() }, Nanos(0));
    let (arena, mut heard) = (Arena::new(), Heard::new());
    let mut cmd_sn = established.exp_cmd_sn;
    for step in steps.chunks_exact(4) {
        let &[what, a, b, c] = step else { unreachable!("chunks of four") };
        if script.add([what, a, b, c]) {
            continue;
        }
        let mut text = script.take();
        text.truncate(if c & 1 == 0 { 1024 } else { 64 << 10 });
        let flags = [0x80, 0, 0x40, b][usize::from(a % 4)];
        let ttt = if b & 1 == 0 { u32::MAX } else { u32::from(b >> 1) };
        let request = TextRequest { flags, itt: u32::from(a >> 6), ttt, cmd_sn, ..TextRequest::default() };
        let mut bhs = request.encode();
        bhs.set_data_len(text.len() as u32);
        cmd_sn = cmd_sn.wrapping_add(1);
        let mut message = bhs.0.to_vec();
        message.extend_from_slice(&text);
        message.resize(BHS_LEN + text.len().next_multiple_of(4), 0);
        for mut piece in pieces(&message, seed) {
            session.handle_input(Nanos(0), &mut piece, &arena);
        }
        while let Some(action) = session.poll_action() {
            match action {
                Action::FindTargets(_) => {
                    let portals = vec![("10.0.0.1:3260".to_owned(), 1); usize::from(mode)];
                    session.targets(&[Discovered { name: "iqn.b".into(), portals }]);
                }
                Action::Close(why) => {
                    heard.words.push(format!("{why:?}"));
                    return heard.words;
                }
                other => panic!("a text leads to {other:?}"),
            }
        }
        assert!(session.output_bytes() <= 128 << 10, "a text is answered piece by piece");
        // Only its own PDUs are longer than it agreed to take, and these are short.
        let batch = session.take_batch(&arena);
        heard.hear(&batch, 1 << 24);
    }
    heard.words
}
