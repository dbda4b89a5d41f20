//! The login of one initiator, from its connection to an agreement or its end. Runs on core 0.
//!
//! Reads only when the protocol needs bytes, so a client can make the server keep no more than one receive buffer
//! beyond what the protocol keeps. The time limit is the caller's.
//!
//! **Nothing is told to strangers.** Until an initiator has shown who it is, names that are not known, targets that it does not see and
//! secrets that are wrong look the same from outside: a name that is not let in is asked for a random secret, and all are refused
//! with one status. The administrator reads the cause in the event. Only an initiator that has proven its secret is told that there is no such
//! target. How fast names and secrets can be tried is bounded by [`Guesses`].

use super::access::{Access, Proof};
use super::guesses::{Claim, FREE, Guesses};
use super::registry::{Listed, Newcomer, Registry};
use crate::admission::Place;
use crate::contained::Contained;
use forebay_base::panics::Panicked;
use forebay_iscsi::{
    Algorithm, Authorization, CHALLENGE_LEN, Challenge, Chap, Credentials, Established, Login, LoginAction,
    LoginConfig, LoginStatus, Parameters, Purpose, Request, Secret, Unproven, Violation,
};
use forebay_pool::Severity;
use forebay_runtime::{Cores, NetError, Rt, Stream};
use forebay_scsi::InitiatorPort;
use std::cell::RefCell;
use std::sync::Arc;

/// Received at a time: a login's text is small.
const RECEIVED: usize = 4096;

/// An initiator that is in.
pub struct Greeted {
    pub stream: Stream,
    pub established: Box<Established>,
    /// What it sent behind its last login request.
    pub leftover: Vec<u8>,
    pub listed: Listed,
}

/// Why there is no agreement.
pub enum Parted {
    ByClient,
    /// With the initiator's name, if it has told it, and what the initiator was not told.
    Refused {
        violation: Violation,
        initiator: Option<String>,
        cause: Option<String>,
    },
    Panicked(Panicked, Option<String>),
}

impl From<NetError> for Parted {
    fn from(_: NetError) -> Parted {
        Parted::ByClient
    }
}

/// What a login needs to know.
pub struct Door<'a> {
    /// The newcomer's, which stays from when it has proven itself.
    pub place: &'a RefCell<Place>,
    pub access: &'a dyn Access,
    pub registry: &'a Arc<Registry>,
    pub cores: &'a Cores,
    pub portal_group: u16,
    pub chap_minimum: Algorithm,
}

pub async fn greet(rt: &Rt, door: Door<'_>, stream: Stream) -> Result<Greeted, Parted> {
    let config = LoginConfig {
        portal_group_tag: door.portal_group,
        parameters: Parameters::TARGET,
        chap_minimum: door.chap_minimum,
    };
    let mut login = Contained::new(Login::new(config, rt.arena()));
    let mut newcomer: Option<Claimant> = None;
    let mut listed = None;
    loop {
        let (buffer, count) = stream.recv(rt.buffer(RECEIVED)).await;
        let count = count?;
        if count == 0 {
            return Err(Parted::ByClient);
        }
        let mut input = &buffer[..count];
        loop {
            let mut actions = take_actions(&mut login);
            if actions.is_empty() {
                login.call(|login| login.handle_input(&mut input));
                actions = take_actions(&mut login);
            }
            if let Some(panicked) = login.panicked() {
                let initiator = newcomer.map(|newcomer| newcomer.request.initiator);
                return Err(Parted::Panicked(panicked.clone(), initiator));
            }
            if actions.is_empty() {
                break;
            }
            // Once for each login: before it is let in or refused, and before anybody learns which.
            if let Some(newcomer) = newcomer.as_ref().filter(|_| actions.iter().any(is_verdict)) {
                newcomer.wait(rt).await;
                if actions.iter().any(is_refusal) {
                    newcomer.count_refusal(rt, &door, &stream.peer());
                }
            }
            for action in actions {
                match action {
                    LoginAction::Send(parts) => {
                        door.place.borrow_mut().progress();
                        stream.send(parts).await?;
                    }
                    LoginAction::Authorize(request) => {
                        let claim = Claim::new(&request.initiator, &stream.peer());
                        let (authorization, cause) = decide(rt, door.access, &request);
                        newcomer = Some(Claimant { request, claim, cause });
                        login.call(|login| login.authorize(Ok(authorization)));
                    }
                    LoginAction::Join { isid, tsih } => {
                        let newcomer = newcomer.as_ref().expect("an initiator that joins was authorized");
                        rt.local::<Guesses>().proven(rt.now(), &newcomer.claim);
                        // Should it have been displaced just now, that ends it.
                        door.place.borrow_mut().settle();
                        let joined = join(rt, &door, &stream, &newcomer.request, isid, tsih).await;
                        login.call(|login| {
                            login.joined(joined.as_ref().map(Listed::tsih).map_err(|&status| status))
                        });
                        listed = joined.ok();
                    }
                    LoginAction::Established(established) => {
                        let listed = listed.expect("an initiator that is in has joined");
                        return Ok(Greeted { stream, established, leftover: input.to_vec(), listed });
                    }
                    LoginAction::Close(violation) => {
                        let unproven = login.call(|login| login.unproven());
                        let known = newcomer.as_mut().and_then(|newcomer| newcomer.cause.take());
                        let cause = known
                            .or_else(|| unproven.filter(|_| violation == UNPROVEN).map(wrong_answer))
                            .or_else(|| unseen(&violation, newcomer.as_ref()?));
                        let initiator = newcomer.map(|newcomer| newcomer.request.initiator);
                        return Err(Parted::Refused { violation, initiator, cause });
                    }
                }
            }
        }
    }
}

/// What an unproven initiator is told.
const UNPROVEN: Violation = Violation::LoginFailed(LoginStatus::AuthenticationFailed);

/// For the administrator: which part of its proof was wrong.
fn wrong_answer(unproven: Unproven) -> String {
    let what = match unproven {
        Unproven::Method => "it did not offer CHAP, and its host has a CHAP secret",
        Unproven::Algorithm => "it offered CHAP without an algorithm that is allowed",
        Unproven::User => "its CHAP secret is right, but its CHAP user name is wrong",
        Unproven::Secret => "its CHAP secret is wrong",
        Unproven::Mutual => {
            "it asked for mutual CHAP, and its host has no mutual secret, or the same secret for both directions"
        }
    };
    what.into()
}

/// Which target it is that an initiator does not see although it has proven its secret.
fn unseen(violation: &Violation, newcomer: &Claimant) -> Option<String> {
    match &newcomer.request.purpose {
        Purpose::Normal { target } if *violation == Violation::LoginFailed(LoginStatus::NotFound) => {
            Some(no_volume_at(target))
        }
        _ => None,
    }
}

fn no_volume_at(target: &str) -> String {
    format!(
        "it sees no volume at the target that it asked for, {target}: the target's pool is not imported, or none of its volumes is mapped \
         to the host"
    )
}

fn take_actions(login: &mut Contained<Login>) -> Vec<LoginAction> {
    login.call(|login| std::iter::from_fn(|| login.poll_action()).collect())
}

fn is_refusal(action: &LoginAction) -> bool {
    matches!(action, LoginAction::Close(violation) if *violation == UNPROVEN)
}

/// Whether an initiator has shown who it is, or failed to.
fn is_verdict(action: &LoginAction) -> bool {
    is_refusal(action) || matches!(action, LoginAction::Join { .. })
}

/// An initiator that has said who it is, and has not shown it.
struct Claimant {
    request: Request,
    claim: Claim,
    /// Why it will not be let in, whatever it answers.
    cause: Option<String>,
}

impl Claimant {
    /// Waits until it may be answered. A refusal is counted at once then, before anybody else's turn can come.
    async fn wait(&self, rt: &Rt) {
        let guesses = rt.local::<Guesses>();
        loop {
            let ready = guesses.ready(rt.now(), &self.claim);
            if ready <= rt.now() {
                return;
            }
            rt.sleep_until(ready).await;
        }
    }

    fn count_refusal(&self, rt: &Rt, door: &Door<'_>, peer: &str) {
        if rt.local::<Guesses>().refused(rt.now(), &self.claim) {
            let object = format!("{} at {peer}", self.request.initiator);
            let message = format!(
                "{FREE} logins with this initiator name or from this address were refused. Further logins from such an address \
                 are answered once a second. If no host is set up wrongly, names or secrets are being guessed"
            );
            door.registry.reporter.report(rt, Severity::Warning, "iscsi.login.slowed", &object, message);
        }
    }
}

/// What an initiator has to show, and why it will not be let in whatever that is.
fn decide(rt: &Rt, access: &dyn Access, request: &Request) -> (Authorization, Option<String>) {
    let Request { initiator, purpose } = request;
    let is_seen = match purpose {
        Purpose::Discovery => true,
        Purpose::Normal { target } => access.targets(initiator).contains(target),
    };
    let (chap, cause) = match access.admit(initiator) {
        // Whether it sees the target, it is told when it has proven its secret.
        Ok(Proof::Chap(chap)) => (chap, None),
        Ok(Proof::Name) if is_seen => return (Authorization::Open, None),
        Ok(Proof::Name) => {
            let target = match purpose {
                Purpose::Discovery => "discovery",
                Purpose::Normal { target } => target,
            };
            (unknowable(rt), Some(no_volume_at(target)))
        }
        Err(_) => (unknowable(rt), Some("no host has this initiator name".into())),
    };
    let challenge = Challenge { id: rt.random() as u8, bytes: random(rt) };
    (Authorization::Chap { chap, challenge }, cause)
}

/// A random secret.
fn unknowable(rt: &Rt) -> Chap {
    let secret = Secret::new(random(rt)).expect("the length is one of a secret");
    Chap { initiator: Credentials { user: String::new(), secret }, target: None }
}

fn random(rt: &Rt) -> [u8; CHALLENGE_LEN] {
    let mut bytes = [0; CHALLENGE_LEN];
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&rt.random().to_ne_bytes());
    }
    bytes
}

/// Gives a session its place in the list, after the one that it replaces has left.
async fn join(
    rt: &Rt,
    door: &Door<'_>,
    stream: &Stream,
    request: &Request,
    isid: [u8; 6],
    tsih: u16,
) -> Result<Listed, LoginStatus> {
    let initiator = request.initiator.clone();
    let port = InitiatorPort::new(&initiator, isid).ok_or(LoginStatus::InitiatorError)?;
    let target = match &request.purpose {
        Purpose::Discovery => None,
        Purpose::Normal { target } => Some(target.clone()),
    };
    if target.as_ref().is_some_and(|target| !door.access.targets(&initiator).contains(target)) {
        return Err(LoginStatus::NotFound);
    }
    if tsih != 0 {
        // One connection is all that a session has, and when it is gone the session is, too.
        return Err(match door.registry.has(&port, tsih) {
            true => LoginStatus::CannotJoin,
            false => LoginStatus::NoSession,
        });
    }
    let home = target.as_ref().map_or(0, |target| home_of(&door.access.luns(&initiator, target)));
    let newcomer =
        Newcomer { initiator, port, target, portal_group: door.portal_group, home, peer: stream.peer() };
    Registry::join(door.registry, rt, door.cores, newcomer, door.place)
        .await
        .ok_or(LoginStatus::OutOfResources)
}

/// The core that owns most of what the initiator sees.
fn home_of(mappings: &[super::access::Mapping]) -> usize {
    let count = |core: usize| mappings.iter().filter(|mapping| mapping.core == core).count();
    mappings
        .iter()
        .map(|mapping| mapping.core)
        .max_by_key(|&core| (count(core), usize::MAX - core))
        .unwrap_or(0)
}
