//! PERSISTENT RESERVE IN: what there is of registrations and reservations (SPC-4 6.16).

use crate::reservation::{Kind, Reservations};

/// Scope and type of a reservation: always of the whole unit.
fn scope_and_type(kind: Kind) -> u8 {
    kind as u8
}

/// Generation, length and whatever follows.
fn list(generation: u32, body: Vec<u8>) -> Vec<u8> {
    let mut bytes = generation.to_be_bytes().to_vec();
    bytes.extend((body.len() as u32).to_be_bytes());
    bytes.extend(body);
    bytes
}

pub(crate) fn read_keys(state: &Reservations) -> Vec<u8> {
    list(state.generation, state.registrations.iter().flat_map(|r| r.key.to_be_bytes()).collect())
}

pub(crate) fn read_reservation(state: &Reservations) -> Vec<u8> {
    let Some(reservation) = &state.reservation else { return list(state.generation, Vec::new()) };
    let mut body = vec![0; 16];
    if !reservation.kind.is_held_by_all() {
        let holder = state.find(&reservation.holder).expect("the holder is registered");
        body[..8].copy_from_slice(&holder.key.to_be_bytes());
    }
    body[13] = scope_and_type(reservation.kind);
    list(state.generation, body)
}

pub(crate) fn report_capabilities(state: &Reservations) -> Vec<u8> {
    // CRH, SIP_C, ATP_C, PTPL_C; TMV, PTPL_A; all six types.
    vec![0, 8, 0x1d, 0x80 | u8::from(state.persists), 0xea, 0x01, 0, 0]
}

pub(crate) fn read_full_status(state: &Reservations) -> Vec<u8> {
    let mut body = Vec::new();
    for registration in &state.registrations {
        let held = state.kind().filter(|_| state.is_holder(&registration.nexus));
        let transport_id = registration.nexus.initiator.transport_id();
        body.extend(registration.key.to_be_bytes());
        body.extend([0; 4]);
        body.push(u8::from(registration.all_ports) << 1 | u8::from(held.is_some()));
        body.push(held.map_or(0, scope_and_type));
        body.extend([0; 4]);
        body.extend(registration.nexus.portal_group.to_be_bytes());
        body.extend((transport_id.len() as u32).to_be_bytes());
        body.extend(transport_id);
    }
    list(state.generation, body)
}
