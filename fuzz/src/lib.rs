//! What the fuzz targets `packets` and `ring` do with their bytes.
//!
//! Bytes choose what happens, step by step ([`bytes::Bytes`]); most of what they choose is nearly
//! right, so that it comes far. Each run builds its own world and ends it, and checks at the end
//! what must be so after any beginning. A finding is a panic, a hang (libFuzzer's `-timeout`), or
//! memory without end.
#![forbid(unsafe_code)]

pub mod bytes;
pub mod daemon;
pub mod keeper;
pub mod messages;
pub mod ring;
pub mod server;

/// The same with noise in place of a fuzzer: `cargo test` on any toolchain shows whether these
/// worlds stand.
#[cfg(test)]
mod tests {
    use crate::bytes::Bytes;
    use crate::{daemon, keeper, ring, server};

    fn with_noise(rounds: u64, world: fn(&mut Bytes<'_>)) {
        let rounds = std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(rounds);
        let begin: u64 = std::env::var("FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        for round in begin..begin + rounds {
            // xorshift64*
            let mut state = round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut next = || {
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()[7]
            };
            let length = 16 << (round % 6);
            let noise: Vec<u8> = (0..length).map(|_| next()).collect();
            eprintln!("round {round}");
            world(&mut Bytes::new(&noise));
        }
    }

    #[test]
    fn the_daemon_stands() {
        with_noise(300, daemon::run);
    }

    #[test]
    fn the_keeper_stands() {
        with_noise(300, keeper::run);
    }

    #[test]
    fn the_server_stands() {
        with_noise(100, server::run);
    }

    #[test]
    fn the_ring_stands() {
        with_noise(100, ring::run);
    }
}
