//! Finds the members of closed sets, such as the modes, by the words that callers write.

use crossdock_client::Status;
use crossdock_layout::set::ClosedSet;
use pyo3::prelude::*;

use crate::errors::error;

/// Finds the value of the enumeration `T` that has this word. Underscores count as hyphens.
pub fn member<T: ClosedSet>(py: Python<'_>, argument: &str, word: &str) -> PyResult<T> {
    let words = || T::SET.members.iter().map(|member| member.word);
    let same = |known: &&str| known.replace('_', "-") == word.replace('_', "-");
    words().find(same).and_then(T::from_word).ok_or_else(|| {
        let all = words().collect::<Vec<_>>().join(", ");
        error(py, Status::Invalid, format!("{argument} '{word}' is none of {all}"))
    })
}
