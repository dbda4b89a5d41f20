//! The guest: a Linux in QEMU that does what it is told, one command at a time.
//!
//! QEMU emulates the processor in software, so the guest runs wherever the tests do; it is some ten times slower than
//! the machine. Its network is QEMU's own (the host's loopback addresses are 10.0.2.2 in it), so that nothing of
//! this machine's network is touched. Its console goes to a file; commands and answers go through a virtio port, a socket
//! here, so that what the kernel says at any moment does not get between them.
//!
//! Everything has a limit: a command that does not end in time fails the test, and QEMU ends with the value.

use super::image::Image;
use crate::host::{Context, Directory, Outcome, Process, command};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// It takes 15 s on two slow cores that do nothing else.
const BOOT_LIMIT: Duration = Duration::from_secs(600);
/// For what takes a second on a machine, emulated and beside other work.
const COMMAND_LIMIT: Duration = Duration::from_secs(600);
/// The 40 MiB that fio and its libraries need, an archive of 120 MiB twice while it is unpacked, file caches.
const MEMORY_MIB: u32 = 1024;
/// What comes before an answer's status: no tool prints it.
const MARK: u8 = 1;

pub struct Machine {
    process: Process,
    control: UnixStream,
    console: PathBuf,
    /// What has been read of the next answer.
    pending: Vec<u8>,
}

impl Machine {
    /// Boots it; returns when it takes commands.
    pub fn start(image: &Image, directory: &Directory) -> Outcome<Machine> {
        let socket = directory.join("control");
        let console = directory.join("console.log");
        let mut qemu = command("qemu-system-x86_64");
        qemu.args(["-accel", "tcg", "-cpu", "max", "-m", &MEMORY_MIB.to_string()]);
        qemu.args(["-nodefaults", "-display", "none", "-no-reboot", "-nic", "user,model=virtio-net-pci"]);
        qemu.arg("-serial").arg(format!("file:{}", console.display()));
        qemu.arg("-chardev").arg(format!("socket,id=control,server=on,wait=off,path={}", socket.display()));
        qemu.args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=control"]);
        qemu.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initramfs);
        // A panic ends the guest, so that it is noticed at once.
        qemu.args(["-append", "console=ttyS0 loglevel=6 panic=-1 oops=panic mitigations=off"]);
        let mut process = Process::start(&mut qemu, &directory.join("qemu.log"))?;
        let control = process.wait_for("QEMU", BOOT_LIMIT, || UnixStream::connect(&socket).ok())?;
        let mut machine = Machine { process, control, console, pending: Vec::new() };
        let (_, said) = machine.answer("the guest's start", BOOT_LIMIT)?;
        if said == "ready" { Ok(machine) } else { Err(machine.failed(&format!("the guest says {said:?}"))) }
    }

    /// Runs a line of shell to its end; what it printed, both streams together. Fails when its status is not 0.
    pub fn run(&mut self, line: &str) -> Outcome<String> {
        let (status, printed) = self.run_any(line)?;
        if status == 0 {
            return Ok(printed);
        }
        Err(self.failed(&format!("in the guest `{line}` failed ({status}):\n{}", printed.trim_end())))
    }

    /// The same, with the status as part of the answer.
    pub fn run_any(&mut self, line: &str) -> Outcome<(i32, String)> {
        assert!(!line.contains('\n'), "a command is one line");
        self.control.write_all(format!("{line}\n").as_bytes()).context("telling the guest")?;
        let (printed, status) = self.answer(line, COMMAND_LIMIT)?;
        let status = status.parse().context(format!("the guest's answer to `{line}`"))?;
        Ok((status, printed))
    }

    /// Repeats a command until `done` accepts what it prints.
    pub fn wait_for(&mut self, line: &str, what: &str, done: impl Fn(&str) -> bool) -> Outcome<String> {
        let deadline = Instant::now() + COMMAND_LIMIT;
        loop {
            let (_, printed) = self.run_any(line)?;
            if done(&printed) {
                return Ok(printed);
            }
            if Instant::now() > deadline {
                return Err(
                    self.failed(&format!("{what}: not within {COMMAND_LIMIT:?}; `{line}`:\n{printed}"))
                );
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The disk that a link leads to, once it does.
    pub fn device(&mut self, link: &str) -> Outcome<String> {
        let line = format!("readlink -f {link}");
        let device = self.wait_for(&line, link, |printed| printed.starts_with("/dev/sd"))?;
        Ok(device.trim().to_owned())
    }

    /// Switches it off.
    pub fn stop(mut self) -> Outcome {
        self.control.write_all(b"sync; poweroff -f\n").context("telling the guest")?;
        self.control.set_read_timeout(Some(COMMAND_LIMIT)).context("a limit")?;
        let mut rest = Vec::new();
        self.control.read_to_end(&mut rest).context("the guest does not switch itself off")?;
        Ok(())
    }

    /// `failure` with what the guest's console shows last.
    pub fn failed(&self, failure: &str) -> String {
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(40)..].join("\n");
        format!("{failure}\n--- end of the guest's console ---\n{tail}")
    }

    /// Everything up to the mark, and the line after it.
    fn answer(&mut self, to: &str, limit: Duration) -> Outcome<(String, String)> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(answer) = take_answer(&mut self.pending) {
                return Ok(answer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let so_far = String::from_utf8_lossy(&self.pending).into_owned();
                return Err(self.failed(&format!("{to}: no answer within {limit:?}; so far: {so_far}")));
            }
            self.control.set_read_timeout(Some(left)).context("a limit")?;
            let mut part = [0; 4096];
            match self.control.read(&mut part) {
                Ok(0) => {
                    let log = self.process.log_tail();
                    return Err(self.failed(&format!("{to}: QEMU has ended\n{log}")));
                }
                Ok(length) => self.pending.extend_from_slice(&part[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(self.failed(&format!("{to}: {error}"))),
            }
        }
    }
}

/// Takes a whole answer off the front: what was printed, and the line after the mark.
fn take_answer(pending: &mut Vec<u8>) -> Option<(String, String)> {
    let mark = pending.iter().position(|&byte| byte == MARK)?;
    let end = mark + pending[mark..].iter().position(|&byte| byte == b'\n')?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut printed = text(&pending[..mark]);
    // The line break before the mark is the agent's.
    if printed.ends_with('\n') {
        printed.pop();
    }
    let line = text(&pending[mark + 1..end]);
    pending.drain(..=end);
    Some((printed, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_when_it_is_whole() {
        let mut pending = b"two\nlines\n\n\x01".to_vec();
        assert_eq!(take_answer(&mut pending), None);
        pending.extend_from_slice(b"0\nnext");
        assert_eq!(take_answer(&mut pending), Some(("two\nlines\n".into(), "0".into())));
        assert_eq!(pending, b"next");
    }
}
