//! The conformance list (`tests/languages/conformance.md`) in Rust, with one function for each row.
//!
//! `conformance-rust [ROW]` runs the tests of all rows, or only of one row. For another process of a test it starts
//! itself again, with the row, a role, the prefix of names, and the arguments of the role.

mod errors;
mod files;
mod harness;
mod items;
mod ports;
mod regions;
mod series;

use harness::{Row, run_role, run_rows};

fn rows() -> Vec<Row> {
    [regions::rows(), errors::rows(), ports::rows(), items::rows(), series::rows(), files::rows()].concat()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let code = match words.as_slice() {
        [] => run_rows(&rows(), None),
        [row] => run_rows(&rows(), Some(row)),
        [row, role, prefix, rest @ ..] => run_role(&rows(), row, role, prefix, rest),
        _ => {
            eprintln!("usage: conformance-rust [ROW]");
            2
        }
    };
    std::process::exit(code);
}
