//! Carries out one request against a volume.
//!
//! The protocol's commands map to the volume's; what differs is decided here: prefetching, zeroes that must not
//! be holes, and which error number a failure becomes.

use crate::backing::Device;
use crate::facts::{Asked, Operation};
use forebay_base::Nanos;
use forebay_nbd::{Command, ErrorCode, Request};
use forebay_pool::{Extent, IoError};
use forebay_runtime::{Arena, Buf};

/// Most bytes that one CACHE request fetches; for more, a client asks again. A quarter of what a session may hold.
const PREFETCH_MAX: u64 = 8 << 20;
/// Most extents in one block status reply: 16 KiB of it.
const EXTENTS_MAX: usize = 1024;
/// Zeroes that must be written are written in pieces of this many bytes, all of them one buffer.
const ZEROES_PIECE: usize = 1 << 20;

/// A request that has been carried out, or has failed.
pub struct Outcome {
    pub cookie: u64,
    pub offset: u64,
    pub asked: Asked,
    /// Bytes that the session holds for it, to be given back.
    pub held: u64,
    pub result: Result<Answer, (ErrorCode, String)>,
    /// The volume is no longer there: nothing on this session will succeed any more.
    pub gone: bool,
}

pub enum Answer {
    Done,
    Data(Vec<Buf>),
    Extents(Vec<Extent>),
}

/// Bytes of memory that carrying out `command` holds.
pub fn held(command: &Command) -> u64 {
    match *command {
        Command::Read { len } | Command::Write { len, .. } => u64::from(len),
        Command::Cache { len } => len.min(PREFETCH_MAX),
        Command::WriteZeroes { no_hole: true, len, .. } => len.min(ZEROES_PIECE as u64),
        _ => 0,
    }
}

/// What a command is counted as.
fn asked(command: &Command, at: u64, since: Nanos) -> Asked {
    let (operation, bytes) = match *command {
        Command::Read { len } => (Operation::Read, u64::from(len)),
        Command::Write { len, .. } => (Operation::Write, u64::from(len)),
        Command::Flush => (Operation::Flush, 0),
        Command::Trim { len } | Command::WriteZeroes { len, .. } => (Operation::Discard, len),
        Command::Cache { .. } | Command::BlockStatus { .. } => (Operation::Other, 0),
    };
    Asked { operation, at, bytes, since }
}

/// Carries out a request that came at `since`.
pub async fn carry_out(device: impl Device, arena: Arena, request: Request, since: Nanos) -> Outcome {
    let Request { cookie, offset, fua, command } = request;
    let (held, asked) = (held(&command), asked(&command, offset, since));
    let writes = !matches!(command, Command::Read { .. } | Command::BlockStatus { .. });
    let result = execute(device, arena, offset, fua, command).await;
    let gone = matches!(result, Err(Failure::Io(IoError::Gone)));
    Outcome { cookie, offset, asked, held, result: result.map_err(|failure| failure.tell(writes)), gone }
}

enum Failure {
    Io(IoError),
    /// A fast zero that would not be fast.
    Slow,
}

impl From<IoError> for Failure {
    fn from(error: IoError) -> Failure {
        Failure::Io(error)
    }
}

impl Failure {
    fn tell(self, writes: bool) -> (ErrorCode, String) {
        let Failure::Io(error) = self else {
            let message = "no whole block is in the range, so zeroing it is no faster than writing";
            return (ErrorCode::NotSupported, message.into());
        };
        let code = match error {
            IoError::OutOfRange if writes => ErrorCode::NoSpace,
            IoError::OutOfRange => ErrorCode::Invalid,
            IoError::NoSpace => ErrorCode::NoSpace,
            IoError::ReadOnly => ErrorCode::NotPermitted,
            IoError::Corrupt | IoError::Io | IoError::Suspended => ErrorCode::Io,
            IoError::Gone | IoError::Cancelled => ErrorCode::Shutdown,
        };
        (code, error.to_string())
    }
}

async fn execute(
    device: impl Device,
    arena: Arena,
    offset: u64,
    fua: bool,
    command: Command,
) -> Result<Answer, Failure> {
    match command {
        Command::Read { len: 0 } => return Ok(Answer::Data(Vec::new())),
        Command::Read { len } => return Ok(Answer::Data(device.read(offset, len as usize).await?)),
        Command::Flush => device.flush().await?,
        Command::Write { len: 0, .. }
        | Command::Trim { len: 0 }
        | Command::Cache { len: 0 }
        | Command::WriteZeroes { len: 0, .. } => {}
        Command::Write { data, .. } => device.write(offset, data, fua).await?,
        Command::Trim { len } => device.discard(offset, len, fua).await?,
        // What is read lands in the volume's cache, if that thinks it worth keeping.
        Command::Cache { len } => drop(device.read(offset, len.min(PREFETCH_MAX) as usize).await?),
        Command::WriteZeroes { len, no_hole, fast } => {
            // Metadata alone zero whole blocks; whether a range has one decides whether that is faster than writing.
            let block = u64::from(device.block_size());
            let has_whole_block = offset.next_multiple_of(block) + block <= offset + len;
            if fast && (no_hole || !has_whole_block) {
                return Err(Failure::Slow);
            }
            if no_hole {
                write_zeroes(device, &arena, offset, len, fua).await?;
            } else {
                device.write_zeroes(offset, len, fua).await?;
            }
        }
        Command::BlockStatus { len, one } => {
            let extents_max = if one { 1 } else { EXTENTS_MAX };
            let extents = device.status(offset, len, extents_max).await?;
            assert!(!extents.is_empty(), "a status covers its range from the start");
            return Ok(Answer::Extents(extents));
        }
    }
    Ok(Answer::Done)
}

/// Zeroes as data, so that the range keeps its space.
async fn write_zeroes(
    device: impl Device,
    arena: &Arena,
    offset: u64,
    len: u64,
    fua: bool,
) -> Result<(), IoError> {
    let zeroes = arena.take_zeroed(len.min(ZEROES_PIECE as u64) as usize).freeze();
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(ZEROES_PIECE as u64);
        device.write(offset + done, vec![zeroes.slice(0, piece as usize)], fua).await?;
        done += piece;
    }
    Ok(())
}
