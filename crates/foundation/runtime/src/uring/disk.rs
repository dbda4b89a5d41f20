//! Requests to a disk over the ring: reads, gathered writes, flushes, discards.
//!
//! A request is carried on until it is whole: short transfers are continued, interrupted ones repeated, a write
//! of more parts than one system call takes is done in several. Parts that direct I/O cannot take from where
//! they lie (a payload behind a protocol header) are copied once into an aligned buffer.
//!
//! A file in memory is read and written on the spot: nothing waits for it, and the ring, which cannot know that, would
//! hand each request to a worker thread of the kernel.
//!
//! A discard of a file punches a hole (`fallocate`, which the kernel runs on a worker thread of the ring); of a
//! device it is the ring's own command (Linux 6.12), on older kernels again `fallocate`, which there zeroes with
//! deallocation. No discard ever blocks the executor.
//!
//! A disk that is given up gets nothing more: requests that the kernel does not have end, the kernel is asked to drop those that it
//! has, and what it ends before it is whole is not carried on. Until it does, it keeps the buffers.

use super::file::DiskFile;
use super::registry::Places;
use super::ring::{Op, Ring};
use crate::admission::{Class, HandleId};
use crate::buffer::{BUFFER_MAX, Buf, BufMut};
use crate::disk::{DiskBackend, DiskError, DiskErrorKind, DiskOp, Geometry, OpenError, OpenMode};
use crate::watch::Done;
use io_uring::{opcode, squeue, types};
use std::rc::Rc;

/// Vectors in one write: the kernel's UIO_MAXIOV.
const VECTORS_MAX: usize = 1024;
/// Repetitions after EAGAIN and EINTR before a request fails; a kernel short of memory clears up or does not.
const RETRIES_MAX: u32 = 1000;
/// Offsets and lengths are multiples of it.
const BLOCK: u64 = 4096;

pub(super) struct UringDisk {
    ring: Rc<Ring>,
    file: Rc<DiskFile>,
    handle: HandleId,
}

impl UringDisk {
    pub(super) fn open(ring: Rc<Ring>, path: &str, mode: OpenMode) -> Result<UringDisk, OpenError> {
        let file = DiskFile::open(path, mode, || ring.exchange())?;
        Ok(UringDisk::over(ring, file))
    }

    pub(super) fn over(ring: Rc<Ring>, file: DiskFile) -> UringDisk {
        let handle = ring.open(file.geometry.identity);
        UringDisk { ring, file: Rc::new(file), handle }
    }

    #[cfg(test)]
    pub(super) fn handle(&self) -> HandleId {
        self.handle
    }

    /// `parts` as they can be written: in place, or copied when direct I/O cannot take them.
    fn writable(&self, parts: Vec<Buf>, len: u64) -> Vec<Buf> {
        let (memory, sector) =
            (self.file.memory_alignment as usize, self.file.geometry.sector_logical as usize);
        let in_place =
            |part: &Buf| part.as_ptr().addr().is_multiple_of(memory) && part.len().is_multiple_of(sector);
        if !self.file.direct || parts.iter().all(in_place) {
            return parts;
        }
        let mut copies: Vec<BufMut> = Vec::new();
        let mut filled = 0;
        let mut rest = len as usize;
        for part in &parts {
            let mut part = &part[..];
            while !part.is_empty() {
                if copies.last().is_none_or(|copy| copy.len() == filled) {
                    copies.push(self.ring.arena.take(rest.min(BUFFER_MAX)));
                    filled = 0;
                }
                let copy = &mut copies.last_mut().expect("one was just pushed")[filled..];
                let count = copy.len().min(part.len());
                copy[..count].copy_from_slice(&part[..count]);
                part = &part[count..];
                filled += count;
                rest -= count;
            }
        }
        copies.into_iter().map(BufMut::freeze).collect()
    }
}

impl Drop for UringDisk {
    fn drop(&mut self) {
        self.ring.close(self.handle);
    }
}

impl DiskBackend for UringDisk {
    fn geometry(&self) -> Geometry {
        self.file.geometry.clone()
    }

    fn give_up(&self) {
        self.ring.give_up(self.handle);
    }

    fn submit(&self, op: DiskOp) {
        let class = op.class();
        let (at, len) = match &op {
            DiskOp::Read { at, into, .. } => (*at, into.len() as u64),
            DiskOp::Write { at, from, .. } => (*at, from.iter().map(|part| part.len() as u64).sum()),
            DiskOp::Flush { .. } => (0, 0),
            DiskOp::Discard { at, len, .. } => (*at, *len),
        };
        assert!(
            at.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK),
            "disk request at {at} of {len} bytes is not aligned"
        );
        // Reads past the end would be short for ever, writes past it would let a file grow.
        let outside = at.checked_add(len).is_none_or(|end| end > self.file.geometry.size);
        let refused = match self.file.shrunk.get() {
            true => Some(DiskErrorKind::Shrunk.into()),
            false => outside.then_some(DiskError { kind: DiskErrorKind::Io, os: Some(libc::EINVAL) }),
        };
        let task = match op {
            DiskOp::Read { into, done, .. } => match refused {
                Some(error) => return done.complete((into, Err(error))),
                None if len == 0 => return done.complete((into, Ok(()))),
                None => Task::Read { into, filled: 0, done },
            },
            DiskOp::Write { from, durable, done, .. } => match refused {
                Some(error) => return done.complete(Err(error)),
                None if len == 0 && !durable => return done.complete(Ok(())),
                // Nothing to write, yet what was written before shall be durable.
                None if len == 0 => Task::Flush { done },
                None => {
                    let parts = self.writable(from, len);
                    let vectors = self.ring.take_vectors();
                    Task::Write { parts, written: 0, len, vectors, durable, done }
                }
            },
            DiskOp::Flush { done } => match refused {
                Some(error) => return done.complete(Err(error)),
                None => Task::Flush { done },
            },
            DiskOp::Discard { done, .. } => match refused {
                Some(error) => return done.complete(Err(error)),
                None if len == 0 => return done.complete(Ok(())),
                None => Task::Discard { len, by_command: self.file.is_device, done },
            },
        };
        let place = task.place(&self.ring.places);
        let mut request =
            DiskRequest { file: self.file.clone(), handle: self.handle, class, at, task, place, retries: 0 };
        match request.on_the_spot() {
            Some(result) => request.complete(&self.ring, result),
            None => self.ring.start(Op::Disk(request)),
        }
    }
}

pub(super) struct DiskRequest {
    file: Rc<DiskFile>,
    pub(super) handle: HandleId,
    pub(super) class: Class,
    at: u64,
    task: Task,
    /// Where the ring has the region of the request's buffer, when it is one buffer and registered.
    place: Option<u16>,
    retries: u32,
}

enum Task {
    Read {
        into: BufMut,
        filled: usize,
        done: Done<(BufMut, Result<(), DiskError>)>,
    },
    Write {
        parts: Vec<Buf>,
        written: u64,
        len: u64,
        /// What the kernel was last told of `parts`; unused when that was a single piece.
        vectors: Vec<libc::iovec>,
        durable: bool,
        done: Done<Result<(), DiskError>>,
    },
    Flush {
        done: Done<Result<(), DiskError>>,
    },
    Discard {
        len: u64,
        by_command: bool,
        done: Done<Result<(), DiskError>>,
    },
}

impl Task {
    fn place(&self, places: &Places) -> Option<u16> {
        match self {
            Task::Read { into, .. } => into.number(places),
            Task::Write { parts, .. } => match &parts[..] {
                [part] => part.number(places),
                _ => None,
            },
            Task::Flush { .. } | Task::Discard { .. } => None,
        }
    }
}

impl DiskRequest {
    /// The rest of the request. See [`Op`] for what it may point to.
    pub(super) fn entry(&mut self) -> squeue::Entry {
        let entry = self.operation();
        // A worker thread of the kernel waits for such a file system, not this one.
        if self.file.remote { entry.flags(squeue::Flags::ASYNC) } else { entry }
    }

    fn operation(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.file.fd());
        match &mut self.task {
            Task::Read { into, filled, .. } => {
                let (rest, offset) = (&mut into[*filled..], self.at + *filled as u64);
                let (memory, len) = (rest.as_mut_ptr(), rest.len() as u32);
                match self.place {
                    Some(place) => opcode::ReadFixed::new(fd, memory, len, place).offset(offset).build(),
                    None => opcode::Read::new(fd, memory, len).offset(offset).build(),
                }
            }
            Task::Write { parts, written, vectors, durable, .. } => {
                gather(parts, *written, vectors);
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                let offset = self.at + *written;
                match (&vectors[..], self.place) {
                    ([one], Some(place)) => {
                        opcode::WriteFixed::new(fd, one.iov_base.cast(), one.iov_len as u32, place)
                            .offset(offset)
                            .rw_flags(flags)
                            .build()
                    }
                    ([one], None) => opcode::Write::new(fd, one.iov_base.cast(), one.iov_len as u32)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                    (many, _) => opcode::Writev::new(fd, many.as_ptr(), many.len() as u32)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                }
            }
            Task::Flush { .. } => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Task::Discard { len, by_command: true, .. } => {
                let mut command = [0; 16];
                command[..8].copy_from_slice(&len.to_ne_bytes());
                opcode::UringCmd16::new(fd, BLOCK_URING_CMD_DISCARD).addr(Some(self.at)).cmd(command).build()
            }
            Task::Discard { len, .. } => opcode::Fallocate::new(fd, *len)
                .offset(self.at)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
        }
    }

    /// Does the rest of a request to a file in memory, with an answer of the ring's form; nothing for other requests.
    fn on_the_spot(&mut self) -> Option<i32> {
        if !self.file.in_memory {
            return None;
        }
        let fd = self.file.fd();
        let result = match &mut self.task {
            // SAFETY: the pointer is to this request's buffer, which lives across the call.
            Task::Read { into, filled, .. } => unsafe {
                let rest = &mut into[*filled..];
                libc::pread(fd, rest.as_mut_ptr().cast(), rest.len(), (self.at + *filled as u64) as i64)
            },
            // SAFETY: as above.
            Task::Write { parts, written, vectors, .. } => unsafe {
                gather(parts, *written, vectors);
                let offset = (self.at + *written) as i64;
                libc::pwritev(fd, vectors.as_ptr(), vectors.len() as i32, offset)
            },
            // It will never be more durable than it is.
            Task::Flush { .. } => 0,
            Task::Discard { .. } => return None,
        };
        // A request has at most 2 GiB.
        Some(if result < 0 { -std::io::Error::last_os_error().raw_os_error()? } else { result as i32 })
    }

    /// Bytes of a read.
    pub(super) fn bytes_read(&self) -> usize {
        if let Task::Read { into, .. } = &self.task { into.len() } else { 0 }
    }

    /// Takes the kernel's answer: delivers, or goes on with what is left.
    pub(super) fn complete(mut self, ring: &Ring, result: i32) {
        match self.advance(result) {
            None if ring.is_given_up(self.handle) => self.end(ring, Err(DiskErrorKind::GivenUp.into())),
            None => ring.start(Op::Disk(self)),
            Some(answer) => self.end(ring, answer),
        }
    }

    /// Delivers the answer.
    pub(super) fn end(self, ring: &Ring, answer: Result<(), DiskError>) {
        match self.task {
            Task::Read { into, done, .. } => done.complete((into, answer)),
            Task::Write { vectors, done, .. } => {
                ring.return_vectors(vectors);
                done.complete(answer);
            }
            Task::Flush { done } | Task::Discard { done, .. } => done.complete(answer),
        }
    }

    /// The final answer, or `None` when there is more to do.
    fn advance(&mut self, result: i32) -> Option<Result<(), DiskError>> {
        if result == -libc::EINTR || result == -libc::EAGAIN {
            self.retries += 1;
            return (self.retries > RETRIES_MAX).then(|| Err(self.error(-result)));
        }
        if result < 0 {
            let no_command = [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOTTY, libc::EPERM].contains(&-result);
            if let Task::Discard { by_command: by_command @ true, .. } = &mut self.task
                && no_command
            {
                *by_command = false;
                return None;
            }
            return Some(Err(self.error(-result)));
        }
        // Direct I/O goes on only at a sector boundary.
        let sector = u64::from(self.file.geometry.sector_logical);
        let (done, whole) = match &mut self.task {
            Task::Flush { .. } | Task::Discard { .. } => return Some(Ok(())),
            Task::Read { into, filled, .. } => {
                let (before, whole) = (*filled as u64, into.len() as u64);
                let after = before + result as u64;
                *filled = if after == whole { after } else { after / sector * sector } as usize;
                (*filled as u64 - before, after == whole)
            }
            Task::Write { written, len, .. } => {
                let (before, after) = (*written, *written + result as u64);
                *written = if after == *len { after } else { after / sector * sector };
                (*written - before, after == *len)
            }
        };
        match (whole, done) {
            (true, _) => Some(Ok(())),
            // No progress: it has become shorter than it was when it was opened.
            (false, 0) => {
                self.file.shrunk.set(true);
                Some(Err(DiskErrorKind::Shrunk.into()))
            }
            (false, _) => None,
        }
    }

    fn error(&self, number: i32) -> DiskError {
        DiskError { kind: kind_of(number, &self.task), os: Some(number) }
    }
}

/// What an error number of the kernel means for a request.
fn kind_of(number: i32, task: &Task) -> DiskErrorKind {
    match (number, task) {
        // EIO is the general answer of a device that cannot read a sector; one that is broken fails the rewrite too.
        (libc::EIO | libc::ENODATA | libc::EILSEQ | libc::EBADMSG | libc::EUCLEAN, Task::Read { .. }) => {
            DiskErrorKind::Unreadable
        }
        (libc::ENODEV | libc::ENXIO | libc::ENOLINK | libc::ENOMEDIUM, _) => DiskErrorKind::Gone,
        (libc::ENOSPC | libc::EDQUOT, _) => DiskErrorKind::NoSpace,
        (libc::EOPNOTSUPP | libc::ENOSYS, _) | (libc::EINVAL, Task::Discard { .. }) => {
            DiskErrorKind::Unsupported
        }
        _ => DiskErrorKind::Io,
    }
}

/// From <linux/blkdev.h>: _IO(0x12, 0), Linux 6.12.
const BLOCK_URING_CMD_DISCARD: u32 = 0x1200;

/// Describes what follows the first `skip` bytes of `parts`, up to [`VECTORS_MAX`] pieces; neighbours in memory
/// are one piece.
pub(super) fn gather(parts: &[Buf], skip: u64, vectors: &mut Vec<libc::iovec>) {
    vectors.clear();
    let mut skip = skip as usize;
    for part in parts {
        let part = match part.len().checked_sub(skip) {
            None => {
                skip -= part.len();
                continue;
            }
            Some(_) => &part[std::mem::take(&mut skip)..],
        };
        if part.is_empty() {
            continue;
        }
        // A piece stays below 1 GiB: the kernel's limit for a request is 2 GiB less a page.
        if let Some(last) = vectors.last_mut()
            && last.iov_base.addr() + last.iov_len == part.as_ptr().addr()
            && last.iov_len + part.len() <= 1 << 30
        {
            last.iov_len += part.len();
            continue;
        }
        if vectors.len() == VECTORS_MAX {
            return;
        }
        vectors.push(libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Arena;
    use crate::disk::DiskErrorKind::*;

    #[test]
    fn error_numbers_mean_what_they_mean_for_the_request() {
        let (arena, flush) = (Arena::new(), || Task::Flush { done: Done::of_nobody() });
        let read = || Task::Read { into: arena.take(1), filled: 0, done: Done::of_nobody() };
        let discard = || Task::Discard { len: 1, by_command: false, done: Done::of_nobody() };
        let cases = [
            (libc::EIO, read(), Unreadable),
            (libc::EIO, flush(), Io),
            (libc::ENODATA, read(), Unreadable),
            (libc::EREMOTEIO, read(), Io),
            (libc::ENODEV, read(), Gone),
            (libc::ENXIO, flush(), Gone),
            (libc::ENOSPC, flush(), NoSpace),
            (libc::EOPNOTSUPP, discard(), Unsupported),
            (libc::EINVAL, discard(), Unsupported),
            (libc::EINVAL, read(), Io),
        ];
        for (number, task, kind) in cases {
            assert_eq!(kind_of(number, &task), kind, "{}", std::io::Error::from_raw_os_error(number));
        }
    }

    #[test]
    fn gathering_skips_joins_and_stops() {
        let arena = Arena::new();
        let whole = arena.copy(b"abcdefgh").freeze();
        let parts = [whole.slice(0, 2), whole.slice(2, 3), whole.slice(5, 0), whole.slice(6, 2)];
        let lens = |skip| {
            let mut vectors = Vec::new();
            gather(&parts, skip, &mut vectors);
            let pieces =
                vectors.iter().map(|vector| (vector.iov_base.addr() - whole.as_ptr().addr(), vector.iov_len));
            pieces.collect::<Vec<_>>()
        };
        assert_eq!(lens(0), [(0, 5), (6, 2)]);
        assert_eq!(lens(1), [(1, 4), (6, 2)]);
        assert_eq!(lens(2), [(2, 3), (6, 2)]);
        assert_eq!(lens(5), [(6, 2)]);
        assert_eq!(lens(6), [(7, 1)]);
        assert_eq!(lens(7), []);
        let mut vectors = Vec::new();
        let apart: Vec<_> = (0..1500).map(|_| arena.take(1).freeze()).collect();
        gather(&apart, 0, &mut vectors);
        assert_eq!(vectors.len(), VECTORS_MAX);
    }
}
