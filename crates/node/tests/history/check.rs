//! Checks whether a history is linearizable. Items do not depend on each other, so each item is checked separately.
//!
//! The check is the search of Wing and Gong, with Lowe's table of known states. The search builds an order of the
//! operations. At each step it tries every operation that may come next in this order, and checks whether the operation
//! can have got its answer while the item was in its present state. If no operation fits, the search goes back one
//! step. An operation without an answer (its process was killed) may have happened at any time after its call, or
//! never. At some time after the kill of a process, the items that the process had open become free, and keep what that
//! process wrote.
//!
//! If the tasks run on several nodes, the check accepts three answers that it would refuse on one node. All other
//! answers must fit, on any number of nodes.
//!
//! - An access that gets no item because its time is over, or because a node or the catalog could not be asked, says
//!   nothing about the item.
//! - "Not yet" says only that the item exists. The answer may come although the item belongs to the asking task and no
//!   process has it open, because the item may still be on its way to that task's node.
//! - A create may get "exists" although the item was destroyed, or although another task has failed to make it, if this
//!   was less than five seconds ago ([`TAKEN`]). The catalog may still have the name, or the asking node may not know
//!   yet that the name is free.

use std::collections::{BTreeMap, HashSet};

use crate::event::{Event, Kind, Outcome};

/// For this time after an item was destroyed, its name may still count as taken, in nanoseconds.
const TAKEN: u64 = 5_000_000_000;

/// The state of an item that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    owner: u64,
    /// The process that has the item open, and the time at which this process was killed.
    holder: Option<(u64, u64)>,
    value: u64,
}

/// Gives the item's state after an operation that began in the state `state`; `None` if the operation cannot get its
/// recorded answer in this state. An operation without an answer changes the state as if it had succeeded. `taken` says
/// that the item's name may still count as taken although the item does not exist.
fn step(state: Option<State>, e: &Event, across: bool, taken: bool) -> Option<Option<State>> {
    let holds = state.is_some_and(|s| s.holder.is_some_and(|(who, _)| who == e.who));
    // True if the item has no holder, or if its holder was killed before the operation returned.
    let free = |s: &State| s.holder.is_none_or(|(_, killed)| killed < e.returned.unwrap_or(u64::MAX));
    let mine = state.filter(|s| s.owner == e.task() && free(s) && !holds);
    let held = |s: State| State { holder: Some((e.who, e.killed)), ..s };
    match (e.kind, e.outcome) {
        (Kind::Access, Some(Outcome::NotYet)) if across => state.is_some().then_some(state),
        (Kind::Create, Some(Outcome::Exists)) if taken => Some(state),
        (Kind::Access, Some(Outcome::Failed)) => Some(state),
        (Kind::Create | Kind::Find, Some(Outcome::Failed)) => across.then_some(state),
        (Kind::Create, Some(Outcome::Done) | None) => {
            state.is_none().then(|| Some(held(State { owner: e.task(), holder: None, value: 0 })))
        }
        (Kind::Create, Some(Outcome::Exists)) => state.is_some().then_some(state),
        (Kind::Access, None) => mine.map(|s| Some(held(s))),
        (Kind::Access, Some(Outcome::Saw(value))) => mine.filter(|s| s.value == value).map(|s| Some(held(s))),
        // The answer "not yet" is wrong if the item belongs to the asking task and no process has the item open.
        (Kind::Access, Some(Outcome::NotYet)) => state.filter(|s| s.owner != e.task() || s.holder.is_some()).map(Some),
        (Kind::Access | Kind::Find, Some(Outcome::NotFound)) => state.is_none().then_some(None),
        (Kind::Find, Some(Outcome::Saw(owner))) => state.filter(|s| s.owner == owner).map(Some),
        (Kind::Find, None) => Some(state),
        (Kind::Write(value), Some(Outcome::Done) | None) => state.filter(|_| holds).map(|s| Some(State { value, ..s })),
        (Kind::Release, Some(Outcome::Done) | None) => {
            state.filter(|_| holds).map(|s| Some(State { holder: None, ..s }))
        }
        (Kind::Transfer(to), Some(Outcome::Done) | None) => {
            state.filter(|_| holds).map(|s| Some(State { owner: to, holder: None, ..s }))
        }
        (Kind::Destroy, Some(Outcome::Done) | None) => state.filter(|_| holds).map(|_| None),
        _ => None,
    }
}

/// Checks a whole history: the operations on each item separately.
pub fn check(events: &[Event], across: bool) -> Result<(), String> {
    let mut by_key: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    for event in events {
        by_key.entry(event.key).or_default().push(*event);
    }
    for (key, mut events) in by_key {
        events.sort_by_key(|e| e.called);
        linearize(&events, across).map_err(|why| format!("item {key}: {why}"))?;
    }
    Ok(())
}

/// Tells whether the item's name may still count as taken during this operation, although the item does not exist.
fn may_be_taken(events: &[Event], e: &Event) -> bool {
    let leaves_the_name = |of: &&Event| match of.kind {
        Kind::Destroy => true,
        Kind::Create => matches!(of.outcome, None | Some(Outcome::Failed)),
        _ => false,
    };
    let end = |of: &Event| of.returned.unwrap_or(of.killed).saturating_add(TAKEN);
    let before = |of: &&Event| of.called <= e.returned.unwrap_or(u64::MAX) && end(of) >= e.called;
    events.iter().filter(leaves_the_name).any(|of| before(&of))
}

/// Searches for an order of the operations on one item in which all answers are right. Fails if there is no such order.
fn linearize(events: &[Event], across: bool) -> Result<(), String> {
    // An incomplete order of operations: the first operation that it does not contain, the later operations that it
    // contains, and the item's state after all operations that it contains.
    type Known = (usize, Vec<usize>, Option<State>);
    let mut seen: HashSet<Known> = HashSet::new();
    let mut open: Vec<Known> = vec![(0, Vec::new(), None)];
    let mut furthest = 0;
    let taken: Vec<_> = events.iter().map(|e| across && may_be_taken(events, e)).collect();
    while let Some((first, done, state)) = open.pop() {
        furthest = furthest.max(first);
        if first == events.len() {
            return Ok(());
        }
        // If an operation B was called after an operation A had got its answer, B must come after A in the order that
        // is searched. So the next operation in the order must have been called before any other remaining operation
        // got its answer. `bound` is the time of the earliest such answer.
        let mut bound = u64::MAX;
        let mut candidates = Vec::new();
        for (n, event) in events.iter().enumerate().skip(first) {
            if event.called > bound {
                break;
            }
            if done.contains(&n) {
                continue;
            }
            candidates.push(n);
            bound = bound.min(event.returned.unwrap_or(u64::MAX));
        }
        for n in candidates.into_iter().rev() {
            let event = &events[n];
            let mut nexts = Vec::new();
            if let Some(next) = step(state, event, across, taken[n]) {
                nexts.push(next);
            }
            // An operation without an answer may never have happened.
            if event.returned.is_none() {
                nexts.push(state);
            }
            for next in nexts {
                let mut done = done.clone();
                done.push(n);
                done.sort_unstable();
                let mut first = first;
                while done.first() == Some(&first) {
                    done.remove(0);
                    first += 1;
                }
                let known = (first, done, next);
                if seen.insert(known.clone()) {
                    open.push(known);
                }
            }
        }
    }
    let from = furthest.saturating_sub(12);
    let near: Vec<_> = events[from..(furthest + 6).min(events.len())].iter().map(|e| format!("  {e:?}")).collect();
    Err(format!("no order explains what happened near operation {furthest}:\n{}", near.join("\n")))
}

/// Tests the checker before its result is used: it must accept right histories and reject wrong histories.
pub fn selftest() {
    let mut time = 0;
    let mut event = |who: u64, kind, outcome| {
        time += 10;
        Event { who, key: 0, kind, called: time, returned: Some(time + 5), outcome: Some(outcome), killed: u64::MAX }
    };
    use Outcome::{Done, Exists, NotFound, NotYet, Saw};
    let (a, b) = (crate::event::id(0, 0), crate::event::id(1, 0));
    let mut good = vec![
        event(a, Kind::Create, Done),
        event(b, Kind::Create, Exists),
        event(a, Kind::Write(7), Done),
        event(b, Kind::Access, NotYet),
        event(a, Kind::Transfer(1), Done),
        event(a, Kind::Find, Saw(1)),
        event(b, Kind::Access, Saw(7)),
        event(b, Kind::Destroy, Done),
        event(a, Kind::Access, NotFound),
    ];
    assert_eq!(check(&good, false), Ok(()));
    assert_eq!(check(&good, true), Ok(()));
    // An access that overlaps the transfer in time may come before or after the transfer in the order.
    good[6].called = good[4].called - 1;
    assert_eq!(check(&good, false), Ok(()));
    assert_eq!(check(&good, true), Ok(()));
    let wrong = |change: &dyn Fn(&mut Vec<Event>), what: &str| {
        let mut events = good.clone();
        change(&mut events);
        assert!(check(&events, false).is_err(), "not found: {what}");
        assert!(check(&events, true).is_err(), "not found on several nodes: {what}");
    };
    wrong(&|e| e[6].outcome = Some(Saw(8)), "other bytes than were written");
    wrong(&|e| e[3].outcome = Some(Saw(7)), "two owners at once");
    wrong(&|e| e[1].outcome = Some(Done), "made twice");
    wrong(&|e| e[5].outcome = Some(Saw(0)), "a transfer that was undone");
    wrong(&|e| e[8].outcome = Some(Saw(7)), "bytes of what was destroyed");
    wrong(&|e| e[5].outcome = Some(NotFound), "an item that exists and is not found");
    wrong(&|e| e[6].outcome = Some(NotFound), "an item that exists and is not found by its owner");
    wrong(&|e| *e = vec![e[3]], "an item that belongs to another task and was never made");
    wrong(&|e| *e = vec![e[1]], "a name that is taken by no item");
    wrong(&|e| e[8].outcome = Some(NotYet), "an item that was destroyed and counts as existing");
    wrong(&|e| e[7].who = a, "destroyed by another");
    wrong(&|e| e.retain(|e| e.kind != Kind::Transfer(1)), "an owner out of nowhere");
    // On several nodes, the name of a destroyed item may still count as taken for a moment.
    for (late, expected) in [(1, true), (TAKEN + 100, false)] {
        let mut events = good.clone();
        let (called, returned) = (events[8].called + late, Some(events[8].called + late + 5));
        events.push(Event { kind: Kind::Create, outcome: Some(Exists), called, returned, ..good[8] });
        assert!(check(&events, false).is_err(), "a taken name on one node");
        assert_eq!(check(&events, true).is_ok(), expected, "a name that is taken {late} ns later");
    }
    // The process was killed during its write. The write may have happened or not, and the item becomes free.
    let mut killed = good.clone();
    killed[2].returned = None;
    killed[2].outcome = None;
    killed.truncate(3);
    killed.iter_mut().filter(|e| e.who == a).for_each(|e| e.killed = 50);
    let again = crate::event::id(0, 1);
    for (value, expected) in [(7, true), (0, true), (8, false)] {
        let mut events = killed.clone();
        let last = Event { called: 60, returned: Some(70), outcome: Some(Saw(value)), killed: u64::MAX, ..killed[0] };
        events.push(Event { who: again, kind: Kind::Access, ..last });
        assert_eq!(check(&events, false).is_ok(), expected, "{value}");
    }
}

/// Tests the checker with changed copies of a recorded history. In each copy, one `find` of an item that existed all
/// the time has the answer "not found" instead of the item's owner. So the checker must reject each copy. Returns the
/// number of copies.
pub fn selftest_with(events: &[Event], across: bool) -> usize {
    let surely_exists = |find: &Event| {
        let ends = |of: &Event| matches!(of.kind, Kind::Create | Kind::Destroy) && of.outcome != Some(Outcome::Exists);
        let returned = find.returned.unwrap_or(u64::MAX);
        let near = |of: &Event| of.called <= returned && of.returned.is_none_or(|at| at >= find.called);
        !events.iter().any(|of| of.key == find.key && ends(of) && near(of))
    };
    let found = |e: &Event| e.kind == Kind::Find && matches!(e.outcome, Some(Outcome::Saw(_)));
    let finds: Vec<_> =
        (0..events.len()).filter(|n| found(&events[*n]) && surely_exists(&events[*n])).take(5).collect();
    for n in &finds {
        let mut wrong = events.to_vec();
        wrong[*n].outcome = Some(Outcome::NotFound);
        wrong.retain(|e| e.key == events[*n].key);
        assert!(check(&wrong, across).is_err(), "an item that existed counts as missing: {:?}", events[*n]);
    }
    finds.len()
}
