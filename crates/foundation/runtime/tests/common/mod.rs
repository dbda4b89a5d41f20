//! What the tests of the ring share: a directory that goes away, recognisable contents.

// Each test program uses its part of this.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory on a real file system (direct I/O on tmpfs tests little), removed with its contents, also on failure.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        Scratch::in_directory("/var/tmp")
    }

    pub fn in_directory(parent: &str) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(parent).join(format!("forebay-runtime-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a fresh directory");
        Scratch(path)
    }

    /// A sparse file of `size` bytes.
    pub fn file(&self, name: &str, size: u64) -> String {
        let path = self.0.join(name);
        std::fs::File::create(&path).and_then(|file| file.set_len(size)).expect("a sparse file");
        path.to_str().expect("an ASCII path").to_owned()
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The ignored test `name` of this program, to be run in a process of its own.
pub fn child(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args([name, "--exact", "--ignored", "--nocapture"]).stdout(Stdio::piped());
    command
}

/// The contents that belong at byte `at` in `version`: every 8 bytes tell where they should be.
pub fn fill(bytes: &mut [u8], at: u64, version: u64) {
    for (index, word) in bytes.chunks_mut(8).enumerate() {
        let value = (at + 8 * index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version;
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
}

/// The first place where `bytes` are not what [`fill`] makes.
pub fn wrong_at(bytes: &[u8], at: u64, version: u64) -> Option<usize> {
    let mut expected = vec![0; bytes.len()];
    fill(&mut expected, at, version);
    (0..bytes.len()).find(|&index| bytes[index] != expected[index])
}
