//! PERSISTENT RESERVE OUT: from one state of reservations to the next (SPC-4 5.12 and 6.17).
//!
//! Every service action is a function of the state, the nexus and the parameter list; it returns the whole next
//! state and whom to tell what. Refusals are of two kinds: RESERVATION CONFLICT for a key or role that does not
//! entitle, and sense data for a list that is wrong in itself.

use crate::attention::Attention;
use crate::nexus::{Nexus, TransportId};
use crate::reservation::{Kind, Registration, Reservation, Reservations};
use crate::reserve_store::REGISTRATIONS_MAX;
use crate::sense::{Sense, asc};

/// Why nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    Conflict,
    Check(Sense),
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Refusal {
        Refusal::Check(sense)
    }
}

/// What a service action leads to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Change {
    pub state: Reservations,
    pub tell: Vec<(Nexus, Attention)>,
    /// Nexuses whose tasks are to be aborted.
    pub abort: Vec<Nexus>,
}

/// What the command came with, and who is there.
pub(crate) struct Request<'a> {
    pub action: u8,
    pub scope_and_type: u8,
    pub list: &'a [u8],
    pub nexus: &'a Nexus,
    /// All target ports of the unit.
    pub portal_groups: &'a [u16],
    /// Nexuses with sessions, for TransportIDs that name an initiator without a port.
    pub attached: &'a [Nexus],
}

/// The parameter list of all service actions but REGISTER AND MOVE.
struct Basic<'a> {
    key: u64,
    action_key: u64,
    for_others: bool,
    all_ports: bool,
    persists: bool,
    more: &'a [u8],
}

fn u64_at(list: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(list[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(list: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(list[at..at + 4].try_into().expect("four bytes"))
}

const BASIC_BYTES: usize = 24;

fn basic<'a>(request: &Request<'a>) -> Result<Basic<'a>, Sense> {
    let list = request.list;
    if list.len() < BASIC_BYTES {
        return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH));
    }
    let flags = list[20];
    let for_others = flags & 0x08 != 0;
    if for_others && request.action != 0 {
        return Err(Sense::parameter_field(20, 3));
    }
    if !for_others && list.len() != BASIC_BYTES {
        return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH));
    }
    let registers = matches!(request.action, 0 | 6);
    Ok(Basic {
        key: u64_at(list, 0),
        action_key: u64_at(list, 8),
        for_others,
        all_ports: registers && flags & 0x04 != 0,
        persists: registers && flags & 0x01 != 0,
        more: &list[BASIC_BYTES..],
    })
}

/// The type of a reservation to make or release; the scope must be the logical unit.
fn kind(scope_and_type: u8) -> Result<Kind, Sense> {
    if scope_and_type >> 4 != 0 {
        return Err(Sense::cdb_field(2, 7));
    }
    Kind::decode(scope_and_type & 0x0f).ok_or(Sense::cdb_field(2, 3))
}

pub(crate) fn apply(state: &Reservations, request: &Request) -> Result<Change, Refusal> {
    let change = Change { state: state.clone(), ..Change::default() };
    match request.action {
        0 | 6 => register(change, request),
        7 => register_and_move(change, request),
        action => {
            let basic = basic(request)?;
            let own = state.find(request.nexus).ok_or(Refusal::Conflict)?.key;
            if own != basic.key {
                return Err(Refusal::Conflict);
            }
            match action {
                1 => reserve(change, request),
                2 => release(change, request),
                3 => Ok(clear(change, request)),
                _ => preempt(change, request, basic.action_key, action == 5),
            }
        }
    }
}

fn register(mut change: Change, request: &Request) -> Result<Change, Refusal> {
    let basic = basic(request)?;
    let own = change.state.find(request.nexus).map(|registration| registration.key);
    let ignores_key = request.action == 6;
    match own {
        Some(key) if !ignores_key && key != basic.key => return Err(Refusal::Conflict),
        None if !ignores_key && basic.key != 0 => return Err(Refusal::Conflict),
        Some(_) if basic.for_others => return Err(Sense::parameter_field(20, 3).into()),
        None if basic.action_key == 0 => return Ok(change),
        _ => {}
    }
    let mut ports = vec![(request.nexus.clone(), basic.all_ports)];
    if basic.for_others {
        ports.extend(others(&basic, request)?.into_iter().map(|nexus| (nexus, basic.all_ports)));
    }
    if basic.all_ports {
        let everywhere = |(nexus, all_ports): &(Nexus, bool)| {
            let initiator = nexus.initiator.clone();
            let groups = request.portal_groups.iter();
            let at = move |&portal_group| (Nexus { initiator: initiator.clone(), portal_group }, *all_ports);
            groups.map(at).collect::<Vec<_>>()
        };
        ports = ports.iter().flat_map(everywhere).collect();
    }
    for (nexus, all_ports) in ports {
        let found = change.state.registrations.iter_mut().find(|registration| registration.nexus == nexus);
        match found {
            _ if basic.action_key == 0 => unregister(&mut change, &nexus),
            Some(registration) if nexus == *request.nexus || basic.all_ports && !basic.for_others => {
                registration.key = basic.action_key;
                registration.all_ports = all_ports;
            }
            // Named in a list, and registered already: it keeps its key.
            Some(_) => {}
            None => {
                if change.state.registrations.len() == REGISTRATIONS_MAX {
                    return Err(Sense::illegal(asc::INSUFFICIENT_REGISTRATION_RESOURCES).into());
                }
                let registration = Registration { nexus, key: basic.action_key, all_ports };
                change.state.registrations.push(registration);
            }
        }
    }
    change.state.persists = basic.persists;
    change.state.generation = change.state.generation.wrapping_add(1);
    Ok(change)
}

/// The nexuses that a list of TransportIDs names (SPEC_I_PT).
fn others(basic: &Basic, request: &Request) -> Result<Vec<Nexus>, Sense> {
    let (len, ids) = basic.more.split_first_chunk().ok_or(Sense::illegal(asc::PARAMETER_LIST_LENGTH))?;
    if u32::from_be_bytes(*len) as usize != ids.len() {
        return Err(Sense::parameter_field(BASIC_BYTES, None));
    }
    let (mut rest, mut nexuses) = (ids, Vec::new());
    while !rest.is_empty() {
        let at = request.list.len() - rest.len();
        let (id, len) = TransportId::decode(rest).map_err(|_| Sense::parameter_field(at, None))?;
        rest = &rest[len..];
        match id {
            TransportId::Port(initiator) => {
                nexuses.push(Nexus { initiator, portal_group: request.nexus.portal_group });
            }
            TransportId::Device(name) => {
                let same = |nexus: &&Nexus| {
                    nexus.initiator.name() == &*name && nexus.portal_group == request.nexus.portal_group
                };
                let before = nexuses.len();
                nexuses.extend(request.attached.iter().filter(same).cloned());
                if nexuses.len() == before {
                    return Err(Sense::parameter_field(at, None));
                }
            }
        }
        if nexuses.len() > REGISTRATIONS_MAX {
            return Err(Sense::illegal(asc::INSUFFICIENT_REGISTRATION_RESOURCES));
        }
    }
    if nexuses.contains(request.nexus) {
        return Err(Sense::parameter_field(BASIC_BYTES, None));
    }
    Ok(nexuses)
}

/// Takes a registration out, and the reservation with it if nobody holds it any more.
fn unregister(change: &mut Change, nexus: &Nexus) {
    change.state.registrations.retain(|registration| registration.nexus != *nexus);
    let Some(reservation) = &mut change.state.reservation else { return };
    if reservation.holder != *nexus {
        return;
    }
    if reservation.kind.is_held_by_all()
        && let Some(next) = change.state.registrations.first()
    {
        reservation.holder = next.nexus.clone();
        return;
    }
    let kind = reservation.kind;
    change.state.reservation = None;
    if kind.admits_registrants() {
        tell_registered(change, Attention::ReservationsReleased, nexus);
    }
}

/// Tells every registered nexus but one.
fn tell_registered(change: &mut Change, attention: Attention, except: &Nexus) {
    let registered = change.state.registrations.iter().map(|registration| registration.nexus.clone());
    change.tell.extend(registered.filter(|nexus| nexus != except).map(|nexus| (nexus, attention)));
}

fn reserve(mut change: Change, request: &Request) -> Result<Change, Refusal> {
    let kind = kind(request.scope_and_type)?;
    match &change.state.reservation {
        None => change.state.reservation = Some(Reservation { kind, holder: request.nexus.clone() }),
        Some(held) if held.kind == kind && change.state.is_holder(request.nexus) => {}
        Some(_) => return Err(Refusal::Conflict),
    }
    Ok(change)
}

fn release(mut change: Change, request: &Request) -> Result<Change, Refusal> {
    let Some(held) = change.state.kind().filter(|_| change.state.is_holder(request.nexus)) else {
        return Ok(change);
    };
    if request.scope_and_type != held as u8 {
        return Err(Sense::illegal(asc::INVALID_RELEASE).into());
    }
    change.state.reservation = None;
    if held.admits_registrants() {
        tell_registered(&mut change, Attention::ReservationsReleased, request.nexus);
    }
    Ok(change)
}

fn clear(mut change: Change, request: &Request) -> Change {
    tell_registered(&mut change, Attention::ReservationsPreempted, request.nexus);
    change.state.registrations.clear();
    change.state.reservation = None;
    change.state.generation = change.state.generation.wrapping_add(1);
    change
}

fn preempt(mut change: Change, request: &Request, victim: u64, aborts: bool) -> Result<Change, Refusal> {
    let held = change.state.reservation.clone();
    let holder_key = held.as_ref().and_then(|held| change.state.find(&held.holder)).map(|holder| holder.key);
    // Whether the reservation itself changes hands.
    let takes = match &held {
        None => false,
        Some(held) if held.kind.is_held_by_all() => victim == 0,
        Some(_) => holder_key == Some(victim),
    };
    if victim == 0 && !takes {
        return Err(Sense::parameter_field(8, None).into());
    }
    let next = if takes { Some(kind(request.scope_and_type)?) } else { None };
    let is_victim = |registration: &Registration| {
        // Who takes the reservation over stays registered.
        (victim == 0 || registration.key == victim) && !(takes && registration.nexus == *request.nexus)
    };
    let (removed, kept): (Vec<_>, Vec<_>) =
        std::mem::take(&mut change.state.registrations).into_iter().partition(is_victim);
    if removed.is_empty() && !takes {
        return Err(Refusal::Conflict);
    }
    change.state.registrations = kept;
    let removed = removed.into_iter().map(|registration| registration.nexus);
    let others: Vec<Nexus> = removed.filter(|nexus| nexus != request.nexus).collect();
    change.tell.extend(others.iter().map(|nexus| (nexus.clone(), Attention::RegistrationsPreempted)));
    match (held, next) {
        (Some(held), Some(next)) => {
            change.state.reservation = Some(Reservation { kind: next, holder: request.nexus.clone() });
            if held.kind != next {
                tell_registered(&mut change, Attention::ReservationsReleased, request.nexus);
            }
        }
        (Some(held), None) => {
            // Where all hold it, somebody else of them stands for them; with the last of them it ends.
            let heir = change.state.registrations.first().map(|registration| registration.nexus.clone());
            if change.state.find(&held.holder).is_none() {
                change.state.reservation = heir.map(|holder| Reservation { holder, ..held });
            }
        }
        (None, _) => {}
    }
    if aborts {
        change.abort = others;
    }
    change.state.generation = change.state.generation.wrapping_add(1);
    Ok(change)
}

fn register_and_move(mut change: Change, request: &Request) -> Result<Change, Refusal> {
    let list = request.list;
    if list.len() < BASIC_BYTES || u32_at(list, 20) as usize != list.len() - BASIC_BYTES {
        return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH).into());
    }
    let (key, next_key, flags) = (u64_at(list, 0), u64_at(list, 8), list[17]);
    let portal_group = u16::from_be_bytes([list[18], list[19]]);
    let own = change.state.find(request.nexus).ok_or(Refusal::Conflict)?;
    let held = change.state.kind().ok_or(Refusal::Conflict)?;
    if own.key != key || held.is_held_by_all() || !change.state.is_holder(request.nexus) {
        return Err(Refusal::Conflict);
    }
    if next_key == 0 {
        return Err(Sense::parameter_field(8, None).into());
    }
    if !request.portal_groups.contains(&portal_group) {
        return Err(Sense::parameter_field(18, None).into());
    }
    let wrong_id = Sense::parameter_field(BASIC_BYTES, None);
    let Ok((TransportId::Port(initiator), _)) = TransportId::decode(&list[BASIC_BYTES..]) else {
        return Err(wrong_id.into());
    };
    let next = Nexus { initiator, portal_group };
    if next == *request.nexus {
        return Err(wrong_id.into());
    }
    let registrations = &mut change.state.registrations;
    match registrations.iter().position(|registration| registration.nexus == next) {
        Some(index) => registrations[index].key = next_key,
        None if registrations.len() == REGISTRATIONS_MAX => {
            return Err(Sense::illegal(asc::INSUFFICIENT_REGISTRATION_RESOURCES).into());
        }
        None => registrations.push(Registration { nexus: next.clone(), key: next_key, all_ports: false }),
    }
    if flags & 0x02 != 0 {
        registrations.retain(|registration| registration.nexus != *request.nexus);
    }
    change.state.reservation = Some(Reservation { kind: held, holder: next });
    change.state.persists = flags & 0x01 != 0;
    change.state.generation = change.state.generation.wrapping_add(1);
    Ok(change)
}
