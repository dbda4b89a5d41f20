//! Asks, and takes note of the answers.

use crate::{Request, Requests, Tally, Workload};
use forebay_base::{Nanos, Random};
use forebay_pool::{IoError, Volume};
use forebay_runtime::Rt;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// The smallest block that a volume can have.
const BLOCK: usize = 4096;
/// A client whose requests are due for longer than this gives them up.
const PATIENCE: u64 = SECOND;

struct Shared {
    requests: Requests,
    tally: Tally,
    /// When the next request of the schedule is due, in nanoseconds times the rate.
    due: u128,
}

impl Shared {
    /// When the next request is due.
    fn due(&mut self, rate: u64, now: Nanos) -> Nanos {
        self.due = self.due.max(u128::from(now.0.saturating_sub(PATIENCE)) * u128::from(rate));
        let due = (self.due / u128::from(rate)) as u64;
        self.due += u128::from(SECOND);
        Nanos(due)
    }
}

/// Asks what `workload` says of a volume of `size` bytes until `to`, and measures from `from` on. Requests of a schedule take from when they were due.
pub async fn drive(
    rt: &Rt,
    volume: Rc<Volume>,
    workload: &Workload,
    size: u64,
    seed: u64,
    (from, to): (Nanos, Nanos),
) -> Tally {
    let requests = Requests::new(workload, size, seed);
    let (think, rate) = (workload.think(), workload.rate);
    // Clients with the same rate do not all ask at the same moments.
    let begun =
        u128::from(rt.now().0) * u128::from(rate.unwrap_or(0)) + u128::from(Random::new(seed).below(SECOND));
    let shared = Rc::new(RefCell::new(Shared { requests, tally: Tally::new(from, to), due: begun }));
    let tasks: Vec<_> = (0..workload.outstanding)
        .map(|_| {
            let (own, shared, volume) = (rt.clone(), shared.clone(), volume.clone());
            rt.spawn(async move {
                let rt = own;
                while rt.now().0 < to.0 {
                    let mut due = rt.now();
                    if let Some(rate) = rate {
                        due = shared.borrow_mut().due(rate, due);
                        rt.sleep_until(due).await;
                    }
                    let request = shared.borrow_mut().requests.next().expect("it has no end");
                    shared.borrow_mut().tally.asked(rt.now());
                    let answer = ask(&rt, &volume, request).await;
                    shared.borrow_mut().tally.over(rt.now());
                    match answer {
                        Ok(()) => shared.borrow_mut().tally.answered(due, rt.now(), &request),
                        // Who gets an error at once must not ask for ever without time passing.
                        Err(_) => {
                            shared.borrow_mut().tally.failed();
                            rt.sleep(Duration::from_millis(10)).await;
                        }
                    }
                    if !think.is_zero() {
                        rt.sleep(think).await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    Rc::into_inner(shared).expect("all tasks are over").into_inner().tally
}

async fn ask(rt: &Rt, volume: &Volume, request: Request) -> Result<(), IoError> {
    let Request { at, bytes, is_write } = request;
    if !is_write {
        return volume.read(at, bytes as usize).await.map(drop);
    }
    let mut data = rt.arena().take_zeroed(bytes as usize);
    // No block is all zeros, and none is as it was.
    for (nth, block) in data.chunks_mut(BLOCK).enumerate() {
        block[..8].copy_from_slice(&(rt.now().0 ^ (at + nth as u64) | 1).to_le_bytes());
    }
    volume.write(at, vec![data.freeze()], false).await
}
