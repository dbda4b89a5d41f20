//! Is a service manager told the truth: ready when clients are served, alive while the daemon is, stopping when it stops?
//!
//! Method: a datagram socket of ours is the manager. What it is told when a part of the daemon hangs is tested beside the code.

use crate::common::{Daemon, PATIENCE, Place, program};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

struct Manager {
    socket: UnixDatagram,
    path: String,
}

impl Manager {
    fn new(place: &Place) -> Manager {
        let path = place.path().join("notify").display().to_string();
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager { socket, path }
    }

    /// A daemon that knows of it, and whose watchdog expects a word in this time.
    fn command(&self, watchdog: Duration) -> Command {
        let mut command = program();
        command.env("NOTIFY_SOCKET", &self.path).env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        command
    }

    fn notice(&self) -> String {
        let mut notice = [0; 4096];
        let len = self.socket.recv(&mut notice).expect("the daemon says something");
        String::from_utf8(notice[..len].to_vec()).unwrap()
    }

    fn wait_for(&self, words: &str) -> String {
        loop {
            let notice = self.notice();
            if notice.lines().any(|line| line.starts_with(words)) {
                return notice;
            }
        }
    }
}

#[test]
fn the_manager_is_told_of_start_life_and_stop() {
    let place = Place::new();
    let manager = Manager::new(&place);
    let mut daemon = Daemon::start_by(&place, manager.command(Duration::from_secs(2)));
    assert_eq!(manager.notice(), "STATUS=Importing pools");
    let ready = manager.notice();
    assert!(ready.starts_with("READY=1\nSTATUS=Ready, API http://127.0.0.1:"), "{ready}");
    // Who was told that it is ready can connect.
    daemon.ask("GET", "/", &[], None);
    for _ in 0..3 {
        assert_eq!(manager.notice(), "WATCHDOG=1");
    }
    daemon.signal(Signal::TERM);
    manager.wait_for("STOPPING=1");
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn a_manager_that_is_not_there_keeps_nobody_from_being_served() {
    let place = Place::new();
    let mut command = program();
    command.env("NOTIFY_SOCKET", place.path().join("nobody"));
    let daemon = Daemon::start_by(&place, command);
    place.run(&["pool", "list"]).expect(0);
    daemon.stop();
}
