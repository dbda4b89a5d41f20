//! The target `snapshot_stream` for libFuzzer.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::run("snapshot_stream", data));
