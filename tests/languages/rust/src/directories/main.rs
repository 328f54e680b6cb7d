//! Serves the managed directories for rows F1 to F9 (`tests/languages/conformance.md`). In a real run the launcher does
//! this.
//!
//! `conformance-directories ROOT` makes one directory for each row. It prints `ready` and the value of the environment
//! variable for programs, and serves the directories until its standard input ends. Then it removes all of them. The
//! producer of a row writes into `ROOT/f1/stage`, and the consumer waits for names in `ROOT/f1/published`.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossdock_core::files::Views;
use crossdock_files::{Keep, Publish, Service};
use crossdock_layout::files::Phase;
use crossdock_os::process::{self, ProcessState};
use crossdock_os::{Deadline, mount};

/// The properties of the directory for one row.
struct Scenario {
    row: &'static str,
    wait: Duration,
    keep: Keep,
    quota: Option<u64>,
}

const fn scenario(row: &'static str) -> Scenario {
    Scenario { row, wait: Duration::from_secs(10), keep: Keep::All, quota: None }
}

fn scenarios() -> Vec<Scenario> {
    let mut scenarios: Vec<Scenario> = ["f1", "f3", "f4", "f5", "f6", "f7"].map(scenario).into();
    scenarios.push(Scenario { wait: Duration::from_millis(300), ..scenario("f2") });
    scenarios.push(Scenario { quota: Some(1 << 20), ..scenario("f8") });
    scenarios.push(Scenario { keep: Keep::Newest(2), ..scenario("f9") });
    scenarios
}

fn main() {
    let Some(root) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: conformance-directories ROOT");
        std::process::exit(2);
    };
    let code = match run(&root) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("conformance-directories: {}: {why}", root.display());
            1
        }
    };
    for scenario in scenarios().iter().filter(|scenario| scenario.quota.is_some()) {
        mount::unmount(&root.join(scenario.row));
    }
    let _ = fs::remove_dir_all(&root);
    std::process::exit(code);
}

fn run(root: &Path) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    fs::create_dir_all(root).map_err(text)?;
    let (mut services, mut lines) = (Vec::new(), Vec::new());
    for scenario in scenarios() {
        let (folder, notice) = (root.join(scenario.row), root.join(format!("{}.notice", scenario.row)));
        if let Some(bytes) = scenario.quota {
            fs::create_dir_all(&folder).map_err(text)?;
            // An ordinary user cannot mount a directory with a quota. In this case the row is skipped.
            if mount::memory_at(&folder, bytes).is_err() {
                fs::remove_dir(&folder).map_err(text)?;
                continue;
            }
        }
        let service = Service::start(&folder, &notice, "simulate", Publish::Close, scenario.keep).map_err(text)?;
        if scenario.quota.is_some() {
            service.limited();
        }
        service.producers(Phase::Producing);
        let place = |path: &Path| path.to_string_lossy().into_owned();
        lines.push(Views::line(&place(&service.layout().published), &place(&notice), scenario.wait, &[]));
        services.push((scenario.row, service));
    }
    let mut out = std::io::stdout().lock();
    // Everything is printed as one line, so that a shell reads it with one call. The shell replaces each `|` by a line
    // end.
    writeln!(out, "ready {}", lines.join("|")).and_then(|()| out.flush()).map_err(text)?;
    drop(out);
    serve(root, &services);
    Ok(())
}

/// Tells the consumers of row F3 how their producer ended. Runs until the standard input ends.
fn serve(root: &Path, services: &[(&str, Service)]) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            over.store(true, Ordering::Release);
        });
        let Some((row, service)) = services.iter().find(|(row, _)| *row == "f3") else { return };
        // The producer tells its process id as the target of a symbolic link, because a link is created in one step.
        let link = root.join(row).join("stage/.producer");
        while !over.load(Ordering::Acquire) {
            let pid = fs::read_link(&link).ok().and_then(|to| to.to_str()?.parse::<i32>().ok());
            let Some(pid) = pid else {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let _ = fs::remove_file(&link);
            service.producers(fate(pid, &over));
        }
    });
}

/// Waits until the process has ended, so that all its files are closed. Returns how it ended.
fn fate(pid: i32, over: &AtomicBool) -> Phase {
    let Ok(Some(pidfd)) = process::open_pidfd(pid) else { return Phase::Failed };
    while !process::is_dead(&pidfd) && !over.load(Ordering::Acquire) {
        let _ = crossdock_os::event::wait_readable(&pidfd, Deadline::after(Duration::from_millis(100)));
    }
    if process::state(&pidfd, pid).unwrap() == ProcessState::Exited { Phase::Ended } else { Phase::Failed }
}
