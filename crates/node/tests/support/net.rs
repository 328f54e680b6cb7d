//! A network for tests. The relays of several nodes run in one process, and this network takes the place of the links
//! between them. The network delays questions, drops them or their answers, and delivers some questions twice or late.
//! It can be cut in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crossdock_client::Status;
use crossdock_link::{Buffer, Error, Refusal, Source, SourceId};
use crossdock_os::Deadline;
use crossdock_os::testing::{self, mix};
use crossdock_relay::{Relay, RelayNetwork};

use super::Daemon;

/// Random numbers that depend only on the seed. Several threads use one sequence.
#[derive(Debug)]
pub struct Random(AtomicU64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub fn below(&self, most: u64) -> u64 {
        mix(self.0.fetch_add(testing::Random::STEP, Ordering::Relaxed)) % most
    }
}

/// A defect that is planted on purpose, and that the schedules must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    None,
    /// The network loses one in eight questions to this service, but confirms that it has delivered them.
    Swallows(u32),
    /// In all pulled bytes, the network changes the byte at this position.
    ChangesByte(usize),
}

/// The network that connects the relays of all nodes.
pub struct Net {
    relays: Mutex<BTreeMap<&'static str, Weak<Relay>>>,
    random: Random,
    defect: Defect,
    /// How many questions and pulls were delayed, lost, repeated or cut.
    faults: AtomicU64,
    /// The pairs of nodes between which the network is cut, in the direction from the first node to the second.
    cuts: Mutex<BTreeSet<(&'static str, &'static str)>>,
    /// True if every pull of bytes fails; questions still pass.
    refuses_pulls: AtomicBool,
    /// For each service: the number of questions that it has answered without a refusal.
    answered: Mutex<BTreeMap<u32, u64>>,
}

/// One node's access to the network, for the relay of that node.
struct Way {
    net: Arc<Net>,
    own: &'static str,
}

fn failed(status: Status, what: &str) -> Error {
    Error::new(status, what.to_owned(), "the network has a fault")
}

impl Net {
    pub fn new(seed: u64, defect: Defect) -> Arc<Self> {
        Arc::new(Self {
            relays: Mutex::default(),
            random: Random::new(seed),
            defect,
            faults: AtomicU64::new(0),
            cuts: Mutex::default(),
            refuses_pulls: AtomicBool::new(false),
            answered: Mutex::default(),
        })
    }

    /// Makes a relay for each of these nodes. The relays reach each other through this network.
    pub fn relays(self: &Arc<Self>, daemons: &BTreeMap<&'static str, Daemon>) -> BTreeMap<&'static str, Arc<Relay>> {
        let relay = |(number, (node, daemon)): (usize, (&&'static str, &Daemon))| {
            let way = Arc::new(Way { net: Arc::clone(self), own: node });
            let relay = Relay::new(number as u64 + 1, way, daemon.socket(), |_| {});
            (*node, Arc::new(relay.unwrap()))
        };
        let relays: BTreeMap<_, _> = daemons.iter().enumerate().map(relay).collect();
        *self.relays.lock().unwrap() = relays.iter().map(|(node, relay)| (*node, Arc::downgrade(relay))).collect();
        relays
    }

    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Cuts the network in these directions, and ends all other cuts.
    pub fn cut(&self, directions: impl IntoIterator<Item = (&'static str, &'static str)>) {
        *self.cuts.lock().unwrap() = directions.into_iter().collect();
    }

    /// Makes all pulls fail from now on.
    pub fn refuse_pulls(&self) {
        self.refuses_pulls.store(true, Ordering::Relaxed);
    }

    /// Gives the number of questions to a service that were answered without a refusal.
    pub fn answered(&self, service: u32) -> u64 {
        self.answered.lock().unwrap().get(&service).copied().unwrap_or(0)
    }

    fn is_cut(&self, from: &str, to: &str) -> bool {
        let is_cut = self.cuts.lock().unwrap().iter().any(|cut| *cut == (from, to));
        self.faults.fetch_add(u64::from(is_cut), Ordering::Relaxed);
        is_cut
    }

    fn relay(&self, node: &str) -> Option<Arc<Relay>> {
        self.relays.lock().unwrap().get(node)?.upgrade()
    }

    fn fault(&self) -> u64 {
        let fault = self.random.below(24);
        self.faults.fetch_add(u64::from(fault < 6), Ordering::Relaxed);
        fault
    }

    fn delay(&self) {
        std::thread::sleep(Duration::from_micros(self.random.below(3000)));
    }

    fn answer(&self, from: &str, to: &str, service: u32, body: &[u8]) -> Result<Vec<u8>, Error> {
        if self.is_cut(from, to) {
            return Err(failed(Status::Disconnected, "the question did not come"));
        }
        let relay = self.relay(to).ok_or_else(|| failed(Status::Disconnected, "ask"))?;
        let answer = relay.answer(from, service, body);
        if answer.is_ok() {
            *self.answered.lock().unwrap().entry(service).or_default() += 1;
        }
        if self.is_cut(to, from) {
            return Err(failed(Status::TimedOut, "the answer did not come"));
        }
        answer.map_err(|refusal| Error::new(refusal.status, "ask".to_owned(), refusal.text))
    }
}

impl RelayNetwork for Way {
    fn ask(&self, node: &str, service: u32, body: &[u8], _: Deadline) -> Result<Vec<u8>, Error> {
        let net = &self.net;
        if net.defect == Defect::Swallows(service) && net.random.below(8) == 0 {
            return Ok(Vec::new());
        }
        match net.fault() {
            0 => Err(failed(Status::Disconnected, "the question did not come")),
            1 => {
                let _ = net.answer(self.own, node, service, body);
                Err(failed(Status::Disconnected, "the answer was lost"))
            }
            2 => {
                let _ = net.answer(self.own, node, service, body);
                net.answer(self.own, node, service, body)
            }
            3 => {
                // The question is delivered a second time after a pause, so it may arrive after questions that were
                // asked later.
                let (net, own, node, body) = (Arc::clone(net), self.own, node.to_owned(), body.to_vec());
                let again = (Arc::clone(&net), node.clone(), body.clone());
                std::thread::spawn(move || {
                    let (net, node, body) = again;
                    std::thread::sleep(Duration::from_millis(net.random.below(100)));
                    let _ = net.answer(own, &node, service, &body);
                });
                net.answer(own, &node, service, &body)
            }
            4 | 5 => {
                net.delay();
                net.answer(self.own, node, service, body)
            }
            _ => net.answer(self.own, node, service, body),
        }
    }

    fn pull(&self, node: &str, source_id: &SourceId, offset: u64, memory: &mut [u8], _: Deadline) -> Result<(), Error> {
        let is_cut = self.net.is_cut(self.own, node) || self.net.is_cut(node, self.own);
        if is_cut || self.net.refuses_pulls.load(Ordering::Relaxed) || self.net.fault() < 3 {
            return Err(failed(Status::Disconnected, "the bytes did not come"));
        }
        let relay = self.net.relay(node).ok_or_else(|| failed(Status::Disconnected, "pull"))?;
        let source: Arc<dyn Source> = relay.source(source_id).ok_or_else(|| failed(Status::NotFound, "pull"))?;
        let mut buffer = Buffer::default();
        let bytes = source.bytes(offset, memory.len() as u64, &mut buffer);
        let refused = |refusal: Refusal| Error::new(refusal.status, "pull".to_owned(), refusal.text);
        memory.copy_from_slice(bytes.map_err(refused)?);
        if let Defect::ChangesByte(at) = self.net.defect
            && let Some(byte) = memory.get_mut(at)
        {
            *byte ^= 1;
        }
        Ok(())
    }
}
