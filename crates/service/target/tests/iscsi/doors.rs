//! Who gets in, who is kept out, and how sessions end.

use crate::house::TARGET;
use crate::support::{
    Client, HOST, Served, chap, credentials, drain, eventually, test_unit_ready, wait, wanted,
};
use forebay_iscsi::initiator::{Event, LoginError, Wanted};
use forebay_iscsi::pdu::LoginRequest;
use forebay_iscsi::wire::async_event;
use forebay_iscsi::{Challenge, Parameters, Purpose};
use forebay_target::HALF_OPEN_MAX;
use std::io::Write;
use std::net::TcpStream;

fn status(result: Result<Client, LoginError>) -> u16 {
    match result {
        Err(LoginError::Refused(status)) => status,
        Err(error) => panic!("{error}"),
        Ok(_) => 0,
    }
}

#[test]
fn nobody_comes_in_who_was_not_told_of() {
    let served = Served::new();
    for (initiator, target, expected) in [
        (HOST, TARGET, 0),
        ("IQN.1993-08.org.EXAMPLE:host", TARGET, 0),
        ("iqn.stranger", TARGET, 0x0201),
        (HOST, "iqn.2026-11.io.forebay:other", 0x0201),
    ] {
        let wanted = Wanted { purpose: Purpose::Normal { target: target.into() }, ..wanted(initiator) };
        assert_eq!(status(Client::log_in(served.address(0), wanted)), expected, "{initiator} {target}");
    }
    let discovery = |initiator| Wanted { purpose: Purpose::Discovery, ..wanted(initiator) };
    assert_eq!(status(Client::log_in(served.address(0), discovery("iqn.stranger"))), 0x0201);
    assert!(served.event("iscsi.login.refused").contains("iqn.stranger"));
    let mut client = Client::log_in(served.address(0), discovery(HOST)).unwrap();
    client.session.text(b"SendTargets=All\0");
    let Some(Event::Text { text, .. }) = client.event() else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let expected = format!(
        "TargetName={TARGET}\0TargetAddress={},1\0TargetAddress={},2\0",
        served.address(0),
        served.address(1)
    );
    assert_eq!(text, expected);
    served.stop();
}

#[test]
fn chap_is_asked_for_where_it_is_configured() {
    let served = Served::with(chap("host", "the host's secret", Some(("pool", "the pool's secret"))));
    let host = |secret| Some(credentials("host", secret));
    let pool = |secret| Some((credentials("pool", secret), Challenge { id: 1, bytes: [7; 32] }));
    for purpose in [Purpose::Discovery, Purpose::Normal { target: TARGET.into() }] {
        for algorithms in ["5", "7"] {
            let wanted = Wanted { purpose: purpose.clone(), algorithms, ..wanted(HOST) };
            let log_in = |credentials, target| {
                Client::log_in(served.address(0), Wanted { credentials, target, ..wanted.clone() })
            };
            assert_eq!(status(log_in(None, None)), 0x0201);
            assert_eq!(status(log_in(host("not the secret"), None)), 0x0201);
            assert_eq!(status(log_in(host("the host's secret"), None)), 0);
            assert_eq!(status(log_in(host("the host's secret"), pool("the pool's secret"))), 0);
            let wrong = log_in(host("the host's secret"), pool("not that secret"));
            assert_eq!(wrong.err(), Some(LoginError::TargetUnproven));
        }
    }
    served.stop();
}

/// The same initiator port again: the older session makes room, its commands finished.
#[test]
fn a_session_is_reinstated_and_paths_are_not() {
    let served = Served::new();
    let mut first = Client::open(served.address(0));
    let path = Client::open(served.address(1));
    assert_eq!(served.server.sessions().len(), 2, "another portal group is another path");
    let second = Client::open(served.address(0));
    assert!(first.is_hung_up());
    assert_eq!(served.server.sessions().len(), 2);
    let mut other = wanted(HOST);
    other.isid[5] = 9;
    let third = Client::log_in(served.address(0), other).unwrap();
    assert_eq!(served.server.sessions().len(), 3, "another ISID is another session");
    // Joining an existing session is not on offer.
    for (tsih, expected) in [(second.connected.tsih, 0x0208), (0xfff0, 0x020a)] {
        let joining = Wanted { tsih, ..wanted(HOST) };
        assert_eq!(status(Client::log_in(served.address(0), joining)), expected);
    }
    drop((path, second, third));
    served.stop();
}

#[test]
fn sessions_can_be_seen_and_dropped() {
    let served = Served::new();
    let mut client = Client::open(served.address(1));
    client.write(0, 0, &[1; 4096]);
    client.read(0, 0, 512);
    // Counted at the end of the round that did it.
    eventually(|| served.server.sessions()[0].commands == 5);
    let session = &served.server.sessions()[0];
    assert_eq!((session.initiator.as_str(), session.target.as_str()), (HOST, TARGET));
    assert_eq!((session.portal_group, session.bytes_read, session.bytes_written), (2, 512, 4096));
    assert!(served.server.drop_session(session.id));
    match client.event() {
        Some(Event::Async { message, .. }) => assert_eq!(message.event, async_event::SESSION_DROPPED),
        other => panic!("{other:?}"),
    }
    assert!(client.is_hung_up());
    eventually(|| served.server.sessions().is_empty());
    assert!(!served.server.drop_session(session.id));
    served.stop();
}

#[test]
fn a_lost_session_is_an_event_with_its_cause() {
    let served = Served::new();
    drop(Client::open(served.address(0)));
    let message = served.event("iscsi.session.lost");
    assert!(message.contains(HOST) && message.contains("without logging out"), "{message}");
    let plain = Parameters { header_digest: false, ..Parameters::TARGET };
    let mut client = Client::log_in(served.address(0), Wanted { parameters: plain, ..wanted(HOST) }).unwrap();
    let mut lie = forebay_iscsi::pdu::NopOut::default().encode();
    lie.set_data_len(1 << 20);
    client.stream.write_all(&lie.0).unwrap();
    assert!(client.is_hung_up());
    eventually(|| served.events.lock().unwrap().iter().any(|event| event.message.contains("1048576 bytes")));
    served.stop();
}

/// A thousand clients that begin to log in and say no more: others come in as if they were not there.
#[test]
fn half_open_logins_keep_nobody_out() {
    let served = Served::new();
    let mut first = Client::open(served.address(0));
    let begun: Vec<TcpStream> = (0..1000)
        .map(|number| {
            let mut stream = TcpStream::connect(served.address(number % 2)).unwrap();
            let request = LoginRequest { flags: 0x81, ..LoginRequest::default() }.encode().immediate();
            // Some say a little, some nothing.
            stream.write_all(&request.0[..number % 48]).unwrap();
            stream
        })
        .collect();
    first.write(0, 0, &[1; 8192]);
    let mut second = Client::log_in(served.address(0), Wanted { isid: [1; 6], ..wanted(HOST) }).unwrap();
    assert_eq!(second.call(0, test_unit_ready()).sense, Some((6, 0x2900)));
    assert_eq!(first.read(0, 0, 8192), [1; 8192]);
    // The oldest have been sent away.
    let mut oldest: Vec<TcpStream> = begun.into_iter().take(1000 - HALF_OPEN_MAX - 2).collect();
    assert!(oldest.iter_mut().all(|stream| drain(stream).is_empty()));
    assert!(served.event("iscsi.client.slow").contains("others began to log in"));
    served.stop();
}

#[test]
fn a_server_stops_with_everyone_told() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    let _silent = TcpStream::connect(served.address(1)).unwrap();
    let server = served.server.clone();
    wait(async move { server.stop().await });
    assert!(matches!(client.event(), Some(Event::Async { .. })));
    assert!(client.is_hung_up());
    assert!(TcpStream::connect(served.address(0)).is_err(), "nobody listens");
}

#[test]
fn digests_and_every_way_of_sending_data() {
    let served = Served::new();
    for bits in 0..16 {
        let parameters = Parameters {
            initial_r2t: bits & 1 != 0,
            immediate_data: bits & 2 != 0,
            header_digest: bits & 4 != 0,
            data_digest: bits & 8 != 0,
            ..Parameters::TARGET
        };
        let mut client = Client::log_in(served.address(0), Wanted { parameters, ..wanted(HOST) }).unwrap();
        assert_eq!(client.session.parameters().header_digest, parameters.header_digest);
        assert_eq!(client.call(0, test_unit_ready()).sense, Some((6, 0x2900)));
        for size in [512, 8192, 300_032, 2 << 20] {
            let data = crate::support::pattern(size, bits);
            client.write(0, 0, &data);
            assert!(client.read(0, 0, size) == data, "{parameters:?}, {size} bytes");
        }
    }
    served.stop();
}
