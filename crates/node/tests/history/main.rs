//! Eight tasks do random operations on a few items, first on one node, then on three nodes of a site. Tasks and brokers
//! are killed. A task that was killed begins again on any of the nodes, and in the run with three nodes, brokers are
//! also stopped for some time. The test records all answers. This history must be linearizable: there must be one
//! instant for each operation, between its call and its answer, so that the answers are right if the operations happen
//! at these instants. Each item has one owner at any time.
//!
//! `CROSSDOCK_SEED=N` chooses another sequence of operations and kills. `CROSSDOCK_SECONDS=N` sets the length of the
//! run. `CROSSDOCK_NODES=N` makes only one run, with N nodes (at most 3). `CROSSDOCK_HISTORY=FILE` makes no new
//! history, but checks a history that a failed run left behind; `CROSSDOCK_NODES` says on how many nodes this history
//! was made.

#[path = "../support/mod.rs"]
mod support;

mod check;
mod event;
mod worker;

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use event::{Event, Kind};
use support::Daemon;
use support::sites::Site;

/// The number of tasks.
pub const TASKS: u64 = 8;
/// The number of items, which have the keys 0 to 5.
pub const KEYS: u64 = 6;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, task, incarnation, seed, nodes, socket, file] = &words[..] {
        if word == "worker" {
            let number = |text: &str| text.parse().expect("a number");
            let across = number(nodes) > 1;
            return worker::run(
                number(task),
                number(incarnation),
                number(seed),
                across,
                socket.as_ref(),
                file.as_ref(),
            );
        }
    }
    check::selftest();
    if let Ok(file) = std::env::var("CROSSDOCK_HISTORY") {
        let events = event::read(file.as_ref());
        println!("history: {} events", events.len());
        let across = variable("CROSSDOCK_NODES").is_some_and(|nodes| nodes > 1);
        check::check(&events, across).unwrap_or_else(|why| panic!("{file}: {why}"));
        return;
    }
    let runs = variable("CROSSDOCK_NODES").map_or(vec![1, 3], |nodes| vec![nodes]);
    runs.iter().for_each(|nodes| record_and_check(*nodes));
    println!("history: {} passed", runs.len());
}

fn record_and_check(nodes: u64) {
    let seed = variable("CROSSDOCK_SEED").unwrap_or(1);
    // Twelve seconds are enough for the usual test. A longer run only does more random operations.
    let seconds = variable("CROSSDOCK_SECONDS").unwrap_or(12);
    let (events, kills) = record(seed, Duration::from_secs(seconds), nodes);
    let answered = events.iter().filter(|e| e.returned.is_some()).count();
    let succeeded = events.iter().filter(|e| e.outcome.is_some_and(|o| o.is_success())).count();
    let moved = |e: &&Event| matches!(e.kind, Kind::Transfer(_)) && e.outcome.is_some_and(|o| o.is_success());
    let moved = events.iter().filter(moved).count();
    let Kills { tasks, brokers, crossed } = kills;
    println!(
        "history: seed {seed}, nodes {nodes}: {answered} operations, {succeeded} of them done, {moved} transfers, {crossed} \
         to another node, {tasks} tasks and {brokers} brokers killed"
    );
    if let Err(why) = check::check(&events, nodes > 1) {
        let file = std::env::temp_dir().join(format!("crossdock-history-{seed}-{}", std::process::id()));
        event::write(&file, &events);
        panic!("{why}\nCROSSDOCK_NODES={nodes} CROSSDOCK_HISTORY={} checks this history again", file.display());
    }
    let changed = check::selftest_with(&events, nodes > 1);
    let enough = if nodes > 1 { answered > 200 && crossed > 5 } else { answered > 2000 && moved > 100 };
    assert!(enough && changed > 0, "too little happened to mean anything");
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} has to be a number")))
}

/// How many processes were killed, and how often an item changed its node.
struct Kills {
    tasks: usize,
    brokers: usize,
    /// How often two processes that opened an item one after the other were on different nodes.
    crossed: usize,
}

/// A process of a task.
struct Worker {
    process: Child,
    incarnation: u64,
}

/// Runs the tasks for this time, and kills tasks and brokers at random. Returns the recorded events.
fn record(seed: u64, time: Duration, nodes: u64) -> (Vec<Event>, Kills) {
    let daemons = match nodes {
        1 => vec![Daemon::start()],
        // No lease ends during the test, so no node is lost.
        _ => Site { lease_ms: "120000".into(), ..Site::new() }.daemons(nodes as usize),
    };
    let files = tempfile::tempdir().unwrap();
    let mut dice = event::Dice::new(seed);
    let mut killed = Vec::new();
    let mut places = BTreeMap::new();
    let mut start = |task: u64, incarnation: u64, node: u64| {
        let who = event::id(task, incarnation);
        places.insert(who, node);
        let file = files.path().join(who.to_string());
        std::fs::File::create(&file).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("worker").args([task, incarnation, seed, nodes].map(|n| n.to_string()));
        command.arg(daemons[node as usize].socket()).arg(file);
        Worker { process: command.spawn().unwrap(), incarnation }
    };
    let mut workers: Vec<_> = (0..TASKS).map(|task| start(task, 0, task % nodes)).collect();
    let end = Instant::now() + time;
    let mut brokers = 0;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(30 + dice.below(170)));
        match dice.below(4) {
            0 => {
                daemons[dice.below(nodes) as usize].kill_broker();
                brokers += 1;
            }
            1 | 2 => {
                let task = dice.below(TASKS);
                let worker = &mut workers[task as usize];
                killed.push((event::id(task, worker.incarnation), event::now()));
                worker.process.kill().unwrap();
                worker.process.wait().unwrap();
                *worker = start(task, worker.incarnation + 1, dice.below(nodes));
            }
            _ if nodes > 1 => {
                let broker = daemons[dice.below(nodes) as usize].broker();
                support::kill(broker, "STOP");
                std::thread::sleep(Duration::from_millis(dice.below(400)));
                support::kill(broker, "CONT");
            }
            _ => {}
        }
    }
    for (task, worker) in workers.iter_mut().enumerate() {
        killed.push((event::id(task as u64, worker.incarnation), event::now()));
        worker.process.kill().unwrap();
        worker.process.wait().unwrap();
    }
    let tasks = killed.len() - workers.len();
    let mut events = Vec::new();
    for (who, at) in killed {
        for mut event in event::read(&files.path().join(who.to_string())) {
            event.killed = at;
            events.push(event);
        }
    }
    for daemon in daemons {
        support::until("the daemon notices the last deaths", || daemon.session().list().unwrap().members.len() == 1);
        // `stop` checks that a daemon leaves no files. In a site this check would fail, because the catalog's journal
        // stays when the daemons end.
        if nodes == 1 {
            daemon.stop();
        }
    }
    let crossed = count_crossed(&events, &places);
    (events, Kills { tasks, brokers, crossed })
}

fn count_crossed(events: &[Event], places: &BTreeMap<u64, u64>) -> usize {
    let opens = |e: &&Event| matches!((e.kind, e.outcome), (Kind::Create | Kind::Access, Some(o)) if o.is_success());
    let mut opened: Vec<_> = events.iter().filter(opens).map(|e| (e.key, e.returned, places[&e.who])).collect();
    opened.sort_unstable();
    opened.windows(2).filter(|two| two[0].0 == two[1].0 && two[0].2 != two[1].2).count()
}
