//! What volumes are promised: is it admitted, is it kept, and does the ledger say why not?

use super::{BLOCK, Pool, on_pool};
use forebay_base::{Id, MIB};
use forebay_pool::{
    BUILT_IN_LEVELS, Cause, Class, ErrorKind, Level, ProjectProperties, PromiseChange, Rate, Setting,
    Standing, State, Volume, VolumeDelete, VolumeSecond,
};
use forebay_simulation::{Action, Rule};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

const GOLD: Id = Id(1000);

impl Pool {
    async fn levels<const N: usize>(&self, levels: [(Id, Level); N]) {
        self.engine.set_levels(&BTreeMap::from(levels)).await.expect("set");
    }

    /// So many writes of this size at a time, at any places of the volume, for so many seconds.
    async fn load(&self, name: &str, bytes: u64, depth: u64, seconds: u64) {
        let info = self.engine.volume(&format!("tank/{name}")).await.unwrap();
        let volume = Volume::open(&self.rt, info.id).unwrap();
        let end = self.rt.now().after(Duration::from_secs(seconds));
        let client = |_| async {
            while self.rt.now() < end {
                let at = self.rt.random() % (info.size / bytes) * bytes;
                let data = self.rt.arena().take_zeroed(bytes as usize).freeze();
                volume.write(at, vec![data], false).await.expect("written");
            }
        };
        join_all((0..depth).map(client)).await;
    }

    /// One write of 8 KiB every so often, for so many seconds, whether or not those before are answered.
    async fn ask(self: &Rc<Self>, name: &str, every: Duration, seconds: u64) {
        let id = self.engine.volume(&format!("tank/{name}")).await.unwrap().id;
        let volume = Volume::open(&self.rt, id).unwrap();
        let end = self.rt.now().after(Duration::from_secs(seconds));
        let mut asked = Vec::new();
        while self.rt.now() < end {
            let (volume, at) = (volume.clone(), self.rt.random() % 500 * BLOCK as u64);
            let data = self.rt.arena().take_zeroed(BLOCK).freeze();
            asked.push(self.rt.spawn(async move { volume.write(at, vec![data], false).await }));
            self.rt.sleep(every).await;
        }
        for one in asked {
            one.await.expect("written");
        }
    }

    /// Lines of a volume in seconds after that number, the first and the last of it left out: they are of parts of seconds.
    async fn lines(&self, name: &str, after: u64) -> Vec<VolumeSecond> {
        let seconds = self.engine.ledger("tank", after).await.expect("kept");
        let lines = seconds.iter().filter_map(|second| second.volumes.iter().find(|line| line.name == name));
        let lines: Vec<VolumeSecond> = lines.cloned().collect();
        assert!(lines.len() >= 3, "{name} was asked for something in {} seconds", lines.len());
        lines[1..lines.len() - 1].to_vec()
    }

    async fn number(&self) -> u64 {
        self.engine.ledger("tank", 0).await.expect("kept").last().map_or(0, |second| second.number)
    }

    fn told(&self, code: &str) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let of_code = events.iter().filter(|event| event.code == code);
        of_code.map(|event| format!("{}: {}", event.object, event.message)).collect()
    }
}

fn promise(iops: u64, milliseconds: u64) -> Level {
    Level {
        class: Class::MissionCritical,
        floor: Rate { iops, bytes: 0 },
        latency: Some(Duration::from_millis(milliseconds)),
        ..Level::default()
    }
}

#[test]
fn the_ledger_has_what_clients_asked_for_and_got() {
    on_pool(|pool| async move {
        pool.volume("a", None).await;
        pool.volume("idle", None).await;
        pool.rt.sleep(Duration::from_millis(3500)).await;
        let begun = pool.number().await;
        let seconds = pool.engine.ledger("tank", 0).await.expect("kept").len();
        assert!((2..=4).contains(&seconds), "a second each: {seconds}");
        let volume = Volume::open(&pool.rt, pool.engine.volume("tank/a").await.unwrap().id).unwrap();
        let mut slowest = 0;
        for block in 0..100 {
            let asked = pool.rt.now();
            assert!(pool.write(&volume, block).await);
            slowest = slowest.max(pool.rt.now().since(asked));
        }
        for block in 0..50 {
            let asked = pool.rt.now();
            volume.read(block * BLOCK as u64, BLOCK).await.expect("read");
            slowest = slowest.max(pool.rt.now().since(asked));
        }
        pool.rt.sleep(Duration::from_secs(3)).await;
        let seconds = pool.engine.ledger("tank", begun).await.expect("kept");
        let lines: Vec<&VolumeSecond> = seconds.iter().flat_map(|second| &second.volumes).collect();
        assert!(lines.iter().all(|line| line.name == "a" && line.state == State::Met), "{lines:?}");
        let sum = |what: fn(&VolumeSecond) -> u64| lines.iter().map(|line| what(line)).sum::<u64>();
        assert_eq!(sum(|line| line.account.asked), 150);
        assert_eq!(sum(|line| line.account.done), 150);
        assert_eq!(sum(|line| line.account.done_bytes), 150 * BLOCK as u64);
        let p99 = lines.iter().map(|line| line.account.p99).max().unwrap();
        assert!(p99 <= slowest + slowest / 8 && p99 > slowest / 4, "{p99} for {slowest}");
        assert!(lines.iter().any(|line| line.account.cost > 0));
        assert!(seconds.iter().all(|second| second.span.abs_diff(1_000_000_000) < 50_000_000));
    });
}

#[test]
fn who_asks_for_less_or_has_its_floor_is_not_wronged() {
    on_pool(|pool| async move {
        pool.levels([(GOLD, promise(1000, 10))]).await;
        pool.volume("a", Some(GOLD)).await;
        pool.load("a", MIB, 4, 1).await;
        let before = pool.number().await;
        pool.ask("a", Duration::from_millis(5), 5).await;
        let lines = pool.lines("a", before).await;
        assert!(lines.iter().all(|line| line.state == State::NotDemanded), "{lines:?}");
        let before = pool.number().await;
        pool.load("a", BLOCK as u64, 64, 5).await;
        let lines = pool.lines("a", before).await;
        assert!(lines.iter().all(|line| line.state == State::Met && line.account.done > 2000), "{lines:?}");
        let capped = Level { ceiling: Rate { iops: 500, bytes: 0 }, ..promise(1000, 10) };
        pool.levels([(GOLD, capped)]).await;
        let before = pool.number().await;
        pool.load("a", BLOCK as u64, 8, 5).await;
        let lines = pool.lines("a", before).await;
        assert!(lines.iter().all(|line| line.state == State::Capped), "{lines:?}");
        assert_eq!(pool.told("level.missed"), Vec::<String>::new());
    });
}

/// Goal: whoever has the disks is named, a person is told once, and told when it is over.
#[test]
fn a_neighbour_is_named_that_breaks_a_promise() {
    on_pool(|pool| async move {
        // Nobody has measured the pool: nothing keeps the neighbour off the disks.
        pool.levels([(GOLD, promise(1000, 1))]).await;
        pool.volume("db", Some(GOLD)).await;
        pool.volume("flood", None).await;
        pool.load("db", MIB, 4, 1).await;
        let before = pool.number().await;
        let beside = async |seconds| {
            let neighbour = pool.load("flood", MIB, 32, seconds);
            futures_util::future::join(pool.ask("db", Duration::from_millis(5), seconds), neighbour).await;
        };
        beside(8).await;
        let lines = pool.lines("db", before).await;
        let is_told = |line: &VolumeSecond| {
            (line.state, &line.cause) == (State::Violated, &Some(Cause::Neighbour("flood".into())))
        };
        assert!(lines.iter().all(is_told), "{lines:?}");
        assert!(lines.iter().all(|line| line.standing == Some(Standing::Unmeasured)));
        let told = pool.told("level.missed");
        assert!(
            told.len() == 1 && told[0].contains("tank/db: ") && told[0].contains("tank/flood"),
            "{told:?}"
        );
        // Whoever asks for it is told the same as the event.
        let broken = pool.engine.broken_promises("tank").await.expect("known");
        assert_eq!(broken.len(), 1);
        assert_eq!((&*broken[0].volume, broken[0].level), ("db", GOLD));
        assert!(
            told[0].contains(&format!("Cause: {}. Remedy: {}", broken[0].why, broken[0].remedy)),
            "{told:?} {broken:?}"
        );
        assert_eq!(pool.told("level.met").len(), 0);
        pool.ask("db", Duration::from_millis(5), 20).await;
        assert_eq!((pool.told("level.missed").len(), pool.told("level.met").len()), (1, 1));
        assert_eq!(pool.engine.broken_promises("tank").await, Ok(Vec::new()));
        // A second or two are nobody's business.
        beside(2).await;
        pool.rt.sleep(Duration::from_secs(4)).await;
        assert_eq!(pool.told("level.missed").len(), 1);
    });
}

#[test]
fn disks_that_slow_down_are_the_cause_and_can_keep_less() {
    on_pool(|pool| async move {
        pool.volume("db", Some(GOLD)).await;
        pool.volume("other", None).await;
        pool.load("db", MIB, 4, 1).await;
        pool.load("other", MIB, 4, 1).await;
        let speed = pool.engine.pool_calibrate("tank").await.expect("measured");
        pool.levels([(GOLD, promise(speed.read_iops.min(speed.write_iops) / 2, 8))]).await;
        let load = async |depth, seconds| {
            let other = pool.load("other", BLOCK as u64, depth, seconds);
            futures_util::future::join(pool.ask("db", Duration::from_millis(1), seconds), other).await;
        };
        let before = pool.number().await;
        load(4, 6).await;
        let lines = pool.lines("db", before).await;
        assert!(lines.iter().all(|line| line.state == State::NotDemanded), "{lines:?}");
        assert!(lines.iter().all(|line| line.standing == Some(Standing::Promised)), "{lines:?}");

        pool.world.add_rule(Rule::new(0, Action::Slow(100)));
        let before = pool.number().await;
        load(8, 20).await;
        let lines = pool.lines("db", before).await;
        // As long as its floor counted.
        let is_blamed = |line: &&VolumeSecond| line.cause == Some(Cause::Disks);
        let promised = lines.iter().filter(|line| line.standing == Some(Standing::Promised)).count();
        assert!(promised >= 5, "{lines:#?}");
        assert_eq!(lines.iter().filter(is_blamed).count(), promised, "{lines:#?}");
        let capacities: Vec<u64> = pool
            .engine
            .ledger("tank", before)
            .await
            .unwrap()
            .iter()
            .filter_map(|second| second.capacity)
            .collect();
        assert!(capacities.last().unwrap() * 2 < capacities[0], "it can keep less: {capacities:?}");
        let withdrawn = lines.iter().filter(|line| line.standing == Some(Standing::CannotBeKept));
        assert!(withdrawn.clone().count() > 0, "{lines:#?}");
        assert!(withdrawn.clone().all(|line| line.state == State::CannotBeKept), "{lines:#?}");
        let told = pool.told("level.cannot_be_met");
        assert!(told.len() == 1 && told[0].starts_with("tank/db: "), "{told:?}");
        assert_eq!(pool.told("level.met"), Vec::<String>::new(), "it has nothing again");

        // A new measurement is what is known of the disks.
        pool.world.take_rules();
        pool.engine.pool_calibrate("tank").await.expect("measured");
        let before = pool.number().await;
        load(4, 4).await;
        let lines = pool.lines("db", before).await;
        assert!(lines.iter().all(|line| line.standing == Some(Standing::Promised)), "{lines:?}");
        assert_eq!(pool.told("level.guaranteed").len(), 1);
        let capacity = pool.engine.ledger("tank", before).await.unwrap().last().unwrap().capacity;
        assert_eq!(capacity, Some(900_000));
    });
}

#[test]
fn a_goal_that_only_memory_could_reach_is_said_to_be_one() {
    on_pool(|pool| async move {
        pool.volume("db", Some(GOLD)).await;
        pool.load("db", MIB, 4, 1).await;
        pool.engine.pool_calibrate("tank").await.expect("measured");
        let goal = Level { latency: Some(Duration::from_micros(50)), ..promise(1000, 1) };
        pool.levels([(GOLD, goal)]).await;
        let before = pool.number().await;
        pool.ask("db", Duration::from_millis(20), 6).await;
        let lines = pool.lines("db", before).await;
        assert!(lines.iter().all(|line| line.cause == Some(Cause::CacheMiss)), "{lines:?}");
    });
}

/// Goal: what does not fit is refused with the numbers; whoever wants it all the same gets no promise, and breaks none.
#[test]
fn what_does_not_fit_is_refused_or_best_effort() {
    on_pool(|pool| async move {
        pool.volume("a", None).await;
        let check = async |change: PromiseChange| pool.engine.promise_check("tank", change).await;
        let create = |level| PromiseChange::Create { name: "new".into(), level: Some(level) };
        let (gold, _, _) = BUILT_IN_LEVELS[0];
        assert_eq!(check(create(gold)).await, Ok(()), "nobody knows yet");
        let speed = pool.engine.pool_calibrate("tank").await.expect("measured");
        let half = speed.read_iops.min(speed.write_iops) / 2;
        let (silver, huge) = (Id(1001), Id(1002));
        let all = |silver_iops| {
            [(GOLD, promise(half, 10)), (silver, promise(silver_iops, 10)), (huge, promise(half * 10, 10))]
        };
        pool.levels(all(half / 2)).await;
        let error = check(create(huge)).await.expect_err("it does not fit");
        assert_eq!(error.kind, ErrorKind::Conflict);
        for part in ["500.0 %", "guaranteed 0.0 %", "90.0 %", "--best-effort"] {
            assert!(error.to_string().contains(part), "{part} in: {error}");
        }
        assert_eq!(check(create(GOLD)).await, Ok(()));
        pool.volume("b", Some(GOLD)).await;
        let error = check(create(GOLD)).await.expect_err("half of it is another's");
        assert!(error.to_string().contains("guaranteed 50.0 %"), "{error}");
        assert_eq!(check(create(silver)).await, Ok(()));

        // Of a project, and of a level: all volumes that have it.
        pool.engine.project_create("tank/p", ProjectProperties::default()).await.expect("created");
        pool.volume("p/one", None).await;
        pool.volume("p/two", None).await;
        let of_project = |level| PromiseChange::Project { name: "p".into(), level };
        assert_eq!(check(of_project(silver)).await.map_err(|error| error.kind), Err(ErrorKind::Conflict));
        let own = |name: &str, level| {
            let (engine, name) = (pool.engine.clone(), format!("tank/{name}"));
            async move { PromiseChange::Volume { id: engine.volume(&name).await.unwrap().id, level } }
        };
        assert_eq!(check(own("p/one", Some(silver)).await).await, Ok(()));
        assert!(check(own("p/one", Some(GOLD)).await).await.is_err());
        assert!(check(PromiseChange::Level { id: GOLD, level: promise(half * 2, 10) }).await.is_err());
        assert_eq!(
            check(PromiseChange::Level { id: huge, level: promise(1, 10) }).await,
            Ok(()),
            "nobody has it"
        );

        // Wanted all the same: the older ones of the same class keep theirs.
        pool.volume("late", Some(GOLD)).await;
        pool.rt.sleep(Duration::from_secs(3)).await;
        let standings = async || {
            let before = pool.number().await;
            for name in ["b", "late"] {
                let volume =
                    Volume::open(&pool.rt, pool.engine.volume(&format!("tank/{name}")).await.unwrap().id);
                volume.unwrap().read(0, BLOCK).await.expect("read");
            }
            pool.rt.sleep(Duration::from_secs(2)).await;
            let seconds = pool.engine.ledger("tank", before).await.expect("kept");
            let line =
                |name: &str| seconds.iter().flat_map(|second| &second.volumes).find(|line| line.name == name);
            ["b", "late"].map(|name| {
                let line = line(name).expect("asked");
                let is_best_effort = line.standing == Some(Standing::BestEffort);
                assert_eq!(line.state == State::BestEffort, is_best_effort, "{line:?}");
                line.standing
            })
        };
        assert_eq!(standings().await, [Some(Standing::Promised), Some(Standing::BestEffort)]);
        pool.set("b", Setting::Own(Id(0))).await;
        pool.rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(standings().await, [None, Some(Standing::Promised)], "now there is room");
        // What it was promised before is nobody's claim any more.
        pool.set("b", Setting::Own(GOLD)).await;
        let late_is_kept = [Some(Standing::BestEffort), Some(Standing::Promised)];
        assert_eq!(standings().await, late_is_kept);
        let bound = Level { ceiling: Rate { iops: half * 2, bytes: 0 }, ..promise(half, 10) };
        pool.levels([(GOLD, bound)]).await;
        assert_eq!(standings().await, late_is_kept, "it promises as much as before");
        let keep = VolumeDelete { with_snapshots: true, purge: false };
        pool.engine.volume_delete("tank/late", keep).await.expect("deleted");
        pool.rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(pool.engine.volume("tank/b").await.unwrap().standing, Some(Standing::Promised));
        let restored = pool.engine.volume_restore("tank/late", None).await.expect("restored");
        assert_eq!(restored.standing, Some(Standing::BestEffort));
        assert_eq!(standings().await, [Some(Standing::Promised), Some(Standing::BestEffort)]);
    });
}
