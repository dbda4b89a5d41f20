//! Does iSCSI let in whom the configuration names, show them what is mapped to them, and follow when that changes? Is a pool that is
//! imported read-only read, and not changed, over either protocol?
//!
//! Method: an initiator on a blocking socket against the real daemon, which is configured by its command line.

use crate::common::{Daemon, Nbd, PATIENCE, Place};
use forebay_iscsi::initiator::{Event, Login, LoginError, ScsiRequest, Session, Wanted};
use forebay_iscsi::pdu::LoginRequest;
use forebay_iscsi::{CHALLENGE_LEN, Challenge, Credentials, Output, Parameters, Purpose, Secret};
use forebay_runtime::{Arena, Buf};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const TANK: &str = "iqn.2026-11.io.forebay:tank";
pub const ESX1: &str = "iqn.1998-01.com.vmware:esx1";
const ESX2: &str = "iqn.1998-01.com.vmware:esx2";

fn join(parts: &[Buf]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}

pub fn wanted(initiator: &str) -> Wanted {
    Wanted {
        initiator: initiator.into(),
        purpose: Purpose::Normal { target: TANK.into() },
        parameters: Parameters::TARGET,
        isid: [0x80, 0, 0, 0, 0, 1],
        tsih: 0,
        credentials: None,
        algorithms: "7,5",
        target: None,
    }
}

fn credentials(user: &str, secret: &str) -> Credentials {
    Credentials { user: user.into(), secret: Secret::new(secret).expect("a secret of valid length") }
}

pub struct Initiator {
    pub stream: TcpStream,
    pub session: Session,
    pub arena: Arena,
}

impl Initiator {
    pub fn log_in(portal: &str, wanted: Wanted) -> Result<Initiator, LoginError> {
        let mut stream = TcpStream::connect(portal).expect("the daemon listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let (arena, mut login) = (Arena::new(), Login::new(wanted));
        let mut bytes = [0; 4096];
        loop {
            if login.has_output() {
                stream.write_all(&join(&login.take_batch(&arena))).expect("the daemon reads");
            }
            let count = stream.read(&mut bytes).expect("the daemon answers");
            assert!(count > 0, "a refusal is a login response");
            if let Some(connected) = login.handle_input(&mut &bytes[..count])? {
                return Ok(Initiator { stream, session: Session::new(&connected), arena });
            }
        }
    }

    /// Logs in by name alone.
    pub fn named(portal: &str, name: &str) -> Initiator {
        Initiator::log_in(portal, wanted(name)).unwrap_or_else(|error| panic!("{name}: {error:?}"))
    }

    /// The next event; `None` when the daemon has hung up.
    pub fn event(&mut self) -> Option<Event> {
        let mut bytes = vec![0; 64 << 10];
        loop {
            if let Some(event) = self.session.poll_event() {
                return Some(event);
            }
            if self.session.has_output() {
                // The daemon may have hung up: that shows in what is read.
                let _ = self.stream.write_all(&join(&self.session.take_batch(&self.arena)));
            }
            let count = self.stream.read(&mut bytes).unwrap_or(0);
            if count == 0 {
                return None;
            }
            let input = &mut &bytes[..count];
            self.session.handle_input(input, &self.arena).expect("the daemon keeps to the protocol");
        }
    }

    /// What REPORT LUNS says.
    pub fn luns(&mut self) -> Vec<u16> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[8]) = (0xa0, 16);
        let request = ScsiRequest { cdb, expected_in: 4096, ..ScsiRequest::default() };
        self.session.command(request).expect("the window is open");
        loop {
            if let Event::Completed { status, data_in, .. } = self.event().expect("an answer") {
                assert_eq!(status, 0, "REPORT LUNS");
                let data = join(&data_in);
                return data[8..].chunks(8).map(|lun| u16::from_be_bytes([lun[0] & 0x3f, lun[1]])).collect();
            }
        }
    }

    /// Carries out a command for LUN 0: the status, the sense data, and what was read.
    pub fn execute(&mut self, cdb: &[u8], expected_in: u32, data: &[u8]) -> (u8, Vec<u8>, Vec<u8>) {
        let mut request = ScsiRequest { expected_in, ..ScsiRequest::default() };
        request.cdb[..cdb.len()].copy_from_slice(cdb);
        if !data.is_empty() {
            request.data_out = vec![self.arena.copy(data).freeze()];
        }
        self.session.command(request).expect("the window is open");
        loop {
            if let Event::Completed { status, sense, data_in, .. } = self.event().expect("an answer") {
                return (status, sense, join(&data_in));
            }
        }
    }

    /// Reads until the daemon has hung up.
    pub fn wait_for_end(mut self) {
        while self.event().is_some() {}
    }
}

fn refused(portal: &str, wanted: Wanted) {
    match Initiator::log_in(portal, wanted) {
        Err(LoginError::Refused(_)) => {}
        Err(other) => panic!("not refused but {other:?}"),
        Ok(_) => panic!("let in"),
    }
}

pub fn sessions(place: &Place) -> Vec<serde_json::Value> {
    place.json(&["session", "list"])["items"].as_array().expect("a list").clone()
}

/// A pool with two volumes and a host that sees both.
fn tank(place: &Place) {
    place.disks();
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["host", "create", "esx1", "--iqn", "iqn.1998-01.com.VMware:ESX1"]).expect(0);
    place.run(&["volume", "create", "tank/a", "--size", "64M", "--host", "esx1"]).expect(0);
    place.run(&["project", "create", "tank/web"]).expect(0);
    place.run(&["volume", "create", "tank/web/b", "--size", "64M"]).expect(0);
    place.run(&["volume", "map", "tank/web/b", "--host", "esx1", "--lun", "5"]).expect(0);
    place.run(&["volume", "create", "tank/alone", "--size", "64M"]).expect(0);
    place.run(&["volume", "create", "tank/web/c", "--size", "64M"]).expect(0);
}

#[test]
fn a_known_host_sees_what_is_mapped_to_it_on_every_portal() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    refused(&daemon.iscsi[0], wanted(ESX1));
    tank(&place);
    refused(&daemon.iscsi[0], wanted(ESX2));
    let elsewhere = Purpose::Normal { target: "iqn.2026-11.io.forebay:other".into() };
    refused(&daemon.iscsi[0], Wanted { purpose: elsewhere, ..wanted(ESX1) });

    let mut paths: Vec<Initiator> =
        daemon.iscsi.iter().map(|portal| Initiator::named(portal, ESX1)).collect();
    for path in &mut paths {
        assert_eq!(path.luns(), [0, 5]);
    }
    let seen = sessions(&place);
    let portals: Vec<_> = seen.iter().map(|session| session["portal"].as_str().unwrap()).collect();
    assert_eq!(portals, daemon.iscsi);
    for (group, session) in (1..).zip(&seen) {
        assert_eq!((&session["host"], &session["target"]), (&"esx1".into(), &TANK.into()));
        assert_eq!(session["portal_group"], group);
        assert!(session["commands"].as_u64().unwrap() > 0, "{session}");
    }
    assert_eq!(place.json(&["host", "show", "esx1"])["status"]["sessions"], 2);
    assert!(place.run(&["session", "list"]).expect(0).out.contains(&daemon.iscsi[1]));

    // Somebody's session is ended; they may come back.
    let id = seen[0]["id"].as_str().unwrap();
    place.run(&["session", "drop", id, "--dry-run"]).expect(0);
    assert_eq!(sessions(&place).len(), 2);
    place.run(&["session", "drop", id]).expect(0);
    paths.remove(0).wait_for_end();
    place.run(&["session", "drop", "0"]).expect(3);
    place.run(&["session", "drop", "x"]).expect(3);
    assert_eq!(Initiator::named(&daemon.iscsi[0], ESX1).luns(), [0, 5]);

    // A host that is forgotten is logged out.
    place.run(&["host", "delete", "esx1", "--unmap", "--yes"]).expect(0);
    paths.remove(0).wait_for_end();
    refused(&daemon.iscsi[0], wanted(ESX1));
    daemon.stop();
}

#[test]
fn a_host_sees_the_volumes_of_its_project_as_they_come() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    let mut session = Initiator::named(&daemon.iscsi[0], ESX1);
    assert_eq!(session.luns(), [0, 5]);
    place.run(&["project", "create", "tank/db", "--host", "esx1"]).expect(0);
    for name in ["tank/db/a", "tank/db/b"] {
        place.run(&["volume", "create", name, "--size", "64M"]).expect(0);
    }
    assert_eq!(session.luns(), [0, 1, 2, 5], "nobody has mapped them");
    place.run(&["project", "set", "tank/web", "--host", "esx1"]).expect(0);
    assert_eq!(session.luns(), [0, 1, 2, 3, 5], "one was mapped by hand before, the other follows");
    place.run(&["volume", "delete", "tank/db/a", "--yes", "--force"]).expect(0);
    assert_eq!(session.luns(), [0, 2, 3, 5]);
    place.run(&["project", "set", "tank/db", "--inherit", "hosts"]).expect(0);
    assert_eq!(session.luns(), [0, 3, 5]);
    daemon.stop();
}

/// Goal: a pool that a crash left is imported read-only, read by clients of both protocols, refuses every change in words, and
/// leaves every byte of its disks as it was, over a restart too; then an import as usual finds it all.
#[test]
fn a_pool_that_is_imported_read_only_is_read_and_not_changed() {
    const BLOCK: usize = 8192;
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    let content = |block: u64| vec![block as u8 + 1; BLOCK];
    let mut nbd = Nbd::open(&daemon.nbd, "tank/a");
    (0..64).for_each(|block| nbd.write(block * BLOCK as u64, &content(block)));
    daemon.kill();
    // Another daemon, which knows of no pool.
    std::fs::remove_file(place.data().join("config")).expect("the daemon remembered its pool");
    let disks = || ["a", "b"].map(|name| std::fs::read(place.path().join(name)).expect("a disk"));
    let before = disks();
    let daemon = Daemon::start(&place);
    let import = ["pool", "import", "tank", "./a", "./b"];
    let plan = place.json(&[&import[..], &["--read-only", "--dry-run"]].concat());
    assert!(plan["changes"].to_string().contains("Nothing is written"), "{plan}");
    place.run(&[&import[..], &["--read-only"]].concat()).expect(0);
    let check = |daemon: &Daemon| {
        let pool = &place.json(&["pool", "status", "tank"])["items"][0];
        assert_eq!(
            (&pool["status"]["read_only"], &pool["status"]["state"]),
            (&true.into(), &"online".into())
        );
        assert!(place.run(&["pool", "list"]).expect(0).out.contains("read-only"));
        let mut nbd = Nbd::open(&daemon.nbd, "tank/a");
        for block in 0..64 {
            assert!(nbd.read(block * BLOCK as u64, BLOCK) == content(block), "block {block}");
        }
        assert_eq!(nbd.try_write(0, &content(9)), 1, "EPERM");
        assert!(nbd.read(0, BLOCK) == content(0));
        let mut path = Initiator::named(&daemon.iscsi[0], ESX1);
        assert_eq!(path.luns(), [0, 5]);
        // The first command is told of what changed since the last one.
        path.execute(&[0; 6], 0, &[]);
        let (status, _, mode) = path.execute(&[0x1a, 8, 8, 0, 24, 0], 24, &[]);
        assert_eq!((status, mode[2] & 0x80), (0, 0x80), "write protected");
        let (status, sense, _) = path.execute(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0, &[7; 512]);
        assert_eq!((status, sense[2] & 0xf, sense[12]), (2, 7, 0x27), "DATA PROTECT, WRITE PROTECTED");
        let (status, _, data) = path.execute(&[0x28, 0, 0, 0, 0, 16, 0, 0, 16, 0], 8192, &[]);
        assert!(status == 0 && data == content(1));
    };
    check(&daemon);
    for words in [
        &["volume", "create", "tank/c", "--size", "64M"][..],
        &["volume", "resize", "tank/a", "--size", "128M"],
        &["volume", "set", "tank/a", "--snapshot-every", "1h", "--snapshot-keep", "2"],
        &["volume", "delete", "tank/a", "--yes"],
        &["snapshot", "create", "tank/a@s"],
        &["disk", "offline", "tank/0", "--yes"],
        &["pool", "add", "tank", "c"],
        &["pool", "destroy", "tank", "--yes"],
        // It would have to be written that its hosts are its own.
        &["volume", "map", "tank/web/c", "--host", "esx1"],
    ] {
        place.run(words).expect(4).says("read-only");
        place.run(&[words, &["--dry-run"]].concat()).expect(4).says("without --read-only");
    }
    place.run(&["pool", "scrub", "tank"]).expect(4).says("read-only");
    place.run(&["pool", "trim", "tank"]).expect(4).says("read-only");
    // What is not in the pool changes.
    let luns = || Initiator::named(&daemon.iscsi[0], ESX1).luns();
    place.run(&["volume", "map", "tank/alone", "--host", "esx1"]).expect(0);
    assert_eq!(luns(), [0, 1, 5]);
    place.run(&["project", "set", "tank/web", "--host", "esx1"]).expect(0);
    assert_eq!(luns(), [0, 1, 2, 5]);
    place.run(&["project", "set", "tank/web", "--inherit", "hosts"]).expect(0);
    place.run(&["volume", "unmap", "tank/alone", "--host", "esx1"]).expect(0);
    assert_eq!(luns(), [0, 5]);
    daemon.kill();

    let daemon = Daemon::start(&place);
    check(&daemon);
    place.run(&["pool", "export", "tank"]).expect(0);
    for (name, (before, now)) in ["a", "b"].iter().zip(before.iter().zip(disks())) {
        assert!(*before == now, "disk {name} is not as it was");
    }
    place.run(&import).expect(0);
    let mut nbd = Nbd::open(&daemon.nbd, "tank/a");
    assert!((0..64).all(|block| nbd.read(block * BLOCK as u64, BLOCK) == content(block)));
    nbd.write(0, &content(9));
    daemon.stop();
}

/// Goal: a volume that a host is logged in to is not put back under it, unless that is meant; then the host reads what was.
#[test]
fn a_volume_that_a_host_uses_is_put_back_only_by_force() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    place.run(&["volume", "create", "tank/c", "--size", "64M"]).expect(0);
    place.run(&["snapshot", "create", "tank/a@s", "tank/c@s"]).expect(0);
    place.run(&["volume", "resize", "tank/a", "--size", "128M"]).expect(0);
    let mut path = Initiator::named(&daemon.iscsi[0], ESX1);
    // The first command is told of what changed since the last one.
    path.execute(&[0; 6], 0, &[]);
    let (status, ..) = path.execute(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0, &[7; 512]);
    assert_eq!(status, 0, "WRITE(10)");
    let words = ["snapshot", "rollback", "tank/a@s", "--yes"];
    place.run(&words).expect(5).says("host esx1 (iSCSI session").says("--force");
    // It does not see this one, though it is in the same pool.
    place.run(&["snapshot", "rollback", "tank/c@s", "--yes"]).expect(0);
    place.run(&[&words[..], &["--force"]].concat()).expect(0);
    // READ CAPACITY(10), once it was told that the capacity has changed.
    let mut capacity = || path.execute(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8, &[]);
    let answer = match capacity() {
        (0, _, data) => data,
        _ => capacity().2,
    };
    assert_eq!(u32::from_be_bytes(answer[..4].try_into().unwrap()), (64 << 20) / 512 - 1);
    let (status, _, data) = path.execute(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512, &[]);
    assert!(status == 0 && data == [0; 512], "the old contents");
    daemon.stop();
}

/// Goal: what a host gets at most holds over all its sessions together, also for who waits already, and what asks for nothing on the medium does not
/// wait.
#[test]
fn a_ceiling_of_a_host_is_one_for_all_its_paths() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    place.run(&["host", "set", "esx1", "--max-iops", "9"]).expect(2).says("max_iops");
    place.run(&["host", "set", "esx1", "--max-iops", "20"]).expect(0);
    assert!(place.run(&["host", "show", "esx1"]).expect(0).out.contains("limit       20 IOPS\n"));
    // WRITE(10) of the first block, so many times.
    let write = |nth: usize, count: u32| {
        let portal = daemon.iscsi[nth].clone();
        std::thread::spawn(move || {
            let mut wanted = wanted(ESX1);
            wanted.isid[5] = nth as u8;
            let mut path = Initiator::log_in(&portal, wanted).expect("a login");
            path.execute(&[0; 6], 0, &[]);
            for _ in 0..count {
                let (status, ..) = path.execute(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0, &[7; 512]);
                assert_eq!(status, 0, "WRITE(10)");
            }
        })
    };
    let begun = Instant::now();
    let both = [write(0, 20), write(1, 20)];
    both.into_iter().for_each(|path| path.join().expect("the writes go on"));
    let held = begun.elapsed();
    assert!(held > Duration::from_millis(1800) && held < Duration::from_secs(15), "{held:?}");

    // At 20 a second these would take half a minute.
    let begun = Instant::now();
    let waiting = write(0, 600);
    std::thread::sleep(Duration::from_millis(500));
    // What asks for nothing on the medium does not wait for it.
    assert_eq!(Initiator::named(&daemon.iscsi[1], ESX1).luns(), [0, 5]);
    assert!(!waiting.is_finished());
    place.run(&["host", "set", "esx1", "--max-iops", "none"]).expect(0);
    waiting.join().expect("the writes go on");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(place.run(&["host", "show", "esx1"]).expect(0).out.contains("limit       -\n"));
    daemon.stop();
}

#[test]
fn what_is_mapped_follows_volumes_and_pools() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    let portal = &daemon.iscsi[0];
    let luns = || Initiator::named(portal, ESX1).luns();
    assert_eq!(luns(), [0, 5]);
    place.run(&["volume", "create", "tank/c", "--size", "64M", "--host", "esx1"]).expect(0);
    assert_eq!(luns(), [0, 1, 5]);
    place.run(&["volume", "unmap", "tank/a", "--host", "esx1"]).expect(0);
    assert_eq!(luns(), [1, 5]);
    place.run(&["volume", "delete", "tank/c", "--force", "--yes"]).expect(0);
    assert_eq!(luns(), [5]);
    place.run(&["volume", "resize", "tank/web/b", "--size", "128M"]).expect(0);
    assert_eq!(luns(), [5]);

    // A pool that leaves takes its volumes along, and brings them back under their numbers.
    place.run(&["pool", "export", "tank"]).expect(0);
    refused(portal, wanted(ESX1));
    let waiting = &place.json(&["host", "show", "esx1"])["status"]["volumes"];
    assert_eq!(waiting, 1, "the mapping waits");
    assert!(place.run(&["host", "show", "esx1"]).expect(0).out.contains("pool not imported"));
    place.run(&["pool", "import", "tank", "./a", "./b"]).expect(0);
    assert_eq!(luns(), [5]);
    daemon.kill();

    let daemon = Daemon::start(&place);
    assert_eq!(Initiator::named(&daemon.iscsi[1], ESX1).luns(), [5]);
    // The end of the pool is the end of its mappings.
    place.run(&["pool", "destroy", "tank", "--yes"]).expect(0);
    assert_eq!(place.json(&["host", "show", "esx1"])["status"]["volumes"], 0);
    place.run(&["host", "delete", "esx1"]).expect(0);
    daemon.stop();
}

#[test]
fn who_has_a_secret_must_know_it() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    let portal = &daemon.iscsi[0];
    std::fs::write(place.path().join("ours"), "the target's own one\n").unwrap();
    let words = ["host", "set", "esx1", "--chap", "esx1", "--mutual", "tank", "--mutual-secret-file", "ours"];
    place.run_with(&words, "the host's own secret\n").expect(0);

    refused(portal, wanted(ESX1));
    let knows = |secret: &str| Wanted { credentials: Some(credentials("esx1", secret)), ..wanted(ESX1) };
    refused(portal, knows("another secret"));
    assert_eq!(Initiator::log_in(portal, knows("the host's own secret")).unwrap().luns(), [0, 5]);
    let challenge = || Challenge { id: 7, bytes: [3; CHALLENGE_LEN] };
    let asks = |secret: &str| Wanted {
        target: Some((credentials("tank", secret), challenge())),
        ..knows("the host's own secret")
    };
    assert!(Initiator::log_in(portal, asks("the target's own one")).is_ok());
    assert!(Initiator::log_in(portal, asks("somebody else's one")).is_err(), "the target proves itself");
    // For discovery, too.
    refused(portal, Wanted { purpose: Purpose::Discovery, ..wanted(ESX1) });
    let discovery = Wanted { purpose: Purpose::Discovery, ..knows("the host's own secret") };
    assert!(Initiator::log_in(portal, discovery).is_ok());

    // What was set is nowhere to be seen.
    let shown = [&["host", "show", "esx1", "--json"][..], &["host", "list"], &["event", "list", "--json"]];
    for words in shown {
        let out = place.run(words).expect(0).out;
        assert!(!out.contains("own secret") && !out.contains("own one"), "{out}");
    }
    place.run(&["host", "set", "esx1", "--no-chap"]).expect(0);
    Initiator::named(portal, ESX1);
    daemon.stop();
}

/// Goal: one request of an initiator that has shown nothing ended the daemon: unknown keys, each answered with more bytes than it had.
/// It is refused under every name, and the daemon goes on.
#[test]
fn a_login_that_asks_for_too_many_keys_does_not_end_the_daemon() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    let mut path = Initiator::named(&daemon.iscsi[0], ESX1);
    for (initiator, purpose) in
        [(ESX1, format!("SessionType=Normal\0TargetName={TANK}\0")), (ESX2, "SessionType=Discovery\0".into())]
    {
        let mut text = format!("InitiatorName={initiator}\0{purpose}").into_bytes();
        while text.len() < 8000 {
            text.extend(b"x=\0");
        }
        let (arena, mut output) = (Arena::new(), Output::new(false, false));
        let header = LoginRequest { flags: 1, isid: [9; 6], ..LoginRequest::default() };
        output.bytes(header.encode().immediate(), &text);
        let mut stream = TcpStream::connect(&daemon.iscsi[1]).expect("the daemon listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream.write_all(&join(&output.take_batch(&arena))).expect("the daemon reads");
        let mut answer = [0; 48];
        stream.read_exact(&mut answer).expect("the daemon refuses it in words");
        assert_eq!((answer[0], answer[36]), (0x23, 2), "a login response: an initiator's error");
    }
    assert_eq!(path.luns(), [0, 5]);
    daemon.stop();
}

/// Goal: a host without a secret is warned of where other machines reach the port: at the start, in an event, and in an alert until it has one.
#[test]
fn hosts_without_a_secret_are_warned_of_where_others_reach_them() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    let alerts = |place: &Place| place.run(&["alert", "list", "--json"]).expect(0).out;
    let events = |place: &Place| place.run(&["event", "list", "--json"]).expect(0).out;
    assert!(!alerts(&place).contains("host.without_secret"), "other machines do not reach loopback");
    daemon.stop();
    // Nothing is sent there.
    let serve = ["--listen", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--iscsi", "0.0.0.0:0"];
    let beyond = [&serve[..], &["--iscsi-chap-minimum", "sha256"]].concat();
    let mut daemon = Daemon::start_with(&place, "serve", &beyond);
    let line = daemon.line();
    assert!(line.contains("warning: host esx1 can log in with the initiator name alone"), "{line}");
    assert!(alerts(&place).contains("host.without_secret:esx1"));
    assert!(events(&place).contains("iscsi.host.without_secret"));
    place.run_with(&["host", "set", "esx1", "--chap", "esx1"], "the host's own secret\n").expect(0);
    assert!(!alerts(&place).contains("host.without_secret"));
    // And MD5 proves no secret here.
    let portal = daemon.iscsi[0].replace("0.0.0.0", "127.0.0.1");
    let knows = Wanted { credentials: Some(credentials("esx1", "the host's own secret")), ..wanted(ESX1) };
    refused(&portal, Wanted { algorithms: "5", ..knows.clone() });
    assert_eq!(Initiator::log_in(&portal, knows).expect("with SHA-256").luns(), [0, 5]);
    daemon.stop();
}

/// A host goes on over its session, at the target where it is logged in, and is told of nothing.
#[test]
fn a_host_goes_on_while_its_volume_moves() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    ["c", "d"].iter().for_each(|name| drop(place.disk(name, 256 << 20)));
    place.run(&["pool", "create", "vault", "--layout", "mirror", "c", "d"]).expect(0);
    let mut path = Initiator::named(&daemon.iscsi[0], ESX1);
    // The first command is told of what changed since the last one.
    path.execute(&[0; 6], 0, &[]);
    let register = [&[0; 8][..], &[7; 8], &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
    // PERSISTENT RESERVE OUT, REGISTER, to outlive a loss of power; then RESERVE, write exclusive.
    assert_eq!(path.execute(&[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], 0, &register).0, 0);
    let reserve = [&[7; 8][..], &[0; 16]].concat();
    assert_eq!(path.execute(&[0x5f, 1, 1, 0, 0, 0, 0, 0, 24, 0], 0, &reserve).0, 0);
    for block in 0..16u8 {
        let cdb = [0x2a, 0, 0, 0, 0, block, 0, 0, 1, 0];
        assert_eq!(path.execute(&cdb, 0, &[block + 1; 512]).0, 0, "WRITE(10)");
        if block == 7 {
            place.run(&["volume", "move", "tank/a", "vault"]).expect(0);
        }
    }
    for block in 0..16u8 {
        let (status, sense, data) = path.execute(&[0x28, 0, 0, 0, 0, block, 0, 0, 1, 0], 512, &[]);
        assert!(status == 0 && data == [block + 1; 512], "block {block}: {sense:?}");
    }
    assert_eq!(place.run(&["volume", "unmap", "vault/b", "--host", "esx1"]).code, Some(3));
    let luns = || Initiator::named(&daemon.iscsi[0], ESX1).luns();
    assert_eq!(luns(), [0, 5]);
    daemon.kill();

    // The mapping and the reservation are those of the volume, wherever it is.
    let daemon = Daemon::start(&place);
    let mut path = Initiator::named(&daemon.iscsi[0], ESX1);
    path.execute(&[0; 6], 0, &[]);
    // PERSISTENT RESERVE IN, READ RESERVATION.
    let (status, _, data) = path.execute(&[0x5e, 1, 0, 0, 0, 0, 0, 0, 24, 0], 24, &[]);
    assert!(status == 0 && data[8..16] == [7; 8], "{data:?}");
    place.run(&["pool", "destroy", "tank", "--yes"]).expect(5).says("esx1").says("--force");
    place.run(&["pool", "export", "tank"]).expect(5).says("--force");
    place.run(&["pool", "destroy", "tank", "--yes", "--force"]).expect(0);
    // It is told that the other volume is no longer there.
    path.execute(&[0; 6], 0, &[]);
    assert_eq!(path.execute(&[0x28, 0, 0, 0, 0, 3, 0, 0, 1, 0], 512, &[]).2, [4; 512]);
    daemon.stop();
}
