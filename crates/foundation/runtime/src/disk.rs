//! The handle to one disk: a block device, a file, or a model.

use crate::admission::Class;
use crate::buffer::{Buf, BufMut};
use crate::completion::{Completion, completion};
use crate::watch::{Done, Kind, Watch};
use std::fmt;
use std::rc::Rc;

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes.
    pub size: u64,
    /// Smallest addressable unit in bytes.
    pub sector_logical: u32,
    /// Unit below which the device reads, modifies and writes, in bytes.
    pub sector_physical: u32,
    pub rotational: bool,
    /// The same for every path to one device, different for different devices (device number and inode).
    pub identity: u64,
}

/// What went wrong with one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskErrorKind {
    /// The sectors cannot be read; others may be.
    Unreadable,
    /// The device reported an error.
    Io,
    /// The device is no longer there.
    Gone,
    /// The device or file ends before it should; from then on it fails everything.
    Shrunk,
    /// Nobody waits for the device any more, whatever it would say; see [`Disk::give_up`].
    GivenUp,
    /// The device takes its time, and the caller said that it has another way; see [`Disk::read_unless_late`].
    Late,
    /// The file system under a file has no room for it.
    NoSpace,
    /// The device cannot do this (discard on a file system without holes, say).
    Unsupported,
}

impl DiskErrorKind {
    /// Whether the device itself failed the request, and not somebody's impatience.
    pub fn is_of_device(self) -> bool {
        !matches!(self, DiskErrorKind::Late | DiskErrorKind::GivenUp)
    }
}

/// A failed request: what, and the operating system's error number when there was one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskError {
    pub kind: DiskErrorKind,
    pub os: Option<i32>,
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            DiskErrorKind::Unreadable => "sectors cannot be read",
            DiskErrorKind::Io => "the device reported an I/O error",
            DiskErrorKind::Gone => "the device is gone",
            DiskErrorKind::Shrunk => "the device has shrunk",
            DiskErrorKind::GivenUp => "the device did not answer and was abandoned",
            DiskErrorKind::Late => "the device is much slower than others",
            DiskErrorKind::NoSpace => "the file system under it is full",
            DiskErrorKind::Unsupported => "the device does not support the operation",
        };
        match self.os {
            Some(number) => write!(f, "{what} ({})", std::io::Error::from_raw_os_error(number)),
            None => f.write_str(what),
        }
    }
}

impl From<DiskErrorKind> for DiskError {
    fn from(kind: DiskErrorKind) -> DiskError {
        DiskError { kind, os: None }
    }
}

/// How to open a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    Read,
    /// Reads and writes; refused when another process holds the disk (advisory lock) or it is mounted.
    ReadWrite,
}

/// Why a disk could not be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenError {
    NotFound,
    /// Mounted, or locked by another process; the text says by what.
    InUse(String),
    NotADisk,
    NotPermitted,
    Io(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::NotFound => {
                f.write_str("no such file or device; check the path, or for a test create a sparse file with: truncate -s 10G PATH")
            }
            OpenError::InUse(by) => write!(f, "in use: {by}"),
            OpenError::NotADisk => f.write_str("neither a regular file nor a block device"),
            OpenError::NotPermitted => {
                f.write_str("permission denied; run as a user who may read and write it")
            }
            OpenError::Io(error) => f.write_str(error),
        }
    }
}

/// Who uses a disk that is to be overwritten, and what else holds its bytes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Users {
    /// How something other than this process uses it, and how to end that: "mounted at /srv; …".
    pub other: Option<String>,
    /// By [`Geometry::identity`], disks that hold some of the same bytes, and their names: partitions, loop devices, the file below one.
    pub overlaps: Vec<(u64, String)>,
}

/// One request to a device. The request owns its buffers until the device is done with them.
pub enum DiskOp {
    /// Fills the whole of `into` from byte `at`.
    Read { at: u64, into: BufMut, done: Done<(BufMut, Result<(), DiskError>)> },
    /// Writes the parts one after the other from byte `at`. With `durable`, completes when they are on stable storage.
    Write { at: u64, from: Vec<Buf>, durable: bool, class: Class, done: Done<Result<(), DiskError>> },
    /// Makes every write that was complete before it durable.
    Flush { done: Done<Result<(), DiskError>> },
    /// Tells the device that the range is unused; its contents become unspecified.
    Discard { at: u64, len: u64, done: Done<Result<(), DiskError>> },
}

impl DiskOp {
    /// The place of the request among others of its device.
    pub fn class(&self) -> Class {
        match self {
            DiskOp::Flush { .. } => Class::Reserved,
            DiskOp::Write { class, .. } => *class,
            DiskOp::Read { .. } | DiskOp::Discard { .. } => Class::Ordinary,
        }
    }
}

fn bytes_of(parts: &[Buf]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// What stands behind a [`Disk`].
pub trait DiskBackend {
    fn geometry(&self) -> Geometry;
    fn submit(&self, op: DiskOp);
    /// Everything that was submitted through this handle is given up, and nothing more will be submitted: what the device has not
    /// been given it need not be given, and what it has must not be in the way of other devices.
    fn give_up(&self);
}

/// A disk on one executor. Requests start when the method is called, not when the future is polled; dropping
/// the future does not cancel them. Offsets and lengths are multiples of 4096 bytes.
#[derive(Clone)]
pub struct Disk {
    backend: Rc<dyn DiskBackend>,
    watch: Rc<Watch>,
}

impl Disk {
    pub fn new(backend: Rc<dyn DiskBackend>, watch: Watch) -> Disk {
        Disk { backend, watch: Rc::new(watch) }
    }

    pub fn geometry(&self) -> Geometry {
        self.backend.geometry()
    }

    /// What is in flight through this handle and its clones.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Ends all that is waited for, with the error that the device was given up, and lets nothing more reach it.
    pub fn give_up(&self) {
        self.watch.give_up();
        self.backend.give_up();
    }

    /// Hands on a request that was made of another disk, which watches it.
    pub fn submit(&self, op: DiskOp) {
        self.backend.submit(op);
    }

    /// Fills `into` from byte `at`; a buffer of its size comes back in any case.
    pub fn read(&self, at: u64, into: BufMut) -> Completion<(BufMut, Result<(), DiskError>)> {
        self.start_read(at, into, false)
    }

    /// Like [`Disk::read`], by a caller who would rather go elsewhere than wait: fails when [`Watch::end_late_reads`] says so.
    pub fn read_unless_late(&self, at: u64, into: BufMut) -> Completion<(BufMut, Result<(), DiskError>)> {
        self.start_read(at, into, true)
    }

    fn start_read(
        &self,
        at: u64,
        into: BufMut,
        impatient: bool,
    ) -> Completion<(BufMut, Result<(), DiskError>)> {
        if self.watch.is_given_up() {
            return Completion::ready((into, Err(DiskErrorKind::GivenUp.into())));
        }
        let (done, result) = completion();
        let done = Watch::read(&self.watch, done, into.len(), impatient);
        self.backend.submit(DiskOp::Read { at, into, done });
        result
    }

    /// Writes `from`, one part after the other, from byte `at`. Not durable before a [`Disk::flush`].
    pub fn write(&self, at: u64, from: Vec<Buf>) -> Completion<Result<(), DiskError>> {
        self.start_write(Kind::Write, at, from, Class::Ordinary)
    }

    /// Like [`Disk::write`], for labels and superblocks: it does not wait behind data.
    pub fn write_reserved(&self, at: u64, from: Vec<Buf>) -> Completion<Result<(), DiskError>> {
        self.start_write(Kind::Write, at, from, Class::Reserved)
    }

    /// Like [`Disk::write`], and durable when complete.
    pub fn write_durable(&self, at: u64, from: Vec<Buf>) -> Completion<Result<(), DiskError>> {
        self.start_write(Kind::Flush, at, from, Class::Ordinary)
    }

    fn start_write(
        &self,
        kind: Kind,
        at: u64,
        from: Vec<Buf>,
        class: Class,
    ) -> Completion<Result<(), DiskError>> {
        let (bytes, durable) = (bytes_of(&from), kind == Kind::Flush);
        self.start(kind, bytes, |done| DiskOp::Write { at, from, durable, class, done })
    }

    /// Makes every write that completed before this call durable.
    pub fn flush(&self) -> Completion<Result<(), DiskError>> {
        self.start(Kind::Flush, 0, |done| DiskOp::Flush { done })
    }

    pub fn discard(&self, at: u64, len: u64) -> Completion<Result<(), DiskError>> {
        self.start(Kind::Discard, len, |done| DiskOp::Discard { at, len, done })
    }

    fn start(
        &self,
        kind: Kind,
        bytes: u64,
        op: impl FnOnce(Done<Result<(), DiskError>>) -> DiskOp,
    ) -> Completion<Result<(), DiskError>> {
        if self.watch.is_given_up() {
            return Completion::ready(Err(DiskErrorKind::GivenUp.into()));
        }
        let (done, result) = completion();
        self.backend.submit(op(Watch::other(&self.watch, done, kind, bytes)));
        result
    }
}
