//! The NBD server on real sockets: exact bytes in [`sessions`], the clients that people have in [`tools`].

mod sessions;
mod support;
mod tools;
