//! What an NBD peer can do to us.
//!
//! [`handshake`] and [`transmission`] feed raw bytes twice, whole and cut in pieces, and compare what comes of
//! it. [`sequence`] makes requests that are mostly valid, carries them out against a model and reads the replies
//! back with the client side. [`replies`] gives the client side raw bytes.
//!
//! The first bytes of an input choose the mode and the cuts, the rest is what the peer sends.

use forebay_nbd::client::{self, Answer, OptionReply, RequestHeader};
use forebay_nbd::wire::{command, command_flag};
use forebay_nbd::{
    Action, Agreement, Command, Decoded, ErrorCode, Export, Handshake, PAYLOAD_PART, Refusal, Replies, Style,
    TlsMode, Transmission,
};
use forebay_runtime::Arena;
use std::collections::HashMap;

const SIZE: u64 = 1 << 20;

fn export(name: &str) -> Export {
    Export { name: name.into(), size: SIZE, block_size: 4096, read_only: name.len().is_multiple_of(3) }
}

fn style(byte: u8) -> Style {
    [Style::Simple, Style::Structured, Style::Extended][usize::from(byte) % 3]
}

/// Cuts `bytes` into pieces of 1 to 64 bytes, as `seed` says; a seed of 0 leaves them whole.
pub fn pieces(bytes: &[u8], seed: u8) -> impl Iterator<Item = &[u8]> {
    let (mut rest, mut state) = (bytes, u32::from(seed));
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        state = state.wrapping_mul(1_664_525).wrapping_add(if seed == 0 { 0 } else { 1_013_904_223 });
        let len = if seed == 0 { rest.len() } else { (1 + (state >> 26) as usize).min(rest.len()) };
        let (piece, remaining) = rest.split_at(len);
        rest = remaining;
        Some(piece)
    })
}

/// Carries a negotiation as far as the bytes reach; everything the server sent, and how it ended.
fn negotiate(mode: TlsMode, bytes: &[u8], seed: u8) -> (Vec<u8>, Option<Action>) {
    let mut handshake = Handshake::new(mode);
    let mut sent = Vec::new();
    let mut input = pieces(bytes, seed);
    let mut fed = 0;
    loop {
        match handshake.poll_action() {
            None => match input.next() {
                Some(piece) => {
                    fed += piece.len();
                    handshake.handle_input(piece);
                }
                None => return (sent, None),
            },
            Some(Action::Send(out)) => {
                sent.extend(out);
                // An option of 16 bytes can ask for a list of exports; nothing else multiplies.
                assert!(sent.len() <= 18 + 400 * (1 + fed), "{} bytes sent for {fed}", sent.len());
            }
            Some(Action::Find(name)) => handshake.found(match name.as_bytes().first() {
                Some(b'a'..=b'm') => Ok(export(&name)),
                Some(b'!') => Err(Refusal::Stopping),
                _ => Err(Refusal::Unknown("no such export".into())),
            }),
            Some(Action::List { skip: 0 }) => handshake.listed(&["a/b".into()], false),
            Some(Action::List { .. }) => handshake.listed(&["c".into()], true),
            // The test of plaintext behind STARTTLS sees whatever is there at that time, which cuts decide.
            Some(Action::StartTls) => return (sent, None),
            Some(end) => return (sent, Some(end)),
        }
    }
}

pub fn handshake(data: &[u8]) {
    let [mode, seed, bytes @ ..] = data else { return };
    let mode = if mode % 2 == 0 { TlsMode::Off } else { TlsMode::Required };
    let whole = negotiate(mode, bytes, 0);
    let cut = negotiate(mode, bytes, seed | 1);
    let secures = |end: &Option<Action>| {
        matches!(end, None | Some(Action::Close(Some(forebay_nbd::Violation::PlaintextAfterTls))))
    };
    assert!(whole == cut || (mode == TlsMode::Required && secures(&whole.1) && secures(&cut.1)));
}

fn agreement(style: Style, allocation: bool) -> Agreement {
    Agreement { export: export("a"), style, allocation: allocation && style != Style::Simple }
}

/// Decodes all bytes; what was decoded, in words.
fn decode(agreement: &Agreement, bytes: &[u8], seed: u8) -> Vec<String> {
    let (arena, mut transmission, mut words) = (Arena::new(), Transmission::new(agreement), Vec::new());
    let (mut fed, mut asked) = (0, seed);
    for mut piece in pieces(bytes, seed) {
        fed += piece.len();
        loop {
            // Every other question about room is answered with no.
            let has_room = |_: &Command| {
                asked = asked.wrapping_add(1);
                asked.is_multiple_of(2)
            };
            match transmission.decode(&mut piece, &arena, has_room) {
                Ok(Some(Decoded::Request(request))) => {
                    let (offset, len) = (request.offset, reach(&request.command));
                    assert!(offset.checked_add(len).is_some_and(|end| end <= SIZE), "outside the export");
                    words.push(describe(request.cookie, offset, request.fua, &request.command));
                }
                Ok(Some(Decoded::Refused(refused))) => words.push(format!("{refused:?}")),
                Ok(Some(Decoded::Postponed)) => {}
                Ok(Some(Decoded::Disconnect)) => {
                    words.push("disconnect".into());
                    return words;
                }
                Ok(None) => break,
                Err(violation) => {
                    words.push(format!("{violation:?}"));
                    return words;
                }
            }
        }
        assert!(piece.is_empty(), "all input is used up when more is asked for");
        // Buffers are powers of two of at least 4 KiB, and a part more than what has come.
        assert!(arena.bytes_out() <= 2 * fed + PAYLOAD_PART, "{} held for {fed} bytes", arena.bytes_out());
    }
    words
}

fn reach(command: &Command) -> u64 {
    match *command {
        Command::Read { len } => u64::from(len),
        Command::Write { ref data, len } => {
            assert_eq!(data.iter().map(|part| part.len()).sum::<usize>(), len as usize);
            assert!(data.iter().all(|part| (part.as_ptr() as usize).is_multiple_of(4096)));
            u64::from(len)
        }
        Command::Flush => 0,
        Command::Trim { len } | Command::Cache { len } => len,
        Command::WriteZeroes { len, .. } | Command::BlockStatus { len, .. } => len,
    }
}

fn describe(cookie: u64, offset: u64, fua: bool, command: &Command) -> String {
    match command {
        Command::Write { data, .. } => {
            let bytes: Vec<u8> = data.iter().flat_map(|part| part.iter().copied()).collect();
            format!("{cookie} {offset} {fua} write {bytes:?}")
        }
        command => format!("{cookie} {offset} {fua} {command:?}"),
    }
}

pub fn transmission(data: &[u8]) {
    let [mode, seed, bytes @ ..] = data else { return };
    let agreement = agreement(style(*mode), mode & 0x80 == 0);
    assert_eq!(decode(&agreement, bytes, 0), decode(&agreement, bytes, seed | 1));
}

/// Takes eight bytes per request: which, where, how long, with what oddity.
pub fn sequence(data: &[u8]) {
    let [mode, seed, script @ ..] = data else { return };
    let agreement = agreement(style(*mode), mode & 0x80 == 0);
    let style = agreement.style;
    let (mut bytes, mut expected, mut reads) = (Vec::new(), HashMap::new(), HashMap::new());
    let mut model = vec![0u8; SIZE as usize];
    for (cookie, step) in script.chunks_exact(8).enumerate().take(256) {
        let (cookie, kind, oddity) = (cookie as u64, u16::from(step[0] % 10), step[1]);
        let mut offset = u64::from(step[2]) << 12 | u64::from(step[3]);
        // Mostly short, so that an input runs in microseconds.
        let mut len = u64::from(step[4] % 16) << 8 | u64::from(step[5]);
        let mut flags = u16::from(oddity & 1);
        match oddity >> 4 {
            1 => flags |= 1 << (step[6] % 16),
            2 => offset = offset.wrapping_sub(u64::from(step[6])),
            3 if kind != command::WRITE => len <<= step[6] % 32,
            4 => len <<= 4,
            _ => {}
        }
        if style != Style::Extended {
            len &= 0xffff_ffff;
        }
        let has_payload = kind == command::WRITE
            || style == Style::Extended && flags & command_flag::PAYLOAD_LEN != 0 && kind != command::DISC;
        if has_payload && len > 65_535 {
            len = 65_535;
        }
        RequestHeader { flags, kind, cookie, offset, len }.encode(style, &mut bytes);
        if has_payload {
            bytes.extend(std::iter::repeat_n(step[7], len as usize));
        }
        if kind == command::READ {
            reads.insert(cookie, len as usize);
        }
        if kind == command::DISC {
            break;
        }
        expected.insert(cookie, (offset, len));
    }
    let (arena, mut decoder, mut replies) =
        (Arena::new(), Transmission::new(&agreement), Replies::new(style));
    let mut contents = HashMap::new();
    'all: for mut piece in pieces(&bytes, *seed) {
        while let Some(decoded) =
            decoder.decode(&mut piece, &arena, |_| true).expect("every message is well formed")
        {
            match decoded {
                Decoded::Postponed => unreachable!("there is room"),
                Decoded::Disconnect => break 'all,
                Decoded::Refused(refused) => {
                    replies.error(refused.cookie, refused.offset, refused.code, refused.message)
                }
                Decoded::Request(request) => {
                    let (cookie, offset) = (request.cookie, request.offset);
                    assert_eq!(expected[&cookie].0, offset);
                    let at = offset as usize;
                    match request.command {
                        Command::Read { len } => {
                            let data = model[at..at + len as usize].to_vec();
                            replies.data(cookie, offset, vec![arena.copy(&data).freeze()]);
                            contents.insert(cookie, data);
                        }
                        Command::Write { data, .. } => {
                            let bytes: Vec<u8> = data.iter().flat_map(|part| part.iter().copied()).collect();
                            model[at..at + bytes.len()].copy_from_slice(&bytes);
                            replies.done(cookie, offset);
                        }
                        Command::BlockStatus { len, .. } => {
                            replies.block_status(cookie, offset, [(len, true)].into_iter())
                        }
                        Command::WriteZeroes { fast: true, .. } => {
                            replies.error(cookie, offset, ErrorCode::NotSupported, "slow")
                        }
                        _ => replies.done(cookie, offset),
                    }
                }
            }
        }
    }
    let batch: Vec<u8> = replies.take_batch(&arena).iter().flat_map(|part| part.iter().copied()).collect();
    let mut rest = &batch[..];
    while !rest.is_empty() {
        let read_len = |cookie| reads.get(&cookie).copied().unwrap_or(0);
        let reply = client::take_reply(&mut rest, style, read_len).expect("well formed").expect("whole");
        let (_, len) = expected.remove(&reply.cookie).expect("one reply to each request");
        match reply.result {
            Ok(Answer::Data(data)) => assert_eq!(Some(data), contents.remove(&reply.cookie)),
            Ok(Answer::Extents(extents)) => assert_eq!(extents, [(len, 0)]),
            Ok(Answer::Done) => assert!(reads.get(&reply.cookie).is_none_or(|&len| len == 0)),
            Err(failure) => assert!(failure.code != 0),
        }
    }
    assert!(expected.is_empty(), "{} requests were not answered", expected.len());
}

pub fn replies(data: &[u8]) {
    let [mode, bytes @ ..] = data else { return };
    let mut rest = bytes;
    while let Ok(Some(_)) = OptionReply::take(&mut rest) {}
    let mut rest = bytes;
    while let Ok(Some(_)) = client::take_reply(&mut rest, style(*mode), |cookie| cookie as usize % 100) {}
}
