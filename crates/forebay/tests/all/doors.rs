//! Where NBD listens, and what strangers at one listener can take from the others: nothing.
//!
//! Method: the real daemon, with few open files where that matters; strangers are connections that say nothing, agree and say
//! nothing, or stop in the middle of a request.

use crate::common::{Daemon, Finished, Nbd, PATIENCE, Place, program};
use crate::iscsi::Initiator;
use forebay_nbd::Style;
use forebay_nbd::client::RequestHeader;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

const HOST: &str = "iqn.1998-01.com.vmware:esx1";

fn create(place: &Place) {
    let [a, b] = place.disks();
    place.run(&["pool", "create", "tank", "--layout", "mirror", &a, &b]).expect(0);
    place.run(&["volume", "create", "tank/a", "--size", "64M"]).expect(0);
}

#[test]
fn nbd_can_be_off() {
    let place = Place::new();
    let daemon = Daemon::start_nbd(&place, "off");
    assert_eq!(daemon.nbd, "");
    create(&place);
    let token = place.json(&["token", "create", "a", "--role", "viewer"]);
    let server = daemon.api(token["secret"].as_str().expect("a secret")).get("/api/v1/server").json();
    assert!(server.get("nbd").is_none() && server["iscsi"].is_array(), "{server}");
    daemon.stop();
}

#[test]
fn nbd_can_listen_for_the_owner_alone() {
    let place = Place::new();
    let path = place.path().join("nbd.sock");
    let at = format!("unix:{}", path.display());
    let daemon = Daemon::start_nbd(&place, &at);
    assert_eq!(daemon.nbd, at);
    create(&place);
    assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    let open = || Nbd::over(UnixStream::connect(&path).expect("it listens"), "tank/a");
    let mut nbd = open();
    nbd.write(0, &[7; 4096]);
    assert_eq!(open().read(0, 4096), [7; 4096]);
    // Nobody's file is replaced, and no other daemon's socket.
    let other = Place::new();
    let refused = |at: &str, why: &str| {
        let mut command = program();
        command.args(["serve", "--listen", "127.0.0.1:0", "--iscsi", "127.0.0.1:0", "--memory", "64M"]);
        command.args(["--nbd", at, "--data"]).arg(other.data());
        let refused = Finished::of(command, &["serve", "--nbd", at]);
        assert_ne!(refused.code, Some(0));
        refused.says(why).says("--nbd off");
    };
    refused(&at, "cannot listen for NBD: Address already in use");
    let file = place.path().join("file");
    std::fs::write(&file, "x").expect("a file can be written");
    refused(&format!("unix:{}", file.display()), "cannot listen for NBD: File exists");
    assert_eq!(std::fs::read(&file).expect("it is there"), b"x");
    assert_eq!(nbd.read(0, 4096), [7; 4096]);
    // A killed daemon's socket is.
    daemon.kill();
    let daemon = Daemon::start_nbd(&place, &at);
    assert_eq!(open().read(0, 4096), [7; 4096]);
    daemon.stop();
}

/// 1100 strangers at NBD, where 1024 files may be open: the API, the owner's socket, iSCSI and NBD go on.
#[test]
fn strangers_at_nbd_do_not_take_the_descriptors_of_others() {
    let wanted = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: wanted.maximum, ..wanted };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised)
        .expect("up to its maximum it may be raised");
    let place = Place::new();
    let daemon = Daemon::start_with_files(&place, 1024);
    create(&place);
    place.run(&["host", "create", "esx1", "--iqn", HOST]).expect(0);
    place.run(&["volume", "map", "tank/a", "--host", "esx1"]).expect(0);
    let events = place.run(&["event", "list"]).expect(0).out;
    assert!(events.contains("NBD and iSCSI admit 128 clients each"), "{events}");
    let mut known = Nbd::open(&daemon.nbd, "tank/a");
    known.write(0, &[1; 4096]);
    let mut silent: Vec<TcpStream> =
        (0..1100).map(|_| TcpStream::connect(&daemon.nbd).expect("it listens")).collect();
    let still_served = |known: &mut Nbd| {
        assert_eq!(known.read(0, 4096), [1; 4096]);
        assert_eq!(Nbd::open(&daemon.nbd, "tank/a").read(0, 4096), [1; 4096]);
        assert_eq!(Initiator::named(&daemon.iscsi[0], HOST).luns(), [0]);
        assert_eq!(daemon.http("GET /api/v1/setup HTTP/1.1", b"").status, 200);
        place.run(&["volume", "list"]).expect(0);
    };
    still_served(&mut known);
    // The oldest were sent away; the newest have their places.
    for stream in &mut silent[..1000] {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        assert!(stream.read_to_end(&mut Vec::new()).is_ok(), "it is ended");
    }
    drop(silent);
    // The same of clients that agreed, and stop in the middle of a write: they have taken no answer.
    let mut half = Vec::new();
    RequestHeader { flags: 0, kind: 1, cookie: 1, offset: 0, len: 32 << 20 }.encode(Style::Simple, &mut half);
    half.resize(100_000, 5);
    let mut greedy: Vec<Nbd> = (0..200)
        .map(|_| {
            let mut client = Nbd::open(&daemon.nbd, "tank/a");
            client.stream.write_all(&half).expect("the server reads");
            client
        })
        .collect();
    still_served(&mut known);
    for client in &mut greedy[..100] {
        assert_eq!(client.stream.read(&mut [0]).unwrap_or(0), 0, "it has made room");
    }
    drop(greedy);
    daemon.stop();
}
