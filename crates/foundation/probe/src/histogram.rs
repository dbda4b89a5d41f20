//! How many values were of which size, to an eighth of each power of two.
//!
//! Buckets are linear within a power of two, and as many in each (as in HdrHistogram): the error is relative, the same for a microsecond and a minute.

/// Buckets within a power of two: 2³.
const BITS: u32 = 3;
const PARTS: u64 = 1 << BITS;
/// Values from here on are in the last bucket: in nanoseconds, 18 minutes.
const VALUE_MAX: u64 = (1 << 40) - 1;
const BUCKETS: usize = ((40 - BITS as usize) << BITS) + PARTS as usize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Box::new([0; BUCKETS]), count: 0 }
    }
}

fn bucket(value: u64) -> usize {
    let value = value.min(VALUE_MAX);
    if value < PARTS {
        return value as usize;
    }
    // The three bits behind the highest one say which part of its power of two it is in.
    let power = value.ilog2() - BITS;
    ((u64::from(power + 1) << BITS) + (value >> power) - PARTS) as usize
}

/// The greatest value of a bucket.
fn greatest(bucket: usize) -> u64 {
    let (power, part) = (bucket as u64 >> BITS, bucket as u64 & (PARTS - 1));
    match power {
        0 => part,
        _ => ((PARTS + part + 1) << (power - 1)) - 1,
    }
}

impl Histogram {
    pub fn record(&mut self, value: u64) {
        let count = &mut self.counts[bucket(value)];
        *count = count.saturating_add(1);
        self.count += 1;
    }

    /// What `permille` thousandths of the values did not exceed, too large by an eighth at most; 0 without values.
    pub fn quantile(&self, permille: u64) -> u64 {
        let rank = (self.count * permille).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank && seen > 0 {
                return greatest(bucket);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bucket_that_is_at_most_an_eighth_above_it() {
        let mut values: Vec<u64> = (0..5000).collect();
        values.extend(
            (10..40).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1, 5 << (power - 3)]),
        );
        for value in values {
            let top = greatest(bucket(value));
            assert!(top >= value && top - value <= value / 8, "{value} is counted as {top}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let mut one = Histogram::default();
        (1..=1000).for_each(|value| one.record(value * 1000));
        for permille in [1, 500, 990, 999, 1000] {
            let (exact, found) = (permille * 1000, one.quantile(permille));
            assert!(found >= exact && found <= exact + exact / 8, "{permille}: {found} for {exact}");
        }
        assert_eq!(Histogram::default().quantile(990), 0);
    }
}
