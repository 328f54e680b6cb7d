//! A pattern that tells of every number which step wrote it, and which steps must have: a torn version shows.
//!
//! Step `s` writes all pages if it is a multiple of four, otherwise every seventh page; a page that it writes holds `s` in
//! all its numbers, mixed with their place.

const WORDS: usize = 512;

pub fn writes(step: u64, page: u64) -> bool {
    step % 4 == 0 || step == 1 || page % 7 == step % 7
}

/// The step that wrote a page last, as version `sequence` must show it.
pub fn writer(sequence: u64, page: u64) -> u64 {
    (1..=sequence).rev().find(|step| writes(*step, page)).unwrap_or(0)
}

fn number(step: u64, at: usize) -> u64 {
    step.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at as u64
}

/// What step `step` does. `all`: it must write everything, for it writes into a fresh version.
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

/// Is this exactly what version `sequence` must be? Looks at every `stride`-th number of each page, and the last.
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
