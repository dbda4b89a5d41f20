//! Do real receivers understand what the appliance sends? Each module takes one kind of channel to a program that others wrote, or, for webhooks, to a server
//! that behaves as receivers do on bad days.
//!
//! A test of a program that is not installed prints a line and passes. Everything is on 127.0.0.1.

mod channels;
mod common;
mod mail;
mod snmp;
mod syslog;
mod webhook;
