//! MPI jobs in containers on several hosts, with no ssh daemon in any container.
//!
//! ```text
//! first host                                        another host
//! crossdock mpirun ── keeper ──────── ssh ───────── starter ── keeper
//!                       │ one container per host       │          │ one container per host
//!                     init ─ mpirun, ranks              (frames) init ─ orted, prted or proxy, ranks
//!                              └ ssh (shim) ─▶ keeper
//! ```
//!
//! The **keeper** of a host makes the job's one container there, with the shim's init in it, and runs in it the
//! commands of its clients. The launcher in the container calls the shim as its ssh. The shim asks the keeper, and the
//! keeper uses the host's real ssh to reach a **starter** on the other host, which is a client of that host's keeper.
//! Every connection is a lifeline: when one end is gone, for whatever reason, the other end stops what depends on it.
//!
//! With `--launcher srun`, Slurm takes the place of ssh and of the image's mpirun: it starts one **task** for each rank, which is
//! a client of its host's keeper and runs its rank in the job's container there, with the PMI of its step.

mod container;
mod front;
pub mod hosts;
mod job;
mod keeper;
mod launcher;
mod marks;
mod outline;
mod place;
mod remote;
mod report;
mod session;
mod srun;
mod starter;
mod task;

pub use container::ENGINES;
pub use front::{Options, mpirun};
pub(crate) use keeper::is_here;
pub use keeper::keeper;
pub(crate) use place::{is_static, shim};
pub use starter::starter;
pub use task::task;

/// The hidden command that runs a job's starter on another host.
pub const STARTER: &str = "mpi-starter";
/// The hidden command that runs a job's keeper.
pub const KEEPER: &str = "mpi-keeper";
/// The hidden command of `crossdock` that `srun` starts for each rank.
pub const TASK: &str = "mpi-task";
/// The line that a starter writes before its first frame, because login shells may write any text before it.
const GREETING: &[u8] = b"\ncrossdock-mpi 1\n";
