//! Tests with fixed schedules: at a chosen moment of a move, a message gets lost, or a broker is killed.

use crossdock_catalog::Faults;
use crossdock_layout::wire::{InUse, OpenMode, Request, SegmentKind};
use crossdock_layout::{Rights, SegmentId};
use crossdock_node::broker::{Event, NodeEvent};

use crate::host::{MOVE_ENDED, Question, Reply, open_region};
use crate::network::Message;
use crate::world::{NAMES, Planted, World};

/// The first task of each node.
const ON_A: usize = 0;
const ON_B: usize = 2;
const A: usize = 0;
const B: usize = 1;
/// More effects than any move has.
const EFFECTS: usize = 400;

fn is_report(message: &Message) -> bool {
    matches!(message, Message::Ask { question: Question::Broker { service: MOVE_ENDED, .. }, .. })
}

fn is_about_moves(message: &Message) -> bool {
    matches!(message, Message::Ask { question: Question::Broker { .. }, .. })
}

fn is_hand_over(message: &Message) -> bool {
    matches!(message, Message::Ask { question: Question::HandOver { .. }, .. })
}

/// Makes a world with a region `x` on node a, which a task has written and closed.
fn world() -> (World, u64, SegmentId) {
    let mut world = World::new(0, Planted::Nothing);
    pass(&mut world, 3, 20);
    world.ask(ON_A, open_region("x", OpenMode::CreateOnly, Rights::READ.with(Rights::WRITE)));
    pass(&mut world, 3, 20);
    write_and_close(&mut world, ON_A);
    pass(&mut world, 3, 20);
    let (segment, line) = world.named(A, "x")[0];
    (world, line, segment)
}

/// Lets time pass, and delivers all messages that do not get lost.
fn pass(world: &mut World, rounds: usize, ms: u64) {
    for _ in 0..rounds {
        world.round(ms);
        for _ in 0..200 {
            world.network_step(false);
        }
    }
}

fn write_and_close(world: &mut World, t: usize) {
    assert!(!world.tasks[t].open.is_empty(), "the task has no region open");
    (0..4).for_each(|_| world.write(t));
    world.close_all(t);
}

fn begin_move(world: &mut World) {
    let request = Request::CopyRegion { wait_ms: 20_000, moves: true, name: "x".into(), copy: "x".into() };
    world.ask(ON_B, request);
}

/// Moves the region to node b. Then a task of node b changes the region and removes it.
fn move_change_and_remove(world: &mut World, line: u64) {
    begin_move(world);
    pass(world, 20, 20);
    assert_eq!(world.places(line).iter().filter(|(n, _)| *n == B).count(), 1, "the region has not moved");
    world.want(ON_B, "x");
    write_and_close(world, ON_B);
    world.remove(ON_B, "x");
    pass(world, 2, 20);
    assert!(world.named(B, "x").is_empty(), "the region was not removed");
}

fn settled(world: &mut World, line: u64) -> Vec<(usize, String)> {
    let end = world.settle();
    assert_eq!(world.wrong.take().map_or(end, Err), Ok(()));
    world.places(line)
}

/// Checks that no task can open the region on node a again, because the bytes there are older than the bytes that the
/// task on node b wrote.
fn node_a_never_opens_it(world: &mut World, line: u64) {
    for _ in 0..10 {
        world.want(ON_A, "x");
        pass(world, 5, 100);
        assert!(world.tasks[ON_A].open.is_empty(), "the removed region is open on its former node");
        assert_eq!(world.wrong, None);
    }
    assert_eq!(settled(world, line), []);
}

#[test]
fn a_region_that_moved_and_was_removed_does_not_come_back_if_the_report_gets_lost() {
    let (mut world, line, _) = world();
    world.network.loses = Some(is_report);
    move_change_and_remove(&mut world, line);
    node_a_never_opens_it(&mut world, line);
}

#[test]
fn a_region_that_moved_and_was_removed_does_not_come_back_if_its_former_broker_restarts() {
    let (mut world, line, _) = world();
    world.network.loses = Some(is_about_moves);
    move_change_and_remove(&mut world, line);
    world.crash_broker(A);
    node_a_never_opens_it(&mut world, line);
}

/// While node a cannot ask node b, it learns from the catalog that node b no longer has the region's name. Node a must
/// not conclude that the region has not moved.
#[test]
fn a_free_name_does_not_mean_that_the_region_has_not_moved() {
    let (mut world, line, segment) = world();
    world.network.loses = Some(is_about_moves);
    begin_move(&mut world);
    pass(&mut world, 20, 20);
    world.crash_broker(A);
    pass(&mut world, 20, 100);
    world.want(ON_B, "x");
    write_and_close(&mut world, ON_B);
    world.remove(ON_B, "x");
    pass(&mut world, 20, 100);
    assert!(world.is_handed_over(A, segment), "node a has decided without node b");
    node_a_never_opens_it(&mut world, line);
}

#[test]
fn a_late_answer_does_not_remove_a_later_region_of_the_same_name() {
    let (mut world, line, segment) = world();
    world.network.loses =
        Some(|message| is_about_moves(message) || matches!(message, Message::Reply { reply: Reply::Broker(_), .. }));
    move_change_and_remove(&mut world, line);
    let becomes = world.nodes[A].lasting.segments[&segment].handed_over.as_ref().unwrap().becomes;
    // A task of node a removes the region by force, and makes another region of the same name.
    world.ask(ON_A, Request::Remove { kind: SegmentKind::Region, in_use: InUse::Force, name: "x".into() });
    pass(&mut world, 5, 20);
    world.ask(ON_A, open_region("x", OpenMode::CreateOnly, Rights::READ.with(Rights::WRITE)));
    pass(&mut world, 5, 20);
    write_and_close(&mut world, ON_A);
    let (later, later_line) = world.named(A, "x")[0];
    assert_ne!(later, segment);
    let body = [&segment.0.to_le_bytes()[..], &becomes.0.to_le_bytes(), &1u32.to_le_bytes()].concat();
    report(&mut world, body);
    assert_eq!(world.named(A, "x"), [(later, later_line)]);
    assert_eq!(settled(&mut world, later_line), [(A, "x".to_owned())]);
}

fn report(world: &mut World, body: Vec<u8>) {
    let (id, node) = (world.fresh(), NAMES[B].to_owned());
    world.event(A, Event::Nodes(NodeEvent::Asked { id, node, service: MOVE_ENDED, body }));
}

#[test]
fn a_report_about_another_move_changes_nothing() {
    let (mut world, line, segment) = world();
    world.network.loses = Some(is_about_moves);
    begin_move(&mut world);
    pass(&mut world, 20, 20);
    let becomes = world.nodes[A].lasting.segments[&segment].handed_over.as_ref().unwrap().becomes;
    for moved in [0u32, 1] {
        let another = becomes.0 + 1;
        report(&mut world, [&segment.0.to_le_bytes()[..], &another.to_le_bytes(), &moved.to_le_bytes()].concat());
        let another = segment.0 + 1;
        report(&mut world, [&another.to_le_bytes()[..], &becomes.0.to_le_bytes(), &moved.to_le_bytes()].concat());
        assert!(world.is_handed_over(A, segment));
    }
    assert_eq!(settled(&mut world, line), [(B, "x".to_owned())]);
}

/// The move fails. Node b forgets it only after node a has promised not to hand the region over any more. If a
/// HAND_OVER arrives after that, node a must refuse it. Otherwise no node could decide where the region is.
#[test]
fn a_hand_over_that_arrives_after_the_end_of_its_move_is_refused() {
    let (mut world, line, segment) = world();
    world.network.loses = Some(|message| {
        is_hand_over(message)
            || matches!(message, Message::Ask { question: Question::CopyEnded { .. } | Question::CopyState { .. }, .. })
    });
    begin_move(&mut world);
    pass(&mut world, 80, 100);
    let hand_over = world.network.lost.iter().position(|(.., message)| is_hand_over(message)).expect("no hand-over");
    let (from, to, message) = world.network.lost.swap_remove(hand_over);
    assert!(world.nodes[B].lasting.arrivals.is_empty(), "node b still remembers the move");
    let Message::Ask { question, .. } = message else { unreachable!() };
    let reply = world.answer(to, from, question);
    assert!(matches!(reply, Some(Reply::Refused(_))), "{reply:?}");
    assert!(!world.is_handed_over(A, segment));
    assert_eq!(settled(&mut world, line), [(A, "x".to_owned())]);
}

/// The move fails, so node b must give the region's name back in the catalog, but some of its requests to the catalog
/// fail. Meanwhile a task of node b wants to make another region of this name.
#[test]
fn a_region_that_has_not_moved_keeps_its_name_although_a_task_of_the_other_node_wants_the_name() {
    for fails in 0..10 {
        let (mut world, line, _) = world();
        world.network.loses = Some(|message| matches!(message, Message::Reply { reply: Reply::Nothing, .. }));
        begin_move(&mut world);
        let ended = |world: &mut World| {
            pass(world, 1, 20);
            world.tasks[ON_B].pending.is_none()
        };
        assert!((0..400).any(|_| ended(&mut world)), "the move does not end");
        world.catalog_fails(B, Faults { fail: fails, ..Faults::default() });
        world.ask(ON_B, open_region("x", OpenMode::CreateOnly, Rights::READ.with(Rights::WRITE)));
        pass(&mut world, 50, 100);
        assert!(world.tasks[ON_B].open.is_empty(), "there are two regions of one name after {fails} failures");
        assert_eq!(settled(&mut world, line), [(A, "x".to_owned())]);
    }
}

/// Moves the region. After `effects` effects, kills the broker whose effect would be the next one; if `loses_daemon` is
/// true, kills its whole daemon. Returns whether the move had enough effects for the kill, whether the region was
/// handed over, and where the region is at the end.
fn killed_after(effects: usize, loses_daemon: bool, loses: fn(&Message) -> bool) -> (bool, bool, Vec<(usize, String)>) {
    let (mut world, line, segment) = world();
    world.network.loses = Some(loses);
    (world.fuse, world.fuse_loses_daemon) = (Some(effects), loses_daemon);
    begin_move(&mut world);
    pass(&mut world, 30, 20);
    let burned = world.fuse.is_none();
    let was_handed_over = world.is_handed_over(A, segment);
    (burned, was_handed_over, settled(&mut world, line))
}

#[test]
fn a_region_is_on_one_node_whichever_broker_is_killed_at_any_effect_of_its_move() {
    for loses in [|_: &Message| false, is_report, is_about_moves] {
        let mut places = [0, 0];
        for effects in 0..EFFECTS {
            let (burned, _, at) = killed_after(effects, false, loses);
            let [(n, _)] = at[..] else { panic!("after {effects} effects the region is at {at:?}") };
            places[n] += 1;
            if !burned {
                break;
            }
        }
        assert!(places.iter().all(|count| *count > 10), "too few kills: {places:?}");
    }
}

/// If the daemon of node b is lost, the region is on node a only if it was not handed over. If the daemon of node a is
/// lost, the region is on node b only if it has moved. No task gets bytes that are older than the last bytes that were
/// written.
#[test]
fn a_region_is_on_at_most_one_node_whichever_daemon_is_lost_at_any_effect_of_its_move() {
    let mut lost_after_hand_over = 0;
    for effects in 0..EFFECTS {
        let (burned, was_handed_over, at) = killed_after(effects, true, is_about_moves);
        assert!(at.len() <= 1, "after {effects} effects the region is at {at:?}");
        assert!(!was_handed_over || at.iter().all(|(n, _)| *n == B), "the region came back after {effects} effects");
        lost_after_hand_over += usize::from(was_handed_over && at.is_empty());
        if !burned {
            break;
        }
    }
    assert!(lost_after_hand_over > 0, "no daemon was lost after the region was handed over");
}
