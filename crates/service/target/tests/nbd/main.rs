//! The NBD server on real sockets: exact bytes in [`sessions`], bugs in the protocol in [`panics`], the clients that people have in [`tools`], and on a network in memory: [`timeouts`].

mod network;
mod panics;
mod sessions;
mod support;
mod timeouts;
mod tools;
