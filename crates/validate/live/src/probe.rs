//! Short measurements of a disk, real or modelled: the same tasks over the same handles.
//!
//! A slice keeps so many requests in flight for a time, and notes how long each took and how long nothing was answered. A modelled disk is
//! measured in virtual time, for as many requests as the caller wants.

use forebay_base::{Nanos, Random};
use forebay_runtime::{Buf, Disk, DiskError, Rt};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Answers that a slice remembers, 4 bytes twice each: a device that gives more is judged by these.
const ANSWERS_MAX: usize = 1 << 20;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// Of a hundred requests.
    pub write_percent: u64,
    pub bytes: u64,
    /// Requests at a time.
    pub depth: u64,
    pub in_order: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Nanoseconds that it lasted.
    pub took: u64,
    /// Of each request, and between each answer and the one before it.
    pub latencies: Vec<u32>,
    pub gaps: Vec<u32>,
}

fn short(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(u32::MAX)
}

/// What so many of a hundred thousand are at most.
pub fn quantile(sorted: &[u32], point: u32) -> u64 {
    match sorted.len() {
        0 => 0,
        len => u64::from(sorted[(len as u64 * u64::from(point) / 100_000).min(len as u64 - 1) as usize]),
    }
}

impl Slice {
    pub fn rate(&self) -> f64 {
        self.latencies.len() as f64 * 1e9 / self.took.max(1) as f64
    }

    pub fn sorted(&self) -> Vec<u32> {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        sorted
    }

    pub fn p99(&self) -> u64 {
        quantile(&self.sorted(), 99_000)
    }
}

struct Course {
    random: Random,
    shape: Shape,
    places: u64,
    next: u64,
    last: Nanos,
    slice: Slice,
    failed: Option<DiskError>,
}

impl Course {
    /// Where the next request goes, and whether it writes.
    fn next(&mut self) -> (u64, bool) {
        let place = if self.shape.in_order {
            self.next += 1;
            (self.next - 1) % self.places
        } else {
            self.random.below(self.places)
        };
        (place * self.shape.bytes, self.random.below(100) < self.shape.write_percent)
    }

    fn answered(&mut self, asked: Nanos, now: Nanos) {
        self.slice.latencies.push(short(now.since(asked)));
        self.slice.gaps.push(short(now.since(self.last)));
        self.last = now;
    }

    fn is_over(&self, until: Nanos, count: usize) -> bool {
        self.last.0 >= until.0 || self.slice.latencies.len() >= count || self.failed.is_some()
    }
}

/// Asks the first `size` bytes of a disk for so long, or for so many requests if these are over sooner. `content` is written, and as long as the longest request.
pub async fn slice(
    rt: &Rt,
    disk: &Disk,
    (shape, size): (Shape, u64),
    seed: u64,
    (lasting, count): (Duration, usize),
    content: &Buf,
) -> Result<Slice, DiskError> {
    let begun = rt.now();
    let until = Nanos(begun.0 + lasting.as_nanos() as u64);
    let random = Random::new(seed);
    let places = (size / shape.bytes).max(1);
    // A sequence goes on somewhere else each time: what was read a moment ago may be in somebody's memory.
    let next = Random::new(!seed).below(places);
    let slice = Slice::default();
    let course =
        Rc::new(RefCell::new(Course { random, shape, places, next, last: begun, slice, failed: None }));
    let count = count.min(ANSWERS_MAX);
    let tasks: Vec<_> = (0..shape.depth)
        .map(|_| {
            let (own, disk, course, content) = (rt.clone(), disk.clone(), course.clone(), content.clone());
            rt.spawn(async move {
                let mut buffer = own.buffer(shape.bytes as usize);
                while !course.borrow().is_over(until, count) {
                    let (at, is_write) = course.borrow_mut().next();
                    let asked = own.now();
                    let answer = match is_write {
                        true => disk.write(at, vec![content.slice(0, shape.bytes as usize)]).await,
                        false => {
                            let (back, answer) = disk.read(at, buffer).await;
                            buffer = back;
                            answer
                        }
                    };
                    let mut course = course.borrow_mut();
                    match answer {
                        Ok(()) => course.answered(asked, own.now()),
                        Err(error) => course.failed = Some(error),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    let mut course = Rc::into_inner(course).expect("all tasks are over").into_inner();
    course.slice.took = course.last.since(begun);
    course.failed.map_or(Ok(course.slice), Err)
}

/// Flushes after a few small writes each, as the log of a pool does, for so long; gives how long each took.
pub async fn flushes(
    rt: &Rt,
    disk: &Disk,
    size: u64,
    seed: u64,
    lasting: Duration,
    content: &Buf,
) -> Result<Vec<u32>, DiskError> {
    const SMALL: u64 = 4 << 10;
    let (mut random, until) = (Random::new(seed), rt.now().0 + lasting.as_nanos() as u64);
    let mut took = Vec::new();
    while rt.now().0 < until && took.len() < ANSWERS_MAX {
        disk.write(random.below(size / SMALL) * SMALL, vec![content.slice(0, SMALL as usize)]).await?;
        let asked = rt.now();
        disk.flush().await?;
        took.push(short(rt.now().since(asked)));
    }
    Ok(took)
}
