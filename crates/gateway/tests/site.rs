//! Gateways of several nodes that share one catalog, on loopback.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossdock_gateway::{CatalogAddress, Claimed, Gateway, GatewayEvent, GatewayOptions, GatewayRequest, Name};
use crossdock_layout::Status;
use crossdock_layout::wire::SegmentKind;
use crossdock_link::{Authority, Choice, Peer, Refusal, Serve, Source, SourceId};
use crossdock_os::{Deadline, event};
use tempfile::TempDir;

/// A gateway of the test, and its events that the test has not used yet.
struct Node {
    gateway: Gateway,
    news: Vec<GatewayEvent>,
}

/// Finds a port below those that the kernel gives to outgoing connections, so that the port is still free a moment
/// later.
fn free_port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16;
    loop {
        let port = 12_000 + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr().unwrap().to_string();
        }
    }
}

fn options(node: &str, catalog: CatalogAddress, folder: &Path) -> GatewayOptions {
    GatewayOptions {
        token: node.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte)),
        // The lease lasts longer than a thread has to wait for a CPU on a loaded machine.
        lease: Duration::from_secs(6),
        ..GatewayOptions::new("here", node, catalog, folder.join("catalog"))
    }
}

fn embedded(address: &str) -> CatalogAddress {
    CatalogAddress::Embedded { node: String::new(), address: address.into() }
}

/// The services of a test node. Service 7 answers with the reversed body. The bytes of an object of kind item all have
/// the value of the object's number.
struct Answers;

impl Serve for Answers {
    fn answer(&self, peer: &Peer, service: u32, body: &[u8], _: Deadline) -> Result<Vec<u8>, Refusal> {
        match service {
            7 => Ok(body.iter().rev().copied().collect()),
            _ => Err(Refusal::new(Status::Invalid, format!("node '{}' asked service {service}", peer.node.name))),
        }
    }

    fn open(&self, _: &Peer, source_id: &SourceId) -> Result<Arc<dyn Source>, Refusal> {
        Ok(Arc::new(vec![source_id.object as u8; 1 << 20]))
    }
}

#[test]
fn a_node_asks_and_pulls_from_another_one_and_knows_its_round_trip() {
    let site = Site::new();
    let mut a = Node::start(&site.keeper());
    let mut b = Node::start(&site.other("b"));
    a.until("b is there", |news| matches!(news, GatewayEvent::Node(place) if place.node == "b").then_some(()));
    b.until("a is there", |news| matches!(news, GatewayEvent::Node(place) if place.node == "a").then_some(()));
    let by = || Deadline::after(Duration::from_secs(60));
    for (from, to) in [(&a, "b"), (&b, "a")] {
        let nodes = from.gateway.nodes();
        assert_eq!(nodes.ask(to, 7, b"abc", by()).unwrap(), b"cba");
        assert_eq!(nodes.ask(to, 8, b"", by()).unwrap_err().status, Status::Invalid);
        let mut memory = vec![0; 1 << 20];
        let source_id = SourceId { kind: SegmentKind::Item, object: 9, epoch: 1 };
        nodes.pull(to, &source_id, 0, &mut memory, by()).unwrap();
        assert!(memory.iter().all(|byte| *byte == 9));
        let unknown = nodes.ask("z", 7, b"", by()).unwrap_err();
        assert_eq!(unknown.status, Status::Disconnected, "{unknown}");
    }
    a.until("the round trip is known", |news| match news {
        GatewayEvent::Links(links) => {
            links.iter().any(|link| link.node == "b" && link.round_trip.is_some()).then_some(())
        }
        _ => None,
    });
    // The next daemon of node `b` listens at another address, and the link of `a` connects to it.
    b.leave();
    a.until("b is gone", |news| matches!(news, GatewayEvent::NodeGone { node } if node == "b").then_some(()));
    let _b = Node::start(&GatewayOptions { token: 1234, ..site.other("b") });
    a.until("b is back", |news| matches!(news, GatewayEvent::Node(place) if place.node == "b").then_some(()));
    assert_eq!(a.gateway.nodes().ask("b", 7, b"xyz", by()).unwrap(), b"zyx");
}

#[test]
fn nodes_that_may_use_ucx_measure_it_and_say_whether_pulls_go_by_it() {
    let site = Site::new();
    let may = |options| GatewayOptions { trusted_network: true, transport: Choice::Ucx, ..options };
    let mut a = Node::start(&may(site.keeper()));
    let _b = Node::start(&may(site.other("b")));
    a.until("b is there", |news| matches!(news, GatewayEvent::Node(place) if place.node == "b").then_some(()));
    let source_id = SourceId { kind: SegmentKind::Item, object: 9, epoch: 1 };
    for _ in 0..6 {
        let mut memory = vec![0; 1 << 20];
        let by = Deadline::after(Duration::from_secs(60));
        a.gateway.nodes().pull("b", &source_id, 0, &mut memory, by).unwrap();
        assert!(memory.iter().all(|byte| *byte == 9));
    }
    let has_ucx = crossdock_os::ucx::Library::load().is_ok();
    a.until("the link says by what it pulls", |news| {
        let GatewayEvent::Links(links) = news else { return None };
        let link = links.iter().find(|link| link.node == "b")?;
        let says = if has_ucx {
            link.transport == "tcp, pulls by ucx" || link.why.starts_with("ucx was slower: ")
        } else {
            link.why.starts_with("no UCX: ")
        };
        says.then_some(())
    });
}

impl Node {
    fn start(options: &GatewayOptions) -> Self {
        Self { gateway: Gateway::start(options, Arc::new(Answers)).unwrap(), news: Vec::new() }
    }

    fn leave(self) {
        self.gateway.leave();
    }

    /// Waits for the first event that `pick` accepts, and takes it out of the list.
    fn until<T>(&mut self, what: &str, mut pick: impl FnMut(&GatewayEvent) -> Option<T>) -> T {
        let by = Deadline::after(Duration::from_secs(60));
        loop {
            self.news.extend(self.gateway.news());
            if let Some((at, found)) = self.news.iter().enumerate().find_map(|(at, news)| Some((at, pick(news)?))) {
                self.news.remove(at);
                return found;
            }
            assert!(!by.passed(), "waited in vain until {what}: {:?}", self.news);
            event::wait_readable(self.gateway.bell(), by).unwrap();
        }
    }

    fn joined(&mut self) -> u64 {
        self.until("it joins", |news| match news {
            GatewayEvent::Joined { number } => Some(*number),
            _ => None,
        })
    }

    fn claim(&mut self, name: &Name) -> Claimed {
        self.gateway.order(GatewayRequest::Claim(name.clone()));
        self.until("the claim is answered", |news| match news {
            GatewayEvent::Claimed { name: found, outcome } if found == name => Some(outcome.clone()),
            _ => None,
        })
    }
}

fn name(name: &str) -> Name {
    Name { workflow: "w".into(), kind: SegmentKind::Region, name: name.into() }
}

struct Site {
    folder: TempDir,
    address: String,
}

impl Site {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), address: free_port() }
    }

    fn keeper(&self) -> GatewayOptions {
        options("a", CatalogAddress::Keep(self.address.clone()), self.folder.path())
    }

    fn other(&self, node: &str) -> GatewayOptions {
        options(node, embedded(&self.address), self.folder.path())
    }
}

#[test]
fn nodes_get_numbers_of_their_own_and_see_each_other_come_and_go() {
    let site = Site::new();
    let mut a = Node::start(&site.keeper());
    let mut b = Node::start(&site.other("b"));
    let (first, second) = (a.joined(), b.joined());
    assert_ne!(first, second);
    let number = |node: &'static str| {
        move |news: &GatewayEvent| match news {
            GatewayEvent::Node(place) if place.node == node => Some(place.number),
            _ => None,
        }
    };
    assert_eq!(a.until("b is seen", number("b")), second);
    assert_eq!(b.until("a is seen", number("a")), first);
    b.leave();
    let gone = |news: &GatewayEvent| (*news == GatewayEvent::NodeGone { node: "b".into() }).then_some(());
    a.until("b is gone", gone);
    // A node that joins again under its name has the same number.
    let mut again = Node::start(&site.other("b"));
    assert_eq!(again.joined(), second);
}

#[test]
fn a_name_belongs_to_the_first_and_is_free_again_when_it_is_released_or_its_node_has_left() {
    let site = Site::new();
    let mut a = Node::start(&site.keeper());
    let mut b = Node::start(&site.other("b"));
    a.joined();
    b.joined();
    assert_eq!(a.claim(&name("x")), Claimed::Ours);
    assert_eq!(a.claim(&name("x")), Claimed::Ours);
    assert!(matches!(b.claim(&name("x")), Claimed::Theirs(place) if place.node == "a"));
    b.until("x is known", |news| (*news == GatewayEvent::Named { name: name("x"), node: "a".into() }).then_some(()));
    a.gateway.order(GatewayRequest::Release(name("x")));
    b.until("x is free", |news| (*news == GatewayEvent::Unnamed { name: name("x") }).then_some(()));
    assert_eq!(b.claim(&name("x")), Claimed::Ours);
    assert_eq!(b.claim(&name("y")), Claimed::Ours);
    // Names that are not announced are released.
    b.gateway.order(GatewayRequest::Announce(vec![name("y")]));
    a.until("x is free", |news| (*news == GatewayEvent::Unnamed { name: name("x") }).then_some(()));
    b.leave();
    a.until("y is free", |news| (*news == GatewayEvent::Unnamed { name: name("y") }).then_some(()));
    assert_eq!(a.claim(&name("y")), Claimed::Ours);
}

/// A name that is given back belongs to the lease of the node that gets it. So the name remains when the lease of the
/// node that gave it back ends.
#[test]
fn a_name_that_was_taken_goes_back_to_its_node_or_is_free_without_that_node() {
    let site = Site::new();
    let mut a = Node::start(&site.keeper());
    let mut b = Node::start(&site.other("b"));
    let mut c = Node::start(&site.other("c"));
    a.joined();
    b.joined();
    c.joined();
    let is_at = |node: &str| {
        let named = GatewayEvent::Named { name: name("x"), node: node.into() };
        move |news: &GatewayEvent| (*news == named).then_some(())
    };
    assert_eq!(b.claim(&name("x")), Claimed::Ours);
    a.until("b has x", is_at("b"));
    c.gateway.order(GatewayRequest::Take { name: name("x"), from: "b".into() });
    a.until("c has taken x", is_at("c"));
    c.gateway.order(GatewayRequest::GiveBack { name: name("x"), to: "b".into() });
    a.until("x is back", is_at("b"));
    c.leave();
    a.until("c is gone", |news| (*news == GatewayEvent::NodeGone { node: "c".into() }).then_some(()));
    assert!(matches!(a.claim(&name("x")), Claimed::Theirs(place) if place.node == "b"));
    a.gateway.order(GatewayRequest::Take { name: name("x"), from: "b".into() });
    a.until("a has taken x", is_at("a"));
    b.leave();
    a.until("b is gone", |news| (*news == GatewayEvent::NodeGone { node: "b".into() }).then_some(()));
    a.gateway.order(GatewayRequest::GiveBack { name: name("x"), to: "b".into() });
    a.until("x is free", |news| (*news == GatewayEvent::Unnamed { name: name("x") }).then_some(()));
}

#[test]
fn another_daemon_of_the_same_name_waits_and_says_who_has_it() {
    let site = Site::new();
    let mut a = Node::start(&site.keeper());
    a.joined();
    let mut b = Node::start(&site.other("b"));
    b.joined();
    let mut second = Node::start(&GatewayOptions { token: 99, ..site.other("b") });
    let why = second.until("it is refused", |news| match news {
        GatewayEvent::CutOff { why } => Some(why.clone()),
        _ => None,
    });
    assert!(why.contains("another daemon, at 127.0.0.1:"), "{why}");
    assert!(why.contains("is node 'b'"), "{why}");
    b.leave();
    second.joined();
}

#[test]
fn a_broker_that_was_restarted_goes_on_with_the_lease_of_the_former_one() {
    let site = Site::new();
    let mut a = Node::start(&site.keeper());
    a.joined();
    let mut b = Node::start(&site.other("b"));
    let number = b.joined();
    assert_eq!(b.claim(&name("x")), Claimed::Ours);
    // The former daemon was killed, so it has not ended its lease.
    let mut next = Node::start(&site.other("b"));
    assert_eq!(next.joined(), number);
    next.gateway.order(GatewayRequest::Announce(vec![name("x")]));
    assert_eq!(next.claim(&name("x")), Claimed::Ours);
    assert!(matches!(a.claim(&name("x")), Claimed::Theirs(place) if place.node == "b"));
}

/// A broker that fails drops its gateway, and the members of its node may live. The lease of this test does not end by
/// itself.
#[test]
fn a_gateway_that_is_dropped_keeps_its_node_and_its_names_and_one_that_leaves_gives_them_up() {
    let site = Site::new();
    let mut a = Node::start(&site.keeper());
    a.joined();
    let options = GatewayOptions { lease: Duration::from_secs(600), ..site.other("b") };
    let mut b = Node::start(&options);
    let number = b.joined();
    assert_eq!(b.claim(&name("x")), Claimed::Ours);
    drop(b);
    // The number comes from the node's own entry.
    match a.claim(&name("x")) {
        Claimed::Theirs(place) => assert_eq!((place.node.as_str(), place.number), ("b", number)),
        other => panic!("the name is not b's any more: {other:?}"),
    }
    let mut next = Node::start(&options);
    assert_eq!(next.joined(), number);
    assert_eq!(next.claim(&name("x")), Claimed::Ours);
    next.leave();
    a.until("b is gone", |news| (*news == GatewayEvent::NodeGone { node: "b".into() }).then_some(()));
    assert_eq!(a.claim(&name("x")), Claimed::Ours);
}

#[test]
fn a_node_that_was_cut_off_says_so_comes_back_and_learns_what_it_lost() {
    let site = Site::new();
    let mut a = Node::start(&site.keeper());
    a.joined();
    let mut b = Node::start(&site.other("b"));
    let number = b.joined();
    assert_eq!(b.claim(&name("x")), Claimed::Ours);
    assert_eq!(b.claim(&name("y")), Claimed::Ours);
    drop(a);
    b.until("b is cut off", |news| matches!(news, GatewayEvent::CutOff { .. }).then_some(()));
    assert!(matches!(b.claim(&name("z")), Claimed::Failed(_)));
    // The journal of the catalog is lost, so the new catalog knows nothing of `b`, as if the lease of `b` had ended.
    // Then `a` claims the name `x`, before `b` has joined again.
    std::fs::remove_dir_all(site.folder.path().join("catalog")).unwrap();
    let mut a = Node::start(&site.keeper());
    a.joined();
    assert_eq!(a.claim(&name("x")), Claimed::Ours);
    // `b` keeps the number that its ids contain, although `a` joined the new catalog first.
    assert_eq!(b.joined(), number);
    b.gateway.order(GatewayRequest::Announce(vec![name("x"), name("y")]));
    let place = b.until("x is contested", |news| match news {
        GatewayEvent::Contested { name: found, place } if *found == name("x") => Some(place.node.clone()),
        _ => None,
    });
    assert_eq!(place, "a");
    let announced = |news: &GatewayEvent| match news {
        GatewayEvent::Announced { name } => Some(name.clone()),
        _ => None,
    };
    assert_eq!(b.until("y is announced", announced), name("y"));
    assert!(matches!(a.claim(&name("y")), Claimed::Theirs(place) if place.node == "b"));
}

/// The keeper of this test accepts connections, and never sends a byte.
#[test]
fn a_gateway_ends_soon_while_the_catalog_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let catalog = embedded(&listener.local_addr().unwrap().to_string());
    let node = Node::start(&options("b", catalog, folder.path()));
    thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    node.leave();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(7), "the gateway ended after {took:?}");
}

#[test]
fn a_node_whose_number_another_node_has_stays_out() {
    let site = Site::new();
    let mut a = Node::start(&site.keeper());
    let taken = a.joined();
    let mut b = Node::start(&GatewayOptions { number: taken, ..site.other("b") });
    let refused = |news: &GatewayEvent| match news {
        GatewayEvent::CutOff { why } => Some(why.clone()),
        _ => None,
    };
    let why = b.until("it is refused", refused);
    assert!(why.contains("remove its journal"), "{why}");
    let mut c = Node::start(&site.other("c"));
    let number = c.joined();
    let mut other = Node::start(&GatewayOptions { number: number + 7, ..site.other("c") });
    assert!(other.until("it is refused", refused).contains("remove its journal"));
}

#[test]
fn inside_tls_nodes_join_only_with_certificates_of_the_sites_authority() {
    let site = Site::new();
    let authority = Authority::make("site", Duration::from_secs(3600)).unwrap();
    let papers = |authority: &Authority, node: &str, folder: &str| {
        let folder = site.folder.path().join(folder);
        std::fs::create_dir(&folder).unwrap();
        authority.issue(node).unwrap().save(&folder).unwrap();
        Some(folder)
    };
    let at = CatalogAddress::Embedded { node: "a".into(), address: site.address.clone() };
    let mut a = Node::start(&GatewayOptions { certificates: papers(&authority, "a", "a"), ..site.keeper() });
    let inside = |certificates| GatewayOptions { catalog: at.clone(), certificates, ..site.other("b") };
    let mut b = Node::start(&inside(papers(&authority, "b", "b")));
    a.joined();
    b.joined();
    drop(b);
    let other = Authority::make("other", Duration::from_secs(3600)).unwrap();
    let refused = |options: &GatewayOptions| {
        let mut node = Node::start(options);
        node.until("it is refused", |news| matches!(news, GatewayEvent::CutOff { .. }).then_some(()));
        thread::sleep(Duration::from_millis(300));
        assert!(!node.gateway.news().iter().any(|news| matches!(news, GatewayEvent::Joined { .. })));
    };
    refused(&inside(papers(&other, "b", "foreign")));
    refused(&site.other("b"));
}

/// The test runs the catalog and the links over gRPC. Only node `b` chooses gRPC. Node `a` chooses no transport, so
/// it accepts gRPC as well as TCP.
#[cfg(feature = "grpc")]
#[test]
fn nodes_that_use_grpc_join_ask_and_pull() {
    let site = Site::new();
    let mut a = Node::start(&site.keeper());
    let mut b = Node::start(&GatewayOptions { transport: Choice::Grpc, ..site.other("b") });
    a.joined();
    b.joined();
    for (node, other, used) in [(&mut a, "b", "grpc"), (&mut b, "a", "grpc")] {
        let nodes = node.gateway.nodes();
        let by = || Deadline::after(Duration::from_secs(60));
        assert_eq!(nodes.ask(other, 7, b"abc", by()).unwrap(), b"cba");
        let source_id = SourceId { kind: SegmentKind::Item, object: 9, epoch: 1 };
        let mut memory = vec![0; 5000];
        nodes.pull(other, &source_id, 0, &mut memory, by()).unwrap();
        assert_eq!(memory, [9; 5000]);
        let seen = node.until("the link is reported", |news| match news {
            GatewayEvent::Links(links) => links.iter().find(|link| link.round_trip.is_some()).cloned(),
            _ => None,
        });
        assert_eq!((seen.node.as_str(), seen.transport.as_str()), (other, used), "{seen:?}");
        assert!(seen.why.contains("grpc") || seen.why.starts_with("tcp: "), "{seen:?}");
    }
}

#[test]
fn what_cannot_work_is_refused_at_the_start() {
    let site = Site::new();
    let refused = |options: GatewayOptions, part: &str| {
        let why = Gateway::start(&options, Arc::new(Answers)).err().expect("it was started");
        assert!(why.contains(part), "{why}");
    };
    refused(GatewayOptions { node: "a/b".into(), ..site.keeper() }, "no name of a node");
    refused(GatewayOptions { site: String::new(), ..site.keeper() }, "no name of a site");
    refused(GatewayOptions { catalog: CatalogAddress::Keep("0.0.0.0:0".into()), ..site.keeper() }, "--trusted-network");
    refused(GatewayOptions { certificates: Some("/nowhere".into()), ..site.keeper() }, "/nowhere");
    drop(Node::start(&GatewayOptions {
        catalog: CatalogAddress::Keep("0.0.0.0:0".into()),
        trusted_network: true,
        ..site.keeper()
    }));
}
