//! Whatever a client writes into its ring: the executor stays whole, nothing of the client outlives
//! it, and its neighbour notices nothing.
#![no_main]

use cumux_fuzz::bytes::Bytes;
use cumux_fuzz::ring;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    ring::run(&mut Bytes::new(data));
});
