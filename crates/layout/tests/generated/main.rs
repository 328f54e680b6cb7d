//! Writes the tables and declarations of closed sets, limits and messages in other languages and in the documentation.
//! All of them are made from the declarations in this crate.
//!
//! `UPDATE=1 cargo test -p crossdock-layout --test generated` writes them. Without `UPDATE` a difference makes the test
//! fail.

mod limits;
mod link;
mod protocol;
mod sets;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The path of a file of the repository.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Applies `change` to the text of a file of the repository, and writes the result to the file. Without `UPDATE`, the
/// function writes nothing, and fails if the text would change.
fn keep(name: &str, change: impl Fn(&str) -> String) {
    // Tests run at the same time, and several of them write to one file.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let text = std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let wanted = change(&text);
    if text == wanted {
        return;
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path(name), wanted).unwrap();
        return;
    }
    let (line, (is, should)) = (1..)
        .zip(text.lines().chain(["(end)"]).zip(wanted.lines().chain(["(end)"])))
        .find(|(_, (is, should))| is != should)
        .unwrap();
    panic!(
        "{name}:{line} differs from the declarations in crates/layout:\n  is      {is}\n  should  {should}\n\
         write it anew: UPDATE=1 cargo test -p crossdock-layout --test generated"
    );
}

/// Replaces the text from the first `begin` to the next `end`, both included, by `with`.
fn replace(text: &str, begin: &str, end: &str, with: &str) -> String {
    let from = text.find(begin).unwrap_or_else(|| panic!("there is no '{begin}'"));
    let to = from + text[from..].find(end).unwrap_or_else(|| panic!("'{begin}' has no '{end}'")) + end.len();
    format!("{}{with}{}", &text[..from], &text[to..])
}

/// Joins the lines of a comment to one text.
fn whole(doc: &[&str]) -> String {
    doc.iter()
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ")
        .replace("[`", "`")
        .replace("`]", "`")
        .replace("super::", "")
        .replace("crate::", "")
}

/// Gives the first sentence of a comment as a remark: without a capital letter and a full stop.
fn remark(doc: &[&str]) -> String {
    let text = whole(doc).replace('`', "");
    let sentence = text.split(". ").next().unwrap_or_default().trim_end_matches('.');
    let mut letters = sentence.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => sentence.to_owned(),
    }
}

/// Turns `OneToOne` into `ONE_TO_ONE`.
fn upper(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}
