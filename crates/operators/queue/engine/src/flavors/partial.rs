//! Partial admission: the largest size that fits.

/// Searches for the largest counts between the minimum and the full size of every pod set that `fits`
/// accepts, reducing all pod sets in step. `sets` are pairs of full size and minimum.
///
/// The search halves the range as if a smaller size always fitted when a larger does. Where that is not
/// so, it may miss a size that fits; a result is only used if it was the last one accepted.
pub fn search_counts<R>(sets: &[(i32, i32)], mut fits: impl FnMut(&[i32]) -> Option<R>) -> Option<R> {
    // A minimum beyond the full size, or below nothing, leaves nothing to reduce, or all of it.
    let slack = |(full, least): &(i32, i32)| {
        let full = i64::from(*full).max(0);
        full - i64::from(*least).clamp(0, full)
    };
    let total: i64 = sets.iter().map(slack).sum();
    if total == 0 {
        return None;
    }
    let mut counts: Vec<i32> = vec![0; sets.len()];
    let mut last_good: Option<(i64, R)> = None;
    let (mut low, mut high) = (0i64, total + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        for (count, set) in counts.iter_mut().zip(sets) {
            let reduction = i128::from(slack(set)) * i128::from(middle) / i128::from(total);
            *count = i32::try_from(i128::from(set.0) - reduction).unwrap_or(set.0);
        }
        match fits(&counts) {
            Some(result) => {
                last_good = Some((middle, result));
                high = middle;
            }
            None => low = middle + 1,
        }
    }
    last_good.filter(|(at, _)| *at == low).map(|(_, result)| result)
}

#[cfg(test)]
mod tests {
    use super::search_counts;

    #[test]
    fn minimums_out_of_range_are_cut_to_it() {
        let smallest = |sets: &[(i32, i32)]| {
            search_counts(sets, |counts| counts.iter().all(|count| *count <= 1).then(|| counts.to_vec()))
        };
        assert_eq!(smallest(&[(3, i32::MIN)]), Some(vec![1]));
        assert_eq!(smallest(&[(3, i32::MAX)]), None);
        assert_eq!(smallest(&[(i32::MAX, i32::MIN), (i32::MAX, 0)]), Some(vec![1, 1]));
        assert_eq!(smallest(&[]), None);
    }
}
