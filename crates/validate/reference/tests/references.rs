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
        ("disk = \"15K\"", "disk = \"floppy\"", "there is no model of 'floppy'; there are 7.2K"),
        ("scale = 512", "scale = 0", "scale is 0"),
        ("layout = \"4+1\"", "layout = \"1+1\"", "'1+1' is no layout"),
        ("block-kib = 256", "block-kib = 3", "workload 'streaming': block-kib is 3"),
        ("read-percent = 75", "read-percent = 101", "workload 'oltp': read-percent is 101"),
        ("groups = 2", "groups = 200", "64 groups"),
        ("groups = 2", "groups = 0", "a group and a workload each"),
        ("volume-block-kib = 8", "volume-block-kib = 4194312", "a power of two from 4 to 128"),
        ("scale = 512", "scale = 1", "give a scale of 32"),
        ("block-kib = 256", "block-kib = 32768", "too few for its requests at scale 512"),
        ("name = \"email\"", "name = \"oltp\"", "'oltp' is there twice"),
        ("name = \"email\"", "name = \"e/mail\"", "letters, digits"),
        ("\"email\", \"stream", "\"mail\", \"stream", "there is no workload 'mail'"),
        ("outstanding = 8", "outstanding = 8\nspeed = 9", "speed"),
        ("seconds = 10", "seconds = 36000", "seconds is 36000"),
        (
            "access = \"random\"",
            "access = \"zipfian\"",
            "workload 'oltp': theta: give it with zipfian access",
        ),
        ("rate = 230", "rate = 230\ncompression = \"rar\"", "'rar' is no compression"),
        (
            "memory-mib = 64",
            "memory-mib = 64\nprocessor = { cores = 0, read-ns = 1, write-ns = 1, kib-ns = 1, source = \"\" }",
            "1 to 1024 cores",
        ),
        ("groups = 2", "groups = 2\nsector-bytes = 1000", "sector-bytes"),
        ("groups = 2", "groups = 2\ndisk = \"tape\"", "there is no model of 'tape'"),
    ];
    for (right, wrong, message) in cases {
        assert!(good.contains(right), "{right} in\n{good}");
        let mistake = Configuration::parse(&good.replacen(right, wrong, 1)).expect_err(wrong);
        assert!(mistake.to_string().contains(message), "{wrong}: {mistake}");
    }
}
