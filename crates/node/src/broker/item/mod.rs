//! Items. Each item has exactly one owner, and is opened only after the kernel has proved that no other process has it
//! open.
//!
//! The **owner** is a task (or a rank of one, or a registered number), which need not exist yet. The **holder** is the
//! one member of the owner that has the item open. Before the broker opens a file for a new holder, or for the first
//! reader, the item is *proved*: [`Effect::ProveItem`] asks the kernel for a lease, and the kernel grants it only if no
//! process has the file open or mapped. If a former user still has it open, or the item is `strict`, the bytes are
//! first copied to a fresh file ([`Effect::CopyItem`]), and the broker closes the old file. If memory of the file is
//! missing, and the next user is an owner on this node, this owner allocates the missing memory when it opens the file.
//! If the next user is a reader or another node, the file is copied, too. The item's phase is a [`handover::Phase`],
//! and changes as follows:
//!
//! ```text
//!   Open (A has it) ── transfer to B ──► Proving ── alone ──► Proved ── B asks ──► Open (B has it)
//!                                           │                   ▲
//!                                           └── clinging, strict ──► Copying
//! ```
//!
//! A broker that follows a killed one finds the owner of each item in its journal. Every item then begins again in the
//! phase `Open`, and files that belong to no item are dropped. Waiting requests are served in the order of their
//! arrival. Cooperative items are different: their members wait in shared memory (`core::item`), and the daemon only
//! opens the item for them.

mod ahead;
mod change;
mod check;
mod come;
mod copies;
mod ends;
mod find;
pub(super) mod fuzz;
mod give;
mod handover;
mod keyed;
mod leave;
mod listing;
mod lost_items;
mod ownership;
mod queue;
mod readers;
mod record;
mod residence;
mod serve;
mod unlisted;
mod wait;

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{ItemLevel, OnDeath, Party};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::{Broker, Connection, Effect, Requester};

use ahead::EarlyItems;
use copies::Copies;
use find::{LookUp, PendingDescriptions};
use handover::{Handovers, Phase, Purpose};
use lost_items::LostItems;
use ownership::{NextUser, Question, RemoteWaiters};
use queue::Waits;
use readers::Readers;
use unlisted::UnlistedItems;

pub(super) use ahead::AHEAD;
pub(super) use find::FIND;
pub(super) use ownership::{ENDED, OWN};
pub(super) use readers::{READ, SHARED, SHARING};
pub use record::{Item, ItemRecord, Items, memory_of};
pub use residence::{BytesSource, Residence};
pub(super) use unlisted::WHERE;

/// The kernel's answer about an item's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No other process has the file open or mapped, and the file has all of its memory.
    Alone,
    /// No other process has the file open or mapped, but some of its memory may be missing. A former user may have
    /// punched holes into the file, or may never have allocated its memory. The host also answers this if the broker did
    /// not ask it to look for missing memory.
    Incomplete,
    /// A former user has the file open or mapped.
    Clinging,
    /// No other process has the file open or mapped, but a former user may have kept a way to open it again.
    Reopenable,
    /// No other process has the file open or mapped, but another node is pulling its bytes.
    Pulled,
    /// The kernel could not be asked; the text says why. Nothing is proved.
    Unknown(String),
}

/// A new item whose memory the host is making.
#[derive(Clone, Debug)]
struct Making {
    asker: Requester,
    item: SegmentId,
    workflow: u64,
    key: String,
    size: u64,
    level: ItemLevel,
    on_death: OnDeath,
}

/// What this broker knows of items besides the lasting state. The next broker starts without this knowledge.
#[derive(Default)]
pub(super) struct TransientItems {
    making: Option<Making>,
    handovers: Handovers,
    waits: Waits,
    /// Effects of the present event that must come after the requests to prove items. Empty between events.
    after_proofs: Vec<Effect>,
    /// Members that have connected again and are listing the items that they have open, each with the items that it has
    /// listed so far.
    resuming: BTreeMap<MemberId, BTreeSet<SegmentId>>,
    /// Cooperative items that lost their keys to other items, and that members have or may have open.
    nameless: BTreeSet<SegmentId>,
    /// The items whose memory was lost with a former daemon. Errors tell of them.
    lost: LostItems,
    /// Tasks of other nodes that wait for items of this node.
    remote_waiters: RemoteWaiters,
    /// The nodes whose members read items of this node.
    readers: Readers,
    /// This node's copies of other nodes' items, for the readers on this node.
    copies: Copies,
    /// Requests that wait for other nodes to describe an item.
    findings: PendingDescriptions,
    /// Requests that wait for the catalog to say which node has an item.
    look_ups: Vec<LookUp>,
    /// The unanswered questions to other nodes. The key is the question's id.
    asked: BTreeMap<u64, Question>,
    /// For each item, the number of unanswered requests to the catalog to pass the item on. As soon as one answer says
    /// that the item was passed on, the item has left this node. If all answers have come and none says so, the item
    /// stays on this node.
    passes: BTreeMap<SegmentId, u32>,
    /// The running pulls of items' bytes. The key is the id that the broker gave to the pull. The value is the item,
    /// and the file that receives the bytes.
    pulls: BTreeMap<u64, (SegmentId, SegmentId)>,
    /// Bytes of items that other nodes have sent ahead of the catalog's report.
    parcels: EarlyItems,
    /// Requests of other nodes for the bytes of items that are leaving this node. Each has the request's id and the
    /// item's epoch.
    openings: BTreeMap<SegmentId, Vec<(u64, u64)>>,
    /// Questions about items that have left this node, and of which the catalog has no entry.
    unlisted: UnlistedItems,
}

impl TransientItems {
    /// Tells whether the host is making the memory of an item.
    pub(super) fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// Counts how many requests of a connection wait for items.
    pub(super) fn waiting_of(&self, connection: Connection) -> usize {
        self.waits.of_connection(connection).len()
    }

    /// Tells whether this request waits for an item until this deadline.
    pub(super) fn waits_until(&self, connection: Connection, number: u64, deadline: u64) -> bool {
        self.waits.get((connection, number)).is_some_and(|w| w.deadline == deadline)
    }

    /// Tells whether the broker asks other nodes at this time for the items of this request.
    pub(super) fn asks_at(&self, connection: Connection, number: u64, at: u64) -> bool {
        self.waits.get((connection, number)).is_some_and(|w| w.asks_at == Some(at))
    }
}

/// The error with which a request is refused.
type Refusal = (Status, String);

impl Broker {
    /// Adds effects at the end of the present event's effects: first those that ask the kernel about items' files, then
    /// those that must follow the kernel's answers.
    pub(super) fn finish_items(&mut self) {
        for item in self.items.handovers.take_questions() {
            if let Some(found) = self.lasting.items.all.get(&item) {
                let former = self.items.handovers.former(item);
                let dying = former.is_some_and(|m| !self.lasting.members.contains_key(&m));
                let size = Some(memory_of(found.size)).filter(|_| !self.goes_to_owner_here(item));
                self.effects.push(Effect::ProveItem { item, file: found.file, size, dying });
            }
        }
        let last = std::mem::take(&mut self.items.after_proofs);
        self.effects.extend(last);
    }

    /// Tells whether an item that is being proved goes to an owner on this node next.
    fn goes_to_owner_here(&self, item: SegmentId) -> bool {
        matches!(self.items.handovers.phase(item), Phase::Proving { purpose: Purpose::NextOwner })
            && self.journal.is_ok()
            && matches!(self.next_user(item), Some(NextUser::Here(_)))
    }

    /// Tells whether this member belongs to this party: a task, a rank of a task, or a registered number.
    fn is_of(&self, member: MemberId, workflow: u64, party: &Party) -> bool {
        let Some(known) = self.lasting.members.get(&member).filter(|m| m.workflow == workflow) else { return false };
        match party {
            Party::Task { task, rank } => *task == known.task && rank.is_none_or(|r| r == known.rank),
            Party::Number(number) => match self.lasting.items.numbers.get(&(workflow, *number)) {
                Some(Party::Task { task, rank }) => *task == known.task && rank.is_none_or(|r| r == known.rank),
                _ => false,
            },
        }
    }

    /// Gives the party that consists of this member's rank of its task.
    fn party(&self, member: MemberId) -> Option<Party> {
        self.lasting.members.get(&member).map(|m| Party::rank(&m.task, m.rank))
    }

    /// Gives the rights that the asking member's task has for an item key.
    fn item_rights(&self, asker: Requester, key: &str) -> Rights {
        let Some((endpoint, _)) = self.place(asker) else { return Rights::NONE };
        self.lasting.rights(endpoint, crossdock_layout::wire::SegmentKind::Item, key)
    }

    fn may_own(&self, asker: Requester, key: &str) -> Result<(), Refusal> {
        let rights = self.item_rights(asker, key);
        if rights.contains(Rights::OWN) {
            return Ok(());
        }
        let text = format!(
            "this task may not own item '{key}': its grant says {}; the workflow file gives grants (items: {{{key}: own}})",
            rights.words()
        );
        Err((Status::Denied, text))
    }

    /// Gives the item with this id if the item belongs to the asking member's workflow, otherwise the error for the
    /// member.
    fn item(&self, asker: Requester, item: SegmentId) -> Result<&Item, Refusal> {
        let workflow = self.place(asker).map(|(_, workflow)| workflow);
        let found = self.lasting.items.all.get(&item).filter(|i| Some(i.workflow) == workflow);
        found.ok_or_else(|| {
            let text = match self.items.lost.key(item, workflow) {
                Some(key) => format!("item '{key}' was lost with the former daemon, which was killed"),
                None => format!("item {} is not there any more: it was destroyed", item.0),
            };
            (Status::NotFound, text)
        })
    }

    /// Gives the item with this id if the asking member may act as the item's owner, otherwise the error for the
    /// member.
    fn own_item(&self, asker: Requester, item: SegmentId, what: &str) -> Result<&Item, Refusal> {
        let workflow = self.place(asker).map_or(0, |(_, workflow)| workflow);
        if let Some((node, key)) = self.items.copies.node_of(item, workflow) {
            let text = format!("only its owner may {what} it: item '{key}' is on node {node}, and is read here");
            return Err((Status::Denied, text));
        }
        let found = self.item(asker, item)?;
        self.may_own(asker, &found.key)?;
        let free = found.holder == MemberId::NONE && self.is_of(asker.member, found.workflow, &found.owner);
        if found.holder == asker.member || free || found.level == ItemLevel::Cooperative {
            return Ok(found);
        }
        Err((Status::Denied, format!("only its owner may {what} it: {}", self.whose(item, found))))
    }

    /// Makes a text that says which task owns the item, and since when.
    fn whose(&self, item: SegmentId, found: &Item) -> String {
        let since = self.now.saturating_sub(self.items.handovers.since(item)) as f64 / 1000.0;
        let has = match self.lasting.members.get(&found.holder) {
            Some(holder) if found.shared => format!("process {} shares it", holder.peer.pid),
            Some(holder) => format!("process {} has it open", holder.peer.pid),
            None if found.shared => "it is shared".into(),
            None if matches!(self.items.handovers.phase(item), Phase::Copying { .. }) => "it is being copied".into(),
            None => match (self.items.handovers.phase(item), self.lasting.items.residences.get(&item)) {
                (_, Some(Residence::Leaving { to, .. })) => format!("it is being passed to node {to}"),
                (Phase::Fetching { .. }, _) => "its bytes are on their way from another node".into(),
                (_, Some(Residence::Here { bytes: Some(source), .. })) => {
                    format!("its bytes are on node {}", source.node)
                }
                _ => "which has not opened it".into(),
            },
        };
        format!("item '{}' belongs to {} since {since:.1} s; {has}", found.key, found.owner)
    }

    /// Tells whether the item still has its name in the site. An item loses its name if another node claims the name
    /// while this node is cut off.
    fn has_its_name(&self, item: SegmentId) -> bool {
        let Some(found) = self.lasting.items.all.get(&item) else { return false };
        self.has_its_key(item) && !self.is_contested(found.workflow, &found.key)
    }

    /// Tells whether the item's key names this item. The key names another item if the item lost its name to an item
    /// that has come to this node since.
    fn has_its_key(&self, item: SegmentId) -> bool {
        let Some(found) = self.lasting.items.all.get(&item) else { return false };
        self.lasting.items.of_key(found.workflow, &found.key) == Some(item)
    }

    /// Tells whether a member other than `but` that belongs to this party is alive.
    fn lives(&self, workflow: u64, party: &Party, but: MemberId) -> bool {
        let members = self.lasting.members.keys().filter(|m| **m != but);
        members.copied().any(|member| self.is_of(member, workflow, party))
    }
}
