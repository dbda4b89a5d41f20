//! The target's side of a login: from the first byte of a connection to an agreement (RFC 7143, sections 6.3, 12, 13).
//!
//! A login has two stages, security and operational, and a connection may skip the first when nobody asks for proof
//! or the second when the defaults will do. What the sides still owe each other is the [`Stage`]; nothing but a passed
//! [`Security`] leads further. Questions that the protocol cannot answer are actions: may this initiator come in
//! ([`LoginAction::Authorize`]), and under which number does its session run ([`LoginAction::Join`]). Until the driver has
//! answered, nothing more is taken from the peer.
//!
//! A refused login is answered with status class and detail, and the connection is closed. Until the initiator has shown who
//! it is, names that are unknown and secrets that are wrong have one status, AuthenticationFailed. The driver does its part: for
//! a name that it does not know it answers [`LoginAction::Authorize`] with a random secret. Memory is bounded by
//! [`TEXT_MAX`] and [`REQUESTS_MAX`]; how long a login may take is the driver's to say.

use crate::chap::{Algorithm, Challenge, Chap};
use crate::keys::{Broken, Negotiation, Parameters};
use crate::output::Output;
use crate::pdu::{Bhs, LoginRequest, LoginResponse};
use crate::receiver::{Piece, Receiver, Violation};
use crate::tasks::COMMANDS_MAX;
use crate::text;
use crate::wire::{LoginStatus, SEGMENT_DEFAULT, TEXT_MAX, flag, opcode, stage};
use forebay_base::planted::{Bug, active};
use forebay_runtime::{Arena, Buf};
use std::collections::VecDeque;

/// Login requests of one connection. The longest known exchange, mutual CHAP and two texts of operational keys, has six;
/// [`TEXT_MAX`] in pieces of 2 KiB would have 32.
const REQUESTS_MAX: usize = 64;

/// What a target is, as far as its logins need to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoginConfig {
    pub portal_group_tag: u16,
    /// What it is ready to agree on.
    pub parameters: Parameters,
    /// The weakest algorithm of CHAP that proves anything.
    pub chap_minimum: Algorithm,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To ask which targets there are.
    Discovery,
    /// To use this target.
    Normal { target: String },
}

/// Who wants to come in, and what for. Names are in lower case, as they are compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub initiator: String,
    pub purpose: Purpose,
}

/// How an initiator that may come in has to show who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Authorization {
    /// Its name is enough.
    Open,
    /// By CHAP, with this challenge, fresh from the operating system's random source.
    Chap { chap: Chap, challenge: Challenge },
}

#[derive(Debug)]
pub enum LoginAction {
    /// To be sent in this order.
    Send(Vec<Buf>),
    /// To be answered with [`Login::authorize`].
    Authorize(Request),
    /// The initiator has shown who it is; to be answered with [`Login::joined`]. A `tsih` of 0 asks for a new
    /// session, in the place of one that the same initiator may have under the same `isid` in this portal group.
    Join { isid: [u8; 6], tsih: u16 },
    /// The last action. What is left of the input belongs to the session.
    Established(Box<Established>),
    /// The last action: send what came before, then close.
    Close(Violation),
}

/// A login that succeeded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Established {
    pub request: Request,
    pub parameters: Parameters,
    pub isid: [u8; 6],
    pub tsih: u16,
    pub cid: u16,
    /// StatSN of the next response, CmdSN of the next command.
    pub stat_sn: u32,
    pub exp_cmd_sn: u32,
}

/// The connection's identity, from its first request; later ones must repeat it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Opening {
    isid: [u8; 6],
    tsih: u16,
    cid: u16,
    itt: u32,
}

enum Stage {
    /// Nothing has come yet.
    Opening,
    Security(Security),
    Operational,
    Over,
}

/// What is still to be proven.
enum Security {
    /// The method is not chosen yet.
    Method(Authorization),
    /// CHAP is; its algorithm is not.
    Algorithm(Chap, Challenge),
    /// The challenge is out.
    Challenged(Chap, Challenge, Algorithm),
    Passed,
}

/// A whole text, with the header of the request that ended it.
struct Turn {
    header: LoginRequest,
    text: Vec<u8>,
}

/// A question that the driver has not answered.
enum Asked {
    Authorize(Turn),
    Join { answers: Vec<u8>, flags: u8 },
}

/// The target's side of one connection until it is in.
pub struct Login {
    config: LoginConfig,
    arena: Arena,
    receiver: Receiver,
    output: Output,
    negotiation: Negotiation,
    actions: VecDeque<LoginAction>,
    /// The request being received, and the text collected over this and earlier ones.
    header: Bhs,
    text: Vec<u8>,
    requests: usize,
    opening: Option<Opening>,
    request: Option<Request>,
    stage: Stage,
    asked: Option<Asked>,
    told_portal_group: bool,
    unproven: Option<Unproven>,
    stat_sn: u32,
    cmd_sn: u32,
}

/// Why an initiator has not shown who it is. It is told none of this; the administrator is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unproven {
    /// It did not offer CHAP.
    Method,
    /// It offered no algorithm that is allowed.
    Algorithm,
    User,
    Secret,
    /// The target was to prove itself as well, and cannot, or the initiator sent back what it was sent.
    Mutual,
}

impl Login {
    pub fn new(config: LoginConfig, arena: &Arena) -> Login {
        Login {
            config,
            arena: arena.clone(),
            receiver: Receiver::new(false, false, SEGMENT_DEFAULT),
            output: Output::new(false, false),
            negotiation: Negotiation::target(config.parameters),
            actions: VecDeque::new(),
            header: Bhs::new(opcode::LOGIN_REQUEST),
            text: Vec::new(),
            requests: 0,
            opening: None,
            request: None,
            stage: Stage::Opening,
            asked: None,
            told_portal_group: false,
            unproven: None,
            stat_sn: 0,
            cmd_sn: 0,
        }
    }

    /// Takes what belongs to the login off `input`, up to the next action.
    pub fn handle_input(&mut self, input: &mut &[u8]) {
        while self.asked.is_none() && self.actions.is_empty() && !matches!(self.stage, Stage::Over) {
            match self.receiver.next(input) {
                Ok(None) => return,
                Ok(Some(Piece::Header(bhs))) => {
                    self.header = bhs;
                    if bhs.opcode() != opcode::LOGIN_REQUEST {
                        return self.refuse_because(
                            LoginStatus::InvalidDuringLogin,
                            Violation::NotLogin(bhs.opcode()),
                        );
                    }
                    self.requests += 1;
                    if self.requests > REQUESTS_MAX {
                        return self.close(Violation::LoginTooLong);
                    }
                    if self.text.len() + bhs.data_len() as usize > TEXT_MAX {
                        return self.close(Violation::TextTooLong);
                    }
                }
                Ok(Some(Piece::Data(bytes))) => self.text.extend_from_slice(bytes),
                Ok(Some(Piece::End { .. })) => self.handle_request(),
                Err(violation) => return self.close(violation),
            }
        }
    }

    /// Why the initiator has not shown who it is, when it was refused for that.
    pub fn unproven(&self) -> Option<Unproven> {
        self.unproven
    }

    pub fn poll_action(&mut self) -> Option<LoginAction> {
        if !self.output.is_empty() {
            return Some(LoginAction::Send(self.output.take_batch(&self.arena)));
        }
        self.actions.pop_front()
    }

    /// The driver's answer to [`LoginAction::Authorize`].
    pub fn authorize(&mut self, decision: Result<Authorization, LoginStatus>) {
        let Some(Asked::Authorize(turn)) = self.asked.take() else {
            panic!("nobody asked for an authorization")
        };
        match decision {
            Ok(authorization) => {
                self.stage = Stage::Security(Security::Method(authorization));
                self.take_turn(turn);
            }
            Err(status) => self.refuse(status),
        }
    }

    /// The driver's answer to [`LoginAction::Join`]: the session's number, which is not 0.
    pub fn joined(&mut self, decision: Result<u16, LoginStatus>) {
        let Some(Asked::Join { answers, flags }) = self.asked.take() else { panic!("nobody asked to join") };
        let tsih = match decision {
            Ok(tsih) => tsih,
            Err(status) => return self.refuse(status),
        };
        assert!(tsih != 0, "session numbers are not 0");
        let opening = self.opening.expect("a login that joins has begun");
        self.respond(flags, tsih, LoginStatus::Success, &answers);
        self.stage = Stage::Over;
        self.actions.push_back(LoginAction::Established(Box::new(Established {
            request: self.request.take().expect("a login that joins was authorized"),
            parameters: self.negotiation.agreed(),
            isid: opening.isid,
            tsih,
            cid: opening.cid,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.cmd_sn,
        })));
    }

    fn close(&mut self, violation: Violation) {
        self.stage = Stage::Over;
        self.actions.push_back(LoginAction::Close(violation));
    }

    fn refuse(&mut self, status: LoginStatus) {
        self.refuse_because(status, Violation::LoginFailed(status));
    }

    fn refuse_because(&mut self, status: LoginStatus, violation: Violation) {
        self.respond(self.header.flags() & 0x0c, 0, status, &[]);
        self.close(violation);
    }

    fn respond(&mut self, flags: u8, tsih: u16, status: LoginStatus, answers: &[u8]) {
        let header = LoginRequest::decode(&self.header);
        let response = LoginResponse {
            flags,
            isid: header.isid,
            tsih,
            itt: header.itt,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.cmd_sn,
            max_cmd_sn: self.cmd_sn.wrapping_add(COMMANDS_MAX - 1),
            status: status as u16,
            ..LoginResponse::default()
        };
        // A refusal has no StatSN of its own.
        if status == LoginStatus::Success {
            self.stat_sn = self.stat_sn.wrapping_add(1);
        }
        self.output.bytes(response.encode(), answers);
    }

    /// A request is complete, its text perhaps not.
    fn handle_request(&mut self) {
        assert!(!active(Bug::LoginPanics), "planted");
        let header = LoginRequest::decode(&self.header);
        let opening = Opening { isid: header.isid, tsih: header.tsih, cid: header.cid, itt: header.itt };
        if self.opening.is_none() {
            (self.stat_sn, self.cmd_sn) = (header.exp_stat_sn, header.cmd_sn);
            if header.version_min > 0 {
                return self.refuse(LoginStatus::UnsupportedVersion);
            }
        }
        if *self.opening.get_or_insert(opening) != opening {
            return self.refuse(LoginStatus::InitiatorError);
        }
        if header.flags & flag::CONTINUE != 0 {
            if header.flags & flag::TRANSIT != 0 {
                return self.refuse(LoginStatus::InitiatorError);
            }
            // Go on, please.
            return self.respond(header.flags & 0x0c, header.tsih, LoginStatus::Success, &[]);
        }
        let turn = Turn { header, text: std::mem::take(&mut self.text) };
        if !matches!(self.stage, Stage::Opening) {
            return self.take_turn(turn);
        }
        match opening_request(&turn.text) {
            Ok(request) => {
                self.negotiation.set_discovery(request.purpose == Purpose::Discovery);
                self.request = Some(request.clone());
                self.asked = Some(Asked::Authorize(turn));
                self.actions.push_back(LoginAction::Authorize(request));
            }
            Err(status) => self.refuse(status),
        }
    }

    /// The initiator has said what it wanted to; answers it.
    fn take_turn(&mut self, turn: Turn) {
        if let Err(status) = self.try_turn(&turn) {
            self.refuse(status);
        }
    }

    /// Whether a repeated opening key says what it said at first.
    fn is_consistent(&self, name: &str, value: &str) -> bool {
        let request = self.request.as_ref().expect("turns are taken after the first text was understood");
        match (name, &request.purpose) {
            ("InitiatorName", _) => text::name(value).as_ref() == Some(&request.initiator),
            ("TargetName", Purpose::Normal { target }) => text::name(value).as_ref() == Some(target),
            ("SessionType", purpose) => (value == "Discovery") == (*purpose == Purpose::Discovery),
            _ => true,
        }
    }

    fn try_turn(&mut self, turn: &Turn) -> Result<(), LoginStatus> {
        let flags = turn.header.flags;
        let (current, next) = (flags >> 2 & 3, flags & 3);
        let transit = flags & flag::TRANSIT != 0;
        let pairs = text::parse(&turn.text).map_err(|_| LoginStatus::InitiatorError)?;
        if pairs.iter().any(|&(name, value)| !self.is_consistent(name, value)) {
            return Err(LoginStatus::InitiatorError);
        }
        let mut answers = Vec::new();
        if !std::mem::replace(&mut self.told_portal_group, true)
            && self.request.as_ref().is_some_and(|request| request.purpose != Purpose::Discovery)
        {
            text::push(&mut answers, "TargetPortalGroupTag", self.config.portal_group_tag);
        }
        let security = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Security(security) if current == stage::SECURITY => Some(security),
            // Who needs to prove nothing may begin with the operational stage.
            Stage::Security(Security::Passed | Security::Method(Authorization::Open))
                if current == stage::OPERATIONAL =>
            {
                None
            }
            Stage::Security(Security::Method(_)) if current == stage::OPERATIONAL => {
                self.unproven = Some(Unproven::Method);
                return Err(LoginStatus::AuthenticationFailed);
            }
            Stage::Operational if current == stage::OPERATIONAL => None,
            _ => return Err(LoginStatus::InitiatorError),
        };
        let passed = match security {
            None => {
                self.stage = Stage::Operational;
                let broken = |_: Broken| LoginStatus::InitiatorError;
                self.negotiation.handle(&pairs, &mut answers).map_err(broken)?;
                self.negotiation.tell_segment(&mut answers);
                true
            }
            Some(security) => {
                let (minimum, negotiation) = (self.config.chap_minimum, &mut self.negotiation);
                let why = &mut self.unproven;
                let security = prove(security, &pairs, (transit, minimum), negotiation, &mut answers, why)?;
                let passed = matches!(security, Security::Passed);
                self.stage = Stage::Security(security);
                passed
            }
        };
        // Both stages bound what they answer; should they not, the initiator is refused and the target goes on.
        if answers.len() > SEGMENT_DEFAULT as usize {
            return Err(LoginStatus::InitiatorError);
        }
        if !(transit && passed) {
            self.respond(current << 2, turn.header.tsih, LoginStatus::Success, &answers);
            return Ok(());
        }
        let flags = flag::TRANSIT | current << 2 | next;
        match next {
            stage::OPERATIONAL if current == stage::SECURITY => {
                self.stage = Stage::Operational;
                self.respond(flags, turn.header.tsih, LoginStatus::Success, &answers);
            }
            stage::FULL_FEATURE => {
                self.asked = Some(Asked::Join { answers, flags });
                let LoginRequest { isid, tsih, .. } = turn.header;
                self.actions.push_back(LoginAction::Join { isid, tsih });
            }
            _ => return Err(LoginStatus::InitiatorError),
        }
        Ok(())
    }
}

/// Who the first text says that it is.
fn opening_request(bytes: &[u8]) -> Result<Request, LoginStatus> {
    let pairs = text::parse(bytes).map_err(|_| LoginStatus::InitiatorError)?;
    let find = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    let initiator = find("InitiatorName").ok_or(LoginStatus::MissingParameter)?;
    let initiator = text::name(initiator).ok_or(LoginStatus::InitiatorError)?;
    let purpose = match find("SessionType") {
        Some("Discovery") => Purpose::Discovery,
        Some("Normal") | None => {
            let target = find("TargetName").ok_or(LoginStatus::MissingParameter)?;
            Purpose::Normal { target: text::name(target).ok_or(LoginStatus::AuthenticationFailed)? }
        }
        Some(_) => return Err(LoginStatus::SessionTypeNotSupported),
    };
    Ok(Request { initiator, purpose })
}

/// The next step of the security stage.
fn prove(
    mut security: Security,
    pairs: &[(&str, &str)],
    (transit, minimum): (bool, Algorithm),
    negotiation: &mut Negotiation,
    answers: &mut Vec<u8>,
    why: &mut Option<Unproven>,
) -> Result<Security, LoginStatus> {
    let find = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    let failed = LoginStatus::AuthenticationFailed;
    for &(name, _) in pairs {
        let known = name == "AuthMethod" || name == "InitiatorAlias" || name.starts_with("CHAP_");
        if known || Negotiation::is_opening(name) {
            continue;
        }
        if Negotiation::is_known(name) {
            // An operational key, before its stage.
            return Err(LoginStatus::InitiatorError);
        }
        negotiation.not_understood(name, answers).map_err(|_| LoginStatus::InitiatorError)?;
    }
    if let Security::Method(authorization) = security {
        let offered = find("AuthMethod");
        let offers = |method: &str| offered.is_some_and(|list| list.split(',').any(|offer| offer == method));
        security = match authorization {
            Authorization::Open if offered.is_none() => Security::Passed,
            Authorization::Open if offers("None") => {
                text::push(answers, "AuthMethod", "None");
                Security::Passed
            }
            Authorization::Chap { chap, challenge } if offers("CHAP") => {
                text::push(answers, "AuthMethod", "CHAP");
                Security::Algorithm(chap, challenge)
            }
            Authorization::Chap { .. } if offered.is_none() && !transit => Security::Method(authorization),
            _ => {
                *why = Some(Unproven::Method);
                return Err(failed);
            }
        };
    }
    if let Security::Algorithm(chap, challenge) = security {
        security = match find("CHAP_A") {
            None => Security::Algorithm(chap, challenge),
            Some(list) => {
                let Some(algorithm) = Algorithm::choose(list, minimum) else {
                    *why = Some(Unproven::Algorithm);
                    return Err(failed);
                };
                text::push(answers, "CHAP_A", algorithm as u8);
                text::push(answers, "CHAP_I", challenge.id);
                text::push(answers, "CHAP_C", text::hexadecimal(&challenge.bytes));
                // The answer to a challenge cannot come with the request for it.
                return Ok(Security::Challenged(chap, challenge, algorithm));
            }
        };
    }
    if let Security::Challenged(chap, challenge, algorithm) = security {
        security = match (find("CHAP_N"), find("CHAP_R")) {
            (None, None) => Security::Challenged(chap, challenge, algorithm),
            (Some(user), Some(answer)) => {
                let answer = text::binary(answer).ok_or(failed)?;
                let proven =
                    algorithm.proves(&answer, challenge.id, &chap.initiator.secret, &challenge.bytes);
                if !proven || user != chap.initiator.user {
                    *why = Some(if proven { Unproven::User } else { Unproven::Secret });
                    return Err(failed);
                }
                if let Some(theirs) = find("CHAP_C") {
                    *why = Some(Unproven::Mutual);
                    let id = find("CHAP_I")
                        .and_then(text::number)
                        .and_then(|id| u8::try_from(id).ok())
                        .ok_or(failed)?;
                    let theirs = text::binary(theirs).ok_or(failed)?;
                    let target = chap.target.as_ref().ok_or(failed)?;
                    // Reflection: our own challenge sent back, or one secret both ways.
                    if theirs == challenge.bytes || target.secret == chap.initiator.secret {
                        return Err(failed);
                    }
                    text::push(answers, "CHAP_N", &target.user);
                    text::push(
                        answers,
                        "CHAP_R",
                        text::hexadecimal(&algorithm.answer(id, &target.secret, &theirs)),
                    );
                    *why = None;
                }
                Security::Passed
            }
            _ => return Err(failed),
        };
    }
    Ok(security)
}
