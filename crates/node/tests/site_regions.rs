//! Tests of regions that are copied and moved between daemons of one site.

mod support;

use std::time::Duration;

use crossdock_client::{ConnectOptions, Handle, InUse, Mode, ObjectMode, Order, Region, SegmentKind, Session, Status};
use crossdock_layout::Rights;
use crossdock_layout::wire::{Grant, NodeState};
use crossdock_os::socket;
use support::Daemon;
use support::sites::{Site, World, connect, until};

const LONG: Duration = Duration::from_secs(60);
const SIZE: u64 = 256 << 20;
/// The number of objects in a filled region.
const OBJECTS: u64 = 300;

fn value(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5555
}

/// Fills a region with objects of all kinds, and also stores handles of these objects in the region itself. The region
/// grows several times, and some objects are removed again.
fn fill(region: &Region, elements: u64) -> Vec<Handle> {
    let mut handles = Vec::new();
    for n in 0..OBJECTS {
        let vector = region.vector::<u64>(&format!("v/{n}"), ObjectMode::CreateOnly, None).unwrap();
        let length = if n == 7 { elements } else { 10 + n * 13 % 500 };
        vector.assign(&(0..length).map(|k| value(n + k)).collect::<Vec<_>>()).unwrap();
        handles.push(vector.save().unwrap());
    }
    for n in (0..OBJECTS).step_by(3).filter(|n| *n != 0) {
        region.remove(&format!("v/{n}")).unwrap();
        handles[n as usize] = Handle::NONE;
    }
    let stored: Vec<_> = handles.iter().flat_map(|handle| [handle.segment, handle.offset]).collect();
    let index = region.vector::<u64>("index", ObjectMode::CreateOnly, None).unwrap();
    index.assign(&stored).unwrap();
    region.text("note", ObjectMode::CreateOnly, None).unwrap().set("written on node a").unwrap();
    let field = region.ndarray::<f64>("field", ObjectMode::CreateOnly, None).unwrap();
    field.reshape(Order::Fortran, &[30, 40]).unwrap();
    field.copy_from(&(0..1200).map(f64::from).collect::<Vec<_>>()).unwrap();
    handles
}

/// Checks that the region has the objects that [`fill`] has made. Finds them by their names and by the handles that are
/// stored in the region.
fn check(region: &Region, elements: u64) {
    assert_eq!(region.text("note", ObjectMode::OpenOnly, None).unwrap().get().unwrap(), "written on node a");
    let field = region.ndarray::<f64>("field", ObjectMode::OpenOnly, None).unwrap();
    assert_eq!((field.shape().unwrap(), field.order().unwrap()), (vec![30, 40], Order::Fortran));
    assert_eq!(field.to_vec().unwrap(), (0..1200).map(f64::from).collect::<Vec<_>>());
    let index = region.vector::<u64>("index", ObjectMode::OpenOnly, None).unwrap().to_vec().unwrap();
    assert_eq!(index.len() as u64, 2 * OBJECTS);
    for (n, handle) in (0..OBJECTS).zip(index.chunks(2)) {
        let handle = Handle { segment: handle[0], offset: handle[1] };
        if n % 3 == 0 && n != 0 {
            assert!(handle.is_none());
            assert!(region.find(&format!("v/{n}")).is_err());
            continue;
        }
        let named = region.vector::<u64>(&format!("v/{n}"), ObjectMode::OpenOnly, None).unwrap();
        let length = if n == 7 { elements } else { 10 + n * 13 % 500 };
        let expected: Vec<_> = (0..length).map(|k| value(n + k)).collect();
        assert!(region.load_vector::<u64>(handle).unwrap().to_vec().unwrap() == expected, "vector {n} by its handle");
        assert!(named.to_vec().unwrap() == expected, "vector {n} by its name");
    }
}

/// Allocates and frees much memory in the region. A check would notice if a part of the region's memory were missing,
/// or were also part of another region.
fn change(region: &Region) {
    for n in 0..200u64 {
        let more = region.vector::<u64>(&format!("more/{n}"), ObjectMode::CreateOnly, None).unwrap();
        more.assign(&vec![n; 3000]).unwrap();
    }
    for n in 0..200u64 {
        region.remove(&format!("more/{n}")).unwrap();
    }
}

fn names(session: &Session) -> Vec<String> {
    session.list().unwrap().segments.iter().map(|segment| segment.name.clone()).collect()
}

/// Adds up the bytes that all segments of the session's node have reserved.
fn counted(session: &Session) -> u64 {
    session.list().unwrap().segments.iter().map(|segment| segment.reserved).sum()
}

fn made(session: &Session, name: &str, elements: u64) -> Vec<Handle> {
    let region = session.region(name, Mode::CreateOnly, SIZE, None).unwrap();
    fill(&region, elements)
}

#[test]
fn a_region_of_another_node_cannot_be_opened_and_the_error_says_what_to_do() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "one"), world.session(1, "two"));
    made(&on_a, "frames", 100);
    for (mode, status) in [(Mode::OpenOnly, Status::NotFound), (Mode::OpenOrCreate, Status::Exists)] {
        let mut error = None;
        until("the node knows the name", || {
            error = on_b.region("frames", mode, SIZE, None).err();
            error.as_ref().is_some_and(|error| error.to_string().contains("is on node a"))
        });
        let error = error.unwrap();
        assert_eq!(error.status, status, "{error}");
        for hint in ["crossdock region move frames", "crossdock region copy", "through a port"] {
            assert!(error.to_string().contains(hint), "{error}");
        }
    }
}

#[test]
fn a_copy_has_everything_of_the_region_and_its_handles_are_valid() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "one"), world.session(1, "two"));
    let elements = 3 << 20;
    let handles = made(&on_a, "frames", elements);
    let before = counted(&on_a);
    let copy = on_b.copy_region("frames", "copy", LONG).unwrap();
    assert_eq!((copy.name(), copy.capacity()), ("copy", SIZE));
    check(&copy, elements);
    assert_eq!(counted(&on_b), before, "the copy counts against the quota as the region does");
    // A handle alone is enough to find the region; the program need not open the region by name.
    let (whole, place) = (on_b.region_of(handles[1]).unwrap(), copy.load(handles[1], None).unwrap());
    assert_eq!((whole.id(), place.offset), (copy.id(), handles[1].offset));
    let saved = copy.vector::<u64>("v/1", ObjectMode::OpenOnly, None).unwrap().save().unwrap();
    assert_eq!((saved.segment, saved.offset), (copy.id().0, handles[1].offset));
    assert_eq!(copy.load(Handle { segment: 77, ..saved }, None).unwrap_err().status, Status::BadHandle);
    // A change of one region must not change the other region.
    change(&copy);
    copy.text("note", ObjectMode::OpenOnly, None).unwrap().set("changed on node b").unwrap();
    let original = on_a.region("frames", Mode::OpenOnly, 0, Some(LONG)).unwrap();
    check(&original, elements);
    change(&original);
    // Node a, which has the original, makes a copy of the copy. Handles of the original and of the first copy must be
    // valid in this second copy.
    drop((copy, whole));
    on_b.region("copy", Mode::OpenOnly, 0, None)
        .unwrap()
        .text("note", ObjectMode::OpenOnly, None)
        .unwrap()
        .set("written on node a")
        .unwrap();
    let third = on_a.copy_region("copy", "third", LONG).unwrap();
    check(&third, elements);
    third.load(saved, None).unwrap();
    // A region can also be copied on its own node.
    drop(third);
    check(&on_a.copy_region("third", "fourth", LONG).unwrap(), elements);
    assert_eq!(names(&on_a), ["frames", "third", "fourth"]);
    assert_eq!(names(&on_b), ["copy"]);
}

#[test]
fn a_region_that_moves_is_on_one_node_only_and_its_handles_stay_valid() {
    let world = World::new(3);
    let sessions: Vec<_> = (0..3).map(|node| world.session(node, "worker")).collect();
    let handles = made(&sessions[0], "frames", 100_000);
    // The region goes to each node several times, and back to the node that made it.
    for step in 1..8 {
        let (from, to) = ((step - 1) * 2 % 3, step * 2 % 3);
        let region = sessions[to].move_region("frames", LONG).unwrap();
        check(&region, 100_000);
        region.load(handles[1], None).unwrap();
        change(&region);
        // If the region is already on this node, `move_region` only opens it, even while this task has the region open.
        assert_eq!(sessions[to].move_region("frames", LONG).unwrap().id(), region.id());
        let node = ["a", "b", "c"][to];
        until("the former node has let it go", || names(&sessions[from]).is_empty());
        assert_eq!(counted(&sessions[from]), 0);
        let mut error = None;
        until("the former node knows where it is", || {
            error = sessions[from].region("frames", Mode::OpenOnly, 0, None).err();
            error.as_ref().is_some_and(|error| error.to_string().contains(&format!("is on node {node}")))
        });
        assert_eq!(error.unwrap().status, Status::NotFound);
        let taken = sessions[from].region("frames", Mode::CreateOnly, SIZE, None).unwrap_err();
        assert_eq!(taken.status, Status::Exists, "{taken}");
    }
    // The node to which the region has moved last now has the region's name. When the region is removed on that node,
    // the name is free.
    sessions[2].remove_region("frames").unwrap();
    until("the name is free", || sessions[1].region("frames", Mode::CreateOnly, SIZE, None).is_ok());
}

#[test]
fn a_region_that_a_task_has_open_is_neither_copied_nor_moved() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "solver"), world.session(1, "viewer"));
    made(&on_a, "frames", 1000);
    let open = on_a.region("frames", Mode::OpenOnly, 0, None).unwrap();
    let short = Duration::from_millis(300);
    for refused in [on_b.copy_region("frames", "copy", short), on_b.move_region("frames", short)] {
        let error = refused.unwrap_err();
        assert_eq!(error.status, Status::Busy, "{error}");
        assert!(error.to_string().contains("task 'solver'"), "{error}");
    }
    // With a longer timeout, `move_region` waits until the task has closed the region.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| on_b.move_region("frames", LONG).unwrap());
        open.text("note", ObjectMode::OpenOnly, None).unwrap().set("the last word").unwrap();
        drop(open);
        let region = waiting.join().unwrap();
        assert_eq!(region.text("note", ObjectMode::OpenOnly, None).unwrap().get().unwrap(), "the last word");
    });
}

#[test]
fn a_copy_that_fails_leaves_nothing_and_the_region_stays_usable() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "one"), world.session(1, "two"));
    let quota = 8 << 20;
    for (session, quota) in [(&on_a, 0), (&on_b, quota)] {
        session.make_workflow("small", quota).unwrap();
    }
    let inside = |node: usize| {
        let workflow = Some("small".to_owned());
        Session::connect(&ConnectOptions { workflow, timeout: LONG, ..world.daemons[node].options() }).unwrap()
    };
    let (in_a, in_b) = (inside(0), inside(1));
    let region = in_a.region("big", Mode::CreateOnly, 64 << 20, None).unwrap();
    region.vector::<u64>("v", ObjectMode::CreateOnly, None).unwrap().assign(&vec![7; 2 << 20]).unwrap();
    drop(region);
    for (name, size) in [("little", 1 << 20), ("fits", 6 << 20)] {
        let region = in_a.region(name, Mode::CreateOnly, size, None).unwrap();
        region.text("note", ObjectMode::CreateOnly, None).unwrap().set(name).unwrap();
    }
    // The capacity of `big` is larger than the quota of the workflow on node b.
    let error = in_b.move_region("big", LONG).unwrap_err();
    assert_eq!(error.status, Status::NoSpace, "{error}");
    assert!(error.to_string().contains("quota"), "{error}");
    // After this, the quota of the workflow on node b has no room for `fits`.
    let other = in_b.region("other", Mode::CreateOnly, 8 << 20, None).unwrap();
    other.allocate(6 << 20, 16).unwrap();
    let error = in_b.move_region("fits", LONG).unwrap_err();
    assert_eq!(error.status, Status::NoSpace, "{error}");
    // The name `other` is taken on node b, and the name `little` on node a.
    for taken in ["other", "little"] {
        let error = in_b.copy_region("fits", taken, LONG).unwrap_err();
        assert_eq!(error.status, Status::Exists, "{error}");
    }
    let error = in_b.copy_region("fits", "fits", LONG).unwrap_err();
    assert_eq!(error.status, Status::Invalid, "{error}");
    let error = in_b.copy_region("nothing", "copy", Duration::from_millis(200)).unwrap_err();
    assert_eq!(error.status, Status::NotFound, "{error}");
    assert_eq!(names(&in_b), ["other"]);
    for name in ["big", "little", "fits"] {
        let region = in_a.region(name, Mode::OpenOnly, 0, Some(LONG)).unwrap();
        region.allocate(100, 16).unwrap();
    }
    drop(other);
    in_b.remove_region("other").unwrap();
    until("the memory is free", || counted(&in_b) == 0);
    let moved = in_b.move_region("fits", LONG).unwrap();
    assert_eq!(moved.text("note", ObjectMode::OpenOnly, None).unwrap().get().unwrap(), "fits");
}

#[test]
fn a_task_needs_grants_for_what_it_copies_and_moves() {
    let world = World::new(2);
    let (on_a, on_b) = (world.session(0, "one"), world.session(1, "two"));
    for session in [&on_a, &on_b] {
        session.make_workflow("w", 0).unwrap();
    }
    let connect = |socket: std::path::PathBuf, workflow: Option<&str>| {
        let workflow = workflow.map(str::to_owned);
        Session::connect(&ConnectOptions { socket: Some(socket), workflow, timeout: LONG, ..Default::default() })
            .unwrap()
    };
    let in_a = connect(world.daemons[0].socket(), Some("w"));
    made(&in_a, "frames", 100);
    let grant = |pattern: &str, rights| Grant { pattern: pattern.into(), kind: SegmentKind::Region, rights };
    let all = Rights::READ.with(Rights::WRITE).with(Rights::REMOVE).with(Rights::CREATE);
    let lists = [
        (vec![], false, false),
        (vec![grant("frames", Rights::READ)], false, false),
        (vec![grant("frames", Rights::READ), grant("copy*", Rights::CREATE)], false, false),
        (vec![grant("copy*", all)], false, false),
        (vec![grant("frames", Rights::READ), grant("copy*", Rights::CREATE.with(Rights::READ))], true, false),
        (vec![grant("frames", Rights::READ.with(Rights::WRITE).with(Rights::REMOVE))], false, false),
        (vec![grant("frames", all), grant("copy*", all)], true, true),
    ];
    for (n, (grants, may_copy, may_move)) in lists.into_iter().enumerate() {
        let path = world.daemons[1].folder.path().join(format!("task{n}.sock"));
        on_b.make_endpoint("w", &format!("task{n}"), socket::listen(&path).unwrap(), &grants).unwrap();
        let task = connect(path.clone(), None);
        let copied = task.copy_region("frames", &format!("copy{n}"), LONG).map(drop).map_err(|error| error.status);
        assert_eq!(copied, if may_copy { Ok(()) } else { Err(Status::Denied) }, "list {n}");
        let moved = task.move_region("frames", LONG).map(drop).map_err(|error| error.status);
        assert_eq!(moved, if may_move { Ok(()) } else { Err(Status::Denied) }, "list {n}");
        drop(task);
        std::fs::remove_file(path).unwrap();
    }
}

/// Moves a region several times, and kills a broker during each move, each time at a different moment. Afterwards
/// exactly one of the nodes has the region, with all of its bytes, and no unfinished copy is left.
fn moves_while_a_broker_is_killed(kill: impl Fn(&World, usize) -> &Daemon) {
    let world = World::new(2);
    let sessions: Vec<_> = (0..2).map(|node| world.session(node, "worker")).collect();
    let elements = 4 << 20;
    made(&sessions[0], "frames", elements);
    let mut at = 0;
    let (mut moved, mut stayed) = (0, 0);
    for step in 0..8u64 {
        let to = 1 - at;
        let outcome = std::thread::scope(|scope| {
            let moving = scope.spawn(|| sessions[to].move_region("frames", LONG).map(drop));
            std::thread::sleep(Duration::from_millis(step * 7 % 50));
            kill(&world, to).kill_broker();
            moving.join().unwrap()
        });
        // The call to move the region may also succeed, because the library repeats it when the daemon runs again.
        let has = |node: usize| sessions[node].region("frames", Mode::OpenOnly, 0, None).ok();
        let mut found = None;
        until("exactly one node has the region", || {
            let all: Vec<_> = (0..2).filter_map(|node| Some((node, has(node)?))).collect();
            assert!(all.len() < 2, "both nodes have the region");
            found = all.into_iter().next();
            found.is_some()
        });
        let (node, region) = found.unwrap();
        assert!(outcome.is_err() || node == to, "the call succeeded, and the region is on the other node");
        check(&region, elements);
        drop(region);
        until("nothing else is left", || names(&sessions[node]) == ["frames"] && names(&sessions[1 - node]).is_empty());
        if node == to {
            moved += 1
        } else {
            stayed += 1
        };
        at = node;
    }
    println!("{moved} moves succeeded, {stayed} did not");
}

#[test]
fn a_region_is_on_exactly_one_node_when_the_broker_of_its_node_is_killed() {
    moves_while_a_broker_is_killed(|world, to| &world.daemons[1 - to]);
}

#[test]
fn a_region_is_on_exactly_one_node_when_the_broker_of_the_next_node_is_killed() {
    moves_while_a_broker_is_killed(|world, to| &world.daemons[to]);
}

/// Kills the broker and the keeper of a node while a region moves, at several moments. Afterwards the other node has
/// the whole region, or no node has the region and its name is free. The region may be lost only if the killed node was
/// the only node that had it.
fn moves_while_a_node_is_killed(dies: usize) {
    let site = Site::new();
    let mut daemons = site.daemons(3);
    let (from, to, lives) = (1, 2, 3 - dies);
    let names_of_nodes = ["a", "b", "c"];
    let on_a = connect(&daemons[0], "watcher");
    let elements = 4 << 20;
    let (mut moved, mut stayed, mut lost) = (0, 0, 0);
    for pause in [5, 100] {
        let sessions: Vec<_> = daemons.iter().map(|daemon| connect(daemon, "worker")).collect();
        made(&sessions[from], "frames", elements);
        let outcome = std::thread::scope(|scope| {
            let moving = scope.spawn(|| sessions[to].move_region("frames", Duration::from_secs(8)).map(drop));
            std::thread::sleep(Duration::from_millis(pause));
            daemons[dies].kill_node();
            moving.join().unwrap()
        });
        until("the site knows that the node is gone", || {
            let nodes = sessions[lives].nodes().unwrap();
            nodes.iter().any(|node| node.name == names_of_nodes[dies] && node.state == NodeState::Gone)
        });
        let mut region = None;
        let mut is_undecided = false;
        until("the living node has the region, has nothing of it, or does not know whether it has moved", || {
            match sessions[lives].region("frames", Mode::OpenOnly, 0, None) {
                Ok(found) => region = Some(found),
                Err(error) => is_undecided = error.to_string().contains("Only that node knows"),
            }
            region.is_some() || is_undecided || names(&sessions[lives]).is_empty()
        });
        if is_undecided {
            // Only the killed node could say whether the region has moved. So the test removes the region by force.
            assert_eq!(dies, to, "node {} does not decide", names_of_nodes[dies]);
            let refused = sessions[lives].remove_region("frames").unwrap_err();
            assert_eq!(refused.status, Status::Busy, "{refused}");
            sessions[lives].remove(SegmentKind::Region, "frames", InUse::Force).unwrap();
        }
        let is_lost = region.is_none();
        if let Some(region) = region {
            check(&region, elements);
            drop(region);
            until("nothing else is left", || names(&sessions[lives]) == ["frames"]);
            let taken = on_a.region("frames", Mode::CreateOnly, SIZE, None).unwrap_err();
            assert_eq!(taken.status, Status::Exists, "{taken}");
            sessions[lives].remove_region("frames").unwrap();
        }
        match (lives == to, is_lost) {
            // Only the killed node had the region, so the region is lost, and the call to move it fails.
            (true, true) => {
                let error = outcome.unwrap_err();
                assert!(error.to_string().replace('\'', "").contains("node b"), "{error}");
                lost += 1;
            }
            (true, false) => {
                outcome.unwrap();
                moved += 1;
            }
            // The region had already moved to the killed node, and is lost with it.
            (false, true) => lost += 1,
            (false, false) => {
                outcome.unwrap_err();
                stayed += 1;
            }
        }
        until("the name is free", || on_a.region("frames", Mode::CreateOnly, SIZE, None).is_ok());
        on_a.remove_region("frames").unwrap();
        drop(sessions);
        // A new daemon replaces the killed daemon in the next round.
        daemons[dies] = site.node(names_of_nodes[dies]);
    }
    println!("{moved} moves succeeded, {stayed} regions stayed, {lost} were lost with their node");
}

#[test]
fn a_region_is_on_one_node_or_lost_with_it_when_its_node_is_killed_during_the_move() {
    moves_while_a_node_is_killed(1);
}

#[test]
fn a_region_stays_or_is_lost_with_the_next_node_when_that_node_is_killed_during_the_move() {
    moves_while_a_node_is_killed(2);
}
