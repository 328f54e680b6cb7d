//! Tests the messages about mistakes that users make. Each row of a test's table has one mistake and the words that the
//! message about it must contain: the cause, the position and a hint.

mod common;

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Place, finish, signal};
use crossdock_client::{
    ConnectOptions, End, Grant, Handle, Inline, Message, Mode, Pattern, PortOptions, Rights, SegmentKind,
    SeriesOptions, Session, Variable,
};
use rustix::process::Signal;

const MIB: u64 = 1 << 20;
const BRIEFLY: Option<Duration> = Some(Duration::from_millis(30));

/// A daemon with some objects. The daemon ends when this value is dropped.
struct Node {
    place: Place,
    socket: String,
    daemon: Child,
}

impl Drop for Node {
    fn drop(&mut self) {
        signal(self.daemon.id(), Signal::TERM);
        let _ = self.daemon.wait();
    }
}

impl Node {
    fn new() -> Self {
        let place = Place::new("");
        let socket = place.path().join("d/endpoint.sock").display().to_string();
        let words = ["serve", "--ready", "--memory", "64MB", "--socket", &socket];
        let mut daemon = place.command(&words).spawn().unwrap();
        daemon.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self { place, socket, daemon }
    }

    fn connect(&self, task: Option<&str>) -> Session {
        let options = ConnectOptions {
            socket: Some(self.socket.clone().into()),
            task: task.map(str::to_owned),
            ..ConnectOptions::default()
        };
        Session::connect(&options).unwrap()
    }
}

/// Checks one mistake: the message about it must contain all of the words. Adds what is wrong to `failures`.
fn check(failures: &mut Vec<String>, mistake: &str, message: &str, words: &[&str]) {
    let missing: Vec<_> = words.iter().filter(|word| !message.contains(**word)).collect();
    if !missing.is_empty() {
        failures.push(format!("{mistake}: no {missing:?} in: {message}"));
    }
    // These internal words mean nothing to a user, so no message may contain any of them.
    for word in ["free cell", "mend:"] {
        if message.contains(word) {
            failures.push(format!("{mistake}: says '{word}': {message}"));
        }
    }
}

fn series_options() -> SeriesOptions {
    SeriesOptions { variables: vec![Variable::new("u", "u64", &[8])], ..SeriesOptions::default() }
}

#[test]
fn mistakes_on_the_command_line_are_told_with_cause_place_and_hint() {
    let node = Node::new();
    drop(node.connect(None).publisher("old", &series_options()).unwrap());
    let session = node.connect(None);
    let _wave = session.publisher("wave", &series_options()).unwrap();
    let _region = session.region("frames", Mode::CreateOnly, MIB, None).unwrap();
    let _port = session.port("frames", End::Producer, &PortOptions::default(), None).unwrap();
    let _other = session.port("other", End::Producer, &PortOptions::default(), None).unwrap();
    let process = format!("process {}", std::process::id());
    let rows: &[(&str, &[&str], &[&str])] = &[
        (
            "a series under a wrong name",
            &["watch", "wvae", "--wait", "200ms"],
            &["wvae", "did you mean `wave`", "waited 0.2 s"],
        ),
        ("a series in a wrong workflow", &["watch", "waves/wave", "--wait", "200ms"], &["waves/wave", "default/wave"]),
        (
            "a series of a former run",
            &["checkpoint", "old", "--every", "1", "--to", "c", "--wait", "200ms"],
            &["`old`", "former run", "--former"],
        ),
        ("an unknown name to inspect", &["inspect", "frame"], &["`frame`", "did you mean"]),
        ("an unknown name to audit", &["audit", "fraems"], &["`fraems`", "did you mean `frames`"]),
        ("an unknown name to remove", &["rm", "othr"], &["`othr`", "did you mean `other`"]),
        ("removing what is in use", &["rm", "default/other"], &["other", &process, "--force"]),
        ("a name of two things", &["rm", "frames"], &["region default/frames", "port default/frames", "--kind"]),
        ("a size with a wrong unit", &["serve", "--memory", "64 MX"], &["64 MX", "MiB"]),
        ("a size with half a unit", &["serve", "--memory", "64M"], &["64 MiB", "64 MB"]),
        ("a time without sense", &["watch", "wave", "--wait", "soon"], &["soon", "10 s"]),
        ("a time with a unit of size", &["mpirun", "--deadline", "2 MiB", "true"], &["2 MiB", "10 s"]),
        ("no time at all", &["run", "w.yaml", "--deadline", "0"], &["`0`", "1 s"]),
        ("every 0 versions", &["checkpoint", "wave", "--every", "0", "--to", "c"], &["every 0", "1 is each version"]),
        ("every sometimes", &["checkpoint", "wave", "--every", "often", "--to", "c"], &["often", "counts versions"]),
        ("a file of an unknown kind", &["export", "wave", "now.txt"], &["now.txt", ".h5 or .npz"]),
        ("an unknown command", &["lst"], &["lst", "ls"]),
        ("an unknown option", &["ls", "--jsn"], &["--jsn", "--json"]),
        ("an unknown engine", &["run", "w.yaml", "--engine", "dokker"], &["dokker", "docker"]),
        ("no such file", &["run", "nothing.yaml"], &["nothing.yaml"]),
        ("no daemon there", &["ls", "--socket", "/nowhere/x.sock"], &["/nowhere/x.sock", "crossdock serve"]),
        ("no series named", &["watch"], &["<SERIES>"]),
    ];
    let mut failures = Vec::new();
    for (mistake, words, message) in rows {
        let ended = finish(node.place.command(words).env("CROSSDOCK_SOCKET", &node.socket).spawn().unwrap());
        if ended.code == 0 {
            failures.push(format!("{mistake}: {words:?} succeeded: {}", ended.out));
        }
        check(&mut failures, mistake, &ended.err, message);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn mistakes_in_the_workflow_file_are_told_with_line_and_hint() {
    let task = "workflow: w\ntasks:\n  a:\n    command: [\"true\"]\n";
    let rows: &[(&str, String, &[&str])] = &[
        ("a misspelt key", task.replace("command", "comand"), &["4:", "comand", "command"]),
        ("a key twice", format!("{task}    command: [\"false\"]\n"), &["5:", "command", "twice", "line 4"]),
        ("no tasks", "workflow: w\n".into(), &["tasks"]),
        ("not YAML", "workflow: w\n\ttasks: 1\n".into(), &["workflow.yaml:1:", "not YAML", "tab", "indentation"]),
        ("`<<` with something else", format!("{task}    <<: 3\n"), &["5:", "`<<` merges a number", "<<: *name"]),
        ("an alias without an anchor", format!("{task}    <<: *base\n"), &["5:", "anchor"]),
        ("a size without a unit", format!("memory: 1 G\n{task}"), &["1:", "1 G", "1 GiB"]),
    ];
    let mut failures = Vec::new();
    for (mistake, file, message) in rows {
        let place = Place::new(file);
        let ended = finish(place.command(&["run", "--check", "workflow.yaml"]).spawn().unwrap());
        if ended.code != 65 {
            failures.push(format!("{mistake}: exit code {}: {}{}", ended.code, ended.out, ended.err));
        }
        check(&mut failures, mistake, &format!("{}{}", ended.out, ended.err), message);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn merge_keys_give_a_task_what_it_does_not_say_itself() {
    let file =
        "workflow: w\ntasks:\n  a: &base\n    command: [\"true\"]\n    ranks: 2\n  b:\n    <<: *base\n    ranks: 1\n";
    let place = Place::new(file);
    let ended = finish(place.command(&["run", "--check", "workflow.yaml"]).spawn().unwrap());
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
}

type Try<'a> = Box<dyn Fn() -> crossdock_client::Result<()> + 'a>;

#[test]
fn mistakes_in_programs_are_told_with_cause_place_and_hint() {
    let node = Node::new();
    drop(node.connect(None).publisher("old", &series_options()).unwrap());
    let session = node.connect(None);
    let default = PortOptions::default();
    let small = PortOptions { capacity: 2, ..default };
    let port = |name: &str, end, options: &PortOptions| session.port(name, end, options, None);
    let (producer, consumer) = (port("p", End::Producer, &small).unwrap(), port("p", End::Consumer, &small).unwrap());
    let message = Message::new(Handle::NONE, 1);
    (0..2).for_each(|_| producer.send(&message, None).unwrap());
    let held = [consumer.receive(None).unwrap(), consumer.receive(None).unwrap()];
    let alone = port("alone", End::Consumer, &default).unwrap();
    let full = port("full", End::Producer, &small).unwrap();
    (0..2).for_each(|_| full.send(&message, None).unwrap());
    let _region = session.region("frames", Mode::CreateOnly, MIB, None).unwrap();
    let _wave = session.publisher("wave", &series_options()).unwrap();
    // Makes an endpoint for a task whose only grant is for one port.
    session.make_workflow("w", 0).unwrap();
    let path = node.place.path().join("task.sock");
    let listener = crossdock_os::socket::listen(&path).unwrap();
    let grant = Grant { pattern: "in".into(), kind: SegmentKind::Port, rights: Rights::CONSUME };
    session.make_endpoint("w", "use", listener, &[grant]).unwrap();
    let options = ConnectOptions { socket: Some(path), ..ConnectOptions::default() };
    let task = Session::connect(&options).unwrap();
    let myself = format!("(process {})", std::process::id());
    let odd = PortOptions { capacity: 3, ..default };
    let fan_out = PortOptions { pattern: Some(Pattern::FanOut), ..default };
    let rows: Vec<(&str, Try<'_>, Vec<&str>)> = vec![
        (
            "another pattern",
            Box::new(|| port("p", End::Consumer, &fan_out).map(drop)),
            vec!["port p", "one-to-one", "fan-out", "agree"],
        ),
        ("an odd capacity", Box::new(|| port("q", End::Consumer, &odd).map(drop)), vec!["port q", "3", "power of two"]),
        (
            "a second producer",
            Box::new(|| port("p", End::Producer, &default).map(drop)),
            vec!["port p", &myself, "pattern"],
        ),
        (
            "sending at the wrong end",
            Box::new(|| consumer.send(&message, BRIEFLY)),
            vec!["port p", "consumer's end", "producer's"],
        ),
        (
            "holding all messages",
            Box::new(|| consumer.receive(BRIEFLY).map(drop)),
            vec!["port p", "this consumer holds all 2 messages", "release"],
        ),
        (
            "a producer that does not come",
            Box::new(|| alone.receive(BRIEFLY).map(drop)),
            vec!["port alone", "no producer has come", "start"],
        ),
        (
            "a consumer that does not come",
            Box::new(|| full.send(&message, BRIEFLY)),
            vec!["port full", "room", "no consumer has come"],
        ),
        (
            "releasing twice",
            Box::new(|| consumer.release(&held[0]).and_then(|()| consumer.release(&held[0]))),
            vec!["port p", "released"],
        ),
        ("too much inline", Box::new(|| Inline::new(&[0; 25]).map(drop)), vec!["24 bytes", "25", "handle"]),
        (
            "a region that is smaller",
            Box::new(|| session.region("frames", Mode::OpenOrCreate, 2 * MIB, None).map(drop)),
            vec!["region 'frames'", "1048576", "2097152", "crossdock rm default/frames"],
        ),
        (
            "a region of nothing",
            Box::new(|| session.region("r", Mode::OpenOrCreate, 0, None).map(drop)),
            vec!["region 'r'", "0 bytes", "how large"],
        ),
        (
            "a region that is not there",
            Box::new(|| session.region("r", Mode::OpenOnly, 0, None).map(drop)),
            vec!["region 'r'", "make it first"],
        ),
        (
            "a region that is there",
            Box::new(|| session.region("frames", Mode::CreateOnly, MIB, None).map(drop)),
            vec!["region 'frames'", "already", "open it"],
        ),
        (
            "a region beyond the daemon's memory",
            Box::new(|| session.region("r", Mode::CreateOnly, 1 << 30, None).map(drop)),
            vec!["region 'r'", "1 GiB", "--memory"],
        ),
        (
            "a name with a blank",
            Box::new(|| session.region("a b", Mode::CreateOnly, MIB, None).map(drop)),
            vec!["'a b'"],
        ),
        (
            "a series that is not there",
            Box::new(|| session.observe("wvae", Duration::ZERO).map(drop)),
            vec!["series 'wvae'", "start its publisher"],
        ),
        (
            "a series of a former run",
            Box::new(|| session.observe("old", Duration::ZERO).map(drop)),
            vec!["series 'old'", "former run"],
        ),
        (
            "a second publisher",
            Box::new(|| session.publisher("wave", &series_options()).map(drop)),
            vec!["series 'wave'", "being published by", "process"],
        ),
        (
            "a port without a grant",
            Box::new(|| task.port("q", End::Producer, &default, None).map(drop)),
            vec!["task 'use'", "no grant for port 'q'", "ports: {q: produce}", "workflow file"],
        ),
        (
            "the other end of a granted port",
            Box::new(|| task.port("in", End::Producer, &default, None).map(drop)),
            vec!["task 'use'", "produce", "'in'", "consume", "workflow file"],
        ),
        (
            "a series without a grant",
            Box::new(|| task.observe("s", Duration::ZERO).map(drop)),
            vec!["task 'use'", "observe", "'s'", "workflow file"],
        ),
    ];
    let mut failures = Vec::new();
    for (mistake, attempt, words) in &rows {
        match attempt() {
            Ok(()) => failures.push(format!("{mistake}: it succeeded")),
            Err(error) => check(&mut failures, mistake, &error.to_string(), words),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_task_that_is_granted_nothing_is_not_told_that_there_is_no_daemon() {
    let mut task = Command::new(env!("CARGO_BIN_EXE_crossdock-test-task"));
    task.args(["publish", "1"]).env("CROSSDOCK_TASK", "use").env_remove("CROSSDOCK_SOCKET");
    let ended = finish(task.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut failures = Vec::new();
    check(&mut failures, "no grants", &ended.err, &["task 'use'", "no endpoint", "granted", "workflow file"]);
    assert!(ended.code != 0 && failures.is_empty() && !ended.err.contains("crossdock serve"), "{failures:?}");
}
