//! Real clients against the real daemon, from outside: nothing here links the product.
//!
//! [`host`] is the machine and how it is left as it was found, [`server`] the servers under test, [`history`] and
//! [`load`] the oracle and the writers of the kill -9 test. The scenarios are [`readme`] and [`docs`] (over [`console`]), [`kill`],
//! [`tools`], [`analytics`], [`filesystem`], [`hostile`] and, over iSCSI, [`iscsi`], [`reservations`] and [`guest`]; `main.rs` runs them.

pub mod analytics;
pub mod console;
pub mod docs;
pub mod filesystem;
pub mod guest;
pub mod hang;
pub mod heal;
pub mod history;
pub mod host;
pub mod hostile;
pub mod iscsi;
pub mod kill;
pub mod load;
pub mod readme;
pub mod reservations;
pub mod server;
pub mod tools;
