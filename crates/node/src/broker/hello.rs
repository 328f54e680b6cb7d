//! Handles hello, a client's first message on a connection. It contains the client's protocol version and its task, and
//! says whether the client was connected before.

use crossdock_layout::id::MAX_MEMBERS;
use crossdock_layout::wire::{Answer, FINGERPRINT, PROTOCOL_VERSION, Request};
use crossdock_layout::{LAYOUT_VERSION, MemberId, Status};

use super::{
    Attachment, Broker, Connection, DEFAULT_WORKFLOW, Due, Effect, MAIN_ENDPOINT, NodeFailure, Record, Requester, text,
};

/// The task name of a program that names no task.
pub(super) const NAMELESS_TASK: &str = "program";

impl Broker {
    /// Refuses a client of another build, if the message is the hello of such a client. Returns `false` if the message
    /// is no hello of any build.
    pub(super) fn refuse_version(&mut self, connection: Connection, message: &[u8]) -> bool {
        let Some(theirs) = Request::versions(message) else { return false };
        let number = u64::from_le_bytes(message[8..16].try_into().expect("versions() saw a header"));
        let asker = Requester { connection, member: MemberId::NONE, number, opcode: 1 };
        self.fail(asker, Status::Incompatible, text::incompatible(theirs));
        self.drop_link(connection, "it was built for another version");
        true
    }

    pub(super) fn hello(&mut self, connection: Connection, number: u64, request: Request) {
        let Request::Hello { protocol, layout, fingerprint, token, member, rank, task, workflow, visitor } = request
        else {
            return;
        };
        let asker = Requester { connection, member, number, opcode: 1 };
        if (protocol, layout, fingerprint) != (PROTOCOL_VERSION, LAYOUT_VERSION, FINGERPRINT) {
            self.fail(asker, Status::Incompatible, text::incompatible((protocol, layout, fingerprint)));
            return self.drop_link(connection, "it was built for another version");
        }
        if token == [0; 16] {
            return self.expel(connection, "its token is empty");
        }
        let link = &self.links[&connection];
        let (endpoint, peer) = (link.endpoint, link.peer);
        if endpoint == MAIN_ENDPOINT && peer.uid != self.limits.uid && peer.uid != 0 {
            let text = format!(
                "the daemon's socket serves user {} and this is user {}; ask for an endpoint of your own task",
                self.limits.uid, peer.uid
            );
            return self.refuse(asker, Status::Denied, text);
        }
        if let Some(known) = self.lasting.tokens.get(&token).copied() {
            return self.welcome_back(asker, known, member == MemberId::NONE);
        }
        if member != MemberId::NONE {
            let text = match self.lasting.era {
                Some(era) if member.counter() >= era.first => {
                    format!(
                        "the session of {member} is over: its workflow ended, or it broke the protocol; connect anew"
                    )
                }
                _ => format!("this daemon began anew and knows nothing of {member}; connect anew"),
            };
            return self.refuse(asker, Status::Disconnected, text);
        }
        let found = match self.lasting.endpoints.get(&endpoint) {
            None => self.place_main(task, workflow),
            Some(_) => self.place_task(endpoint, task, workflow),
        };
        let (workflow, task) = match found {
            Ok(found) => found,
            Err((status, text)) => return self.refuse(asker, status, text),
        };
        // A task's endpoint may have at most a third as many members as the main endpoint. So a task in a container
        // cannot take all slots of the node. A member keeps its slot until it is dead. So every member that is not dead
        // counts.
        let alike = self.lasting.members_through(endpoint);
        let most = if endpoint == MAIN_ENDPOINT { self.limits.members } else { self.limits.members / 3 };
        let slot = self.lasting.free_slot().filter(|_| alike < most);
        let Some(slot) = slot else {
            let text = format!(
                "task '{task}' has {alike} members and the node {} (at most {most} and {MAX_MEMBERS}); let some leave first",
                self.lasting.members.len()
            );
            return self.refuse(asker, Status::NoSpace, text);
        };
        if let Err(NodeFailure { status, text }) = self.check_journal() {
            return self.refuse(asker, status, text);
        }
        let member = MemberId::new(self.lasting.next_member, slot);
        if !visitor {
            self.begin_run(workflow);
        }
        self.commit(Record::Member { member, endpoint, workflow, task, rank, peer, token, visitor });
        self.listed.insert(member);
        self.enter(asker, member, false);
    }

    /// Gives the workflow and the task name of a process that connected through the main endpoint.
    fn place_main(&self, task: Option<String>, workflow: Option<String>) -> Result<(u64, String), (Status, String)> {
        let name = workflow.unwrap_or_else(|| DEFAULT_WORKFLOW.to_owned());
        let Some(number) = self.lasting.workflow_names.get(&name) else {
            let text = format!("there is no workflow '{name}' on this node; `crossdock ls` shows those there are");
            return Err((Status::NotFound, text));
        };
        Ok((*number, task.unwrap_or_else(|| NAMELESS_TASK.to_owned())))
    }

    /// Gives the workflow and the task name of a process that connected through a task's endpoint. Each of these
    /// endpoints belongs to one task only.
    fn place_task(
        &self,
        endpoint: u64,
        task: Option<String>,
        workflow: Option<String>,
    ) -> Result<(u64, String), (Status, String)> {
        let made_for = &self.lasting.endpoints[&endpoint];
        let of = self.lasting.workflows.get(&made_for.workflow).map_or("", |w| &w.name);
        if let Some(other) = task.filter(|t| *t != made_for.task) {
            let text = format!("this endpoint is task '{}', not '{other}'; name no task, or that one", made_for.task);
            return Err((Status::Denied, text));
        }
        if let Some(other) = workflow.filter(|w| w != of) {
            let text = format!("this endpoint is of workflow '{of}', not '{other}'; name none, or that one");
            return Err((Status::Denied, text));
        }
        Ok((made_for.workflow, made_for.task.clone()))
    }

    /// Welcomes a member that connects again. `fresh` says that the member never got its first welcome.
    fn welcome_back(&mut self, asker: Requester, member: MemberId, fresh: bool) {
        let link = &self.links[&asker.connection];
        let known = &self.lasting.members[&member];
        if known.endpoint != link.endpoint || known.peer.uid != link.peer.uid {
            return self.refuse(asker, Status::Denied, "this token is another's".to_owned());
        }
        if let Some(former) = self.connected.remove(&member) {
            // The member has a new connection in place of its former one. The end of the former connection must not
            // count as this member's death.
            if let Some(link) = self.links.get_mut(&former) {
                link.member = None;
            }
            self.drop_link(former, "its member came by another connection");
            self.goes_away(member);
        }
        // A member that never got its first welcome has asked for nothing, and sends no list.
        if !fresh {
            self.begin_list_of_items(member);
        }
        self.enter(asker, member, true);
    }

    fn enter(&mut self, asker: Requester, member: MemberId, resumed: bool) {
        let connection = asker.connection;
        let Some(link) = self.links.get_mut(&connection) else { return };
        link.member = Some(member);
        let endpoint = link.endpoint;
        self.waits.is_over(link.hello_due, Due::Hello(connection));
        if let Some(silent) = self.silent.get_mut(&endpoint) {
            silent.remove(&connection);
        }
        self.connected.insert(member, connection);
        self.heard.insert(member, self.now);
        let known = &self.lasting.members[&member];
        let (workflow, run) = self.lasting.workflows.get(&known.workflow).map_or(("", 0), |w| (&w.name, w.run));
        let welcome = Answer::Welcome {
            member,
            resumed,
            admin: endpoint == MAIN_ENDPOINT,
            incarnation: self.offers,
            run,
            rank: known.rank,
            task: known.task.clone(),
            workflow: workflow.to_owned(),
        };
        self.effects.push(Effect::Alive { member });
        let message = welcome.encode(1, asker.number);
        self.effects.push(Effect::Send { connection, message, with: Attachment::Papers { member } });
    }

    /// Tells the client why it is refused, and closes the connection.
    fn refuse(&mut self, asker: Requester, status: Status, text: String) {
        self.answer(asker, &Answer::Failed { status, text });
        self.drop_link(asker.connection, "its hello was refused");
    }
}

#[cfg(test)]
mod tests {
    use crossdock_layout::wire::{Answer, ItemLevel, ItemRequest, OpenMode, SegmentKind};
    use crossdock_layout::{Rights, SegmentId};

    use super::*;
    use crate::broker::bench::Bench;
    use crate::broker::{Event, Limits};

    #[test]
    fn a_member_that_comes_by_a_second_connection_has_open_what_it_lists() {
        let mut bench = Bench::new(Limits::default());
        let member = bench.join(1, MAIN_ENDPOINT, "t", 0).unwrap();
        let open = Request::Open {
            kind: SegmentKind::Region,
            mode: OpenMode::CreateOnly,
            access: Rights::WRITE,
            size: 4096,
            reserve: 0,
            attribute: 0,
            wait_ms: 0,
            persistent: false,
            name: "r".into(),
        };
        bench.ask(1, open);
        let item = bench.create(1, "x", ItemLevel::Verified);
        // The member lists an item that it has open. Its list is not complete yet when it connects again.
        bench.say(1, &Request::Item(ItemRequest::Hold { item }));
        assert_eq!(bench.hello(101, MAIN_ENDPOINT, "t", 0, member), Some(member));
        bench.say(101, &Request::Hold { segment: SegmentId(0), count: 0 });
        bench.say(101, &Request::Item(ItemRequest::Hold { item: SegmentId(0) }));
        assert_eq!(bench.broker.open_segments.of_member(member), []);
        assert_eq!(bench.broker.lasting().items.all[&item].holder, MemberId::NONE);
    }

    #[test]
    fn a_member_whose_session_is_over_counts_against_its_endpoints_limit_until_it_is_dead() {
        let mut bench = Bench::new(Limits { members: 6, ..Limits::default() });
        bench.join(1, MAIN_ENDPOINT, "launcher", 0);
        let (workflow, task) = (DEFAULT_WORKFLOW.to_owned(), "t".to_owned());
        let made = bench.ask(1, Request::MakeEndpoint { workflow, task, grants: vec![] });
        let Some(Answer::Done { value: endpoint }) = made else { panic!("{made:?}") };
        let mut expelled = Vec::new();
        for connection in 2..4 {
            expelled.extend(bench.join(connection, endpoint, "t", 0));
            bench.event(Event::Message { connection, bytes: Some(b"rubbish!"), descriptors: &[] });
        }
        assert_eq!((expelled.len(), bench.broker.lasting().ghosts.len()), (2, 2));
        assert_eq!(bench.join(4, endpoint, "t", 0), None);
        assert!(bench.join(5, MAIN_ENDPOINT, "honest", 0).is_some());
        bench.restart();
        assert_eq!(bench.join(6, endpoint, "t", 0), None);
        bench.event(Event::ProcessDied { member: expelled[0] });
        assert!(bench.join(7, endpoint, "t", 0).is_some());
    }
}
