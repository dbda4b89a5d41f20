//! The iSCSI server on real sockets: exact PDUs in [`sessions`], who gets in and what ends in [`doors`], the clients that
//! people have in [`tools`].

mod doors;
mod house;
mod sessions;
mod support;
mod tools;
