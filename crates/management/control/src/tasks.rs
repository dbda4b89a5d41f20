//! Long work that a client started and need not wait for.
//!
//! Changes to pools run one at a time, in the order in which they came: each also changes the daemon's
//! configuration, and two imports of the same disks must not race. One whose change is made, and which only watches what
//! the engine makes of it for hours, gives up its turn ([`Running::give_up_turn`]). A task that waits for its turn can be
//! cancelled; of those that run only one that says how ([`Running::cancel_by`]), because the engine finishes what it began. Tasks live in memory: the work itself is
//! crash-safe and a restart has nothing to resume, so there is nothing to write down.

use crate::events::{EventLog, now_unix_ms};
use forebay_api::{Code, Eta, Problem, Severity, Task, TaskState};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, oneshot, watch};

/// Waiting or running. A person starts a few; a script that starts more is told to wait.
const ACTIVE_MAX: usize = 64;
/// Finished ones to look back at.
const FINISHED_KEPT: usize = 256;

type Tell = Box<dyn FnOnce(&Task) + Send>;

struct Entry {
    task: Task,
    cancel: Option<oneshot::Sender<()>>,
    /// Calls off what runs; gone once it was called.
    stop: Option<Box<dyn FnOnce() + Send>>,
    is_stopped: bool,
    /// Told how it ended, once.
    at_end: Option<Tell>,
}

/// All tasks, oldest first.
pub struct Tasks {
    entries: Mutex<VecDeque<Entry>>,
    /// Grows with each change of any task.
    version: watch::Sender<u64>,
    turn: Arc<Turn<()>>,
    events: EventLog,
}

/// How far a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Thousandths done.
    pub permille: Option<u32>,
    pub rate_bytes_per_second: Option<u64>,
    pub eta: Option<Eta>,
}

/// A task's own end of it, while it runs.
pub struct Running {
    tasks: Arc<Tasks>,
    id: String,
    turn: Option<OwnedMutexGuard<()>>,
}

impl Running {
    /// Lets the next task begin. From here on this one changes nothing.
    pub fn give_up_turn(&mut self) {
        self.turn = None;
    }

    /// What it does can be called off by this, and then ends with an error.
    pub fn cancel_by(&self, stop: impl FnOnce() + Send + 'static) {
        self.tasks.change(&self.id, |entry| {
            entry.task.cancellable = true;
            entry.stop = Some(Box::new(stop));
        });
    }

    pub fn progress(&self, progress: Progress) {
        self.tasks.change(&self.id, |entry| {
            entry.task.progress_permille = progress.permille;
            entry.task.rate_bytes_per_second = progress.rate_bytes_per_second;
            entry.task.eta = progress.eta;
        });
    }
}

impl Tasks {
    pub fn new(events: EventLog) -> Arc<Tasks> {
        Arc::new(Tasks {
            entries: Mutex::default(),
            version: watch::Sender::new(0),
            turn: Arc::default(),
            events,
        })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().expect("no holder of this lock panics")
    }

    /// Starts `work` when its turn comes. Must be called on the tokio runtime.
    pub fn start<F>(self: &Arc<Self>, name: &str, object: &str, work: F) -> Result<Task, Problem>
    where
        F: Future<Output = Result<Option<serde_json::Value>, Problem>> + Send + 'static,
    {
        self.start_long(name, object, |running| async move {
            let result = work.await;
            drop(running);
            result
        })
    }

    /// Like [`Tasks::start`], for work that tells how far it is.
    pub fn start_long<F, W>(self: &Arc<Self>, name: &str, object: &str, work: F) -> Result<Task, Problem>
    where
        F: FnOnce(Running) -> W + Send + 'static,
        W: Future<Output = Result<Option<serde_json::Value>, Problem>> + Send + 'static,
    {
        let (cancel, mut cancelled) = oneshot::channel();
        let task = Task {
            id: crate::random_id(),
            name: name.into(),
            object: object.into(),
            state: TaskState::Queued,
            progress_permille: None,
            rate_bytes_per_second: None,
            eta: None,
            cancellable: true,
            started_unix_ms: now_unix_ms(),
            finished_unix_ms: None,
            result: None,
            error: None,
        };
        {
            let mut entries = self.lock();
            let finished = entries.iter().filter(|entry| entry.task.state.is_final()).count();
            if entries.len() - finished >= ACTIVE_MAX {
                return Err(Problem::new(Code::Busy, format!("{ACTIVE_MAX} tasks are waiting already"))
                    .remedy("Wait until some are done; `forebay task list` shows them."));
            }
            if finished >= FINISHED_KEPT
                && let Some(oldest) = entries.iter().position(|entry| entry.task.state.is_final())
            {
                entries.remove(oldest);
            }
            entries.push_back(Entry {
                task: task.clone(),
                cancel: Some(cancel),
                stop: None,
                is_stopped: false,
                at_end: None,
            });
        }
        let tasks = self.clone();
        let id = task.id.clone();
        tokio::spawn(async move {
            let turn = tokio::select! {
                turn = tasks.turn.clone().lock_owned() => turn,
                _ = &mut cancelled => return,
            };
            // From here on it cannot be cancelled: `begin` and `cancel` agree under one lock.
            if !tasks.begin(&id) {
                return;
            }
            let running = Running { tasks: tasks.clone(), id: id.clone(), turn: Some(turn) };
            let result = work(running).await;
            tasks.finish(&id, result);
        });
        Ok(task)
    }

    fn begin(&self, id: &str) -> bool {
        self.change(id, |entry| {
            if entry.task.state != TaskState::Queued {
                return false;
            }
            entry.task.state = TaskState::Running;
            entry.task.cancellable = false;
            entry.cancel = None;
            true
        })
        .unwrap_or(false)
    }

    fn finish(&self, id: &str, result: Result<Option<serde_json::Value>, Problem>) {
        let failed = self.change(id, |entry| {
            let task = &mut entry.task;
            task.finished_unix_ms = Some(now_unix_ms());
            task.eta = None;
            task.cancellable = false;
            entry.stop = None;
            match result {
                // Whatever else it ends with has to be told.
                Err(problem) if entry.is_stopped && problem.code == Code::Conflict => {
                    task.state = TaskState::Cancelled;
                    None
                }
                Ok(value) => {
                    task.state = TaskState::Succeeded;
                    task.progress_permille = Some(1000);
                    task.result = value;
                    None
                }
                Err(problem) => {
                    task.state = TaskState::Failed;
                    task.error = Some(problem);
                    Some(task.clone())
                }
            }
        });
        if let Some(Some(task)) = failed {
            // What a problem is of may be another object, such as one disk of a pool.
            let detail = task.error.map_or(String::new(), |problem| {
                let object = problem.object.filter(|object| *object != task.object);
                let object = object.map_or(String::new(), |object| format!("{object}: "));
                let remedy = problem.remedy.map_or(String::new(), |remedy| format!(". {remedy}"));
                format!("{object}{}{remedy}", problem.detail)
            });
            self.events.record(
                Severity::Warning,
                "task.failed",
                &task.object,
                &format!("{} failed: {detail}", task.name),
            );
        }
    }

    fn change<T>(&self, id: &str, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut entries = self.lock();
        let entry = entries.iter_mut().find(|entry| entry.task.id == id);
        let changed = entry.map(|entry| {
            let changed = change(entry);
            if entry.task.state.is_final()
                && let Some(tell) = entry.at_end.take()
            {
                tell(&entry.task);
            }
            changed
        });
        drop(entries);
        self.version.send_modify(|version| *version += 1);
        changed
    }

    /// Has `tell` called when the task has ended, before any client sees that it has; at once, if it has already. It must not block.
    pub fn at_end(&self, id: &str, tell: impl FnOnce(&Task) + Send + 'static) {
        let mut entries = self.lock();
        let Some(entry) = entries.iter_mut().find(|entry| entry.task.id == id) else { return };
        match entry.task.state.is_final() {
            true => tell(&entry.task),
            false => entry.at_end = Some(Box::new(tell)),
        }
    }

    /// All, the newest first.
    pub fn list(&self) -> Vec<Task> {
        self.lock().iter().rev().map(|entry| entry.task.clone()).collect()
    }

    pub fn find(&self, id: &str) -> Result<Task, Problem> {
        let entries = self.lock();
        entries.iter().find(|entry| entry.task.id == id).map(|entry| entry.task.clone()).ok_or_else(|| {
            Problem::new(Code::NotFound, "there is no such task").object(id).remedy(
                "`forebay task list` shows the latest tasks. A restart of the daemon clears the list.",
            )
        })
    }

    /// Tells when any task changes.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub fn cancel(&self, id: &str) -> Result<Task, Problem> {
        self.find(id)?;
        let cancelled = self.change(id, |entry| {
            if entry.task.state == TaskState::Queued {
                entry.task.state = TaskState::Cancelled;
                entry.task.cancellable = false;
                entry.task.finished_unix_ms = Some(now_unix_ms());
                if let Some(cancel) = entry.cancel.take() {
                    // The task may be waking up with its turn; `begin` then finds it cancelled.
                    let _ = cancel.send(());
                }
                Ok(entry.task.clone())
            } else if let Some(stop) = entry.stop.take() {
                stop();
                (entry.task.cancellable, entry.is_stopped) = (false, true);
                Ok(entry.task.clone())
            } else {
                Err(entry.task.state)
            }
        });
        match cancelled {
            Some(Ok(task)) => Ok(task),
            Some(Err(state)) => Err(cannot_cancel(id, state)),
            None => self.find(id),
        }
    }

    /// Waits for the turn that tasks take, to do something small between two of them.
    pub async fn turn(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    /// Waits until no task runs or waits.
    pub async fn idle(&self) {
        let mut version = self.version();
        loop {
            version.mark_unchanged();
            if self.lock().iter().all(|entry| entry.task.state.is_final()) {
                return;
            }
            if version.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Why a task in this state cannot be cancelled.
pub fn cannot_cancel(id: &str, state: TaskState) -> Problem {
    let (detail, remedy) = match state.is_final() {
        true => ("the task has ended already", "`forebay task list` shows its result."),
        false => (
            "the task is running, and a task of this kind cannot be cancelled once it has begun",
            "Wait for it with `forebay task watch ID`.",
        ),
    };
    Problem::new(Code::Conflict, detail).object(id).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::DataDir;
    use crate::test_directory;

    fn tasks(temp: &tempfile::TempDir) -> Arc<Tasks> {
        Tasks::new(EventLog::open(Arc::new(DataDir::open(temp.path()).unwrap())).unwrap())
    }

    #[tokio::test]
    async fn one_runs_at_a_time_and_only_the_waiting_can_be_cancelled() {
        let temp = test_directory();
        let tasks = tasks(&temp);
        let (release, released) = oneshot::channel::<()>();
        let first = tasks
            .start("pool.create", "a", async move {
                released.await.unwrap();
                Ok(Some(serde_json::json!("made")))
            })
            .unwrap();
        let second =
            tasks.start("pool.create", "b", async { panic!("a cancelled task must not run") }).unwrap();
        let third = tasks
            .start("pool.create", "c", async { Err(Problem::new(Code::NoSpace, "the disk is full")) })
            .unwrap();
        let (told, ends) = std::sync::mpsc::channel();
        for task in [&first, &second, &third] {
            let told = told.clone();
            tasks.at_end(&task.id, move |task| told.send((task.object.clone(), task.state)).unwrap());
        }
        let mut version = tasks.version();
        while tasks.find(&first.id).unwrap().state != TaskState::Running {
            version.changed().await.unwrap();
        }
        assert_eq!(tasks.cancel(&first.id).unwrap_err().code, Code::Conflict);
        assert_eq!(tasks.cancel(&second.id).unwrap().state, TaskState::Cancelled);
        assert_eq!(tasks.find(&third.id).unwrap().state, TaskState::Queued);
        release.send(()).unwrap();
        tasks.idle().await;
        let first = tasks.find(&first.id).unwrap();
        assert_eq!((first.state, first.result), (TaskState::Succeeded, Some(serde_json::json!("made"))));
        let third = tasks.find(&third.id).unwrap();
        assert_eq!(third.state, TaskState::Failed);
        assert_eq!(third.error.unwrap().code, Code::NoSpace);
        assert_eq!(tasks.cancel(&second.id).unwrap_err().code, Code::Conflict);
        assert_eq!(tasks.cancel("nothing").unwrap_err().code, Code::NotFound);
        let ids: Vec<String> = tasks.list().into_iter().map(|task| task.object).collect();
        assert_eq!(ids, ["c", "b", "a"]);
        tasks.at_end(&third.id, move |task| told.send(("late".into(), task.state)).unwrap());
        let ends: Vec<(String, TaskState)> = ends.iter().collect();
        let end = |of: &str, state| (of.to_string(), state);
        assert_eq!(
            ends,
            [
                end("b", TaskState::Cancelled),
                end("a", TaskState::Succeeded),
                end("c", TaskState::Failed),
                end("late", TaskState::Failed)
            ]
        );
    }

    #[tokio::test]
    async fn one_that_only_watches_lets_the_next_begin() {
        let temp = test_directory();
        let tasks = tasks(&temp);
        let (release, released) = oneshot::channel::<()>();
        let watching = tasks
            .start_long("disk.replace", "a/0", |mut running| async move {
                running.give_up_turn();
                let eta = Eta { seconds_low: 1, seconds_high: 2 };
                let rate_bytes_per_second = Some(1 << 20);
                running.progress(Progress { permille: Some(250), rate_bytes_per_second, eta: Some(eta) });
                released.await.unwrap();
                Ok(None)
            })
            .unwrap();
        let (done, next) = oneshot::channel::<()>();
        tasks
            .start("pool.create", "b", async {
                done.send(()).unwrap();
                Ok(None)
            })
            .unwrap();
        next.await.unwrap();
        let seen = tasks.find(&watching.id).unwrap();
        assert_eq!((seen.state, seen.progress_permille), (TaskState::Running, Some(250)));
        assert_eq!(seen.eta, Some(Eta { seconds_low: 1, seconds_high: 2 }));
        release.send(()).unwrap();
        tasks.idle().await;
        let seen = tasks.find(&watching.id).unwrap();
        assert_eq!((seen.state, seen.progress_permille), (TaskState::Succeeded, Some(1000)));
        assert_eq!(seen.eta, None);
    }

    #[tokio::test]
    async fn one_that_says_how_is_called_off_while_it_runs() {
        let temp = test_directory();
        let tasks = tasks(&temp);
        let (stop, stopped) = oneshot::channel::<()>();
        let moving = tasks
            .start_long("volume.move", "a/x", |running| async move {
                running.cancel_by(|| stop.send(()).unwrap());
                stopped.await.unwrap();
                Err(Problem::new(Code::Conflict, "called off"))
            })
            .unwrap();
        let mut version = tasks.version();
        while !(tasks.find(&moving.id).unwrap().state == TaskState::Running
            && tasks.find(&moving.id).unwrap().cancellable)
        {
            version.changed().await.unwrap();
        }
        tasks.cancel(&moving.id).unwrap();
        tasks.idle().await;
        let seen = tasks.find(&moving.id).unwrap();
        assert_eq!((seen.state, seen.cancellable), (TaskState::Cancelled, false));
        assert_eq!(tasks.cancel(&moving.id).unwrap_err().code, Code::Conflict);
    }

    #[tokio::test]
    async fn both_the_waiting_and_the_finished_are_bounded() {
        let temp = test_directory();
        let tasks = tasks(&temp);
        let (release, released) = oneshot::channel::<()>();
        tasks
            .start("pool.create", "first", async move {
                released.await.unwrap();
                Ok(None)
            })
            .unwrap();
        for _ in 1..ACTIVE_MAX {
            tasks.start("pool.create", "more", async { Ok(None) }).unwrap();
        }
        assert_eq!(tasks.start("pool.create", "x", async { Ok(None) }).unwrap_err().code, Code::Busy);
        release.send(()).unwrap();
        tasks.idle().await;
        for _ in 0..2 * FINISHED_KEPT {
            tasks.start("pool.create", "later", async { Ok(None) }).unwrap();
            tasks.idle().await;
        }
        assert!(tasks.list().len() <= FINISHED_KEPT + 1, "{}", tasks.list().len());
    }
}
