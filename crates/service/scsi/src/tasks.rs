//! Task attributes: which of a unit's tasks may run now (SAM-5 chapter 8).

/// How a task wants to be ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TaskAttribute {
    #[default]
    Simple,
    Ordered,
    HeadOfQueue,
}

/// The task set of one unit. `T` is the caller's handle of a waiting task.
#[derive(Debug)]
pub struct TaskSet<T> {
    waiting: std::collections::VecDeque<(TaskAttribute, T)>,
}

/// Whether a task may begin.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission<T> {
    /// Begin now, and call [`TaskSet::done`] when it ends.
    Run(T),
    /// Kept; [`TaskSet::done`] hands it out when its turn comes.
    Waits,
    /// TASK SET FULL.
    Full(T),
}

impl<T> TaskSet<T> {
    /// Takes a new task.
    pub fn add(&mut self, _attribute: TaskAttribute, _task: T) -> Admission<T> {
        unimplemented!()
    }
    /// A running task has ended; then [`next`](TaskSet::next) until there is none.
    pub fn done(&mut self, _attribute: TaskAttribute) {
        unimplemented!()
    }
    /// A waiting task whose turn has come.
    pub fn next(&mut self) -> Option<(TaskAttribute, T)> {
        unimplemented!()
    }
    /// Takes waiting tasks out: they are aborted.
    pub fn abort(&mut self, _which: impl FnMut(&T) -> bool) -> Vec<T> {
        unimplemented!()
    }
}
