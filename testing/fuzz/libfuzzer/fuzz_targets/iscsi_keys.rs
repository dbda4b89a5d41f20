//! The target `iscsi_keys` for libFuzzer.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::run("iscsi_keys", data));
