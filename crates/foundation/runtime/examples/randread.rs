//! Random reads over the runtime, to be set beside what `fio` measures on the same file:
//!
//! ```text
//! cargo run --release -p forebay-runtime --example randread -- PATH [depth=32] [seconds=5] [bytes=8192]
//! fio --name=r --filename=PATH --ioengine=io_uring --direct=1 --rw=randread --bs=8k --iodepth=32 --time_based --runtime=5
//! ```
//!
//! One executor, `depth` tasks, each with one read in flight. Prints one line: IOPS, CPU time per I/O (of the
//! whole process, user and system), latency.

use forebay_runtime::{OpenMode, uring};
use std::time::Duration;

fn cpu_us() -> (f64, f64) {
    // SAFETY: zero is valid for a structure of integers, and the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    (us(usage.ru_utime), us(usage.ru_stime))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("PATH of a file or device is missing")?;
    let mut number = |default: usize| args.next().map_or(Ok(default), |text| text.parse());
    let (depth, seconds, bytes) = (number(32)?, number(5)?, number(8192)?);

    let (user, system) = cpu_us();
    let (elapsed, mut latencies_ns) = uring::block_on(move |rt| async move {
        let disk = rt.open_disk(&path, OpenMode::Read).unwrap_or_else(|error| panic!("{path}: {error}"));
        let blocks = disk.geometry().size / bytes as u64;
        let start = rt.now();
        let end = start.after(Duration::from_secs(seconds as u64));
        let tasks: Vec<_> = (0..depth)
            .map(|_| {
                let (rt2, disk) = (rt.clone(), disk.clone());
                let mut random = rt.random() | 1;
                rt.spawn(async move {
                    let mut latencies_ns: Vec<u32> = Vec::new();
                    let mut buffer = rt2.buffer(bytes);
                    let mut now = rt2.now();
                    while now < end {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let (back, result) = disk.read(random % blocks * bytes as u64, buffer).await;
                        result.expect("the disk can be read");
                        buffer = back;
                        let done = rt2.now();
                        latencies_ns.push(done.since(now) as u32);
                        now = done;
                    }
                    latencies_ns
                })
            })
            .collect();
        let mut latencies_ns = Vec::new();
        for task in tasks {
            latencies_ns.extend(task.await);
        }
        (rt.now().since(start) as f64 / 1e9, latencies_ns)
    })?;
    let (user, system) = (cpu_us().0 - user, cpu_us().1 - system);

    latencies_ns.sort_unstable();
    let count = latencies_ns.len();
    let percentile = |percent: usize| f64::from(latencies_ns[(count - 1) * percent / 100]) / 1000.0;
    println!(
        "iops {:.0} cpu_us_per_io {:.2} (user {:.2} system {:.2}) latency_us p50 {:.1} p99 {:.1}",
        count as f64 / elapsed,
        (user + system) / count as f64,
        user / count as f64,
        system / count as f64,
        percentile(50),
        percentile(99)
    );
    Ok(())
}
