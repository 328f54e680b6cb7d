//! Converts the texts that callers give for an argument, such as the mode "open_only", to values of enumerations.

use crossdock_client::Status;
use crossdock_layout::set::ClosedSet;
use pyo3::prelude::*;

use crate::errors::error;

/// Finds the value of the enumeration `T` that this word names. Underscores in the word count as hyphens.
pub fn member<T: ClosedSet>(py: Python<'_>, argument: &str, word: &str) -> PyResult<T> {
    let words = || T::SET.members.iter().map(|member| member.word);
    let same = |known: &&str| known.replace('_', "-") == word.replace('_', "-");
    words().find(same).and_then(T::from_word).ok_or_else(|| {
        let all = words().collect::<Vec<_>>().join(", ");
        error(py, Status::Invalid, format!("{argument} '{word}' is none of {all}"))
    })
}
