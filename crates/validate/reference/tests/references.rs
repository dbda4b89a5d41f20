//! Goal: the published configurations are in order, and what a run says is a function of the configuration and the seed. Method: short runs of a few cases.

use forebay_reference::{Configuration, Report, html, references};

/// This case of configuration C, shortly, on disks smaller still.
fn short(case: &str) -> Configuration {
    let mut configuration = references().into_iter().find(|reference| reference.name == "C").unwrap();
    configuration.cases.retain(|one| one.name == case);
    assert_eq!(configuration.cases.len(), 1, "there is one case '{case}'");
    (configuration.machine.scale, configuration.machine.warm_seconds, configuration.machine.seconds) =
        (512, 3, 10);
    configuration
}

#[test]
fn four_workloads_are_met_on_two_groups_and_the_same_seed_gives_the_same_report() {
    let run = |seed| Report::make(short("one pool of two groups"), seed).expect("it runs");
    let report = run(1);
    let case = &report.cases[0];
    assert!(case.clients.iter().all(|client| client.met == Some(true)), "{}", report.text());
    // What waited on average is counted apart from rates and means, and agrees with them (Little's law). OLTP always has as many as it may.
    let oltp = &case.clients[0];
    assert!((oltp.outstanding / 8.0 - 1.0).abs() < 0.01, "{oltp:?}");
    assert!((oltp.iops * oltp.mean_ms / 1e3 / oltp.outstanding - 1.0).abs() < 0.02, "{oltp:?}");
    // The others ask for so much, and get no more.
    for client in &case.clients[1..] {
        let needs = client.needs_iops.expect("all but OLTP have a rate") as f64;
        assert!((client.iops / needs - 1.0).abs() < 0.02, "{client:?}");
    }
    assert!(case.busy[0].iter().all(|part| (0.3..1.0).contains(part)), "{:?}", case.busy);
    assert_eq!(report, run(1));
    assert_ne!(report.cases[0].clients, run(2).cases[0].clients);
    let page = html(&[report]);
    for part in
        ["one pool of two groups", "unstructured", "other than published", "Cheetah 15K.5", "--seed 1"]
    {
        assert!(page.contains(part), "the page has {part}");
    }
    assert!(!page.contains("src=") && !page.contains("http"), "it needs nothing from elsewhere");
}

#[test]
fn what_was_asked_once_is_asked_again_by_two_and_a_disk_fails() {
    let text = r#"
        name = "again"
        title = "two of what was asked once, and a disk that goes"
        machine = { disk = "SATA flash", memory-mib = 64, scale = 1024, warm-seconds = 1, seconds = 8 }
        [[workload]]
        name = "db"
        block-kib = 8
        read-percent = 50
        access = "random"
        size-gib = 64
        outstanding = 64
        volume-block-kib = 8
        needs = { iops = 100 }
        trace = "db.trace"
        [[case]]
        name = "a disk goes"
        pool = [{ layout = "mirror", disks = 4, groups = 1, spares = 1, fails = { disk = 1, after-seconds = 2 }, workloads = ["db", "db"] }]
    "#;
    // A request every 10 ms, for 3 s; half are writes.
    let line =
        |nth: u64| format!("{} {} {} 8192 300\n", nth * 10_000, ["r", "w"][nth as usize % 2], nth * 65536);
    let lines: String = (0..300).map(line).collect();
    let trace = format!("forebay-trace 1\nvolume tank/db {} 8192 0\n{lines}end 300 0\n", 64u64 << 30);
    let mut configuration = Configuration::parse(text).expect("it is in order");
    let error = Report::make(configuration.clone(), 1).expect_err("nobody has read the file");
    assert!(error.contains("db.trace was not read"), "{error}");
    configuration.read_traces(|_| Ok(trace.clone())).expect("it is a trace");
    assert!(configuration.clone().read_traces(|_| Ok(trace.replace("end", "and"))).is_err());
    let run = |fails: bool| {
        let mut own = configuration.clone();
        own.cases[0].pools[0].fails = own.cases[0].pools[0].fails.filter(|_| fails);
        Report::make(own, 1).expect("it runs")
    };
    let (sound, hurt) = (run(false), run(true));
    for report in [&sound, &hurt] {
        for client in &report.cases[0].clients {
            assert_eq!((client.met, client.failed), (Some(true), 0), "{}", report.text());
            assert!((99.0..101.0).contains(&client.iops), "{client:?}");
        }
    }
    let of = |report: &Report| {
        report.cases[0].clients.iter().map(|client| client.seconds.clone()).collect::<Vec<_>>()
    };
    assert_ne!(of(&sound)[0], of(&sound)[1], "two begin at different places");
    assert_ne!(of(&sound), of(&hurt), "the disk was missed");
    assert_eq!(hurt, run(true));
    assert_eq!(sound.cases[0].failures, []);
    // A wide group has room for it; a pair needs the spare; and where there is neither, that is told.
    let failure = |report: &Report| report.cases[0].failures[0].clone();
    let pair = |spares: u32| {
        let mut own = configuration.clone();
        (own.cases[0].pools[0].disks, own.cases[0].pools[0].spares) = (Some(2), spares);
        Report::make(own, 1).expect("it runs")
    };
    let (wide, on_spare, stuck) = (failure(&hurt), pair(1), failure(&pair(0)));
    let whole = failure(&on_spare);
    for one in [&wide, &whole] {
        let [noticed, rebuilt] = [one.noticed, one.rebuilt].map(|at| at.expect("it was"));
        assert!(2.0 <= noticed && noticed < rebuilt && rebuilt < 8.0, "{one:?}");
    }
    assert_eq!((wide.spare_used, wide.to_spares >> 20), (None, 0), "{wide:?}");
    assert!(whole.spare_used >= whole.noticed && whole.spare_used < whole.rebuilt, "{whole:?}");
    // Both volumes have 64 MiB, and a copy on each disk.
    assert!(whole.to_spares >= 128 << 20, "{whole:?}");
    let told = on_spare.text();
    assert!(told.contains("a spare took its place after") && told.contains("was rebuilt after"), "{told}");
    assert!(html(&[on_spare]).contains("a spare took its place after"));
    assert_eq!((stuck.spare_used, stuck.rebuilt), (None, None), "{stuck:?}");
    assert!(stuck.under_way.is_some_and(|[done, left]| done == 0 && left > 0), "{stuck:?}");
}

#[test]
fn a_configuration_is_written_as_it_is_read() {
    for reference in references() {
        assert_eq!(Configuration::parse(&reference.toml()), Ok(reference.clone()));
    }
}

#[test]
fn mistakes_are_named() {
    let good = short("one pool of two groups").toml();
    assert!(Configuration::parse(&good).is_ok());
    let cases = [
        ("disk = \"15K\"", "disk = \"floppy\"", "there is no model of 'floppy'; the models are 7.2K"),
        ("scale = 512", "scale = 0", "scale is 0"),
        ("layout = \"4+1\"", "layout = \"1+1\"", "'1+1' is not a layout"),
        ("block-kib = 256", "block-kib = 3", "workload 'streaming': block-kib is 3"),
        ("read-percent = 75", "read-percent = 101", "workload 'oltp': read-percent is 101"),
        ("groups = 2", "groups = 200", "64 groups"),
        ("groups = 2", "groups = 0", "a group and a workload each"),
        ("volume-block-kib = 8", "volume-block-kib = 4194312", "a power of two from 4 to 128"),
        ("scale = 512", "scale = 1", "give a scale of 32"),
        ("block-kib = 256", "block-kib = 32768", "too few for its requests at scale 512"),
        ("name = \"email\"", "name = \"oltp\"", "'oltp' is defined twice"),
        ("name = \"email\"", "name = \"e/mail\"", "letters, digits"),
        ("\"email\", \"stream", "\"mail\", \"stream", "there is no workload 'mail'"),
        ("outstanding = 8", "outstanding = 8\nspeed = 9", "speed"),
        ("seconds = 10", "seconds = 36000", "seconds is 36000"),
        (
            "access = \"random\"",
            "access = \"zipfian\"",
            "workload 'oltp': theta: give it with zipfian access",
        ),
        ("rate = 230", "rate = 230\ncompression = \"rar\"", "unknown compression 'rar'"),
        (
            "memory-mib = 64",
            "memory-mib = 64\nprocessor = { cores = 0, read-ns = 1, write-ns = 1, kib-ns = 1, source = \"\" }",
            "1 to 1024 cores",
        ),
        ("groups = 2", "groups = 2\nfails = { disk = 10, after-seconds = 1 }", "0 to 9"),
        ("groups = 2", "groups = 2\nfails = { disk = 9, after-seconds = 3600 }", "give less"),
        ("groups = 2", "groups = 2\nspares = 1000", "spares"),
        ("groups = 2", "groups = 2\nsector-bytes = 1000", "sector-bytes"),
        ("groups = 2", "groups = 2\ndisk = \"tape\"", "there is no model of 'tape'"),
    ];
    for (right, wrong, message) in cases {
        assert!(good.contains(right), "{right} in\n{good}");
        let mistake = Configuration::parse(&good.replacen(right, wrong, 1)).expect_err(wrong);
        assert!(mistake.to_string().contains(message), "{wrong}: {mistake}");
    }
}
