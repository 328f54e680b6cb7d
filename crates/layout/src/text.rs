//! Texts that must fit into a field or a message.

/// Gives the beginning of a text: at most `most` bytes, and only whole characters.
#[must_use]
pub fn clipped(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::clipped;

    #[test]
    fn no_character_is_cut() {
        assert_eq!([0, 1, 2, 3, 4, 9].map(|most| clipped("aé€", most)), ["", "a", "a", "aé", "aé", "aé€"]);
        assert_eq!(clipped("", 5), "");
    }
}
