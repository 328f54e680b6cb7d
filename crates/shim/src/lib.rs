//! The program that crossdock puts into containers: `ssh` for MPI launchers, the container's init, the start of a rank,
//! and the door to managed directories for static programs.
//!
//! It is one program with several names, linked statically, so that it runs in any image. The keeper, which stays
//! outside the container, is in `crossdock-launch`.

pub mod agent;
pub mod arguments;
pub mod binding;
pub mod detect;
pub mod door;
mod fuzz;
pub mod init;
pub mod message;
pub mod program;
pub mod rank;
pub mod wire;

pub use fuzz::fuzz_shim;

/// The path at which a container sees the folder of the MPI job's keeper.
pub const PLACE: &str = "/run/crossdock-mpi";
/// The environment variable with the path of the keeper's folder, if the folder is not at [`PLACE`].
pub const PLACE_VARIABLE: &str = "CROSSDOCK_MPI";
/// The name of the socket, in the keeper's folder, by which processes of the container reach the keeper.
pub const SOCKET: &str = "keeper.sock";
/// The name of this program's file.
pub const PROGRAM: &str = "crossdock-shim";

/// Gives the path by which this process reaches the folder of the MPI job's keeper. The path in a container differs
/// from the path on the host.
pub fn place() -> std::path::PathBuf {
    std::env::var_os(PLACE_VARIABLE).filter(|p| !p.is_empty()).map_or_else(|| PLACE.into(), Into::into)
}

/// The exit code for a failure of the shim itself, as opposed to a failure of the command that it runs. ssh uses the
/// same code.
pub const FAILED: i32 = 255;
