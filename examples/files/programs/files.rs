//! A program that uses ordinary files: `files read FILE` copies a file to standard output, and `files write FILE`
//! copies standard input to a file.
use std::fs::File;
use std::io::{copy, stdin, stdout};

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    if words[1] == "write" {
        copy(&mut stdin().lock(), &mut File::create(&words[2])?)?;
    } else {
        copy(&mut File::open(&words[2])?, &mut stdout().lock())?;
    }
    Ok(())
}
