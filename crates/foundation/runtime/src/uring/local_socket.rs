//! A listening socket in the file system, for its owner alone.
//!
//! The name of a dead process's socket stays behind, so a name that is there says nothing: who answers there does. A name
//! that nobody answers at is replaced, one that somebody answers at is in use, and what is no socket is left alone. The new
//! socket gets its mode before it gets a name, and is moved to its place when it listens: nobody else can connect at
//! any time, and clients find the old socket or the new one.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

const MODE: libc::mode_t = 0o600;
/// Connections that wait to be accepted, as the standard library has it for TCP.
const BACKLOG: libc::c_int = 128;

/// Listens at `path`; `AddrInUse` when somebody else does.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    let name = path.file_name().ok_or(io::Error::from_raw_os_error(libc::EINVAL))?;
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => return Err(io::Error::from_raw_os_error(libc::EADDRINUSE)),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            // More wait there than may.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
            }
            Err(error) => return Err(error),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut hidden = b".".to_vec();
    hidden.extend_from_slice(name.as_bytes());
    hidden.extend_from_slice(b".new");
    let new = path.with_file_name(std::ffi::OsStr::from_bytes(&hidden));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::from(listening(&new)?);
    fs::rename(&new, path)?;
    Ok(listener)
}

/// A listening socket of this name, which nobody else may open from the first moment on.
fn listening(path: &Path) -> io::Result<OwnedFd> {
    // SAFETY: integers and an array of bytes, for which zero is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as _;
    let bytes = path.as_os_str().as_bytes();
    // The last byte stays zero.
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (place, &byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = byte as libc::c_char;
    }
    // SAFETY: no pointers; a result of 0 or more is a new descriptor that nobody else owns.
    let socket = unsafe {
        match libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) {
            fd if fd >= 0 => OwnedFd::from_raw_fd(fd),
            _ => return Err(io::Error::last_os_error()),
        }
    };
    let fd = socket.as_raw_fd();
    // SAFETY: the descriptor is open, and the address lives across the calls and is as long as said.
    let failed = unsafe {
        libc::fchmod(fd, MODE) != 0
            || libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as libc::socklen_t) != 0
            || libc::listen(fd, BACKLOG) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_dead_socket_is_replaced_and_anything_else_is_not() {
        let directory = std::env::temp_dir().join(format!("forebay-socket-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory can be made");
        let path = directory.join("nbd.sock");
        let code = |result: io::Result<UnixListener>| result.err().and_then(|error| error.raw_os_error());
        let first = bind(&path).expect("nothing is there");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(code(bind(&path)), Some(libc::EADDRINUSE));
        drop(first);
        let second = bind(&path).expect("nobody listens there any more");
        UnixStream::connect(&path).expect("the second does");
        drop(second);
        fs::remove_file(&path).expect("it was left behind");
        fs::write(&path, "somebody's file").expect("a file can be written");
        assert_eq!(code(bind(&path)), Some(libc::EEXIST));
        assert_eq!(code(bind(&directory.join("x".repeat(120)))), Some(libc::ENAMETOOLONG));
        assert_eq!(fs::read(&path).expect("it is there"), b"somebody's file");
        fs::remove_dir_all(&directory).expect("it can be removed");
    }
}
