//! Fuzz targets for everything that parses what others wrote: peers' bytes now, disks' sectors beside them.
//!
//! A target is a function from bytes to nothing that panics when something is wrong: a crash, a broken
//! invariant, or two ways of doing the same that differ. [`TARGETS`] is the one list of them. `tests/smoke.rs`
//! runs each over its corpus (`corpus/NAME/`) and over seeded mutations of it with the stable toolchain, in
//! seconds. `libfuzzer/` has one line per target for `cargo +nightly fuzz`, which searches for as long as one lets it;
//! `make fuzz` runs that. What it finds goes into the corpus, so that it stays found.
//!
//! To add a target: a function here, a line in [`TARGETS`], a file in `libfuzzer/fuzz_targets`, a seed in `corpus`.

mod analytics;
mod disk;
mod iscsi;
mod nbd;
mod negotiation;
mod scsi;
mod stream;

use forebay_base::Random;

/// One thing to fuzz.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

pub const TARGETS: &[Target] = &[
    Target { name: "nbd_handshake", run: nbd::handshake },
    Target { name: "nbd_transmission", run: nbd::transmission },
    Target { name: "nbd_sequence", run: nbd::sequence },
    Target { name: "nbd_replies", run: nbd::replies },
    Target { name: "iscsi_pdus", run: iscsi::pdus },
    Target { name: "iscsi_text", run: iscsi::text },
    Target { name: "iscsi_login", run: iscsi::login },
    Target { name: "iscsi_chap", run: negotiation::chap },
    Target { name: "iscsi_keys", run: negotiation::keys },
    Target { name: "iscsi_session", run: iscsi::session },
    Target { name: "iscsi_initiator", run: iscsi::initiator },
    Target { name: "scsi_cdb", run: scsi::cdb },
    Target { name: "scsi_commands", run: scsi::commands },
    Target { name: "scsi_reservations", run: scsi::reservations },
    Target { name: "disk_label", run: disk::label },
    Target { name: "disk_superblock", run: disk::superblock },
    Target { name: "disk_log", run: disk::log },
    Target { name: "disk_chunk", run: disk::chunk },
    Target { name: "disk_node", run: disk::node },
    Target { name: "disk_cache", run: disk::cache },
    Target { name: "snapshot_stream", run: stream::stream },
    Target { name: "analytics_expression", run: analytics::expression },
];

/// Runs the target of this name. Panics when there is none.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    (target.run)(data);
}

/// A variation of one or two members of `corpus`, as a function of the generator's state.
pub fn mutate(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let pick = |random: &mut Random| corpus[random.below(corpus.len() as u64) as usize].clone();
    let mut data = pick(random);
    for _ in 0..=random.below(4) {
        let at = random.below(data.len() as u64 + 1) as usize;
        match random.below(7) {
            0 => data.truncate(at),
            1 => data.insert(at, random.next_u64() as u8),
            2 if at < data.len() => data[at] ^= 1 << random.below(8),
            3 if at < data.len() => data[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
            4 => {
                let other = pick(random);
                let from = random.below(other.len() as u64 + 1) as usize;
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
            5 => {
                let end = (at + 1 + random.below(32) as usize).min(data.len());
                let repeated = data[at..end].to_vec();
                data.splice(at..at, repeated);
            }
            _ => {
                let len = (1usize << random.below(4)).min(data.len() - at);
                random.fill(&mut data[at..at + len]);
            }
        }
        // Inputs grow from round to round of splicing; what is interesting is short.
        data.truncate(64 << 10);
    }
    data
}
