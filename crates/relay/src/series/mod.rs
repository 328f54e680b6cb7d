//! Series across nodes.
//!
//! The tasks of a node observe a series of another node through a *mirror* (`mirror`): a series of their own node, with
//! the same versions under the same numbers. On the other node, a *supply* (`supply`) observes the series and offers
//! its versions to the mirror.
//!
//! ```text
//! node a                                    node b
//! publisher -> series <- observer: supply   publisher: mirror -> series <- observers
//!                          |  VERSION: head, changed chunks  ->  |
//!                          |  <- pulls the chunks' bytes         |
//!                          |  <- VERSION_ACK                     |
//! ```

pub mod fuzz;
pub mod messages;
mod mirror;
mod supply;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crossdock_client::{Error, Result, SegmentId, SegmentInfo, SegmentKind, Session, Status};
use crossdock_layout::name;
use crossdock_link::Refusal;

use crate::messages::{BodyField, ChannelKey};
use crate::reports::AGAIN;
use crate::{Peers, Shared, find_or_opening, lock, mirror_name};
use messages::{Find, FoundSeries, Load, Offered, SeriesEnded, Supplied, VersionAck};
pub use mirror::Mirror;
pub use supply::Supply;

/// The numbers of the services that are about series.
pub const SERVICES: std::ops::RangeInclusive<u32> = messages::FIND..=messages::MIRROR_GONE;

/// How long one request waits on the other node until a series of the wanted name is published. For a longer wait,
/// several requests are sent.
const SLICE: Duration = Duration::from_secs(1);
/// The longest pause before a request is repeated because the other node has too many requests.
const PAUSE: Duration = Duration::from_millis(800);
/// How many requests of another node may wait for series at the same time. The link answers only a limited number of
/// requests of a node at the same time. If requests that wait for series took this whole number, requests that bring
/// messages would be held up.
const FINDS_OF_NODE: usize = 16;
/// The shortest time for which a request waits for a series. A request waits only for this time if too many requests of
/// its node wait already.
const LOOK: Duration = Duration::from_millis(1);
/// If the series already has as many observers as it may have, a request is repeated for this time, because some of
/// these observers may leave soon: while a node has no mirror of the series, each request of the node's tasks needs an
/// observer for a moment. As soon as the node has a mirror, all tasks of the node together need only one observer.
const FULL: Duration = Duration::from_secs(1);
/// How many requests of other nodes may observe a series for a moment at the same time. Each of these requests counts
/// as an observer meanwhile, and the number of observers of a series is limited.
const LOOKS: usize = 4;
/// When a mirror is opened, the minimum time to wait until the mirror shows the newest version.
const FIRST: Duration = Duration::from_secs(1);
/// How long the other node may take to answer a request on behalf of a waiting observer.
const ANSWER: Duration = Duration::from_secs(4);

/// A request by a task of this node to observe a series of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedSeries {
    /// The node that has the series.
    pub node: String,
    /// The name of the workflow of the series.
    pub workflow: String,
    /// The name of the series.
    pub series: String,
    /// Whether a series of a former run may be opened.
    pub former: bool,
    /// How long to wait for the series to be published.
    pub wait: Duration,
}

/// For each request of another node that waits for a series: the name of that node.
#[derive(Default)]
struct WaitingFinds(Mutex<Vec<String>>);

/// Notes in [`WaitingFinds`] that a request of a node waits for a series. Dropping this value removes the note.
struct WaitingFind<'a>(&'a WaitingFinds, &'a str);

impl WaitingFinds {
    /// Notes a request of a node. Returns `None` if too many requests of the node wait already.
    fn begin<'a>(&'a self, node: &'a str) -> Option<WaitingFind<'a>> {
        let mut all = lock(&self.0);
        let of_node = all.iter().filter(|other| *other == node).count();
        (of_node < FINDS_OF_NODE).then(|| {
            all.push(node.to_owned());
            WaitingFind(self, node)
        })
    }
}

impl Drop for WaitingFind<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.0.0);
        if let Some(at) = all.iter().position(|other| other == self.1) {
            all.swap_remove(at);
        }
    }
}

/// To answer a request of another node that looks for a series, the relay observes the series for a moment. This is the
/// number of such requests that are observing a series now. The condition variable is signalled when one of these
/// requests stops observing.
#[derive(Default)]
struct Looks(Mutex<usize>, Condvar);

/// Counts one request in [`Looks`]. Dropping this value ends the count of the request.
struct Looking<'a>(&'a Looks);

impl Looks {
    /// Waits until fewer than [`LOOKS`] requests observe a series. `BUSY` after the time `wait` means that the broker
    /// answers slowly.
    fn begin(&self, wait: Duration) -> Result<Looking<'_>> {
        let are_many = |looks: &mut usize| *looks >= LOOKS;
        let waited = self.1.wait_timeout_while(lock(&self.0), wait, are_many);
        let (mut looks, waited) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        if waited.timed_out() {
            return Err(Error::new(Status::Busy, "too many requests look for series at the same time; ask again"));
        }
        *looks += 1;
        Ok(Looking(self))
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        *lock(&self.0.0) -= 1;
        self.0.1.notify_one();
    }
}

/// All mirrors and supplies of a daemon.
#[derive(Default)]
pub struct SeriesRelays {
    supplies: Mutex<BTreeMap<ChannelKey, Arc<Supply>>>,
    mirrors: Mutex<Vec<Arc<Mirror>>>,
    /// The series whose mirrors are being made. Each is named by its node and the id of its segment there.
    making: Mutex<BTreeSet<(String, u64)>>,
    made: Condvar,
    finds: WaitingFinds,
    looks: Looks,
}

impl SeriesRelays {
    fn mirror(&self, node: &str, key: ChannelKey) -> Option<Arc<Mirror>> {
        lock(&self.mirrors).iter().find(|mirror| mirror.key() == key && mirror.peer == node).cloned()
    }

    fn supply(&self, node: &str, key: ChannelKey) -> Option<Arc<Supply>> {
        lock(&self.supplies).get(&key).filter(|supply| supply.peer == node && !supply.is_over()).cloned()
    }

    /// Tells whether this daemon has a mirror or a supply with this key, whose other side is on `node`.
    pub fn knows(&self, node: &str, key: ChannelKey) -> bool {
        self.mirror(node, key).is_some() || self.supply(node, key).is_some()
    }

    /// Gives the keys of the mirrors and supplies, each with the node whose daemon must also know the key.
    pub fn keys(&self) -> Vec<(String, ChannelKey)> {
        let mirrors = lock(&self.mirrors);
        let mirrors = mirrors.iter().filter(|mirror| mirror.is_supplied());
        let mut keys: Vec<_> = mirrors.map(|mirror| (mirror.peer.clone(), mirror.key())).collect();
        keys.extend(lock(&self.supplies).values().map(|supply| (supply.peer.clone(), supply.key)));
        keys
    }

    /// Notes that the daemon of `node` does not know a key. If a supply of this node has the key, ends the supply. If a
    /// mirror of this node has the key, lets the mirror ask for a new supply.
    pub fn unknown(&self, node: &str, key: ChannelKey) {
        if let Some(supply) = self.supply(node, key) {
            supply.finish();
        }
        if let Some(mirror) = self.mirror(node, key) {
            mirror.unknown();
        }
    }

    /// Notes that no task of this node observes this mirror any more. Returns whether `id` is a mirror.
    pub fn left(&self, id: SegmentId) -> bool {
        let found = lock(&self.mirrors).iter().find(|mirror| mirror.id == id).cloned();
        if let Some(mirror) = &found {
            mirror.left();
        }
        found.is_some()
    }

    /// Gives the supplies for mirrors on a node, and the mirrors of that node's series.
    pub fn of_node(&self, node: &str) -> (Vec<Arc<Supply>>, Vec<Arc<Mirror>>) {
        let supplies = lock(&self.supplies).values().filter(|supply| supply.peer == node).cloned().collect();
        (supplies, lock(&self.mirrors).iter().filter(|mirror| mirror.peer == node).cloned().collect())
    }

    /// Ends all mirrors and supplies, because the daemon ends.
    pub fn drop_now(&self) {
        lock(&self.supplies).values().for_each(|supply| supply.finish());
        let mirrors: Vec<_> = lock(&self.mirrors).clone();
        mirrors.iter().for_each(|mirror| mirror.drop_now());
    }
}

impl Shared {
    /// Returns the id of the mirror of another node's series. If there is no such mirror, makes one.
    pub(crate) fn open_series(self: &Arc<Self>, want: &WantedSeries) -> Result<SegmentId> {
        let began = Instant::now();
        let FoundSeries { segment, newest } = self.find_series(want)?;
        let place = (want.node.clone(), segment);
        let is_made = |making: &mut BTreeSet<(String, u64)>| making.contains(&place);
        let making = self.series.made.wait_while(lock(&self.series.making), is_made);
        making.unwrap_or_else(std::sync::PoisonError::into_inner).insert(place.clone());
        let known = lock(&self.series.mirrors)
            .iter()
            .find(|mirror| mirror.peer == want.node && mirror.origin == segment && mirror.is_usable())
            .cloned();
        let opened = known.map_or_else(|| self.make_mirror(want, segment), Ok);
        lock(&self.series.making).remove(&place);
        self.series.made.notify_all();
        let mirror = opened?;
        mirror.wait_shown(newest, want.wait.saturating_sub(began.elapsed()).max(FIRST));
        Ok(mirror.id)
    }

    /// Asks the other node which series has the wanted name. If no series has the name, waits until one is published
    /// under it. `NOT_FOUND` before the time is over means that the name no longer belongs to the other node.
    /// `DISCONNECTED` means that the node cannot be reached.
    fn find_series(&self, want: &WantedSeries) -> Result<FoundSeries> {
        let WantedSeries { node, workflow, series, former, wait } = want;
        let (began, mut pause, mut full_since) = (Instant::now(), AGAIN, None);
        // Even an observer that does not want to wait tries again for a moment if the other node refuses because of too
        // many other requests.
        let patience = if wait.is_zero() { SLICE } else { *wait };
        loop {
            let asked = Instant::now();
            let left = wait.saturating_sub(began.elapsed());
            // If the observer wants to wait, each request waits for at least `LOOK`, because the answer to a request
            // that does not wait leaves open whether the series can still be published.
            let slice = if wait.is_zero() { left } else { left.clamp(LOOK, SLICE) };
            let wait_ms = u64::try_from(slice.as_millis()).unwrap_or(u64::MAX);
            let question = Find { workflow: workflow.clone(), series: series.clone(), former: *former, wait_ms };
            match self.ask(node, messages::FIND, &question.encode(), ANSWER.saturating_add(slice)) {
                Ok(body) => return decoded(&body),
                Err(error) if matches!(error.status, Status::NotFound | Status::Disconnected) && !left.is_zero() => {
                    // The catalog soon tells this node which node has the name now. The caller then asks again.
                    thread::sleep(AGAIN.min(left));
                    return Err(error);
                }
                Err(error) if error.status == Status::Busy && began.elapsed() < patience => {
                    // The link refuses a request immediately if too many requests of this node are in progress.
                    thread::sleep(pause.min(patience.saturating_sub(began.elapsed())));
                    pause = (pause * 2).min(PAUSE);
                }
                Err(error)
                    if error.status == Status::NoSpace
                        && began.elapsed() < patience
                        && full_since.get_or_insert(asked).elapsed() < FULL =>
                {
                    thread::sleep(AGAIN.min(patience.saturating_sub(began.elapsed())));
                }
                Err(error) if error.status == Status::TimedOut && !left.is_zero() && asked.elapsed() < slice / 2 => {
                    // The other node allows only a limited number of waiting requests of this node. This number was
                    // reached, so the other node did not let this request wait.
                    thread::sleep(pause.min(left));
                    pause = (pause * 2).min(PAUSE);
                }
                Err(error) if left > slice && matches!(error.status, Status::TimedOut | Status::NotYet) => {}
                Err(error) if left < *wait && error.status == Status::TimedOut => {
                    let text = format!(
                        "series '{series}' of node {node} was not published in the current run within {} ms; is its publisher \
                         running?",
                        wait.as_millis()
                    );
                    return Err(Error::new(Status::TimedOut, text));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn supplied(&self, node: &str, supply: &messages::Supply) -> Result<Supplied> {
        let (began, body) = (Instant::now(), supply.encode());
        loop {
            match self.ask(node, messages::SUPPLY, &body, ANSWER) {
                Err(error) if error.status == Status::Busy && began.elapsed() < ANSWER => thread::sleep(AGAIN),
                Err(error) if error.status == Status::NoSpace && began.elapsed() < FULL => thread::sleep(AGAIN),
                answer => return self.description(node, decoded(&answer?)?),
            }
        }
    }

    /// Decodes the description of a series of the node `node`. Pulls its bytes if the answer does not contain them.
    fn description(&self, node: &str, load: Load) -> Result<Supplied> {
        match load {
            Load::Here(bytes) => decoded(&bytes),
            Load::Pull(ticket, length) if length <= messages::MOST => {
                let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
                self.pull_into(node, ticket, 0, &mut bytes, ANSWER)?;
                decoded(&bytes)
            }
            Load::Pull(_, length) => {
                let text =
                    format!("node {node} describes a series with {length} bytes; {} are allowed", messages::MOST);
                Err(Error::new(Status::Invalid, text))
            }
        }
    }

    /// Gives the answer with these bytes. If they do not fit into an answer, they are offered under a ticket.
    fn load_of(&self, bytes: Vec<u8>) -> Load {
        let length = bytes.len();
        if length <= messages::SHORT {
            Load::Here(bytes)
        } else {
            Load::Pull(self.offer(Arc::new(bytes)), length as u64)
        }
    }

    fn withdraw_load(&self, load: &Load) {
        if let Load::Pull(ticket, _) = load {
            self.withdraw(*ticket);
        }
    }

    fn make_mirror(self: &Arc<Self>, want: &WantedSeries, segment: u64) -> Result<Arc<Mirror>> {
        let WantedSeries { node, workflow, series, former, .. } = want;
        let former = *former;
        self.opening(|key| {
            let question =
                messages::Supply { key, workflow: workflow.clone(), series: series.clone(), segment, former, has: 0 };
            let supplied = self.supplied(node, &question)?;
            // The session has the name of the task that publishes the series, so that errors name this task.
            let task = &supplied.publisher;
            let task = if name::check(task).is_ok() { task.as_str() } else { "a-task" };
            let session = self.session(workflow, &format!("{task}.on.{node}"), 0, false)?;
            let mirror = mirror_name(key, 0, series)?;
            let replica = session.replica(&mirror, &supplied.original)?;
            let mirror = Mirror::new(key, node, (workflow, series), (segment, former), replica.id(), mirror, session);
            lock(&self.series.mirrors).push(mirror.clone());
            let (own, of) = (Arc::clone(self), mirror.clone());
            let started = thread::Builder::new().name("series-mirror".into()).spawn(move || {
                of.run(&*own, replica, &|mirror, has| own.reopen(mirror, has));
                lock(&own.series.mirrors).retain(|known| !Arc::ptr_eq(known, &of));
            });
            if let Err(error) = started {
                mirror.drop_now();
                lock(&self.series.mirrors).retain(|known| !Arc::ptr_eq(known, &mirror));
                return Err(Error::system("starting a thread for a series of another node", &error));
            }
            Ok(mirror)
        })
    }

    /// Asks the other node for a new supply. `has` is the newest version that the mirror has.
    fn reopen(&self, mirror: &Mirror, has: u64) -> Result<()> {
        self.opening(|key| {
            let (workflow, series) = (mirror.workflow.clone(), mirror.series.clone());
            let question =
                messages::Supply { key, workflow, series, segment: mirror.origin, former: mirror.former, has };
            self.supplied(&mirror.peer, &question).map(|_| mirror.known_as(key))
        })
    }

    /// Makes a supply, which observes a series of this node for a mirror on the node `node`. If a request is repeated,
    /// no second supply is made.
    fn supply(self: &Arc<Self>, node: &str, question: &messages::Supply) -> Result<Load> {
        let key = question.key;
        if let Some(supply) = self.series.supply(node, key) {
            return Ok(supply.answer.clone());
        }
        self.open_once(key, "this mirror's supply is being made, or has ended", || self.supply_first(node, question))
    }

    fn supply_first(self: &Arc<Self>, node: &str, question: &messages::Supply) -> Result<Load> {
        let messages::Supply { key, workflow, series, segment, former, has } = question;
        let session = self.session_of(node, workflow, *former)?;
        let observer = session.observe_former(series, Duration::ZERO)?;
        if observer.id() != SegmentId(*segment) {
            return Err(Error::new(Status::NotFound, format!("series '{series}' was published anew meanwhile")));
        }
        let publisher = session.task_of(observer.publisher()).unwrap_or_default();
        let supplied = Supplied { original: observer.original(), publisher: publisher.replace('@', "-") };
        let answer = self.load_of(supplied.encode());
        let supply = Supply::new(*key, node, *segment, session, answer.clone());
        lock(&self.series.supplies).insert(*key, supply.clone());
        let (own, has) = (Arc::clone(self), *has);
        let started = thread::Builder::new().name("series-supply".into()).spawn(move || {
            supply.run(&*own, observer, has);
            lock(&own.series.supplies).remove(&supply.key);
            own.withdraw_load(&supply.answer);
        });
        if let Err(error) = started {
            lock(&self.series.supplies).remove(key);
            self.withdraw_load(&answer);
            return Err(Error::system("starting a thread for a series of this node", &error));
        }
        Ok(answer)
    }

    /// Makes a session that observes series for the node `node`. With `visitor` set, the session does not take part in
    /// the workflow's run.
    fn session_of(&self, node: &str, workflow: &str, visitor: bool) -> Result<Session> {
        self.session(workflow, &format!("{}{node}", name::OBSERVERS), 0, visitor)
    }

    fn find(&self, node: &str, question: &Find) -> Result<FoundSeries> {
        let session = self.session_of(node, &question.workflow, true)?;
        let observe = |wait| -> Result<FoundSeries> {
            let observer = match question.former {
                true => session.observe_former(&question.series, wait)?,
                false => session.observe(&question.series, wait)?,
            };
            Ok(FoundSeries { segment: observer.id().0, newest: observer.newest() })
        };
        let found = {
            let _looking = self.series.looks.begin(ANSWER / 2)?;
            observe(Duration::ZERO)
        };
        let found = match found {
            Err(error) if matches!(error.status, Status::NotFound | Status::Busy) && question.wait_ms > 0 => {
                let (wait, waiting) = (Duration::from_millis(question.wait_ms), self.series.finds.begin(node));
                observe(if waiting.is_some() { wait } else { wait.min(LOOK) })
            }
            found => found,
        };
        match found {
            Err(error) if error.status == Status::NoSpace => self.find_supplied(node, &session, question).ok_or(error),
            found => found,
        }
    }

    /// Finds a series without becoming its observer, if a supply already observes the series for the node `node`. The
    /// tasks of the node `node` then need no other observer than this supply.
    fn find_supplied(&self, node: &str, session: &Session, question: &Find) -> Option<FoundSeries> {
        let listing = session.list().ok()?;
        let is_wanted = |found: &&SegmentInfo| {
            found.kind == SegmentKind::Series
                && (&found.workflow, &found.name) == (&question.workflow, &question.series)
                && !found.removed
                && (question.former || !found.former)
        };
        let id = listing.segments.iter().find(is_wanted)?.id;
        let is_for_node = |supply: &Arc<Supply>| supply.peer == node && supply.segment == id.0 && !supply.is_over();
        if !lock(&self.series.supplies).values().any(is_for_node) {
            return None;
        }
        Some(FoundSeries { segment: id.0, newest: session.series_report(id).ok()?.newest })
    }

    /// Answers a request of another node to one of [`SERVICES`].
    pub(crate) fn answer_series(
        self: &Arc<Self>,
        node: &str,
        service: u32,
        body: &[u8],
    ) -> std::result::Result<Vec<u8>, Refusal> {
        let refused = |error: Error| Refusal::new(error.status, error.to_string());
        let unknown = |is_opening: bool| match is_opening {
            true => Refusal::new(Status::Busy, "this mirror of a series is being made; ask again"),
            false => Refusal::new(Status::Closed, "this mirror of a series is not there any more"),
        };
        let mirror =
            |key: ChannelKey| find_or_opening(&self.opening, key, || self.series.mirror(node, key)).map_err(unknown);
        let supply =
            |key: ChannelKey| find_or_opening(&self.opening, key, || self.series.supply(node, key)).map_err(unknown);
        match service {
            messages::FIND => {
                return self.find(node, &Find::decode(body)?).map(|found| found.encode()).map_err(refused);
            }
            messages::SUPPLY => {
                let supplied = self.supply(node, &messages::Supply::decode(body)?);
                return supplied.map(|answer| answer.encode()).map_err(refused);
            }
            messages::VERSION => {
                let offered = Offered::decode(body)?;
                mirror(offered.key)?.offer(offered);
            }
            messages::VERSION_ACK => {
                let ack = VersionAck::decode(body)?;
                supply(ack.key)?.acknowledged(ack);
            }
            messages::SERIES_ENDED => {
                let report = SeriesEnded::decode(body)?;
                mirror(report.key)?.series_ended(&report);
            }
            messages::MIRROR_GONE => supply(ChannelKey::decode(body)?)?.finish(),
            other => return Err(Refusal::new(Status::Incompatible, format!("series have no service {other}"))),
        }
        Ok(Vec::new())
    }
}

fn decoded<T: BodyField>(body: &[u8]) -> Result<T> {
    T::decode(body).map_err(|refusal| Error::new(refusal.status, refusal.text))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::path::PathBuf;

    use crossdock_client::{Description, FullPolicy, MemberId, Order, Variable};
    use crossdock_core::series::Original;
    use crossdock_link::SourceId;
    use crossdock_os::Deadline;

    use super::*;
    use crate::{Relay, RelayNetwork};

    /// Another node, which gives these answers, one after another. It repeats the last answer for all later requests.
    struct Answers(Mutex<VecDeque<std::result::Result<Vec<u8>, Status>>>);

    impl RelayNetwork for Answers {
        fn ask(&self, _: &str, _: u32, _: &[u8], _: Deadline) -> crossdock_link::Result<Vec<u8>> {
            let mut answers = lock(&self.0);
            let answer = answers.pop_front().unwrap();
            if answers.is_empty() {
                answers.push_back(answer.clone());
            }
            answer.map_err(|status| crossdock_link::Error::new(status, "ask", "refused"))
        }

        fn pull(&self, _: &str, _: &SourceId, _: u64, _: &mut [u8], _: Deadline) -> crossdock_link::Result<()> {
            Err(crossdock_link::Error::new(Status::NotFound, "pull", "there is nothing"))
        }
    }

    fn relay(answers: impl IntoIterator<Item = std::result::Result<Vec<u8>, Status>>) -> Relay {
        let nodes = Arc::new(Answers(Mutex::new(answers.into_iter().collect())));
        Relay::new(1, nodes, PathBuf::from("/nowhere"), |_| {}).unwrap()
    }

    fn find(relay: &Relay, wait: Duration) -> std::result::Result<FoundSeries, Status> {
        let (node, workflow, series) = ("b".into(), "w".into(), "s".into());
        let want = WantedSeries { node, workflow, series, former: false, wait };
        relay.shared.find_series(&want).map_err(|error| error.status)
    }

    #[test]
    fn an_observer_waits_also_while_the_other_node_has_too_many_requests() {
        let found = FoundSeries { segment: 7, newest: 3 };
        let refusals = [Status::Busy, Status::TimedOut, Status::Busy, Status::TimedOut];
        let patient = relay(refusals.map(Err).into_iter().chain([Ok(found.encode())]));
        assert_eq!(find(&patient, Duration::from_secs(60)), Ok(found));
        let full = relay([Err(Status::NoSpace), Err(Status::NoSpace), Ok(found.encode())]);
        assert_eq!(find(&full, Duration::from_secs(60)), Ok(found));
        let full = relay([Err(Status::NoSpace)]);
        assert_eq!(find(&full, Duration::from_secs(60)), Err(Status::NoSpace));
        // An observer that does not want to wait tries again when the other node refuses because of too many other
        // requests.
        let hasty = relay([Err(Status::Busy), Err(Status::Busy), Ok(found.encode())]);
        assert_eq!(find(&hasty, Duration::ZERO), Ok(found));
        // The observer's time is over when the second request is refused. So the third request, which would succeed, is
        // not made.
        let short = relay([Err(Status::Busy), Err(Status::Busy), Ok(found.encode())]);
        assert_eq!(find(&short, Duration::from_millis(10)), Err(Status::Busy));
        let late = relay([Err(Status::TimedOut)]);
        assert_eq!(find(&late, Duration::from_millis(300)), Err(Status::TimedOut));
    }

    #[test]
    fn a_supply_is_asked_for_again_while_the_other_node_has_too_many_requests_or_the_series_is_full() {
        let refusals = [Status::Busy, Status::NoSpace, Status::Busy, Status::NotFound];
        let asked = relay(refusals.map(Err));
        let (key, workflow, series) = (asked.shared.new_key(), "w".into(), "s".into());
        let question = messages::Supply { key, workflow, series, segment: 7, former: false, has: 0 };
        let refused = asked.shared.supplied("b", &question).map_err(|error| error.status);
        assert_eq!(refused.err(), Some(Status::NotFound));
    }

    /// Another node, whose bytes are pulled from its relay.
    struct Other(Relay);

    impl RelayNetwork for Other {
        fn ask(&self, _: &str, _: u32, _: &[u8], _: Deadline) -> crossdock_link::Result<Vec<u8>> {
            Err(crossdock_link::Error::new(Status::Disconnected, "ask", "it does not answer"))
        }

        fn pull(&self, _: &str, id: &SourceId, _: u64, to: &mut [u8], _: Deadline) -> crossdock_link::Result<()> {
            let source = self.0.source(id).expect("the bytes are offered");
            to.copy_from_slice(source.bytes(0, to.len() as u64, &mut crossdock_link::Buffer::default()).unwrap());
            Ok(())
        }
    }

    #[test]
    fn a_description_of_a_series_that_fits_into_no_answer_is_pulled() {
        let long = |number: usize| format!("{number:03}{}", "x".repeat(1000));
        let variable = |number: usize| Variable {
            name: long(number),
            ty: long(number),
            shape: vec![1],
            max_shape: vec![1],
            order: Order::C,
            constants: vec![],
        };
        let description = Description {
            variables: (0..64).map(variable).collect(),
            attributes: vec![],
            constants: vec![],
            chunk: 4096,
            publisher: MemberId(1),
            created: 1,
            full: FullPolicy::Withhold,
        };
        let original = Original { description, keep: 1, observers: 1, slots: 1 };
        let supplied = Supplied { original, publisher: "t".into() };
        let body = supplied.encode();
        assert!(body.len() > crossdock_layout::link::MAX_BODY);
        let other = relay([Err(Status::Disconnected)]);
        let load = other.shared.load_of(body);
        assert!(load.encode().len() <= crossdock_layout::link::MAX_BODY);
        let shared = Arc::clone(&other.shared);
        let own = Relay::new(1, Arc::new(Other(other)), PathBuf::from("/nowhere"), |_| {}).unwrap();
        assert!(own.shared.description("b", Load::decode(&load.encode()).unwrap()).unwrap() == supplied);
        shared.withdraw_load(&load);
        assert!(lock(&shared.offered).is_empty());
        let long = Load::Pull(7, messages::MOST + 1);
        assert_eq!(own.shared.description("b", long).err().map(|error| error.status), Some(Status::Invalid));
    }

    #[test]
    fn few_requests_observe_a_series_at_the_same_time() {
        let looks = Looks::default();
        let mut all: Vec<_> = (0..LOOKS).map(|_| looks.begin(Duration::ZERO).unwrap()).collect();
        assert_eq!(looks.begin(Duration::from_millis(1)).err().map(|error| error.status), Some(Status::Busy));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| looks.begin(Duration::from_secs(60)).is_ok());
            all.pop();
            assert!(next.join().unwrap());
        });
        assert!(looks.begin(Duration::ZERO).is_ok(), "the thread's request has ended");
    }

    #[test]
    fn requests_that_wait_for_series_leave_room_for_other_requests() {
        let finds = WaitingFinds::default();
        let mut waiting: Vec<_> = (0..FINDS_OF_NODE).map(|_| finds.begin("a").unwrap()).collect();
        assert!(finds.begin("a").is_none() && finds.begin("b").is_some());
        waiting.pop();
        assert!(finds.begin("a").is_some());
    }
}
