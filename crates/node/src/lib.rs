//! The node daemon: keeper, broker, failure detector, journal.

pub mod broker;
mod journal;
mod options;

pub use options::{ServeError, ServeOptions};

/// Runs the daemon in the foreground until it is told to end (SIGTERM, SIGINT) or, if private, is idle.
///
/// Forks the broker process, so the calling process must have one thread. Blocks signals in the calling thread.
///
/// # Errors
/// The socket's folder is another's or cannot be made, another daemon serves the socket, the kernel lacks something.
pub fn serve(_options: ServeOptions) -> Result<(), ServeError> {
    todo!()
}
