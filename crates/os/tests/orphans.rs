//! A process that adopts orphans reaps them, and leaves its own children to the code that started them. The notes and
//! the adoption hold for a whole process, so this file has one test.

use std::fs;
use std::process::Command;

use crossdock_os::testing::until;
use crossdock_os::{child, orphans, spawn};

/// The number of children of this process that have ended and were not waited for.
fn ended() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path().join("children"));
    let texts: Vec<String> = threads.filter_map(|children| fs::read_to_string(children).ok()).collect();
    let stats = texts.iter().flat_map(|text| text.split_whitespace()).map(|pid| format!("/proc/{pid}/stat"));
    stats.filter_map(|stat| fs::read_to_string(stat).ok()).filter(|stat| stat.contains(") Z ")).count()
}

#[test]
fn orphans_are_reaped_and_a_child_of_this_process_is_left_to_its_owner() {
    orphans::note_children();
    child::adopt_orphans().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "for i in 1 2 3 4; do (sleep 0.0$i &) ; done; exit 7"]);
    let mut own = spawn::start(&mut command).unwrap();
    until("the end of the child and of four orphans", || ended() == 5);
    until("the orphans are reaped", || {
        orphans::reap();
        ended() == 1
    });
    orphans::reap();
    assert_eq!(own.wait().unwrap().code(), Some(7), "the child was left to its owner");
    let mut next = spawn::start(Command::new("true").arg("x")).unwrap();
    until("the end of the next child", || ended() == 1);
    orphans::reap();
    assert!(next.wait().unwrap().success());
}
