//! Does each flow get what it should, over one second, however many flows and shards there are?
//!
//! A pool that is busy with one request after the other, in virtual time; clients that ask again as soon as they are answered, or so often a second. What is
//! ideal is computed apart: each gets the greater of its floor and its share, never more than its ceiling or than it asks for, and the shares are as large as the pool
//! allows.

mod model;

use forebay_qos::{Affine, Class, Costs, Kind, Level, Rate, Work};
use model::{Client, Demand, Model};
use std::time::Duration;

const SMALL: u32 = 8192;
const LARGE: u32 = 1 << 20;
/// 100 000 requests of 8 KiB, or 2000 MB, a second.
const COSTS: Costs =
    Costs { read: Affine { fixed: 5904, byte_ps: 500 }, write: Affine { fixed: 5904, byte_ps: 500 } };

fn iops(iops: u64) -> Rate {
    Rate { iops, bytes: 0 }
}

fn of(class: Class) -> Level {
    Level { class, ..Level::default() }
}

fn with_floor(class: Class, floor: u64) -> Level {
    Level { class, floor: iops(floor), ..Level::default() }
}

fn client(level: Level, bytes: u32, demand: Demand) -> Client {
    Client { level, work: Work { kind: Kind::Read, bytes, places: 1 }, demand }
}

fn greedy(level: Level) -> Client {
    client(level, SMALL, Demand::Closed(256))
}

/// Runs these on so many shards; each second after the first must be within 2 % of the ideal, or 2 requests.
fn check(what: &str, shards: usize, clients: &[Client]) {
    let mut model = Model::new(shards, COSTS, clients);
    model.second();
    let ideal = model::ideal(&COSTS, clients);
    for second in 1..3 {
        let got = model.second();
        for (nth, (got, ideal)) in got.iter().zip(&ideal).enumerate() {
            let error = (*got as f64 - ideal).abs();
            assert!(
                error <= (ideal * 0.02).max(2.0),
                "{what}, {shards} shards, second {second}: flow {nth} got {got}, {ideal:.1} would be right"
            );
        }
    }
}

fn on_all(what: &str, clients: &[Client]) {
    for shards in [1, 2, 4, 16] {
        check(what, shards, clients);
    }
}

#[test]
fn equal_flows_share_equally() {
    for flows in [2, 10, 100, 1000] {
        on_all(&format!("{flows} equal flows"), &vec![greedy(Level::default()); flows]);
    }
}

#[test]
fn classes_share_by_weight() {
    let classes = [Class::NonCritical, Class::BusinessCritical, Class::MissionCritical];
    for flows in [3, 30, 300] {
        let clients: Vec<Client> = (0..flows).map(|nth| greedy(of(classes[nth % 3]))).collect();
        on_all(&format!("{flows} flows of three classes"), &clients);
    }
}

#[test]
fn a_share_is_of_time_not_of_requests() {
    let clients = [
        client(Level::default(), SMALL, Demand::Closed(64)),
        client(Level::default(), LARGE, Demand::Closed(8)),
        client(of(Class::MissionCritical), 64 << 10, Demand::Closed(32)),
    ];
    on_all("small and large", &clients);
}

#[test]
fn a_floor_holds_against_any_number() {
    for flows in [1, 20, 999] {
        let mut clients = vec![greedy(with_floor(Class::NonCritical, 60_000))];
        clients.extend(vec![greedy(of(Class::MissionCritical)); flows]);
        on_all(&format!("a floor against {flows}"), &clients);
    }
}

#[test]
fn floors_of_bytes_and_of_requests() {
    let streams = Level { floor: Rate { iops: 0, bytes: 600 << 20 }, ..of(Class::NonCritical) };
    let both = Level { floor: Rate { iops: 20_000, bytes: 20 << 20 }, ..of(Class::NonCritical) };
    let mut clients =
        vec![client(streams, LARGE, Demand::Closed(16)), client(both, SMALL, Demand::Closed(32))];
    clients.extend(vec![greedy(of(Class::MissionCritical)); 8]);
    on_all("floors of both", &clients);
}

#[test]
fn who_asks_for_less_than_its_floor_leaves_the_rest() {
    let clients = [
        client(with_floor(Class::MissionCritical, 60_000), SMALL, Demand::Open(5_000)),
        greedy(of(Class::NonCritical)),
        greedy(of(Class::BusinessCritical)),
    ];
    on_all("a floor not asked for", &clients);
}

#[test]
fn many_floors_that_fit_are_all_kept() {
    let mut clients: Vec<Client> =
        (0..100).map(|nth| greedy(with_floor(Class::NonCritical, 200 + 10 * nth))).collect();
    clients.extend(vec![greedy(of(Class::MissionCritical)); 20]);
    on_all("a hundred floors", &clients);
}

#[test]
fn a_ceiling_holds_though_nobody_else_asks() {
    let capped = |ceiling| Level { ceiling, ..Level::default() };
    on_all("one ceiling", &[greedy(capped(iops(5_000)))]);
    let bytes = Rate { iops: 0, bytes: 100 << 20 };
    let clients = [
        greedy(capped(iops(5_000))),
        client(capped(bytes), LARGE, Demand::Closed(8)),
        greedy(Level::default()),
    ];
    on_all("ceilings of both kinds", &clients);
}

#[test]
fn a_ceiling_below_the_floor_wins() {
    let level = Level { ceiling: iops(5_000), ..with_floor(Class::MissionCritical, 60_000) };
    on_all("a ceiling below the floor", &[greedy(level), greedy(Level::default())]);
}

#[test]
fn a_burst_is_what_was_not_taken_and_no_more() {
    let level = Level { ceiling: iops(1000), burst: Duration::from_secs(2), ..Level::default() };
    let mut model = Model::new(1, COSTS, &[client(level, SMALL, Demand::Open(0))]);
    (0..10).for_each(|_| drop(model.second()));
    model.demand(0, Demand::Closed(32));
    let seconds: Vec<u64> = (0..3).map(|_| model.second()[0]).collect();
    assert!(seconds[0].abs_diff(3000) <= 2, "two seconds' worth and this one's: {seconds:?}");
    assert!(seconds[1].abs_diff(1000) <= 2 && seconds[2].abs_diff(1000) <= 2, "{seconds:?}");
}

#[test]
fn an_idle_flow_has_neither_credit_nor_debt_when_it_returns() {
    for shards in [1, 4] {
        // Promised more than its share, it runs ahead of its turn; then it is away; then it and the others are the same.
        let clients = [
            greedy(with_floor(Class::BusinessCritical, 80_000)),
            greedy(Level::default()),
            greedy(Level::default()),
        ];
        let mut model = Model::new(shards, COSTS, &clients);
        (0..3).for_each(|_| drop(model.second()));
        model.demand(0, Demand::Open(0));
        model.level(0, &Level::default());
        (0..3).for_each(|_| drop(model.second()));
        model.demand(0, Demand::Closed(256));
        for tenth in 0..10 {
            let got = model.run(100_000_000);
            let share = got[0] as f64 / (got.iter().sum::<u64>() as f64 / 3.0);
            // The first tenth has what was in flight of the others. Shards may be ahead of each other by 5 ms.
            let tolerance = if tenth == 0 { 0.25 } else { 0.06 };
            assert!(
                (share - 1.0).abs() <= tolerance,
                "{shards} shards, tenth {tenth}: {share:.3} of an equal share"
            );
        }
    }
}

#[test]
fn a_changed_level_is_in_force_at_once() {
    for shards in [1, 4] {
        let mut clients = vec![greedy(of(Class::NonCritical))];
        clients.extend(vec![greedy(of(Class::BusinessCritical)); 4]);
        let mut model = Model::new(shards, COSTS, &clients);
        let before = model.second()[0];
        model.level(0, &with_floor(Class::MissionCritical, 70_000));
        let after = model.run(100_000_000)[0] * 10;
        assert!(
            before < 7000 && after >= 68_000,
            "{shards} shards: {before} before, {after} in the first tenth after"
        );
        model.level(0, &of(Class::NonCritical));
        let again = model.second()[0];
        assert!(again < 7000, "{shards} shards: {again}");
    }
}

#[test]
fn floors_that_do_not_fit_starve_nobody() {
    for shards in [1, 4] {
        let mut clients = vec![greedy(with_floor(Class::MissionCritical, 90_000)); 2];
        clients.extend(vec![greedy(of(Class::NonCritical)); 4]);
        let mut model = Model::new(shards, COSTS, &clients);
        model.second();
        let got = model.second();
        let (promised, others): (u64, u64) = (got[..2].iter().sum(), got[2..].iter().sum());
        assert!(promised > 88_000 && others > 4_000, "{shards} shards: {got:?}");
        assert!(got[2..].iter().all(|got| *got > 1000), "{shards} shards: {got:?}");
    }
}

#[test]
fn a_bound_of_several_flows_holds_over_all_shards() {
    for shards in [1, 4, 16] {
        let mut clients = vec![greedy(Level::default()); 32];
        clients[0].demand = Demand::Closed(4);
        let mut model = Model::new(shards, COSTS, &clients);
        model.bound_together(0..16, iops(8_000));
        model.second();
        for _ in 0..2 {
            let got = model.second();
            let (bound, free): (u64, u64) = (got[..16].iter().sum(), got[16..].iter().sum());
            assert!(bound.abs_diff(8000) <= 160, "{shards} shards: {bound} of 8000");
            // Evenly, whoever has how many waiting.
            assert!(got[..16].iter().all(|got| got.abs_diff(500) <= 25), "{shards} shards: {got:?}");
            assert!(free.abs_diff(92_000) <= 1840, "{shards} shards: {free} of 92000");
        }
    }
}

#[test]
fn who_asks_for_little_is_served_while_others_flood() {
    for shards in [1, 4] {
        let mut clients = vec![client(Level::default(), SMALL, Demand::Open(200))];
        clients.extend(vec![client(Level::default(), LARGE, Demand::Closed(256)); 3]);
        let mut model = Model::new(shards, COSTS, &clients);
        model.second();
        let got = model.second();
        assert!(got[0].abs_diff(200) <= 2, "{shards} shards: {got:?}");
        // The window is 1 ms, and a request of 1 MiB takes half of one; each shard may begin one beyond it.
        let worst = model.slowest_us(0);
        assert!(worst < 4000, "{shards} shards: {worst} us");
    }
}
