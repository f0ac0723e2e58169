//! Chance that is the same in every run.

/// Steps of a fixed pseudo-random sequence.
pub struct Dice(pub u64);

impl Dice {
    /// The next step, from 0 to below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}
