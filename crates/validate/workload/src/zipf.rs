//! Places of which some are asked for far more often than others: the n-th most popular one as often as n to the power of −θ says (Zipf's law).
//!
//! Drawn by rejection and inversion (Hörmann and Derflinger, Rejection-inversion to generate variates from monotone discrete distributions, 1996): a draw
//! costs the same for ten places and ten million, and nothing is summed up beforehand. Popular places are scattered over all of them, as they are in databases,
//! by a multiplication that leaves no place out.

use forebay_base::Random;

pub struct Zipf {
    places: u64,
    theta: f64,
    /// The integral of the density's envelope up to where it begins and ends.
    from: f64,
    to: f64,
    /// What is closer to its whole number than this needs no second look.
    close: f64,
    /// Has no divisor in common with the number of places.
    scatter: u64,
}

impl Zipf {
    pub fn new(places: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf { places, theta, from: 0.0, to: 0.0, close: 0.0, scatter: 1 };
        zipf.from = zipf.integral(1.5) - 1.0;
        zipf.to = zipf.integral(places as f64 + 0.5);
        zipf.close = 2.0 - zipf.inverse(zipf.integral(2.5) - 2f64.powf(-theta));
        // Near the golden section, neighbours in popularity are far from each other.
        let golden = (places as f64 * 0.618_033_988_75) as u64;
        zipf.scatter = (golden.max(1)..).find(|factor| divisor(*factor, places) == 1).unwrap_or(1);
        zipf
    }

    /// How popular a place is, from 1 for the most popular one.
    fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let even = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            let drawn = self.to + even * (self.from - self.to);
            let x = self.inverse(drawn);
            let rank = x.round().clamp(1.0, self.places as f64);
            if rank - x <= self.close || drawn >= self.integral(rank + 0.5) - rank.powf(-self.theta) {
                return rank as u64;
            }
        }
    }

    pub fn place(&self, random: &mut Random) -> u64 {
        let rank = self.rank(random) - 1;
        (u128::from(rank) * u128::from(self.scatter) % u128::from(self.places)) as u64
    }

    /// Of x to the power of −θ.
    fn integral(&self, x: f64) -> f64 {
        match self.theta == 1.0 {
            true => x.ln(),
            false => (x.powf(1.0 - self.theta) - 1.0) / (1.0 - self.theta),
        }
    }

    fn inverse(&self, integral: f64) -> f64 {
        match self.theta == 1.0 {
            true => integral.exp(),
            false => (1.0 + integral * (1.0 - self.theta)).max(0.0).powf(1.0 / (1.0 - self.theta)),
        }
    }
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_is_as_popular_as_the_law_says() {
        for theta in [0.5, 0.99, 1.0, 1.2] {
            let (zipf, mut random, draws) = (Zipf::new(1000, theta), Random::new(3), 400_000);
            let mut counts = vec![0u32; 1001];
            (0..draws).for_each(|_| counts[zipf.rank(&mut random) as usize] += 1);
            let all: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-theta)).sum();
            for rank in [1, 2, 3, 10, 100] {
                let expected = f64::from(rank).powf(-theta) / all * f64::from(draws);
                let found = f64::from(counts[rank as usize]);
                // Five times what chance spreads it by.
                assert!(
                    (found - expected).abs() < 5.0 * expected.sqrt(),
                    "{theta}, {rank}: {found}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn every_place_is_somebodys_and_the_popular_ones_are_apart() {
        for places in [1, 2, 3, 10, 997, 1024] {
            let zipf = Zipf::new(places, 0.9);
            let place = |rank: u64| (u128::from(rank) * u128::from(zipf.scatter) % u128::from(places)) as u64;
            let seen: std::collections::BTreeSet<u64> = (0..places).map(place).collect();
            assert_eq!(seen.len() as u64, places);
        }
        let (zipf, mut random) = (Zipf::new(1000, 0.99), Random::new(3));
        let low = (0..10_000).filter(|_| zipf.place(&mut random) < 500).count();
        assert!((3000..7000).contains(&low), "{low} of 10 000 in the first half");
    }
}
