//! Workflow file, container engines, supervision.
//!
//! [`file`] reads and checks a workflow; [`engine`] turns a task into a command line of a container engine; [`run`]
//! starts the tasks, watches them and cleans up; [`graph`] draws them. The library prints nothing but what [`run`] is asked to show.

pub mod engine;
pub mod file;
pub mod graph;
pub mod mpi;
pub mod run;
mod ssh;

/// Passes arbitrary bytes to the workflow file's reader. The result does not matter; it must return.
pub fn fuzz_workflow(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(problems) = file::parse(std::path::Path::new("/nowhere/workflow.yaml"), text) {
        // Printing must work for any input, too.
        let _ = problems.to_string();
    }
}
