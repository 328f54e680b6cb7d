//! Tests of a site of three hosts that talk through TLS. Each host is a network namespace. The tests cut one host off,
//! cut the network in one direction, cut off the catalog's host, and make a link slow. They need root.
//! `tests/nodes/run` starts them.

mod support;

use std::process::Command;
use std::time::Duration;

use crossdock_client::{
    ConnectOptions, Detect, End, Handle, InUse, Message, Mode, ObjectMode, Pattern, PortOptions, Publisher, Region,
    SegmentKind, SeriesOptions, Session, Variable,
};
use crossdock_layout::Status;
use crossdock_layout::wire::NodeState;
use crossdock_link::Authority;
use crossdock_os::testing::until_within;
use support::series::{self, shows};
use support::{Daemon, spawn_on_host};

fn run(words: &[&str]) {
    let done = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(Duration::from_secs(90), what, holds);
}

/// Three hosts on a switch, each with a daemon. The first host's daemon keeps the catalog.
struct Hosts {
    daemons: Vec<Daemon>,
    network: Network,
}

/// The network namespaces of the test. They are removed when this value is dropped.
struct Network {
    prefix: String,
}

impl Network {
    fn new(name: &str) -> Self {
        let network = Self { prefix: format!("cd{}{name}", std::process::id()) };
        let switch = network.switch();
        run(&["ip", "netns", "add", &switch]);
        run(&["ip", "-n", &switch, "link", "add", "switch", "type", "bridge"]);
        run(&["ip", "-n", &switch, "link", "set", "switch", "up"]);
        for n in 1..=3 {
            let (host, port, address) = (network.host(n), format!("port{n}"), format!("10.77.0.{n}/24"));
            run(&["ip", "netns", "add", &host]);
            run(&["ip", "-n", &host, "link", "set", "lo", "up"]);
            run(&["ip", "-n", &host, "link", "add", "eth0", "type", "veth", "peer", "name", &port, "netns", &switch]);
            run(&["ip", "-n", &switch, "link", "set", &port, "master", "switch", "up"]);
            run(&["ip", "-n", &host, "addr", "add", &address, "dev", "eth0"]);
            run(&["ip", "-n", &host, "link", "set", "eth0", "up"]);
        }
        network
    }

    fn switch(&self) -> String {
        format!("{}s", self.prefix)
    }

    fn host(&self, n: usize) -> String {
        format!("{}h{n}", self.prefix)
    }

    /// Cuts a host off if `is_cut` is true; otherwise ends the cut. While a host is cut off, the switch passes no
    /// packet to it or from it. No daemon gets a message about the cut.
    fn cut(&self, n: usize, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        run(&["ip", "-n", &self.switch(), "link", "set", &format!("port{n}"), state]);
    }

    /// Makes a host drop all packets that arrive if `is_deaf` is true; otherwise makes it accept packets again. A deaf
    /// host can still send.
    fn deafen(&self, n: usize, is_deaf: bool) {
        let how = if is_deaf { "-A" } else { "-D" };
        run(&["ip", "netns", "exec", &self.host(n), "iptables", how, "INPUT", "-i", "eth0", "-j", "DROP"]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in [self.host(1), self.host(2), self.host(3), self.switch()] {
            Command::new("ip").args(["netns", "del", &name]).output().ok();
        }
    }
}

impl Hosts {
    fn new(name: &str) -> Self {
        let network = Network::new(name);
        let authority = Authority::make("site", Duration::from_secs(3600)).unwrap();
        let mut hosts = Self { daemons: Vec::new(), network };
        for n in 1..=3 {
            let folder = Daemon::folder();
            let (node, papers) = (format!("n{n}"), folder.path().join("papers"));
            std::fs::create_dir(&papers).unwrap();
            authority.issue(&node).unwrap().save(&papers).unwrap();
            let catalog = if n == 1 { "keep:10.77.0.1:7700" } else { "embedded:n1@10.77.0.1:7700" };
            let site = ["--site", "hall", "--node", &node, "--catalog", catalog, "--lease-ms", "6000"];
            let more = ["--certificates", papers.to_str().unwrap()];
            let socket = folder.path().join("d/endpoint.sock");
            let keeper = spawn_on_host(&hosts.network.host(n), &socket, &[&site[..], &more[..]].concat());
            hosts.daemons.push(Daemon { folder, keeper });
            until("the daemon listens", || hosts.connect(n).is_ok());
        }
        for n in 1..=3 {
            hosts.until_all_joined(n);
        }
        hosts
    }

    fn connect(&self, n: usize) -> crossdock_client::Result<Session> {
        let socket = self.daemons[n - 1].folder.path().join("d/endpoint.sock");
        let options = ConnectOptions { socket: Some(socket), private_daemon: false, ..ConnectOptions::default() };
        Session::connect(&options)
    }

    fn session(&self, n: usize) -> Session {
        self.connect(n).unwrap()
    }

    /// Gives the state of host `of`, as host `n` reports it.
    fn state(&self, n: usize, of: usize) -> Option<NodeState> {
        let nodes = self.session(n).nodes().unwrap();
        nodes.into_iter().find(|node| node.name == format!("n{of}")).map(|node| node.state)
    }

    fn until_all_joined(&self, n: usize) {
        for of in (1..=self.daemons.len()).filter(|of| *of != n) {
            until("a node is joined", || self.state(n, of) == Some(NodeState::Joined));
        }
    }

    fn until_state(&self, n: usize, of: usize, state: NodeState) {
        until(&format!("n{n} says that n{of} is {}", state.word()), || self.state(n, of) == Some(state));
    }
}

fn make(session: &Session, name: &str) -> crossdock_client::Result<Region> {
    session.region(name, Mode::CreateOnly, 1 << 20, None)
}

fn open(session: &Session, name: &str) -> crossdock_client::Result<Region> {
    session.region(name, Mode::OpenOnly, 0, None)
}

/// Tells whether the outcome is an error that names this host as the host that has the name.
fn is_on<T>(outcome: crossdock_client::Result<T>, host: usize) -> bool {
    outcome.err().is_some_and(|error| error.to_string().contains(&format!("is on node n{host}")))
}

#[test]
fn names_are_one_hosts_and_a_host_that_was_cut_off_learns_what_it_lost() {
    let hosts = Hosts::new("a");
    let (one, two, three) = (hosts.session(1), hosts.session(2), hosts.session(3));
    let (_x, _y) = (make(&two, "x").unwrap(), make(&two, "y").unwrap());
    assert!(is_on(make(&one, "x"), 2) && is_on(make(&three, "y"), 2));
    hosts.network.cut(2, true);
    hosts.until_state(2, 2, NodeState::CutOff);
    let error = make(&two, "z").unwrap_err();
    assert_eq!(error.status, Status::Disconnected, "{error}");
    open(&two, "x").unwrap();
    // The catalog is on the other side of the cut. There the lease of the cut-off host ends, so other hosts can take
    // its names.
    until("n1 takes the name", || make(&one, "x").is_ok());
    hosts.until_state(3, 2, NodeState::Gone);
    hosts.network.cut(2, false);
    hosts.until_state(2, 2, NodeState::Here);
    until("n2 learns that x is another's", || is_on(open(&two, "x"), 1));
    // A node can make a name only after it has announced all names that it has. So when `make` returns, the other nodes
    // know the older names of this node.
    make(&two, "z").unwrap();
    open(&two, "y").unwrap();
    assert!(is_on(make(&three, "y"), 2));
    hosts.until_all_joined(3);
}

#[test]
fn a_host_that_hears_nothing_is_cut_off_and_one_on_a_slow_link_is_not() {
    let hosts = Hosts::new("b");
    let (one, two, three) = (hosts.session(1), hosts.session(2), hosts.session(3));
    let slow =
        ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "256kbit", "burst", "16kbit", "latency", "400ms"];
    run(&[&["ip", "netns", "exec", &hosts.network.host(3)], &slow[..]].concat());
    let _x = make(&two, "x").unwrap();
    hosts.network.deafen(2, true);
    hosts.until_state(2, 2, NodeState::CutOff);
    assert_eq!(make(&two, "z").unwrap_err().status, Status::Disconnected);
    hosts.until_state(1, 2, NodeState::Gone);
    for n in 0..20 {
        let name = format!("slow{n}");
        let made = make(&three, &name).unwrap();
        assert!(is_on(make(&one, &name), 3));
        drop(made);
        three.remove(SegmentKind::Region, &name, InUse::Keep).unwrap();
    }
    hosts.network.deafen(2, false);
    hosts.until_state(2, 2, NodeState::Here);
    // A node can make a name only after it has announced all names that it has. So when `make` returns, the other nodes
    // know the older names of this node.
    make(&two, "z").unwrap();
    assert!(is_on(make(&one, "x"), 2));
}

#[test]
fn while_the_catalogs_host_is_cut_off_the_others_go_on_and_have_their_names_afterwards() {
    let hosts = Hosts::new("c");
    let (one, two, three) = (hosts.session(1), hosts.session(2), hosts.session(3));
    let (_x, _y) = (make(&two, "x").unwrap(), make(&three, "y").unwrap());
    hosts.network.cut(1, true);
    hosts.until_state(2, 2, NodeState::CutOff);
    hosts.until_state(3, 3, NodeState::CutOff);
    open(&two, "x").unwrap();
    make(&one, "z").unwrap();
    hosts.network.cut(1, false);
    hosts.until_state(2, 2, NodeState::Here);
    hosts.until_state(3, 3, NodeState::Here);
    // A node can make a name only after it has announced all names that it has. So when both calls of `make` have
    // returned, all nodes know the older names.
    make(&two, "after2").unwrap();
    make(&three, "after3").unwrap();
    assert!(is_on(make(&one, "x"), 2) && is_on(make(&one, "y"), 3) && is_on(make(&two, "z"), 1));
    for n in 1..=3 {
        hosts.until_all_joined(n);
    }
}

#[test]
fn messages_wait_for_a_short_cut_and_the_loss_of_a_host_is_the_death_of_its_tasks() {
    let hosts = Hosts::new("d");
    let (two, three) = (hosts.session(2), hosts.session(3));
    let long = Some(Duration::from_secs(90));
    let options = PortOptions { pattern: Some(Pattern::OneToOne), capacity: 8, persistent: false };
    let consumer = three.port("p", End::Consumer, &options, None).unwrap();
    let producer = two.port("p", End::Producer, &options, None).unwrap();
    let home = two.region("data", Mode::CreateOnly, 16 << 20, None).unwrap();
    let vector = home.vector::<u64>("v", ObjectMode::CreateOnly, None).unwrap();
    vector.assign(&(0..100_000).collect::<Vec<u64>>()).unwrap();
    let handle = vector.save().unwrap();
    let sender = std::thread::spawn(move || {
        (0..120).for_each(|tag| producer.send(&Message::new(handle, tag), long).unwrap());
        producer
    });
    for tag in 0..120 {
        let message = consumer.receive(long).unwrap();
        assert_eq!(message.tag, tag);
        let there = three.region_of(message.handle).unwrap();
        let found = there.load_vector::<u64>(message.handle).unwrap();
        assert_eq!((found.len().unwrap(), found.get(99_999).unwrap()), (100_000, 99_999));
        consumer.release(&message).unwrap();
        if tag == 30 {
            // The cut is shorter than the lease, so the host is not lost.
            hosts.network.cut(2, true);
            std::thread::sleep(Duration::from_millis(700));
            hosts.network.cut(2, false);
        }
    }
    let producer = sender.join().unwrap();
    hosts.network.cut(2, true);
    let error = consumer.receive(long).unwrap_err();
    assert_eq!(error.status, Status::PeerDied, "{error}");
    hosts.network.cut(2, false);
    let error = (0..9).find_map(|tag| producer.send(&Message::new(Handle::NONE, tag), long).err()).unwrap();
    assert_eq!(error.status, Status::PeerDied, "{error}");
}

/// Publishes a version whose elements all have the value `value`. Its version number must be `value`, too.
fn publish(publisher: &mut Publisher, value: u64) {
    assert_eq!(series::publish(publisher, value), value);
}

#[test]
fn a_cut_and_a_slow_link_cost_versions_and_no_publisher_waits_for_them() {
    let hosts = Hosts::new("e");
    let (two, three) = (hosts.session(2), hosts.session(3));
    let long = Duration::from_secs(90);
    let u = Variable::new("u", "u64", &[1 << 17]);
    let spec = SeriesOptions { chunk: Some(4096), detect: Detect::Compare, ..SeriesOptions::of(vec![u]) };
    let mut publisher = two.publisher("field", &spec).unwrap();
    publish(&mut publisher, 1);
    let mut there = three.observe("field", long).unwrap();
    shows(&there.each(long).unwrap(), 1);
    // The cut is shorter than the lease, so the host is not lost.
    hosts.network.cut(2, true);
    (2..=50).for_each(|value| publish(&mut publisher, value));
    hosts.network.cut(2, false);
    until("the newest is there", || there.newest() == 50);
    shows(&there.latest().unwrap(), 50);
    // At the speed of 32 Mbit/s, a version of 1 MiB takes a quarter of a second.
    let slow = "tc qdisc add dev eth0 root tbf rate 32mbit burst 64kbit latency 400ms";
    let slow: Vec<_> = slow.split(' ').collect();
    run(&[&["ip", "netns", "exec", &hosts.network.host(2)], &slow[..]].concat());
    (51..=150).for_each(|value| publish(&mut publisher, value));
    let (mut seen, mut missed) = (50, 0);
    while seen < 150 {
        let version = there.each(long).unwrap();
        shows(&version, version.sequence());
        (seen, missed) = (version.sequence(), missed + version.missed());
    }
    assert!(missed > 0, "the publisher was faster than the link");
    // The cut lasts longer than the lease. So the other hosts treat the host as lost, and its publisher as dead.
    hosts.network.cut(2, true);
    publish(&mut publisher, 151);
    let error = there.next(long).unwrap_err();
    assert_eq!(error.status, Status::PeerDied, "{error}");
    assert!(error.to_string().contains(".on.n2"), "{error}");
    shows(&there.latest().unwrap(), 150);
    hosts.network.cut(2, false);
    let mut again = three.observe("field", long).unwrap();
    shows(&again.latest().unwrap(), 151);
}
