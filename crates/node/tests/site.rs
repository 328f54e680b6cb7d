//! Tests of daemons of one site on one machine: names, errors that say on which node a name is, restarts, and a node
//! that is cut off.

mod support;

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use crossdock_client::{ConnectOptions, InUse, ItemOptions, Mode, Region, SegmentKind, Session};
use crossdock_layout::Status;
use crossdock_layout::wire::NodeState;
use crossdock_os::spawn;
use support::sites::{Site, until};
use support::{Daemon, kill};

fn session(daemon: &Daemon, task: &str) -> Session {
    Session::connect(&ConnectOptions { task: Some(task.into()), ..daemon.options() }).unwrap()
}

fn region(session: &Session, name: &str, mode: Mode) -> crossdock_client::Result<Region> {
    session.region(name, mode, 1 << 20, None)
}

fn states(daemon: &Daemon) -> Vec<(String, NodeState)> {
    let session = Session::connect(&ConnectOptions { visitor: true, ..daemon.options() }).unwrap();
    session.nodes().unwrap().into_iter().map(|node| (node.name, node.state)).collect()
}

fn is(daemon: &Daemon, node: &str, state: NodeState) -> bool {
    states(daemon).contains(&(node.to_owned(), state))
}

#[test]
fn a_name_belongs_to_one_node_and_errors_say_which() {
    let site = Site::new();
    let (a, b) = (site.keeper(), site.node("b"));
    until("they see each other", || is(&a, "b", NodeState::Joined) && is(&b, "a", NodeState::Joined));
    let (on_a, on_b) = (session(&a, "one"), session(&b, "two"));
    let made = region(&on_a, "x", Mode::CreateOnly).unwrap();
    for mode in [Mode::CreateOnly, Mode::OpenOrCreate, Mode::Recreate] {
        let error = region(&on_b, "x", mode).unwrap_err();
        assert_eq!(error.status, Status::Exists, "{error}");
        assert!(error.to_string().contains("is on node a"), "{error}");
        assert!(error.to_string().contains("Run this task on node a"), "{error}");
    }
    let mut error = None;
    until("b knows of it", || {
        error = region(&on_b, "x", Mode::OpenOnly).err();
        error.as_ref().is_some_and(|error| error.to_string().contains("is on node a"))
    });
    assert_eq!(error.unwrap().status, Status::NotFound);
    // The ids of segments of two nodes differ in their upper bits.
    let other = region(&on_b, "y", Mode::CreateOnly).unwrap();
    assert_ne!(made.id().0 >> 50, other.id().0 >> 50);
    assert!(made.id().0 >> 50 > 0 && other.id().0 >> 50 > 0);
    // After a name is removed, every node of the site can take it.
    drop(made);
    on_a.remove(SegmentKind::Region, "x", InUse::Keep).unwrap();
    until("the name is free", || region(&on_b, "x", Mode::CreateOnly).is_ok());
}

/// The listing shows which transport reaches a node, how fast the node answers, and why no better transport is used.
#[test]
fn the_listing_says_how_a_node_is_reached() {
    let site = Site::new();
    let (a, mut b) = (site.keeper(), site.node("b"));
    let (on_a, on_b) = (session(&a, "one"), session(&b, "two"));
    let other = || on_a.nodes().unwrap().into_iter().find(|node| node.name == "b");
    until("they see each other", || other().is_some());
    let unused = other().unwrap();
    assert_eq!((unused.transport, unused.round_trip, unused.why), (None, None, String::new()), "no link was needed");

    let _item = on_b.create_item("x", &ItemOptions::bytes(100)).unwrap();
    on_a.find_item("x").unwrap();
    until("the round trip is measured", || other().unwrap().round_trip.is_some());
    let linked = other().unwrap();
    assert_eq!(linked.transport.as_deref(), Some("tcp"));
    assert!(linked.why.contains("UCX"), "{}", linked.why);
    let own = on_a.nodes().unwrap().into_iter().find(|node| node.name == "a").unwrap();
    assert_eq!((own.transport, own.round_trip, own.why), (None, None, String::new()));

    let broker = b.broker();
    kill(b.keeper.id(), "KILL");
    b.keeper.wait().unwrap();
    kill(broker, "KILL");
    until("the connection is missed", || other().unwrap().why.contains("no connection"));
}

#[test]
fn a_wait_for_a_name_ends_when_another_node_makes_it() {
    let site = Site::new();
    let (a, b) = (site.keeper(), site.node("b"));
    let (on_a, on_b) = (session(&a, "one"), session(&b, "two"));
    let waiting =
        std::thread::spawn(move || on_b.region("late", Mode::OpenOnly, 0, Some(Duration::from_secs(60))).unwrap_err());
    let _made = region(&on_a, "late", Mode::CreateOnly).unwrap();
    let error = waiting.join().unwrap();
    assert_eq!(error.status, Status::NotFound);
    assert!(error.to_string().contains("is on node a"), "{error}");
}

#[test]
fn a_broker_that_is_killed_keeps_the_nodes_names_and_number() {
    let site = Site::new();
    let (a, b) = (site.keeper(), site.node("b"));
    let (on_a, on_b) = (session(&a, "one"), session(&b, "two"));
    let _made = region(&on_b, "x", Mode::CreateOnly).unwrap();
    for _ in 0..3 {
        b.kill_broker();
        until("b is back", || is(&b, "b", NodeState::Here));
        let error = region(&on_a, "x", Mode::CreateOnly).unwrap_err();
        assert!(error.to_string().contains("is on node b"), "{error}");
    }
    // After its broker was killed, the daemon that keeps the catalog answers the other nodes again.
    a.kill_broker();
    until("a is back", || is(&a, "a", NodeState::Here));
    let error = region(&on_a, "x", Mode::CreateOnly).unwrap_err();
    assert!(error.to_string().contains("is on node b"), "{error}");
    let more = region(&on_b, "y", Mode::CreateOnly).unwrap();
    assert!(more.id().0 >> 50 > 0);
}

/// As `crossdock run` does, the test makes the listening socket of the catalog and passes it to the daemon.
#[test]
fn no_other_program_gets_the_catalogs_port_while_a_broker_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = Site { catalog: listener.local_addr().unwrap().to_string(), ..Site::new() };
    let folder = Daemon::folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossdock-node"));
    spawn::inherit(&mut command, listener.into(), 42);
    let catalog = format!("keep:{}", site.catalog);
    command.arg("--socket").arg(folder.path().join("endpoint.sock")).args(site.arguments("a", &catalog));
    command.args(["--catalog-socket", "42"]).stdout(Stdio::null()).stderr(Stdio::null());
    let a = Daemon { folder, keeper: command.spawn().unwrap() };
    drop(command);
    a.wait_until_up();
    let b = site.node("b");
    let _made = region(&session(&b, "two"), "x", Mode::CreateOnly).unwrap();
    for _ in 0..3 {
        let killed = a.broker();
        kill(killed, "KILL");
        until("another broker keeps the catalog", || {
            let taken = TcpListener::bind(&site.catalog);
            assert!(taken.is_err(), "the port was free");
            a.broker() != killed && is(&a, "a", NodeState::Here)
        });
    }
    let error = region(&session(&a, "one"), "x", Mode::CreateOnly).unwrap_err();
    assert!(error.to_string().contains("is on node b"), "{error}");
}

#[test]
fn a_node_that_is_killed_loses_its_names_and_is_listed_as_gone() {
    let site = Site::new();
    let (a, mut b) = (site.keeper(), site.node("b"));
    let (on_a, on_b) = (session(&a, "one"), session(&b, "two"));
    let _made = region(&on_b, "x", Mode::CreateOnly).unwrap();
    let broker = b.broker();
    kill(b.keeper.id(), "KILL");
    b.keeper.wait().unwrap();
    kill(broker, "KILL");
    until("the name is free", || region(&on_a, "x", Mode::CreateOnly).is_ok());
    until("b is gone", || is(&a, "b", NodeState::Gone));
}

#[test]
fn a_node_without_the_catalog_makes_no_names_and_everything_else_goes_on() {
    let site = Site::new();
    let (mut a, b) = (site.keeper(), site.node("b"));
    let on_b = session(&b, "two");
    let _made = region(&on_b, "x", Mode::CreateOnly).unwrap();
    let _own = on_b.create_item("own", &ItemOptions::bytes(8)).unwrap();
    // The daemon that keeps the catalog is stopped but not dead, so the catalog does not answer.
    let broker = a.broker();
    kill(broker, "STOP");
    until("b is cut off", || is(&b, "b", NodeState::CutOff));
    let error = region(&on_b, "y", Mode::CreateOnly).unwrap_err();
    assert_eq!(error.status, Status::Disconnected, "{error}");
    assert!(error.to_string().contains(&format!("node b has been cut off from site '{}'", site.name)), "{error}");
    region(&on_b, "x", Mode::OpenOnly).unwrap();
    // Without the catalog, node b finds its own items. If node b does not know an item, it cannot find out whether the
    // item is on another node.
    assert_eq!(on_b.find_item("own").unwrap().key, "own");
    for error in [on_b.find_item("i").unwrap_err(), on_b.access_item("i", None).map(drop).unwrap_err()] {
        assert_eq!(error.status, Status::Disconnected, "{error}");
        assert!(error.to_string().contains("item 'i' cannot be looked up in the site"), "{error}");
    }
    kill(broker, "CONT");
    until("b is back", || is(&b, "b", NodeState::Here));
    assert_eq!(on_b.find_item("i").unwrap_err().status, Status::NotFound);
    until("names are made again", || region(&on_b, "y", Mode::CreateOnly).is_ok());
    a.keeper.kill().unwrap();
}

#[test]
fn two_daemons_of_one_name_are_not_in_the_site_at_once() {
    let site = Site::new();
    let (_a, b) = (site.keeper(), site.node("b"));
    let folder = Daemon::folder();
    let catalog = format!("embedded:{}", site.catalog);
    let mut second = support::spawn(&folder.path().join("endpoint.sock"), &site.arguments("b", &catalog));
    // The second daemon waits for the node name, and gets it after the first daemon has left.
    let socket = folder.path().join("endpoint.sock");
    let up = || Session::connect(&ConnectOptions { socket: Some(socket.clone()), ..ConnectOptions::default() }).is_ok();
    std::thread::sleep(Duration::from_millis(500));
    assert!(!up(), "two daemons are node b");
    drop(b);
    until("the second one has the name", up);
    second.kill().unwrap();
    second.wait().unwrap();
}

#[test]
fn what_cannot_work_ends_the_start() {
    let folder = Daemon::folder();
    let refused = |arguments: &[&str]| {
        let mut daemon = support::spawn(&folder.path().join("endpoint.sock"), arguments);
        assert!(!daemon.wait().unwrap().success(), "{arguments:?}");
    };
    refused(&["--site", "here", "--node", "a/b", "--catalog", "keep:127.0.0.1:0"]);
    refused(&["--site", "here", "--node", "a", "--catalog", "keep:0.0.0.0:0"]);
    refused(&["--site", "here", "--node", "a", "--catalog", "keep:127.0.0.1:0", "--catalog-socket", "77"]);
    refused(&["--site", "here", "--node", "a", "--catalog", "keep:127.0.0.1:0", "--certificates", "/nowhere"]);
}
