//! Eight tasks do random operations on a few items. Tasks and brokers are killed. All answers are written down, and
//! this history must be linearizable: as if every operation had happened at one instant between its call and its
//! answer, with exactly one owner of each item at any time.
//!
//! `CROSSDOCK_SEED=N` chooses another sequence of operations and kills. `CROSSDOCK_SECONDS=N` sets the length of the
//! run. `CROSSDOCK_HISTORY=FILE` checks a history that a failed run left behind, instead of making one.

#[path = "../support/mod.rs"]
mod support;

mod check;
mod event;
mod worker;

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use event::{Event, Kind};
use support::Daemon;

/// The number of tasks.
pub const TASKS: u64 = 8;
/// The number of items, which have the keys 0 to 5.
pub const KEYS: u64 = 6;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, task, incarnation, seed, socket, file] = &words[..] {
        if word == "worker" {
            let number = |text: &str| text.parse().expect("a number");
            return worker::run(number(task), number(incarnation), number(seed), socket.as_ref(), file.as_ref());
        }
    }
    check::selftest();
    if let Ok(file) = std::env::var("CROSSDOCK_HISTORY") {
        let events = event::read(file.as_ref());
        println!("history: {} events", events.len());
        check::check(&events).unwrap_or_else(|why| panic!("{file}: {why}"));
        return;
    }
    let seed = variable("CROSSDOCK_SEED").unwrap_or(1);
    // Twelve seconds are enough for the usual test. A longer run only does more random operations.
    let seconds = variable("CROSSDOCK_SECONDS").unwrap_or(12);
    let (events, kills) = record(seed, Duration::from_secs(seconds));
    let answered = events.iter().filter(|e| e.returned.is_some()).count();
    let succeeded = events.iter().filter(|e| e.outcome.is_some_and(|o| o.is_success())).count();
    let moved = |e: &&Event| matches!(e.kind, Kind::Transfer(_)) && e.outcome.is_some_and(|o| o.is_success());
    let moved = events.iter().filter(moved).count();
    println!(
        "history: seed {seed}: {answered} operations, {succeeded} of them done, {moved} transfers, {} tasks and {} brokers killed",
        kills.0, kills.1
    );
    if let Err(why) = check::check(&events) {
        let file = std::env::temp_dir().join(format!("crossdock-history-{seed}-{}", std::process::id()));
        event::write(&file, &events);
        panic!("{why}\nCROSSDOCK_HISTORY={} checks this history again", file.display());
    }
    assert!(answered > 2000 && moved > 100, "too little happened to mean anything");
    println!("history: 1 passed");
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} has to be a number")))
}

/// Runs the tasks and the kills. Returns the recorded events, and how many tasks and brokers were killed.
fn record(seed: u64, time: Duration) -> (Vec<Event>, (usize, usize)) {
    let daemon = Daemon::start();
    let mut dice = event::Dice::new(seed);
    let mut killed = Vec::new();
    let mut workers: Vec<(Child, u64)> = (0..TASKS).map(|task| (start(&daemon, task, 0, seed), 0)).collect();
    let end = Instant::now() + time;
    let mut brokers = 0;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(30 + dice.below(170)));
        match dice.below(4) {
            0 => {
                daemon.kill_broker();
                brokers += 1;
            }
            1 | 2 => {
                let task = dice.below(TASKS);
                let (worker, incarnation) = &mut workers[task as usize];
                killed.push((event::id(task, *incarnation), event::now()));
                worker.kill().unwrap();
                worker.wait().unwrap();
                *incarnation += 1;
                *worker = start(&daemon, task, *incarnation, seed);
            }
            _ => {}
        }
    }
    for (task, (worker, incarnation)) in workers.iter_mut().enumerate() {
        killed.push((event::id(task as u64, *incarnation), event::now()));
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    let tasks = killed.len() - workers.len();
    let mut events = Vec::new();
    for (who, at) in killed {
        for mut event in event::read(&daemon.folder.path().join(format!("history.{who}"))) {
            event.killed = at;
            events.push(event);
        }
        std::fs::remove_file(daemon.folder.path().join(format!("history.{who}"))).unwrap();
    }
    support::until("the daemon notices the last deaths", || daemon.session().list().unwrap().members.len() == 1);
    daemon.stop();
    (events, (tasks, brokers))
}

fn start(daemon: &Daemon, task: u64, incarnation: u64, seed: u64) -> Child {
    let file = daemon.folder.path().join(format!("history.{}", event::id(task, incarnation)));
    std::fs::File::create(&file).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("worker").args([task, incarnation, seed].map(|n| n.to_string())).arg(daemon.socket()).arg(file);
    command.spawn().unwrap()
}
