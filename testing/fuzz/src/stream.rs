//! What a snapshot's stream can hold that no sender wrote.
//!
//! Checksums stop random bytes at the door, so the input is laid over the records of a valid stream whose checksums are then set right, one
//! on top of the other. Pieces of any size must lead where the whole leads, and what is accepted must survive being written and read again.

use forebay_base::{Checksum, Id, WallTime};
use forebay_pool::stream::{Decoder, Encoder, Header, Record, StreamError};

const BLOCK: usize = 4096;
const SUM_AT: usize = 16;

fn records() -> Vec<Vec<u8>> {
    let header = Header {
        snapshot: Id(5),
        base: Some(Id(6)),
        block_shift: 12,
        size: 1 << 20,
        created: WallTime(7),
        from: 0,
        volume: "a".into(),
        name: "s".into(),
    };
    let (mut encoder, blocks) = (Encoder::default(), [[1u8; BLOCK], [2; BLOCK]]);
    let blocks: Vec<(u8, Checksum, &[u8])> =
        blocks.iter().map(|block| (0, Checksum::of(block), &block[..])).collect();
    let mut records = vec![Vec::new(); 4];
    encoder.header(&header, &mut records[0]);
    encoder.clear(1, 4, &mut records[1]);
    encoder.write(9, &blocks, &mut records[2]);
    encoder.end(2, &mut records[3]);
    records
}

/// All that comes of a stream, and how it ends.
fn decode(bytes: &[u8], piece: usize) -> (Vec<Record>, Option<StreamError>) {
    let (mut decoder, mut records) = (Decoder::default(), Vec::new());
    for mut input in bytes.chunks(piece) {
        loop {
            match decoder.next(&mut input) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => break,
                Err(error) => return (records, Some(error)),
            }
        }
        assert!(input.is_empty(), "a piece is taken whole");
    }
    let end = decoder.finish().err();
    (records, end)
}

/// Two bytes of each group say where, of all records together, the third is laid.
pub fn stream(data: &[u8]) {
    let piece = 1 + data.first().map_or(0, |byte| usize::from(*byte)) * 37;
    assert_eq!(decode(data, piece), decode(data, data.len().max(1)));
    let mut records = records();
    // Headers of records matter most: contents of blocks are passed over.
    let places: Vec<(usize, usize)> = records
        .iter()
        .enumerate()
        .flat_map(|(nth, record)| (0..record.len().min(512)).map(move |at| (nth, at)))
        .collect();
    for patch in data.chunks_exact(3) {
        let place = usize::from(u16::from_be_bytes([patch[0], patch[1]])) % places.len();
        let (nth, at) = places[place];
        records[nth][at] = patch[2];
    }
    let mut sum = Checksum::default();
    for record in &mut records {
        record[SUM_AT..SUM_AT + 16].copy_from_slice(&sum.0.to_le_bytes());
        sum = Checksum::of(record);
        record[SUM_AT..SUM_AT + 16].copy_from_slice(&sum.0.to_le_bytes());
    }
    let bytes = records.concat();
    let (accepted, end) = decode(&bytes, piece);
    assert_eq!((accepted.clone(), end), decode(&bytes, bytes.len()));
    let (mut encoder, mut again) = (Encoder::default(), Vec::new());
    for record in &accepted {
        match record {
            Record::Header(header) => encoder.header(header, &mut again),
            Record::Clear { first, count } => encoder.clear(*first, *count, &mut again),
            Record::Write(write) => {
                let mut rest = &write.data[..];
                let cut = |(kind, len): &(u8, usize)| {
                    let (block, after) = rest.split_at(*len);
                    rest = after;
                    (*kind, Checksum::of(block), block)
                };
                let blocks: Vec<_> = write.forms.iter().map(cut).collect();
                encoder.write(write.first, &blocks, &mut again);
            }
            Record::End(totals) => encoder.end(totals.mapped, &mut again),
        }
    }
    assert_eq!(decode(&again, again.len().max(1)).0, accepted);
}
