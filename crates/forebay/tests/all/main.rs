//! What is asked of the program that ships: `forebay` is started, and talked to as its clients do. One program: each of its own would have every protocol
//! and the interface in it, and be linked anew.

mod aborts;
mod advised;
mod candidates;
mod channels;
mod command_line;
mod common;
mod configuration;
mod connections;
mod damage;
mod disks;
mod doors;
mod full;
mod http;
mod iscsi;
mod levels;
mod life;
mod logins;
mod machine;
mod manners;
mod moving;
mod notify;
mod project_hosts;
mod projects;
mod registry;
mod snapshots;
mod statistics;
mod streams;
mod tls;
mod trash;
mod validate;
mod watch;
