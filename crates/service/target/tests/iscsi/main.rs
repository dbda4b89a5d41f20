//! The iSCSI server on real sockets: exact PDUs in [`sessions`], who gets in and what ends in [`doors`], the clients that
//! people have in [`tools`], commands that are given up in [`aborts`], bugs in the protocol in [`panics`], what strangers can learn in [`guesses`]; and on a network in memory: [`timeouts`].

mod aborts;
mod doors;
mod guesses;
mod house;
#[path = "../nbd/network.rs"]
mod network;
mod panics;
mod sessions;
mod support;
mod timeouts;
mod tools;
