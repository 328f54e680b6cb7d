//! Tests `serve --site`, `ls --nodes` and `certificates` with three nodes on one machine, which connect to each other
//! by TLS.

mod common;

use std::io::Read;
use std::process::Child;

use common::{Place, finish, free_port, signal, until};
use rustix::process::Signal;
use serde_json::Value;

struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        signal(self.0.id(), Signal::TERM);
        let _ = self.0.wait();
    }
}

fn socket(place: &Place, node: &str) -> String {
    place.path().join(node).join("endpoint.sock").display().to_string()
}

fn nodes(place: &Place, node: &str) -> Vec<(String, String)> {
    let ended = finish(place.command(&["ls", "--nodes", "--json", "--socket", &socket(place, node)]).spawn().unwrap());
    assert_eq!(ended.code, 0, "{}", ended.err);
    let found: Value = serde_json::from_str(&ended.out).unwrap();
    let text = |node: &Value, field: &str| node[field].as_str().unwrap().to_owned();
    let nodes = found["daemons"][0]["nodes"].as_array().unwrap();
    nodes.iter().map(|node| (text(node, "name"), text(node, "state"))).collect()
}

#[test]
fn three_nodes_join_a_site_with_certificates_and_are_listed() {
    let place = Place::new("");
    let made = finish(place.command(&["certificates", "site", "n1", "n2", "n3"]).spawn().unwrap());
    assert_eq!(made.code, 0, "{}", made.err);
    assert_eq!(made.out.lines().collect::<Vec<_>>(), ["site/n1", "site/n2", "site/n3"]);
    let port = free_port();
    let serve = |node: &str, catalog: &str| {
        let (socket, papers) = (socket(&place, node), format!("site/{node}"));
        let words = ["serve", "--ready", "--socket", &socket, "--site", "hall", "--node", node];
        // Two nodes use gRPC only, also to reach the catalog. The node that keeps the catalog accepts TCP and gRPC.
        let transport = if node == "n1" { "auto" } else { "grpc" };
        let more = ["--catalog", catalog, "--certificates", &papers, "--transport", transport];
        let mut daemon = place.command(&[&words[..], &more[..]].concat()).spawn().unwrap();
        daemon.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Ending(daemon)
    };
    let _n1 = serve("n1", &format!("keep:127.0.0.1:{port}"));
    let _n2 = serve("n2", &format!("embedded:n1@localhost:{port}"));
    let n3 = serve("n3", &format!("embedded:n1@127.0.0.1:{port}"));
    let all = |here: &str| {
        ["n1", "n2", "n3"]
            .map(|node| (node.to_owned(), if node == here { "here" } else { "joined" }.to_owned()))
            .to_vec()
    };
    for node in ["n1", "n2", "n3"] {
        until("all nodes are listed", || nodes(&place, node) == all(node));
    }
    let text = finish(place.command(&["ls", "--nodes", "--socket", &socket(&place, "n2")]).spawn().unwrap()).out;
    assert!(text.contains("site hall") && text.contains("NODE") && text.contains("n3"), "{text}");
    let words =
        ["ls", "--nodes", "-o", "yaml", "-w", "--times", "2", "--every", "0.01", "--socket", &socket(&place, "n2")];
    let followed = finish(place.command(&words).spawn().unwrap()).out;
    assert_eq!(followed.matches("site: \"hall\"").count(), 2, "{followed}");
    // A node that ends without an error is listed as gone at once.
    drop(n3);
    until("n3 is gone", || nodes(&place, "n1").contains(&("n3".into(), "gone".into())));
}

#[test]
fn mistakes_about_sites_are_found_before_anything_starts() {
    let place = Place::new("");
    let refused = |words: &[&str], part: &str| {
        let socket = socket(&place, "x");
        let ended = finish(place.command(&[&["serve", "--socket", &socket], words].concat()).spawn().unwrap());
        assert_ne!(ended.code, 0);
        assert!(ended.err.contains(part), "{words:?}: {}", ended.err);
    };
    refused(&["--site", "hall"], "--catalog");
    refused(&["--site", "hall", "--catalog", "zookeeper:x"], "keep:HOST:PORT");
    refused(&["--site", "hall", "--node", "a/b", "--catalog", "keep:127.0.0.1:0"], "no name of a node");
    refused(&["--site", "hall", "--node", "a", "--catalog", "keep:0.0.0.0:0"], "--trusted-network");
    refused(&["--node", "a"], "--site");
    refused(&["--site", "hall", "--catalog", "keep:127.0.0.1:0", "--transport", "carrier pigeon"], "auto, tcp, grpc");
    let bad = finish(place.command(&["certificates", "site", "10.0.0.1"]).spawn().unwrap());
    assert!(bad.err.contains("no name of a node"), "{}", bad.err);
    let none = finish(place.command(&["ls", "--nodes"]).spawn().unwrap());
    assert!(none.out.contains("no daemon of yours is a node of a site"), "{}", none.out);
}
