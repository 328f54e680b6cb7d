//! A managed directory for a measurement, and how its processes are started.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crossdock_core::files::{VARIABLE, Views, WATCHED, Watched};
use crossdock_files::{Keep, Publish, Service};
use crossdock_layout::files::Phase;

/// The paths of the preload library and of the static shim program.
pub struct Doors<'a> {
    pub preload: &'a str,
    pub shim: &'a str,
}

/// A managed directory, and a plain folder in the same memory.
pub struct Place {
    pub root: PathBuf,
    service: Option<Service>,
}

impl Place {
    pub fn new(name: &str) -> Self {
        let root = PathBuf::from(format!("/dev/shm/crossdock-bench-{name}-{}", std::process::id()));
        let service = Service::start(&root, &root.with_extension("notice"), "bench", Publish::Close, Keep::All);
        let service = service.expect("a managed directory");
        service.producers(Phase::Producing);
        fs::create_dir(root.join("plain")).expect("a folder");
        Self { root, service: Some(service) }
    }

    pub fn folder(&self, name: &str) -> String {
        self.root.join(name).to_str().expect("plain letters").to_owned()
    }

    /// Starts this program in another role. `door` names the means by which the program's calls wait for a file:
    /// `preload`, `notification` or `none`. With `watch`, the program is a producer, and the kernel stops its opens for
    /// writing.
    pub fn start(&self, doors: &Doors<'_>, door: &str, words: &[&str]) -> Child {
        let own = std::env::current_exe().expect("this program");
        let mut command = match door {
            "notification" | "watch" => {
                let mut command = Command::new(doors.shim);
                command.args(["door", door, "-", "--"]).arg(own);
                command
            }
            _ => Command::new(own),
        };
        if door == "preload" {
            command.env("LD_PRELOAD", doors.preload);
        }
        if door == "watch" {
            command.env(WATCHED, Watched::line(&self.folder("stage"), &self.root.join("refusals"), None));
        } else {
            let notice = self.root.with_extension("notice");
            let notice = notice.to_str().expect("letters");
            command.env(VARIABLE, Views::line(&self.folder("published"), notice, Duration::from_secs(60), &[]));
        }
        command.arg("part").args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().expect("this program again")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.service = None;
        let _ = fs::remove_dir_all(&self.root);
        let _ = fs::remove_file(self.root.with_extension("notice"));
    }
}

/// Waits until the process ends, and gives the numbers that it printed.
pub fn printed_numbers(child: Child) -> Vec<f64> {
    let output = child.wait_with_output().expect("a part");
    assert!(output.status.success(), "a part failed");
    let text = String::from_utf8(output.stdout).expect("numbers");
    text.lines().map(|line| line.parse().expect("a number")).collect()
}
