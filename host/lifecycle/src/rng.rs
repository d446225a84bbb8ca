//! The only randomness of the life: seeded, so that a recorded run replays.

use std::time::Duration;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn jitter(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// Uniform in `[0, most]`, in whole microseconds.
    pub(crate) fn up_to(&mut self, most: Duration) -> Duration {
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.next() % (micros + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // The first numbers for the seed 0, as the generator's authors publish them.
        let mut rng = Rng::new(0);
        assert_eq!([rng.next(), rng.next()], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
        assert_eq!(Rng::new(0).jitter(), 0xE220_A839);
    }

    #[test]
    fn both_ends_are_drawn_and_nothing_beyond() {
        let mut rng = Rng::new(1);
        let most = Duration::from_micros(1);
        let drawn: Vec<_> = (0..100).map(|_| rng.up_to(most)).collect();
        assert!(drawn.contains(&Duration::ZERO) && drawn.contains(&most) && drawn.iter().all(|time| *time <= most));
        assert_eq!(rng.up_to(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn the_longest_time_there_is_has_no_end_that_overflows() {
        assert!(Rng::new(1).up_to(Duration::MAX) < Duration::MAX);
    }
}
