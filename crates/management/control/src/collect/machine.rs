//! What the machine does, as the kernel tells it in /proc and /sys: processor time and memory of this process, and physical network ports.
//!
//! A bond, a bridge or a VLAN counts what goes through its members once more, so only ports with a device behind them are asked (an old appliance of
//! this field counted bonds *and* members, and told twice the truth). What cannot be read is left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Ticks of a second in /proc: a constant of Linux's interface to programs.
const TICKS: u64 = 100;
/// More ports than a machine has.
const PORTS_MAX: usize = 64;

/// Since it was last looked.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Thousandths of a core in a second, by part.
    pub cpu: Option<[(&'static str, u64); 2]>,
    pub memory_bytes: Option<u64>,
    /// Of each port, what came in and went out: bytes and packets.
    pub ports: BTreeMap<String, [(u64, u64); 2]>,
}

#[derive(Default)]
pub struct Machine {
    /// Ticks in user and system mode.
    ticks: Option<(u64, u64)>,
    ports: BTreeMap<String, [(u64, u64); 2]>,
}

impl Machine {
    /// What was since the last look, a second ago.
    pub fn look(&mut self) -> Seen {
        let ticks = fs::read_to_string("/proc/self/stat").ok().and_then(|text| ticks_of(&text));
        let cpu = ticks.zip(self.ticks).map(|(now, before)| {
            let used = |now: u64, before: u64| now.saturating_sub(before) * 1000 / TICKS;
            [("user", used(now.0, before.0)), ("system", used(now.1, before.1))]
        });
        self.ticks = ticks;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ports = ports(Path::new("/sys/class/net"));
        let before = std::mem::replace(&mut self.ports, ports.clone());
        let since = |(name, now): (String, [(u64, u64); 2])| {
            let before = before.get(&name)?;
            let less = |way: usize| {
                (now[way].0.saturating_sub(before[way].0), now[way].1.saturating_sub(before[way].1))
            };
            Some((name, [less(0), less(1)]))
        };
        Seen { cpu, memory_bytes: resident(&status), ports: ports.into_iter().filter_map(since).collect() }
    }
}

/// Ticks in user and system mode, of a text like that of `/proc/self/stat`: fields 14 and 15; the second, in parentheses, may contain anything.
fn ticks_of(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Resident memory in bytes.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn ports(class: &Path) -> BTreeMap<String, [(u64, u64); 2]> {
    let Ok(entries) = fs::read_dir(class) else { return BTreeMap::new() };
    let physical = entries.flatten().filter(|entry| entry.path().join("device").exists());
    let count = |port: &Path, name: &str| -> Option<u64> {
        fs::read_to_string(port.join("statistics").join(name)).ok()?.trim().parse().ok()
    };
    let counts = |port: &Path| {
        Some([
            (count(port, "rx_bytes")?, count(port, "rx_packets")?),
            (count(port, "tx_bytes")?, count(port, "tx_packets")?),
        ])
    };
    let named = physical
        .take(PORTS_MAX)
        .filter_map(|entry| Some((entry.file_name().to_string_lossy().into_owned(), counts(&entry.path())?)));
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_words_are_understood() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 5 0 300 1000 200";
        assert_eq!(ticks_of(stat), Some((250, 50)));
        assert_eq!((ticks_of("7 (a) S 1"), ticks_of("")), (None, None));
        assert_eq!(resident("Name:\ta\nVmRSS:\t  12 kB\n"), Some(12 << 10));
        assert_eq!(resident("VmRSS: lots"), None);
    }

    #[test]
    fn only_ports_with_a_device_are_counted_and_only_what_is_new() {
        let class = crate::test_directory();
        for (name, is_physical) in [("eth0", true), ("bond0", false)] {
            let port = class.path().join(name);
            fs::create_dir_all(port.join("statistics")).unwrap();
            for (file, value) in [("rx_bytes", 1000), ("rx_packets", 10), ("tx_bytes", 20), ("tx_packets", 2)]
            {
                fs::write(port.join("statistics").join(file), format!("{value}\n")).unwrap();
            }
            if is_physical {
                fs::create_dir(port.join("device")).unwrap();
            }
        }
        let found = ports(class.path());
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("eth0".to_string(), [(1000, 10), (20, 2)])]);
        assert!(ports(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn a_process_that_computes_is_seen_to() {
        let mut machine = Machine::default();
        assert_eq!(machine.look().cpu, None, "there is no second before the first look");
        // However busy the machine is: until it has had some ticks.
        let mut used = 0;
        let mut seen = Seen::default();
        while used < 50 {
            for nth in 0..2_000_000u64 {
                std::hint::black_box(nth);
            }
            seen = machine.look();
            used += seen.cpu.expect("it was looked before").iter().map(|(_, used)| used).sum::<u64>();
        }
        assert!(seen.memory_bytes.unwrap() > 100_000);
    }
}
