//! Do initiators that fall silent lose their place, and only they? Are guesses slowed, and only they?
//! Method: the server on an executor whose network is in memory and whose clock jumps to the next timer.

use crate::house::{Disks, Host, MemoryDisk, Table, mapping};
use crate::network::World;
use crate::support::{HOST, chap, credentials, read, wanted, write};
use forebay_iscsi::initiator::{Event, Login, LoginError, ScsiRequest, Session, Wanted};
use forebay_iscsi::wire::task_function;
use forebay_iscsi::{KEEPALIVE_AFTER, KEEPALIVE_LIMIT, Parameters};
use forebay_pool::{Ceiling, Event as PoolEvent, Rate};
use forebay_runtime::{Cores, Executor, Rt, Stream};
use forebay_target::{BYTES_MAX, HALF_OPEN_MAX, IscsiServer, LOGIN_MAX, PACE_TIME, Portal, Proof};
use futures_util::future::{join, join_all};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Events = Arc<Mutex<Vec<PoolEvent>>>;

/// Runs `test` with a server over disks of 1 GiB, all on one core.
fn with_server<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(Rt, Rc<IscsiServer>, Events) -> F + 'static,
) {
    with_host(|_| (), |rt, server, events, _| test(rt, server, events));
}

/// The same for another kind of [`HOST`], and with the disks.
fn with_host<F: Future<Output = ()> + 'static>(
    change: impl FnOnce(&mut Host) + 'static,
    test: impl FnOnce(Rt, Rc<IscsiServer>, Events, Vec<Arc<MemoryDisk>>) -> F + 'static,
) {
    let executor = Executor::new(0, World::new());
    let rt = executor.rt().clone();
    let cores = Cores::new(vec![rt.remote()]);
    executor.block_on(async move {
        let disks: Vec<_> = (0..3).map(|n| MemoryDisk::new(n + 1, 0, 1 << 30)).collect();
        let luns = disks.iter().enumerate().map(|(lun, disk)| mapping(lun as u16, disk)).collect();
        let table = Table::default();
        let mut host = Host { proof: Proof::Name, luns, ceiling: None };
        change(&mut host);
        table.0.lock().unwrap().insert(HOST.into(), host);
        let events = Events::default();
        let sink = events.clone();
        let sink = Arc::new(move |event| sink.lock().unwrap().push(event));
        let portals = vec![Portal { listen: "127.0.0.1:1".into(), group: 1 }];
        let volumes = Disks(Arc::new(disks.clone()));
        let server = IscsiServer::start(cores, volumes, Arc::new(table), portals, sink).await.unwrap();
        let server = Rc::new(server);
        test(rt, server.clone(), events, disks).await;
        server.stop().await;
    });
}

/// An initiator that is in.
struct Client {
    rt: Rt,
    stream: Stream,
    session: Session,
}

impl Client {
    async fn open(rt: &Rt, number: u8) -> Client {
        Client::open_from(rt, &format!("10.0.{}.1:1", number / 2), number).await
    }

    async fn open_from(rt: &Rt, address: &str, number: u8) -> Client {
        let mut wanted = wanted(HOST);
        wanted.isid[5] = number;
        wanted.parameters = Parameters { header_digest: false, data_digest: false, ..Parameters::TARGET };
        Client::log_in(rt, address, wanted).await.unwrap()
    }

    async fn log_in(rt: &Rt, address: &str, wanted: Wanted) -> Result<Client, LoginError> {
        let stream = rt.connect(address).await.unwrap();
        let mut login = Login::new(wanted);
        loop {
            stream.send(login.take_batch(rt.arena())).await.unwrap();
            let (bytes, count) = stream.recv(rt.buffer(4096)).await;
            let Ok(count @ 1..) = count else { return Err(LoginError::Nonsense("nothing: it hung up")) };
            if let Some(connected) = login.handle_input(&mut &bytes[..count])? {
                return Ok(Client { rt: rt.clone(), stream, session: Session::new(&connected) });
            }
        }
    }

    async fn send(&mut self) {
        if self.session.has_output() {
            // The server may have hung up: that shows in what it sends.
            let _ = self.stream.send(self.session.take_batch(self.rt.arena())).await;
        }
    }

    /// The next event; `None` when the server has hung up.
    async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.session.poll_event() {
                return Some(event);
            }
            self.send().await;
            let (bytes, count) = self.stream.recv(self.rt.buffer(64 << 10)).await;
            match count {
                Ok(count @ 1..) => self.session.handle_input(&mut &bytes[..count], self.rt.arena()).unwrap(),
                _ => return None,
            }
        }
    }

    async fn call(&mut self, request: ScsiRequest) -> u8 {
        self.session.command(request).unwrap();
        loop {
            if let Event::Completed { status, .. } = self.event().await.expect("an answer") {
                return status;
            }
        }
    }
}

#[test]
fn a_client_that_does_not_log_in_is_disconnected_in_time() {
    with_server(|rt, _, events| async move {
        let silent = rt.connect("127.0.0.1:1").await.unwrap();
        let begun = rt.now();
        let (_, count) = silent.recv(rt.buffer(1)).await;
        assert_eq!(count, Ok(0));
        assert_eq!(rt.now().since(begun), LOGIN_MAX.as_nanos() as u64);
        assert!(events.lock().unwrap()[0].message.contains("did not log in within 15 s"));
    });
}

const GUESSER: &str = "127.0.0.1:1";

/// Of guesses that come all at once ten are answered, and from then on one a second. A host that has been in from there comes in at once.
#[test]
fn guesses_are_slowed_and_hosts_are_not() {
    with_server(|rt, _, events| async move {
        let _host = Client::open_from(&rt, GUESSER, 1).await;
        let begun = rt.now();
        let guess = |number: u64| {
            let rt = rt.clone();
            async move {
                // The server accepts one at a time.
                rt.sleep(Duration::from_micros(number)).await;
                let result = Client::log_in(&rt, GUESSER, wanted(&format!("iqn.guess{number}"))).await;
                let seconds = rt.now().since(begun) / 1_000_000_000;
                matches!(result, Err(LoginError::Refused(0x0201))).then_some(seconds)
            }
        };
        let host = async {
            for number in 2..9 {
                rt.sleep(Duration::from_millis(1700)).await;
                let before = rt.now();
                let _again = Client::open_from(&rt, GUESSER, number).await;
                assert_eq!(rt.now(), before);
            }
        };
        let (guesses, ()) = join(join_all((0..30).map(guess)), host).await;
        let answered: Vec<u64> = guesses.into_iter().flatten().collect();
        let per_second = |second| answered.iter().filter(|at| **at == second).count();
        assert_eq!(per_second(0), 10, "{answered:?}");
        assert!((1..LOGIN_MAX.as_secs()).all(|second| per_second(second) == 1), "{answered:?}");
        assert!(answered.len() <= 10 + 15, "the limit of a login's time ends the others");
        let events = events.lock().unwrap();
        assert_eq!(events.iter().filter(|event| event.code == "iscsi.login.slowed").count(), 1);
    });
}

/// Guesses at a host's name go on all the while from one address. From others, where it has never been, the host comes in at once.
#[test]
fn guesses_at_a_name_do_not_keep_its_host_out() {
    const SECRET: &str = "the host's secret";
    let change = |host: &mut Host| host.proof = chap("host", SECRET, None);
    with_host(change, |rt, _, _, _| async move {
        let guess = |number: u64| {
            let rt = rt.clone();
            async move {
                rt.sleep(Duration::from_micros(number)).await;
                Client::log_in(&rt, GUESSER, wanted(HOST)).await.is_err()
            }
        };
        let host = async {
            for number in 1..5 {
                rt.sleep(Duration::from_secs(2)).await;
                let before = rt.now();
                let own = Wanted { credentials: Some(credentials("host", SECRET)), ..wanted(HOST) };
                Client::log_in(&rt, &format!("10.0.0.{number}:1"), own).await.unwrap();
                assert_eq!(rt.now(), before);
            }
        };
        let (guesses, ()) = join(join_all((0..30).map(guess)), host).await;
        assert!(guesses.into_iter().all(|is_refused| is_refused));
    });
}

/// A host's session comes again while its disk still works for the old one, and others of its address with it. What has proven itself and waits for
/// the old one to leave is not displaced by them.
#[test]
fn a_login_that_waits_for_the_session_that_it_replaces_stays() {
    with_host(
        |_| (),
        |rt, server, _, disks| async move {
            let mut old = Client::open(&rt, 1).await;
            assert_eq!(old.call(ScsiRequest::default()).await, 2, "POWER ON");
            disks[0].slow_read.store(10_000_000_000, Ordering::SeqCst);
            old.session.command(read(0, 512)).unwrap();
            old.send().await;
            rt.sleep(Duration::from_secs(1)).await;
            let others = async {
                rt.sleep(Duration::from_secs(1)).await;
                let mut streams = Vec::new();
                for _ in 0..2 * HALF_OPEN_MAX {
                    streams.push(rt.connect("10.0.0.1:1").await.unwrap());
                    rt.sleep(Duration::from_millis(1)).await;
                }
                streams
            };
            let (mut again, _others) = join(Client::open(&rt, 1), others).await;
            assert_eq!(server.sessions().len(), 1);
            assert_eq!(again.call(ScsiRequest::default()).await, 2, "POWER ON");
        },
    );
}

#[test]
fn an_initiator_that_answers_pings_stays_and_one_that_does_not_goes() {
    with_server(|rt, server, events| async move {
        let mut quiet = Client::open(&rt, 1).await;
        let mut vanished = Client::open(&rt, 2).await;
        let begun = rt.now();
        for _ in 0..100 {
            assert!(matches!(quiet.event().await, Some(Event::Pinged)));
            quiet.send().await;
        }
        assert!(rt.now().since(begun) >= 100 * KEEPALIVE_AFTER.as_nanos() as u64);
        assert_eq!(server.sessions().len(), 1);
        // It has been asked, and heard nothing more than that.
        assert!(matches!(vanished.event().await, Some(Event::Pinged)));
        assert!(vanished.event().await.is_none());
        let events = events.lock().unwrap();
        let message = format!("did not answer a ping for {} s", KEEPALIVE_LIMIT.as_secs());
        assert!(events.len() == 1 && events[0].message.contains(&message), "{events:?}");
    });
}

/// Initiators that begin writes and go no further take the core's memory; one that needs some gets it in the end.
#[test]
fn memory_that_is_kept_without_progress_is_taken_back() {
    with_server(|rt, server, events| async move {
        // Each keeps 32 MiB: data of 128 writes, but for the last bytes of each.
        let mut greedy = Vec::new();
        for number in 0..8 {
            let mut client = Client::open(&rt, number + 10).await;
            assert_eq!(client.call(ScsiRequest::default()).await, 2, "POWER ON");
            for _ in 0..128 {
                let announced = forebay_iscsi::pdu::ScsiCommand {
                    flags: 0x21,
                    itt: client.session.next_cmd_sn(),
                    expected_len: 256 << 10,
                    cmd_sn: client.session.next_cmd_sn(),
                    cdb: write(rt.arena(), 0, &[0; 512]).cdb,
                    ..Default::default()
                };
                client.session.set_next_cmd_sn(announced.cmd_sn.wrapping_add(1));
                client.session.raw().bytes(announced.encode(), &[0; 512]);
            }
            client.send().await;
            greedy.push(client);
        }
        let begun = rt.now();
        let mut modest = Client::open(&rt, 1).await;
        assert_eq!(modest.call(ScsiRequest::default()).await, 2, "POWER ON");
        assert_eq!(modest.call(read(0, 1 << 20)).await, 0);
        let waited = Duration::from_nanos(rt.now().since(begun));
        assert!((Duration::from_secs(29)..Duration::from_secs(100)).contains(&waited), "{waited:?}");
        assert_eq!(server.sessions().len(), 1, "those that kept it have gone, by whichever limit");
        assert!(!events.lock().unwrap().is_empty());
    });
}

/// A disk takes a minute for each write, and the initiator is not asked for the data of all of them. That is no fault of its: it waits, and all are
/// carried out.
#[test]
fn an_initiator_waits_for_a_slow_disk_as_long_as_it_takes() {
    const WRITES: usize = 40;
    const LEN: usize = 1 << 20;
    let ceiling = Ceiling::new(Rate { iops: 0, bytes: LEN as u64 / 64 }, Duration::ZERO);
    let change = |host: &mut Host| host.ceiling = Some(Arc::new(ceiling));
    with_host(change, |rt, server, events, _| async move {
        let mut client = Client::open(&rt, 1).await;
        assert_eq!(client.call(ScsiRequest::default()).await, 2, "POWER ON");
        let begun = rt.now();
        for nth in 0..WRITES {
            let write = write(rt.arena(), (nth * LEN) as u64, &vec![nth as u8; LEN]);
            client.session.command(write).unwrap();
        }
        let mut answered = 0;
        while answered < WRITES {
            match client.event().await.expect("the session goes on") {
                Event::Completed { status: 0, .. } => answered += 1,
                Event::Pinged => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(rt.now().since(begun) > (WRITES as u64 - 2) * 64_000_000_000);
        assert_eq!((server.sessions().len(), events.lock().unwrap().len()), (1, 0));
    });
}

/// An initiator asks for 64 MiB and takes nothing: what it is answered waits in the disk, not in memory. One that waits can be
/// aborted, the others come in their order, and an initiator that does not go on taking them is disconnected.
#[test]
fn answers_wait_for_their_initiator_on_the_disk() {
    const READS: usize = 16;
    const LEN: usize = 4 << 20;
    with_server(|rt, server, events| async move {
        let mut client = Client::open(&rt, 1).await;
        assert_eq!(client.call(ScsiRequest::default()).await, 2, "POWER ON");
        let before = rt.arena().bytes_out();
        let itts: Vec<u32> = (0..READS).map(|_| client.session.command(read(0, LEN)).unwrap()).collect();
        client.send().await;
        rt.sleep(Duration::from_secs(1)).await;
        let held = rt.arena().bytes_out() - before;
        assert!(held as u64 <= BYTES_MAX + LEN as u64 + (1 << 20), "{held}");
        // Of the last two, which wait, one is not wanted any more.
        let (last, aborted) = (itts[READS - 1], itts[READS - 2]);
        let cmd_sn = client.session.next_cmd_sn().wrapping_sub(2);
        let asked = client.session.manage(task_function::ABORT_TASK, 0, aborted, cmd_sn);
        client.send().await;
        let mut answered = Vec::new();
        while answered.last() != Some(&last) {
            match client.event().await.expect("the server goes on") {
                Event::Completed { itt, status: 0, data_in, .. } => {
                    assert_eq!(data_in.iter().map(|part| part.len()).sum::<usize>(), LEN);
                    answered.push(itt);
                }
                Event::TaskAnswered { itt, response: 0 } if itt == asked => {}
                Event::Pinged => {}
                other => panic!("{other:?}"),
            }
        }
        let expected: Vec<u32> = itts.iter().copied().filter(|&itt| itt != aborted).collect();
        assert_eq!(answered, expected);
        let begun = rt.now();
        for _ in 0..READS {
            client.session.command(read(0, LEN)).unwrap();
        }
        client.send().await;
        while !server.sessions().is_empty() {
            rt.sleep(Duration::from_secs(1)).await;
        }
        // By whichever limit: it does not answer pings either.
        assert!(Duration::from_nanos(rt.now().since(begun)) <= PACE_TIME + Duration::from_secs(7));
        assert_eq!(events.lock().unwrap().len(), 1);
    });
}

/// A write is asked for its data, and they do not come, but for a byte now and then and answers to pings.
#[test]
fn an_initiator_that_trickles_data_is_disconnected() {
    with_server(|rt, server, events| async move {
        let mut client = Client::open(&rt, 1).await;
        assert_eq!(client.call(ScsiRequest::default()).await, 2, "POWER ON");
        let announced = forebay_iscsi::pdu::ScsiCommand {
            flags: 0xa1,
            itt: client.session.next_cmd_sn(),
            expected_len: 8 << 20,
            cmd_sn: client.session.next_cmd_sn(),
            cdb: crate::support::cdb(0x8a, 0, 8 << 20),
            ..Default::default()
        };
        client.session.set_next_cmd_sn(announced.cmd_sn.wrapping_add(1));
        client.session.raw().bytes(announced.encode(), &[]);
        client.send().await;
        let begun = rt.now();
        // It is asked for its data, which this side does not know of, and answers pings.
        let mut bytes = rt.buffer(64 << 10);
        loop {
            let (received, count) = client.stream.recv(bytes).await;
            bytes = received;
            match count {
                Ok(1..) => client.session.ping(&[]),
                _ => break,
            };
            rt.sleep(Duration::from_secs(10)).await;
            client.send().await;
        }
        let took = Duration::from_nanos(rt.now().since(begun));
        assert!(took <= PACE_TIME + Duration::from_secs(15), "{took:?}");
        assert!(server.sessions().is_empty());
        assert!(events.lock().unwrap()[0].message.contains("less than 1024 KiB"));
    });
}
