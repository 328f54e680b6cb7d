//! Tests of links between two hosts, with TLS, over gRPC and over UCX. Each host is a network namespace. The tests have
//! a slow network, cuts in one direction and in both directions, and a daemon that is killed.
//!
//! The tests run this program again in a network namespace of its own, with the test `child`. That process makes the
//! second namespace and starts node `b` in it. Node `b` is this program with the test `child`, too. An environment
//! variable names the folder of the certificates of `b`, and so tells the process to be node `b`. Each namespace ends
//! with its last process, whatever happens.

mod common;

use common::*;
use crossdock_layout::Status;
use crossdock_link::{Link, NodeCredentials, Presence, Server};
use crossdock_os::Deadline;
use crossdock_os::testing::until;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const SIZE: usize = 8 << 20;
const FOLDER: &str = "CROSSDOCK_TEST_PAPERS";
/// The environment variable that names the transport to test.
const TRANSPORT: &str = "CROSSDOCK_TEST_TRANSPORT";
/// The words that come before a command. They give the command a mount namespace in which `/sys` shows the interfaces
/// of its network namespace, because UCX reads the interfaces there.
const OWN_SYS: [&str; 4] = ["sh", "-c", "mount -t sysfs sysfs /sys && exec \"$@\"", "sh"];

fn run(words: &str) {
    let mut parts = words.split(' ');
    let done = Command::new(parts.next().unwrap()).args(parts).output().unwrap();
    assert!(done.status.success(), "{words}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A child process that is killed when this value is dropped.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The second host: a process that holds a network namespace, which a veth pair joins to the first one.
struct Host(Guard);

impl Host {
    fn make() -> Self {
        let mut holder = Command::new("unshare");
        // The shell waits in `read` for input from this process. When this process ends, `read` returns and the shell exits.
        holder.args(["--net", "sh", "-c", "ip link set lo up && echo ready && read wait"]);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        let host = Self(Guard(holder));
        run("ip link set lo up");
        run("ip link add here type veth peer name there");
        run(&format!("ip link set there netns {}", host.pid()));
        run("ip address add 10.77.0.1/24 dev here");
        run("ip link set here up");
        host.run("ip address add 10.77.0.2/24 dev there");
        host.run("ip link set there up");
        host
    }

    fn pid(&self) -> u32 {
        self.0.0.id()
    }

    fn run(&self, words: &str) {
        run(&format!("nsenter --target {} --net {words}", self.pid()));
    }

    /// Starts node `b` on the second host. It listens at `port`.
    fn serve(&self, folder: &Path, port: u16, incarnation: u64) -> Guard {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid().to_string(), "--net", "unshare", "--mount"]).args(OWN_SYS);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--ignored", "--nocapture"]);
        command.env(FOLDER, folder).env("PORT", port.to_string()).env("INCARNATION", incarnation.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let serves = lines.by_ref().map_while(Result::ok).any(|line| line.contains("serves"));
        assert!(serves, "the other node starts");
        Guard(child)
    }
}

fn namespaces_can_be_made() -> bool {
    let needs = "mount -t sysfs sysfs /sys && ip link set lo up && iptables -w -S && tc qdisc show";
    let can = Command::new("unshare").args(["--net", "--mount", "sh", "-c", needs]).output();
    can.is_ok_and(|done| done.status.success())
}

fn run_between_hosts(transport: &str) {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount"]).args(OWN_SYS).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture"]).env(TRANSPORT, transport);
    let done = command.output().unwrap();
    let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(done.status.success() && said.contains("test result: ok. 1 passed"), "{said}");
}

#[test]
fn hosts_that_are_slow_cut_off_in_one_or_both_directions_or_killed() {
    if !namespaces_can_be_made() {
        return crossdock_os::testing::skip("network-namespaces");
    }
    run_between_hosts("tls");
}

#[cfg(feature = "grpc")]
#[test]
fn hosts_over_grpc_that_are_slow_cut_off_in_one_or_both_directions_or_killed() {
    if !namespaces_can_be_made() {
        return crossdock_os::testing::skip("network-namespaces");
    }
    run_between_hosts("grpc");
}

#[test]
fn hosts_over_ucx_that_are_slow_cut_off_in_one_or_both_directions_or_killed() {
    if !namespaces_can_be_made() || ucx().is_none() {
        return crossdock_os::testing::skip("ucx");
    }
    run_between_hosts("ucx");
}

/// Makes a transport that trusts nodes with certificates of the same authority, or that is on a trusted network.
fn transport(papers: &NodeCredentials) -> Way {
    match &*std::env::var(TRANSPORT).unwrap() {
        "ucx" => ucx().unwrap(),
        #[cfg(feature = "grpc")]
        "grpc" => grpc(trust(papers)),
        _ => tcp(trust(papers)),
    }
}

#[test]
#[ignore = "started by the test above, in network namespaces of its own"]
fn child() {
    match std::env::var_os(FOLDER) {
        Some(folder) => serves(&PathBuf::from(folder)),
        None => connects(),
    }
}

fn connects() {
    let authority = authority();
    let folder = tempfile::tempdir().unwrap();
    authority.issue("b").unwrap().save(folder.path()).unwrap();
    let host = Host::make();
    let mut node_b = host.serve(folder.path(), 7700, 5);
    let a = transport(&authority.issue("a").unwrap());
    let link = Link::open(a, node("a", 1), "b", "10.77.0.2:7700", quick()).unwrap();
    assert_eq!(link.connected(soon()).unwrap(), 5);
    let bytes = pattern(SIZE, 41);
    let pull = |link: &Link| {
        let mut memory = vec![0; SIZE];
        let pulled = link.pull(&source_id(7), 0, &mut memory, soon());
        assert!(pulled.is_err() || memory == bytes, "bytes differ");
        pulled
    };
    pull(&link).unwrap();

    // The network has 20 Mbit/s from here on, so that a pull takes seconds.
    host.run("tc qdisc add dev there root tbf rate 20mbit burst 64kb latency 100ms");
    assert_eq!(pull(&link).unwrap().resumed, 0);

    // Packets are dropped in the middle of a pull, in both directions or in one direction, until `a` counts `b` as
    // away. When packets pass again, the pull succeeds and questions are answered.
    for rules in [&["INPUT", "OUTPUT"][..], &["INPUT"], &["OUTPUT"]] {
        std::thread::scope(|scope| {
            let pulled = scope.spawn(|| pull(&link));
            // The pull takes three seconds, so packets are usually dropped during the pull. On a very slow machine they
            // are dropped before it begins.
            std::thread::sleep(300 * MS);
            for rule in rules {
                run(&format!("iptables -w -I {rule} -j DROP"));
            }
            until("the peer is missed", || link.seen().presence == Presence::Away);
            let error = link.ask(ECHO, b"x", Deadline::after(200 * MS)).unwrap_err();
            assert!(matches!(error.status, Status::TimedOut | Status::Disconnected), "{rules:?}: {error}");
            assert!(error.to_string().contains("node 'b' is away, last heard "), "{rules:?}: {error}");
            for rule in rules {
                run(&format!("iptables -w -D {rule} -j DROP"));
            }
            pulled.join().unwrap().unwrap_or_else(|error| panic!("{rules:?}: {error}"));
        });
        until("the peer is heard", || link.seen().presence == Presence::Here);
        assert_eq!(link.ask(ECHO, b"healed", soon()).unwrap(), b"healed", "{rules:?}");
    }
    host.run("tc qdisc del dev there root");

    // Node `b` is killed, and started again.
    node_b.0.kill().unwrap();
    node_b.0.wait().unwrap();
    until("the end is noticed", || link.seen().why.is_some());
    let error = link.ask(ECHO, b"x", Deadline::after(200 * MS)).unwrap_err();
    assert_eq!((error.status, error.node.as_deref()), (Status::Disconnected, Some("b")), "{error}");
    let _node_b = host.serve(folder.path(), 7700, 6);
    assert_eq!(link.connected(soon()).unwrap(), 6);
    pull(&link).unwrap();
}

fn serves(folder: &Path) {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let store = Arc::new(Store::default());
    store.objects.lock().unwrap().insert(7, Arc::new(pattern(SIZE, 41)));
    let b = transport(&NodeCredentials::load(folder).unwrap());
    let accept = b.listen(&format!("10.77.0.2:{}", number("PORT"))).unwrap();
    let server = Server::start(accept, node("b", number("INCARNATION")), store, quick()).unwrap();
    println!("serves at {}", server.address());
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0; 1]);
    drop(server);
}

/// The first bytes of a pattern do not depend on its length. So both hosts can make and compare the same bytes.
#[test]
fn both_hosts_make_the_same_bytes() {
    assert_eq!(pattern(100, 41), pattern(200, 41)[..100]);
    assert!(quick().give_up() > Duration::from_secs(2));
}
