//! Reads workflow files, starts tasks under container engines, and supervises runs.
//!
//! [`file`] reads and checks a workflow; [`engine`] turns a task into a command line of a container engine; [`run`]
//! starts the tasks, watches them and cleans up; [`graph`] draws the workflow. The library itself prints nothing except
//! what [`run`] is asked to show.

pub mod engine;
pub mod file;
pub mod graph;
pub mod mpi;
mod root;
pub mod run;
mod shared_memory;
mod ssh;

/// Passes arbitrary bytes to the reader of workflow files. The reader may give any result, but it must return.
pub fn fuzz_workflow(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(problems) = file::parse(std::path::Path::new("/nowhere/workflow.yaml"), text) {
        // Printing the problems must also work for any input.
        let _ = problems.to_string();
    }
}
