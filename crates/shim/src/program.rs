//! Examines a program's file: how it is linked, and which of its system calls do not go through the C library.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A door: a mechanism by which a program's opens wait for files of managed directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Door {
    /// The preload library, whose functions the program calls instead of those of the C library.
    Preload,
    /// Seccomp user notification: the kernel stops the program's calls.
    Notification,
}

/// How a program is linked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Linkage {
    /// The program is started by the dynamic loader.
    Dynamic {
        /// The path of the dynamic loader.
        loader: String,
        /// The names of the libraries that it needs.
        libraries: Vec<String>,
    },
    /// The program has no dynamic loader.
    Static,
    /// The program is for another instruction set than this machine's main one, or it is a 32-bit program.
    Foreign(String),
    /// The file is not a program that the kernel can start.
    Unknown,
}

/// What a program's file shows about the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramInfo {
    /// The path of the file. For a script it is the interpreter's file.
    pub path: PathBuf,
    /// The scripts through which the program was found. The first one is the script that the command names.
    pub scripts: Vec<PathBuf>,
    /// How the program is linked.
    pub kind: Linkage,
    /// True for a program with Go's runtime. This runtime makes system calls without the C library, even if the program
    /// has a dynamic loader.
    pub is_go: bool,
    /// True if the file has the setuid or setgid bit.
    pub is_setuid: bool,
    /// True if the file names a function or library of io_uring.
    pub names_io_uring: bool,
    /// How many places in the program's own code look like a system call. Data that has the same bytes is counted as
    /// well.
    pub own_calls: usize,
}

impl ProgramInfo {
    /// Chooses the door for the program; `None` if neither of the two doors works for this program.
    #[must_use]
    pub fn door(&self) -> Option<Door> {
        match &self.kind {
            Linkage::Dynamic { .. } if !self.is_go && !self.is_musl() && !self.has_address_sanitizer() => {
                Some(Door::Preload)
            }
            Linkage::Dynamic { .. } | Linkage::Static => Some(Door::Notification),
            Linkage::Foreign(_) | Linkage::Unknown => None,
        }
    }

    /// Tells whether musl's loader starts the program. The preload library needs libraries of glibc, so musl's loader
    /// would not start a program with the preload library.
    #[must_use]
    pub fn is_musl(&self) -> bool {
        matches!(&self.kind, Linkage::Dynamic { loader, .. } if loader.contains("/ld-musl-"))
    }

    /// Tells whether the program needs the library of AddressSanitizer. This library ends the program at its start if
    /// another library, such as the preload library, comes before it.
    #[must_use]
    pub fn has_address_sanitizer(&self) -> bool {
        let Linkage::Dynamic { libraries, .. } = &self.kind else { return false };
        libraries.iter().any(|name| name.starts_with("libasan.") || name.starts_with("libclang_rt.asan"))
    }
}

/// Examines the program that is started by a command with the first word `word`, in the file system at `root`.
///
/// # Errors
/// There is no such program, or it cannot be read. The error names the program.
pub fn look(root: &Path, workdir: &str, path: &str, word: &str) -> Result<ProgramInfo, String> {
    let mut file = find(root, workdir, path, word)?;
    let mut scripts = Vec::new();
    loop {
        let name = in_root(root, &file);
        let bytes = File::open(&file).map_err(|e| format!("{}: {e}", name.display()))?;
        let mut begin = [0; 256];
        let length = bytes.read_at(&mut begin, 0).map_err(|e| format!("{}: {e}", name.display()))?;
        let begin = &begin[..length];
        if let (Some(line), true) = (begin.strip_prefix(b"#!"), scripts.len() < 5) {
            let line = String::from_utf8_lossy(line.split(|b| *b == b'\n').next().unwrap_or(line)).into_owned();
            let mut words = line.split_ascii_whitespace();
            let interpreter = words.next().unwrap_or_default();
            // `#!/usr/bin/env python3` means that `env` searches for the interpreter on PATH.
            let wanted = match words.find(|w| !w.starts_with('-') && !w.contains('=')) {
                Some(program) if interpreter.ends_with("/env") => program,
                _ => interpreter,
            };
            scripts.push(name.clone());
            file = find(root, "/", path, wanted)
                .map_err(|e| format!("{} is a script of an interpreter that is not there: {e}", name.display()))?;
            continue;
        }
        let meta = bytes.metadata().map_err(|e| format!("{}: {e}", name.display()))?;
        let mut seen = ProgramInfo {
            path: name,
            scripts,
            kind: Linkage::Unknown,
            is_go: false,
            is_setuid: meta.mode() & 0o6000 != 0,
            names_io_uring: false,
            own_calls: 0,
        };
        Elf { file: &bytes, size: meta.len() }.look(begin, &mut seen);
        return Ok(seen);
    }
}

/// Finds the file of a command's first word as `execvp` does. Links are followed inside the root folder.
fn find(root: &Path, workdir: &str, path: &str, word: &str) -> Result<PathBuf, String> {
    let is_program = |p: &PathBuf| fs::metadata(p).is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0);
    if word.contains('/') {
        let named = Path::new(workdir).join(word);
        return resolve(root, &named).filter(is_program).ok_or_else(|| format!("{word} is no program there"));
    }
    let mut folders = path.split(':').filter(|f| !f.is_empty());
    let found = folders.find_map(|folder| resolve(root, &Path::new(folder).join(word)).filter(is_program));
    found.ok_or_else(|| format!("{word} is in no folder of PATH ({path})"))
}

/// Converts a path inside a root folder into a path of this file system. An absolute link is followed from the root
/// folder.
fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    if root == Path::new("/") {
        return path.canonicalize().ok();
    }
    let mut left: Vec<std::ffi::OsString> = path.iter().rev().map(Into::into).collect();
    let mut at = root.to_owned();
    let mut links = 0;
    while let Some(part) = left.pop() {
        match part.to_str() {
            Some("/") => at = root.to_owned(),
            Some(".") => {}
            Some("..") if at != root => drop(at.pop()),
            Some("..") => {}
            _ => {
                let next = at.join(&part);
                match fs::read_link(&next) {
                    Ok(target) => {
                        links += 1;
                        if links > 40 {
                            return None;
                        }
                        left.extend(target.iter().rev().map(std::ffi::OsString::from));
                    }
                    Err(_) => at = next,
                }
            }
        }
    }
    at.exists().then_some(at)
}

/// Removes the root folder from the beginning of a path. The result is the path in the program's own file system.
fn in_root(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).map_or_else(|_| path.to_owned(), |rest| Path::new("/").join(rest))
}

/// A program in the executable and linkable format (ELF), with 64 bits and little-endian. All numbers come from the
/// file, and are checked before they are used.
struct Elf<'f> {
    file: &'f File,
    size: u64,
}

/// The most bytes of code that are searched in a program, and the greatest size of a table in its file.
const CODE_MAX: u64 = 512 << 20;
const TABLE_MAX: u64 = 16 << 20;
/// The greatest size of the table of segments. The kernel starts no program with a larger table.
const SEGMENTS_MAX: u64 = 64 << 10;
/// The largest number of libraries that are read from a program's file, and the most bytes of a library's name. Without
/// these limits, a file that names one long text very often would need much memory.
const LIBRARIES_MAX: usize = 1024;
const NAME_MAX: usize = 4096;
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
/// The bytes of the instruction for a system call: `syscall` on x86-64, and `svc #0` on AArch64.
#[cfg(target_arch = "x86_64")]
const CALL: &[u8] = &[0x0f, 0x05];
#[cfg(target_arch = "aarch64")]
const CALL: &[u8] = &[0x01, 0x00, 0x00, 0xd4];

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut whole = [0; 8];
    whole[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(whole))
}

impl Elf<'_> {
    fn part(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        if length > TABLE_MAX || offset.checked_add(length)? > self.size {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    fn look(&self, begin: &[u8], seen: &mut ProgramInfo) {
        if !begin.starts_with(b"\x7fELF") {
            return;
        }
        if begin.get(4..6) != Some(&[2, 1]) {
            seen.kind = Linkage::Foreign("it is of 32 bits or big-endian".into());
            return;
        }
        let machine = number::<2>(begin, 18).unwrap_or(0);
        if machine != u64::from(MACHINE) {
            seen.kind = Linkage::Foreign(format!("it is for another processor (ELF machine {machine})"));
            return;
        }
        // If the file is truncated, `seen` keeps what was found so far.
        let _ = self.segments(begin, seen);
    }

    fn segments(&self, begin: &[u8], seen: &mut ProgramInfo) -> Option<()> {
        let (at, size, count) = (number::<8>(begin, 32)?, number::<2>(begin, 54)?, number::<2>(begin, 56)?);
        if size < 56 || size * count > SEGMENTS_MAX {
            return None;
        }
        let table = self.part(at, size * count)?;
        let mut loader = None;
        let mut dynamic = None;
        let mut loads = Vec::new();
        // In a correct program, segments do not overlap, so their code is not larger than the file. In a wrong program,
        // the search ends after as many bytes as the file has.
        let mut code = CODE_MAX.min(self.size);
        for header in table.chunks_exact(usize::try_from(size).ok()?) {
            let (kind, flags) = (number::<4>(header, 0)?, number::<4>(header, 4)?);
            let (offset, address, bytes) =
                (number::<8>(header, 8)?, number::<8>(header, 16)?, number::<8>(header, 32)?);
            match kind {
                1 => {
                    loads.push((offset, address, bytes));
                    if flags & 1 != 0 {
                        seen.own_calls += self.count_calls(offset, bytes.min(code));
                        code -= bytes.min(code);
                    }
                }
                2 => dynamic = Some((offset, bytes)),
                3 => {
                    let text = self.part(offset, bytes.min(4096))?;
                    loader = Some(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned());
                }
                // The note that Go's linker writes: its name is `Go`, and its type is 4 (the number of the build).
                4 => seen.is_go |= self.part(offset, bytes.min(65_536)).is_some_and(|n| has(&n, b"\x04\0\0\0Go\0\0")),
                _ => {}
            }
        }
        let texts = dynamic.and_then(|place| self.dynamic_texts(place, &loads)).unwrap_or_default();
        seen.names_io_uring = texts.1 || texts.0.iter().any(|l| l.starts_with("liburing"));
        seen.kind = match loader {
            Some(loader) => Linkage::Dynamic { loader, libraries: texts.0 },
            None => Linkage::Static,
        };
        Some(())
    }

    /// Finds the libraries that the program needs, and whether a name of io_uring is among its symbols.
    fn dynamic_texts(&self, (offset, bytes): (u64, u64), loads: &[(u64, u64, u64)]) -> Option<(Vec<String>, bool)> {
        let table = self.part(offset, bytes)?;
        let entries: Vec<(u64, u64)> =
            table.chunks_exact(16).filter_map(|e| Some((number::<8>(e, 0)?, number::<8>(e, 8)?))).collect();
        let value = |tag| entries.iter().find(|(t, _)| *t == tag).map(|(_, v)| *v);
        let (address, length) = (value(5)?, value(10)?);
        let (from, start, _) = loads.iter().find(|(_, a, n)| (*a..a.saturating_add(*n)).contains(&address))?;
        let texts = self.part(from.checked_add(address - start)?, length)?;
        let text = |at: u64| {
            let rest = texts.get(usize::try_from(at).ok()?..)?;
            let end = rest.iter().take(NAME_MAX).position(|b| *b == 0)?;
            Some(String::from_utf8_lossy(&rest[..end]).into_owned())
        };
        let needed = entries.iter().filter(|(tag, _)| *tag == 1).take(LIBRARIES_MAX);
        let libraries = needed.filter_map(|(_, at)| text(*at)).collect();
        Some((libraries, has(&texts, b"io_uring")))
    }

    fn count_calls(&self, offset: u64, bytes: u64) -> usize {
        let end = offset.saturating_add(bytes).min(self.size);
        let (mut at, mut found) = (offset, 0);
        let mut buffer = vec![0; 1 << 20];
        while at.saturating_add(CALL.len() as u64) <= end {
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let Ok(length) = self.file.read_at(&mut buffer[..wanted], at) else { return found };
            if length < CALL.len() {
                return found;
            }
            found += buffer[..length].windows(CALL.len()).filter(|w| *w == CALL).count();
            // The code is read in pieces that overlap, because an instruction may lie across the border of two pieces.
            at += (length + 1 - CALL.len()) as u64;
        }
        found
    }
}

/// The fuzzer's entry for programs: examines a file that has any bytes. The result must be small, and must not count
/// more calls than fit into the file.
pub(crate) fn fuzz_program(file: &File) {
    let size = file.metadata().map_or(0, |meta| meta.len());
    let mut begin = [0; 256];
    let length = file.read_at(&mut begin, 0).unwrap_or(0);
    let mut seen = ProgramInfo {
        path: PathBuf::new(),
        scripts: Vec::new(),
        kind: Linkage::Unknown,
        is_go: false,
        is_setuid: false,
        names_io_uring: false,
        own_calls: 0,
    };
    Elf { file, size }.look(&begin[..length], &mut seen);
    assert!(seen.own_calls as u64 <= size, "{seen:?}");
    if let Linkage::Dynamic { loader, libraries } = &seen.kind {
        assert!(loader.len() <= 3 * NAME_MAX && libraries.len() <= LIBRARIES_MAX, "{seen:?}");
        assert!(libraries.iter().all(|name| name.len() <= 3 * NAME_MAX), "{seen:?}");
    }
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|w| w == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/usr/bin:/bin";

    #[test]
    fn a_shell_is_dynamic_and_a_script_is_its_interpreter() {
        let shell = look(Path::new("/"), "/", PATH, "sh").unwrap();
        assert!(matches!(&shell.kind, Linkage::Dynamic { loader, .. } if loader.contains("ld-")), "{shell:?}");
        assert_eq!(shell.door(), Some(Door::Preload));
        let folder = std::env::temp_dir().join(format!("crossdock-program-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let script = folder.join("script");
        fs::write(&script, "#!/usr/bin/env -S sh -e\n").unwrap();
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let seen = look(Path::new("/"), folder.to_str().unwrap(), PATH, "./script").unwrap();
        assert_eq!((&seen.path, &seen.scripts[..]), (&shell.path, &[script.canonicalize().unwrap()][..]));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_program_of_musl_of_go_or_with_address_sanitizer_waits_by_stopped_calls() {
        let path = std::env::temp_dir().join(format!("crossdock-musl-{}", std::process::id()));
        let mut bytes = fs::read("/bin/true").unwrap();
        let shell = look(Path::new("/"), "/", PATH, "true").unwrap();
        let Linkage::Dynamic { loader, .. } = &shell.kind else { panic!("{shell:?}") };
        let at = bytes.windows(loader.len()).position(|w| w == loader.as_bytes()).unwrap();
        let musl = "/lib/ld-musl-x86_64.so.1";
        let room = &mut bytes[at..at + loader.len()];
        room.fill(0);
        room[..musl.len()].copy_from_slice(musl.as_bytes());
        fs::write(&path, &bytes).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let seen = look(Path::new("/"), "/", PATH, path.to_str().unwrap()).unwrap();
        assert!(seen.is_musl() && !shell.is_musl(), "{seen:?}");
        assert_eq!(seen.door(), Some(Door::Notification));
        assert_eq!(ProgramInfo { is_go: true, ..shell.clone() }.door(), Some(Door::Notification));
        for (library, door) in [("libasan.so.8", Door::Notification), ("libasan_tools.so", Door::Preload)] {
            let kind = Linkage::Dynamic { loader: loader.clone(), libraries: vec!["libc.so.6".into(), library.into()] };
            assert_eq!(ProgramInfo { kind, ..shell.clone() }.door(), Some(door), "{library}");
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn links_of_a_root_folder_count_from_it() {
        let root = std::env::temp_dir().join(format!("crossdock-root-{}", std::process::id()));
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        std::os::unix::fs::symlink("/usr/bin", root.join("bin")).unwrap();
        std::os::unix::fs::symlink("../../usr/bin/tool-1", root.join("usr/bin/tool")).unwrap();
        fs::copy("/bin/true", root.join("usr/bin/tool-1")).unwrap();
        let seen = look(&root, "/", "/bin", "tool").unwrap();
        assert_eq!(seen.path, Path::new("/usr/bin/tool-1"));
        assert!(look(&root, "/", "/bin", "other").unwrap_err().contains("other is in no folder of PATH (/bin)"));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_file_that_breaks_off_or_lies_is_no_program_and_no_trap() {
        let path = std::env::temp_dir().join(format!("crossdock-elf-{}", std::process::id()));
        let whole = fs::read("/bin/true").unwrap();
        for at in [5, 40, 63, 64, 200, 1000] {
            let mut bytes = whole[..at.min(whole.len())].to_vec();
            if at > 64 {
                // The table's offset and count point beyond the end of every file.
                bytes[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
            }
            fs::write(&path, &bytes).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            let seen = look(Path::new("/"), "/", PATH, path.to_str().unwrap()).unwrap();
            assert!(seen.door().is_none(), "{at}: {seen:?}");
        }
        fs::remove_file(&path).unwrap();
    }
}
