//! Does the server side say what the specification says, to honest, confused and hostile clients?
//! Method: scripted bytes, whole and cut at every place, against the bytes or actions expected.

use forebay_base::Random;
use forebay_nbd::client::{self, Answer, OptionReply, RequestHeader};
use forebay_nbd::wire::{command, command_flag, info, option, option_reply};
use forebay_nbd::{
    Action, Agreement, Command, Decoded, ErrorCode, Export, Handshake, PAYLOAD_PART, REQUEST_MAX, Refusal,
    Replies, Style, TlsMode, Transmission, Violation,
};
use forebay_runtime::Arena;

fn export() -> Export {
    Export { name: "pool/vol".into(), size: 1 << 30, block_size: 8192, read_only: false }
}

/// A negotiation with the greeting taken and the client's flags sent.
fn greeted(tls: TlsMode, flags: u32) -> Handshake {
    let mut handshake = Handshake::new(tls);
    let greeting = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    assert_eq!(handshake.poll_action(), Some(Action::Send(greeting)));
    handshake.handle_input(&flags.to_be_bytes());
    handshake
}

/// Feeds an option and answers what the server asks, from a house with one export. Returns what it sent and how it ended.
fn converse(handshake: &mut Handshake, bytes: &[u8]) -> (Vec<OptionReply>, Option<Action>) {
    handshake.handle_input(bytes);
    let mut replies = Vec::new();
    loop {
        match handshake.poll_action() {
            None => return (replies, None),
            Some(Action::Send(sent)) => {
                let mut sent = &sent[..];
                while let Ok(Some(reply)) = OptionReply::take(&mut sent) {
                    replies.push(reply);
                }
                if !sent.is_empty() {
                    // The answer to EXPORT_NAME is no option reply.
                    replies.push(OptionReply { option: 1, kind: 0, data: sent.to_vec() });
                }
            }
            Some(Action::Find(name)) if name == "pool/vol" || name == "alias" => {
                handshake.found(Ok(export()))
            }
            Some(Action::Find(name)) if name == "stopping" => handshake.found(Err(Refusal::Stopping)),
            Some(Action::Find(name)) => {
                handshake.found(Err(Refusal::Unknown(format!("no export is called {name}"))))
            }
            // In two parts, as a long list is.
            Some(Action::List { skip: 0 }) => handshake.listed(&["pool/vol".into()], false),
            Some(Action::List { .. }) => handshake.listed(&["pool/two".into()], true),
            Some(end) => return (replies, Some(end)),
        }
    }
}

fn kinds(replies: &[OptionReply]) -> Vec<u32> {
    replies.iter().map(|reply| reply.kind).collect()
}

fn go(name: &str) -> Vec<u8> {
    client::option(option::GO, &client::info_data(name, &[info::NAME, info::BLOCK_SIZE]))
}

#[test]
fn a_modern_client_reaches_transmission() {
    let mut handshake = greeted(TlsMode::Off, 3);
    let (replies, end) = converse(&mut handshake, &client::option(option::EXTENDED_HEADERS, &[]));
    assert_eq!((kinds(&replies), end), (vec![option_reply::ACK], None));
    let (replies, _) = converse(&mut handshake, &client::option(option::STRUCTURED_REPLY, &[]));
    assert_eq!(kinds(&replies), [option_reply::ERR_EXT_HEADER_REQD]);
    let query = client::context_data("alias", &["base:allocation", "x-a:b"]);
    let (replies, _) = converse(&mut handshake, &client::option(option::SET_META_CONTEXT, &query));
    assert_eq!(kinds(&replies), [option_reply::META_CONTEXT, option_reply::ACK]);
    assert_eq!(replies[0].data, b"\0\0\0\x01base:allocation");
    let (replies, end) = converse(&mut handshake, &[go("pool/vol"), b"tail".to_vec()].concat());
    assert_eq!(kinds(&replies), [3, 3, 3, 1]);
    assert_eq!(replies[0].data, [&[0, 0][..], &(1u64 << 30).to_be_bytes(), &[0x0d, 0xed]].concat());
    assert_eq!(replies[1].data, b"\0\x01pool/vol");
    assert_eq!(replies[2].data, [0, 3, 0, 0, 0, 1, 0, 0, 0x20, 0, 2, 0, 0, 0]);
    let agreement = Agreement { export: export(), style: Style::Extended, allocation: true };
    assert_eq!(end, Some(Action::Transmit(agreement)));
    assert_eq!(handshake.into_leftover(), b"tail");
}

#[test]
fn an_old_client_reaches_transmission() {
    for (flags, zeroes) in [(0, 124), (1, 124), (2, 0)] {
        let mut handshake = greeted(TlsMode::Off, flags);
        let (replies, end) = converse(&mut handshake, &client::option(option::EXPORT_NAME, b"pool/vol"));
        assert_eq!(replies[0].data.len(), 10 + zeroes);
        assert_eq!(replies[0].data[8..10], [0x0d, 0x6d], "DF is not offered without structured replies");
        let agreement = Agreement { export: export(), style: Style::Simple, allocation: false };
        assert_eq!(end, Some(Action::Transmit(agreement)));
    }
    let mut handshake = greeted(TlsMode::Off, 0);
    let (_, end) = converse(&mut handshake, &client::option(option::LIST, &[]));
    assert_eq!(end, Some(Action::Close(Some(Violation::NotFixedNewstyle(option::LIST)))));
    let mut handshake = greeted(TlsMode::Off, 4);
    assert_eq!(converse(&mut handshake, &[]).1, Some(Action::Close(Some(Violation::ClientFlags(4)))));
}

#[test]
fn options_are_refused_as_specified() {
    let long = client::option(option::INFO, &vec![0; 40_000]);
    let cases: &[(Vec<u8>, u32)] = &[
        (client::option(4, b"peek"), option_reply::ERR_UNSUP),
        (client::option(0x7fff_ffff, &[0; 100]), option_reply::ERR_UNSUP),
        (client::option(option::LIST, b"x"), option_reply::ERR_INVALID),
        (client::option(option::STARTTLS, &[]), option_reply::ERR_POLICY),
        (client::option(option::STARTTLS, b"x"), option_reply::ERR_INVALID),
        (client::option(option::STRUCTURED_REPLY, b"x"), option_reply::ERR_INVALID),
        (client::option(option::EXTENDED_HEADERS, b"x"), option_reply::ERR_INVALID),
        (client::option(option::GO, b"x"), option_reply::ERR_INVALID),
        (go("pool/none"), option_reply::ERR_UNKNOWN),
        (go(&"ü".repeat(2048)), option_reply::ERR_UNKNOWN),
        (go("stopping"), option_reply::ERR_SHUTDOWN),
        (long, option_reply::ERR_TOO_BIG),
        (
            client::option(option::SET_META_CONTEXT, &client::context_data("pool/vol", &["base:allocation"])),
            option_reply::ERR_INVALID,
        ),
    ];
    let mut handshake = greeted(TlsMode::Off, 3);
    for (bytes, kind) in cases {
        let (replies, end) = converse(&mut handshake, bytes);
        assert_eq!((kinds(&replies), end), (vec![*kind], None), "{:?}", &bytes[..24]);
        let message = std::str::from_utf8(&replies[0].data).expect("a message is UTF-8");
        assert!((1..=4096).contains(&message.len()), "an error says why, in a string");
    }
    // After all that the negotiation still works.
    let (replies, _) = converse(&mut handshake, &client::option(option::LIST, &[]));
    assert_eq!(kinds(&replies), [2, 2, 1]);
    assert_eq!(replies[0].data, b"\0\0\0\x08pool/vol");
    let (replies, end) = converse(&mut handshake, &client::option(option::ABORT, b"ignored"));
    assert_eq!((kinds(&replies), end), (vec![1], Some(Action::Close(None))));
}

#[test]
fn a_context_belongs_to_its_export_and_to_the_last_request() {
    let set = |name, queries: &[&str]| {
        client::option(option::SET_META_CONTEXT, &client::context_data(name, queries))
    };
    let cases: &[(&[Vec<u8>], bool)] = &[
        (&[set("pool/vol", &["base:allocation"])], true),
        (&[set("pool/vol", &["base:allocation"]), set("pool/vol", &[])], false),
        (&[set("pool/vol", &["base:allocation"]), set("pool/none", &["base:allocation"])], false),
        (&[set("pool/vol", &["base:"])], false),
    ];
    for (options, expected) in cases {
        let mut handshake = greeted(TlsMode::Off, 3);
        converse(&mut handshake, &client::option(option::STRUCTURED_REPLY, &[]));
        options.iter().for_each(|bytes| drop(converse(&mut handshake, bytes)));
        let (_, end) = converse(&mut handshake, &go("pool/vol"));
        let Some(Action::Transmit(agreement)) = end else { panic!("{end:?}") };
        assert_eq!(agreement.allocation, *expected);
    }
}

#[test]
fn tls_is_forced_and_resets_what_was_agreed() {
    let mut handshake = greeted(TlsMode::Required, 3);
    for bytes in [go("pool/vol"), client::option(option::LIST, &[]), client::option(77, &[])] {
        assert_eq!(kinds(&converse(&mut handshake, &bytes).0), [option_reply::ERR_TLS_REQD]);
    }
    let (replies, end) = converse(&mut handshake, &client::option(option::STARTTLS, &[]));
    assert_eq!((kinds(&replies), end), (vec![1], Some(Action::StartTls)));
    handshake.secured();
    let (replies, _) = converse(&mut handshake, &client::option(option::STARTTLS, &[]));
    assert_eq!(kinds(&replies), [option_reply::ERR_INVALID]);
    let (_, end) = converse(&mut handshake, &go("pool/vol"));
    assert!(matches!(end, Some(Action::Transmit(_))));

    let mut handshake = greeted(TlsMode::Required, 3);
    let (_, end) = converse(&mut handshake, &client::option(option::EXPORT_NAME, b"pool/vol"));
    assert_eq!(end, Some(Action::Close(Some(Violation::TlsRequired))));

    // Somebody in the middle adds an option behind the client's STARTTLS.
    let mut handshake = greeted(TlsMode::Required, 3);
    let injected = [client::option(option::STARTTLS, &[]), go("pool/vol")].concat();
    let (_, end) = converse(&mut handshake, &injected);
    assert_eq!(end, Some(Action::Close(Some(Violation::PlaintextAfterTls))));
}

#[test]
fn a_negotiation_ends() {
    let mut handshake = greeted(TlsMode::Off, 3);
    let many = client::option(99, &[]).repeat(200);
    let (replies, end) = converse(&mut handshake, &many);
    assert_eq!((replies.len(), end), (128, Some(Action::Close(Some(Violation::TooManyOptions)))));
    let mut handshake = greeted(TlsMode::Off, 3);
    let mut huge = client::option(99, &[]);
    huge[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    let (_, end) = converse(&mut handshake, &huge);
    assert_eq!(end, Some(Action::Close(Some(Violation::TooManyBytes))));
    let mut handshake = greeted(TlsMode::Off, 3);
    let (_, end) = converse(&mut handshake, &[b'x'; 16]);
    assert_eq!(end, Some(Action::Close(Some(Violation::OptionMagic(0x7878787878787878)))));
}

/// A client that was told of ten thousand exports may ask four things about each, and is asked to go then.
#[test]
fn every_export_of_a_list_may_be_asked_about() {
    const EXPORTS: usize = 10_000;
    const PAGE: usize = 1000;
    let names: Vec<String> = (0..EXPORTS).map(|number| format!("pool/volume-{number}")).collect();
    let mut handshake = greeted(TlsMode::Off, 3);
    handshake.handle_input(&client::option(option::LIST, &[]));
    let (mut listed, mut bytes_most) = (0, 0);
    loop {
        match handshake.poll_action() {
            Some(Action::List { skip }) => {
                let end = EXPORTS.min(skip + PAGE);
                handshake.listed(&names[skip..end], end == EXPORTS);
            }
            Some(Action::Send(bytes)) => {
                bytes_most = bytes_most.max(bytes.len());
                let mut input = &bytes[..];
                while let Some(reply) = OptionReply::take(&mut input).expect("replies are whole") {
                    if reply.kind == option_reply::SERVER {
                        assert_eq!(&reply.data[4..], names[listed].as_bytes());
                        listed += 1;
                    }
                }
            }
            other => {
                assert_eq!(other, None);
                break;
            }
        }
    }
    assert_eq!(listed, EXPORTS);
    assert!(bytes_most <= PAGE * 64, "a part of the list at a time, not {bytes_most} bytes");
    let about = client::option(option::INFO, &client::info_data("pool/vol", &[info::NAME, info::BLOCK_SIZE]));
    for _ in 0..4 * EXPORTS {
        assert_eq!(converse(&mut handshake, &about).1, None);
    }
    let end = (0..200).find_map(|_| converse(&mut handshake, &about).1);
    assert_eq!(end, Some(Action::Close(Some(Violation::TooManyOptions))));
}

/// A request that there is no room for waits, takes no memory, and goes on when there is.
#[test]
fn a_request_waits_for_room() {
    let arena = Arena::new();
    let mut decoder = transmission(Style::Simple, false);
    let bytes = [
        request(Style::Simple, 0, command::WRITE, 0, 1 << 20),
        vec![3; 1 << 20],
        request(Style::Simple, 0, command::FLUSH, 0, 0),
    ]
    .concat();
    let mut input = &bytes[..];
    for _ in 0..3 {
        let mut asked = Vec::new();
        let decoded = decoder.decode(&mut input, &arena, |command| {
            let Command::Write { data, len } = command else { panic!("a write came") };
            asked.push((data.len(), *len));
            false
        });
        assert!(matches!(decoded, Ok(Some(Decoded::Postponed))), "{decoded:?}");
        assert_eq!((asked, arena.bytes_out(), decoder.receiving()), (vec![(0, 1 << 20)], 0, 0));
    }
    let mut all = Vec::new();
    while let Some(decoded) = decoder.decode(&mut input, &arena, |_| true).expect("well formed") {
        let Decoded::Request(request) = decoded else { panic!("{decoded:?}") };
        all.push(matches!(request.command, Command::Write { .. } | Command::Flush));
    }
    assert_eq!((all, input.len()), (vec![true, true], 0));
}

#[test]
fn cuts_in_the_byte_stream_do_not_matter() {
    let script = [
        client::option(option::STRUCTURED_REPLY, &[]),
        client::option(option::INFO, &vec![0; 33_000]),
        client::option(option::SET_META_CONTEXT, &client::context_data("pool/vol", &["base:allocation"])),
        go("pool/vol"),
    ]
    .concat();
    let mut whole = greeted(TlsMode::Off, 3);
    let expected = converse(&mut whole, &script);
    let mut random = Random::new(1);
    for _ in 0..50 {
        let mut handshake = greeted(TlsMode::Off, 3);
        let (mut replies, mut end, mut rest) = (Vec::new(), None, &script[..]);
        while !rest.is_empty() {
            let cut = 1 + random.below(rest.len().min(3000) as u64) as usize;
            let (more, ended) = converse(&mut handshake, &rest[..cut]);
            replies.extend(more);
            end = ended;
            rest = &rest[cut..];
        }
        assert_eq!((&replies, &end), (&expected.0, &expected.1));
    }
}

fn transmission(style: Style, allocation: bool) -> Transmission {
    Transmission::new(&Agreement { export: export(), style, allocation })
}

fn request(style: Style, flags: u16, kind: u16, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    RequestHeader { flags, kind, cookie: 7, offset, len }.encode(style, &mut bytes);
    bytes
}

/// Decodes everything, in words.
fn decode(transmission: &mut Transmission, bytes: &[u8]) -> Result<Vec<String>, Violation> {
    let (arena, mut input, mut words) = (Arena::new(), bytes, Vec::new());
    while let Some(decoded) = transmission.decode(&mut input, &arena, |_| true)? {
        words.push(match decoded {
            Decoded::Request(request) => match request.command {
                Command::Write { data, len } => {
                    assert!(data.iter().all(|part| (part.as_ptr() as usize).is_multiple_of(4096)));
                    let bytes: Vec<u8> = data.iter().flat_map(|part| part.iter().copied()).collect();
                    assert_eq!(bytes.len(), len as usize);
                    let sum = bytes.iter().fold(0u64, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte));
                    format!("write {}+{len} {sum:x} fua={}", request.offset, request.fua)
                }
                command => format!("{command:?} at {} fua={}", request.offset, request.fua),
            },
            Decoded::Refused(refused) => format!("{:?}: {}", refused.code, refused.message),
            Decoded::Postponed => panic!("there is room"),
            Decoded::Disconnect => "disconnect".into(),
        });
    }
    Ok(words)
}

#[test]
fn requests_are_checked() {
    use command_flag::*;
    let end = 1u64 << 30;
    let cases: &[(Style, u16, u16, u64, u64, &str)] = &[
        (Style::Simple, 0, command::READ, 4096, 8192, "Read { len: 8192 } at 4096 fua=false"),
        (Style::Simple, 0, command::READ, 1, 3, "Read { len: 3 } at 1 fua=false"),
        (Style::Simple, FUA, command::READ, 0, 0, "Read { len: 0 } at 0 fua=true"),
        (Style::Simple, DF, command::READ, 0, 512, "Invalid"),
        (Style::Structured, DF, command::READ, 0, 512, "Read"),
        (Style::Simple, 0, command::READ, end - 4096, 4097, "Invalid"),
        (Style::Simple, 0, command::READ, u64::MAX, 4096, "Invalid"),
        (Style::Simple, 0, command::READ, 0, u64::from(REQUEST_MAX) + 1, "Invalid"),
        (Style::Extended, 0, command::READ, 0, 1 << 40, "Invalid"),
        (Style::Simple, 0, command::FLUSH, 0, 0, "Flush"),
        (Style::Simple, 0, command::FLUSH, 0, 1, "Invalid"),
        (Style::Simple, FUA, command::TRIM, 0, end, "Trim { len: 1073741824 } at 0 fua=true"),
        (Style::Simple, 0, command::TRIM, 1, end, "Invalid"),
        (Style::Simple, 0, command::CACHE, 0, end, "Cache"),
        (Style::Simple, REQ_ONE, command::CACHE, 0, 1, "Invalid"),
        (
            Style::Simple,
            NO_HOLE | FAST_ZERO,
            command::WRITE_ZEROES,
            0,
            512,
            "WriteZeroes { len: 512, no_hole: true, fast: true }",
        ),
        (Style::Simple, 0, command::WRITE_ZEROES, end, 1, "NoSpace"),
        (Style::Structured, REQ_ONE, command::BLOCK_STATUS, 0, 512, "BlockStatus { len: 512, one: true }"),
        (Style::Structured, 0, command::BLOCK_STATUS, 0, 0, "Invalid"),
        (Style::Structured, 0, command::BLOCK_STATUS, end, 512, "Invalid"),
        (Style::Structured, 0, 8, 0, 512, "Invalid: this command is not known here"),
        (Style::Structured, 0, 0xffff, 0, 512, "Invalid: this command is not known here"),
        (Style::Simple, 0xffff, command::DISC, 9, 9, "disconnect"),
        (Style::Simple, PAYLOAD_LEN, command::READ, 0, 512, "Invalid"),
    ];
    for &(style, flags, kind, offset, len, expected) in cases {
        let words =
            decode(&mut transmission(style, true), &request(style, flags, kind, offset, len)).unwrap();
        assert!(
            words.len() == 1 && words[0].starts_with(expected),
            "{style:?} {kind} {offset}+{len}: {words:?}"
        );
    }
    let no_context = &mut transmission(Style::Structured, false);
    let words = decode(no_context, &request(Style::Structured, 0, command::BLOCK_STATUS, 0, 512)).unwrap();
    assert_eq!(words, ["Invalid: no metadata context was selected for this export"]);
}

#[test]
fn a_read_only_export_takes_no_changes() {
    let export = Export { read_only: true, ..export() };
    let agreement = Agreement { export, style: Style::Structured, allocation: true };
    let mut transmission = Transmission::new(&agreement);
    for kind in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
        let mut bytes = request(Style::Structured, 0, kind, 0, 512);
        bytes.extend(vec![0; if kind == command::WRITE { 512 } else { 0 }]);
        let words = decode(&mut transmission, &bytes).expect("in step");
        assert!(words.len() == 1 && words[0].contains("NotPermitted"), "{kind}: {words:?}");
    }
    let bytes = request(Style::Structured, 0, command::READ, 0, 512);
    let words = decode(&mut transmission, &bytes).expect("in step");
    assert!(!words[0].contains("NotPermitted"), "{words:?}");
    let mut handshake = greeted(TlsMode::Off, 0);
    handshake.handle_input(&client::option(option::EXPORT_NAME, b"pool/vol"));
    let mut flags = 0;
    while let Some(action) = handshake.poll_action() {
        match action {
            Action::Find(_) => handshake.found(Ok(agreement.export.clone())),
            Action::Send(bytes) if bytes.len() == 134 => flags = u16::from_be_bytes([bytes[8], bytes[9]]),
            _ => {}
        }
    }
    assert_eq!(flags, 0x0507, "READ_ONLY beside HAS_FLAGS, SEND_FLUSH, CAN_MULTI_CONN and SEND_CACHE");
}

#[test]
fn payloads_of_refused_requests_are_skipped() {
    let style = Style::Extended;
    let script = [
        request(style, 0, command::WRITE, 1 << 30, 5000),
        vec![1; 5000],
        request(style, command_flag::PAYLOAD_LEN, command::BLOCK_STATUS, 0, 12),
        vec![2; 12],
        request(style, command_flag::PAYLOAD_LEN | command_flag::FUA, command::WRITE, 0, 3),
        vec![1, 2, 3],
        request(style, 0, command::WRITE, 0, 0),
        request(style, 0, command::FLUSH, 0, 0),
    ]
    .concat();
    let words = decode(&mut transmission(style, true), &script).unwrap();
    let expected = ["NoSpace", "Invalid", "write 0+3 402 fua=true", "write 0+0 0", "Flush"];
    assert_eq!(words.len(), expected.len(), "{words:?}");
    assert!(words.iter().zip(expected).all(|(word, start)| word.starts_with(start)), "{words:?}");
}

#[test]
fn a_stream_out_of_step_is_closed() {
    let simple = &mut transmission(Style::Simple, false);
    assert_eq!(decode(simple, &[b'x'; 28]), Err(Violation::RequestMagic(0x78787878)));
    // The forms do not mix.
    let extended = &mut transmission(Style::Extended, false);
    let bytes = request(Style::Simple, 0, command::READ, 0, 512);
    assert_eq!(decode(extended, &[&bytes[..], &[0; 4]].concat()), Err(Violation::RequestMagic(0x25609513)));
    let too_long = u64::from(REQUEST_MAX) + 1;
    let bytes = request(Style::Simple, 0, command::WRITE, 0, too_long);
    assert_eq!(
        decode(&mut transmission(Style::Simple, false), &bytes),
        Err(Violation::PayloadTooLong(too_long))
    );
}

#[test]
fn requests_survive_any_cut() {
    for style in [Style::Simple, Style::Structured, Style::Extended] {
        let mut random = Random::new(3);
        let mut script = Vec::new();
        for _ in 0..40 {
            let kind = random.below(8) as u16;
            let kind = if kind == command::DISC { command::WRITE } else { kind };
            let len = if random.one_in(8) { random.below(700_000) } else { random.below(9000) };
            script.extend(request(style, random.below(2) as u16, kind, random.below(1 << 30), len));
            if kind == command::WRITE {
                let mut payload = vec![0; len as usize];
                random.fill(&mut payload);
                script.extend(payload);
            }
        }
        let expected = decode(&mut transmission(style, true), &script).unwrap();
        assert!(expected.len() >= 40);
        for _ in 0..20 {
            let (mut cutting, mut words, mut rest) = (transmission(style, true), Vec::new(), &script[..]);
            while !rest.is_empty() {
                let step = if random.one_in(3) { 40 } else { 300_000 };
                let cut = 1 + random.below(rest.len().min(step) as u64) as usize;
                words.extend(decode(&mut cutting, &rest[..cut]).unwrap());
                rest = &rest[cut..];
            }
            assert_eq!(words, expected);
        }
    }
}

#[test]
fn memory_follows_bytes_not_promises() {
    let (arena, mut decoder) = (Arena::new(), transmission(Style::Simple, false));
    let header = request(Style::Simple, 0, command::WRITE, 0, u64::from(REQUEST_MAX));
    assert!(decoder.decode(&mut &header[..], &arena, |_| true).unwrap().is_none());
    assert_eq!((arena.bytes_out(), decoder.receiving()), (PAYLOAD_PART, u64::from(REQUEST_MAX)));
    let mut sent = 0;
    while sent + 100_000 < REQUEST_MAX as usize {
        assert!(decoder.decode(&mut &[5; 100_000][..], &arena, |_| true).unwrap().is_none());
        sent += 100_000;
        assert!(arena.bytes_out() <= sent + PAYLOAD_PART, "{} for {sent}", arena.bytes_out());
    }
}

#[test]
fn replies_are_what_the_client_side_reads() {
    let arena = Arena::new();
    for style in [Style::Simple, Style::Structured, Style::Extended] {
        let mut replies = Replies::new(style);
        assert!(replies.is_empty());
        let data = arena.copy(&[9; 5000]).freeze();
        replies.done(1, 0);
        replies.data(2, 4096, vec![data.slice(0, 4096), data.slice(4096, 904)]);
        replies.error(3, 0, ErrorCode::NoSpace, "no space left in the pool");
        if style != Style::Simple {
            replies.block_status(4, 0, [(4096, true), (8192, false)].into_iter());
        }
        replies.data(5, 0, Vec::new());
        let batch = replies.take_batch(&arena);
        assert!(replies.is_empty());
        assert_eq!(batch.len(), 4, "headers between data are one buffer");
        let bytes: Vec<u8> = batch.iter().flat_map(|part| part.iter().copied()).collect();
        let mut input = &bytes[..];
        let mut next = || {
            let read_len = |cookie| if cookie == 2 { 5000 } else { 0 };
            client::take_reply(&mut input, style, read_len).unwrap().expect("a whole reply")
        };
        assert_eq!(next().result, Ok(Answer::Done));
        assert_eq!(next().result, Ok(Answer::Data(vec![9; 5000])));
        let failure = next().result.unwrap_err();
        assert_eq!(failure.code, 28);
        assert_eq!(failure.message, if style == Style::Simple { "" } else { "no space left in the pool" });
        if style != Style::Simple {
            assert_eq!(next().result, Ok(Answer::Extents(vec![(4096, 0), (8192, 3)])));
        }
        assert_eq!(next().result, Ok(Answer::Done));
        assert!(input.is_empty());
    }
}
