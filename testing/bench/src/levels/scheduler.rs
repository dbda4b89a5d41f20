//! What the scheduler takes of a processor for a request: where nobody waits, and where a hundred volumes do.

use crate::measure::{Median, thread_seconds};
use forebay_base::Nanos;
use forebay_qos::{Affine, Class, Costs, FlowId, Level, Next, Pool, Rate, Scheduler, Work};
use std::sync::Arc;

/// 100 000 requests of 8 KiB, or 2000 MB, a second.
const LINE: Affine = Affine { fixed: 5904, byte_ps: 500 };
const EACH_NS: u64 = 10_000;
/// Of requests that take 10 µs each, what a hundred take.
const WINDOW: u64 = 100 * EACH_NS;
const FLOWS: usize = 100;
/// Requests of each that wait.
const WAITING: usize = 4;
const REQUEST: usize = 8 << 10;
const ROUNDS: usize = 9;

fn scheduler() -> Scheduler<FlowId> {
    Scheduler::new(Arc::new(Pool::new(1, Costs { read: LINE, write: LINE }, WINDOW)), 0)
}

/// Nanoseconds of the thread's processor time for each of `count` calls: the median of some rounds.
pub(super) fn each(count: u64, mut request: impl FnMut(Nanos)) -> f64 {
    let mut now = Nanos(1);
    let round = |_| {
        let start = thread_seconds();
        for _ in 0..count {
            now.0 += EACH_NS;
            request(now);
        }
        (thread_seconds() - start) * 1e9 / count as f64
    };
    Median::of((0..ROUNDS).map(round)).value
}

/// One volume, and nothing waits.
pub fn alone(count: u64) -> f64 {
    let mut scheduler = scheduler();
    let flow = scheduler.add(&Level::default());
    let work = Work::read(REQUEST as u64, 1);
    each(count, |now| {
        let begun = scheduler.begin_at_once(now, flow, work).expect("there is room");
        scheduler.end(now, begun);
    })
}

/// A hundred volumes of all classes, half of them with floors, all with requests waiting.
pub fn crowded(count: u64) -> f64 {
    let mut scheduler = scheduler();
    let classes = [Class::NonCritical, Class::BusinessCritical, Class::MissionCritical];
    let work = Work::read(REQUEST as u64, 1);
    for nth in 0..FLOWS {
        // Together they are promised a quarter of what there is.
        let floor = Rate { iops: if nth % 2 == 0 { 500 } else { 0 }, bytes: 0 };
        let flow = scheduler.add(&Level { class: classes[nth % classes.len()], floor, ..Level::default() });
        (0..WAITING).for_each(|_| scheduler.push(Nanos(1), flow, work, flow));
    }
    each(count, |now| {
        let Next::Begin(flow, begun) = scheduler.next(now) else { unreachable!("nothing is in flight") };
        scheduler.end(now, begun);
        scheduler.push(now, flow, work, flow);
    })
}
