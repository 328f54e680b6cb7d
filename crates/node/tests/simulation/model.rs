//! The model: what the broker has told clients, and what the journal says. The guarantees are checked against it.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Answer, Grant, OpenMode, Request, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};
use crossdock_node::broker::Record;

use crate::client::Client;

/// An endpoint that was made: its maker has the broker's answer.
#[derive(Clone, Debug)]
pub struct KnownEndpoint {
    pub workflow: u64,
    pub name: String,
}

/// A segment that must exist: its maker has the broker's answer, and no client has asked to remove the segment since
/// then.
#[derive(Clone, Debug)]
pub struct Promise {
    pub workflow: u64,
    pub kind: SegmentKind,
    pub name: String,
    pub reserved: u64,
    pub holders: Holders,
}

/// The clients that can offer memory that was lost. `None` if the daemon has the memory.
pub type Holders = Option<BTreeSet<usize>>;

/// A workflow as its launcher made it.
pub struct KnownWorkflow {
    pub name: String,
    pub quota: u64,
    pub owner: MemberId,
}

#[derive(Default)]
pub struct Model {
    /// What the broker has told clients about items.
    pub items: crate::items::ItemModel,
    /// How often each kind of event happened. The counts show whether the random choices lead to events of every kind.
    pub counts: BTreeMap<String, usize>,
    /// The endpoints that were made, and whose makers have the broker's answer.
    pub endpoints: BTreeMap<u64, KnownEndpoint>,
    pub told_segments: BTreeSet<SegmentId>,
    told_as_new: BTreeSet<SegmentId>,
    pub sizes: BTreeMap<SegmentId, u64>,
    pub kinds: BTreeMap<SegmentId, SegmentKind>,
    /// True if a planted bug gives endpoints one grant too many. `planted_quota` is true if a planted bug gives
    /// workflows twice their quota.
    pub planted_grant: bool,
    pub planted_quota: bool,
    pub told_members: BTreeSet<MemberId>,
    /// For each segment: the simulated inode number of its memory, which the journal records.
    pub numbers: BTreeMap<SegmentId, u64>,
    pub promises: BTreeMap<SegmentId, Promise>,
    /// The largest ids that the journal ever had.
    last_segment: u64,
    last_member: u64,
    pub workflows: BTreeMap<u64, KnownWorkflow>,
    /// The workflows that have ended. The next field, `may_end`, has the workflows that a client has asked to end, and
    /// the workflows whose owner has ended.
    pub ended: BTreeSet<u64>,
    may_end: BTreeSet<u64>,
    gone: BTreeSet<MemberId>,
    /// For each request (its member and its number): the segment that the request made according to the journal.
    done: BTreeMap<(MemberId, u64), SegmentId>,
    removed: BTreeSet<SegmentId>,
    /// The present members of each workflow, according to the journal. The next field, `runs`, has the latest run of
    /// each workflow.
    present: BTreeMap<u64, BTreeSet<MemberId>>,
    runs: BTreeMap<u64, u64>,
    /// For each port that ends with its run: the port's workflow and the number of the run.
    ports: BTreeMap<SegmentId, (u64, u64)>,
    grants: BTreeMap<u64, Vec<Grant>>,
    /// The segments and pin pages whose descriptors were lost and were not offered again yet.
    pub lost: BTreeSet<SegmentId>,
    /// The segments and pin pages whose descriptors were lost at any time.
    ever_lost: BTreeSet<SegmentId>,
    /// The endpoints whose sockets were lost and were not offered again yet.
    pub deaf: BTreeSet<u64>,
    /// For each segment: its workflow, its kind and its name.
    pub names: BTreeMap<SegmentId, (u64, SegmentKind, String)>,
    /// The segments that may have lost their names, because a client asked to remove or to replace them, or because their
    /// run has ended.
    pub may_be_nameless: BTreeSet<SegmentId>,
    /// The requests to replace an object that have reached the broker. Such a request may wait while another one makes
    /// the object that it then replaces.
    replacing: BTreeSet<(MemberId, u64)>,
}

impl Model {
    /// Gives the names of the workflows that launchers made and that still exist.
    pub fn living_workflows(&self) -> Vec<String> {
        let living = self.workflows.iter().filter(|(n, w)| w.owner != MemberId::NONE && !self.may_end.contains(n));
        living.map(|(_, w)| w.name.clone()).collect()
    }

    pub fn count(&mut self, what: &str, id: SegmentId) {
        let kind = self.names.get(&id).map_or("pin page", |(_, kind, _)| kind.word());
        *self.counts.entry(format!("{kind} {what}")).or_insert(0) += 1;
    }

    /// Notes that the descriptor of this id was lost. Only these clients can offer it. If there are none, the model no
    /// longer expects that the segment or item exists.
    pub fn lose(&mut self, id: SegmentId, holders: BTreeSet<usize>) {
        self.lost.insert(id);
        self.ever_lost.insert(id);
        let items = &mut self.items.promised;
        if holders.is_empty() {
            self.promises.remove(&id);
            items.remove(&id);
            return;
        }
        let promise = self.promises.get_mut(&id).map(|promise| &mut promise.holders);
        for of in promise.into_iter().chain(items.get_mut(&id).map(|(_, of)| of)) {
            *of = Some(holders.clone());
        }
    }

    /// Notes that the daemon has the descriptor of this id.
    pub fn kept(&mut self, id: SegmentId) {
        self.lost.remove(&id);
        let promise = self.promises.get_mut(&id).map(|promise| &mut promise.holders);
        for of in promise.into_iter().chain(self.items.promised.get_mut(&id).map(|(_, of)| of)) {
            *of = None;
        }
    }

    /// Gives the promised segments and items whose memory is lost, each with the clients that can offer it.
    pub fn lost_promises(&self) -> Vec<(SegmentId, BTreeSet<usize>)> {
        let segments = self.promises.iter().map(|(id, promise)| (*id, &promise.holders));
        let items = self.items.promised.iter().map(|(id, (_, holders))| (*id, holders));
        segments.chain(items).filter_map(|(id, holders)| Some((id, holders.clone()?))).collect()
    }

    /// Gives the holders for a promise to this client, which has the memory.
    pub fn holders(&self, id: SegmentId, client: usize) -> Holders {
        self.lost.contains(&id).then(|| BTreeSet::from([client]))
    }

    /// If a record makes an object that replaces others, notes that the others may have lost their name.
    pub fn replaced(&mut self, record: &Record) {
        let Record::Segment { segment, workflow, kind, name, cause, .. } = record else { return };
        if self.replacing.contains(&(cause.member, cause.request)) {
            self.may_lose_name(*workflow, *kind, name, Some(*segment));
        }
    }

    /// Notes that the segments that were made with this name, `except` one, may have lost it.
    fn may_lose_name(&mut self, workflow: u64, kind: SegmentKind, name: &str, except: Option<SegmentId>) {
        let named = self.names.iter().filter(|(_, of)| (of.0, of.1, &*of.2) == (workflow, kind, name));
        self.may_be_nameless.extend(named.map(|(id, _)| *id).filter(|id| Some(*id) != except));
    }

    /// Notes a record of the journal. Checks that each new id is greater than all ids before it, even after kills.
    pub fn recorded(&mut self, record: &Record) {
        match record {
            Record::Segment { segment, size, cause, workflow, kind, persistent, name, .. } => {
                self.names.insert(*segment, (*workflow, *kind, name.clone()));
                if *kind == SegmentKind::Port && !*persistent {
                    self.ports.insert(*segment, (*workflow, self.runs.get(workflow).copied().unwrap_or(0)));
                }
                assert!(segment.0 > self.last_segment, "{segment} after {}", self.last_segment);
                self.last_segment = segment.0;
                // An id without a record may have been lost, and is then given out anew.
                self.ever_lost.remove(segment);
                self.sizes.insert(*segment, *size);
                self.kinds.insert(*segment, *kind);
                self.done.insert((cause.member, cause.request), *segment);
            }
            Record::Series { segment, size, workflow, name, .. } => {
                self.names.insert(*segment, (*workflow, SegmentKind::Series, name.clone()));
                assert!(segment.0 > self.last_segment, "{segment} after {}", self.last_segment);
                self.last_segment = crate::series::last_id(*segment);
                // An id without a record may have been lost, and is then given out anew.
                self.ever_lost.remove(segment);
                self.sizes.insert(*segment, *size);
                self.kinds.insert(*segment, SegmentKind::Series);
            }
            Record::Run { workflow, run } => {
                let before = self.runs.insert(*workflow, *run).unwrap_or(0);
                let present = self.present.get(workflow).is_some_and(|members| !members.is_empty());
                assert!(*run == before + 1 && !present, "run {run} after {before} of workflow {workflow}");
            }
            Record::MemberGone { member } | Record::Ghost { member, .. } => {
                for members in self.present.values_mut() {
                    members.remove(member);
                }
            }
            Record::Member { member, workflow, .. } => {
                let runs = self.runs.contains_key(workflow) || self.workflows[workflow].owner != MemberId::NONE;
                assert!(runs, "{member} belongs to no run");
                self.present.entry(*workflow).or_default().insert(*member);
                assert!(member.counter() > self.last_member, "{member} after {}", self.last_member);
                self.last_member = member.counter();
            }
            Record::Workflow { number, quota, owner, name, .. } => {
                let quota = if self.planted_quota { quota / 2 } else { *quota };
                let known = KnownWorkflow { name: name.clone(), quota, owner: *owner };
                if self.gone.contains(owner) {
                    self.may_end.insert(*number);
                }
                let fresh = self.workflows.insert(*number, known).is_none();
                assert!(fresh && !self.ended.contains(number), "workflow number {number} again");
            }
            Record::WorkflowEnd { number, .. } => {
                self.ended.insert(*number);
                self.present.remove(number);
                self.items.workflow_ends(*number);
                self.promises.retain(|_, p| p.workflow != *number);
                self.endpoints.retain(|_, e| e.workflow != *number);
            }
            Record::Removed { segment, .. } => {
                self.removed.insert(*segment);
                // `promises` has the segments that must exist because no client has asked to remove them. A port in
                // `promises` may be removed only because its run has ended. So the model forgets the promise of the
                // port only if the run has ended.
                let of = self.ports.get(segment).map(|(workflow, _)| *workflow);
                let over = |number| self.present.get(&number).is_none_or(BTreeSet::is_empty);
                if of.is_some_and(over) {
                    self.may_be_nameless.insert(*segment);
                    self.promises.remove(segment);
                }
            }
            Record::Endpoint { number, grants, .. } => {
                let meant = if self.planted_grant { grants.len() - 1 } else { grants.len() };
                self.grants.insert(*number, grants[..meant].to_vec());
            }
            Record::Numbers { segment, numbers } => {
                let ids = (segment.0..).map(SegmentId);
                self.numbers.extend(ids.zip(numbers.iter().copied()));
            }
            Record::Item(record) => self.items.recorded(record),
            _ => {}
        }
    }

    /// Tells whether the daemon has lost the memory of this segment at any time.
    pub fn was_lost(&self, segment: SegmentId) -> bool {
        self.ever_lost.contains(&segment)
    }

    /// Tells whether something has happened that may end this workflow.
    pub fn may_end(&self, workflow: u64) -> bool {
        self.may_end.contains(&workflow)
    }

    /// Notes that a request has reached the broker. If the request may remove an object, the model no longer expects
    /// that the object exists.
    /// `published` has the series with living publishers: these series keep their names when others are published.
    pub fn delivered(&mut self, client: &Client, number: u64, request: &Request, published: &BTreeSet<SegmentId>) {
        if matches!(request, Request::Open { mode: OpenMode::Recreate, .. }) {
            self.replacing.insert((client.member, number));
        }
        match request {
            Request::Remove { kind, name, .. } | Request::Open { kind, name, mode: OpenMode::Recreate, .. } => {
                self.promises.retain(|_, p| !(p.workflow == client.workflow && p.kind == *kind && p.name == *name));
                self.may_lose_name(client.workflow, *kind, name, None);
            }
            Request::Publish { name, .. } => {
                let kind = SegmentKind::Series;
                let ends = |p: &Promise| p.workflow == client.workflow && p.kind == kind && p.name == *name;
                self.promises.retain(|id, p| published.contains(id) || !ends(p));
            }
            Request::Item(request) => self.items.delivered(request),
            Request::EndWorkflow { name } => {
                let ending: Vec<_> = self.workflows.iter().filter(|(_, w)| w.name == *name).map(|(n, _)| *n).collect();
                ending.into_iter().for_each(|number| self.ending(number));
            }
            _ => {}
        }
    }

    fn ending(&mut self, number: u64) {
        if self.workflows.get(&number).is_some_and(|w| w.owner != MemberId::NONE) {
            self.may_end.insert(number);
            self.items.workflow_ends(number);
            self.promises.retain(|_, p| p.workflow != number);
            self.endpoints.retain(|_, e| e.workflow != number);
        }
    }

    /// Notes that a client is dead, is leaving, or has broken the rules. The model no longer expects that the client's
    /// workflows exist.
    pub fn left(&mut self, client: &Client) {
        self.gone.insert(client.member);
        let owned: Vec<_> = self.workflows.iter().filter(|(_, w)| w.owner == client.member).map(|(n, _)| *n).collect();
        owned.into_iter().for_each(|number| self.ending(number));
    }

    pub fn welcomed(&mut self, client: &Client, member: MemberId, resumed: bool, workflow: &str) {
        assert_eq!(workflow, client.workflow_name, "a member of another workflow than its endpoint's");
        if client.member != MemberId::NONE {
            assert_eq!(member, client.member, "it came back as another member");
            assert!(resumed);
        } else if !resumed {
            assert!(self.told_members.insert(member), "{member} was another client before");
        }
        self.told_members.insert(member);
    }

    /// Notes that a series is complete. From now on the series must exist, whatever is killed, until it is removed or
    /// until another series of its name is published.
    pub fn promise_series(&mut self, client: &Client, segment: SegmentId, name: &str) {
        self.told_segments.insert(segment);
        let taken = self.removed.contains(&segment) || self.may_end.contains(&client.workflow);
        if !taken {
            let (workflow, kind, name) = (client.workflow, SegmentKind::Series, name.to_owned());
            let holders = self.holders(segment, client.index());
            self.promises.insert(segment, Promise { workflow, kind, name, reserved: 0, holders });
        }
    }

    /// Is called when the broker refuses a client because it takes the client for dead. Checks that the client has
    /// really ended.
    pub fn refused(&self, client: &Client) {
        assert!(self.may_be_dead(client), "{} is alive and was not let back in", client.member);
    }

    pub fn may_be_dead(&self, client: &Client) -> bool {
        !client.can_act() || self.may_end.contains(&client.workflow)
    }

    pub fn rights(&self, client: &Client, kind: SegmentKind, name: &str) -> Rights {
        if client.endpoint == 0 {
            return Rights::ALL;
        }
        let grants = self.grants.get(&client.endpoint).into_iter().flatten();
        grants.filter(|g| fits(g, kind, name)).fold(Rights::NONE, |sum, g| sum.with(g.rights))
    }

    pub fn answered(&mut self, client: &Client, request: &Request, answer: &Answer, writable: bool, number: u64) {
        let came = match answer {
            Answer::Failed { status, .. } => status.word(),
            Answer::Segment { created: true, .. } => "created",
            _ => "done",
        };
        let who = if client.endpoint == 0 { "main" } else { "task" };
        *self.counts.entry(format!("{who} {} {came}", request.number())).or_insert(0) += 1;
        match (request, answer) {
            (_, Answer::Segment { segment, kind, name, created, reserved, .. }) => {
                // A task without a grant gets nothing.
                let rights = self.rights(client, *kind, name);
                let any = match kind {
                    SegmentKind::Region => Rights::READ.with(Rights::WRITE).with(Rights::CREATE),
                    SegmentKind::Port => Rights::PRODUCE.with(Rights::CONSUME),
                    SegmentKind::Series => Rights::PUBLISH.with(Rights::OBSERVE),
                    SegmentKind::Item => Rights::NONE,
                };
                assert!(rights.0 & any.0 != 0, "{kind:?} {name} without a grant");
                assert!(*kind != SegmentKind::Series || !writable, "the pool of series {name} can be written");
                if *kind == SegmentKind::Region && writable && !created {
                    assert!(rights.contains(Rights::WRITE), "{name} for writing with {}", rights.words());
                }
                // A member never gets a port of a former run.
                if let Some((workflow, run)) = self.ports.get(segment) {
                    let now = self.runs.get(workflow).copied().unwrap_or(0);
                    assert!(*run == now || self.removed.contains(segment), "port {name} of run {run} in run {now}");
                }
                if let Request::Open { name: asked, kind: of, mode, .. } = request {
                    assert_eq!((asked, of), (name, kind), "another segment than was asked for");
                    if *created && *kind == SegmentKind::Region {
                        assert!(rights.contains(Rights::CREATE), "{name} was made without the right to");
                    }
                    assert!(*created || *mode != OpenMode::CreateOnly && *mode != OpenMode::Recreate);
                    if *created {
                        assert!(self.told_as_new.insert(*segment), "{segment} was told of as new before");
                        let (workflow, name) = (client.workflow, name.clone());
                        let holders = self.holders(*segment, client.index());
                        let promise = Promise { workflow, kind: *kind, name, reserved: *reserved, holders };
                        let taken = self.removed.contains(segment) || self.may_end.contains(&client.workflow);
                        if !taken {
                            self.promises.insert(*segment, promise);
                        }
                    }
                }
                self.told_segments.insert(*segment);
            }
            (Request::Open { mode, name, .. }, Answer::Failed { status, text }) => {
                // If a request has made a segment, and the segment was not removed, a repetition of the request must
                // not fail.
                if let Some(done) = self.done.get(&(client.member, number)).filter(|s| !self.removed.contains(s)) {
                    let excused = self.may_end.contains(&client.workflow) || self.was_lost(*done);
                    assert!(excused, "{mode:?} {name} made {done}, but was told {status}: {text}");
                }
                assert!(*status != Status::Ok);
            }
            (Request::Reserve { segment, .. }, Answer::Done { value }) => {
                if let Some(promise) = self.promises.get_mut(segment) {
                    promise.reserved = promise.reserved.max(*value);
                }
            }
            (Request::MakeEndpoint { workflow, .. }, Answer::Done { value }) => {
                assert_eq!(client.endpoint, 0, "a task makes an endpoint");
                let of = self.workflows.iter().find(|(n, w)| w.name == *workflow && !self.may_end.contains(n));
                if let Some((number, known)) = of {
                    let known = KnownEndpoint { workflow: *number, name: known.name.clone() };
                    self.endpoints.insert(*value, known);
                }
            }
            (Request::MakeWorkflow { .. } | Request::EndWorkflow { .. }, Answer::Done { .. }) => {
                assert_eq!(client.endpoint, 0, "a task manages workflows");
            }
            (Request::List { .. }, Answer::Segments(page)) => {
                for entry in &page.entries {
                    assert!(client.endpoint == 0 || entry.workflow == client.workflow_name, "it sees another workflow");
                }
            }
            _ => {}
        }
    }
}

fn fits(grant: &Grant, kind: SegmentKind, name: &str) -> bool {
    grant.kind == kind
        && (grant.pattern == name
            || grant.pattern.strip_suffix('*').is_some_and(|beginning| name.starts_with(beginning)))
}
