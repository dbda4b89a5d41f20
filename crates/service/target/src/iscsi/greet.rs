//! The login of one initiator, from its connection to an agreement or its end. Runs on core 0.
//!
//! Reads only when the protocol needs bytes, so a client can make the server keep no more than one receive buffer
//! beyond what the protocol keeps. The time limit is the caller's.

use super::access::{Access, Proof};
use super::registry::{Listed, Newcomer, Registry};
use forebay_iscsi::{
    Authorization, Challenge, Established, Login, LoginAction, LoginConfig, LoginStatus, Parameters, Purpose,
    Request, Violation,
};
use forebay_runtime::{Cores, NetError, Rt, Stream};
use forebay_scsi::InitiatorPort;
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
    /// With the initiator's name, if it has told it.
    Refused(Violation, Option<String>),
}

impl From<NetError> for Parted {
    fn from(_: NetError) -> Parted {
        Parted::ByClient
    }
}

/// What a login needs to know.
pub struct Door<'a> {
    pub access: &'a dyn Access,
    pub registry: &'a Arc<Registry>,
    pub cores: &'a Cores,
    pub portal_group: u16,
}

pub async fn greet(rt: &Rt, door: Door<'_>, stream: Stream) -> Result<Greeted, Parted> {
    let config = LoginConfig { portal_group_tag: door.portal_group, parameters: Parameters::TARGET };
    let mut login = Login::new(config, rt.arena());
    let (mut request, mut listed) = (None, None);
    loop {
        let (buffer, count) = stream.recv(rt.buffer(RECEIVED)).await;
        let count = count?;
        if count == 0 {
            return Err(Parted::ByClient);
        }
        let mut input = &buffer[..count];
        loop {
            login.handle_input(&mut input);
            let Some(action) = login.poll_action() else { break };
            match action {
                LoginAction::Send(parts) => stream.send(parts).await?,
                LoginAction::Authorize(asked) => {
                    login.authorize(decide(rt, door.access, &asked));
                    request = Some(asked);
                }
                LoginAction::Join { isid, tsih } => {
                    let request = request.as_ref().expect("who joins was authorized");
                    let joined = join(rt, &door, &stream, request, isid, tsih).await;
                    login.joined(joined.as_ref().map(Listed::tsih).map_err(|&status| status));
                    listed = joined.ok();
                }
                LoginAction::Established(established) => {
                    let listed = listed.expect("who is in has joined");
                    return Ok(Greeted { stream, established, leftover: input.to_vec(), listed });
                }
                LoginAction::Close(violation) => {
                    let initiator = request.map(|request| request.initiator);
                    return Err(Parted::Refused(violation, initiator));
                }
            }
        }
    }
}

/// Whether an initiator may come in, and what it has to show.
fn decide(rt: &Rt, access: &dyn Access, request: &Request) -> Result<Authorization, LoginStatus> {
    let proof = access.admit(&request.initiator).map_err(|_| LoginStatus::Forbidden)?;
    if let Purpose::Normal { target } = &request.purpose
        && !access.targets(&request.initiator).contains(target)
    {
        return Err(LoginStatus::NotFound);
    }
    Ok(match proof {
        Proof::Name => Authorization::Open,
        Proof::Chap(chap) => {
            let mut challenge = Challenge { id: rt.random() as u8, bytes: [0; 32] };
            for word in challenge.bytes.chunks_mut(8) {
                word.copy_from_slice(&rt.random().to_ne_bytes());
            }
            Authorization::Chap { chap, challenge }
        }
    })
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
    Registry::join(door.registry, rt, door.cores, newcomer).await.ok_or(LoginStatus::OutOfResources)
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
