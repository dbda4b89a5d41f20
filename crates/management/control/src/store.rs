//! What the daemon remembers in a file of its own that is replaced whole with each change, so that a crash leaves the state before or after it.
//!
//! A change is a function on the content; what it leaves must satisfy [`Kept::check`], or nothing changes. A dry run applies the same function and the
//! same check to a copy, so it refuses what the real thing would refuse.

use crate::directory::{DataDir, FILE_BYTES_MAX};
use forebay_api::{Code, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, MutexGuard};

/// The content of such a file.
pub trait Kept: Clone + Default + PartialEq + Serialize + DeserializeOwned {
    const FILE: &'static str;
    const VERSION: u32;
    /// What it is a list of: `hosts`.
    const WHAT: &'static str;
    /// What to do about a file that cannot be used.
    const REMEDY: &'static str;

    fn version(&self) -> u32;
    /// Says which invariant does not hold.
    fn check(&self) -> Result<(), Problem>;
    /// Adds what follows from a change that is about to be written.
    fn follow_up(&mut self, _before: &Self) {}
}

/// The content and its file.
pub struct Store<C> {
    dir: Arc<DataDir>,
    /// Held while a change is made and written: one at a time.
    turn: Mutex<()>,
    /// What the file has. Held for a moment only, so that no reader waits for the disk.
    content: Mutex<Arc<C>>,
}

impl<C: Kept> Store<C> {
    pub fn open(dir: Arc<DataDir>) -> Result<Store<C>, Problem> {
        let damaged = |detail: String| {
            Problem::new(Code::Corrupt, detail)
                .object(dir.file(C::FILE).display().to_string())
                .remedy(C::REMEDY)
        };
        let content =
            match dir.read(C::FILE).map_err(|error| damaged(format!("it cannot be read: {error}")))? {
                None => C::default(),
                Some(bytes) => {
                    // Not the error itself: it might quote a secret.
                    let content: C = serde_json::from_slice(&bytes).map_err(|error| {
                        damaged(format!("line {} is not valid in a list of {}", error.line(), C::WHAT))
                    })?;
                    let (found, known) = (content.version(), C::VERSION);
                    if found != known {
                        return Err(damaged(format!(
                            "its version is {found}, but this program reads version {known}"
                        )));
                    }
                    content.check().map_err(|problem| damaged(problem.detail))?;
                    content
                }
            };
        Ok(Store { dir, turn: Mutex::new(()), content: Mutex::new(Arc::new(content)) })
    }

    fn lock(&self) -> MutexGuard<'_, Arc<C>> {
        self.content.lock().expect("no holder of this lock panics")
    }

    pub fn content(&self) -> Arc<C> {
        self.lock().clone()
    }

    /// What the content would be; changes nothing.
    pub fn plan<T>(&self, change: impl FnOnce(&mut C) -> Result<T, Problem>) -> Result<T, Problem> {
        let mut next = C::clone(&self.content());
        let made = change(&mut next)?;
        next.check()?;
        Ok(made)
    }

    /// Changes the content and writes it: others see the change when it is durable. Blocks on the disk.
    pub fn change<T>(&self, change: impl FnOnce(&mut C) -> Result<T, Problem>) -> Result<T, Problem> {
        let _turn = self.turn.lock().expect("no holder of this lock panics");
        let before = self.content();
        let mut next = C::clone(&before);
        let made = change(&mut next)?;
        if next == *before {
            return Ok(made);
        }
        next.check()?;
        next.follow_up(&before);
        let mut text = serde_json::to_vec_pretty(&next).expect("what is kept is plain data");
        text.push(b'\n');
        if text.len() as u64 > FILE_BYTES_MAX {
            let detail = format!("the {} would take more than {FILE_BYTES_MAX} bytes", C::WHAT);
            return Err(Problem::new(Code::Busy, detail).remedy("Delete some that are no longer used."));
        }
        let written = self.dir.write(C::FILE, &text);
        written.map_err(|error| self.dir.cannot_write(&format!("the {}", C::WHAT), C::FILE, &error))?;
        *self.lock() = Arc::new(next);
        Ok(made)
    }
}
