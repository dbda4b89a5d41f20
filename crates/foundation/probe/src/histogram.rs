//! How many values were of which size, to an eighth of each power of two.
//!
//! Buckets are linear within a power of two, and as many in each (as in HdrHistogram): the error is relative, the same for a microsecond and a minute.
//! Two histograms are added bucket by bucket, so percentiles of many come from what was counted and never from other percentiles. A bucket's number
//! means the same values for ever: such numbers are kept on disk.

/// Buckets within a power of two: 2³.
const BITS: u32 = 3;
const PARTS: u64 = 1 << BITS;
/// Values from here on are in the last bucket: in nanoseconds, 18 minutes.
const VALUE_MAX: u64 = (1 << 40) - 1;
/// How many buckets there are; a bucket's number is less.
pub const BUCKETS: usize = ((40 - BITS as usize) << BITS) + PARTS as usize;

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

/// The bucket that counts a value.
pub fn bucket_of(value: u64) -> u16 {
    bucket(value) as u16
}

/// The least value of a bucket, and the greatest; what is greater than the last bucket's is counted there, too.
pub fn bounds(bucket: u16) -> (u64, u64) {
    let bucket = usize::from(bucket).min(BUCKETS - 1);
    let least = if bucket == 0 { 0 } else { greatest(bucket - 1) + 1 };
    (least, greatest(bucket))
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

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Buckets that count something, in rising order, with how much.
    pub fn buckets(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        let numbered = self.counts.iter().enumerate();
        numbered.filter(|(_, count)| **count > 0).map(|(bucket, count)| (bucket as u16, *count))
    }

    /// Counts what another has counted, too.
    pub fn add(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine = mine.saturating_add(*theirs);
        }
        self.count += other.count;
    }

    /// The greatest value of the last bucket that counts something; 0 without values.
    pub fn greatest(&self) -> u64 {
        self.counts.iter().rposition(|count| *count > 0).map_or(0, greatest)
    }

    /// Forgets all values, and keeps its memory.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.count = 0;
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

    #[test]
    fn buckets_lie_side_by_side_and_hold_what_is_counted_in_them() {
        let mut next = 0;
        for number in 0..BUCKETS as u16 {
            let (least, greatest) = bounds(number);
            assert_eq!((least, bucket_of(least), bucket_of(greatest)), (next, number, number));
            next = greatest + 1;
        }
        assert_eq!((next, bounds(u16::MAX)), (VALUE_MAX + 1, bounds(BUCKETS as u16 - 1)));
    }

    #[test]
    fn a_sum_is_what_one_would_have_counted() {
        let (mut one, mut other, mut both) =
            (Histogram::default(), Histogram::default(), Histogram::default());
        for value in (0..3000).map(|value| value * value) {
            if value % 3 == 0 { &mut one } else { &mut other }.record(value);
            both.record(value);
        }
        one.add(&other);
        assert_eq!(one, both);
        assert_eq!((one.count(), one.greatest()), (3000, bounds(bucket_of(2999 * 2999)).1));
        assert_eq!(one.buckets().map(|(_, count)| u64::from(count)).sum::<u64>(), 3000);
        assert!(one.buckets().zip(one.buckets().skip(1)).all(|(a, b)| a.0 < b.0));
        one.clear();
        assert_eq!((one.buckets().count(), one.greatest()), (0, 0));
        assert_eq!(one, Histogram::default());
    }
}
