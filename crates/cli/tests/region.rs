//! Tests `crossdock region copy` and `crossdock region move` between two nodes on one machine.

mod common;

use std::io::Read;
use std::process::Child;

use common::{Ended, Place, finish, free_port, signal, until};
use crossdock_client::{ConnectOptions, Mode, ObjectMode, Session};
use rustix::process::Signal;

const SIZE: u64 = 16 << 20;

/// A daemon that gets SIGTERM when this value is dropped.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        signal(self.0.id(), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// The daemons of nodes `a` and `b` in one site.
struct Nodes {
    _daemons: [Ending; 2],
    place: Place,
}

impl Nodes {
    fn start() -> Self {
        let place = Place::new("");
        let port = free_port();
        let serve = |node: &str, catalog: &str| {
            let socket = socket(&place, node);
            let words = ["serve", "--ready", "--socket", &socket, "--site", "hall", "--node", node];
            let mut daemon = place.command(&[&words[..], &["--catalog", catalog]].concat()).spawn().unwrap();
            daemon.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            Ending(daemon)
        };
        let a = serve("a", &format!("keep:127.0.0.1:{port}"));
        let b = serve("b", &format!("embedded:127.0.0.1:{port}"));
        Self { _daemons: [a, b], place }
    }

    fn session(&self, node: &str) -> Session {
        let socket = Some(socket(&self.place, node).into());
        Session::connect(&ConnectOptions { socket, private_daemon: false, ..ConnectOptions::default() }).unwrap()
    }

    /// Runs `crossdock region …` with the daemon of this node.
    fn region(&self, node: &str, words: &[&str]) -> Ended {
        let socket = socket(&self.place, node);
        let words = [&["region"], words, &["--socket", &socket]].concat();
        finish(self.place.command(&words).spawn().unwrap())
    }
}

fn socket(place: &Place, node: &str) -> String {
    place.path().join(node).join("endpoint.sock").display().to_string()
}

/// Makes a region with a text in it, on the node of this session.
fn make(session: &Session, name: &str) {
    let region = session.region(name, Mode::CreateOnly, SIZE, None).unwrap();
    region.text("note", ObjectMode::CreateOnly, None).unwrap().set(name).unwrap();
}

fn note(session: &Session, name: &str) -> Option<String> {
    let region = session.region(name, Mode::OpenOnly, 0, None).ok()?;
    Some(region.text("note", ObjectMode::OpenOnly, None).unwrap().get().unwrap())
}

#[test]
fn a_region_is_copied_to_this_node_and_the_original_stays() {
    let nodes = Nodes::start();
    let (on_a, on_b) = (nodes.session("a"), nodes.session("b"));
    make(&on_a, "frames");
    let copied = nodes.region("b", &["copy", "frames", "later"]);
    assert_eq!((copied.code, copied.out.trim()), (0, "copied region default/frames to default/later on node b"));
    assert_eq!(note(&on_b, "later").as_deref(), Some("frames"), "{}", copied.err);
    assert_eq!(note(&on_a, "frames").as_deref(), Some("frames"));
    // The name of the copy is in use now on all nodes, so a second copy with this name fails.
    let taken = nodes.region("b", &["copy", "default/frames", "default/later"]);
    assert_ne!(taken.code, 0);
    assert!(taken.err.contains("'later'"), "{}", taken.err);
}

#[test]
fn a_region_is_moved_to_this_node_and_back_and_each_end_is_on_one_node() {
    let nodes = Nodes::start();
    let (on_a, on_b) = (nodes.session("a"), nodes.session("b"));
    make(&on_a, "frames");
    for (node, here, there) in [("b", &on_b, &on_a), ("a", &on_a, &on_b)] {
        let moved = nodes.region(node, &["move", "default/frames", "--timeout", "50 s"]);
        assert_eq!((moved.code, moved.out.trim()), (0, &*format!("region default/frames is on node {node}")));
        assert_eq!(note(here, "frames").as_deref(), Some("frames"), "{}", moved.err);
        until("the other node has let the region go", || there.list().unwrap().segments.is_empty());
        // If the region is already on this node, a move leaves it as it is and succeeds.
        assert_eq!(nodes.region(node, &["move", "frames"]).code, 0);
    }
}

#[test]
fn mistakes_are_explained_and_leave_the_region_where_it_is() {
    let nodes = Nodes::start();
    let on_a = nodes.session("a");
    make(&on_a, "frames");
    let missing = nodes.region("b", &["move", "nothing", "--timeout", "200 ms"]);
    assert_ne!(missing.code, 0);
    assert!(missing.err.contains("'nothing'"), "{}", missing.err);
    let open = on_a.region("frames", Mode::OpenOnly, 0, None).unwrap();
    let busy = nodes.region("b", &["move", "frames", "--timeout", "200 ms"]);
    assert_ne!(busy.code, 0);
    assert!(busy.err.contains("open"), "{}", busy.err);
    drop(open);
    assert_eq!(note(&on_a, "frames").as_deref(), Some("frames"));
    // A daemon that is in no site has no other node to copy from, so it refuses.
    let alone = socket(&nodes.place, "alone");
    let mut daemon = nodes.place.command(&["serve", "--ready", "--socket", &alone]).spawn().unwrap();
    daemon.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let _alone = Ending(daemon);
    let refused = nodes.region("alone", &["copy", "frames", "later"]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("--site"), "{}", refused.err);
}
