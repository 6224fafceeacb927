//! Partial admission: the largest size that fits.

/// Searches for the largest counts between the minimum and the full size of every pod set that `fits`
/// accepts, reducing all pod sets in step. `sets` are pairs of full size and minimum.
///
/// The search halves the range as if a smaller size always fitted when a larger does. Where that is not
/// so, it may miss a size that fits; a result is only used if it was the last one accepted.
pub fn search_counts<R>(sets: &[(i32, i32)], mut fits: impl FnMut(&[i32]) -> Option<R>) -> Option<R> {
    let total: i64 = sets.iter().map(|(full, least)| i64::from(full - least)).sum();
    if total == 0 {
        return None;
    }
    let mut counts: Vec<i32> = vec![0; sets.len()];
    let mut last_good: Option<(i64, R)> = None;
    let (mut low, mut high) = (0i64, total + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        for (count, (full, least)) in counts.iter_mut().zip(sets) {
            let reduction = i64::from(full - least) * middle / total;
            *count = i32::try_from(i64::from(*full) - reduction).unwrap_or(*full);
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
