//! Tests the command lines of every engine against golden texts. Engines are started only for trials.
//!
//! `UPDATE=1 cargo test -p crossdock-launch --test engines` writes the golden texts again.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crossdock_launch::engine::{self, Request, RunContext};
use crossdock_launch::file::{Files, Mount, Task, User};

/// Makes a task with every setting that changes the engine's command line.
fn task(folder: &Path, files: Files) -> Task {
    let mut task = Task::example(["python3", "a b.py", "it's", "$HOME", ""].map(str::to_owned).to_vec());
    task.name = "simulate".into();
    task.folder = folder.to_owned();
    task.files = files;
    task.mounts = vec![
        Mount { host: folder.join("data, old"), task: "/data/in".into(), write: false, link: None },
        Mount { host: folder.join("out"), task: "/out".into(), write: true, link: None },
    ];
    task.workdir = Some("/out/here".into());
    task.ranks = 2;
    task.memory = Some(1 << 30);
    task.user = User::Ids(0, 0);
    task
}

fn root(folder: &Path) -> PathBuf {
    let root = folder.join("root");
    for inside in ["usr/bin", "etc", "data", "opt/tool", "proc", "dev", "empty", "data, old", "out/here"] {
        let base = if inside.starts_with("data, old") || inside.starts_with("out") { folder } else { &root };
        fs::create_dir_all(base.join(inside)).unwrap();
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
    fs::write(root.join("note.txt"), "top-level file").unwrap();
    symlink("usr/bin", root.join("bin")).unwrap();
    root
}

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands").join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name}; run with UPDATE=1 if this is as it should be");
}

#[test]
fn command_lines_are_as_reviewed() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let root = root(folder);
    let run = RunContext { id: "r1".into(), folder: folder.join("run"), uid: 1000, gid: 1000 };
    for engine in engine::all() {
        for (kind, files) in [("root", Files::Root(root.clone())), ("image", Files::Image("debian:12".into()))] {
            let mut task = task(folder, files);
            task.process.environment = vec![("EXTRA".into(), "1".into())];
            if engine.accepts(&task).is_err() {
                continue;
            }
            // `prepare` is not called, because it would import an image for docker and search for images. Tests with
            // real runs call it.
            let prepared = match task.files {
                Files::Image(_) => engine::Prepared { skeleton: None, image: Some("debian:12".into()) },
                _ => {
                    let at = run.folder.join("roots/simulate");
                    let _ = fs::remove_dir_all(&at);
                    let skeleton = engine::Skeleton::make(&task, &at, engine.name() == "bubblewrap").unwrap();
                    let image = (engine.name() == "docker").then(|| "crossdock-r1:tsimulate".to_owned());
                    engine::Prepared { skeleton: Some(skeleton), image }
                }
            };
            let environment =
                [("PATH", engine::PATH), ("CROSSDOCK_SOCKET", "/run/crossdock/endpoint.sock"), ("GREETING", "a, b")]
                    .map(|(n, v)| (n.to_owned(), v.to_owned()))
                    .to_vec();
            let endpoint = folder.join("run/endpoints/0");
            let request = Request {
                run: &run,
                task: &task,
                rank: 1,
                endpoint: &endpoint,
                processors: Some(&[0, 1]),
                prepared: &prepared,
                environment,
            };
            let line = engine.command(&request);
            let mut text = format!(
                "# clean environment: {}, limits by launcher: {}\n",
                line.clean_environment, line.limits_by_launcher
            );
            if let Some(container) = &line.container {
                text += &format!("# container {container}\n");
            }
            if let Some(workdir) = &line.workdir {
                text += &format!("# in {}\n", workdir.display());
            }
            for (name, value) in line.environment.iter().filter(|(n, _)| n != "USER") {
                text += &format!("{name}={value}\n");
            }
            for word in &line.words {
                text += &format!("  {word}\n");
            }
            let text = text.replace(&folder.display().to_string(), "FOLDER");
            // The lines that depend on this machine and user are removed: the runtime, limits, and rootless podman's
            // user.
            let mut words: Vec<&str> = text.lines().collect();
            words.retain(|w| !w.starts_with("  nofile=") && !w.starts_with("  nproc="));
            let rootful = crossdock_os::child::user() == 0;
            if engine.name() != "podman" || rootful {
                let text =
                    words.join("\n").replace("  --runtime\n  runc\n", "").replace("  --ulimit\n  --ulimit\n", "")
                        + "\n";
                golden(&format!("{}-{kind}.txt", engine.name()), &text);
            }
        }
    }
}

#[test]
fn a_skeleton_has_links_mount_points_and_no_big_thing() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let root = root(folder);
    let task = task(folder, Files::Root(root.clone()));
    let at = folder.join("skeleton");
    let s = engine::Skeleton::make(&task, &at, false).unwrap();
    assert_eq!(fs::read_link(at.join("bin")).unwrap(), Path::new("usr/bin"));
    assert!(at.join("etc/passwd").is_file() && at.join("etc/hosts").is_file());
    assert!(at.join("run/crossdock").is_dir() && at.join("data/in").is_dir() && at.join("out").is_dir());
    assert!(!root.join("etc/hosts").exists() && !root.join("run").exists(), "the root stays untouched");
    let binds: Vec<&str> = s.binds.iter().map(|(_, to)| to.as_str()).collect();
    assert_eq!(binds, ["/note.txt", "/opt", "/usr"]);
}

#[test]
fn a_skeleton_changes_nothing_behind_a_link_that_leads_out_of_the_root() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let root = root(folder);
    // The container has its own `/tmp`, so the folder outside lies elsewhere.
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let victim = outside.path();
    fs::set_permissions(victim, fs::Permissions::from_mode(0o700)).unwrap();
    fs::create_dir(root.join("usr/lib64")).unwrap();
    fs::create_dir(root.join("var")).unwrap();
    for (target, link) in [
        (victim.to_str().unwrap(), "out"),
        ("usr/lib64", "lib64"),
        ("/run", "var/run"),
        ("../run/resolve/stub", "etc/resolv.conf"),
        ("/empty", "inner"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    let mut task = task(folder, Files::Root(root.clone()));
    let mut made = 0;
    let mut make = |points: [&str; 2], change: &dyn Fn()| {
        change();
        task.mounts.iter_mut().zip(points).for_each(|(mount, point)| mount.task = point.to_owned());
        made += 1;
        let at = folder.join(format!("skeleton-{made}"));
        engine::Skeleton::make(&task, &at, false).map(|_| at)
    };
    let untouched = || {
        assert_eq!(fs::read_dir(victim).unwrap().count(), 0);
        assert_eq!(fs::metadata(victim).unwrap().permissions().mode() & 0o7777, 0o700);
    };
    for point in ["/out", "/out/new"] {
        let error = make([point, "/data/in"], &|| ()).unwrap_err();
        assert!(error.why.contains("the link /out ") && error.why.contains(victim.to_str().unwrap()), "{error}");
        untouched();
    }
    // Links that stay in the root lead where they lead in the container.
    let at = make(["/var/run/in", "/inner/new"], &|| ()).unwrap();
    assert!(at.join("run/in").is_dir() && at.join("empty/new").is_dir());
    assert_eq!(fs::read_link(at.join("lib64")).unwrap(), Path::new("usr/lib64"));
    assert_eq!(fs::read_link(at.join("etc/resolv.conf")).unwrap(), Path::new("../run/resolve/stub"));
    let at = make(["/lib64", "/bin"], &|| ()).unwrap();
    assert!(at.join("usr").is_dir());
    // If `etc` itself is a link, the files that engines write there are not made.
    let etc = || {
        fs::remove_dir_all(root.join("etc")).unwrap();
        symlink(victim, root.join("etc")).unwrap();
    };
    make(["/data/in", "/data/out"], &etc).unwrap();
    untouched();
}

#[test]
fn a_mount_point_inside_a_read_only_folder_must_be_there() {
    let temporary = tempfile::tempdir().unwrap();
    let root = root(temporary.path());
    let mut task = task(temporary.path(), Files::Root(root));
    task.mounts[0].task = "/opt/tool/data".into();
    let error = engine::Skeleton::make(&task, &temporary.path().join("s"), false).unwrap_err();
    assert!(error.why.contains("/opt/tool/data") && error.hint.contains("/data"), "{error}");
    task.mounts[0].task = "/opt/tool".into();
    engine::Skeleton::make(&task, &temporary.path().join("s2"), false).unwrap();
}

#[test]
fn the_process_engine_always_works_and_every_refusal_has_a_mend() {
    for engine in engine::all() {
        let trial = engine::trial(engine.as_ref());
        match &trial.result {
            Ok(version) => println!("{}: {version}, {:?}", trial.engine, trial.start.unwrap()),
            Err(e) => println!("{}: {e}", trial.engine),
        }
        match trial.result {
            Ok(version) => assert!(!version.is_empty()),
            Err(e) => assert!(!e.why.is_empty() && !e.hint.is_empty() && trial.engine != "process"),
        }
    }
}

#[test]
fn the_file_and_the_command_line_name_every_engine_and_no_other() {
    let mut known: Vec<_> =
        crossdock_launch::engine::all().iter().map(|engine| engine.name()).chain(["auto"]).collect();
    let mut named = crossdock_launch::file::ENGINES.to_vec();
    known.sort_unstable();
    named.sort_unstable();
    assert_eq!(known, named);
}
