//! Messages whose descriptors the daemon could not receive, because it had no descriptor left.

use crossdock_layout::wire::{Header, Malformed, Request};
use crossdock_layout::{MemberId, Status};

use super::{Broker, Connection, Outcome, Requester};

impl Broker {
    /// Handles a message whose descriptors the kernel has dropped. Usually the request fails, and the member may send it
    /// again. But if a former broker has carried out this request, and its answer was lost, the member gets this answer.
    /// Otherwise the member would take the request for failed although its effects last: for example, the name of a
    /// series would stay taken by a publisher that does not know of the series.
    pub(super) fn stripped(&mut self, connection: Connection, bytes: &[u8]) {
        let Some(link) = self.links.get(&connection) else { return };
        let member = link.member;
        // The descriptors that should have come are those that the header names.
        let decoded = Header::decode(bytes).and_then(|(header, _)| Request::decode(bytes, header.descriptors.into()));
        let (header, request) = match decoded {
            Ok((header, _)) if header.descriptors == 0 => {
                return self.expel(connection, &Malformed::Descriptors.to_string());
            }
            Ok(decoded) => decoded,
            Err(malformed) => return self.expel(connection, &malformed.to_string()),
        };
        let number = header.request;
        let asker =
            Requester { connection, member: member.unwrap_or(MemberId::NONE), number, opcode: request.number() };
        if let Some(member) = member {
            self.heard.insert(member, self.now);
            self.settle(member, header.word);
        }
        let known = self.lasting.members.get(&asker.member);
        match known.and_then(|m| m.outcomes.get(&number)).copied() {
            Some(outcome) if !self.needs_descriptor(&request, outcome) => self.repeat(asker, &request, outcome, &[]),
            _ => {
                let text = "the daemon has no descriptor left for what came with it; raise its limit (ulimit -n)";
                self.fail(asker, Status::NoSpace, text);
            }
        }
    }

    /// Tells whether a repeated request cannot be answered without its descriptor. This is so if the request has made an
    /// endpoint whose listening socket was lost with the keeper.
    fn needs_descriptor(&self, request: &Request, outcome: Outcome) -> bool {
        matches!((request, outcome), (Request::MakeEndpoint { .. }, Outcome::Done(made)) if self.deaf.contains(&made))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crossdock_layout::wire::Answer;

    use crate::broker::bench::Bench;
    use crate::broker::{DEFAULT_WORKFLOW, Descriptor, Event, Limits, MAIN_ENDPOINT};

    use super::*;

    const POOL: &[Descriptor] = &[Descriptor::Pool { size: 65_536, number: 7 }];

    fn publish() -> Request {
        Request::Publish { size: 65_536, reserved: 4096, attribute: 0, observers: 4, name: "u".into() }
    }

    fn make_endpoint() -> Request {
        Request::MakeEndpoint { workflow: DEFAULT_WORKFLOW.into(), task: "t".into(), grants: vec![] }
    }

    fn strip(bench: &mut Bench, connection: u64, number: u64, request: &Request) -> Option<Answer> {
        bench.event(Event::Stripped { connection, bytes: &request.encode(number, 0) });
        bench.answer(connection, number)
    }

    fn fails(answer: Option<Answer>) -> bool {
        matches!(answer, Some(Answer::Failed { status: Status::NoSpace, .. }))
    }

    #[test]
    fn a_request_that_was_carried_out_is_answered_also_if_its_repetition_has_lost_its_descriptor() {
        for (request, descriptors) in [(publish(), POOL), (make_endpoint(), &[Descriptor::Listener])] {
            let mut bench = Bench::new(Limits::default());
            let member = bench.join(1, MAIN_ENDPOINT, "t", 0).unwrap();
            assert!(fails(strip(&mut bench, 1, 1000, &request)), "it was not carried out before");
            let number = bench.say_with(1, &request, descriptors);
            let first = bench.answer(1, number);
            assert!(matches!(first, Some(Answer::Done { .. })), "{first:?}");
            bench.restart();
            assert_eq!(bench.hello(101, MAIN_ENDPOINT, "t", 0, member), Some(member));
            assert_eq!(strip(&mut bench, 101, number, &request), first);
        }
    }

    #[test]
    fn an_endpoint_whose_socket_was_lost_with_the_keeper_is_not_confirmed_without_a_socket() {
        let mut bench = Bench::new(Limits::default());
        let member = bench.join(1, MAIN_ENDPOINT, "t", 0).unwrap();
        let number = bench.say(1, &make_endpoint());
        bench.listening = BTreeSet::from([MAIN_ENDPOINT]);
        bench.restart();
        assert_eq!(bench.hello(101, MAIN_ENDPOINT, "t", 0, member), Some(member));
        assert!(fails(strip(&mut bench, 101, number, &make_endpoint())));
    }

    #[test]
    fn a_message_that_may_have_no_descriptor_ends_its_connection_if_it_came_with_some() {
        let mut bench = Bench::new(Limits::default());
        let member = bench.join(1, MAIN_ENDPOINT, "t", 0).unwrap();
        let list = Request::Describe { member };
        assert_eq!(strip(&mut bench, 1, 1000, &list), None);
        assert_eq!(bench.broker.connections(), 0);
    }
}
