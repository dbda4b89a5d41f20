//! Asks, and takes note of the answers.

use crate::link::Way;
use crate::{Link, Request, Requests, Tally, Workload};
use forebay_base::{Nanos, Random};
use forebay_pool::{IoError, Volume};
use forebay_runtime::{Buf, Rt};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// A client whose requests are due for longer than this gives them up.
const PATIENCE: u64 = SECOND;

struct Shared {
    requests: Requests,
    tally: Tally,
    /// When the next request of the schedule is due, in nanoseconds times the rate.
    due: u128,
    /// What is written: modelled disks keep zeros without taking memory, and what is not compressed is stored as it is.
    zeros: Buf,
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

/// Asks over `link` what `workload` says of a volume of `size` bytes until `to`, and measures from `from` on. Requests of a schedule take from when they
/// were due.
pub async fn drive(
    rt: &Rt,
    volume: Rc<Volume>,
    link: Rc<Link>,
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
    let zeros = rt.arena().take_zeroed(workload.block_bytes() as usize).freeze();
    let shared = Rc::new(RefCell::new(Shared { requests, tally: Tally::new(from, to), due: begun, zeros }));
    let tasks: Vec<_> = (0..workload.outstanding)
        .map(|_| {
            let (own, shared, volume, link) = (rt.clone(), shared.clone(), volume.clone(), link.clone());
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
                    let zeros = shared.borrow().zeros.clone();
                    let answer = ask(&rt, &volume, &link, request, zeros).await;
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

async fn ask(rt: &Rt, volume: &Volume, link: &Link, request: Request, zeros: Buf) -> Result<(), IoError> {
    let Request { at, bytes, is_write } = request;
    let (there, back) = if is_write { (bytes, 0) } else { (0, bytes) };
    link.carry(rt, Way::ToPool, there).await;
    let answer = match is_write {
        true => volume.write(at, vec![zeros], false).await,
        false => volume.read(at, bytes as usize).await.map(drop),
    };
    link.carry(rt, Way::ToClient, if answer.is_ok() { back } else { 0 }).await;
    answer
}
