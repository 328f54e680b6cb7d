//! What clients offer to a daemon that may have lost its descriptors. A client offers everything before it lists what it
//! has open, like the real client.

use crossdock_layout::wire::{Answer, PIN_PAGE, Request, SegmentKind};
use crossdock_layout::{Rights, SegmentId, Status};
use crossdock_node::broker::Descriptor;

use crate::client::Asked;
use crate::world::World;

impl World {
    /// Gives the offers of everything that the client has: the endpoints that it made, the regions, ports and
    /// cooperative items that it has open, its slots of pin pages, and the series that it publishes.
    pub fn offers(&self, number: usize) -> Vec<Request> {
        let client = &self.clients[number];
        let endpoints = client.endpoints.keys().map(|endpoint| Request::Listen { endpoint: *endpoint });
        let pages = client.series.values().flat_map(|series| series.pages.keys());
        let segments = client.open.keys().chain(client.pins.keys()).chain(client.series.keys()).chain(pages);
        endpoints.chain(segments.map(|segment| Request::Offer { segment: *segment })).collect()
    }

    /// Gives the descriptor that the client sends with this offer. `None` if the client has no such descriptor.
    fn descriptor_of(&self, number: usize, offer: &Request) -> Option<Descriptor> {
        let client = &self.clients[number];
        let segment = match offer {
            Request::Offer { segment } => segment,
            Request::Listen { endpoint } => return client.endpoints.get(endpoint).map(|_| Descriptor::Listener),
            other => panic!("{other:?} is no offer"),
        };
        let memory = |size, number| match number {
            0 => Descriptor::Other,
            number => Descriptor::Memory { size, number },
        };
        if let Some(series) = client.series.get(segment) {
            return Some(Descriptor::Pool { size: series.size, number: series.number });
        }
        if let Some(page) = client.series.values().find_map(|series| series.pages.get(segment)) {
            return Some(memory(PIN_PAGE, *page));
        }
        let known = |id| self.model.numbers.get(id).copied().unwrap_or(0);
        if let Some((_, page, _)) = client.pins.get(segment) {
            return Some(memory(PIN_PAGE, known(page)));
        }
        // An observer keeps no descriptor of a series' pool.
        let kept = client.open.contains_key(segment) && self.model.kinds.get(segment) != Some(&SegmentKind::Series);
        kept.then(|| memory(self.model.sizes.get(segment).copied().unwrap_or(0), known(segment)))
    }

    /// Sends the offers on the client's present connection.
    pub fn offer(&mut self, number: usize, offers: Vec<Request>) {
        for request in offers {
            let Some(descriptor) = self.descriptor_of(number, &request) else { continue };
            let client = &mut self.clients[number];
            let Some(pipe) = client.connection.and_then(|c| self.pipes.get_mut(&c)) else { return };
            let id = client.next;
            client.next += 1;
            pipe.to_broker.push_back((request.encode(id, 0), vec![descriptor]));
            client.offered.insert(id, Asked { request, descriptors: vec![descriptor], due: None, cooperative: None });
        }
    }

    /// Sends the refused offers of one client again.
    pub fn offer_again(&mut self) {
        let refused: Vec<_> = (0..self.clients.len()).filter(|c| self.has_refused(*c)).collect();
        if !refused.is_empty() {
            let number = self.random.pick(&refused);
            self.offer_refused(number);
        }
    }

    pub fn has_refused(&self, number: usize) -> bool {
        let client = &self.clients[number];
        client.can_act() && client.welcome && !client.refused.is_empty()
    }

    pub fn offer_refused(&mut self, number: usize) {
        let refused = std::mem::take(&mut self.clients[number].refused);
        self.offer(number, refused);
    }

    /// Tells whether this client can offer the memory of this id: its session goes on, it has the memory open, and it
    /// has a right to it. Only the publisher of a series can offer the series' pool.
    pub fn can_offer(&self, number: usize, id: SegmentId) -> bool {
        let client = &self.clients[number];
        let Some((workflow, kind, name)) = self.model.names.get(&id) else { return false };
        let near = client.endpoint == 0 || client.workflow == *workflow;
        let allowed = match kind {
            SegmentKind::Series => client.series.contains_key(&id),
            kind => near && self.model.rights(client, *kind, name) != Rights::NONE,
        };
        let is_memory = self.model.numbers.get(&id).is_some_and(|number| *number != 0);
        client.can_act() && client.open.contains_key(&id) && allowed && is_memory
    }

    /// Forgets the clients that can no longer offer lost memory. If no client is left, nothing is promised any more.
    pub fn forget_holders(&mut self) {
        let lost: Vec<_> = self.model.lost_promises();
        for (id, mut holders) in lost {
            holders.retain(|client| self.can_offer(*client, id));
            self.model.lose(id, holders);
        }
    }

    /// Notes which endpoints the client has made, and forgets those of a workflow that has ended.
    pub fn endpoints_answered(&mut self, number: usize, request: &Request, answer: &Answer) {
        let endpoints = &mut self.clients[number].endpoints;
        match (request, answer) {
            (Request::MakeEndpoint { workflow, .. }, Answer::Done { value }) => {
                endpoints.insert(*value, workflow.clone());
            }
            (Request::EndWorkflow { name }, Answer::Done { .. } | Answer::Failed { status: Status::NotFound, .. }) => {
                endpoints.retain(|_, workflow| workflow != name)
            }
            _ => {}
        }
    }
}
