//! What crossdock puts into containers: `ssh` for MPI launchers, the container's init, the start of a rank, and the door to
//! managed directories for static programs.
//!
//! One program with several names, linked statically, so that it runs in any image. The keeper, which stays outside the
//! container, is in `crossdock-launch`.

pub mod agent;
pub mod arguments;
pub mod binding;
pub mod detect;
pub mod door;
pub mod init;
pub mod message;
pub mod program;
pub mod rank;
pub mod wire;

/// Where the keeper's folder lies in a container.
pub const PLACE: &str = "/run/crossdock-mpi";
/// The variable that names the keeper's folder where it lies elsewhere.
pub const PLACE_VARIABLE: &str = "CROSSDOCK_MPI";
/// The keeper's socket, in its folder.
pub const SOCKET: &str = "keeper.sock";
/// The name of this program's file.
pub const PROGRAM: &str = "crossdock-shim";

/// The keeper's folder, as this process sees it.
pub fn place() -> std::path::PathBuf {
    std::env::var_os(PLACE_VARIABLE).filter(|p| !p.is_empty()).map_or_else(|| PLACE.into(), Into::into)
}

/// How programs that stand between a command and its caller tell a failure of their own, as `ssh` does.
pub const FAILED: i32 = 255;
