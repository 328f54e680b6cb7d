//! The links to the other nodes of the site, and the server for the links of the other nodes.
//!
//! A link is opened when the first request or pull needs it, and stays open. It connects to the address in the other
//! node's entry in the catalog. If that address changes, a new link replaces the old one. The link to a node whose
//! lease has ended stays open, because that node may be cut off from the catalog and still reach this node.
//!
//! The gateway itself answers [`ECHO`], so that the round trip of a link can be measured without the daemon.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossdock_layout::Status;
use crossdock_link::{
    Error, Link, LinkOptions, LinkState, Node, Peer, Presence, Pulled, Refusal, Result, Serve, Server, Source,
    SourceId, Transports,
};
use crossdock_os::Deadline;
use crossdock_os::spawn::host_name;

use crate::{GatewayEvent, LinkReport, Mailbox, NodeRecord};

/// The number of a service that answers with the body of the request.
pub const ECHO: u32 = 1;

/// How often the thread of [`Nodes::look_after`] reports the state of each link.
const LOOK: Duration = Duration::from_secs(1);
/// How often the round trip of a link is measured.
const MEASURE: Duration = Duration::from_secs(5);
/// How long a request waits for the address of the node to which it goes, if this address is not known yet.
const ON_ITS_WAY: Duration = Duration::from_secs(3);
/// How often threads check whether they must end.
const SLICE: Duration = Duration::from_millis(100);

struct OpenLink {
    link: Arc<Link>,
    address: String,
    round_trip: Option<Duration>,
    measured: Option<Instant>,
}

/// The links to the other nodes of the site.
pub struct Nodes {
    transports: Transports,
    own: Node,
    options: LinkOptions,
    /// The address of each node, as the node last announced it.
    addresses: Mutex<BTreeMap<String, String>>,
    /// Signalled when the address of a node becomes known.
    learned: Condvar,
    links: Mutex<BTreeMap<String, OpenLink>>,
    server: Option<Server>,
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("own", &self.own).field("address", &self.address()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nodes {
    /// Listens at an address, and lets `serve` answer other nodes. If `listen` is `None`, no other node can connect to
    /// this one.
    pub(crate) fn new(transports: Transports, own: Node, listen: Option<(&str, Arc<dyn Serve>)>) -> Result<Arc<Self>> {
        let options = LinkOptions::default();
        let server = match listen {
            None => None,
            Some((address, serve)) => {
                let accept = transports.listen(address)?;
                Some(Server::start(accept, own.clone(), Arc::new(EchoService(serve)), options)?)
            }
        };
        Ok(Arc::new(Self {
            transports,
            own,
            options,
            addresses: Mutex::default(),
            learned: Condvar::new(),
            links: Mutex::default(),
            server,
        }))
    }

    /// The address at which other nodes reach this node; empty if it does not listen.
    #[must_use]
    pub fn address(&self) -> String {
        let address = self.server.as_ref().map_or("", Server::address);
        match address.parse::<SocketAddr>() {
            // This node listens at all of its addresses, so it announces its host name instead of an address.
            Ok(any) if any.ip().is_unspecified() => format!("{}:{}", host_name(), any.port()),
            _ => address.to_owned(),
        }
    }

    /// Sends a request to a service of another node, and waits for the answer until the deadline.
    ///
    /// # Errors
    /// If the service refused the request, the error is that of the service. If the address of the node is not known,
    /// the error is `Disconnected`. If no answer came, the error is `TimedOut` or `Disconnected`, and the other node
    /// may have carried out the request. So the caller may repeat only a request that does no harm if it is carried out
    /// twice.
    pub fn ask(&self, node: &str, service: u32, body: &[u8], by: Deadline) -> Result<Vec<u8>> {
        self.present_link(node, by)?.ask(service, body, by)
    }

    /// Reads the bytes of another node's object from `offset` on, until `memory` is full. The call waits for the bytes
    /// until the deadline.
    ///
    /// # Errors
    /// As for [`Link::pull`], and `Disconnected` if the address of the node is not known. So `NotFound` always comes
    /// from the other node. After an error the contents of `memory` are undefined.
    pub fn pull(
        &self,
        node: &str,
        source_id: &SourceId,
        offset: u64,
        memory: &mut [u8],
        by: Deadline,
    ) -> Result<Pulled> {
        loop {
            let link = self.present_link(node, by)?;
            match link.pull(source_id, offset, memory, by) {
                // The node has announced another address meanwhile. The pull is repeated on the link to that address.
                Err(_) if link.is_closed() && !by.passed() => {}
                done => return done,
            }
        }
    }

    /// The state of the link to a node. `None` if no link to the node was opened so far.
    #[must_use]
    pub fn seen(&self, node: &str) -> Option<LinkState> {
        lock(&self.links).get(node).map(|open| open.link.seen())
    }

    /// Returns the link to a node. If there is none, opens one.
    ///
    /// # Errors
    /// `Disconnected` if no node of this name announces an address within three seconds or until the deadline, for
    /// example because the site's catalog was not reached yet. Another error if the link's thread cannot be started.
    pub fn link(&self, node: &str, by: Deadline) -> Result<Arc<Link>> {
        let Some(address) = self.address_of(node, by) else {
            let reason = "no node of this name has announced an address to the site's catalog";
            return Err(Error::new(Status::Disconnected, format!("reach node '{node}'"), reason)
                .hint("`crossdock ls --nodes` shows the nodes of the site"));
        };
        let mut links = lock(&self.links);
        if let Some(open) = links.get(node).filter(|open| open.address == address) {
            return Ok(Arc::clone(&open.link));
        }
        let (pulls, dials) = (self.transports.other_transport(), self.transports.dials());
        let link = Link::negotiate_with(pulls, dials, self.own.clone(), node, &address, self.options)?;
        let link = Arc::new(link);
        let open = OpenLink { link: Arc::clone(&link), address, round_trip: None, measured: None };
        let former = links.insert(node.to_owned(), open);
        drop(links);
        let_go(former);
        Ok(link)
    }

    /// Returns the link to a node as soon as it is connected, or at the deadline. If the node announces another address
    /// meanwhile, the call waits for the link to that address.
    fn present_link(&self, node: &str, by: Deadline) -> Result<Arc<Link>> {
        loop {
            let link = self.link(node, by)?;
            if link.connected(by).is_ok() || by.passed() || !link.is_closed() {
                return Ok(link);
            }
        }
    }

    /// Gives the address of a node. If the address is not known, waits for it up to three seconds, or until the
    /// deadline, because an answer of the catalog may name a node before the node's own entry arrives here.
    fn address_of(&self, node: &str, by: Deadline) -> Option<String> {
        let unknown = |addresses: &mut BTreeMap<String, String>| addresses.get(node).is_none_or(String::is_empty);
        let addresses = lock(&self.addresses);
        let waited = self.learned.wait_timeout_while(addresses, by.left().min(ON_ITS_WAY), unknown);
        let (addresses, _) = waited.unwrap_or_else(PoisonError::into_inner);
        addresses.get(node).cloned().filter(|address| !address.is_empty())
    }

    /// Notes the address that a node has announced.
    pub(crate) fn learn(&self, place: &NodeRecord) {
        if place.node == self.own.name {
            return;
        }
        lock(&self.addresses).insert(place.node.clone(), place.address.clone());
        self.learned.notify_all();
        // The link to the old address is closed: the node has a new daemon, or its daemon listens elsewhere.
        let mut links = lock(&self.links);
        let stale = links.get(&place.node).is_some_and(|open| open.address != place.address);
        let former = if stale { links.remove(&place.node) } else { None };
        drop(links);
        let_go(former);
    }

    /// Measures round trips and reports the state of each link, until `stop` is set. Runs in a thread of its own.
    pub(crate) fn look_after(&self, mailbox: &Mailbox, stop: &AtomicBool) {
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if Instant::now() < next {
                thread::sleep(SLICE);
                continue;
            }
            next = Instant::now() + LOOK;
            self.measure();
            let seen: Vec<_> = lock(&self.links)
                .values()
                .map(|open| {
                    let seen = open.link.seen();
                    LinkReport {
                        node: seen.node,
                        transport: match seen.pulls {
                            Some(pulls) => format!("{}, pulls by {pulls}", seen.transport),
                            None => seen.transport.to_owned(),
                        },
                        heard: seen.heard,
                        round_trip: open.round_trip,
                        why: match seen.why {
                            Some(why) => format!("no connection: {why}"),
                            None => seen.better.unwrap_or_default(),
                        },
                    }
                })
                .collect();
            if !seen.is_empty() {
                mailbox.put(GatewayEvent::Links(seen));
            }
        }
    }

    /// Measures the round trip of each connected link whose last measurement is at least [`MEASURE`] old.
    fn measure(&self) {
        let due = |open: &OpenLink| open.measured.is_none_or(|measured| measured.elapsed() >= MEASURE);
        let due: Vec<_> = {
            let links = lock(&self.links);
            links.iter().filter(|(_, open)| due(open)).map(|(node, open)| (node.clone(), open.link.clone())).collect()
        };
        for (node, link) in due {
            if link.seen().presence != Presence::Here {
                continue;
            }
            let began = Instant::now();
            let measured = link.ask(ECHO, b"round trip", Deadline::after(Duration::from_secs(1))).is_ok();
            let took = began.elapsed();
            if let Some(open) = lock(&self.links).get_mut(&node).filter(|open| Arc::ptr_eq(&open.link, &link)) {
                open.measured = Some(began);
                if measured {
                    open.round_trip = Some(took);
                }
            }
        }
    }
}

/// Closes a replaced link in another thread. Closing sends a last message to the other node, and dropping waits for the
/// link's own thread, which may be connecting. That takes too long for a caller. A pull that still uses the old link is
/// repeated on the new one.
fn let_go(former: Option<OpenLink>) {
    if let Some(former) = former {
        close_in(thread::Builder::new().name("site-link-end".into()), former);
    }
}

/// Closes the link in the new thread. If the thread cannot be started, closes the link in the caller's thread.
fn close_in(thread: thread::Builder, former: OpenLink) {
    let link = Arc::clone(&former.link);
    let close = move || {
        former.link.close();
        drop(former);
    };
    if thread.spawn(close).is_err() {
        link.close();
    }
}

/// The services of the daemon, with the service [`ECHO`] added to them.
struct EchoService(Arc<dyn Serve>);

impl Serve for EchoService {
    fn answer(&self, peer: &Peer, service: u32, body: &[u8], by: Deadline) -> std::result::Result<Vec<u8>, Refusal> {
        if service == ECHO { Ok(body.to_vec()) } else { self.0.answer(peer, service, body, by) }
    }

    fn open(&self, peer: &Peer, source_id: &SourceId) -> std::result::Result<Arc<dyn Source>, Refusal> {
        self.0.open(peer, source_id)
    }

    fn joined(&self, peer: &Peer) {
        self.0.joined(peer);
    }

    fn left(&self, peer: &Peer, why: &str) {
        self.0.left(peer, why);
    }

    fn refused(&self, error: &Error) {
        self.0.refused(error);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use crossdock_layout::wire::SegmentKind;
    use crossdock_link::{Choice, Trust};

    use super::*;

    struct ServiceOfSevens;

    impl Serve for ServiceOfSevens {
        fn answer(&self, _: &Peer, _: u32, _: &[u8], _: Deadline) -> std::result::Result<Vec<u8>, Refusal> {
            Ok(vec![7])
        }

        fn open(&self, _: &Peer, _: &SourceId) -> std::result::Result<Arc<dyn Source>, Refusal> {
            Ok(Arc::new(vec![7_u8; 1 << 16]))
        }
    }

    fn node(name: &str, listen: bool) -> Arc<Nodes> {
        let transports = Transports::new(&Trust::Loopback, Choice::Auto).unwrap();
        let listen = listen.then(|| ("127.0.0.1:0", Arc::new(ServiceOfSevens) as Arc<dyn Serve>));
        Nodes::new(transports, Node { name: name.into(), incarnation: 1 }, listen).unwrap()
    }

    #[test]
    fn a_replaced_link_is_closed_even_if_no_thread_can_be_started() {
        let (own, other) = (node("a", false), node("b", true));
        own.learn(&NodeRecord { node: "b".into(), number: 2, token: 1, address: other.address() });
        let link = own.link("b", Deadline::after(Duration::from_secs(60))).unwrap();
        let former = lock(&own.links).remove("b").unwrap();
        // No process has enough memory for a stack of this size, so the system cannot start the thread.
        close_in(thread::Builder::new().stack_size(1 << 60), former);
        assert!(link.is_closed());
    }

    #[test]
    fn a_question_to_a_node_without_an_address_ends_at_its_deadline() {
        let own = node("a", false);
        let began = Instant::now();
        let failed = own.ask("b", 7, b"?", Deadline::after(Duration::from_millis(50))).unwrap_err();
        assert_eq!(failed.status, Status::Disconnected);
        assert!(began.elapsed() < ON_ITS_WAY, "the question took {:?}", began.elapsed());
    }

    /// The broker of a node was restarted, and listens at another address than the one that this node knows.
    #[test]
    fn a_question_and_a_pull_that_wait_for_a_former_address_go_to_the_present_one() {
        let (own, other) = (node("a", false), node("b", true));
        // Nothing listens at this address any more.
        let former = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let place = |address: String| NodeRecord { node: "b".into(), number: 2, token: 1, address };
        own.learn(&place(former));
        let began = Instant::now();
        let by = Deadline::after(Duration::from_secs(120));
        let source_id = SourceId { kind: SegmentKind::Item, object: 5, epoch: 1 };
        let mut memory = vec![0; 1 << 16];
        thread::scope(|scope| {
            let pull = scope.spawn(|| own.pull("b", &source_id, 0, &mut memory, by));
            let ask = scope.spawn(|| own.ask("b", 7, b"?", by));
            while own.seen("b").is_none_or(|seen| seen.why.is_none()) {
                assert!(!by.passed(), "no attempt to connect has failed");
                thread::sleep(Duration::from_millis(5));
            }
            own.learn(&place(other.address()));
            assert_eq!(ask.join().unwrap().unwrap(), [7]);
            pull.join().unwrap().unwrap();
        });
        assert_eq!(memory, vec![7; 1 << 16]);
        assert!(began.elapsed() < Duration::from_secs(60), "the pull waited for its deadline");
    }
}
