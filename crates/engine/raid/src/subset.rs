//! A subset of a line's cells, by role, or of a chunk's slots, by index: at most 19 of either.

/// A set of small numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Subset(u32);

impl Subset {
    /// The numbers 0..`n`.
    pub fn first(n: usize) -> Subset {
        Subset((1 << n) - 1)
    }

    pub fn contains(self, member: usize) -> bool {
        self.0 >> member & 1 != 0
    }

    pub fn insert(&mut self, member: usize) {
        self.0 |= 1 << member;
    }

    pub fn union(self, other: Subset) -> Subset {
        Subset(self.0 | other.0)
    }

    pub fn intersection(self, other: Subset) -> Subset {
        Subset(self.0 & other.0)
    }

    pub fn without(self, other: Subset) -> Subset {
        Subset(self.0 & !other.0)
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members, smallest first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..32).filter(move |&member| self.contains(member))
    }

    /// Every subset of 0..`n` with `size` members.
    pub fn all_of_size(n: usize, size: usize) -> impl Iterator<Item = Subset> {
        let first = Some(Subset::first(size)).filter(|_| size <= n);
        std::iter::successors(first, move |subset| {
            // Gosper: the next greater number with as many ones. Of the empty set there is only one.
            let lowest = subset.0 & subset.0.wrapping_neg();
            let ripple = subset.0.checked_add(lowest).filter(|_| lowest != 0)?;
            let next = ripple | ((subset.0 ^ ripple) >> 2) / lowest;
            (next < 1 << n).then_some(Subset(next))
        })
    }
}

impl FromIterator<usize> for Subset {
    fn from_iter<I: IntoIterator<Item = usize>>(members: I) -> Subset {
        let mut subset = Subset::default();
        members.into_iter().for_each(|member| subset.insert(member));
        subset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_of_a_size_are_all_there_once() {
        for (n, size, count) in [(5, 0, 1), (5, 1, 5), (19, 2, 171), (19, 3, 969), (3, 3, 1), (2, 3, 0)] {
            let all: Vec<Subset> = Subset::all_of_size(n, size).collect();
            assert_eq!(all.len(), count, "{size} of {n}");
            assert!(
                all.iter().all(|subset| subset.len() == size && subset.without(Subset::first(n)).is_empty())
            );
            assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
    }
}
