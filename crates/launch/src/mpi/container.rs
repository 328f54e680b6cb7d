//! The one container that an MPI job has on each host: its command line for each engine.
//!
//! The container shares the host's network, because launchers connect by address. It has its own process ids and IPC if
//! the engine can do that. All ranks of the host run in it, so shared memory and reading each other's memory work as
//! without containers.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crossdock_os::{file, fs, socket, spawn};
use crossdock_shim::{PLACE, PROGRAM};

use super::job::{Bind, Job};
use super::job_folder::{JobFolder, private_shm};
use super::outline::Outline;
use crate::engine::{ENDPOINT_FOLDER, tool};
use crate::root::Root;
use std::time::Duration;

/// The options by which bubblewrap, podman and docker leave a rank only the capability CAP_SYS_PTRACE. MPI reads the
/// memory of neighbouring ranks on a host, which docker's system call filter allows only with this capability.
const CAPABILITIES: [&str; 4] = ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_PTRACE"];

/// Devices that MPI and solvers use. The container gets the devices of this list that exist on the host.
const DEVICES: [&str; 14] = [
    "/dev/infiniband",
    "/dev/cxi0",
    "/dev/hfi1_0",
    "/dev/ipath",
    "/dev/xpmem",
    "/dev/knem",
    "/dev/gdrdrv",
    "/dev/dri",
    "/dev/kfd",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia0",
    "/dev/nvidia1",
    "/dev/nvidia2",
];

/// Engines that can run the container of an MPI job.
pub const ENGINES: [&str; 6] = ["bubblewrap", "podman", "docker", "charliecloud", "apptainer", "process"];

/// The command that starts the job's container, and the image that must be removed after the job.
pub struct Prepared {
    /// The command that starts the container.
    pub command: Command,
    /// The name of the image that was made for this job, if any.
    pub image: Option<String>,
}

/// Prepares the container of a job on this host.
pub fn prepare(job: &Job, place: &JobFolder) -> Result<Prepared, String> {
    if let Some(root) = &job.root {
        if !root.is_dir() {
            return Err(format!("the root folder {} is not on this host", root.display()));
        }
    }
    let mut binds = binds(job, place)?;
    if let Some(folder) = endpoint(job)? {
        if job.engine == "process" {
            let link = place.endpoint();
            symlink(&folder, &link).map_err(|e| format!("cannot make the link {}: {e}", link.display()))?;
        }
        for mount in &job.endpoint_mounts {
            let link = folder.join(&mount.host);
            let host = link.canonicalize().map_err(|e| format!("the link {}: {e}", link.display()))?;
            binds.push(Bind { host, ..mount.clone() });
        }
        binds.push(Bind { host: folder, inside: ENDPOINT_FOLDER.into(), write: false });
        binds.sort_by_key(|b| b.inside.len());
    }
    let init = |place: &str| vec![format!("{place}/bin/{PROGRAM}"), "init".into(), place.to_owned(), job.mpi.clone()];
    let mut image = None;
    let words = match job.engine.as_str() {
        "process" => init(&place.inside().to_string_lossy()),
        "bubblewrap" => [bubblewrap(job, place, &binds)?, init(PLACE)].concat(),
        "charliecloud" => [charliecloud(job, place, &binds)?, init(PLACE)].concat(),
        "apptainer" => [apptainer(job, place, &binds)?, init(PLACE)].concat(),
        "podman" => [podman(job, place, &binds)?, init(PLACE)[1..].to_vec()].concat(),
        "docker" => {
            let (words, made) = docker(job, place, &binds)?;
            image = made;
            [words, init(PLACE)[1..].to_vec()].concat()
        }
        other => return Err(format!("there is no engine `{other}`")),
    };
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    if matches!(job.engine.as_str(), "process" | "bubblewrap" | "charliecloud" | "apptainer") {
        command.env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
    }
    if job.engine == "apptainer" {
        command.envs(job.environment.iter().map(|(n, v)| (format!("APPTAINERENV_{n}"), v)));
    } else if !matches!(job.engine.as_str(), "podman" | "docker") {
        command.envs(job.environment.iter().map(|(n, v)| (n, v)));
    }
    Ok(Prepared { command, image })
}

/// Finds the folder with the job's endpoint on this host: the first folder whose socket accepts a connection. The
/// socket in a folder of another host accepts no connection, because no daemon of this host serves it.
fn endpoint(job: &Job) -> Result<Option<PathBuf>, String> {
    let serves = |folder: &&PathBuf| socket::connect(&folder.join("endpoint.sock")).is_ok();
    match job.endpoints.iter().find(serves) {
        Some(folder) => Ok(Some(folder.clone())),
        None if job.endpoints.is_empty() => Ok(None),
        None => Err("no daemon of this host serves the run's endpoint of the job".into()),
    }
}

/// Removes what podman or docker still has of a job on this host: the container with its processes, and the image
/// `image`, which was made for the job.
pub fn remove(job: &Job, image: Option<&str>) {
    let second = Duration::from_secs(20);
    match job.engine.as_str() {
        "podman" => {
            tool::run(&["podman", "rm", "--force", "--ignore", "--time", "0", &job.container()], second);
            let folder = JobFolder::of(&job.id).folder;
            if spawn::user_and_group().0 != 0 && folder.exists() {
                // If podman runs without root, the files that it made in these folders belong to another user id. Only
                // `podman unshare` may remove such files.
                let [root, tmp] = ["root", "tmp"].map(|name| folder.join(name).to_string_lossy().into_owned());
                tool::run(&["podman", "unshare", "rm", "-rf", &root, &tmp], second);
            }
        }
        "docker" => {
            tool::run(&["docker", "rm", "--force", &job.container()], second);
            if let Some(image) = image {
                tool::run(&["docker", "rmi", "--force", image], second);
            }
        }
        _ => {}
    }
}

/// Gives the name of the image into which docker imports a job's root folder.
pub fn image_name(job: &Job) -> String {
    format!("{}:outline", job.container().to_lowercase())
}

/// Lists what is bound into the container besides the root: the folder of the job's keeper, the host's files for name
/// lookup, the list of users, and the job's mounts.
fn binds(job: &Job, place: &JobFolder) -> Result<Vec<Bind>, String> {
    let mut binds = vec![Bind { host: place.inside(), inside: PLACE.into(), write: true }];
    let mut read = |host: &Path, inside: &str| {
        if host.exists() {
            binds.push(Bind { host: host.to_owned(), inside: inside.into(), write: false });
        }
    };
    for file in ["/etc/hosts", "/etc/resolv.conf"] {
        read(Path::new(file), file);
    }
    if let Some(root) = &job.root {
        for file in users(job, place, root)? {
            let inside = format!("/etc/{}", file.file_name().unwrap_or_default().to_string_lossy());
            read(&file, &inside);
        }
        // Some launchers have the path `/usr/bin/ssh` compiled in (MVAPICH 2's mpirun_rsh). So crossdock's shim, which
        // acts as ssh, is bound at this path.
        let inside = Root(Some(root.as_path()));
        let ssh = inside.real(Path::new("/usr/bin/ssh")).ok().and_then(|real| inside.on_host(&real));
        if ssh.is_some_and(|ssh| ssh.is_file()) {
            read(&place.inside().join("bin").join(PROGRAM), "/usr/bin/ssh");
        }
    }
    for mount in &job.mounts {
        if !mount.host.exists() {
            return Err(format!("{} is to be mounted and is not on this host", mount.host.display()));
        }
        binds.push(mount.clone());
    }
    binds.sort_by_key(|b| b.inside.len());
    Ok(binds)
}

/// Copies the files `passwd` and `group` of the container's root folder, and adds this user or the user's group to each
/// copy. Copies no file that has this entry already.
fn users(job: &Job, place: &JobFolder, root: &Path) -> Result<Vec<PathBuf>, String> {
    let (uid, gid) = spawn::user_and_group();
    let variable = |name: &str| job.environment.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let user = variable("USER").unwrap_or("user");
    let home = variable("HOME").unwrap_or("/");
    let mut made = Vec::new();
    for (name, id, line) in [
        ("passwd", uid, format!("{user}:x:{uid}:{gid}::{home}:/bin/sh\n")),
        ("group", gid, format!("{user}:x:{gid}:\n")),
    ] {
        // A link of the root leads to a file of the root, as in the container, and never to one of the host.
        let list = file::open_in_root(root, &Path::new("etc").join(name)).ok().flatten();
        let mut text = list.and_then(|list| std::io::read_to_string(fs::File::from(list)).ok()).unwrap_or_default();
        if text.lines().any(|l| l.split(':').nth(2) == Some(&id.to_string())) {
            continue;
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&line);
        let path = place.folder.join(name);
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        made.push(path);
    }
    Ok(made)
}

fn outline(job: &Job, place: &JobFolder, binds: &[Bind]) -> Result<Outline, String> {
    let point = |b: &Bind| if b.host.is_dir() { format!("{}/", b.inside) } else { b.inside.clone() };
    let mut points: Vec<String> = binds.iter().map(point).collect();
    // podman and docker bind `/etc/hostname`, `/etc/hosts` and `/etc/resolv.conf` themselves. So the outline (the small
    // folder over which the folders of the root are bound) only needs mount points for these files.
    points.extend(["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"].map(str::to_owned));
    points.sort();
    points.dedup();
    Outline::make(job.root.as_deref(), &place.folder.join("root"), &points)
}

fn devices() -> Vec<&'static str> {
    DEVICES.into_iter().filter(|d| Path::new(d).exists()).collect()
}

fn no_image(job: &Job) -> Result<(), String> {
    match &job.image {
        Some(image) => Err(format!(
            "{} runs root folders, and `{image}` is an image; unpack it, or choose podman or docker",
            job.engine
        )),
        None => Ok(()),
    }
}

fn bubblewrap(job: &Job, place: &JobFolder, binds: &[Bind]) -> Result<Vec<String>, String> {
    no_image(job)?;
    let outline = outline(job, place, binds)?;
    let mut words: Vec<String> = Vec::new();
    let mut add = |list: &[&str]| words.extend(list.iter().map(|w| (*w).to_owned()));
    add(&["bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try", "--die-with-parent", "--new-session"]);
    add(&["--as-pid-1"]);
    if spawn::user_and_group().0 == 0 {
        // With all capabilities, a rank that root starts could mount the host's read-only folders anew for writing. So
        // ranks get only the capabilities in this list.
        add(&CAPABILITIES);
    } else {
        add(&["--unshare-user"]);
    }
    for folder in outline.folders() {
        add(&["--dir", &folder]);
    }
    add(&["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run", "--ro-bind", "/sys", "/sys"]);
    if let Some(bytes) = job.shm {
        add(&["--size", &bytes.to_string()]);
    }
    add(&["--tmpfs", "/dev/shm"]);
    for device in devices() {
        add(&["--dev-bind", device, device]);
    }
    for (at, target) in &outline.links {
        add(&["--symlink", target, at]);
    }
    for (from, to) in &outline.binds {
        add(&["--ro-bind", &from.to_string_lossy(), to]);
    }
    for b in binds {
        add(&[if b.write { "--bind" } else { "--ro-bind" }, &b.host.to_string_lossy(), &b.inside]);
    }
    add(&["--remount-ro", "/", "--chdir", "/", "--"]);
    Ok(words)
}

fn charliecloud(job: &Job, place: &JobFolder, binds: &[Bind]) -> Result<Vec<String>, String> {
    no_image(job)?;
    let shm = private_shm(&place.folder);
    let run = place.folder.join("run");
    let mut runs = vec![shm.clone(), run.join("crossdock-mpi")];
    runs.extend(binds.iter().filter_map(|b| Some(run.join(b.inside.strip_prefix("/run/")?))));
    for folder in &runs {
        fs::create_dir_all(folder).map_err(|e| format!("cannot make the folder {}: {e}", folder.display()))?;
    }
    let outline = outline(job, place, binds)?;
    let mut words: Vec<String> = ["ch-run", "--no-passwd", "--private-tmp"].map(str::to_owned).to_vec();
    let mut bind = |from: &Path, to: &str| words.extend(["-b".to_owned(), format!("{}:{to}", from.display())]);
    for (from, to) in &outline.binds {
        bind(from, to);
    }
    bind(&run, "/run");
    // ch-run mounts the host's `/dev`. Only `/dev/shm` in it is the job's own, so that the job leaves nothing in the
    // host's shared memory.
    bind(&shm, "/dev/shm");
    // ch-run has already bound the host's `/etc/hosts` and `/etc/resolv.conf`, but the mounts of the root's `/etc` hide
    // these two files. So they are bound again, together with all other files.
    for b in binds {
        bind(&b.host, &b.inside);
    }
    words.extend(["--cd".to_owned(), "/".to_owned(), outline.folder.to_string_lossy().into_owned(), "--".to_owned()]);
    Ok(words)
}

fn apptainer(job: &Job, place: &JobFolder, binds: &[Bind]) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |list: &[&str]| words.extend(list.iter().map(|w| (*w).to_owned()));
    add(&["apptainer", "--quiet", "exec", "--cleanenv", "--no-home", "--no-eval", "--pid", "--ipc", "--pwd", "/"]);
    let shm = private_shm(&place.folder);
    fs::create_dir_all(&shm).map_err(|e| format!("cannot make the folder {}: {e}", shm.display()))?;
    let plain = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:").replace(',', "\\,");
    add(&["--bind", &format!("{}:/dev/shm:rw", plain(&shm.to_string_lossy()))]);
    if Path::new("/dev/nvidiactl").exists() {
        add(&["--nv"]);
    }
    let target = match (&job.image, &job.root) {
        (Some(image), _) => image.clone(),
        (None, _) => {
            let outline = outline(job, place, binds)?;
            for (from, to) in &outline.binds {
                add(&["--bind", &format!("{}:{}:ro", plain(&from.to_string_lossy()), plain(to))]);
            }
            outline.folder.to_string_lossy().into_owned()
        }
    };
    for b in binds {
        let access = if b.write { "rw" } else { "ro" };
        add(&["--bind", &format!("{}:{}:{access}", plain(&b.host.to_string_lossy()), plain(&b.inside))]);
    }
    add(&[&target]);
    Ok(words)
}

/// Gives the beginning of a `podman run` or `docker run` command: the engine's program (`program`), `run` and all
/// options. The caller adds the image and the command.
fn run_words(job: &Job, program: &[&str], binds: &[Bind], outline: Option<&Outline>) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |list: &[&str]| words.extend(list.iter().map(|w| (*w).to_owned()));
    add(program);
    add(&["run", "--rm", "--name", &job.container(), "--label", &format!("crossdock.mpi={}", job.id)]);
    add(&["--network", "host", "--ipc", "private", "--read-only", "--security-opt", "no-new-privileges"]);
    add(&["--tmpfs", "/run:exec,mode=755"]);
    if !binds.iter().any(|b| b.inside == "/tmp") {
        add(&["--tmpfs", "/tmp:exec,mode=1777"]);
    }
    add(&CAPABILITIES);
    // By default, the job's `/dev/shm` is half as large as the memory, like the kernel's own `/dev/shm`. An engine's
    // default of 64 MB is too little for any MPI.
    let shm = job.shm.unwrap_or_else(|| crossdock_os::process::total_memory() / 2);
    add(&["--shm-size", &shm.to_string()]);
    for device in devices() {
        add(&["--device", device]);
    }
    let roots = outline.iter().flat_map(|o| o.binds.iter().map(|(from, to)| (from.as_path(), to.as_str(), false)));
    for (from, to, write) in roots.chain(binds.iter().map(|b| (b.host.as_path(), b.inside.as_str(), b.write))) {
        add(&["--mount", &mount(from, to, write)]);
    }
    for (name, value) in &job.environment {
        add(&["--env", &format!("{name}={value}")]);
    }
    add(&["--entrypoint", &format!("{PLACE}/bin/{PROGRAM}")]);
    words
}

/// Writes one value of `--mount`. A field with a comma or a quote is quoted as in CSV.
fn mount(from: &Path, to: &str, write: bool) -> String {
    let field = |name: &str, value: &str| {
        let text = format!("{name}={value}");
        if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
    };
    let access = if write { "" } else { ",readonly" };
    format!("type=bind,{},{}{access}", field("source", &from.to_string_lossy()), field("target", to))
}

/// Gives the container the resource limits of this process. An engine's own default may be lower, or it may be higher
/// than this process is allowed to set.
fn limits() -> Vec<String> {
    let limit = |(name, most): (&str, Option<u64>)| {
        let value = most.map_or("-1".to_owned(), |n| n.min(1 << 20).to_string());
        let value = if name == "memlock" { most.map_or("-1".to_owned(), |n| n.to_string()) } else { value };
        ["--ulimit".to_owned(), format!("{name}={value}:{value}")]
    };
    spawn::hard_limits().into_iter().flat_map(limit).collect()
}

fn podman(job: &Job, place: &JobFolder, binds: &[Bind]) -> Result<Vec<String>, String> {
    let rootless = spawn::user_and_group().0 != 0;
    let runc = ["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/bin/runc"].iter().any(|p| Path::new(p).exists());
    // On a host with a hybrid cgroup mount, the runtime crun fails, so podman gets the runtime runc if it is installed.
    let hybrid = Path::new("/sys/fs/cgroup/unified").exists();
    let program: &[&str] = if runc && hybrid { &["podman", "--runtime", "runc"] } else { &["podman"] };
    let mut binds = binds.to_vec();
    if rootless {
        // A tmpfs of rootless podman belongs to another user id, so this user could not write to it. A folder of the
        // job takes its place.
        let tmp = place.folder.join("tmp");
        fs::create_dir_all(&tmp).map_err(|e| format!("cannot make the folder {}: {e}", tmp.display()))?;
        binds.insert(0, Bind { host: tmp, inside: "/tmp".into(), write: true });
    }
    let outline = if job.image.is_some() { None } else { Some(outline(job, place, &binds)?) };
    let mut words = run_words(job, program, &binds, outline.as_ref());
    words.extend(["--no-hosts", "--log-driver", "none"].map(str::to_owned));
    if rootless {
        words.extend(["--userns".to_owned(), "keep-id".to_owned()]);
    } else {
        words.extend(limits());
    }
    match (&outline, &job.image) {
        (Some(outline), _) => words.extend(["--rootfs".to_owned(), outline.folder.to_string_lossy().into_owned()]),
        (None, image) => words.extend(["--pull".into(), "never".into(), image.clone().unwrap_or_default()]),
    }
    Ok(words)
}

fn docker(job: &Job, place: &JobFolder, binds: &[Bind]) -> Result<(Vec<String>, Option<String>), String> {
    let (uid, gid) = spawn::user_and_group();
    let outline = if job.image.is_some() { None } else { Some(outline(job, place, binds)?) };
    let mut words = run_words(job, &["docker"], binds, outline.as_ref());
    words.extend(["--log-driver", "none", "--pull", "never", "--user"].map(str::to_owned));
    words.push(format!("{uid}:{gid}"));
    for group in spawn::groups().into_iter().skip(1) {
        words.extend(["--group-add".to_owned(), group.to_string()]);
    }
    words.extend(limits());
    let made = match &outline {
        Some(outline) => {
            let image = image_name(job);
            import(&outline.folder, &image)?;
            Some(image)
        }
        None => None,
    };
    words.push(made.clone().or_else(|| job.image.clone()).unwrap_or_default());
    Ok((words, made))
}

/// Imports the folder into docker as the image `image`.
fn import(folder: &Path, image: &str) -> Result<(), String> {
    let archive = folder.with_extension("tar");
    let file = archive.to_string_lossy().into_owned();
    let folder = folder.to_string_lossy().into_owned();
    let patience = Duration::from_secs(60);
    let tar =
        tool::run(&["tar", "--numeric-owner", "--owner=0", "--group=0", "-cf", &file, "-C", &folder, "."], patience);
    if !tar.good {
        return Err(format!("`tar` failed: {}", tool::last_line(&tar.words)));
    }
    let outcome = tool::run(&["docker", "import", &file, image], patience);
    let _ = fs::remove_file(&archive);
    if outcome.good { Ok(()) } else { Err(format!("`docker import` failed: {}", tool::last_line(&outcome.words))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_users_come_from_the_root_folder_and_never_from_the_host_behind_a_link() {
        let base = tempfile::tempdir().unwrap();
        let (root, secret) = (base.path().join("root"), base.path().join("secret"));
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::write(&secret, "secret:x:4242:\n").unwrap();
        fs::write(root.join("usr/lib/group"), "inside:x:4242:\n").unwrap();
        symlink(&secret, root.join("etc/passwd")).unwrap();
        symlink("/usr/lib/group", root.join("etc/group")).unwrap();
        let job = Job {
            id: "users".into(),
            engine: "bubblewrap".into(),
            root: Some(root.clone()),
            image: None,
            mounts: Vec::new(),
            endpoints: Vec::new(),
            endpoint_mounts: Vec::new(),
            environment: Vec::new(),
            workdir: "/".into(),
            shm: None,
            ranks: 1,
            mpi: "auto:true".into(),
            expected: None,
            ssh: vec!["ssh".into()],
            starter: "crossdock".into(),
            patience_s: 1,
        };
        let place = JobFolder { folder: base.path().to_owned() };
        users(&job, &place, &root).unwrap();
        assert!(!fs::read_to_string(base.path().join("passwd")).unwrap().contains("secret"));
        assert!(fs::read_to_string(base.path().join("group")).unwrap().starts_with("inside:x:4242:\n"));
    }
}
