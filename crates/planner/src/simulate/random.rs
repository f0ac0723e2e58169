//! Random numbers that are the same on every machine: integers and comparisons alone make them.
//! A library's could change with its version, and docs/ has answers made of these.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below 1.
    pub(super) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1, by von Neumann's method, which needs no logarithm:
    /// the library's may differ in its last bit.
    pub(super) fn exponential(&mut self) -> f64 {
        let mut whole = 0.0;
        loop {
            let first = self.part();
            let (mut last, mut length) = (first, 1u32);
            loop {
                let next = self.part();
                if next >= last {
                    break;
                }
                last = next;
                length += 1;
            }
            if length % 2 == 1 {
                return whole + first;
            }
            whole += 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn exponential_numbers_have_mean_and_tail() {
        let mut random = Random::new(7);
        let drawn: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let tail = drawn.iter().filter(|value| **value > 3.0).count() as f64 / drawn.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        assert!((tail - 0.0498).abs() < 0.004, "{tail}");
    }
}
