//! Computes the expected checksums without doing the work of the tasks.
//!
//! The elements of a buffer are `seed + i * STEP`, and its checksum is a weighted sum of the elements. So the checksum
//! is `a * seed + b`, where `a` and `b` depend only on the number of elements. This code shares nothing with
//! `program/work.hpp` on purpose, so that comparing the two results is a check.

use std::collections::BTreeMap;

use crate::graph::Graph;

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const BLOCK: u64 = 4096;
const LANES: u64 = 8;

fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_add(STEP).wrapping_add(a << 6).wrapping_add(a >> 2);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Computes `a` and `b` of the checksum `a * seed + b` of a buffer with this many elements.
fn checksum_line(elements: u64) -> (u64, u64) {
    let (mut a, mut b) = (0u64, 0u64);
    for (number, start) in (0..elements).step_by(BLOCK as usize).enumerate() {
        let here = BLOCK.min(elements - start);
        let block_weight = 2 * number as u64 + 1;
        for lane in 0..LANES.min(here) {
            let count = (here - lane).div_ceil(LANES);
            // The sum of the indices start + lane, start + lane + 8, and so on.
            let indices = count * (start + lane) + LANES * (count * (count - 1) / 2);
            let weight = block_weight.wrapping_mul(2 * lane + 1);
            a = a.wrapping_add(weight.wrapping_mul(count));
            b = b.wrapping_add(weight.wrapping_mul(STEP.wrapping_mul(indices)));
        }
    }
    (a, b)
}

/// Computes the checksum of each task over all iterations of a trial.
pub fn expected(graph: &Graph, iterations: u64) -> Result<Vec<u64>, String> {
    let order = graph.order()?;
    let lines: BTreeMap<u64, (u64, u64)> =
        graph.tasks.iter().map(|t| (t.elements, checksum_line(t.elements))).collect();
    let into: Vec<Vec<usize>> = (0..graph.tasks.len())
        .map(|task| graph.ports.iter().filter(|p| p.to == task).map(|p| p.from).collect())
        .collect();
    let mut all = vec![0u64; graph.tasks.len()];
    let mut seeds = vec![0u64; graph.tasks.len()];
    for i in 0..iterations {
        for &task in &order {
            let begin = mix(task as u64 + 1, i);
            let read = |seed, &from: &usize| {
                let (a, b) = lines[&graph.tasks[from].elements];
                mix(seed, a.wrapping_mul(seeds[from]).wrapping_add(b))
            };
            let seed = into[task].iter().fold(begin, read);
            seeds[task] = seed;
            all[task] = mix(all[task], seed);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the checksum element by element, as the tasks' program does.
    fn by_hand(seed: u64, elements: u64) -> u64 {
        (0..elements).fold(0u64, |sum, i| {
            let weight = (2 * (i / BLOCK) + 1).wrapping_mul(2 * (i % BLOCK % LANES) + 1);
            sum.wrapping_add(weight.wrapping_mul(seed.wrapping_add(i.wrapping_mul(STEP))))
        })
    }

    #[test]
    fn the_closed_form_is_the_sum() {
        for elements in [1, 7, 8, 9, 4095, 4096, 4097, 12_345] {
            let (a, b) = checksum_line(elements);
            for seed in [0, 1, 0xDEAD_BEEF_0123_4567] {
                assert_eq!(a.wrapping_mul(seed).wrapping_add(b), by_hand(seed, elements), "{elements} elements");
            }
        }
    }
}
