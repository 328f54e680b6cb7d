//! The three parts of a round: one node registers alone, all nodes register at the same time, and one node waits for
//! all watches after each registration.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::Nodes;
use crate::board::Board;
use crate::rows::{BUSY, BUSY_99, DELAY, DELAY_99, LAST, ONE, REPORTED, TOGETHER};

/// How much the benchmark measures: the number of rounds, and the size of each part of a round.
#[derive(Clone, Copy)]
pub struct Plan {
    pub rounds: usize,
    /// In the first part of a round, one node registers one name after another. The node stops after this time,
    /// or when it has registered as many names as the next field says.
    time: Duration,
    most: usize,
    /// The number of registrations of all nodes together. Each node makes at least one.
    together: usize,
    /// The number of registrations in the third part, where each one waits for all watches.
    waiting: usize,
}

impl Plan {
    pub const FULL: Self = Self { rounds: 6, time: Duration::from_millis(300), most: 500, together: 1000, waiting: 40 };
    pub const QUICK: Self = Self { rounds: 1, time: Duration::from_millis(100), most: 100, together: 300, waiting: 15 };
}

/// Measures all parts, and passes each figure to `add`.
pub fn all(nodes: &dyn Nodes, board: &Board, plan: Plan, mut add: impl FnMut(&'static str, f64)) {
    add(ONE, one_by_one(nodes, board, plan));
    let together = together(nodes, board, plan.together);
    add(TOGETHER, together.answered);
    let delays = sorted(board.take().into_iter().map(|(_, delay)| delay));
    if delays.is_empty() {
        return;
    }
    add(REPORTED, together.reported);
    add(BUSY, at(&delays, 0.5));
    add(BUSY_99, at(&delays, 0.99));
    for number in 0..plan.waiting {
        nodes.register(number % nodes.lanes(), board.begin());
        board.await_reports();
    }
    let delays = board.take();
    nodes.clear();
    let mut last: BTreeMap<usize, f64> = BTreeMap::new();
    for (number, delay) in &delays {
        let latest = last.entry(*number).or_default();
        *latest = latest.max(*delay);
    }
    let delays = sorted(delays.into_iter().map(|(_, delay)| delay));
    add(DELAY, at(&delays, 0.5));
    add(DELAY_99, at(&delays, 0.99));
    add(LAST, at(&sorted(last.into_values()), 0.5));
}

/// Measures how many names one node registers in a second, one after another.
pub fn one_by_one(nodes: &dyn Nodes, board: &Board, plan: Plan) -> f64 {
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < plan.time && count < plan.most {
        nodes.register(0, board.begin());
        count += 1;
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    board.await_reports();
    board.take();
    nodes.clear();
    rate
}

/// The rates of the second part, in registrations per second of all nodes together: one counts the time until the last
/// answer, the other the time until all watches have reported everything.
pub struct Together {
    pub answered: f64,
    pub reported: f64,
}

/// Lets all nodes register at the same time.
pub fn together(nodes: &dyn Nodes, board: &Board, count: usize) -> Together {
    let lanes = nodes.lanes();
    let each = count.div_ceil(lanes);
    let ready = Barrier::new(lanes + 1);
    let begun = thread::scope(|scope| {
        for lane in 0..lanes {
            let ready = &ready;
            let register = move || {
                ready.wait();
                (0..each).for_each(|_| nodes.register(lane, board.begin()));
            };
            thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, register).expect("a thread");
        }
        ready.wait();
        Instant::now()
    });
    let rate = || (lanes * each) as f64 / begun.elapsed().as_secs_f64();
    let answered = rate();
    board.await_reports();
    let reported = rate();
    nodes.clear();
    Together { answered, reported }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the value below which the fraction `part` of the sorted values lies.
fn at(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}
