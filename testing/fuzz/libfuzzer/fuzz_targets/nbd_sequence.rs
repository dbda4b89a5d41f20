//! The target `nbd_sequence` for libFuzzer.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::run("nbd_sequence", data));
