//! Measures files in managed directories (rows P14 and Y5). They are compared with plain tmpfs, with polling, with
//! direct calls of inotify, and with running the producer and the consumer one after the other.
//!
//! The command line is `files PRELOAD SHIM [--quick] [--json]`, with the preload library and the static shim program.
//! The program makes directories in /dev/shm and removes them before it ends. `files part …` runs one process of a
//! measurement.

mod one;
mod pairs;
mod part;
mod place;

use crossdock_bench::{Point, print_points};
use pairs::Files;
use place::Doors;

/// The files that each producer writes in the DYAD paper: 64 files, here of the smallest of three sizes.
const SMALL: Files = Files { case: "185 B", bytes: 185, count: 64 };
const MEDIUM: Files = Files { case: "1 MB", bytes: 1_000_000, count: 64 };
const LARGE: Files = Files { case: "10 MB", bytes: 10_000_000, count: 64 };
/// Larger files. Only 8 of them are written, because they must fit into memory.
const HUGE: Files = Files { case: "100 MB, 8 files", bytes: 100_000_000, count: 8 };

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "--json").collect();
    match &words[..] {
        ["part", rest @ ..] => part::part(rest),
        [preload, shim, rest @ ..] => measure(&Doors { preload, shim }, rest.contains(&"--quick")),
        _ => {
            eprintln!("usage: files PRELOAD SHIM [--quick] [--json]");
            std::process::exit(2);
        }
    }
}

fn measure(doors: &Doors<'_>, quick: bool) {
    let mut records = one::open(doors, quick);
    records.extend(one::open_for_writing(doors, quick));
    records.extend(one::close_to_open(doors, quick));
    records.extend(one::throughput(doors, quick));
    let each: &[(Files, usize)] = if quick {
        &[(SMALL, 1), (MEDIUM, 1)]
    } else {
        &[(SMALL, 1), (SMALL, 2), (MEDIUM, 1), (MEDIUM, 2), (LARGE, 1), (LARGE, 2), (HUGE, 1)]
    };
    records.extend(each.iter().flat_map(|&(files, pairs)| pairs::each_file(doors, files, pairs)));
    let mut points: Vec<Point> = records.into_iter().map(Point::from).collect();
    let (all, most, rounds): (&[Files], usize, usize) =
        if quick { (&[SMALL], 2, 1) } else { (&[SMALL, MEDIUM, LARGE], 8, 2) };
    for &files in all {
        // The files of all pairs stay in memory, so there are at most 4 pairs with large files.
        let most = if files.bytes >= LARGE.bytes { most.min(4) } else { most };
        let pairs: Vec<usize> = [1, 2, 4, 8].into_iter().filter(|pairs| *pairs <= most).collect();
        points.extend(pairs::all_files(doors, files, &pairs, rounds));
    }
    print_points(&points);
}
