//! The target `scsi_cdb` for libFuzzer.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::run("scsi_cdb", data));
