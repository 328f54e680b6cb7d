//! Workflows and endpoints. Members of the main endpoint make them. A workflow and its endpoints end with the member
//! that made the workflow.

use crossdock_layout::Status;
use crossdock_layout::wire::{Answer, Grant};

use super::{Broker, Cause, DEFAULT_WORKFLOW, Descriptor, Effect, Record, Requester};

/// The maximum number of grants of one endpoint.
const GRANTS: usize = 1024;
/// A node may have at most this part of its number of segments as endpoints. With the segments and the doors of items,
/// the endpoints then leave enough descriptors for the next broker to start.
const ENDPOINTS_PART: u64 = 2;

impl Broker {
    fn allowed(&mut self, asker: Requester) -> bool {
        if self.is_admin(asker.connection) {
            return self.journal_works(asker);
        }
        let text = "a task's endpoint cannot manage workflows; connect to the daemon's own socket as its user";
        self.fail(asker, Status::Denied, text);
        false
    }

    pub(super) fn make_workflow(&mut self, asker: Requester, quota: u64, name: String) {
        if !self.allowed(asker) {
            return;
        }
        if self.lasting.workflow_names.contains_key(&name) {
            let text = format!("a workflow '{name}' is there already; end it, or take another name");
            return self.fail(asker, Status::Exists, text);
        }
        let number = self.lasting.next_number;
        let cause = Cause { member: asker.member, request: asker.number };
        self.commit(Record::Workflow { number, quota, owner: asker.member, name, cause });
        self.answer(asker, &Answer::Done { value: 0 });
    }

    pub(super) fn make_endpoint(
        &mut self,
        asker: Requester,
        workflow: &str,
        task: String,
        grants: Vec<Grant>,
        descriptors: &[Descriptor],
    ) {
        if !self.allowed(asker) {
            return;
        }
        let Some(number) = self.lasting.workflow_names.get(workflow).copied() else {
            let text = format!("there is no workflow '{workflow}' for the endpoint of task '{task}'; make it first");
            return self.fail(asker, Status::NotFound, text);
        };
        if descriptors != [Descriptor::Listener] {
            let text = format!("what came for the endpoint of task '{task}' is not a listening SOCK_SEQPACKET socket");
            return self.fail(asker, Status::Invalid, text);
        }
        // Each endpoint takes a descriptor in the keeper and in the broker.
        let (count, most) = (self.lasting.endpoints.len() as u64, self.limits.segments / ENDPOINTS_PART);
        if count >= most {
            let text = format!(
                "no room for the endpoint of task '{task}': the node has {count} endpoints, of at most {most}; end a \
                 workflow, or raise the daemon's descriptor limit (ulimit -n)"
            );
            return self.fail(asker, Status::NoSpace, text);
        }
        let endpoint = self.lasting.next_number;
        let cause = Cause { member: asker.member, request: asker.number };
        self.effects.push(Effect::Listen { endpoint });
        self.commit(Record::Endpoint { number: endpoint, workflow: number, task, grants, cause });
        self.answer(asker, &Answer::Done { value: endpoint });
    }

    /// Accepts the listening socket of an endpoint from a member, if the daemon lost this socket with the keeper. If
    /// the daemon still has the socket, nothing happens, because a member whose connection was lost may send the socket
    /// twice.
    pub(super) fn listen(&mut self, asker: Requester, endpoint: u64, descriptors: &[Descriptor]) {
        if !self.is_admin(asker.connection) {
            let text = "a task's endpoint cannot give endpoints; connect to the daemon's own socket as its user";
            return self.fail(asker, Status::Denied, text);
        }
        let Some(found) = self.lasting.endpoints.get(&endpoint) else {
            return self.fail(asker, Status::NotFound, format!("there is no endpoint {endpoint}"));
        };
        if descriptors != [Descriptor::Listener] {
            let task = &found.task;
            let text = format!("what came for the endpoint of task '{task}' is not a listening SOCK_SEQPACKET socket");
            return self.fail(asker, Status::Invalid, text);
        }
        self.hear(endpoint);
        self.answer(asker, &Answer::Done { value: endpoint });
    }

    /// If the listening socket of this endpoint was lost, listens at the endpoint again. The message that is being
    /// handled brought a listening socket for the endpoint.
    pub(super) fn hear(&mut self, endpoint: u64) {
        if self.deaf.remove(&endpoint) {
            self.effects.push(Effect::Listen { endpoint });
        }
    }

    pub(super) fn add_grants(&mut self, asker: Requester, endpoint: u64, grants: Vec<Grant>) {
        if !self.allowed(asker) {
            return;
        }
        let Some(found) = self.lasting.endpoints.get(&endpoint) else {
            return self.fail(asker, Status::NotFound, format!("there is no endpoint {endpoint}"));
        };
        if found.grants.len() + grants.len() > GRANTS {
            let text =
                format!("task '{}' would have more than {GRANTS} grants; use patterns that end in *", found.task);
            return self.fail(asker, Status::NoSpace, text);
        }
        let cause = Cause { member: asker.member, request: asker.number };
        self.commit(Record::Grants { endpoint, grants, cause });
        self.answer(asker, &Answer::Done { value: endpoint });
    }

    pub(super) fn end_workflow(&mut self, asker: Requester, name: &str) {
        // A workflow may be ended even if the journal is full, because the end of a workflow lets the journal become
        // shorter.
        if !self.is_admin(asker.connection) {
            let text = "a task cannot end its workflow; the launcher does";
            return self.fail(asker, Status::Denied, text);
        }
        if name == DEFAULT_WORKFLOW {
            let text = "the default workflow ends with the daemon; remove its regions and ports instead";
            return self.fail(asker, Status::Invalid, text);
        }
        let Some(number) = self.lasting.workflow_names.get(name).copied() else {
            return self.fail(asker, Status::NotFound, format!("there is no workflow '{name}' to end"));
        };
        self.finish_workflow(number, Cause { member: asker.member, request: asker.number });
        self.answer(asker, &Answer::Done { value: 0 });
    }

    /// Removes everything that belongs to a workflow: first its lasting state, by one record, and then its descriptors,
    /// members and connections.
    pub(super) fn finish_workflow(&mut self, number: u64, cause: Cause) {
        let segments = self.lasting.segments_of(number);
        let descriptors: Vec<_> = segments.iter().flat_map(|s| self.lasting.descriptors_of(*s)).collect();
        let members = self.lasting.members_of(number);
        self.forget_items_of(number);
        let endpoints = self.lasting.endpoints.iter().filter(|(_, e)| e.workflow == number);
        let endpoints: Vec<_> = endpoints.map(|(n, _)| *n).collect();
        // If a member of this workflow made another workflow, that workflow ends, too.
        let within = self.lasting.workflows.iter().filter(|(n, w)| **n != number && members.contains(&w.owner));
        for inner in within.map(|(n, _)| *n).collect::<Vec<_>>() {
            self.finish_workflow(inner, Cause::NONE);
        }
        for member in &members {
            self.heard.remove(member);
            self.listed.remove(member);
            self.unlisted.remove(member);
            self.progress.remove(member);
        }
        segments.iter().for_each(|segment| self.forget_slots(*segment));
        self.commit(Record::WorkflowEnd { number, cause });
        self.forget_entries();
        for segment in segments {
            self.open_segments.forget(segment);
            self.unused.remove(&segment);
        }
        for segment in descriptors {
            self.lost.remove(segment);
            self.pages.is_settled(segment);
            self.effects.push(Effect::Forget { segment });
        }
        for endpoint in &endpoints {
            self.deaf.remove(endpoint);
            self.effects.push(Effect::Unlisten { endpoint: *endpoint });
        }
        for member in members {
            self.drop_holds(member);
            self.connected.remove(&member);
        }
        let links = self.links.iter().filter(|(_, l)| {
            endpoints.contains(&l.endpoint) || l.member.is_some_and(|m| !self.lasting.members.contains_key(&m))
        });
        for connection in links.map(|(c, _)| *c).collect::<Vec<_>>() {
            self.drop_link(connection, "its workflow ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crossdock_layout::wire::Request;

    use super::*;
    use crate::broker::bench::{Bench, status};
    use crate::broker::{Limits, MAIN_ENDPOINT};

    #[test]
    fn an_endpoints_socket_that_comes_twice_after_the_keepers_death_makes_no_second_endpoint() {
        let mut bench = Bench::new(Limits::default());
        let launcher = bench.join(1, MAIN_ENDPOINT, "launcher", 0).unwrap();
        let (workflow, task) = (DEFAULT_WORKFLOW.to_owned(), "t".to_owned());
        let make = Request::MakeEndpoint { workflow, task, grants: vec![] };
        let value = |answer| match answer {
            Some(Answer::Done { value }) => value,
            other => panic!("{other:?}"),
        };
        let endpoints = [value(bench.ask(1, make.clone())), value(bench.ask(1, make))];
        let all = BTreeSet::from([MAIN_ENDPOINT, endpoints[0], endpoints[1]]);
        assert_eq!((all.len(), &bench.listening), (3, &all));
        bench.listening = BTreeSet::from([MAIN_ENDPOINT]);
        bench.restart();
        for connection in [101, 201] {
            assert_eq!(bench.hello(connection, MAIN_ENDPOINT, "launcher", 0, launcher), Some(launcher));
            for endpoint in endpoints {
                assert_eq!(value(bench.ask(connection, Request::Listen { endpoint })), endpoint);
            }
            assert_eq!((bench.broker.lasting().endpoints.len(), &bench.listening), (2, &all));
        }
        let unknown = bench.ask(201, Request::Listen { endpoint: 999 });
        assert!(matches!(unknown, Some(Answer::Failed { status: Status::NotFound, .. })), "{unknown:?}");
    }

    #[test]
    fn the_number_of_endpoints_is_limited() {
        let mut bench = Bench::new(Limits { segments: 16, ..Limits::default() });
        bench.join(1, MAIN_ENDPOINT, "launcher", 0);
        let (workflow, task) = (DEFAULT_WORKFLOW.to_owned(), "t".to_owned());
        let make = Request::MakeEndpoint { workflow, task, grants: vec![] };
        let mut made = 0;
        let refused = loop {
            match bench.ask(1, make.clone()) {
                Some(Answer::Done { .. }) => made += 1,
                other => break other,
            }
        };
        assert_eq!((made, status(refused)), (8, Some(Status::NoSpace)));
    }
}
