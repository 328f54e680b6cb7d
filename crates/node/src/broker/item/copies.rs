//! Copies of other nodes' items for readers on this node. For each sharing of an item, a node has one copy for all of
//! its readers.
//!
//! [`super::readers`] says what the nodes tell each other. This node drops a copy as soon as no member has the copy
//! open. But it keeps the copy while a question to another node is unanswered, if the answer may let one more member
//! open the copy. After a broker was killed, the next broker does not know the copies of the killed one: members that
//! have such a copy open keep it, and the new broker sends no message about these copies to the item's node. For a new
//! reader, the new broker pulls the item's bytes once more.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{Answer, ItemGiven, ItemLevel, OnDeath, SegmentKind};
use crossdock_layout::{SegmentId, Status};

use super::memory_of;
use super::ownership::{Question, RETRY_MS, VERSION, unreadable};
use super::queue::{RemoteReply, RequestId, WaitPurpose};
use super::readers::{READ, ReadReply, ReadRequest, SharingReport};
use crate::broker::stored::{decode, encode};
use crate::broker::waits::Due;
use crate::broker::{Attachment, Broker, Cause, Effect, NodeFailure, NodeOrder, Requester};

/// How often a node repeats its report that its members read an item of another node.
const AGAIN_MS: u64 = 2_000;
/// How long a pull may take, in addition to the time that the slowest link needs for the bytes.
const PULL_MS: u64 = 30_000;
/// The speed, in bytes per millisecond, that the time limit of a pull assumes for the slowest link.
const SLOWEST: u64 = 1_000;

/// This node's copy of another node's item.
struct Copy {
    node: String,
    workflow: u64,
    key: String,
    file: SegmentId,
    size: u64,
    level: ItemLevel,
    on_death: OnDeath,
    /// The requests that wait for the bytes of the copy; `None` as soon as the bytes are on this node.
    waiting: Option<Vec<RequestId>>,
}

type CopyId = (SegmentId, u64);

/// All copies of other nodes' items on this node.
#[derive(Default)]
pub(super) struct Copies {
    all: BTreeMap<CopyId, Copy>,
    /// The copies whose bytes are being pulled. The key is the id of the pull.
    pulls: BTreeMap<u64, CopyId>,
}

impl Copies {
    /// Gives the files of all copies.
    pub(super) fn files(&self) -> impl Iterator<Item = SegmentId> {
        self.all.values().map(|copy| copy.file)
    }

    /// Gives the node and the key of an item of another node, if this node has a copy of the item.
    pub(super) fn node_of(&self, item: SegmentId, workflow: u64) -> Option<(&str, &str)> {
        let mut of_item = self.all.range((item, 0)..=(item, u64::MAX)).map(|(_, copy)| copy);
        of_item.find(|copy| copy.workflow == workflow).map(|copy| (copy.node.as_str(), copy.key.as_str()))
    }

    fn copy_in(&self, file: SegmentId) -> Option<CopyId> {
        self.all.iter().find(|(_, copy)| copy.file == file).map(|(id, _)| *id)
    }
}

impl Broker {
    /// For a request that waits to read items of other nodes, asks these nodes whether the items can be read.
    pub(super) fn ask_to_read(&mut self, waits: RequestId) {
        let is_coming = |copy: &Copy| copy.waiting.as_ref().is_some_and(|waiting| waiting.contains(&waits));
        if self.items.copies.all.values().any(is_coming) {
            return;
        }
        let Some((of, elsewhere)) = self.wanted_elsewhere(waits) else { return };
        if elsewhere.is_empty() {
            return self.look_up_if_nowhere(waits);
        }
        let Some(workflow) = self.lasting.workflow_name(of) else { return };
        for (key, node) in elsewhere {
            if self.is_asked(waits, &key, &node) {
                continue;
            }
            let readers = 1 + self.readers_here(of, &key);
            let id = self.tell_reading(&node, workflow.clone(), &key, 0, readers);
            self.items.asked.insert(id, Question { waits, workflow: of, key, node, reads: true });
        }
        self.ask_later(waits, AGAIN_MS);
    }

    fn readers_here(&self, workflow: u64, key: &str) -> u32 {
        let copies = self.items.copies.all.values().filter(|copy| copy.workflow == workflow && copy.key == key);
        copies.map(|copy| self.open_segments.of(copy.file).len() as u32).sum()
    }

    /// Handles the answer that an item can be read: gives this node's copy to the waiting request. If this node has no
    /// copy yet, first pulls the item's bytes.
    pub(super) fn item_readable(&mut self, question: Question, readable: &ReadReply) {
        let Question { waits, workflow, key, node, .. } = question;
        let id = (SegmentId(readable.item), readable.sharing);
        if self.items.waits.get(waits).is_none_or(|wait| wait.what != WaitPurpose::Reading) {
            // The waiting request has ended before this answer came, so the copy's bytes are not pulled.
            if !self.items.copies.all.contains_key(&id) {
                self.tell_unread(&node, workflow, &key, readable.sharing);
            }
            return;
        }
        if let Some(copy) = self.items.copies.all.get_mut(&id) {
            match &mut copy.waiting {
                None => return self.give_copy(waits, id),
                Some(waiting) => waiting.push(waits),
            }
        } else if let Err(why) = self.pull_copy(waits, id, &node, workflow, &key, readable) {
            if let Some(wait) = self.unqueue(waits) {
                self.fail(wait.asker, Status::NoSpace, why);
            }
            return self.tell_unread(&node, workflow, &key, readable.sharing);
        }
        let said = RemoteReply { node, key, item: id.0.0, comes: true, text: "its bytes are on their way".into() };
        self.items.waits.say(waits, said);
    }

    fn pull_copy(
        &mut self,
        waits: RequestId,
        id: CopyId,
        node: &str,
        workflow: u64,
        key: &str,
        readable: &ReadReply,
    ) -> Result<(), String> {
        let ReadReply { sharing, size, level, on_death, .. } = *readable;
        let what = format!("a copy of item '{key}' of node {node}");
        if size == 0 || size > super::serve::MAX_SIZE {
            return Err(format!("{what} cannot have {size} bytes"));
        }
        let memory = memory_of(size);
        self.fits(workflow, memory, &what).and_then(|()| self.room(workflow, memory, &what))?;
        self.descriptors(workflow, 1, &what)?;
        self.journal.clone().map_err(|why| format!("the journal is full ({why})"))?;
        let file = SegmentId(self.lasting.next_segment);
        self.file_record(file, workflow, key, size, Cause::NONE);
        let (node, key, waiting) = (node.to_owned(), key.to_owned(), Some(vec![waits]));
        let copy = Copy { node: node.clone(), workflow, key, file, size, level, on_death, waiting };
        self.items.copies.all.insert(id, copy);
        let order = self.node_order_id();
        self.items.copies.pulls.insert(order, id);
        let pull = NodeOrder::Pull {
            id: order,
            node,
            kind: SegmentKind::Item,
            object: id.0.0,
            epoch: sharing,
            into: file,
            size: memory,
            wait_ms: PULL_MS + memory / SLOWEST,
        };
        self.effects.push(Effect::FetchItem { to: file, size: memory, pull });
        self.waits.expect(self.now + AGAIN_MS, Due::ReadAgain(id.0, id.1));
        Ok(())
    }

    /// Handles the end of a pull of a copy's bytes. Returns `false` if the pull was not for a copy.
    pub(super) fn copy_pulled(&mut self, order: u64, outcome: &Result<(), NodeFailure>) -> bool {
        let Some(id) = self.items.copies.pulls.remove(&order) else { return false };
        let Some(copy) = self.items.copies.all.get_mut(&id) else { return true };
        let waiting = copy.waiting.take().unwrap_or_default();
        let (node, key) = (copy.node.clone(), copy.key.clone());
        match outcome {
            Ok(()) => {
                waiting.into_iter().for_each(|waits| self.give_copy(waits, id));
                self.copy_unread(id);
            }
            Err(NodeFailure { status, text }) => {
                self.drop_copy(id);
                for waits in waiting {
                    let Some(wait) = self.items.waits.get(waits) else { continue };
                    let is_over = self.now >= wait.until();
                    if *status == Status::NotFound && !is_over {
                        // The item's owner has ended the sharing, but may share the item again. So the request asks
                        // again later.
                        let (node, key, text) = (node.clone(), key.clone(), text.clone());
                        self.items.waits.say(waits, RemoteReply { node, key, item: id.0.0, comes: false, text });
                        self.ask_later(waits, RETRY_MS);
                        continue;
                    }
                    if *status == Status::NotFound && wait.waited_ms == 0 {
                        // The pull may have failed because the item has ended, so the node that had the item is asked
                        // again.
                        let why = format!("its bytes did not come from node {node}: {text}");
                        self.look_up_waiting_later(waits, &why);
                        continue;
                    }
                    let status = match status {
                        Status::NotFound => Status::TimedOut,
                        Status::NoSpace => Status::NoSpace,
                        _ => Status::Disconnected,
                    };
                    if let Some(wait) = self.unqueue(waits) {
                        let text = format!("the bytes of item '{key}' did not come from node {node}: {text}");
                        self.fail(wait.asker, status, text);
                    }
                }
            }
        }
        true
    }

    fn give_copy(&mut self, waits: RequestId, id: CopyId) {
        if self.items.waits.get(waits).is_none_or(|wait| wait.what != WaitPurpose::Reading) {
            return;
        }
        let Some(wait) = self.unqueue(waits) else { return };
        let Requester { member, connection, opcode, number } = wait.asker;
        let Some(copy) = self.items.copies.all.get(&id) else { return };
        self.open_segments.open(copy.file, member);
        let given = ItemGiven {
            item: id.0,
            file: copy.file,
            size: copy.size,
            level: copy.level,
            on_death: copy.on_death,
            writable: false,
            created: false,
            words: [0, 0],
            creator: 0,
            key: copy.key.clone(),
        };
        let with = Attachment::Item { file: copy.file, writable: false };
        let message = Answer::Item(given).encode(opcode, number);
        self.effects.push(Effect::Send { connection, message, with });
    }

    /// Drops the file, which a member has just closed, if it is a copy that nothing needs any more. Returns `true` if
    /// the file is a copy of another node's item.
    pub(super) fn copy_has_fewer_readers(&mut self, file: SegmentId) -> bool {
        let Some(id) = self.items.copies.copy_in(file) else { return false };
        self.copy_unread(id);
        true
    }

    /// Drops a copy if no member has it open or waits for its bytes. Keeps the copy while a question to read the item
    /// is unanswered, because the answer may let a member open the copy.
    fn copy_unread(&mut self, id: CopyId) {
        let Some(copy) = self.items.copies.all.get(&id) else { return };
        let is_used = copy.waiting.is_some() || self.open_segments.is_open(copy.file);
        if !is_used && !self.is_asked_to_read(copy.workflow, &copy.key) {
            self.drop_copy(id);
        }
    }

    /// Drops the unused copies of an item. The broker calls this after each answer to a question about the item.
    pub(super) fn copies_unread(&mut self, workflow: u64, key: &str) {
        let copies = self.items.copies.all.iter();
        let copies = copies.filter(|(_, copy)| copy.workflow == workflow && copy.key == key).map(|(id, _)| *id);
        copies.collect::<Vec<_>>().into_iter().for_each(|id| self.copy_unread(id));
    }

    fn is_asked_to_read(&self, workflow: u64, key: &str) -> bool {
        self.items.asked.values().any(|of| of.reads && of.workflow == workflow && of.key == key)
    }

    fn drop_copy(&mut self, id: CopyId) {
        let Some(copy) = self.items.copies.all.remove(&id) else { return };
        self.drop_file(copy.file, None);
        self.tell_unread(&copy.node, copy.workflow, &copy.key, id.1);
    }

    /// Reports to the node `node` that no member of this node reads the item any more. Reports nothing while a question
    /// to read the item is unanswered.
    fn tell_unread(&mut self, node: &str, workflow: u64, key: &str, sharing: u64) {
        if !self.is_asked_to_read(workflow, key) {
            self.tell_of_copy(node, workflow, key, sharing, 0);
        }
    }

    /// Tells another node how many members of this node read an item of that node. If `sharing` is 0, a member of this
    /// node only wants to read the item. Returns the id of the question that carries the report.
    fn tell_reading(&mut self, node: &str, workflow: String, key: &str, sharing: u64, readers: u32) -> u64 {
        let stamp = self.fresh_stamp();
        let body = encode(&ReadRequest { version: VERSION, workflow, key: key.to_owned(), sharing, readers, stamp });
        self.ask_node(node, READ, body)
    }

    /// Tells the node of a copied item how many members of this node read the copy.
    fn tell_of_copy(&mut self, node: &str, workflow: u64, key: &str, sharing: u64, readers: u32) {
        if let Some(workflow) = self.lasting.workflow_name(workflow) {
            self.tell_reading(node, workflow, key, sharing, readers);
        }
    }

    /// Tells the item's node once more that members of this node still read the copy.
    pub(in crate::broker) fn read_again(&mut self, item: SegmentId, sharing: u64) {
        let Some(copy) = self.items.copies.all.get(&(item, sharing)) else { return };
        let (node, workflow, key) = (copy.node.clone(), copy.workflow, copy.key.clone());
        let readers = (self.open_segments.of(copy.file).len() as u32).max(1);
        self.tell_of_copy(&node, workflow, &key, sharing, readers);
        self.waits.expect(self.now + AGAIN_MS, Due::ReadAgain(item, sharing));
    }

    /// Handles another node's report that an item may be shared now: for each request that waits to read the item,
    /// this node asks again.
    pub(in crate::broker) fn item_shared_elsewhere(&mut self, body: &[u8]) -> Result<Vec<u8>, NodeFailure> {
        let Some(SharingReport { workflow, key, .. }) =
            decode::<SharingReport>(body).filter(|look| look.version == VERSION)
        else {
            return Err(unreadable());
        };
        if let Some(workflow) = self.lasting.workflow_names.get(&workflow).copied() {
            let reads =
                |id: &RequestId| self.items.waits.get(*id).is_some_and(|wait| wait.what == WaitPurpose::Reading);
            for waits in self.items.waits.of_key(workflow, &key).filter(reads).collect::<Vec<_>>() {
                self.ask_to_read(waits);
            }
        }
        Ok(Vec::new())
    }

    /// Forgets the copies of a workflow that is ending.
    pub(super) fn forget_copies_of(&mut self, workflow: u64) {
        let of_workflow = self.items.copies.all.iter().filter(|(_, copy)| copy.workflow == workflow);
        let of_workflow: BTreeSet<_> = of_workflow.map(|(id, _)| *id).collect();
        for id in of_workflow {
            if let Some(copy) = self.items.copies.all.remove(&id) {
                self.tell_of_copy(&copy.node, workflow, &copy.key, id.1, 0);
            }
        }
    }

    /// Panics if a copy has no file, or neither a reader nor a request that waits for it.
    pub(super) fn check_copies(&self) {
        for (id, copy) in &self.items.copies.all {
            let file = self.lasting.segments.get(&copy.file).filter(|file| file.removed.is_none());
            assert!(
                file.is_some_and(|file| file.size == memory_of(copy.size)),
                "the copy of item {} has no file",
                id.0
            );
            let is_used = copy.waiting.is_some() || self.open_segments.is_open(copy.file);
            assert!(
                is_used || self.is_asked_to_read(copy.workflow, &copy.key),
                "no member reads the copy of item {}",
                id.0
            );
        }
    }
}
