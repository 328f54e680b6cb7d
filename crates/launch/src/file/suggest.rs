//! Finds the known word that is nearest to an unknown one, for hints of the form "did you mean".

/// Finds the candidate that needs the fewest edits to become `word`. Gives `None` if even this candidate needs more
/// edits than a third of the word's length. One edit is always allowed, however short the word is.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    // A word of more than 64 characters is no typing mistake, so no quadratic time is spent on it.
    if word.chars().count() > 64 {
        return None;
    }
    let limit = (word.chars().count() / 3).max(1);
    let (distance, best) = candidates.into_iter().map(|c| (edits(word, c), c)).min_by_key(|(d, _)| *d)?;
    (distance <= limit).then_some(best)
}

/// Counts the edits between two words. An edit inserts, removes or changes a character, or swaps two neighbouring
/// characters.
fn edits(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_recognised_and_another_word_is_not() {
        let known = ["command", "environment", "mounts", "ranks"];
        assert_eq!(nearest("comand", known), Some("command"));
        assert_eq!(nearest("enviroment", known), Some("environment"));
        assert_eq!(nearest("Ranks", known), Some("ranks"));
        assert_eq!(nearest("rnaks", known), Some("ranks"));
        assert_eq!(nearest("colour", known), None);
    }
}
