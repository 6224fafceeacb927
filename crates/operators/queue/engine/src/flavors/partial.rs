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

/// How many pods a pod set may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// What it has already, or can do with.
    pub least: i32,
    /// What it asks for.
    pub full: i32,
    /// Whether it can also get something between.
    pub divisible: bool,
}

/// Searches for the most pods that `fits` accepts, for one pod set after another: each gets as many as there is room
/// for beside what those before it got and what those after it have. The result is that of the last counts accepted.
pub fn grow_counts<R>(sets: &[Size], mut fits: impl FnMut(&[i32]) -> Option<R>) -> Option<R> {
    let mut counts: Vec<i32> = sets.iter().map(|set| set.least).collect();
    let mut best = fits(&counts)?;
    for (index, set) in sets.iter().enumerate() {
        let mut try_with = |count: i32| {
            let mut tried = counts.clone();
            tried.get_mut(index).map(|slot| *slot = count)?;
            let result = fits(&tried)?;
            counts = tried;
            Some(result)
        };
        let (mut most, mut beyond) = (set.least, i64::from(set.full) + 1);
        while i64::from(most) + 1 < beyond {
            let middle = i64::from(most) + (beyond - i64::from(most)) / 2;
            // All of it is tried first: mostly that is what there is room for.
            let is_first = beyond > i64::from(set.full);
            let tried = if is_first { set.full } else { i32::try_from(middle).unwrap_or(set.full) };
            match try_with(tried) {
                Some(result) => (best, most) = (result, tried),
                None if set.divisible => beyond = i64::from(tried),
                None => break,
            }
        }
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::{Size, grow_counts, search_counts};

    #[test]
    fn pod_sets_grow_one_after_another_as_far_as_there_is_room() {
        let set = |least: i32, full: i32| Size { least, full, divisible: true };
        let whole = |least: i32, full: i32| Size { divisible: false, ..set(least, full) };
        // The pod sets, the room in all, and what they get.
        let table = [
            (vec![set(1, 1), set(2, 10)], 7, Some(vec![1, 6])),
            (vec![set(1, 1), set(2, 10)], 3, Some(vec![1, 2])),
            (vec![set(1, 1), set(2, 10)], 2, None),
            (vec![set(1, 1), set(2, 10)], 100, Some(vec![1, 10])),
            (vec![set(0, 4), set(0, 4)], 5, Some(vec![4, 1])),
            (vec![set(0, 4), whole(0, 4), set(0, 4)], 6, Some(vec![4, 0, 2])),
            (vec![whole(0, 4), set(0, 4)], 6, Some(vec![4, 2])),
            (vec![set(0, i32::MAX)], 3, Some(vec![3])),
            (vec![], 0, Some(vec![])),
        ];
        for (sets, room, expected) in table {
            let fits = |counts: &[i32]| {
                let total: i64 = counts.iter().map(|count| i64::from(*count)).sum();
                (total <= room).then(|| counts.to_vec())
            };
            assert_eq!(grow_counts(&sets, fits), expected, "{sets:?} in {room}");
        }
    }

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
