//! The unit's own state: attentions, sense, modes, stopping, resets.

use crate::blocks::blocks;
use crate::support::*;
use forebay_pool::SyncPolicy;
use forebay_scsi::{Attention, BlockFormat, NEXUSES_MAX, Status, TooManyNexuses};

const READY: [u8; 6] = [0; 6];

#[test]
fn attentions_are_told_once_to_each_nexus() {
    let mut house = House::new(2);
    let (a, b) = (house.initiator("a", 1), house.initiator("b", 2));
    house.units[0].0.set_size(2 << 20);
    house.units[0].0.set_size(3 << 20);
    house.units[0].0.raise(Attention::ReportedLunsChanged);
    house.units[0].0.set_sync(SyncPolicy::Always);
    // These three tell of nothing, and clear nothing but what they are about.
    house.send(&a, 0, &[0x12, 0, 0, 0, 36, 0]).good();
    let report = [0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    house.send(&a, 0, &report).good();
    let told = |house: &mut House, who: &Initiator| -> Vec<u16> {
        std::iter::from_fn(|| {
            let answer = house.send(who, 0, &READY);
            (answer.status == Status::CheckCondition).then(|| answer.sense().1)
        })
        .collect()
    };
    assert_eq!(told(&mut house, &a), [0x2a09, 0x2a01]);
    assert_eq!(told(&mut house, &b), [0x2a09, 0x2a01, 0x3f0e]);
    house.send(&a, 1, &READY).good();
    // A CDB that is wrong is no reason not to be told.
    house.units[0].0.raise(Attention::InquiryDataChanged);
    assert_eq!(house.send(&a, 0, &[0xff; 6]).sense(), (6, 0x3f03));
    assert_eq!(house.send(&a, 0, &[0xff; 6]).sense(), (5, 0x2000));
}

#[test]
fn request_sense_tells_of_attentions_in_both_formats() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    house.units[0].0.raise(Attention::CapacityChanged);
    let fixed = house.send(&a, 0, &[0x03, 0, 0, 0, 252, 0]).good();
    assert_eq!((fixed.len(), fixed[0], fixed[2], &fixed[12..14]), (18, 0x70, 6, &[0x2a, 0x09][..]));
    house.send(&a, 0, &READY).good();
    assert_eq!(house.send(&a, 0, &[0x03, 0, 0, 0, 252, 0]).good()[2], 0, "no sense");
    house.units[0].0.raise(Attention::CapacityChanged);
    assert_eq!(house.send(&a, 0, &[0x03, 1, 0, 0, 252, 0]).good(), [0x72, 6, 0x2a, 0x09, 0, 0, 0, 0]);
    assert_eq!(house.send(&a, 0, &[0x03, 0, 0, 0, 4, 0]).good().len(), 4);
}

fn control_page(two: u8, four: u8) -> Vec<u8> {
    [&[0, 0, 0, 0, 0x0a, 10, two, 0x10, four][..], &[0; 7]].concat()
}

#[test]
fn modes_are_shared_and_change_what_they_say() {
    let mut house = House::new(1);
    let (a, b) = (house.initiator("a", 1), house.initiator("b", 1));
    let select = [0x15, 0x10, 0, 0, 16, 0];
    house.send_data(&a, 0, &select, &control_page(0x04, 0x08)).good();
    let answer = house.send(&b, 0, &READY);
    assert_eq!(answer.sense[..4], [0x72, 6, 0x2a, 0x01], "told, in descriptor format");
    let answer = house.send_data(&b, 0, &blocks(0x2a, 0, 0, 1), &[1; 512]);
    assert_eq!(answer.sense[..4], [0x72, 7, 0x27, 0x00], "software write protection");
    house.send(&a, 0, &READY).good();
    // The same again is no change.
    house.send_data(&a, 0, &select, &control_page(0x04, 0x08)).good();
    house.send(&b, 0, &READY).good();
    // A reset makes it what it was.
    house.units[0].0.reset();
    assert_eq!(house.send(&a, 0, &READY).sense(), (6, 0x2903));
    assert_eq!(house.send(&b, 0, &READY).sense(), (6, 0x2903));
    house.send_data(&b, 0, &blocks(0x2a, 0, 0, 1), &[1; 512]).good();

    let mut cdb = select;
    cdb[1] = 0x11;
    assert_eq!(house.send_data(&a, 0, &cdb, &control_page(0, 0)).field(), (true, 1, Some(0)), "SP");
    cdb[1] = 0;
    assert_eq!(house.send_data(&a, 0, &cdb, &control_page(0, 0)).field(), (true, 1, Some(4)), "PF");
    assert_eq!(house.send_data(&a, 0, &select, &control_page(0, 0)[..15]).sense(), (5, 0x1a00));
    assert_eq!(house.send_data(&a, 0, &select, &control_page(1, 0)).field(), (false, 6, Some(0)));
    assert_eq!(house.send(&a, 0, &[0x1a, 0, 0xca, 0, 255, 0]).sense(), (5, 0x3900), "saved values");
}

#[test]
fn a_stopped_unit_waits_to_be_started() {
    let mut house = House::new(1);
    let (a, b) = (house.initiator("a", 1), house.initiator("b", 1));
    house.send(&a, 0, &[0x1b, 0, 0, 0, 0, 0]).good();
    assert_eq!(house.units[0].1.flushes, 1);
    for cdb in [&READY[..], &blocks(0x28, 0, 0, 1), &blocks(0x88, 0, 0, 1), &blocks(0x35, 0, 0, 0)] {
        assert_eq!(house.send(&b, 0, cdb).sense(), (2, 0x0402));
    }
    assert_eq!(house.send(&a, 0, &[0x03, 0, 0, 0, 252, 0]).good()[2], 2);
    house.send(&b, 0, &[0x12, 0, 0, 0, 36, 0]).good();
    house.send(&b, 0, &[0x1a, 8, 0x3f, 0, 255, 0]).good();
    house.send(&b, 0, &[0x1b, 0, 0, 0, 0x31, 0]).good();
    assert_eq!(house.send(&b, 0, &READY).sense(), (2, 0x0402), "a power condition starts nothing");
    house.send(&b, 0, &[0x1b, 1, 0, 0, 1, 0]).good();
    house.send(&a, 0, &READY).good();
    house.send(&a, 0, &[0x1b, 0, 0, 0, 4, 0]).good();
    assert_eq!(house.units[0].1.flushes, 1, "NO_FLUSH");
    assert_eq!(house.send(&a, 0, &[0x1b, 0, 0, 0, 2, 0]).field(), (true, 4, Some(1)), "LOEJ");
    assert_eq!(house.send(&a, 0, &[0x1b, 0, 0, 0, 0x40, 0]).field(), (true, 4, Some(7)));
    house.send(&a, 0, &[0x1e, 0, 0, 0, 1, 0]).good();
}

#[test]
fn the_soft_threshold_is_told_when_it_is_crossed() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    let mut fill = |permille| {
        house.units[0].0.set_fill(permille, 800);
        house.send(&a, 0, &READY).status == Status::CheckCondition
    };
    let told: Vec<bool> = [790, 800, 950, 799, 800, 781, 800, 780, 800].map(&mut fill).to_vec();
    assert_eq!(told, [false, true, false, false, false, false, false, false, true]);
    house.units[0].0.set_fill(0, 800);
    house.units[0].0.set_fill(900, 800);
    assert_eq!(house.send(&a, 0, &READY).sense(), (6, 0x3807));
}

#[test]
fn nexuses_are_bounded_and_their_places_used_again() {
    let mut house = House::of([config(0, BlockFormat::B512)]);
    let a = house.initiator("a", 1);
    let mut more: Vec<_> =
        (1..NEXUSES_MAX).map(|_| house.units[0].0.attach(a.nexus.clone()).expect("room")).collect();
    assert_eq!(house.units[0].0.attach(a.nexus.clone()), Err(TooManyNexuses));
    house.units[0].0.detach(more.pop().expect("many"));
    let again = house.units[0].0.attach(a.nexus.clone()).expect("room again");
    assert!(!more.contains(&again));
    assert_eq!(house.units[0].0.nexuses().count(), NEXUSES_MAX);
}

#[test]
fn auto_contingent_allegiance_is_refused_at_the_control_byte() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    for (cdb, place) in [
        (vec![0; 6], 5),
        (blocks(0x28, 0, 0, 1), 9),
        (blocks(0xa8, 0, 0, 1), 11),
        (blocks(0x88, 0, 0, 1), 15),
    ] {
        let mut cdb = cdb;
        *cdb.last_mut().expect("not empty") = 4;
        assert_eq!(house.send(&a, 0, &cdb).field(), (true, place, Some(2)));
    }
}
