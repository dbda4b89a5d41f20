//! Who gets in, who does not, and what each side hears of it.

use crate::support::{INITIATOR, TARGET, bytes, config, log_in, wanted};
use forebay_iscsi::initiator::{LoginError, Wanted};
use forebay_iscsi::pdu::{LoginRequest, LoginResponse, NopOut};
use forebay_iscsi::{
    Algorithm, Authorization, Challenge, Chap, Credentials, Login, LoginAction, LoginConfig, LoginStatus,
    Output, Parameters, Piece, Purpose, Receiver, Request, Secret, Violation,
};
use forebay_runtime::Arena;

fn credentials(user: &str, secret: &str) -> Credentials {
    Credentials { user: user.into(), secret: Secret::new(secret).unwrap() }
}
fn challenge(seed: u8) -> Challenge {
    Challenge { id: seed, bytes: [seed; 32] }
}
const SECRET: &str = "the host's secret";
const OTHER: &str = "the pool's secret";

fn chap(target: bool) -> Authorization {
    let target = target.then(|| credentials("pool", OTHER));
    Authorization::Chap {
        chap: Chap { initiator: credentials("host", SECRET), target },
        challenge: challenge(9),
    }
}

#[test]
fn an_open_door() {
    for cut in [1, 7, 4096] {
        let check = |request: &Request| {
            assert_eq!(
                *request,
                Request { initiator: INITIATOR.into(), purpose: Purpose::Normal { target: TARGET.into() } }
            );
            Ok(Authorization::Open)
        };
        let (connected, established) = log_in(wanted(), config(Parameters::TARGET), check, cut);
        let (connected, established) = (connected.unwrap(), established.unwrap());
        assert_eq!((connected.tsih, connected.portal_group_tag), (77, Some(3)));
        assert_eq!((established.tsih, established.exp_cmd_sn), (77, connected.cmd_sn));
        assert_eq!(established.stat_sn, connected.exp_stat_sn);
        assert_eq!(established.isid, [0x80, 0, 0, 1, 2, 3]);
    }
}

#[test]
fn chap_lets_in_who_knows_the_secret() {
    let failed = LoginStatus::AuthenticationFailed as u16;
    let host = |user: &str, secret: &str| Some(credentials(user, secret));
    for algorithms in ["5", "7", "6,7,5"] {
        let proves = |theirs: Option<Credentials>,
                      target: Option<(Credentials, Challenge)>,
                      purpose: Purpose,
                      mutual: bool| {
            let wanted = Wanted { credentials: theirs, target, algorithms, purpose, ..wanted() };
            log_in(wanted, config(Parameters::TARGET), |_| Ok(chap(mutual)), 4096).0.map(|_| ())
        };
        for purpose in [Purpose::Discovery, Purpose::Normal { target: TARGET.into() }] {
            let proves = |theirs, target, mutual| proves(theirs, target, purpose.clone(), mutual);
            assert_eq!(proves(host("host", SECRET), None, false), Ok(()));
            assert_eq!(proves(host("host", SECRET), None, true), Ok(()), "it need not ask back");
            assert_eq!(proves(host("host", "another secret"), None, false), Err(LoginError::Refused(failed)));
            assert_eq!(proves(host("guest", SECRET), None, false), Err(LoginError::Refused(failed)));
            assert_eq!(proves(None, None, false), Err(LoginError::Refused(failed)));
            let pool = |secret| Some((credentials("pool", secret), challenge(200)));
            assert_eq!(proves(host("host", SECRET), pool(OTHER), true), Ok(()));
            assert_eq!(
                proves(host("host", SECRET), pool("a wrong secret"), true),
                Err(LoginError::TargetUnproven)
            );
            assert_eq!(proves(host("host", SECRET), pool(OTHER), false), Err(LoginError::Refused(failed)));
            // Reflection: our own challenge, sent back to be answered by us.
            let reflected = Some((credentials("pool", OTHER), challenge(9)));
            assert_eq!(proves(host("host", SECRET), reflected, true), Err(LoginError::Refused(failed)));
        }
    }
    // A target that lets in without proving itself, where it was to.
    let pool = Some((credentials("pool", OTHER), challenge(200)));
    let asks = Wanted { credentials: host("host", SECRET), target: pool, ..wanted() };
    let found = log_in(asks, config(Parameters::TARGET), |_| Ok(Authorization::Open), 4096).0;
    assert_eq!(found.unwrap_err(), LoginError::TargetUnproven);
    let none = Wanted { credentials: host("host", SECRET), algorithms: "6,8", ..wanted() };
    let found = log_in(none, config(Parameters::TARGET), |_| Ok(chap(false)), 4096).0;
    assert_eq!(found.unwrap_err(), LoginError::Refused(failed), "no algorithm in common");
    // One secret for both directions would let a reflected answer pass.
    let same = |_: &Request| {
        let both = Chap { initiator: credentials("host", SECRET), target: Some(credentials("pool", SECRET)) };
        Ok(Authorization::Chap { chap: both, challenge: challenge(9) })
    };
    let target = Some((credentials("pool", SECRET), challenge(1)));
    let asks = Wanted { credentials: host("host", SECRET), target, ..wanted() };
    assert_eq!(
        log_in(asks, config(Parameters::TARGET), same, 4096).0.unwrap_err(),
        LoginError::Refused(failed)
    );
}

#[test]
fn the_drivers_refusal_is_what_the_initiator_hears() {
    for status in [LoginStatus::Forbidden, LoginStatus::NotFound, LoginStatus::OutOfResources] {
        let (connected, established) = log_in(wanted(), config(Parameters::TARGET), |_| Err(status), 4096);
        assert_eq!(connected.unwrap_err(), LoginError::Refused(status as u16));
        assert_eq!(established.unwrap_err(), Violation::LoginFailed(status));
    }
}

/// Status, flags and text of each answer, and how the login ended.
type Spoken = (Vec<(u16, u8, String)>, Option<Result<(), Violation>>);

/// Sends requests (flags and text) as they are; the statuses, texts and flags that come back, and how it ended.
fn raw(requests: &[(u8, &str)], authorization: &Authorization) -> Spoken {
    let arena = Arena::new();
    let mut output = Output::new(false, false);
    for &(flags, text) in requests {
        let header = LoginRequest { flags, itt: 5, isid: [1; 6], cmd_sn: 9, ..LoginRequest::default() };
        output.bytes(header.encode().immediate(), text.replace(' ', "\0").as_bytes());
    }
    raw_stream(&bytes(&output.take_batch(&arena)), authorization)
}

fn raw_stream(mut input: &[u8], authorization: &Authorization) -> Spoken {
    let arena = Arena::new();
    let mut login = Login::new(config(Parameters::TARGET), &arena);
    let mut sent = Vec::new();
    let ended = loop {
        login.handle_input(&mut input);
        match login.poll_action() {
            None => break None,
            Some(LoginAction::Send(parts)) => sent.extend(bytes(&parts)),
            Some(LoginAction::Authorize(_)) => login.authorize(Ok(authorization.clone())),
            Some(LoginAction::Join { .. }) => login.joined(Ok(1)),
            Some(LoginAction::Established(_)) => break Some(Ok(())),
            Some(LoginAction::Close(violation)) => break Some(Err(violation)),
        }
    };
    let (mut receiver, mut sent, mut answers) = (Receiver::new(false, false, 8192), &sent[..], Vec::new());
    while let Some(piece) = receiver.next(&mut sent).unwrap() {
        match piece {
            Piece::Header(bhs) => {
                let response = LoginResponse::decode(&bhs);
                answers.push((response.status, response.flags, String::new()));
            }
            Piece::Data(data) => {
                answers.last_mut().unwrap().2.push_str(&String::from_utf8_lossy(data).replace('\0', " "))
            }
            Piece::End { .. } => {}
        }
    }
    (answers, ended)
}

const SECURITY: u8 = 0x81;
const OPERATIONAL: u8 = 0x87;
const WHO: &str = "InitiatorName=iqn.a SessionType=Normal TargetName=iqn.b ";

#[test]
fn requests_that_are_wrong_are_refused_with_their_status() {
    let with = |keys: &str| format!("{WHO}{keys}");
    let table: Vec<(Vec<(u8, String)>, LoginStatus)> = vec![
        (vec![(SECURITY, "SessionType=Normal TargetName=iqn.b".into())], LoginStatus::MissingParameter),
        (vec![(SECURITY, "InitiatorName=iqn.a".into())], LoginStatus::MissingParameter),
        (vec![(SECURITY, "InitiatorName=me TargetName=iqn.b".into())], LoginStatus::InitiatorError),
        (vec![(SECURITY, "InitiatorName=iqn.a TargetName=b".into())], LoginStatus::AuthenticationFailed),
        (
            vec![(SECURITY, "InitiatorName=iqn.a SessionType=Odd".into())],
            LoginStatus::SessionTypeNotSupported,
        ),
        (vec![(SECURITY, "nonsense".into())], LoginStatus::InitiatorError),
        (vec![(SECURITY, with("AuthMethod=KRB5"))], LoginStatus::AuthenticationFailed),
        (vec![(SECURITY, with("InitialR2T=No"))], LoginStatus::InitiatorError),
        // Text that goes on, and a transit at once.
        (vec![(0xc1, with(""))], LoginStatus::InitiatorError),
        // Stages that do not exist, or not after this one.
        (vec![(0x8b, with(""))], LoginStatus::InitiatorError),
        (vec![(0x82, with("AuthMethod=None"))], LoginStatus::InitiatorError),
        (vec![(0x84, with(""))], LoginStatus::InitiatorError),
        (vec![(SECURITY, with("")), (SECURITY, String::new())], LoginStatus::InitiatorError),
        (vec![(OPERATIONAL, with("InitialR2T=No InitialR2T=No"))], LoginStatus::InitiatorError),
        (
            vec![(0x04, with("InitialR2T=No")), (OPERATIONAL, "InitialR2T=No".into())],
            LoginStatus::InitiatorError,
        ),
        // A name that changes on the way.
        (
            vec![(SECURITY, with("")), (OPERATIONAL, "InitiatorName=iqn.c".into())],
            LoginStatus::InitiatorError,
        ),
    ];
    for (requests, expected) in table {
        let requests: Vec<(u8, &str)> =
            requests.iter().map(|(flags, text)| (*flags, text.as_str())).collect();
        let (answers, ended) = raw(&requests, &Authorization::Open);
        assert_eq!(answers.last().unwrap().0, expected as u16, "{requests:?}");
        assert_eq!(ended, Some(Err(Violation::LoginFailed(expected))), "{requests:?}");
    }
    // With CHAP there is no way around it.
    for requests in [
        vec![(OPERATIONAL, WHO)],
        vec![(0x83, WHO)],
        vec![(0, WHO), (OPERATIONAL, "")],
        vec![(0, "InitiatorName=iqn.a TargetName=iqn.b AuthMethod=CHAP"), (OPERATIONAL, "")],
        vec![
            (0, "InitiatorName=iqn.a TargetName=iqn.b AuthMethod=CHAP"),
            (0, "CHAP_A=7"),
            (0x81, "CHAP_N=host"),
        ],
        vec![
            (0, "InitiatorName=iqn.a TargetName=iqn.b AuthMethod=CHAP"),
            (0, "CHAP_A=7"),
            (0x81, "CHAP_N=host CHAP_R=0x00"),
        ],
    ] {
        let (answers, ended) = raw(&requests, &chap(true));
        assert!(answers.last().unwrap().0 >> 8 == 2, "{requests:?}: {answers:?}");
        assert!(matches!(ended, Some(Err(_))), "{requests:?}");
    }
}

#[test]
fn stages_may_be_skipped_and_text_may_be_cut() {
    let (answers, ended) = raw(&[(OPERATIONAL, WHO)], &Authorization::Open);
    assert_eq!(answers, [(0, 0x87, "TargetPortalGroupTag=3 MaxRecvDataSegmentLength=262144 ".into())]);
    assert_eq!(ended, Some(Ok(())));
    let (answers, ended) = raw(&[(0x83, WHO)], &Authorization::Open);
    assert_eq!((answers[0].1, ended), (0x83, Some(Ok(()))));
    let (answers, ended) =
        raw(&[(0x40, "InitiatorName=iqn"), (0x81, &format!(".a {}", &WHO[20..]))], &Authorization::Open);
    assert_eq!(answers.iter().map(|a| (a.0, a.1)).collect::<Vec<_>>(), [(0, 0), (0, 0x81)]);
    assert_eq!(ended, None, "the operational stage is still to come");
    // A name repeated as it was is no change.
    let (_, ended) = raw(&[(SECURITY, WHO), (OPERATIONAL, "InitiatorName=iqn.A")], &Authorization::Open);
    assert_eq!(ended, Some(Ok(())));
}

/// One request of 3 bytes for each of 600 keys, before anything is proven: this ended the process.
#[test]
fn unknown_keys_are_answered_up_to_a_bound_in_every_stage() {
    let unknown = |count: usize| "x= ".repeat(count);
    let refused = Some(Err(Violation::LoginFailed(LoginStatus::InitiatorError)));
    let begin = || vec![(0, format!("{WHO}AuthMethod=CHAP")), (0, "CHAP_A=7".into())];
    let discovery = "InitiatorName=iqn.a SessionType=Discovery ";
    for authorization in [Authorization::Open, chap(true)] {
        for who in [WHO, discovery] {
            for flags in [0, SECURITY] {
                let text = |count| format!("{who}AuthMethod=CHAP,None {}", unknown(count));
                let (answers, ended) = raw(&[(flags, &text(32))], &authorization);
                assert_eq!((answers[0].0, ended), (0, None));
                assert_eq!(answers[0].2.matches("x=NotUnderstood").count(), 32);
                for count in [33, 515, 1300] {
                    let (answers, ended) = raw(&[(flags, &text(count))], &authorization);
                    assert_eq!(ended, refused, "{count}");
                    assert_eq!(answers, [(0x0200, flags & 0x0c, String::new())]);
                }
            }
        }
    }
    // Over several requests and both stages together, and behind a challenge.
    let text = |requests: &[(u8, String)]| -> Option<Result<(), Violation>> {
        let requests: Vec<(u8, &str)> = requests.iter().map(|(flags, text)| (*flags, &text[..])).collect();
        raw(&requests, &if requests[0].1.contains("CHAP") { chap(true) } else { Authorization::Open }).1
    };
    let then = |count| [begin(), vec![(0, unknown(16)), (0, unknown(count))]].concat();
    assert_eq!((text(&then(16)), text(&then(17))), (None, refused));
    let stages = |count| [(SECURITY, format!("{WHO}{}", unknown(16))), (0x04, unknown(count))];
    assert_eq!((text(&stages(16)), text(&stages(17))), (None, refused));
}

#[test]
fn an_algorithm_of_chap_can_be_the_weakest_that_is_taken() {
    let log_in = |algorithms, chap_minimum| {
        let wanted = Wanted { credentials: Some(credentials("host", SECRET)), algorithms, ..wanted() };
        let config = LoginConfig { chap_minimum, ..config(Parameters::TARGET) };
        crate::support::log_in(wanted, config, |_| Ok(chap(false)), 4096).0.map(|_| ())
    };
    let failed = Err(LoginError::Refused(LoginStatus::AuthenticationFailed as u16));
    assert_eq!(log_in("5", Algorithm::Sha256), failed);
    for (algorithms, minimum) in [("5,7", Algorithm::Sha256), ("7", Algorithm::Sha256), ("5", Algorithm::Md5)]
    {
        assert_eq!(log_in(algorithms, minimum), Ok(()), "{algorithms} {minimum:?}");
    }
}

#[test]
fn a_login_takes_neither_memory_nor_requests_without_bound() {
    let long = "A=".to_owned() + &"x".repeat(8000);
    let (_, ended) = raw(&vec![(0x40, long.as_str()); 9], &Authorization::Open);
    assert_eq!(ended, Some(Err(Violation::TextTooLong)));
    let (_, ended) = raw(&vec![(0x40, ""); 65], &Authorization::Open);
    assert_eq!(ended, Some(Err(Violation::LoginTooLong)));
    let mut requests = vec![(0x04, WHO)];
    requests.extend(vec![(0x04, ""); 64]);
    assert_eq!(raw(&requests, &Authorization::Open).1, Some(Err(Violation::LoginTooLong)));
    let mut header = LoginRequest::default().encode();
    header.set_data_len(8193);
    let found = raw_stream(&header.0, &Authorization::Open);
    assert_eq!(found, (vec![], Some(Err(Violation::SegmentTooLong { len: 8193, max: 8192 }))));
}

#[test]
fn only_logins_are_taken_before_a_login() {
    let header = NopOut { itt: 3, ..NopOut::default() }.encode();
    let (answers, ended) = raw_stream(&header.0, &Authorization::Open);
    assert_eq!(answers[0].0, LoginStatus::InvalidDuringLogin as u16);
    assert_eq!(ended, Some(Err(Violation::NotLogin(0))));
    let header = LoginRequest { flags: SECURITY, version_min: 1, ..LoginRequest::default() }.encode();
    assert_eq!(raw_stream(&header.0, &Authorization::Open).0[0].0, LoginStatus::UnsupportedVersion as u16);
}
