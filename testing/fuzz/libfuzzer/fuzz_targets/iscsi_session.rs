//! The target `iscsi_session` for libFuzzer.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::run("iscsi_session", data));
