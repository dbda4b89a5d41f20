//! Does a unit do what SAM-5, SPC-4 and SBC-3 say? Method: initiators send CDBs to units over volumes in memory; the volumes'
//! content, the statuses, the sense data and the bytes of every page are compared with what is written here.

mod blocks;
mod copies;
mod parsing;
mod reports;
mod reserving;
mod support;
mod unit;
