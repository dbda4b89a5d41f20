//! The target `iscsi_chap` for libFuzzer.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::run("iscsi_chap", data));
