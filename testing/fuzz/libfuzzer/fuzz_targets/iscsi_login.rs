//! The target `iscsi_login` for libFuzzer.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::run("iscsi_login", data));
