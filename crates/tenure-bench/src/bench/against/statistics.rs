//! The median and its interval with a confidence of 95 %.

/// Probability allowed on each side of the interval.
const TAIL: f64 = 0.025;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The middle value, or the mean of the two in the middle; `None` without values.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let high = *sorted.get(sorted.len() / 2)?;
    if sorted.len().is_multiple_of(2) {
        let low = *sorted.get(sorted.len() / 2 - 1)?;
        return Some(f64::midpoint(low, high));
    }
    Some(high)
}

/// The interval of the median by order statistics. It is valid for every distribution, because each
/// value lies below the true median with a probability of one half. `None` for fewer than six
/// values: their whole range does not reach a confidence of 95 %.
pub(super) fn median_interval(values: &[f64]) -> Option<Interval> {
    let sorted = sorted(values);
    let rank = rank(sorted.len())?;
    Some(Interval {
        low: *sorted.get(rank)?,
        high: *sorted.get(sorted.len() - 1 - rank)?,
    })
}

/// The highest index, from 0, whose value is above the true median with a probability of at most
/// 2.5 %.
fn rank(count: usize) -> Option<usize> {
    let n = f64::from(u32::try_from(count).ok()?);
    // The probability that exactly, and that at most, `below` values are below the median.
    let mut exactly = 0.5_f64.powf(n);
    let (mut at_most, mut below) = (exactly, 0.0);
    let mut rank = None;
    while at_most <= TAIL && below < n {
        rank = Some(rank.map_or(0, |rank| rank + 1));
        below += 1.0;
        exactly *= (n - below + 1.0) / below;
        at_most += exactly;
    }
    rank
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the tables of the sign test, where ranks count from 1.
    #[test]
    fn the_ranks_of_the_interval_are_those_of_the_tables() {
        for (count, low) in [
            (6, 1),
            (8, 1),
            (9, 2),
            (10, 2),
            (15, 4),
            (20, 6),
            (21, 6),
            (25, 8),
            (50, 18),
            (99, 40),
        ] {
            assert_eq!(rank(count), Some(low - 1), "of {count}");
        }
        for count in 0..6 {
            assert_eq!(rank(count), None, "of {count}");
        }
    }

    #[test]
    fn the_values_are_sorted_first() {
        let values: Vec<f64> = (1..=21).rev().map(f64::from).collect();
        let expected = Interval {
            low: 6.0,
            high: 16.0,
        };
        assert_eq!(median_interval(&values), Some(expected));
        assert_eq!(median(&values), Some(11.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median_interval(&[1.0; 5]), None);
    }

    /// Of all ways in which the values may lie around the median, at least 95 % have the median in
    /// the interval.
    #[test]
    fn the_interval_covers_the_median_as_often_as_it_says() {
        for count in [6_usize, 13, 17] {
            let ways = 1_u32 << count;
            let covered = (0..ways).filter(|way| {
                let below = |n: usize| way & (1 << n) != 0;
                let value = |n| if below(n) { -1.0 } else { 1.0 };
                let values: Vec<f64> = (0..count).map(value).collect();
                let interval = median_interval(&values).unwrap();
                interval.low < 0.0 && interval.high > 0.0
            });
            let share = f64::from(u32::try_from(covered.count()).unwrap()) / f64::from(ways);
            assert!((0.95..0.99).contains(&share), "{share} of {count}");
        }
    }
}
