//! Opening segments by name or by id, making them, and waiting for them.

use crossdock_layout::name::{MIRROR, mirrored};
use crossdock_layout::wire::{Answer, OpenMode, Request, SegmentKind};
use crossdock_layout::{Rights, SegmentId, Status};

use super::mirrors::is_mirror;
use super::{Attachment, Broker, Cause, Connection, Effect, PARKED, Record, Requester, Segment, WaitingRequest, text};

/// A new segment that the host is making.
#[derive(Clone, Debug)]
pub(super) struct Making {
    asker: Requester,
    segment: SegmentId,
    /// The old segment that the new segment replaces under the same name, if there is one.
    instead: Option<SegmentId>,
    record: Record,
}

const PAGE: u64 = 4096;
/// The largest size of a segment in bytes. A larger segment would not fit into any machine's address space.
pub(super) const MAX_SIZE: u64 = 1 << 46;

impl Broker {
    pub(super) fn open(&mut self, asker: Requester, request: Request) {
        let again = request.clone();
        let Request::Open { kind, mode, access, size, reserve, attribute, wait_ms, persistent, name } = request else {
            return;
        };
        let Some((endpoint, workflow)) = self.place(asker) else { return };
        if kind == SegmentKind::Series {
            let text = format!("series '{name}' cannot be opened like a region; publish or observe it");
            return self.fail(asker, Status::Invalid, text);
        }
        if is_mirror(&name) && !self.is_admin(asker.connection) {
            return self.fail(asker, Status::Denied, format!("names that begin with {MIRROR} are the daemon's own"));
        }
        let rights = self.lasting.rights(endpoint, kind, &name);
        if let Err((status, text)) = may_open(rights, kind, access, &name, &self.lasting.members[&asker.member].task) {
            return self.fail(asker, status, text);
        }
        let key = (workflow, kind, name);
        let found = self.lasting.names.get(&key).copied();
        let opens = matches!(mode, OpenMode::OpenOnly | OpenMode::OpenOrCreate);
        if let Some(node) = self.node_of_mirrored(key.0, key.1, &key.2).filter(|_| opens) {
            return self.open_mirror(asker, node, &again);
        }
        if let Some(text) = found.and_then(|segment| self.frozen_by_another(segment, asker.member)) {
            return self.fail(asker, Status::Busy, text);
        }
        if let Some(text) = self.elsewhere(key.0, key.1, &key.2) {
            let status = if mode == OpenMode::OpenOnly { Status::NotFound } else { Status::Exists };
            return self.fail(asker, status, text);
        }
        match (found, mode) {
            (Some(_), OpenMode::CreateOnly) => {
                let text = format!("{} '{}' is there already; open it, or recreate it", kind.word(), key.2);
                self.fail(asker, Status::Exists, text);
            }
            (Some(segment), OpenMode::OpenOnly | OpenMode::OpenOrCreate) => {
                if self.lost.contains(segment) {
                    return self.await_offer(asker, segment, again, wait_ms);
                }
                self.give(asker, segment, opened(rights, access, kind));
            }
            (None, OpenMode::OpenOnly) if wait_ms > 0 => self.park(asker, key, access, wait_ms, None),
            (None, OpenMode::OpenOnly) => {
                let lost = self.departed_with(key.0, kind, &key.2);
                let text = format!("there is no {} '{}'; make it first, or wait for it{lost}", kind.word(), key.2);
                self.fail(asker, Status::NotFound, text);
            }
            (instead, _) => {
                let needed = match kind {
                    SegmentKind::Region => Rights::CREATE,
                    SegmentKind::Port | SegmentKind::Series | SegmentKind::Item => Rights::NONE,
                };
                let needed = if instead.is_some() { needed.with(Rights::REMOVE) } else { needed };
                if !rights.contains(needed) {
                    let text = format!(
                        "this task may not make {} '{}': it takes {}, the grant says {}",
                        kind.word(),
                        key.2,
                        needed.words(),
                        rights.words()
                    );
                    return self.fail(asker, Status::Denied, text);
                }
                if self.has_name(asker, key.0, key.1, &key.2, || again) {
                    self.make(asker, key, instead, (size, reserve), (attribute, persistent));
                }
            }
        }
    }

    fn make(
        &mut self,
        asker: Requester,
        key: (u64, SegmentKind, String),
        instead: Option<SegmentId>,
        (size, reserve): (u64, u64),
        (attribute, persistent): (u64, bool),
    ) {
        if !self.journal_works(asker) {
            return;
        }
        let (workflow, kind, name) = key;
        if size == 0 || size > MAX_SIZE || reserve > size {
            let text =
                format!("{} '{name}' cannot have {} ({reserve} of them reserved)", kind.word(), text::bytes(size));
            return self.fail(asker, Status::Invalid, text);
        }
        let (size, reserved) = (size.next_multiple_of(PAGE), reserve.next_multiple_of(PAGE));
        let what = format!("{} '{name}'", kind.word());
        let checked = self.fits(workflow, size, &what).and_then(|()| self.room(workflow, reserved, &what));
        if let Err(text) = checked.and_then(|()| self.descriptors(workflow, 1, &what)) {
            return self.fail(asker, Status::NoSpace, text);
        }
        let segment = SegmentId(self.lasting.next_segment);
        let of = self.lasting.workflows.get(&workflow).map_or("", |w| &w.name);
        let label = format!("crossdock:{of}:{}:{name}", kind.word());
        let cause = Cause { member: asker.member, request: asker.number };
        // Regions are persistent. An incomplete copy of a region is not persistent; its name has the prefix of mirrors'
        // names until the copy is complete. Ports are removed with their run unless they were made persistent.
        let persistent = persistent || kind != SegmentKind::Port && !is_mirror(&name);
        let since_ms = self.calendar_ms();
        let record =
            Record::Segment { segment, workflow, kind, name, size, reserved, attribute, persistent, since_ms, cause };
        assert!(self.making.is_none(), "the host makes one segment at a time");
        self.making = Some(Making { asker, segment, instead, record });
        self.effects.push(Effect::Make { segment, size, reserve: reserved, label, first: Vec::new() });
    }

    /// Tells whether the host is making memory. Until the host answers, the broker cannot ask for other memory, and
    /// must not use the next segment id, because the memory may get this id.
    pub(super) fn is_making(&self) -> bool {
        self.making.is_some() || self.items.is_making() || self.pages.is_making()
    }

    pub(super) fn made(&mut self, outcome: Result<u64, String>) {
        if self.item_made(&outcome) || self.page_made(&outcome) {
            return;
        }
        let Some(Making { asker, segment, instead, record }) = self.making.take() else { return };
        let number = match outcome {
            Ok(number) => number,
            Err(why) => return self.fail(asker, Status::NoSpace, why),
        };
        if let Some(former) = instead {
            self.take_name(former, Cause::NONE);
        }
        self.commit(Record::Numbers { segment, numbers: vec![number] });
        self.commit(record);
        self.unused.insert(segment, asker.member);
        self.give(asker, segment, OpenOutcome::Created);
        self.wake_waiting(segment);
    }

    /// Sends a segment to the asking member.
    pub(super) fn give(&mut self, asker: Requester, segment: SegmentId, outcome: OpenOutcome) {
        let Some(found) = self.lasting.segments.get(&segment) else { return };
        let created = outcome == OpenOutcome::Created;
        let writable = outcome != OpenOutcome::ReadOnly;
        let answer = Answer::Segment {
            segment,
            size: found.size,
            reserved: found.reserved,
            attribute: found.attribute,
            kind: found.kind,
            created,
            writable,
            name: mirrored(&found.name).to_owned(),
        };
        self.open_segments.open(segment, asker.member);
        if !created {
            self.unused.remove(&segment);
        }
        let message = answer.encode(asker.opcode, asker.number);
        let with = Attachment::Segment { segment, writable };
        self.effects.push(Effect::Send { connection: asker.connection, message, with });
    }

    pub(super) fn attach(&mut self, asker: Requester, segment: SegmentId, access: Rights) {
        let Some((endpoint, workflow)) = self.place(asker) else { return };
        if segment == SegmentId::LEFT_BEHIND {
            let text = "the object of this message stayed on its node, because it does not move by value: it is, or holds, \
                        containers of containers or pointers. Send an item with a heap instead: it arrives with all handles valid";
            return self.fail(asker, Status::NotFound, text.to_owned());
        }
        let visible = |s: &&Segment| {
            s.removed.is_none()
                && s.kind != SegmentKind::Item
                && (s.workflow == workflow || self.is_admin(asker.connection))
        };
        let Some(found) = self.lasting.segments.get(&segment).filter(visible) else {
            let text = format!("{segment} is not there for this task: it was removed, or is another workflow's");
            return self.fail(asker, Status::NotFound, text);
        };
        let (kind, name) = (found.kind, mirrored(&found.name).to_owned());
        let rights = self.lasting.rights(endpoint, kind, &name);
        // A member without any right must not learn whether a segment with this id exists.
        if rights == Rights::NONE {
            let text = format!("{segment} is not there for this task: it was removed, or is another workflow's");
            return self.fail(asker, Status::NotFound, text);
        }
        let access = if access == Rights::ALL { as_granted(rights, kind) } else { access };
        if let Err((status, text)) = may_open(rights, kind, access, &name, &self.lasting.members[&asker.member].task) {
            return self.fail(asker, status, text);
        }
        if let Some(text) = self.frozen_by_another(segment, asker.member) {
            return self.fail(asker, Status::Busy, text);
        }
        if self.is_lost(segment) {
            return self.await_offer(asker, segment, Request::Attach { segment, access }, 0);
        }
        self.give(asker, segment, opened(rights, access, kind));
    }

    pub(super) fn park(
        &mut self,
        asker: Requester,
        key: (u64, SegmentKind, String),
        access: Rights,
        wait_ms: u64,
        again: Option<Request>,
    ) {
        let Some(link) = self.links.get_mut(&asker.connection) else { return };
        let waits = (asker.connection, asker.number);
        if link.parked >= PARKED || self.waits.contains(waits) {
            let text = format!("this program has {PARKED} requests waiting already; let some end first");
            return self.fail(asker, Status::Busy, text);
        }
        link.parked += 1;
        let deadline = self.now.saturating_add(wait_ms);
        let again = again.map(|request| (asker.member, request));
        self.waits.add(waits, WaitingRequest { key, access, deadline, again });
    }

    /// Removes a request from the requests that wait for a segment's name, and returns it.
    pub(super) fn unpark(&mut self, waits: (Connection, u64)) -> Option<WaitingRequest> {
        let parked = self.waits.remove(waits)?;
        if let Some(link) = self.links.get_mut(&waits.0) {
            link.parked -= 1;
        }
        Some(parked)
    }

    /// Answers all requests that waited for the name of this segment.
    pub(super) fn wake_waiting(&mut self, segment: SegmentId) {
        let Some(found) = self.lasting.segments.get(&segment) else { return };
        let key = (found.workflow, found.kind, found.name.clone());
        for waits in self.waits.queue(&key) {
            let Some(parked) = self.unpark(waits) else { continue };
            let deadline = parked.deadline;
            let access = parked.access;
            if let Some((member, request)) = parked.asked_again(self.now) {
                self.again.push_back((waits, member, request));
                continue;
            }
            let Some(link) = self.links.get(&waits.0) else { continue };
            let (endpoint, Some(member)) = (link.endpoint, link.member) else { continue };
            let rights = self.lasting.rights(endpoint, key.1, &key.2);
            if key.1 == SegmentKind::Series {
                // Each of these observers may need a new pin page, and the host makes one page at a time. So the
                // requests are served one after another.
                let wait_ms = deadline.saturating_sub(self.now);
                let request = Request::Observe { wait_ms, former: true, name: key.2.clone() };
                self.again.push_back((waits, member, request));
                continue;
            }
            let asker = Requester { connection: waits.0, member, number: waits.1, opcode: 2 };
            self.give(asker, segment, opened(rights, access, key.1));
        }
    }

    /// Gives the endpoint and the workflow of the asking member.
    pub(super) fn place(&self, asker: Requester) -> Option<(u64, u64)> {
        let member = self.lasting.members.get(&asker.member)?;
        Some((member.endpoint, member.workflow))
    }
}

/// For a request that asks for as much access as the member's rights allow: gives this access. For a member without any
/// right to the segment, gives reading or consuming; the request is then refused later.
fn as_granted(rights: Rights, kind: SegmentKind) -> Rights {
    let (least, more) = match kind {
        SegmentKind::Region => (Rights::READ, Rights::WRITE),
        SegmentKind::Port if rights.contains(Rights::PRODUCE) => (Rights::PRODUCE, Rights::CONSUME),
        SegmentKind::Port => return Rights::CONSUME,
        SegmentKind::Series => return Rights::OBSERVE,
        SegmentKind::Item => return Rights::NONE,
    };
    if rights.contains(more) { least.with(more) } else { least }
}

/// How a member got a segment that it opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenOutcome {
    /// This request made the segment; the member may write it.
    Created,
    /// The segment existed before; the member may write it.
    Writable,
    /// The segment existed before; the member may only read it.
    ReadOnly,
}

/// Tells whether a member with these rights, which asks for `access` to an existing segment, may write the segment or
/// only read it.
fn opened(rights: Rights, access: Rights, kind: SegmentKind) -> OpenOutcome {
    let writes = kind == SegmentKind::Port || rights.contains(Rights::WRITE) && access.contains(Rights::WRITE);
    if writes { OpenOutcome::Writable } else { OpenOutcome::ReadOnly }
}

/// Tells whether a member with these rights may open the segment for `access`. For READ with WRITE, the right to read
/// is enough: the member then gets the segment read-only. For WRITE alone, the member needs the right to write. For a
/// port, the member needs the right to the end that it asks for.
fn may_open(rights: Rights, kind: SegmentKind, access: Rights, name: &str, task: &str) -> Result<(), (Status, String)> {
    let (possible, lesser) = match kind {
        SegmentKind::Region => (Rights::READ.with(Rights::WRITE), Rights::READ),
        SegmentKind::Port => (Rights::PRODUCE.with(Rights::CONSUME), Rights::NONE),
        SegmentKind::Series => (Rights::OBSERVE, Rights::NONE),
        // Items are opened by requests of their own, so a request to open a segment of kind item is refused.
        SegmentKind::Item => (Rights::NONE, Rights::NONE),
    };
    if access == Rights::NONE || !possible.contains(access) {
        let text = format!("'{}' is no way to open {} '{name}'", access.words(), kind.word());
        return Err((Status::Invalid, text));
    }
    // The right to write includes the right to read, and the right to publish includes the right to observe.
    let mut has = if rights.contains(Rights::WRITE) { rights.with(Rights::READ) } else { rights };
    if rights.contains(Rights::PUBLISH) {
        has = has.with(Rights::OBSERVE);
    }
    let needed = if access == possible && lesser != Rights::NONE { lesser } else { access };
    if has.contains(needed) {
        return Ok(());
    }
    let has = if rights == Rights::NONE {
        format!("task '{task}' has no grant for {} '{name}'", kind.word())
    } else {
        format!("task '{task}' may not {} {} '{name}': its grant says {}", needed.words(), kind.word(), rights.words())
    };
    let section = if kind == SegmentKind::Region { "regions" } else { "ports" };
    let text = format!("{has}; add `{section}: {{{name}: {}}}` to it in the workflow file", needed.words());
    Err((Status::Denied, text))
}
