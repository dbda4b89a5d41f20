//! Task attributes: which of a unit's tasks may run now (SAM-5 8.6).
//!
//! SIMPLE tasks run together; an ORDERED task waits for every task before it, and those after it wait for it; a
//! HEAD OF QUEUE task waits for nothing. Almost every task is SIMPLE with nothing ordered in sight: then this is a
//! counter. How many tasks run is bounded by the transport's command windows; how many wait, by [`WAITING_MAX`].

use std::collections::VecDeque;

/// Tasks of one unit that wait behind an ORDERED one: 32 nexuses with 64 commands each.
pub const WAITING_MAX: usize = 2048;

/// How a task wants to be ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TaskAttribute {
    #[default]
    Simple,
    Ordered,
    HeadOfQueue,
}

/// Whether a task may begin.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission<T> {
    /// Begin now, and call [`TaskSet::done`] when it ends.
    Run(T),
    /// Kept; [`TaskSet::next_ready`] hands it out when its turn comes.
    Waits,
    /// Answer TASK SET FULL.
    Full(T),
}

/// The task set of one unit. `T` is the caller's handle of a task that waits.
#[derive(Debug)]
pub struct TaskSet<T> {
    running: usize,
    /// The running task is an ordered one, and so the only one but for heads of queue.
    runs_ordered: bool,
    waiting: VecDeque<(TaskAttribute, T)>,
}

impl<T> Default for TaskSet<T> {
    fn default() -> TaskSet<T> {
        TaskSet { running: 0, runs_ordered: false, waiting: VecDeque::new() }
    }
}

impl<T> TaskSet<T> {
    /// Tasks that run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Takes a new task.
    pub fn add(&mut self, attribute: TaskAttribute, task: T) -> Admission<T> {
        if attribute == TaskAttribute::HeadOfQueue || self.waiting.is_empty() && self.may_run(attribute) {
            self.run(attribute);
            return Admission::Run(task);
        }
        if self.waiting.len() == WAITING_MAX {
            return Admission::Full(task);
        }
        self.waiting.push_back((attribute, task));
        Admission::Waits
    }

    fn may_run(&self, attribute: TaskAttribute) -> bool {
        match attribute {
            TaskAttribute::Simple => !self.runs_ordered,
            TaskAttribute::Ordered => self.running == 0,
            TaskAttribute::HeadOfQueue => true,
        }
    }

    fn run(&mut self, attribute: TaskAttribute) {
        self.running += 1;
        self.runs_ordered |= attribute == TaskAttribute::Ordered;
    }

    /// A running task has ended or was aborted. Call [`next_ready`](TaskSet::next_ready) until there is none.
    pub fn done(&mut self, attribute: TaskAttribute) {
        self.running = self.running.checked_sub(1).expect("only tasks that run end");
        if attribute == TaskAttribute::Ordered {
            self.runs_ordered = false;
        }
    }

    /// A waiting task whose turn has come: it runs from here on.
    pub fn next_ready(&mut self) -> Option<(TaskAttribute, T)> {
        let attribute = self.waiting.front()?.0;
        if !self.may_run(attribute) {
            return None;
        }
        self.run(attribute);
        self.waiting.pop_front()
    }

    /// Takes waiting tasks out, because they are aborted. Call [`next_ready`](TaskSet::next_ready) until there is none.
    pub fn abort(&mut self, mut which: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut aborted = Vec::new();
        for (attribute, task) in std::mem::take(&mut self.waiting) {
            if which(&task) {
                aborted.push(task);
            } else {
                self.waiting.push_back((attribute, task));
            }
        }
        aborted
    }
}

#[cfg(test)]
mod tests {
    use super::TaskAttribute::*;
    use super::*;

    #[test]
    fn an_ordered_task_divides_those_before_from_those_after() {
        let mut set = TaskSet::default();
        assert_eq!(set.add(Simple, 1), Admission::Run(1));
        assert_eq!(set.add(Simple, 2), Admission::Run(2));
        assert_eq!(set.add(Ordered, 3), Admission::Waits);
        assert_eq!(set.add(Simple, 4), Admission::Waits);
        assert_eq!(set.add(HeadOfQueue, 5), Admission::Run(5));
        for _ in 0..2 {
            set.done(Simple);
            assert_eq!(set.next_ready(), None);
        }
        set.done(HeadOfQueue);
        assert_eq!(set.next_ready(), Some((Ordered, 3)));
        assert_eq!(set.next_ready(), None, "what comes after it waits for it");
        assert_eq!(set.add(Simple, 6), Admission::Waits);
        set.done(Ordered);
        assert_eq!(
            (set.next_ready(), set.next_ready(), set.next_ready()),
            (Some((Simple, 4)), Some((Simple, 6)), None)
        );
        assert_eq!(set.running(), 2);
    }

    #[test]
    fn waiting_is_bounded_and_can_be_aborted() {
        let mut set = TaskSet::default();
        assert_eq!(set.add(Ordered, 0), Admission::Run(0));
        for task in 1..=WAITING_MAX {
            assert_eq!(set.add(Simple, task), Admission::Waits);
        }
        assert_eq!(set.add(Simple, 0), Admission::Full(0));
        assert_eq!(set.abort(|task| task % 2 == 0).len(), WAITING_MAX / 2);
        set.done(Ordered);
        assert_eq!(set.next_ready(), Some((Simple, 1)));
        assert_eq!(set.next_ready(), Some((Simple, 3)));
    }
}
