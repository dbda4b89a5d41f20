//! Goal: the answer is the one that can be worked out by hand. Method: a catalogue of devices that take one time for everything, so that requests a second are a division.

use forebay_sizing::{Catalogue, Options, Verdict, Wanted, search};

/// A device with a time for every request, one after the other, and nothing besides.
fn device(name: &str, micros: u64) -> String {
    let costs = format!(
        "{{ command-ns = [{0}000, {0}000], byte-ps = [0, 0], latency-ns = 1000, latency-byte-ps = 0, spread = [1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000] }}",
        micros
    );
    format!(
        "[[device]]\nname = '{name}'\nsize-mib = 2048\nread = {costs}\nwrite = {costs}\n\
         flush-ns = [0, 0, 0, 0, 0, 0, 0, 0, 0]\npause-every-ns = 0\npause-ns = [0, 0, 0, 0, 0, 0, 0, 0, 0]\n"
    )
}

/// Reads at random of a volume that memory holds a hundredth of, at this rate.
fn wanted(rate: u64, latency_ms: u64) -> Wanted {
    let text = format!(
        "[machine]\nmemory-mib = 16\nscale = 1\nwarm-seconds = 1\nseconds = 3\n\
         [[workload]]\nname = 'reads'\nblock-kib = 8\nread-percent = 100\naccess = 'random'\nsize-gib = 1\noutstanding = 32\nrate = {rate}\n\
         volume-block-kib = 8\nneeds = {{ iops = {rate} }}\nlevel = {{ class = 'mission-critical', latency-ms = {latency_ms} }}\n"
    );
    Wanted::parse(&text).expect("it is right")
}

fn catalogue() -> Catalogue {
    let head = "layouts = ['mirror']\ngroups-max = 3\n[[disk]]\nmodel = 'slow'\nprice = 100\n[[disk]]\nmodel = 'fast'\nprice = 350\n";
    // A mirror of slow ones reads 2 x 1000 a second, one of fast ones 2 x 5000.
    Catalogue::parse(&format!("{head}{}{}", device("slow", 1000), device("fast", 200))).expect("it is right")
}

#[test]
fn as_many_mirrors_as_the_reads_need_and_not_one_more() {
    let options = Options { seed: 1, runs_max: 20 };
    // 3000 a second: one mirror of slow disks gives 2000, two give 4000; fast ones would cost 700.
    let answer = search(&wanted(3000, 500), &catalogue(), options, &|_, _| {}).expect("it is searched");
    let chosen = answer.chosen.clone().expect("there is one");
    assert_eq!(
        (chosen.candidate.disk.as_str(), chosen.candidate.groups, chosen.candidate.price),
        ("slow", 2, 400)
    );
    let [one] = &answer.cheaper[..] else { panic!("only one is cheaper: {:?}", answer.cheaper) };
    let Verdict::Failed(why) = &one.verdict else { panic!("it was run: {one:?}") };
    assert!(why[0].starts_with("reads gets ") && why[0].ends_with(" of 3000 IOPS"), "{why:?}");
    assert!(one.got[0].1 < 2100.0, "{:?}", one.got);
    assert_eq!(answer.dearer.iter().map(|tried| tried.candidate.price).collect::<Vec<_>>(), [600, 700, 1400]);
    assert_eq!(
        answer,
        search(&wanted(3000, 500), &catalogue(), options, &|_, _| {}).expect("it is searched")
    );
}

#[test]
fn a_latency_that_slow_disks_cannot_have_takes_fast_ones() {
    // A lone read of a slow disk takes its millisecond and whatever is before it: never below 1 ms.
    let answer = search(&wanted(300, 1), &catalogue(), Options { seed: 1, runs_max: 20 }, &|_, _| {})
        .expect("it is searched");
    let chosen = answer.chosen.clone().expect("there is one");
    assert_eq!((chosen.candidate.disk.as_str(), chosen.candidate.groups), ("fast", 1), "{}", answer.text());
    assert_eq!(answer.cheaper.len(), 3);
    assert!(answer.text().contains("its level allows"), "{}", answer.text());
}

#[test]
fn what_was_asked_once_takes_as_much_as_the_rate_that_it_has() {
    let text = "[machine]\nmemory-mib = 16\nscale = 1\nwarm-seconds = 1\nseconds = 3\n\
                [[workload]]\nname = 'reads'\nblock-kib = 8\nread-percent = 100\naccess = 'random'\nsize-gib = 1\noutstanding = 32\n\
                trace = 'reads.trace'\nvolume-block-kib = 8\nneeds = { iops = 3000 }\n";
    let mut wanted = Wanted::parse(text).expect("it is right");
    let options = Options { seed: 1, runs_max: 20 };
    let error = search(&wanted, &catalogue(), options, &|_, _| {}).expect_err("nobody has read the file");
    assert!(error.contains("reads.trace was not read"), "{error}");
    let error = wanted.read_traces(|_| Err("is not there".into())).expect_err("nothing is read");
    assert_eq!(error.to_string(), "trace reads.trace: is not there");
    // 3000 a second, all over the volume.
    let line = |nth: u64| format!("{} r {} 8192 90\n", nth * 1_000_000 / 3000, nth * 7919 % 131_072 * 8192);
    let lines: String = (0..9000).map(line).collect();
    let trace = format!("forebay-trace 1\nvolume tank/db {} 8192 0\n{lines}end 9000 0\n", 1 << 30);
    wanted
        .read_traces(|path| if path == "reads.trace" { Ok(trace.clone()) } else { Err("?".into()) })
        .expect("it is one");
    let answer = search(&wanted, &catalogue(), options, &|_, _| {}).expect("it is searched");
    let chosen = answer.chosen.clone().expect("there is one");
    assert_eq!((chosen.candidate.disk.as_str(), chosen.candidate.groups), ("slow", 2), "{}", answer.text());
    assert!(answer.configuration.is_some_and(|text| text.contains("trace = \"reads.trace\"")));
}

#[test]
fn what_does_not_fit_is_not_run() {
    let text = std::fs::read_to_string("configurations/workloads.toml").expect("it is there");
    let text = text.replace("size-gib = 200", "size-gib = 20000").replace("scale = 128", "scale = 4096");
    let wanted = Wanted::parse(&text).expect("it is right");
    let text = std::fs::read_to_string("configurations/catalogue.toml").expect("it is there");
    let catalogue = Catalogue::parse(&text).expect("it is right");
    let answer =
        search(&wanted, &catalogue, Options { seed: 1, runs_max: 20 }, &|_, _| {}).expect("it is searched");
    assert_eq!((answer.runs, answer.chosen, answer.candidates, answer.cheaper.len()), (0, None, 48, 48));
    let fits = |verdict: &Verdict| matches!(verdict, Verdict::Impossible(why) if why.contains("20100 GiB of data do not fit"));
    assert!(answer.cheaper.iter().all(|tried| fits(&tried.verdict)));
}
