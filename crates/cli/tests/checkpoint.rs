//! Tests of `checkpoint`, `watch` and `export` for series that a process publishes, also when disks, publishers and
//! commands fail.

mod common;

use std::fs;
use std::io::Read;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Ended, Place, finish, free_port, signal, until};
use crossdock_checkpoint::{Checkpoint, Value, restart};
use crossdock_client::{ConnectOptions, Order, Publisher, SeriesOptions, Session, Variable};
use rustix::process::Signal;

/// A daemon, and the processes that the test started at its socket. When this value is dropped, the daemon and the
/// processes are ended.
struct Node {
    place: Place,
    /// The socket at which tasks publish.
    socket: String,
    /// The socket to which the `crossdock` commands of the tests connect to observe the series.
    observed: String,
    children: Vec<Child>,
}

impl Node {
    /// Makes a daemon. With `CROSSDOCK_TEST_ACROSS=1`, makes two nodes, and all commands of these tests run on another
    /// node than the tasks.
    fn new() -> Self {
        match std::env::var_os("CROSSDOCK_TEST_ACROSS") {
            Some(_) => Self::across(),
            None => Self::start_with(&["--socket", "d/endpoint.sock"]),
        }
    }

    fn start_with(words: &[&str]) -> Self {
        let place = Place::new("");
        let socket = place.path().join("d/endpoint.sock").display().to_string();
        let mut node = Self { place, observed: socket.clone(), socket, children: Vec::new() };
        node.serve(words);
        node
    }

    /// Makes two nodes of a site: tasks publish on one, commands observe on the other.
    fn across() -> Self {
        let port = free_port();
        let (keep, embedded) = (format!("keep:127.0.0.1:{port}"), format!("embedded:127.0.0.1:{port}"));
        let words = ["--socket", "d/endpoint.sock", "--site", "hall", "--node", "one", "--catalog", &keep];
        let mut node = Self::start_with(&words);
        node.serve(&["--socket", "o/endpoint.sock", "--site", "hall", "--node", "two", "--catalog", &embedded]);
        node.observed = node.path("o/endpoint.sock").display().to_string();
        node
    }

    fn serve(&mut self, words: &[&str]) {
        let mut daemon = self.place.command(&[&["serve", "--ready"], words].concat()).spawn().unwrap();
        daemon.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        self.children.push(daemon);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Starts a publisher of `count` versions (0: without end); returns the publisher's process id.
    fn publish(&mut self, count: u64, settings: &[(&str, &str)]) -> u32 {
        let mut task = Command::new(env!("CARGO_BIN_EXE_crossdock-test-task"));
        task.args(["publish", &count.to_string()]).env("CROSSDOCK_SOCKET", &self.socket).envs(settings.iter().copied());
        let child = task.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        self.children.push(child);
        pid
    }

    fn start(&self, words: &[&str]) -> Child {
        self.place.command(words).env("CROSSDOCK_SOCKET", &self.observed).spawn().unwrap()
    }

    fn run(&self, words: &[&str]) -> Ended {
        finish(self.start(words))
    }

    fn end(&mut self, pid: u32, how: Signal) {
        signal(pid, how);
        let at = self.children.iter().position(|c| c.id() == pid).unwrap();
        self.children.remove(at).wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            signal(child.id(), Signal::TERM);
            let _ = child.wait();
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    found.retain(|p| {
        p.extension().is_some_and(|e| e == "h5") && !p.file_name().unwrap().to_string_lossy().starts_with('.')
    });
    found.sort();
    found
}

/// Checks that every element of the saved version equals the version's attribute `step`, so that the file holds one
/// whole version. Returns this attribute.
fn whole(checkpoint: &Checkpoint, series: &str) -> i64 {
    let stored = checkpoint.variable(series, "u").unwrap();
    let mut bytes = vec![0; stored.bytes as usize];
    checkpoint.read(series, "u", &mut bytes).unwrap();
    let Value::I64(step) = checkpoint.attribute(series, "step").unwrap() else { panic!("step is a number") };
    assert!(
        bytes.chunks_exact(8).all(|b| f64::from_le_bytes(b.try_into().unwrap()) == step as f64),
        "step {step} is torn"
    );
    step
}

#[test]
fn versions_are_saved_whole_the_newest_are_kept_and_the_last_is_among_them() {
    let mut node = Node::new();
    let to = node.path("saved");
    node.publish(60, &[("FIELD_PAUSE_MS", "20")]);
    let ended = node.run(&["checkpoint", "field", "--every", "10", "--keep", "3", "--to", to.to_str().unwrap()]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    let found = files(&to);
    let steps: Vec<i64> = found.iter().map(|p| whole(&Checkpoint::open(p).unwrap(), "field")).collect();
    // With `--keep 3`, the command leaves at most three checkpoints, or fewer if a slow disk let it save fewer
    // versions. The last version is always saved.
    assert!((1..=3).contains(&steps.len()) && steps.last() == Some(&60), "{steps:?}\n{}", ended.out);
    assert!(steps.windows(2).all(|pair| pair[1] == 60 || pair[1] >= pair[0] + 10), "{steps:?}");
    let last = Checkpoint::open(found.last().unwrap()).unwrap();
    assert_eq!(last.variable("field", "u").unwrap().constants, [("x".to_owned(), Value::F64(0.5))]);
    assert_eq!(last.attribute("field", "note").unwrap(), Value::Text("é".into()));
}

#[test]
fn a_stopped_checkpoint_costs_one_version_and_saves_the_last_when_it_goes_on() {
    let node = Node::new();
    let to = node.path("saved");
    let options = ConnectOptions { socket: Some(node.socket.clone().into()), ..ConnectOptions::default() };
    let session = Session::connect(&options).unwrap();
    let variables = vec![Variable::new("u", "f64", &[65536])];
    let options = SeriesOptions { variables, ..SeriesOptions::default() };
    let mut field = session.publisher("field", &options).unwrap();
    let mut publish = |step: i64| {
        field.elements::<f64>("u").unwrap().fill(step as f64);
        (field.publish(&[("step", crossdock_client::Value::I64(step))]).unwrap(), field.statistics())
    };
    publish(1);
    let command = node.start(&["checkpoint", "field", "--every", "1", "--keep", "2", "--to", to.to_str().unwrap()]);
    until("the first checkpoint", || !files(&to).is_empty());
    // The signal may stop the command between two versions or while the command holds a version. The test passes in
    // both cases.
    signal(command.id(), Signal::STOP);
    for step in 2..=60 {
        let (number, statistics) = publish(step);
        assert_eq!((number, statistics.withheld, statistics.no_space), (step as u64, 0, 0));
    }
    signal(command.id(), Signal::CONT);
    until("the newest to be saved", || restart(&to, "").is_ok_and(|found| whole(&found.checkpoint, "field") == 60));
    field.end().unwrap();
    let ended = finish(command);
    assert_eq!(ended.code, 0, "{}", ended.err);
}

#[test]
fn ranks_are_saved_together_and_of_one_version() {
    let mut node = Node::new();
    let to = node.path("saved");
    let pid = node.publish(0, &[("FIELD_NAMES", "field/0 field/1 field/2"), ("FIELD_PAUSE_MS", "1")]);
    let command = node.start(&["checkpoint", "field", "--ranks", "3", "--every", "50ms", "--to", to.to_str().unwrap()]);
    until("three checkpoints", || {
        files(&to).last().is_some_and(|p| !p.ends_with("field-00000001.h5") && !p.ends_with("field-00000002.h5"))
    });
    node.end(pid, Signal::KILL);
    until("the death to be noticed", || {
        restart(&to, "").is_ok_and(|found| {
            let one = &found.checkpoint;
            let steps: Vec<i64> = one.series().map(|s| whole(one, s)).collect();
            steps.len() == 3 && steps.iter().all(|s| *s == steps[0])
        })
    });
    std::thread::sleep(Duration::from_millis(500));
    signal(command.id(), Signal::TERM);
    let ended = finish(command);
    assert_eq!(ended.code, 143, "{}", ended.err);
    assert!(ended.out.contains("died; version"), "{}", ended.out);
}

#[test]
fn watch_checkpoint_and_export_work_on_another_node_than_the_publisher() {
    let mut node = Node::across();
    let to = node.path("saved");
    let watch = node.start(&["watch", "field"]);
    let first = node.publish(60, &[("FIELD_PAUSE_MS", "20")]);
    let ended = node.run(&["checkpoint", "field", "--every", "10", "--keep", "3", "--to", to.to_str().unwrap()]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    assert_eq!(whole(&restart(&to, "").unwrap().checkpoint, "field"), 60, "{}", ended.out);
    let watched = finish(watch);
    assert_eq!(watched.code, 0, "{}", watched.err);
    assert!(watched.out.contains("step 60"), "{}", watched.out);
    let now = node.path("now.h5");
    let exported = node.run(&["export", "field", "--former", now.to_str().unwrap()]);
    assert_eq!(exported.code, 0, "{}", exported.err);
    assert_eq!(whole(&Checkpoint::open(&now).unwrap(), "field"), 60);
    let _ = first;
}

/// A rank of a parallel program. The test itself publishes the rank's versions. The rank keeps two versions.
struct Rank(Publisher);

impl Rank {
    fn new(node: &Node, name: &str) -> Self {
        let options = ConnectOptions { socket: Some(node.socket.clone().into()), ..ConnectOptions::default() };
        let session = Session::connect(&options).unwrap();
        let variables = vec![Variable::new("u", "f64", &[1000])];
        Self(session.publisher(name, &SeriesOptions { variables, keep: 2, ..SeriesOptions::default() }).unwrap())
    }

    fn publish(&mut self, steps: RangeInclusive<i64>) {
        for step in steps {
            self.0.elements::<f64>("u").unwrap().fill(step as f64);
            self.0.publish(&[("step", crossdock_client::Value::I64(step))]).unwrap();
        }
    }
}

fn steps_of(checkpoint: &Checkpoint) -> Vec<i64> {
    checkpoint.series().map(|s| whole(checkpoint, s)).collect()
}

/// The first rank stops publishing first, so a checkpoint is possible only after the other ranks have published a
/// version with the same number.
#[test]
fn ranks_that_stop_at_different_times_are_saved_when_the_last_one_has_come_so_far() {
    let node = Node::new();
    let to = node.path("saved");
    let mut ranks: Vec<Rank> = (0..3).map(|rank| Rank::new(&node, &format!("field/{rank}"))).collect();
    ranks[0].publish(1..=1);
    for every in ["1", "10ms"] {
        let words = ["checkpoint", "field", "--ranks", "3", "--every", every, "--to", to.to_str().unwrap()];
        let command = node.start(&words);
        let first = ranks[0].0.sequence() as i64;
        // The pause lets the command look at the first rank before the others publish. The test is correct for any
        // pause.
        std::thread::sleep(Duration::from_millis(700));
        ranks[1].publish(first..=first);
        std::thread::sleep(Duration::from_millis(300));
        ranks[2].publish(first..=first);
        let saved = |step: i64| restart(&to, "").is_ok_and(|found| steps_of(&found.checkpoint) == [step; 3]);
        until("a checkpoint of the version that all have", || saved(first));
        // The first rank gets ahead by more versions than it keeps, and then the others reach its number.
        ranks[0].publish(first + 1..=first + 5);
        std::thread::sleep(Duration::from_millis(300));
        ranks[2].publish(first + 1..=first + 5);
        assert!(saved(first), "the second rank has no newer version");
        ranks[1].publish(first + 1..=first + 5);
        until("a checkpoint of the last version", || saved(first + 5));
        ranks[0].publish(first + 6..=first + 6);
        signal(command.id(), Signal::TERM);
        let ended = finish(command);
        assert_eq!(ended.code, 143, "{}", ended.err);
    }
}

#[test]
fn ranks_that_end_without_a_common_version_are_told() {
    let node = Node::new();
    let to = node.path("saved");
    let mut ranks: Vec<Rank> = (0..2).map(|rank| Rank::new(&node, &format!("field/{rank}"))).collect();
    let words = ["checkpoint", "field", "--ranks", "2", "--every", "1", "--to", to.to_str().unwrap()];
    let command = node.start(&words);
    ranks[0].publish(1..=1);
    ranks[1].publish(1..=1);
    until("a checkpoint", || restart(&to, "").is_ok());
    ranks[0].publish(2..=9);
    ranks[1].publish(2..=4);
    for rank in ranks {
        rank.0.end().unwrap();
    }
    let ended = finish(command);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let said = "no number in common: field/1 is at version 4, field/0 at version 9";
    assert!(ended.err.contains(said), "{}", ended.err);
    assert_eq!(steps_of(&restart(&to, "").unwrap().checkpoint), [1, 1]);
}

/// Ranks that start again open their series one after the other. Until the last rank has opened its new series, some
/// names lead to series of publishers that died.
#[test]
fn the_successors_of_dead_ranks_are_followed_when_all_of_them_have_come() {
    let mut node = Node::new();
    let to = node.path("saved");
    let pid = node.publish(0, &[("FIELD_NAMES", "field/0 field/1 field/2"), ("FIELD_ELEMENTS", "1000")]);
    let words = ["checkpoint", "field", "--ranks", "3", "--every", "2", "--to", to.to_str().unwrap()];
    let command = node.start(&words);
    until("a checkpoint", || restart(&to, "").is_ok());
    node.end(pid, Signal::KILL);
    let mut ranks = Vec::new();
    for rank in 0..3 {
        ranks.push(Rank::new(&node, &format!("field/{rank}")));
        ranks[rank].publish(1..=3);
        std::thread::sleep(Duration::from_millis(500));
    }
    for mut rank in ranks {
        rank.publish(4..=7);
        rank.0.end().unwrap();
    }
    let ended = finish(command);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    assert_eq!(steps_of(&restart(&to, "").unwrap().checkpoint), [7, 7, 7], "{}", ended.out);
    assert_eq!(ended.out.matches("died; version").count(), 1, "{}", ended.out);
}

/// If `checkpoint` starts while only some ranks have started again, it finds publishers of two different starts of the
/// program.
#[test]
fn a_writer_that_starts_between_two_ranks_waits_for_the_second() {
    let mut node = Node::new();
    let to = node.path("saved");
    // The run of the dead ranks goes on as long as this publisher lives, so the series of the dead ranks stay.
    let _other = Rank::new(&node, "other");
    let pid = node.publish(0, &[("FIELD_NAMES", "field/0 field/1"), ("FIELD_PAUSE_MS", "1000")]);
    let options = ConnectOptions { socket: Some(node.socket.clone().into()), ..ConnectOptions::default() };
    let session = Session::connect(&options).unwrap();
    let mut observer = session.observe("field/1", Duration::from_secs(10)).unwrap();
    observer.next(Duration::from_secs(10)).unwrap();
    node.end(pid, Signal::KILL);
    until("the death to be noticed", || observer.state() == crossdock_client::SeriesState::Died);
    let last = observer.newest() as i64;
    let mut ranks = vec![Rank::new(&node, "field/0")];
    ranks[0].publish(1..=last);
    let words = ["checkpoint", "field", "--ranks", "2", "--every", "1", "--to", to.to_str().unwrap()];
    let command = node.start(&words);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(files(&to).is_empty(), "the ranks are of two starts");
    ranks.push(Rank::new(&node, "field/1"));
    ranks[1].publish(1..=last);
    until("a checkpoint of the new start", || {
        restart(&to, "").is_ok_and(|found| steps_of(&found.checkpoint) == [last; 2])
    });
    for rank in ranks {
        rank.0.end().unwrap();
    }
    let ended = finish(command);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
}

/// The series of ranks that have ended exist as long as the run of these ranks. `checkpoint` finds these series until
/// the ranks have started again and have opened new series.
#[test]
fn a_writer_that_starts_between_two_ranks_takes_no_series_that_ended_before() {
    let node = Node::new();
    let to = node.path("saved");
    // This publisher is a member of the same run as the ranks that end. So the run goes on when these ranks end, and
    // their series stay.
    let _other = Rank::new(&node, "other");
    for name in ["field/0", "field/1"] {
        let mut rank = Rank::new(&node, name);
        rank.publish(1..=3);
        rank.0.end().unwrap();
    }
    let mut ranks = vec![Rank::new(&node, "field/0")];
    ranks[0].publish(1..=3);
    let command = node.start(&["checkpoint", "field", "--ranks", "2", "--every", "1", "--to", to.to_str().unwrap()]);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(files(&to).is_empty(), "the ranks are of two starts");
    ranks.push(Rank::new(&node, "field/1"));
    ranks[1].publish(1..=3);
    until("a checkpoint of the new start", || {
        restart(&to, "").is_ok_and(|found| steps_of(&found.checkpoint) == [3; 2])
    });
    for rank in ranks {
        rank.0.end().unwrap();
    }
    let ended = finish(command);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
}

/// The first rank has started again and died before the second one started again, so all series belong to dead
/// publishers.
#[test]
fn a_writer_that_finds_only_dead_ranks_waits_for_their_successors() {
    let mut node = Node::new();
    let (to, former) = (node.path("saved"), node.path("former"));
    // The run of the dead ranks goes on as long as this publisher lives, so the series of the dead ranks stay.
    let _other = Rank::new(&node, "other");
    let options = ConnectOptions { socket: Some(node.socket.clone().into()), ..ConnectOptions::default() };
    let session = Session::connect(&options).unwrap();
    for (names, last) in [("field/0 field/1", "field/1"), ("field/0", "field/0")] {
        let before = session.observe(last, Duration::ZERO).map(|o| o.id()).ok();
        // Each rank publishes one version, and then nothing for a minute.
        let pid = node.publish(0, &[("FIELD_NAMES", names), ("FIELD_PAUSE_MS", "60000")]);
        let new = || session.observe(last, Duration::from_secs(1)).ok().filter(|o| Some(o.id()) != before);
        until("the publisher", || new().is_some());
        let mut observer = new().unwrap();
        observer.next(Duration::from_secs(10)).unwrap();
        node.end(pid, Signal::KILL);
        until("the death to be noticed", || observer.state() == crossdock_client::SeriesState::Died);
        if last == "field/1" {
            let words = ["checkpoint", "field", "--ranks", "2", "--every", "1", "--former", "--wait", "1s", "--to"];
            let ended = node.run(&[&words[..], &[former.to_str().unwrap()]].concat());
            assert_eq!((ended.code, files(&former).len()), (69, 1), "{}\n{}", ended.out, ended.err);
        }
    }
    let command = node.start(&["checkpoint", "field", "--ranks", "2", "--every", "1", "--to", to.to_str().unwrap()]);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(files(&to).is_empty(), "the ranks are of two starts");
    let mut ranks: Vec<Rank> = (0..2).map(|rank| Rank::new(&node, &format!("field/{rank}"))).collect();
    for rank in &mut ranks {
        rank.publish(1..=2);
    }
    until("a checkpoint of the new start", || {
        restart(&to, "").is_ok_and(|found| steps_of(&found.checkpoint) == [2; 2])
    });
    for rank in ranks {
        rank.0.end().unwrap();
    }
    let ended = finish(command);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
}

#[test]
fn a_checkpoint_that_cannot_be_removed_is_told_and_each_version_is_saved_once() {
    let node = Node::new();
    let to = node.path("saved");
    // The test makes a folder with the name of the oldest checkpoint. The command cannot remove this folder, because
    // `unlink` fails for a folder, even if the user is root.
    let fixed = to.join("field-00000000.h5");
    fs::create_dir_all(&fixed).unwrap();
    let bytes = [0; 8];
    let variable = crossdock_checkpoint::Variable {
        name: "u".into(),
        type_name: "f64".into(),
        shape: vec![1],
        constants: vec![],
        bytes: &bytes,
    };
    let series = crossdock_checkpoint::Series {
        name: "field".into(),
        sequence: 1,
        time_ns: 1,
        attributes: vec![],
        variables: vec![variable],
    };
    let contents = crossdock_checkpoint::Contents { attributes: vec![], series: vec![series] };
    crossdock_checkpoint::write(&fs::File::create(to.join("field-00000001.h5")).unwrap(), &to, &contents).unwrap();
    let mut rank = Rank::new(&node, "field");
    rank.publish(1..=1);
    let command = node.start(&["checkpoint", "field", "--every", "1", "--keep", "1", "--to", to.to_str().unwrap()]);
    until("a checkpoint", || newest_number(&to) == 2);
    // During this pause the command checks several times for a new version. It must not report the same failure again.
    std::thread::sleep(Duration::from_millis(1500));
    rank.publish(2..=2);
    until("the next checkpoint", || newest_number(&to) == 3);
    rank.0.end().unwrap();
    let ended = finish(command);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    assert_eq!(ended.err.matches("field-00000000.h5").count(), 1, "{}", ended.err);
    assert_eq!(files(&to), [fixed, to.join("field-00000003.h5")], "{}", ended.out);
}

#[test]
fn what_a_publisher_published_before_its_death_is_saved_and_its_successor_is_followed() {
    let mut node = Node::new();
    let to = node.path("saved");
    let pid = node.publish(0, &[]);
    let command = node.start(&["checkpoint", "field", "--every", "1 h", "--to", to.to_str().unwrap()]);
    std::thread::sleep(Duration::from_millis(300));
    assert!(files(&to).is_empty(), "an hour has not passed");
    node.end(pid, Signal::KILL);
    until("the last version", || files(&to).len() == 1);
    assert!(whole(&restart(&to, "").unwrap().checkpoint, "field") > 1);
    node.publish(7, &[]);
    let ended = finish(command);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    assert_eq!(whole(&restart(&to, "").unwrap().checkpoint, "field"), 7, "{}", ended.out);
    assert_eq!(files(&to).len(), 2);
}

#[test]
fn after_its_own_death_it_goes_on_with_its_numbers() {
    let mut node = Node::new();
    let to = node.path("saved");
    let pid = node.publish(0, &[("FIELD_PAUSE_MS", "1"), ("FIELD_ELEMENTS", "1000000")]);
    let words = ["checkpoint", "field", "--every", "1", "--keep", "2", "--to", to.to_str().unwrap()];
    let mut last = 0;
    for _ in 0..5 {
        let command = node.start(&words);
        until("newer checkpoints", || newest_number(&to) > last + 1);
        signal(command.id(), Signal::KILL);
        assert_eq!(finish(command).code, 137);
        let now = newest_number(&to);
        assert!(now > last, "numbers only grow");
        last = now;
        let found = restart(&to, "").unwrap();
        assert!(found.skipped.is_empty(), "a kill damages nothing: {:?}", found.skipped);
        whole(&found.checkpoint, "field");
    }
    let command = node.start(&words);
    until("newer checkpoints", || newest_number(&to) > last);
    node.end(pid, Signal::KILL);
    signal(command.id(), Signal::TERM);
    let ended = finish(command);
    assert!(ended.out.contains("goes on behind"), "{}", ended.out);
    let hidden = fs::read_dir(&to).unwrap().flatten().filter(|e| e.file_name().to_string_lossy().ends_with(".new"));
    assert_eq!(hidden.count(), 0, "what was half written is gone");
}

fn newest_number(folder: &Path) -> u64 {
    files(folder).last().map_or(0, |p| p.file_stem().unwrap().to_str().unwrap()[6..].parse().unwrap())
}

#[test]
fn a_damaged_newest_checkpoint_is_set_aside_and_said() {
    let mut node = Node::new();
    let to = node.path("saved");
    let words = ["checkpoint", "field", "--every", "10", "--keep", "3", "--to", to.to_str().unwrap()];
    node.publish(30, &[]);
    assert_eq!(node.run(&words).code, 0);
    let newest = files(&to).pop().unwrap();
    let file = fs::File::options().write(true).open(&newest).unwrap();
    file.write_all_at(&[0x55; 8], file.metadata().unwrap().len() - 8).unwrap();
    let found = restart(&to, "").unwrap();
    assert!(found.checkpoint.path() < newest.as_path() && found.skipped[0].0 == newest);
    // The command starts before the publisher. It must not confuse the series that the former run left with the series
    // of the new run.
    let writer = node.start(&words);
    std::thread::sleep(Duration::from_millis(300));
    node.publish(5, &[]);
    let ended = finish(writer);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    assert!(ended.out.contains("is damaged") && ended.out.contains("set aside"), "{}", ended.out);
    assert!(newest.with_extension("h5.damaged").exists() && !newest.exists());
    assert_eq!(whole(&restart(&to, "").unwrap().checkpoint, "field"), 5);
}

#[test]
fn a_folder_that_is_gone_is_said_and_the_publisher_goes_on() {
    let mut node = Node::new();
    let to = node.path("saved");
    let pid = node.publish(0, &[]);
    let command = node.start(&["checkpoint", "field", "--every", "5", "--to", to.to_str().unwrap()]);
    until("a checkpoint", || !files(&to).is_empty());
    fs::rename(&to, node.path("elsewhere")).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    fs::rename(node.path("elsewhere"), &to).unwrap();
    let before = newest_number(&to);
    until("a later checkpoint", || newest_number(&to) > before);
    fs::rename(&to, node.path("elsewhere")).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    node.end(pid, Signal::KILL);
    signal(command.id(), Signal::TERM);
    let ended = finish(command);
    assert_eq!(ended.code, 71, "the last one could not be written: {}\n{}", ended.out, ended.err);
    assert!(ended.err.contains("is the folder still there?"), "{}", ended.err);
}

#[test]
fn a_full_disk_is_said_and_the_former_checkpoint_stays() {
    let mut node = Node::new();
    let (to, out) = (node.path("small"), node.path("out"));
    fs::create_dir(&to).unwrap();
    fs::create_dir(&out).unwrap();
    let pid = node.publish(0, &[("FIELD_PAUSE_MS", "20")]);
    // The shell mounts a disk in a mount namespace of its own. The disk has room for one and a half files, so a second
    // file does not fit.
    let script = format!(
        "mount -t tmpfs -o size=380k tmpfs {to}; '{crossdock}' checkpoint field --every 5 --keep 1 --to {to}; code=$?; cp {to}/*.h5 {out}; ls -a {to}; exit $code",
        to = to.display(),
        out = out.display(),
        crossdock = env!("CARGO_BIN_EXE_crossdock")
    );
    let mut shell = Command::new("unshare");
    shell.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).env("CROSSDOCK_SOCKET", &node.socket);
    let shell = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    node.end(pid, Signal::KILL);
    node.publish(3, &[]);
    let ended = finish(shell);
    assert_eq!(ended.code, 71, "{}\n{}", ended.out, ended.err);
    assert!(ended.err.contains("No space left") && ended.err.contains("make room"), "{}", ended.err);
    assert!(!ended.out.contains(".new"), "what was begun is cleared away: {}", ended.out);
    assert_eq!(files(&out).len(), 1);
    whole(&restart(&out, "").unwrap().checkpoint, "field");
}

#[test]
fn a_read_only_folder_is_said_once_and_it_goes_on_when_that_is_mended() {
    let mut node = Node::new();
    let (to, repaired) = (node.path("saved"), node.path("repaired"));
    fs::create_dir(&to).unwrap();
    fs::create_dir(node.path("side")).unwrap();
    let publisher = node.publish(0, &[("FIELD_PAUSE_MS", "5")]);
    // Permissions do not stop root, but a read-only mount does. The script mounts a second time over the folder,
    // because the first mount cannot become read-only while the command has its lock file open for writing.
    let script = format!(
        "read_only() {{ mount --bind {to} {place}/side && mount -o remount,bind,ro {place}/side && mount --move {place}/side {to}; }}
        work() {{ '{crossdock}' checkpoint field --every 1 --keep 99999 --to {to}; }}
        read_only && work 2>{place}/first; echo at once $?; umount {to}
        work 2>{place}/later & until ls {to}/*.h5 >/dev/null 2>&1; do sleep 0.05; done; read_only
        until [ -e {repaired} ]; do sleep 0.05; done; umount {to}; wait $!",
        to = to.display(),
        place = node.place.path().display(),
        repaired = repaired.display(),
        crossdock = env!("CARGO_BIN_EXE_crossdock")
    );
    let mut shell = Command::new("unshare");
    shell.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).env("CROSSDOCK_SOCKET", &node.socket);
    let shell = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = |name: &str| fs::read_to_string(node.path(name)).unwrap_or_default();
    until("the trouble to be said", || said("later").contains("Read-only file system"));
    let before = newest_number(&to);
    // The command tries five times a second to save a version, so it has tried again during this pause.
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(newest_number(&to), before, "nothing can be written");
    for name in ["first", "later"] {
        let said = said(name);
        let mut reasons: Vec<_> = said.lines().map(|l| l.split_once("cannot ").unwrap().1).collect();
        let named = |l: &&str| l.contains(to.to_str().unwrap()) && l.contains("mount it with `write: true`");
        assert!(reasons.iter().all(named), "{said}");
        // The command may have been writing a file when the folder became read-only. In that case it reports two
        // different reasons.
        let all = reasons.len();
        reasons.dedup();
        assert!((1..3).contains(&all) && reasons.len() == all, "each once: {said}");
    }
    fs::write(&repaired, "").unwrap();
    until("a later checkpoint", || newest_number(&to) > before);
    node.end(publisher, Signal::KILL);
    node.publish(3, &[]);
    let ended = finish(shell);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    assert!(ended.out.contains("at once 71"), "{}", ended.out);
}

#[test]
fn a_place_that_is_no_folder_and_a_second_writer_are_refused_at_once() {
    let mut node = Node::new();
    fs::write(node.path("file"), "").unwrap();
    let words =
        |to: &str| ["checkpoint".to_owned(), "field".into(), "--every".into(), "1".into(), "--to".into(), to.into()];
    let run = |node: &Node, to: &Path| {
        let words = words(to.to_str().unwrap());
        node.start(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let ended = finish(run(&node, &node.path("file/below")));
    assert!(ended.code == 71 && ended.err.contains("file/below"), "{} {}", ended.code, ended.err);
    let pid = node.publish(0, &[]);
    let first = run(&node, &node.path("saved"));
    until("a checkpoint", || !files(&node.path("saved")).is_empty());
    let second = finish(run(&node, &node.path("saved")));
    assert!(second.code == 71 && second.err.contains("another process writes"), "{} {}", second.code, second.err);
    node.end(pid, Signal::KILL);
    signal(first.id(), Signal::TERM);
    finish(first);
}

#[test]
fn a_series_that_does_not_come_is_told_by_the_deadline() {
    let node = Node::new();
    let to = node.path("saved").display().to_string();
    for words in [
        &["checkpoint", "field", "--every", "1", "--to", &to, "--wait", "300ms"][..],
        &["watch", "field", "--wait", "300ms"],
        &["export", "field", "x.npz", "--wait", "300ms"],
    ] {
        let ended = node.run(words);
        assert_eq!(ended.code, 69, "{words:?}: {}", ended.err);
        assert!(ended.err.contains("field"), "{words:?}: {}", ended.err);
        assert!(ended.took < Duration::from_secs(5), "{words:?}: {:?}", ended.took);
    }
    for (words, why) in [
        (&["checkpoint", "field", "--every", "soon", "--to", &to][..], "counts versions"),
        (&["checkpoint", "field", "--every", "1", "--keep", "0", "--to", &to], "0 is not in"),
        (&["export", "field", "x.txt"], ".h5 or .npz"),
        (&["export", "field", "x.npz", "--ranks", "2"], "one series"),
    ] {
        let ended = node.run(words);
        assert!(ended.code == 2 && ended.err.contains(why), "{words:?}: {} {}", ended.code, ended.err);
    }
}

#[test]
fn one_version_is_exported_as_hdf5_and_npz() {
    let mut node = Node::new();
    let pid = node.publish(0, &[("FIELD_NAMES", "field/0 field/1")]);
    let ended = node.run(&["export", "field", "all.h5", "--ranks", "2"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let back = Checkpoint::open(&node.path("all.h5")).unwrap();
    assert_eq!(whole(&back, "field/0"), whole(&back, "field/1"));
    let ended = node.run(&["export", "field/1", "one.npz"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(fs::read(node.path("one.npz")).unwrap().starts_with(b"PK\x03\x04"));
    // The script makes two files that commands in other containers could be writing now. The name of one file contains
    // the process id of the command `export`, because the shell becomes this command. `export` must leave both files as
    // they are.
    let script = format!(
        "for by in '' .$$; do echo begun >two.npz$by.new; done; exec '{}' export field/1 two.npz",
        env!("CARGO_BIN_EXE_crossdock")
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(node.place.path()).env("CROSSDOCK_SOCKET", &node.observed);
    let shell = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let by = format!("two.npz.{}.new", shell.id());
    let ended = finish(shell);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let mut here: Vec<_> = fs::read_dir(node.place.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    here.retain(|name| name.to_string_lossy().starts_with("two."));
    assert_eq!(here.len(), 3, "{here:?}");
    for theirs in ["two.npz.new", &by] {
        assert_eq!(fs::read(node.path(theirs)).unwrap(), b"begun\n");
    }
    let ended = node.run(&["export", "field/1", "no.npz", "--sequence", "999999", "--wait", "200ms"]);
    assert!(ended.code == 69 && !node.path("no.npz").exists() && !node.path("no.npz.new").exists(), "{}", ended.err);
    node.end(pid, Signal::KILL);
}

/// In memory, the first index of a variable in Fortran order changes fastest. A file is read in C order, so the extents
/// in the file are reversed.
#[test]
fn a_variable_in_fortran_order_is_written_with_its_extents_reversed() {
    let node = Node::new();
    let options = ConnectOptions { socket: Some(node.socket.clone().into()), ..ConnectOptions::default() };
    let session = Session::connect(&options).unwrap();
    let variables = vec![Variable { order: Order::Fortran, ..Variable::new("u", "f64", &[2, 3]) }];
    let mut field = session.publisher("field", &SeriesOptions { variables, ..SeriesOptions::default() }).unwrap();
    let memory = [11.0, 21.0, 12.0, 22.0, 13.0, 23.0];
    field.elements::<f64>("u").unwrap().copy_from_slice(&memory);
    field.publish(&[]).unwrap();
    for file in ["u.h5", "u.npz"] {
        let ended = node.run(&["export", "field", file]);
        assert_eq!(ended.code, 0, "{}", ended.err);
    }
    let back = Checkpoint::open(&node.path("u.h5")).unwrap();
    let mut bytes = vec![0; 48];
    back.read("", "u", &mut bytes).unwrap();
    assert_eq!(back.variable("", "u").unwrap().shape, [3, 2]);
    assert_eq!(bytes, memory.map(f64::to_le_bytes).concat());
    let archive = String::from_utf8_lossy(&fs::read(node.path("u.npz")).unwrap()).into_owned();
    assert!(archive.contains("'shape': (3, 2, )"), "{archive}");
}

#[test]
fn no_text_of_a_task_controls_the_terminal() {
    let node = Node::new();
    let to = node.path("saved");
    let options = ConnectOptions { socket: Some(node.socket.clone().into()), ..ConnectOptions::default() };
    let session = Session::connect(&options).unwrap();
    let variables = vec![Variable::new("u", "f64", &[1])];
    let mut field = session.publisher("field", &SeriesOptions { variables, ..SeriesOptions::default() }).unwrap();
    field.publish(&[("note", crossdock_client::Value::Text("a\u{1b}[2J\nb".into()))]).unwrap();
    let watching = node.run(&["watch", "field", "--versions", "1"]);
    let command = node.start(&["checkpoint", "field", "--every", "1", "--to", to.to_str().unwrap()]);
    until("a checkpoint", || !files(&to).is_empty());
    field.end().unwrap();
    for ended in [watching, finish(command)] {
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(ended.out.contains("note a\\u{1b}[2J\\nb") && !ended.out.contains('\u{1b}'), "{}", ended.out);
    }
}

#[test]
fn watching_shows_attributes_and_statistics_as_they_come() {
    let mut node = Node::new();
    let pid = node.publish(0, &[]);
    let ended = node.run(&["watch", "field", "--json", "--versions", "3", "--pause", "20ms"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let lines: Vec<serde_json::Value> = ended.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    for pair in lines.windows(2) {
        assert!(pair[1]["sequence"].as_u64() > pair[0]["sequence"].as_u64());
        assert_eq!(pair[1]["variables"][0]["changed_bytes"], 240_000, "all of it changes");
    }
    let (step, statistics) = (&lines[2]["attributes"]["step"], &lines[2]["variables"][0]["statistics"]);
    assert_eq!(statistics["mean"].as_f64(), step.as_f64());
    assert_eq!((&statistics["least"], &statistics["not_finite"]), (&statistics["greatest"], &0.into()));
    let watching = node.start(&["watch", "field", "--pause", "10ms"]);
    std::thread::sleep(Duration::from_millis(200));
    node.end(pid, Signal::KILL);
    let ended = finish(watching);
    assert_eq!(ended.code, 0, "the publisher's death ends it: {}", ended.err);
    assert!(ended.out.contains("note é") && ended.out.contains("[300 × 100]"), "{}", ended.out);
}
