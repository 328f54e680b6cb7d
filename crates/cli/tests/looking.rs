//! Tests `ls`, `inspect` and `audit` of a series that one process publishes and this process observes.

mod common;

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Place, finish, signal};
use crossdock_client::{ConnectOptions, Mode, Session};
use crossdock_web::{Sampler, Scope};
use rustix::process::Signal;
use serde_json::Value;

/// A child process that gets SIGTERM when this value is dropped.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        signal(self.0.id(), Signal::TERM);
        let _ = self.0.wait();
    }
}

fn ask(place: &Place, socket: &str, words: &[&str]) -> String {
    let ended = finish(place.command(words).env("CROSSDOCK_SOCKET", socket).spawn().unwrap());
    assert_eq!(ended.code, 0, "{words:?}: {}", ended.err);
    ended.out
}

fn json(place: &Place, socket: &str, words: &[&str]) -> Value {
    serde_json::from_str(&ask(place, socket, words)).unwrap()
}

#[test]
fn a_series_is_listed_with_its_activity_and_only_its_publisher_can_write_it() {
    let place = Place::new("");
    let socket = place.path().join("d/endpoint.sock").display().to_string();
    let mut daemon = place.command(&["serve", "--ready", "--socket", &socket]).spawn().unwrap();
    daemon.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let _daemon = Ending(daemon);
    let mut task = Command::new(env!("CARGO_BIN_EXE_crossdock-test-task"));
    task.args(["publish", "0"]).env("CROSSDOCK_SOCKET", &socket).stdin(Stdio::null()).stdout(Stdio::null());
    let publisher = Ending(task.spawn().unwrap());

    let options = ConnectOptions { socket: Some(socket.clone().into()), ..ConnectOptions::default() };
    let session = Session::connect(&options).unwrap();
    let mut observer = session.observe("field", Duration::from_secs(10)).unwrap();
    let version = observer.next(Duration::from_secs(10)).unwrap();
    version.bytes("u").unwrap();

    let list = ask(&place, &socket, &["ls", "--socket", &socket]);
    assert!(list.lines().any(|l| l.starts_with("series") && l.contains("default/field")), "{list}");
    // The two members are the publisher and this test. The command's own connection is not listed as a task.
    assert_eq!(list.lines().filter(|l| l.starts_with("default/")).count(), 2, "{list}");

    let found = &json(&place, &socket, &["inspect", "--json", "--socket", &socket, "field"])["segments"][0];
    assert_eq!((&found["kind"], &found["state"], &found["observers"]), (&"series".into(), &"live".into(), &1.into()));
    let number = |key: &str| found[key].as_u64().unwrap_or_else(|| panic!("no {key}: {found}"));
    assert!(number("newest") >= version.sequence() && !found["versions"].as_array().unwrap().is_empty(), "{found}");
    assert!(number("slots_used") > 0 && number("slots_used") <= number("slots_reserved"), "{found}");
    assert!(found["method"].is_string() && number("longest_ns") >= number("last_ns"), "{found}");
    assert_eq!(found["variables"][0]["name"], "u");
    let words = ["inspect", "default/field", "-o", "json", "-w", "--times", "2", "--every", "10ms"];
    let followed = ask(&place, &socket, &words);
    assert_eq!(followed.lines().filter(|l| serde_json::from_str::<Value>(l).is_ok()).count(), 2, "{followed}");
    let text = ask(&place, &socket, &["inspect", "--socket", &socket, "field"]);
    for words in ["live", "1 observers", "changes found by", "pool:", "VARIABLE"] {
        assert!(text.contains(words), "no '{words}': {text}");
    }

    let audit = json(&place, &socket, &["audit", "--json", "field"]);
    let access = |pid: u32, kind: &str| {
        let process = audit["processes"].as_array().unwrap().iter().find(|p| p["pid"] == pid).cloned();
        let all = process.unwrap_or_else(|| panic!("process {pid} is not there: {audit}"))["access"].clone();
        let one =
            all.as_array().unwrap().iter().find(|a| a["kind"] == kind && a["segment"] == "default/field").cloned();
        let one = one.unwrap_or_else(|| panic!("no {kind} of {pid}: {audit}"));
        (one["mapped"].as_str().unwrap().to_owned(), one["descriptor"].as_str().unwrap().to_owned())
    };
    // The publisher can write the pool only through its mapping; its descriptor of the pool is read-only. The pin page
    // belongs to the observer, and only the observer can write the page.
    assert_eq!(access(publisher.0.id(), "series"), ("rw".to_owned(), "r".to_owned()));
    assert_eq!(access(std::process::id(), "series"), ("r".to_owned(), "r".to_owned()));
    assert!(access(std::process::id(), "pin").0.contains('w'));
    assert!(!access(publisher.0.id(), "pin").0.contains('w'));

    // After the publisher's death, the series still exists, and its state says that the publisher died.
    signal(publisher.0.id(), Signal::KILL);
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    loop {
        let found = json(&place, &socket, &["inspect", "--json", "--socket", &socket, "field"]);
        if found["segments"][0]["state"] == "died" {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{found}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn commands_that_print_again_and_again_end_when_their_reader_has_closed_the_pipe() {
    let place = Place::new("");
    for words in
        [&["top", "--every", "0.1 s"][..], &["ps", "-w", "--every", "0.1 s"], &["ls", "-w", "--every", "0.1 s"]]
    {
        let mut child = place.command(words).spawn().unwrap();
        let mut reader = child.stdout.take().unwrap();
        reader.read_exact(&mut [0]).unwrap();
        drop(reader);
        let mut child = Ending(child);
        common::until("the command ends", || child.0.try_wait().unwrap().is_some());
    }
}

#[test]
fn samples_leave_the_workflows_that_have_ended() {
    let place = Place::new("");
    let socket = place.path().join("d/endpoint.sock");
    let mut daemon = place.command(&["serve", "--ready", "--socket", socket.to_str().unwrap()]).spawn().unwrap();
    daemon.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let _daemon = Ending(daemon);
    let options = ConnectOptions { socket: Some(socket.clone()), ..ConnectOptions::default() };
    let session = Session::connect(&options).unwrap();
    let mut sampler = Sampler::new(Scope { socket: Some(socket), front: None });
    let mut workflow = |name: String| {
        session.make_workflow(&name, 0).unwrap();
        let inside = Session::connect(&ConnectOptions { workflow: Some(name.clone()), ..options.clone() }).unwrap();
        inside.region("blocks", Mode::OpenOrCreate, 1 << 20, None).unwrap();
        let sample = sampler.look();
        assert!(sample.daemons[0].regions.iter().any(|r| r.workflow == name), "{sample:?}");
        session.end_workflow(&name).unwrap();
        drop(inside);
        sampler.look();
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    };
    let first = workflow("w0".into());
    let last = (1..=20).map(|n| workflow(format!("w{n}"))).last().unwrap();
    assert!(last < first + 10, "{first} descriptors after one workflow, {last} after twenty more");
}
