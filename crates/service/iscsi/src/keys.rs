//! The keys that two sides settle before they work together (RFC 7143, section 13; RFC 7144, section 7).
//!
//! A key is a row of [`TABLE`]: its kind of value with its bounds, how two values become one, when it may be
//! sent, and whether discovery sessions have it. [`Negotiation`] is either side: it answers what was offered, takes
//! answers to what it offered itself, and collects the result as [`Parameters`]. What a peer may get wrong here is
//! answered with `Reject`, `Irrelevant` or `NotUnderstood` as section 6.2 says, or, where nothing can be
//! answered (a key twice, an answer that is no answer), ends the login.

use crate::pdu::SEGMENT_MAX;
use crate::text::{boolean, number, push, yes_or_no};
use crate::wire::SEGMENT_DEFAULT;

/// What was agreed on, or what one side is ready to agree on. Lengths are bytes, times seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    pub header_digest: bool,
    pub data_digest: bool,
    /// Every byte written is asked for by R2T, those in the command's own PDU excepted.
    pub initial_r2t: bool,
    /// A command's own PDU may carry data.
    pub immediate_data: bool,
    /// Longest data segment that this side takes.
    pub segment_max_own: u32,
    /// Longest data segment that the peer takes.
    pub segment_max_peer: u32,
    /// Longest sequence of Data-In, or of Data-Out for one R2T.
    pub burst_max: u32,
    /// Most bytes that a command sends unasked, immediate data included.
    pub first_burst_max: u32,
    /// R2Ts of one command that are unanswered at a time.
    pub r2t_outstanding_max: u32,
    pub time2wait: u32,
    pub time2retain: u32,
    /// How aborted tasks are told of.
    pub task_reporting: TaskReporting,
    /// 1: RFC 7143; 2: RFC 7144.
    pub protocol_level: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskReporting {
    Rfc3720,
    ResponseFence,
    FastAbort,
}

impl Parameters {
    /// What holds where nothing was said.
    pub const DEFAULTS: Parameters = Parameters {
        header_digest: false,
        data_digest: false,
        initial_r2t: true,
        immediate_data: true,
        segment_max_own: SEGMENT_DEFAULT,
        segment_max_peer: SEGMENT_DEFAULT,
        burst_max: 262_144,
        first_burst_max: 65_536,
        r2t_outstanding_max: 1,
        time2wait: 2,
        time2retain: 20,
        task_reporting: TaskReporting::Rfc3720,
        protocol_level: 1,
    };

    /// What this implementation prefers, as a target: digests if the initiator wants them; data unasked, within limits;
    /// [`crate::PART`] per PDU. No state outlives a connection, so there is nothing to retain.
    pub const TARGET: Parameters = Parameters {
        header_digest: true,
        data_digest: true,
        initial_r2t: false,
        immediate_data: true,
        segment_max_own: 256 << 10,
        segment_max_peer: SEGMENT_DEFAULT,
        burst_max: 1 << 20,
        first_burst_max: 256 << 10,
        r2t_outstanding_max: 8,
        time2wait: 2,
        time2retain: 0,
        task_reporting: TaskReporting::Rfc3720,
        protocol_level: 2,
    };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// The first of the offered values that the answering side has.
    Digest,
    /// Yes when either side says Yes; when both do.
    Or,
    And,
    /// The smaller, the larger number; with the range of valid ones.
    Smaller(u32, u32),
    Larger(u32, u32),
    /// A number that is told, not negotiated.
    ToldNumber(u32, u32),
    /// Text that is told.
    Told,
    /// The first of the offered list.
    Reporting,
    /// Was negotiable once; to be answered with this value (13.25).
    Obsolete(&'static str),
}

/// When a key may come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// With the first text of a login; some initiators repeat them. Not negotiated.
    Opening,
    Login,
    Any,
}

struct Key {
    name: &'static str,
    rule: Rule,
    phase: Phase,
    /// Means nothing in a discovery session.
    normal_only: bool,
    /// Sent by targets only.
    by_target: bool,
}

const fn key(name: &'static str, rule: Rule, phase: Phase, normal_only: bool) -> Key {
    Key { name, rule, phase, normal_only, by_target: false }
}

const fn told_by_target(name: &'static str) -> Key {
    Key { name, rule: Rule::Told, phase: Phase::Any, normal_only: false, by_target: true }
}

/// MaxBurstLength stands before FirstBurstLength, which it bounds, and the two that can make that irrelevant too: offers
/// are answered in this order.
const TABLE: &[Key] = &[
    key("InitiatorName", Rule::Told, Phase::Opening, false),
    key("SessionType", Rule::Told, Phase::Opening, false),
    key("TargetName", Rule::Told, Phase::Opening, false),
    key("InitiatorAlias", Rule::Told, Phase::Any, false),
    told_by_target("TargetAlias"),
    told_by_target("TargetAddress"),
    told_by_target("TargetPortalGroupTag"),
    key("HeaderDigest", Rule::Digest, Phase::Login, false),
    key("DataDigest", Rule::Digest, Phase::Login, false),
    key("MaxConnections", Rule::Smaller(1, 65_535), Phase::Login, true),
    key("InitialR2T", Rule::Or, Phase::Login, true),
    key("ImmediateData", Rule::And, Phase::Login, true),
    key("MaxRecvDataSegmentLength", Rule::ToldNumber(512, SEGMENT_MAX), Phase::Any, false),
    key("MaxBurstLength", Rule::Smaller(512, SEGMENT_MAX), Phase::Login, true),
    key("FirstBurstLength", Rule::Smaller(512, SEGMENT_MAX), Phase::Login, true),
    key("DefaultTime2Wait", Rule::Larger(0, 3600), Phase::Login, false),
    key("DefaultTime2Retain", Rule::Smaller(0, 3600), Phase::Login, false),
    key("MaxOutstandingR2T", Rule::Smaller(1, 65_535), Phase::Login, true),
    key("DataPDUInOrder", Rule::Or, Phase::Login, true),
    key("DataSequenceInOrder", Rule::Or, Phase::Login, true),
    key("ErrorRecoveryLevel", Rule::Smaller(0, 2), Phase::Login, false),
    key("TaskReporting", Rule::Reporting, Phase::Login, true),
    key("iSCSIProtocolLevel", Rule::Smaller(0, 31), Phase::Login, false),
    key("IFMarker", Rule::Obsolete("No"), Phase::Login, false),
    key("OFMarker", Rule::Obsolete("No"), Phase::Login, false),
    key("IFMarkInt", Rule::Obsolete("Reject"), Phase::Login, false),
    key("OFMarkInt", Rule::Obsolete("Reject"), Phase::Login, false),
];

/// Keys that this implementation has never heard of and answers in one negotiation, all stages of a login together; more is
/// no negotiation. With these all answers together fit into the smallest data segment: 32 × 78 + 27 × 60 bytes.
const UNKNOWN_MAX: usize = 32;

/// Why a negotiation cannot go on: always the peer's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// The same key was offered or answered twice.
    Repeated,
    /// A key that only the other side sends.
    Misplaced,
    /// A value that this key cannot have where no answer is possible.
    Value,
    TooMany,
}

/// One side of a negotiation.
#[derive(Clone, Debug)]
pub struct Negotiation {
    own: Parameters,
    agreed: Parameters,
    is_target: bool,
    discovery: bool,
    /// One bit per row of [`TABLE`]: what was offered by this side and not answered yet; what is settled.
    offered: u32,
    settled: u32,
    unknown: usize,
    told_segment: bool,
    heard_segment: bool,
}

const _: () = assert!(TABLE.len() <= 32);

impl Negotiation {
    /// The target's side, ready to agree on `own`.
    pub fn target(own: Parameters) -> Negotiation {
        Negotiation::new(own, true)
    }

    /// The initiator's side, which wants `own`.
    pub fn initiator(own: Parameters) -> Negotiation {
        Negotiation::new(own, false)
    }

    fn new(own: Parameters, is_target: bool) -> Negotiation {
        Negotiation {
            own,
            agreed: Parameters::DEFAULTS,
            is_target,
            discovery: false,
            offered: 0,
            settled: 0,
            unknown: 0,
            told_segment: false,
            heard_segment: false,
        }
    }

    pub fn set_discovery(&mut self, discovery: bool) {
        self.discovery = discovery;
    }

    /// What holds now.
    pub fn agreed(&self) -> Parameters {
        self.agreed
    }

    /// How long a data segment the peer takes, if it has said so.
    pub fn told_segment_max(&self) -> Option<u32> {
        self.heard_segment.then_some(self.agreed.segment_max_peer)
    }

    /// Whether `name` is told in the first text of a login and means nothing to the negotiation.
    pub fn is_opening(name: &str) -> bool {
        TABLE.iter().any(|key| key.name == name && key.phase == Phase::Opening)
    }

    /// Whether `name` is a key that operational negotiation knows.
    pub fn is_known(name: &str) -> bool {
        TABLE.iter().any(|key| key.name == name)
    }

    /// Answers a key that this implementation has never heard of, in whichever stage it comes.
    pub fn not_understood(&mut self, name: &str, answers: &mut Vec<u8>) -> Result<(), Broken> {
        if self.unknown == UNKNOWN_MAX {
            return Err(Broken::TooMany);
        }
        self.unknown += 1;
        push(answers, name, "NotUnderstood");
        Ok(())
    }

    /// Declares how long a data segment this side takes, once.
    pub fn tell_segment(&mut self, text: &mut Vec<u8>) {
        if !self.told_segment {
            self.told_segment = true;
            self.agreed.segment_max_own = self.own.segment_max_own;
            push(text, "MaxRecvDataSegmentLength", self.own.segment_max_own);
        }
    }

    /// Offers everything that this side wants: what an initiator does.
    pub fn offer(&mut self, text: &mut Vec<u8>) {
        for (index, key) in TABLE.iter().enumerate() {
            if self.discovery && key.normal_only {
                continue;
            }
            let value = match key.rule {
                Rule::Digest => self.wanted_digest(key.name).to_owned(),
                Rule::Or | Rule::And => yes_or_no(self.own_boolean(key.name)).to_owned(),
                Rule::Smaller(..) | Rule::Larger(..) => self.own_number(key.name).to_string(),
                Rule::Reporting => "RFC3720".to_owned(),
                Rule::Told | Rule::ToldNumber(..) | Rule::Obsolete(_) => continue,
            };
            push(text, key.name, value);
            self.offered |= 1 << index;
        }
        self.tell_segment(text);
    }

    /// Takes what the peer sent in a login, answering in `answers` what wants an answer. The opening keys are the
    /// caller's to look at.
    pub fn handle(&mut self, pairs: &[(&str, &str)], answers: &mut Vec<u8>) -> Result<(), Broken> {
        for &(name, _) in pairs.iter().filter(|(name, _)| !Negotiation::is_known(name)) {
            self.not_understood(name, answers)?;
        }
        for (index, key) in TABLE.iter().enumerate() {
            let mut values = pairs.iter().filter(|(name, _)| *name == key.name).map(|(_, value)| *value);
            let Some(value) = values.next() else { continue };
            if values.next().is_some() || self.settled & 1 << index != 0 {
                return Err(Broken::Repeated);
            }
            if key.phase == Phase::Opening {
                continue;
            }
            if key.by_target && self.is_target {
                return Err(Broken::Misplaced);
            }
            self.settled |= 1 << index;
            let answering = self.offered & 1 << index != 0;
            self.offered &= !(1 << index);
            if answering {
                self.take_answer(key, value)?;
            } else if let Some(answer) = self.answer(key, value) {
                push(answers, key.name, answer);
            }
        }
        Ok(())
    }

    /// Takes what the peer sent outside a login, where only declarations are left to make.
    pub fn handle_later(&mut self, pairs: &[(&str, &str)], answers: &mut Vec<u8>) -> Result<(), Broken> {
        if pairs.len() > UNKNOWN_MAX {
            return Err(Broken::TooMany);
        }
        for &(name, value) in pairs {
            match TABLE.iter().find(|key| key.name == name) {
                None => push(answers, name, "NotUnderstood"),
                Some(key) if key.phase != Phase::Any || key.by_target && self.is_target => {
                    push(answers, name, "Reject")
                }
                Some(key) => {
                    if let Some(answer) = self.answer(key, value) {
                        push(answers, name, answer);
                    }
                }
            }
        }
        Ok(())
    }

    /// The answer to an offer, if it gets one.
    fn answer(&mut self, key: &Key, value: &str) -> Option<String> {
        let reject = || Some("Reject".to_owned());
        if self.discovery && key.normal_only {
            return Some("Irrelevant".to_owned());
        }
        match key.rule {
            Rule::Told => None,
            Rule::Obsolete(answer) => Some(answer.to_owned()),
            Rule::ToldNumber(least, most) => match number(value).filter(|n| (least..=most).contains(n)) {
                Some(told) => {
                    self.agreed.segment_max_peer = told;
                    self.heard_segment = true;
                    None
                }
                None => reject(),
            },
            Rule::Digest => {
                let has = |digest: &str| digest == "None" || digest == "CRC32C" && self.own_digest(key.name);
                let Some(chosen) = value.split(',').find(|digest| has(digest)) else { return reject() };
                self.set_digest(key.name, chosen == "CRC32C");
                Some(chosen.to_owned())
            }
            Rule::Or | Rule::And => {
                let Some(theirs) = boolean(value) else { return reject() };
                let ours = self.own_boolean(key.name);
                let result = if key.rule == Rule::Or { ours || theirs } else { ours && theirs };
                self.set_boolean(key.name, result);
                Some(yes_or_no(result).to_owned())
            }
            Rule::Smaller(least, most) | Rule::Larger(least, most) => {
                let Some(theirs) = number(value).filter(|n| (least..=most).contains(n)) else {
                    return reject();
                };
                if key.name == "FirstBurstLength" && self.agreed.initial_r2t && !self.agreed.immediate_data {
                    return Some("Irrelevant".to_owned());
                }
                let mut ours = self.own_number(key.name);
                if key.name == "FirstBurstLength" {
                    ours = ours.min(self.agreed.burst_max);
                }
                let larger = matches!(key.rule, Rule::Larger(..));
                let result = if larger { ours.max(theirs) } else { ours.min(theirs) };
                self.set_number(key.name, result);
                Some(result.to_string())
            }
            Rule::Reporting => match value.split(',').any(|kind| kind == "RFC3720") {
                // The others promise more about the order of responses than one connection needs to keep.
                true => Some("RFC3720".to_owned()),
                false => reject(),
            },
        }
    }

    /// The peer's answer to what this side offered.
    fn take_answer(&mut self, key: &Key, value: &str) -> Result<(), Broken> {
        if ["Reject", "Irrelevant", "NotUnderstood"].contains(&value) {
            return Ok(());
        }
        match key.rule {
            Rule::Digest => {
                let offered = self.wanted_digest(key.name);
                if !offered.split(',').any(|digest| digest == value) {
                    return Err(Broken::Value);
                }
                self.set_digest(key.name, value == "CRC32C");
            }
            Rule::Or | Rule::And => {
                let (theirs, ours) = (boolean(value).ok_or(Broken::Value)?, self.own_boolean(key.name));
                // What the result function cannot give is no answer.
                if theirs != ours && ours == (key.rule == Rule::Or) {
                    return Err(Broken::Value);
                }
                self.set_boolean(key.name, theirs);
            }
            Rule::Smaller(least, most) | Rule::Larger(least, most) => {
                let theirs = number(value).filter(|n| (least..=most).contains(n)).ok_or(Broken::Value)?;
                let (ours, larger) = (self.own_number(key.name), matches!(key.rule, Rule::Larger(..)));
                if larger && theirs < ours || !larger && theirs > ours {
                    return Err(Broken::Value);
                }
                self.set_number(key.name, theirs);
            }
            Rule::Reporting if value != "RFC3720" => return Err(Broken::Value),
            Rule::Reporting | Rule::Told | Rule::ToldNumber(..) | Rule::Obsolete(_) => {}
        }
        Ok(())
    }

    fn own_digest(&self, name: &str) -> bool {
        if name == "HeaderDigest" { self.own.header_digest } else { self.own.data_digest }
    }
    fn wanted_digest(&self, name: &str) -> &'static str {
        if self.own_digest(name) { "CRC32C,None" } else { "None" }
    }
    fn set_digest(&mut self, name: &str, on: bool) {
        match name {
            "HeaderDigest" => self.agreed.header_digest = on,
            _ => self.agreed.data_digest = on,
        }
    }

    fn own_boolean(&self, name: &str) -> bool {
        match name {
            "InitialR2T" => self.own.initial_r2t,
            "ImmediateData" => self.own.immediate_data,
            // DataPDUInOrder, DataSequenceInOrder: data come in order, so that they are put down where the last ended.
            _ => true,
        }
    }
    fn set_boolean(&mut self, name: &str, value: bool) {
        match name {
            "InitialR2T" => self.agreed.initial_r2t = value,
            "ImmediateData" => self.agreed.immediate_data = value,
            _ => assert!(value, "what either side can make Yes, and this side does, is Yes"),
        }
    }

    fn own_number(&self, name: &str) -> u32 {
        match name {
            "MaxBurstLength" => self.own.burst_max,
            "FirstBurstLength" => self.own.first_burst_max,
            "DefaultTime2Wait" => self.own.time2wait,
            "DefaultTime2Retain" => self.own.time2retain,
            "MaxOutstandingR2T" => self.own.r2t_outstanding_max,
            "iSCSIProtocolLevel" => self.own.protocol_level,
            "MaxConnections" => 1,
            _ => 0, // ErrorRecoveryLevel
        }
    }
    fn set_number(&mut self, name: &str, value: u32) {
        match name {
            "MaxBurstLength" => self.agreed.burst_max = value,
            "FirstBurstLength" => self.agreed.first_burst_max = value,
            "DefaultTime2Wait" => self.agreed.time2wait = value,
            "DefaultTime2Retain" => self.agreed.time2retain = value,
            "MaxOutstandingR2T" => self.agreed.r2t_outstanding_max = value,
            "iSCSIProtocolLevel" => self.agreed.protocol_level = value,
            // MaxConnections and ErrorRecoveryLevel: the smallest there is.
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
