//! Finds out which MPI a container has, by examining the container's files. It starts no program.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::wire::{Reader, Writer};

/// The kinds of MPI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MpiKind {
    /// No MPI was found.
    #[default]
    None,
    /// Open MPI up to version 4, with the programs orterun and orted.
    OpenMpi4,
    /// Open MPI 5, with the programs prterun and prted.
    OpenMpi5,
    /// MPICH, and other MPIs that use MPICH's launcher Hydra: MVAPICH 3 and 4.
    Mpich,
    /// Intel MPI.
    Intel,
    /// MVAPICH 2 with mpirun_rsh.
    Mvapich2,
}

impl MpiKind {
    const ALL: [Self; 6] = [Self::None, Self::OpenMpi4, Self::OpenMpi5, Self::Mpich, Self::Intel, Self::Mvapich2];

    /// The name of the kind for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "no MPI",
            Self::OpenMpi4 => "Open MPI 4",
            Self::OpenMpi5 => "Open MPI 5",
            Self::Mpich => "MPICH",
            Self::Intel => "Intel MPI",
            Self::Mvapich2 => "MVAPICH 2",
        }
    }

    /// Tells whether this kind is Open MPI. The other kinds are one family: a program that was linked with one of them
    /// also runs under the others, but not under Open MPI.
    pub fn is_open_mpi(self) -> bool {
        matches!(self, Self::OpenMpi4 | Self::OpenMpi5)
    }

    fn fits(self, wanted: &str) -> bool {
        match wanted {
            "openmpi" => self.is_open_mpi(),
            "mpich" => self == Self::Mpich,
            "intel" => self == Self::Intel,
            "mvapich" => self == Self::Mvapich2,
            _ => self != Self::None,
        }
    }
}

/// The MPI that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MpiInstallation {
    /// The kind of the MPI.
    pub kind: MpiKind,
    /// The path of the MPI's launcher.
    pub launcher: String,
    /// The folder with the MPI's `bin` and `lib`.
    pub prefix: String,
    /// The file name of the MPI's library, which contains the version.
    pub library: String,
    /// The MPI library that the job's program needs; empty if the program's file does not name one.
    pub needed: String,
}

impl MpiInstallation {
    /// Writes this description of an MPI into a message.
    pub fn write<'a>(&self, w: &'a mut Writer) -> &'a mut Writer {
        let kind = MpiKind::ALL.iter().position(|k| *k == self.kind).unwrap_or(0);
        w.number(kind as i64).text(&self.launcher).text(&self.prefix).text(&self.library).text(&self.needed)
    }

    /// Reads the description of an MPI from a message.
    pub fn read(r: &mut Reader<'_>) -> Option<Self> {
        let kind = *MpiKind::ALL.get(r.small::<usize>()?)?;
        Some(Self { kind, launcher: r.text()?, prefix: r.text()?, library: r.text()?, needed: r.text()? })
    }

    /// Describes kind and version for people.
    pub fn describe(&self) -> String {
        if self.kind == MpiKind::None || self.library.is_empty() {
            return self.kind.name().to_owned();
        }
        format!("{} ({})", self.kind.name(), self.library)
    }

    /// Tells whether the job's program can run under this MPI.
    pub fn fits_program(&self) -> bool {
        self.needed.is_empty() || (self.needed == OPEN_MPI_LIBRARY) == self.kind.is_open_mpi()
    }
}

const OPEN_MPI_LIBRARY: &str = "libmpi.so.40";
const LIBRARIES: [&str; 3] = [OPEN_MPI_LIBRARY, "libmpich.so.12", "libmpi.so.12"];
const LAUNCHERS: [&str; 7] =
    ["mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.hydra", "mpirun.mpich", "orterun", "mpirun_rsh"];
/// Folders outside PATH in which distributions install an MPI.
const PLACES: [&str; 5] = [
    "/usr/lib64/openmpi/bin",
    "/usr/lib64/mpich/bin",
    "/usr/local/bin",
    "/opt/intel/oneapi/mpi/latest/bin",
    "/opt/openmpi/bin",
];

/// Runs `detect [MPI [PROGRAM]]`: prints the MPI that was found.
pub fn run(words: &[String]) -> i32 {
    let found = look(words.first().map_or("auto", String::as_str), words.get(1).map_or("", String::as_str));
    println!("{} {} {}", found.describe(), found.launcher, found.needed);
    i32::from(found.kind == MpiKind::None)
}

/// Finds the MPI of the container for the container's init. `wanted` is `MPI` or `MPI:PROGRAM`.
pub fn detect(wanted: &str) -> MpiInstallation {
    let (wanted, program) = wanted.split_once(':').unwrap_or((wanted, ""));
    look(wanted, program)
}

/// Finds an MPI in the container. `wanted` is `auto`, a kind, or the path of a launcher. `auto` prefers an MPI that
/// fits the program.
pub fn look(wanted: &str, program: &str) -> MpiInstallation {
    let needed = needed_library(program);
    let mut launchers: Vec<PathBuf> = Vec::new();
    if wanted.starts_with('/') {
        launchers.push(wanted.into());
    } else {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = env::split_paths(&path).chain(PLACES.iter().map(PathBuf::from)).collect();
        for name in LAUNCHERS {
            launchers.extend(folders.iter().map(|f| f.join(name)));
        }
    }
    let mut best = MpiInstallation { needed: needed.clone(), ..MpiInstallation::default() };
    for launcher in launchers {
        let Some(found) = classify(&launcher, &needed).filter(|f| f.kind.fits(wanted)) else { continue };
        if best.kind == MpiKind::None || found.fits_program() && !best.fits_program() {
            best = found;
        }
    }
    best
}

fn classify(launcher: &Path, needed: &str) -> Option<MpiInstallation> {
    let real = fs::canonicalize(launcher).ok().filter(|p| p.is_file())?;
    let folder = real.parent()?;
    let name = real.file_name()?.to_string_lossy().into_owned();
    let has = |sibling: &str| folder.join(sibling).exists();
    let hydra = if has("hydra_bstrap_proxy") { MpiKind::Intel } else { MpiKind::Mpich };
    let open_mpi = if has("prted") { MpiKind::OpenMpi5 } else { MpiKind::OpenMpi4 };
    let kind = if name == "mpirun_rsh" {
        MpiKind::Mvapich2
    } else if ["orterun", "prterun", "prte"].contains(&name.as_str()) || name.contains("openmpi") {
        open_mpi
    } else if name.contains("hydra") || name.contains("mpich") {
        hydra
    } else if has("prted") || has("orted") {
        open_mpi
    } else if has("hydra_pmi_proxy") {
        hydra
    } else {
        return None;
    };
    // Hydra's own launcher `mpiexec.hydra` is preferred, because the script `mpirun` of an MPI with Hydra may read
    // files of the user's login.
    let sibling = folder.join("mpiexec.hydra");
    let launcher =
        if matches!(kind, MpiKind::Mpich | MpiKind::Intel) && sibling.exists() { sibling } else { launcher.to_owned() };
    let prefix = folder.parent()?.to_owned();
    let library = library(&prefix, kind);
    let text = |p: &Path| p.to_string_lossy().into_owned();
    Some(MpiInstallation { kind, launcher: text(&launcher), prefix: text(&prefix), library, needed: needed.to_owned() })
}

/// Finds the library's file name with its version, such as `libmpi.so.40.30.4`.
fn library(prefix: &Path, kind: MpiKind) -> String {
    let names: &[&str] = if kind.is_open_mpi() { &LIBRARIES[..1] } else { &LIBRARIES[1..] };
    let machine = format!("lib/{}-linux-gnu", env::consts::ARCH);
    let folders = ["lib", "lib64", machine.as_str()];
    let found = folders.iter().flat_map(|folder| names.iter().map(move |name| prefix.join(folder).join(name)));
    found
        .filter_map(|path| fs::canonicalize(path).ok())
        .find_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_default()
}

/// Finds the MPI library with which a program was linked. The result is empty for scripts and for files that cannot be
/// read.
fn needed_library(program: &str) -> String {
    const PROGRAM_MAX: u64 = 64 << 20;
    let path = if program.contains('/') {
        PathBuf::from(program)
    } else {
        let path = env::var_os("PATH").unwrap_or_default();
        match env::split_paths(&path).map(|f| f.join(program)).find(|p| !program.is_empty() && p.is_file()) {
            Some(path) => path,
            None => return String::new(),
        }
    };
    if !fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= PROGRAM_MAX) {
        return String::new();
    }
    let Ok(bytes) = fs::read(&path) else { return String::new() };
    if !bytes.starts_with(b"\x7fELF") {
        return String::new();
    }
    // The string table has the names of libraries, each between two zero bytes.
    let named = |name: &&&str| {
        let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
        bytes.windows(wanted.len()).any(|w| w == wanted)
    };
    LIBRARIES.iter().find(named).map_or_else(String::new, |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn tree(files: &[&str]) -> PathBuf {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = env::temp_dir().join(format!("crossdock-detect-{}-{number}", std::process::id()));
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        root
    }

    #[test]
    fn the_kind_follows_from_what_lies_beside_the_launcher() {
        let cases: [(&[&str], MpiKind); 4] = [
            (&["bin/mpirun", "bin/orted"], MpiKind::OpenMpi4),
            (&["bin/mpirun", "bin/prted"], MpiKind::OpenMpi5),
            (&["bin/mpirun", "bin/hydra_pmi_proxy"], MpiKind::Mpich),
            (&["bin/mpirun", "bin/hydra_pmi_proxy", "bin/hydra_bstrap_proxy", "bin/mpiexec.hydra"], MpiKind::Intel),
        ];
        for (files, kind) in cases {
            let root = tree(files);
            assert_eq!(look(root.join("bin/mpirun").to_str().unwrap(), "").kind, kind, "{files:?}");
            fs::remove_dir_all(root).unwrap();
        }
    }

    #[test]
    fn two_kinds_in_one_folder_are_told_apart_by_name() {
        let root = tree(&["bin/orterun", "bin/orted", "bin/mpiexec.hydra", "bin/hydra_pmi_proxy"]);
        let kind = |name: &str| look(root.join("bin").join(name).to_str().unwrap(), "").kind;
        assert_eq!((kind("orterun"), kind("mpiexec.hydra")), (MpiKind::OpenMpi4, MpiKind::Mpich));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_program_names_the_family_that_it_needs() {
        let root = tree(&["program"]);
        let path = root.join("program");
        fs::write(&path, b"\x7fELF....\0libmpich.so.12\0").unwrap();
        assert_eq!(needed_library(path.to_str().unwrap()), "libmpich.so.12");
        let found =
            MpiInstallation { kind: MpiKind::OpenMpi4, needed: "libmpich.so.12".into(), ..MpiInstallation::default() };
        assert!(!found.fits_program());
        fs::remove_dir_all(&root).unwrap();
    }
}
