//! An initiator's login: one exchange after the other, until the target lets it in or says why not.

use crate::chap::{Algorithm, Challenge, Credentials};
use crate::keys::{Negotiation, Parameters};
use crate::login::Purpose;
use crate::output::Output;
use crate::pdu::{LoginRequest, LoginResponse};
use crate::receiver::{Piece, Receiver, Violation};
use crate::text;
use crate::wire::{SEGMENT_DEFAULT, TEXT_MAX, flag, opcode, stage};
use forebay_runtime::{Arena, Buf};
use std::fmt;

/// Answers that a login takes before it is given up: twice what the longest exchange needs.
const ANSWERS_MAX: usize = 12;

/// What an initiator wants of a target.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub initiator: String,
    pub purpose: Purpose,
    /// What it is ready to agree on.
    pub parameters: Parameters,
    pub isid: [u8; 6],
    /// 0 for a new session.
    pub tsih: u16,
    /// How it proves itself; `None`: it does not.
    pub credentials: Option<Credentials>,
    /// The algorithms it offers, as CHAP_A lists them: `7,5`.
    pub algorithms: &'static str,
    /// How the target has to prove itself, and the challenge for it.
    pub target: Option<(Credentials, Challenge)>,
}

/// A connection that is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connected {
    pub parameters: Parameters,
    pub tsih: u16,
    pub portal_group_tag: Option<u16>,
    pub cmd_sn: u32,
    pub max_cmd_sn: u32,
    pub exp_stat_sn: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginError {
    /// The target's answer: status class and detail.
    Refused(u16),
    Violation(Violation),
    /// What the target sent is not what the stage asks for.
    Nonsense(&'static str),
    /// The target could not prove itself.
    TargetUnproven,
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoginError::Refused(status) => {
                write!(f, "the target refused the login with status {status:#06x}")
            }
            LoginError::Violation(violation) => write!(f, "the target broke the protocol: {violation}"),
            LoginError::Nonsense(what) => write!(f, "the target sent {what}"),
            LoginError::TargetUnproven => f.write_str("the target could not prove that it knows its secret"),
        }
    }
}

impl From<Violation> for LoginError {
    fn from(violation: Violation) -> LoginError {
        LoginError::Violation(violation)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// AuthMethod is out.
    Method,
    Algorithm,
    /// The answer to the challenge is out.
    Answered(Algorithm),
    Operational,
}

pub struct Login {
    wanted: Wanted,
    receiver: Receiver,
    output: Output,
    negotiation: Negotiation,
    step: Step,
    text: Vec<u8>,
    header: LoginResponse,
    answers: usize,
    exp_stat_sn: u32,
    portal_group_tag: Option<u16>,
}

const CMD_SN: u32 = 1;

impl Login {
    /// A login whose first request waits in [`Login::take_batch`].
    pub fn new(wanted: Wanted) -> Login {
        let mut negotiation = Negotiation::initiator(wanted.parameters);
        negotiation.set_discovery(wanted.purpose == Purpose::Discovery);
        let mut login = Login {
            wanted,
            receiver: Receiver::new(false, false, SEGMENT_DEFAULT),
            output: Output::new(false, false),
            negotiation,
            step: Step::Method,
            text: Vec::new(),
            header: LoginResponse::default(),
            answers: 0,
            exp_stat_sn: 0,
            portal_group_tag: None,
        };
        let mut text = Vec::new();
        text::push(&mut text, "InitiatorName", &login.wanted.initiator);
        match &login.wanted.purpose {
            Purpose::Discovery => text::push(&mut text, "SessionType", "Discovery"),
            Purpose::Normal { target } => {
                text::push(&mut text, "SessionType", "Normal");
                text::push(&mut text, "TargetName", target);
            }
        }
        let proves = login.wanted.credentials.is_some();
        text::push(&mut text, "AuthMethod", if proves { "CHAP,None" } else { "None" });
        let flags = if proves { 0 } else { flag::TRANSIT | stage::OPERATIONAL };
        login.request(flags, &text);
        login
    }

    pub fn take_batch(&mut self, arena: &Arena) -> Vec<Buf> {
        self.output.take_batch(arena)
    }
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    fn request(&mut self, flags: u8, text: &[u8]) {
        let request = LoginRequest {
            flags,
            isid: self.wanted.isid,
            tsih: self.wanted.tsih,
            itt: 1,
            cmd_sn: CMD_SN,
            exp_stat_sn: self.exp_stat_sn,
            ..LoginRequest::default()
        };
        self.output.bytes(request.encode().immediate(), text);
    }

    /// Takes the target's answers off `input`; the connection when it is in.
    pub fn handle_input(&mut self, input: &mut &[u8]) -> Result<Option<Connected>, LoginError> {
        while let Some(piece) = self.receiver.next(input)? {
            match piece {
                Piece::Header(bhs) if bhs.opcode() != opcode::LOGIN_RESPONSE => {
                    return Err(Violation::Unexpected(bhs.opcode()).into());
                }
                Piece::Header(bhs) => {
                    self.header = LoginResponse::decode(&bhs);
                    if self.text.len() + bhs.data_len() as usize > TEXT_MAX {
                        return Err(Violation::TextTooLong.into());
                    }
                }
                Piece::Data(bytes) => self.text.extend_from_slice(bytes),
                Piece::End { .. } => {
                    if let Some(connected) = self.answer()? {
                        return Ok(Some(connected));
                    }
                }
            }
        }
        Ok(None)
    }

    fn answer(&mut self) -> Result<Option<Connected>, LoginError> {
        let header = self.header;
        if header.status != 0 {
            return Err(LoginError::Refused(header.status));
        }
        self.answers += 1;
        if self.answers > ANSWERS_MAX {
            return Err(LoginError::Nonsense("too many answers"));
        }
        self.exp_stat_sn = header.stat_sn.wrapping_add(1);
        if header.flags & flag::CONTINUE != 0 {
            self.request(header.flags & 0x0c, &[]);
            return Ok(None);
        }
        let text = std::mem::take(&mut self.text);
        let pairs = text::parse(&text).map_err(|_| LoginError::Nonsense("invalid text"))?;
        let find = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        if let Some(tag) = find("TargetPortalGroupTag").and_then(text::number) {
            self.portal_group_tag = u16::try_from(tag).ok();
        }
        let transits = header.flags & flag::TRANSIT != 0;
        let mut reply = Vec::new();
        match self.step {
            // It was to prove itself, and does not mean to.
            Step::Method if find("AuthMethod") != Some("CHAP") && self.wanted.target.is_some() => {
                return Err(LoginError::TargetUnproven);
            }
            Step::Method if transits => self.begin_operational(),
            Step::Method if find("AuthMethod") == Some("CHAP") => {
                if self.wanted.credentials.is_none() {
                    return Err(LoginError::Nonsense("a choice that was not offered"));
                }
                text::push(&mut reply, "CHAP_A", self.wanted.algorithms);
                self.step = Step::Algorithm;
                self.request(0, &reply);
            }
            // It wants no proof.
            Step::Method => self.request(flag::TRANSIT | stage::OPERATIONAL, &[]),
            Step::Algorithm => {
                let nonsense = LoginError::Nonsense("no challenge");
                let algorithm = find("CHAP_A")
                    .and_then(|list| Algorithm::choose(list, Algorithm::Md5))
                    .ok_or(nonsense)?;
                let id = find("CHAP_I")
                    .and_then(text::number)
                    .and_then(|id| u8::try_from(id).ok())
                    .ok_or(nonsense)?;
                let challenge = find("CHAP_C").and_then(text::binary).ok_or(nonsense)?;
                let own = self.wanted.credentials.as_ref().expect("CHAP was offered with credentials");
                text::push(&mut reply, "CHAP_N", &own.user);
                let answer = algorithm.answer(id, &own.secret, &challenge);
                text::push(&mut reply, "CHAP_R", text::hexadecimal(&answer));
                if let Some((_, challenge)) = &self.wanted.target {
                    text::push(&mut reply, "CHAP_I", challenge.id);
                    text::push(&mut reply, "CHAP_C", text::hexadecimal(&challenge.bytes));
                }
                self.step = Step::Answered(algorithm);
                self.request(flag::TRANSIT | stage::OPERATIONAL, &reply);
            }
            Step::Answered(algorithm) => {
                if let Some((theirs, challenge)) = &self.wanted.target {
                    let answer = find("CHAP_R").and_then(text::binary).ok_or(LoginError::TargetUnproven)?;
                    let proven = algorithm.proves(&answer, challenge.id, &theirs.secret, &challenge.bytes);
                    if !proven || find("CHAP_N") != Some(theirs.user.as_str()) {
                        return Err(LoginError::TargetUnproven);
                    }
                }
                if !transits {
                    return Err(LoginError::Nonsense("no end of the security stage"));
                }
                self.begin_operational();
            }
            Step::Operational => {
                self.negotiation
                    .handle(&pairs, &mut reply)
                    .map_err(|_| LoginError::Nonsense("invalid answers"))?;
                if transits {
                    return Ok(Some(Connected {
                        parameters: self.negotiation.agreed(),
                        tsih: header.tsih,
                        portal_group_tag: self.portal_group_tag,
                        cmd_sn: CMD_SN,
                        max_cmd_sn: header.max_cmd_sn,
                        exp_stat_sn: self.exp_stat_sn,
                    }));
                }
                let flags = flag::TRANSIT | stage::OPERATIONAL << 2 | stage::FULL_FEATURE;
                self.request(flags, &reply);
            }
        }
        Ok(None)
    }

    fn begin_operational(&mut self) {
        self.step = Step::Operational;
        let mut text = Vec::new();
        self.negotiation.offer(&mut text);
        self.request(flag::TRANSIT | stage::OPERATIONAL << 2 | stage::FULL_FEATURE, &text);
    }
}
