//! Can names and secrets be told apart from outside? How fast they can be tried: [`timeouts`](crate::timeouts).

use crate::house::{Host, TARGET, mapping};
use crate::support::{Client, HOST, Served, chap, credentials, wanted};
use forebay_iscsi::initiator::{LoginError, Wanted};
use forebay_iscsi::pdu::{LoginRequest, LoginResponse};
use forebay_iscsi::{Algorithm, Output, Purpose};
use forebay_runtime::Arena;
use forebay_target::Proof;
use std::io::{Read, Write};
use std::net::TcpStream;

const SECRET: &str = "the host's secret";
const OPEN: &str = "iqn.open";

/// [`HOST`] has a secret; `iqn.open` has none.
fn served() -> Served {
    let served = Served::with(chap("host", SECRET, None));
    let luns = vec![mapping(0, &served.disks[0])];
    let host = Host { proof: Proof::Name, luns, ceiling: None };
    served.table.0.lock().unwrap().insert(OPEN.into(), host);
    served
}

/// What a login is answered: of each request status, flags and text, with challenges and numbers made the same.
fn answers(served: &Served, requests: &[(u8, String)]) -> Vec<(u16, u8, String)> {
    let arena = Arena::new();
    let mut stream = TcpStream::connect(served.address(0)).unwrap();
    let mut all = Vec::new();
    for (flags, text) in requests {
        let mut output = Output::new(false, false);
        let header = LoginRequest { flags: *flags, itt: 5, isid: [1; 6], ..LoginRequest::default() };
        output.bytes(header.encode().immediate(), text.replace(' ', "\0").as_bytes());
        let sent = crate::support::join(&output.take_batch(&arena));
        stream.write_all(&sent).unwrap();
        let mut header = [0; 48];
        if stream.read_exact(&mut header).is_err() {
            break;
        }
        let response = LoginResponse::decode(&forebay_iscsi::pdu::Bhs(header));
        let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut text = vec![0; len.next_multiple_of(4)];
        stream.read_exact(&mut text).unwrap();
        let text = String::from_utf8(text[..len].to_vec()).unwrap();
        let same = |pair: &str| match pair.split_once('=') {
            Some((key @ ("CHAP_C" | "CHAP_I"), _)) => format!("{key}="),
            _ => pair.to_owned(),
        };
        all.push((response.status, response.flags, text.split('\0').map(same).collect::<Vec<_>>().join(" ")));
    }
    all
}

/// A stranger cannot tell whether a name is known, whether it has a secret, or whether a target is there.
#[test]
fn a_stranger_learns_no_names() {
    let other = "iqn.2026-11.io.forebay:other";
    let who = |initiator: &str, target: &str| format!("InitiatorName={initiator} TargetName={target}");
    let discovery = |initiator: &str, _: &str| format!("InitiatorName={initiator} SessionType=Discovery");
    type Opening<'a> = &'a dyn Fn(&str, &str) -> String;
    let openings: [Opening; 2] = [&who, &discovery];
    for opening in openings {
        let ways = |initiator: &str, target: &str| {
            let opening = opening(initiator, target);
            let then = |rest: &[(u8, &str)]| {
                let rest = rest.iter().map(|(flags, text)| (*flags, text.to_string()));
                std::iter::once((0, format!("{opening} AuthMethod=CHAP,None"))).chain(rest).collect()
            };
            let ways: Vec<Vec<(u8, String)>> = vec![
                // CHAP to its end, with either algorithm, with a name and answer that are wrong; with neither algorithm.
                then(&[(0, "CHAP_A=7"), (0x81, "CHAP_N=host CHAP_R=0x0011")]),
                then(&[(0, "CHAP_A=5"), (0x81, "CHAP_N=x CHAP_R=0x00112233445566778899aabbccddeeff")]),
                then(&[(0, "CHAP_A=8")]),
                // And with a challenge to answer; with a key that is not known.
                then(&[(0, "CHAP_A=7"), (0x81, "CHAP_N=host CHAP_R=0x0011 CHAP_I=1 CHAP_C=0x0102")]),
                then(&[(0, "X-odd=1"), (0, "CHAP_A=8")]),
                // Without CHAP, and past it.
                vec![(0x81, format!("{opening} AuthMethod=None"))],
                vec![(0x87, opening.clone())],
            ];
            ways
        };
        let strange = ways("iqn.stranger", TARGET);
        let mut compared = vec![(HOST, TARGET), (HOST, other), ("iqn.stranger", other)];
        // In a discovery an open host is in, which is what open means.
        if opening("", "").contains("TargetName") {
            compared.push((OPEN, other));
        }
        for (nth, requests) in strange.iter().enumerate() {
            // Each in a server of its own: guesses are slowed.
            let served = served();
            let expected = answers(&served, requests);
            assert_eq!(expected.last().unwrap().0, 0x0201, "{requests:?}: {expected:?}");
            for (initiator, target) in &compared {
                let requests = &ways(initiator, target)[nth];
                assert_eq!(answers(&served, requests), expected, "{initiator} {target}: {requests:?}");
            }
            served.stop();
        }
    }
}

fn refused(served: &Served, wanted: Wanted) -> u16 {
    match Client::log_in(served.address(0), wanted) {
        Err(LoginError::Refused(status)) => status,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("{HOST} was let in"),
    }
}

#[test]
fn what_a_stranger_is_not_told_is_in_the_event_and_a_host_is_told_when_it_has_proven_itself() {
    let served = served();
    let elsewhere = Purpose::Normal { target: "iqn.2026-11.io.forebay:other".into() };
    let proven = Wanted { credentials: Some(credentials("host", SECRET)), ..wanted(HOST) };
    assert_eq!(refused(&served, Wanted { purpose: elsewhere.clone(), ..proven.clone() }), 0x0203);
    assert_eq!(refused(&served, wanted("iqn.stranger")), 0x0201);
    assert_eq!(refused(&served, Wanted { purpose: elsewhere, ..wanted(OPEN) }), 0x0201);
    let wrong = Some(credentials("host", "not the secret"));
    assert_eq!(refused(&served, Wanted { credentials: wrong, ..wanted(HOST) }), 0x0201);
    assert!(Client::log_in(served.address(0), proven).is_ok());
    let events = served.events.lock().unwrap();
    let messages: Vec<&str> = events.iter().map(|event| event.message.as_str()).collect();
    for (message, words) in messages.iter().zip([
        "it sees no volume at the target that it asked for, iqn.",
        "no host has this initiator name",
        "it sees no volume at the target",
        "its CHAP secret is wrong",
    ]) {
        assert!(message.contains(words), "{messages:?}");
    }
    drop(events);
    served.stop();
}

#[test]
fn an_algorithm_can_be_forbidden() {
    let served = Served::with_minimum(chap("host", SECRET, None), Algorithm::Sha256);
    let with = |algorithms| {
        let credentials = Some(credentials("host", SECRET));
        Client::log_in(served.address(0), Wanted { credentials, algorithms, ..wanted(HOST) }).map(drop)
    };
    assert_eq!(with("5"), Err(LoginError::Refused(0x0201)));
    assert_eq!(with("5,7"), Ok(()));
    assert!(served.event("iscsi.login.refused").contains("algorithm that is allowed"));
    served.stop();
}
