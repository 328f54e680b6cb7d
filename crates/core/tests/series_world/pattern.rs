//! A pattern of numbers. By it the tests notice if a version is a mixture of two steps. Each number says which step
//! wrote it.
//!
//! Step `s` writes all pages if `s` is a multiple of four; otherwise it writes every seventh page. In each page that it
//! writes, all numbers are computed from `s` and their positions.

const WORDS: usize = 512;

pub fn writes(step: u64, page: u64) -> bool {
    step % 4 == 0 || step == 1 || page % 7 == step % 7
}

/// Finds the last step, not later than step `sequence`, that wrote this page. In the version `sequence`, the page must
/// have the numbers of that step.
pub fn writer(sequence: u64, page: u64) -> u64 {
    (1..=sequence).rev().find(|step| writes(*step, page)).unwrap_or(0)
}

fn number(step: u64, at: usize) -> u64 {
    step.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at as u64
}

/// Writes the pages that the step `step` changes. If `all` is true, the memory is that of a begun version, which has no
/// earlier contents; then the function writes all pages.
pub fn write(numbers: &mut [u64], step: u64, all: bool) {
    for (page, words) in numbers.chunks_mut(WORDS).enumerate() {
        let by = if all { writer(step, page as u64) } else { step };
        if all || writes(step, page as u64) {
            for (n, word) in words.iter_mut().enumerate() {
                *word = number(by, page * WORDS + n);
            }
        }
    }
}

/// Checks that these numbers are exactly the contents of version `sequence`. Reads every `stride`-th number of each
/// page, and the page's last number.
pub fn check(numbers: &[u64], sequence: u64, stride: usize) -> Result<(), String> {
    for (page, words) in numbers.chunks(WORDS).enumerate() {
        let by = writer(sequence, page as u64);
        for n in (0..words.len()).step_by(stride).chain([words.len() - 1]) {
            if words[n] != number(by, page * WORDS + n) {
                let seen = (0..=sequence + 40).find(|step| number(*step, page * WORDS + n) == words[n]);
                return Err(format!("version {sequence}, page {page}, number {n}: step {by} expected, {seen:?} found"));
            }
        }
    }
    Ok(())
}
