//! Several executors, and the end of one.

mod common;

use common::{Scratch, child, fill, wrong_at};
use forebay_runtime::{Completer, Cores, OpenMode, Remote, Rt, completion, uring};
use std::cell::Cell;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Runs a future on a core and waits for its result.
fn on<T, F>(cores: &Cores, core: usize, make: impl FnOnce(Rt) -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let (send, receive) = mpsc::channel();
    cores.core(core).run(move |rt| {
        let future = make(rt.clone());
        rt.spawn(async move { send.send(future.await).unwrap() });
    });
    receive.recv().expect("the core answers")
}

#[test]
fn two_cores_share_a_disk() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 4 << 20);
    let (cores, running) = uring::start(2).unwrap();
    assert_eq!(cores.count(), 2);
    for core in 0..2u64 {
        let path = path.clone();
        on(&cores, core as usize, move |rt| async move {
            assert_eq!(rt.core(), core as usize);
            let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
            for page in (core..1024).step_by(2) {
                let mut buffer = rt.buffer(4096);
                fill(&mut buffer, page * 4096, core);
                disk.write(page * 4096, vec![buffer.freeze()]).await.unwrap();
            }
        });
    }
    for core in 0..2 {
        let path = path.clone();
        on(&cores, core, move |rt| async move {
            let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
            for page in 0..1024 {
                let (bytes, result) = disk.read(page * 4096, rt.buffer(4096)).await;
                assert_eq!((result, wrong_at(&bytes, page * 4096, page % 2)), (Ok(()), None));
            }
        });
    }
    running.stop().unwrap();
}

#[test]
fn stopping_carries_out_what_was_asked_and_ends_what_waits() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 8 << 20);
    let (cores, running) = uring::start(1).unwrap();
    let file = path.clone();
    // Returned without a task: the requests are made in this very call and nobody waits for them.
    let client = on(&cores, 0, move |rt| async move {
        let disk = rt.open_disk(&file, OpenMode::ReadWrite).unwrap();
        let listener = rt.listen("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.address()).unwrap();
        let stream = listener.accept().await.unwrap();
        let (rt2, held) = (rt.clone(), disk.clone());
        rt.spawn(async move {
            let next = listener.accept();
            let (_, result) = stream.recv(rt2.buffer(4096)).await;
            drop((result, next.await, held));
        });
        for page in 0..2048 {
            let mut buffer = rt.buffer(4096);
            fill(&mut buffer, page * 4096, 5);
            drop(disk.write(page * 4096, vec![buffer.freeze()]));
        }
        client
    });
    running.stop().unwrap();
    let mut bytes = vec![0; 8 << 20];
    std::fs::File::open(&path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(wrong_at(&bytes, 0, 5), None);
    let (mut client, mut end) = (client, Vec::new());
    client.read_to_end(&mut end).expect("the connection was closed in order");
    assert!(end.is_empty());
    // The lock went with the executor.
    let output = child("child_takes_the_lock").env("FOREBAY_TEST_DISK", &path).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("free"), "{output:?}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_takes_the_lock() {
    let path = std::env::var("FOREBAY_TEST_DISK").unwrap();
    let open = uring::block_on(|rt| async move { rt.open_disk(&path, OpenMode::ReadWrite).is_ok() });
    println!("{}", if open.unwrap() { "free" } else { "taken" });
}

/// Jobs sent at every moment of an executor's falling asleep arrive. A lost one would leave the executor asleep
/// until the guard's time is up.
#[test]
fn an_executor_is_woken_whenever_work_arrives() {
    const ROUNDS: u64 = 50_000;
    let asked = Arc::new(AtomicU64::new(0));
    let (send, receive) = mpsc::channel::<Remote>();
    // Answers each round a little later within the time that falling asleep takes. It spins, so that it is awake
    // when the executor is not.
    let answering = std::thread::spawn({
        let asked = asked.clone();
        move || {
            let remote = receive.recv().unwrap();
            for round in 1..=ROUNDS {
                let mut looks = 0u32;
                while asked.load(Ordering::Acquire) != round {
                    looks += 1;
                    if looks > 10_000 {
                        std::thread::yield_now();
                    }
                }
                for _ in 0..round % 100 {
                    std::hint::spin_loop();
                }
                remote.run(move |rt| rt.local::<Waiting>().0.take().expect("a round is open").complete(()));
            }
        }
    });
    uring::block_on(|rt| async move {
        send.send(rt.remote()).unwrap();
        let guard = rt.clone();
        rt.spawn(async move {
            guard.sleep(Duration::from_secs(120)).await;
            panic!("a wake-up was lost");
        });
        for round in 1..=ROUNDS {
            let (done, result) = completion();
            rt.local::<Waiting>().0.set(Some(done));
            asked.store(round, Ordering::Release);
            result.await;
        }
    })
    .unwrap();
    answering.join().unwrap();
}

/// Who waits for the answer of the present round.
#[derive(Default)]
struct Waiting(Cell<Option<Completer<()>>>);

#[test]
fn sleeps_last_at_least_as_long_as_asked() {
    uring::block_on(|rt| async move {
        let start = (Instant::now(), rt.now());
        let tasks: Vec<_> = [20u64, 5, 10, 0]
            .into_iter()
            .map(|millis| {
                let rt2 = rt.clone();
                rt.spawn(async move {
                    rt2.sleep(Duration::from_millis(millis)).await;
                    (millis, rt2.now())
                })
            })
            .collect();
        for task in tasks {
            let (millis, end) = task.await;
            assert!(end.since(start.1) >= millis * 1_000_000);
        }
        assert!(start.0.elapsed() >= Duration::from_millis(20), "monotonic time is real time");
        rt.sleep_until(start.1).await;
    })
    .unwrap();
}

#[test]
fn random_numbers_differ() {
    uring::block_on(|rt| async move {
        let numbers: std::collections::HashSet<_> = (0..1000).map(|_| rt.random()).collect();
        assert_eq!(numbers.len(), 1000);
    })
    .unwrap();
}
