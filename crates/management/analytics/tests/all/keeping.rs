//! What is kept, for how long, and what survives.

use super::*;
use forebay_base::Random;
use std::fs;
use std::time::Instant;

fn ops(nth: u64) -> u64 {
    nth * 7 % 13 + 1
}

fn fill(store: &mut Store, seconds: std::ops::Range<u64>) {
    let empty = Histogram::default();
    for nth in seconds {
        store.append(second(START + nth, vec![row("a", "v", "read", ops(nth), &empty)])).unwrap();
    }
}

fn exact(seconds: std::ops::Range<u64>) -> f64 {
    seconds.clone().map(ops).sum::<u64>() as f64 / seconds.count() as f64
}

/// What an appliance has that serves eight volumes: forty rows, most with histograms.
fn mixed(at: u64, random: &mut Random) -> Second {
    let mut rows = Vec::new();
    let histogram = |random: &mut Random| {
        let mut histogram = Histogram::default();
        (0..200).for_each(|_| {
            histogram.record(80_000 + random.below(40_000) + random.below(30) * random.below(30_000))
        });
        histogram
    };
    for nth in 0..8 {
        for op in ["read", "write"] {
            let latencies = histogram(random);
            let mut row =
                row(&format!("10.0.0.{nth}"), &format!("tank/db/volume-{nth}"), op, 200, &latencies);
            row.values.push((Noun::Size, Value::Spread(vec![(80, 150), (104, 50)])));
            row.values.push((Noun::Offset, Value::Spread((0..64).map(|part| (part, 3)).collect())));
            rows.push(row);
        }
        let labels = vec![(Dimension::Volume, format!("tank/db/volume-{nth}").into())];
        let values = [Noun::Ops, Noun::Bytes].map(|noun| (noun, Value::Count(random.below(100_000))));
        rows.push(Row { layer: Layer::Volume, labels, values: values.into() });
    }
    for device in 0..8 {
        for op in ["read", "write"] {
            let labels = vec![(Dimension::Device, format!("{device}").into()), (Dimension::Op, op.into())];
            let latency = Value::Spread(histogram(random).buckets().collect());
            let values = vec![(Noun::Ops, Value::Count(200)), (Noun::Latency, latency)];
            rows.push(Row { layer: Layer::Disk, labels, values });
        }
    }
    second(at, rows)
}

/// Goal: an hour of seconds is answered from what is read once, and every row of it is. The time is printed, for people: it is the machine's.
#[test]
fn an_hour_of_seconds_is_read_once() {
    let temp = tempfile::tempdir().unwrap();
    let mut store = open(temp.path());
    let mut random = Random::new(4);
    let began = Instant::now();
    (0..3600).for_each(|nth| store.append(mixed(START + nth, &mut random)).unwrap());
    println!("appended in {:?}; {} bytes a second", began.elapsed(), store.bytes() / 3600);
    // 40 rows with these histograms: a week is less than the budget.
    assert!(store.bytes() / 3600 < Options::default().bytes_max / (7 * 86_400) * 3, "{}", store.bytes());
    for (expression, rows) in [
        ("nbd.ops", 16),
        ("nbd.ops[client][op=read]", 16),
        ("nbd.latency[client]", 16),
        ("nbd.ops[offset]", 16),
        ("disk.latency", 16),
        ("volume.ops[volume]", 8),
    ] {
        let began = Instant::now();
        let answer = ask(&store, expression, START, START + 3600, 1);
        println!("{expression}: {} rows in {:?}", answer.rows_read, began.elapsed());
        assert_eq!(answer.rows_read, rows * 3600, "{expression}");
    }
}

#[test]
fn a_store_that_is_opened_again_goes_on_where_it_was() {
    let temp = tempfile::tempdir().unwrap();
    let seconds = 2 * 3600 + 100;
    // Ends in the middle of whatever it is, each time.
    for part in (0..seconds).step_by(1370) {
        let mut store = open(temp.path());
        fill(&mut store, part..(part + 1370).min(seconds));
    }
    let store = open(temp.path());
    for step in [1, 60, 3600] {
        let answer = ask(&store, "nbd.ops", START, START + seconds, step);
        let values = &answer.series[0].values;
        for (nth, value) in values.iter().enumerate() {
            let from = nth as u64 * step;
            let exact = exact(from..(from + step).min(seconds));
            assert!((value.unwrap() - exact).abs() < 1e-9, "step {nth} of {step} s");
        }
        assert_eq!(values.len() as u64, seconds.div_ceil(step));
    }
    let read = ask(&store, "nbd.ops", START, START + seconds, 3600).rows_read;
    assert_eq!(read, 2 + 1 + 40, "two hours, a minute, and what follows");
}

#[test]
fn what_is_too_much_goes_oldest_seconds_first() {
    let temp = tempfile::tempdir().unwrap();
    let options = Options { bytes_max: 800_000, ..Options::default() };
    let mut store = Store::open(temp.path(), options).unwrap();
    for nth in 0..8 * 3600 {
        fill(&mut store, nth..nth + 1);
        assert!(store.bytes() <= 800_000, "{} after {nth}", store.bytes());
    }
    let end = START + 8 * 3600;
    let old = ask(&store, "nbd.ops", START, START + 60, 1);
    assert!(old.series[0].values.iter().all(Option::is_none), "its seconds are gone");
    let minutes = ask(&store, "nbd.ops", START, end, 60);
    for (nth, value) in minutes.series[0].values.iter().enumerate() {
        let from = nth as u64 * 60;
        assert!((value.unwrap() - exact(from..from + 60)).abs() < 1e-9, "minute {nth}");
    }
    let new = ask(&store, "nbd.ops", end - 1800, end, 1);
    assert!(new.series[0].values.iter().all(Option::is_some));
}

#[test]
fn what_is_too_old_goes() {
    let temp = tempfile::tempdir().unwrap();
    let options = Options { kept_seconds: [7200, 4 * 3600, u64::MAX / 2], ..Options::default() };
    let mut store = Store::open(temp.path(), options).unwrap();
    fill(&mut store, 0..3600 * 8);
    let end = START + 8 * 3600;
    let known =
        |from: u64, step: u64| ask(&store, "nbd.ops", from, from + step, step).series[0].values[0].is_some();
    assert!(known(end - 7200, 1) && !known(START + 3 * 3600, 1));
    // A segment of minutes is a day.
    assert!(known(START, 60) && known(START, 3600));
}

#[test]
fn a_pinned_interval_stays_for_ever() {
    let temp = tempfile::tempdir().unwrap();
    let options = Options { kept_seconds: [3600, 7200, 7200], bytes_max: 2 << 20 };
    let mut store = Store::open(temp.path(), options).unwrap();
    fill(&mut store, 0..3000);
    let (from, to) = (START + 1000, START + 1500);
    store.pin("w-1", from..to).unwrap();
    store.pin("w-2", from + 100..to + 50).unwrap();
    store.pin("w-3", from + 7..to).unwrap();
    store.unpin("w-3").unwrap();
    fill(&mut store, 3000..4 * 3600);
    assert!(ask(&store, "nbd.ops", START, START + 900, 1).series[0].values.iter().all(Option::is_none));
    drop(store);
    fs::create_dir(temp.path().join("pins/new-w-4")).unwrap();
    let store = Store::open(temp.path(), options).unwrap();
    assert_eq!(store.pins().collect::<Vec<_>>(), ["w-1", "w-2"]);
    assert!(!temp.path().join("pins/new-w-4").exists(), "a copy that was not finished");
    for step in [1, 10, 60] {
        let answer = ask(&store, "nbd.ops", from, to + 50, step);
        for (nth, value) in answer.series[0].values.iter().enumerate() {
            // Minutes are kept for longer, also those at the edges.
            let (begins, ends) = (nth as u64 * step, (nth as u64 + 1) * step);
            let (begins, ends) = (answer.from - START + begins, answer.from - START + ends);
            let found = value.unwrap_or_else(|| panic!("{nth} of {step} s: nothing"));
            assert!((found - exact(begins..ends)).abs() < 1e-9, "{nth} of {step} s: {found}");
        }
    }
}

#[test]
fn pins_have_bounds() {
    use forebay_analytics::PinError;
    let temp = tempfile::tempdir().unwrap();
    let mut store = Store::open(temp.path(), Options { bytes_max: 1 << 18, ..Options::default() }).unwrap();
    fill(&mut store, 0..1500);
    assert!(matches!(store.pin("a", START..START), Err(PinError::Length(_))));
    assert!(matches!(store.pin("a", START..START + 86_401), Err(PinError::Length(86_400))));
    assert!(matches!(store.pin("a", START - 60..START), Err(PinError::Nothing)));
    store.pin("a", START + 1000..START + 1400).unwrap();
    store.pin("a", START + 1000..START + 1400).unwrap();
    assert!(matches!(store.pin("b", START..START + 1500), Err(PinError::NoRoom(_))));
    assert_eq!(store.pins().collect::<Vec<_>>(), ["a"]);
    assert_eq!(fs::read_dir(temp.path().join("pins")).unwrap().count(), 1);
}

#[test]
fn a_clock_that_is_set_back_costs_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let mut store = open(temp.path());
    fill(&mut store, 3600..3700);
    fill(&mut store, 0..200);
    let answer = ask(&store, "nbd.ops", START, START + 200, 1);
    for (nth, value) in answer.series[0].values.iter().enumerate() {
        assert_eq!(*value, Some(ops(nth as u64) as f64), "{nth}");
    }
    fill(&mut store, 200..5000);
    let again = ask(&store, "nbd.ops", START + 3600, START + 3700, 1);
    // Those that were there twice: both counted, in seconds that were one.
    assert!(again.series[0].values.iter().all(Option::is_some));
}

#[test]
fn questions_have_bounds() {
    use forebay_analytics::AskError;
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let refused = |from, to, step_seconds, limit| {
        let expression = Expression::parse("nbd.ops").unwrap();
        query(&store.view(), &Ask { expression, from, to, step_seconds, limit })
            .map(|answer| answer.step_seconds)
    };
    assert_eq!(refused(10, 10, None, 1), Err(AskError::Interval));
    assert_eq!(refused(0, u64::MAX, None, 1), Err(AskError::Interval));
    assert_eq!(refused(0, 10, Some(0), 1), Err(AskError::Step));
    assert_eq!(refused(0, 10, None, 0), Err(AskError::Limit));
    assert_eq!(refused(0, 10, None, 101), Err(AskError::Limit));
    assert_eq!(refused(0, 20_000, Some(1), 1), Err(AskError::TooFine(2)));
    assert_eq!(refused(0, 300_000, Some(59), 1), Err(AskError::TooFine(60)));
    assert_eq!(refused(0, 3600, None, 1), Ok(5));
    assert_eq!(refused(0, 3600, Some(61), 1), Ok(120));
    assert_eq!(refused(0, 36_000, Some(3601), 1), Ok(7200));
    assert_eq!(refused(0, 1 << 40, None, 1).map(|step| step % 86_400), Ok(0));
    assert_eq!(refused(0, 10, Some(u64::MAX), 1).map(|step| step >= 1 << 40), Ok(true));
}

/// Goal: who else has an account on the machine learns nothing of who uses which volume, whatever the directory was like before.
#[test]
fn only_the_owner_may_read_what_is_kept() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("analytics");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let mut store = open(&dir);
    fill(&mut store, 0..120);
    store.pin("w", START..START + 60).unwrap();
    store.sync().unwrap();
    let (mut directories, mut files) = (vec![dir], 0);
    while let Some(directory) = directories.pop() {
        assert_eq!(mode(&directory), 0o700, "{}", directory.display());
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => directories.push(path),
                false => {
                    assert_eq!(mode(&path), 0o600, "{}", path.display());
                    files += 1;
                }
            }
        }
    }
    assert!(files >= 3, "{files} files: seconds, minutes, and what is pinned");
}
