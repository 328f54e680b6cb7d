//! Compiles the program that all tasks run. It is compiled once for each combination of methods, compiler and library.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::graph::{Graph, Method, Mpi};

const SOURCES: [(&str, &str); 12] = [
    ("crossdock.h", include_str!("../../crates/capi/include/crossdock.h")),
    ("graph.hpp", include_str!("program/graph.hpp")),
    ("work.hpp", include_str!("program/work.hpp")),
    ("channel.hpp", include_str!("program/channel.hpp")),
    ("shared.hpp", include_str!("program/shared.hpp")),
    ("native.hpp", include_str!("program/native.hpp")),
    ("threads.hpp", include_str!("program/threads.hpp")),
    ("mpi.hpp", include_str!("program/mpi.hpp")),
    ("sockets.hpp", include_str!("program/sockets.hpp")),
    ("boost.hpp", include_str!("program/boost.hpp")),
    ("task.hpp", include_str!("program/task.hpp")),
    ("main.cpp", include_str!("program/main.cpp")),
];

/// The program is optimised for any CPU of this architecture, as a distribution would do.
const FLAGS: [&str; 8] =
    ["-std=c++20", "-O3", "-DNDEBUG", "-Wall", "-Wextra", "-pthread", "-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags"];

/// The file name of crossdock's C library, which the tasks' program loads.
pub const LIBRARY: &str = "libcrossdock.so.0";

/// Compiles the program if necessary, and gives the folder that has `program` and its library.
pub fn build(graph: &Graph, mpi: Mpi, folder: &Path) -> Result<PathBuf, String> {
    let library = library()?;
    let (kind, compiler) = if graph.needs_mpi() {
        match mpi {
            Mpi::Mpich => ("mpich", first_of(&["mpicxx.mpich", "mpicxx"])?),
            Mpi::Openmpi => ("openmpi", first_of(&["mpicxx.openmpi", "mpicxx"])?),
        }
    } else {
        ("native", std::env::var("CXX").unwrap_or_else(|_| "c++".into()))
    };
    let mut flags: Vec<&str> = FLAGS.to_vec();
    if graph.needs_mpi() {
        flags.push("-DSYNTH_MPI");
    }
    if graph.uses(Method::Boost) {
        flags.extend(["-DSYNTH_BOOST", "-lrt"]);
    }
    let mut hasher = DefaultHasher::new();
    (SOURCES, &compiler, &flags, &library, changed(&library)).hash(&mut hasher);
    let home = folder.join(format!("{kind}-{:016x}", hasher.finish()));
    if !home.join("program").is_file() {
        compile(&home, &compiler, &flags, &library)?;
    }
    std::path::absolute(&home).map_err(|e| format!("{}: {e}", home.display()))
}

/// Compiles in a temporary folder beside the final one, and renames it at the end. So two builds at the same time do
/// not disturb each other.
fn compile(home: &Path, compiler: &str, flags: &[&str], library: &Path) -> Result<(), String> {
    let failed = |what: &Path, e: std::io::Error| format!("{}: {e}", what.display());
    let scratch = home.with_extension(format!("new-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|e| failed(&scratch, e))?;
    for (name, text) in SOURCES {
        std::fs::write(scratch.join(name), text).map_err(|e| failed(&scratch.join(name), e))?;
    }
    std::fs::copy(library, scratch.join(LIBRARY)).map_err(|e| failed(library, e))?;
    let mut command = Command::new(compiler);
    command.current_dir(&scratch).args(["main.cpp", "-o", "program", "-I.", "-L.", "-l:libcrossdock.so.0"]).args(flags);
    let output = command.output().map_err(|e| format!("cannot start the compiler {compiler}: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let _ = std::fs::remove_dir_all(&scratch);
        return Err(format!("{compiler} could not compile the tasks' program:\n{said}"));
    }
    if std::fs::rename(&scratch, home).is_err() {
        let _ = std::fs::remove_dir_all(&scratch);
    }
    if home.join("program").is_file() { Ok(()) } else { Err(format!("{} is not there", home.display())) }
}

/// Finds the library: in the folder CROSSDOCK_LIBRARY_DIR, or in the folders where the build or an installation puts
/// it, relative to this program.
fn library() -> Result<PathBuf, String> {
    let mut places: Vec<PathBuf> = std::env::var_os("CROSSDOCK_LIBRARY_DIR").map(PathBuf::from).into_iter().collect();
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program in the file system: {e}"))?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let of_debian = format!("../lib/{}-linux-gnu", std::env::consts::ARCH);
    places.extend([beside.to_owned(), beside.join("../lib"), beside.join(of_debian)]);
    let found = places.iter().map(|p| p.join(LIBRARY)).find(|p| p.is_file());
    found.ok_or_else(|| {
        let tried: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        format!("{LIBRARY} is not in {}; say where it is by CROSSDOCK_LIBRARY_DIR", tried.join(", "))
    })
}

fn changed(file: &Path) -> (u64, Option<std::time::SystemTime>) {
    std::fs::metadata(file).map(|m| (m.len(), m.modified().ok())).unwrap_or_default()
}

/// Gives the first of these programs that is in the PATH.
pub fn first_of(names: &[&str]) -> Result<String, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &&str| std::env::split_paths(&path).map(|p| p.join(name)).find(|p| p.is_file());
    let found = names.iter().find_map(find);
    let found =
        found.ok_or_else(|| format!("no {} on PATH; install that MPI, or choose another by --mpi", names[0]))?;
    Ok(found.to_string_lossy().into_owned())
}
