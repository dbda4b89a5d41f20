//! Fixed newstyle negotiation, the client's side: greeting, flags, `NBD_OPT_GO`, transmission.

use crate::damaged;
use std::io::{self, Read, Write};

const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
const FLAG_NO_ZEROES: u16 = 1 << 1;

const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERROR: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;
/// Longest option reply that is taken: an export's information is 14 bytes, an error's text some hundred.
const REPLY_MAX: u32 = 16 << 10;

/// What the server says about an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Export {
    pub size: u64,
    flags: u16,
}

impl Export {
    fn has(self, bit: u32) -> bool {
        self.flags & (1 << bit) != 0
    }
    pub fn flush(self) -> bool {
        self.has(2)
    }
    pub fn fua(self) -> bool {
        self.has(3)
    }
    pub fn trim(self) -> bool {
        self.has(5)
    }
    pub fn write_zeroes(self) -> bool {
        self.has(6)
    }
    /// Flush on one connection covers what was acknowledged on all.
    pub fn multi_conn(self) -> bool {
        self.has(8)
    }
}

fn take<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Negotiates up to the transmission phase.
pub fn open(stream: &mut (impl Read + Write), name: &str) -> io::Result<Export> {
    let greeting = u64::from_be_bytes(take(stream)?);
    let style = u64::from_be_bytes(take(stream)?);
    if greeting != NBDMAGIC || style != IHAVEOPT {
        return Err(damaged("greeting is not that of a newstyle NBD server"));
    }
    let offered = u16::from_be_bytes(take(stream)?);
    if offered & FLAG_FIXED_NEWSTYLE == 0 {
        return Err(damaged("greeting does not offer the fixed newstyle negotiation"));
    }
    let flags = u32::from(offered & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES));

    let name_len = u32::try_from(name.len()).expect("an export's name is short");
    let mut request = Vec::new();
    request.extend_from_slice(&flags.to_be_bytes());
    request.extend_from_slice(&IHAVEOPT.to_be_bytes());
    request.extend_from_slice(&OPT_GO.to_be_bytes());
    request.extend_from_slice(&(4 + name_len + 2).to_be_bytes());
    request.extend_from_slice(&name_len.to_be_bytes());
    request.extend_from_slice(name.as_bytes());
    request.extend_from_slice(&0u16.to_be_bytes());
    stream.write_all(&request)?;

    let mut export = None;
    loop {
        if u64::from_be_bytes(take(stream)?) != OPTION_REPLY_MAGIC {
            return Err(damaged("option reply does not start with its magic"));
        }
        if u32::from_be_bytes(take(stream)?) != OPT_GO {
            return Err(damaged("option reply answers another option"));
        }
        let kind = u32::from_be_bytes(take(stream)?);
        let len = u32::from_be_bytes(take(stream)?);
        if len > REPLY_MAX {
            return Err(damaged("option reply is longer than any should be"));
        }
        let mut payload = vec![0; len as usize];
        stream.read_exact(&mut payload)?;
        match kind {
            REP_ACK => return export.ok_or_else(|| damaged("answer to NBD_OPT_GO lacks the export's size")),
            REP_INFO if payload.len() == 12 && payload[..2] == INFO_EXPORT.to_be_bytes() => {
                export = Some(Export {
                    size: u64::from_be_bytes(payload[2..10].try_into().expect("eight bytes")),
                    flags: u16::from_be_bytes(payload[10..12].try_into().expect("two bytes")),
                });
            }
            REP_INFO => {}
            kind if kind & REP_ERROR != 0 => {
                let text = String::from_utf8_lossy(&payload);
                return Err(io::Error::other(format!("export `{name}` refused (error {kind:#x}): {text}")));
            }
            _ => return Err(damaged("option reply is of an unknown type")),
        }
    }
}
