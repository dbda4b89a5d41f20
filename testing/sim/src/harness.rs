//! A machine for one attempt: runs code in a world and turns whatever goes wrong into a [`Failure`].
//!
//! A panic of the engine is a finding. The executor of a world that panicked is leaked, not dropped: dropping it
//! runs the destructors of half-done tasks, and a second panic there would end the process.

use forebay_base::planted::TableShape;
use forebay_base::{Id, planted};
use forebay_pool::{Engine, EngineConfig, Event, Host};
use forebay_runtime::{Cores, Rt};
use forebay_simulation::World;
use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

/// Virtual time after which a phase without hanging devices counts as stuck. The slowest waits for a disk to be taken out, for minutes.
pub const LIMIT: Duration = Duration::from_secs(300);
/// Items that loops may come to in one turn of a task: two of them, one in the other.
const ITEMS_MAX: u64 = 2 * 4096;
/// DRAM of the engine under test: little, so that blocks and nodes are evicted and read again.
const MEMORY: u64 = 4 << 20;

/// What was found, by the kind of evidence.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The engine panicked: an assertion, or a bug outright.
    Panic(String),
    /// Something did not finish.
    Stuck(String),
    /// A volume holds what it must not hold.
    Content(String),
    /// An operation failed that must not, or succeeded that must not.
    Outcome(String),
    /// The offline checker found the pool inconsistent.
    Checker(String),
}

impl Failure {
    /// The kind of evidence, for tables.
    pub fn kind(&self) -> &'static str {
        match self {
            Failure::Panic(_) => "panic",
            Failure::Stuck(_) => "stuck",
            Failure::Content(_) => "content",
            Failure::Outcome(_) => "outcome",
            Failure::Checker(_) => "checker",
        }
    }
}

impl Failure {
    /// The same failure, with the circumstances.
    pub fn because(mut self, circumstances: &str) -> Failure {
        let (Failure::Panic(text)
        | Failure::Stuck(text)
        | Failure::Content(text)
        | Failure::Outcome(text)
        | Failure::Checker(text)) = &mut self;
        *text = format!("{text} ({circumstances})");
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Panic(text)
        | Failure::Stuck(text)
        | Failure::Content(text)
        | Failure::Outcome(text)
        | Failure::Checker(text)) = self;
        write!(f, "{}: {text}", self.kind())
    }
}

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics off the terminal: they are reported as findings, with the place where they happened.
fn collect_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let ours = CATCHING.get();
            if !ours {
                return usual(info);
            }
            let mut text = info.to_string().replace('\n', " ");
            if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
                text += &format!("\n{}", std::backtrace::Backtrace::force_capture());
            }
            LAST_PANIC.set(Some(text));
        }));
    });
}

thread_local! {
    static CATCHING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// What engines run under.
#[derive(Clone, Copy)]
pub struct Conditions {
    pub cores: usize,
    /// Whether each shard has one request in flight and nobody begins unasked since he has waited for long: that would end a wait in a circle.
    pub strict_turns: bool,
    /// How small tables are cut, if not as the format has them.
    pub tables: Option<TableShape>,
    /// Whether a task that has the core for long is a failure.
    pub is_bounded: bool,
}

impl Conditions {
    /// The usual ones.
    pub fn of(cores: usize) -> Conditions {
        Conditions { cores, strict_turns: false, tables: None, is_bounded: true }
    }
}

/// Runs `main` in `world` under `conditions`, for at most `limit` of virtual time.
pub fn in_world<T, F>(
    world: &World,
    conditions: Conditions,
    limit: Duration,
    main: impl FnOnce(Rt, Cores) -> F,
) -> Result<T, Failure>
where
    T: 'static,
    F: Future<Output = Result<T, Failure>> + 'static,
{
    collect_panics();
    let (executor, cores) = world.executor(conditions.cores);
    let executor = ManuallyDrop::new(executor);
    let before = CATCHING.replace(true);
    planted::set_strict_turns(conditions.strict_turns);
    planted::set_table_shape(conditions.tables);
    planted::take_longest_turn();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let main = main(executor.rt().clone(), cores);
        world.run(&executor, limit, main)
    }));
    let result = match result {
        Ok(ended) => {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(ManuallyDrop::into_inner(executor))));
            match (ended, dropped) {
                (_, Err(_)) => Err(Failure::Panic(last_panic())),
                (Ok(value), Ok(())) => value,
                (Err(stuck), Ok(())) => Err(Failure::Stuck(format!(
                    "not done after {:?} of virtual time{}",
                    stuck.after,
                    if stuck.spinning { ", spinning" } else { "" }
                ))),
            }
        }
        Err(_) => Err(Failure::Panic(last_panic())),
    };
    planted::set_strict_turns(false);
    planted::set_table_shape(None);
    let result = match planted::take_longest_turn() {
        longest if conditions.is_bounded && longest > ITEMS_MAX && result.is_ok() => {
            Err(Failure::Stuck(format!("a task had the core for {longest} items in one turn")))
        }
        _ => result,
    };
    CATCHING.set(before);
    result
}

fn last_panic() -> String {
    LAST_PANIC.take().unwrap_or_else(|| "a panic without a message".into())
}

thread_local! {
    /// Whether engines made on this thread print their events: for replays.
    pub static TELL_EVENTS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Events of one engine.
pub type Events = Arc<Mutex<Vec<Event>>>;

/// A fresh engine and the list its events go to.
pub fn engine(cores: Cores) -> (Engine, Events) {
    engine_of(cores, host(0))
}

/// A machine, by its number.
pub fn host(number: u128) -> Host {
    Host { id: Id(number), name: format!("host{number}") }
}

/// Like [`engine`], on another machine.
pub fn engine_of(cores: Cores, host: Host) -> (Engine, Events) {
    let events = Events::default();
    let sink = events.clone();
    let tell = TELL_EVENTS.get();
    let sink = move |event: Event| {
        if tell {
            println!("  event {} {:?}: {} {}", event.at.0, event.severity, event.object, event.message);
        }
        sink.lock().expect("no holder of this lock panics").push(event);
    };
    (Engine::new(cores, EngineConfig { memory: MEMORY, events: Arc::new(sink), host }), events)
}

/// Waits for all tasks.
pub async fn all<T>(tasks: Vec<forebay_runtime::Join<T>>) -> Vec<T> {
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await);
    }
    results
}

/// A failure that several tasks may report; the first counts.
#[derive(Clone, Default)]
pub struct FirstFailure(Rc<RefCell<Option<Failure>>>);

impl FirstFailure {
    pub fn report(&self, failure: Failure) {
        self.0.borrow_mut().get_or_insert(failure);
    }
    pub fn is_set(&self) -> bool {
        self.0.borrow().is_some()
    }
    pub fn check(&self) -> Result<(), Failure> {
        self.0.borrow_mut().take().map_or(Ok(()), Err)
    }
}
