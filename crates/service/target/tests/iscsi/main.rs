//! The iSCSI server on real sockets: exact PDUs in [`sessions`], who gets in and what ends in [`doors`], the clients that
//! people have in [`tools`]; and on a network in memory: [`timeouts`].

mod doors;
mod house;
#[path = "../nbd/network.rs"]
mod network;
mod sessions;
mod support;
mod timeouts;
mod tools;
