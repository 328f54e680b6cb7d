//! Items: exactly one owner each, and nobody gets in before the kernel has proved that nobody else is in.
//!
//! The **owner** is a task (or a rank of one, or a registered number), which need not exist yet; the **holder** is the
//! one member of it that has the item open. Before a file is opened for a new holder, or for the first reader, it is
//! *proved*: [`Effect::ProveItem`] asks the kernel for a lease, which it grants only if nobody has the file open or
//! mapped. If somebody clings to it, or the item is `strict`, the bytes are copied to a fresh file first
//! ([`Effect::CopyItem`]), and the former one is given up. So a transfer has three states, each with its way on:
//!
//! ```text
//!   owned by A, held ── transfer ──► owned by B, unproved ── alone ──► clean ── B waits ──► held by B
//!                                         │                              ▲
//!                                         └── clinging, strict ──► copying┘
//! ```
//!
//! A broker that is killed in any of them finds the owner in its journal, takes nothing for proved, and drops files that
//! no item lies in. Whoever waits is served by order of arrival; a cooperative item is waited for in shared memory
//! (`core::item`), and the daemon only opens it.

mod ends;
mod give;
mod listing;
mod record;
mod serve;
mod wait;

use std::collections::{BTreeMap, BTreeSet};

use crossdock_layout::wire::{ItemLevel, OnDeath, Party};
use crossdock_layout::{MemberId, Rights, SegmentId, Status};

use super::{Asker, Broker, Connection, Effect};

pub use record::{Item, ItemRecord, Items, memory_of};

/// What the kernel said of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody else has it open or mapped.
    Alone,
    /// Somebody has.
    Clinging,
    /// It could not be asked, and why; nothing is proved.
    Unknown(String),
}

/// An item that the host is making right now.
#[derive(Clone, Debug)]
struct Making {
    asker: Asker,
    item: SegmentId,
    workflow: u64,
    key: String,
    size: u64,
    level: ItemLevel,
    on_death: OnDeath,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Owning,
    Reading,
    /// That readers leave.
    Readers(SegmentId),
}

#[derive(Clone, Debug)]
struct Wait {
    asker: Asker,
    what: For,
    workflow: u64,
    keys: Vec<String>,
    deadline: u64,
    waited_ms: u64,
    arrival: u64,
}

/// Requests that wait for one key: number of arrival, and which request of which connection.
type Queue = BTreeSet<(u64, Connection, u64)>;

/// What a broker knows of items beyond what lasts.
#[derive(Default)]
pub(super) struct Desk {
    making: Option<Making>,
    waits: BTreeMap<(Connection, u64), Wait>,
    /// Who waits for a key, by arrival.
    queues: BTreeMap<(u64, String), Queue>,
    arrivals: u64,
    /// Proved, and opened for nobody since.
    clean: BTreeSet<SegmentId>,
    /// Being copied, and to which file; `true` if somebody clings.
    copying: BTreeMap<SegmentId, (SegmentId, bool)>,
    /// To be proved at the end of this event.
    to_prove: BTreeSet<SegmentId>,
    /// To be done behind the proofs.
    last: Vec<Effect>,
    /// Who wants it shared, or unshared, once it is proved.
    sharing: BTreeMap<SegmentId, Asker>,
    unsharing: BTreeMap<SegmentId, Asker>,
    /// Who had it open last: whom a file that is clung to counts for.
    former: BTreeMap<SegmentId, MemberId>,
    since: BTreeMap<SegmentId, u64>,
    /// What members that came back have said they hold.
    told: BTreeMap<MemberId, BTreeSet<SegmentId>>,
}

/// Why a request is refused.
type Refusal = (Status, String);

impl Broker {
    /// What is to be done behind everything else of this event: proofs, then what waited for them.
    pub(super) fn finish_items(&mut self) {
        for item in std::mem::take(&mut self.desk.to_prove) {
            if let Some(found) = self.lasting.items.all.get(&item) {
                let former = self.desk.former.get(&item);
                let dying = former.is_some_and(|m| !self.lasting.members.contains_key(m));
                self.effects.push(Effect::ProveItem { item, file: found.file, dying });
            }
        }
        let last = std::mem::take(&mut self.desk.last);
        self.effects.extend(last);
    }

    /// Is this member one of that party's?
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

    /// The rank of the task that this member is.
    fn party(&self, member: MemberId) -> Option<Party> {
        self.lasting.members.get(&member).map(|m| Party::rank(&m.task, m.rank))
    }

    /// What a task may do with a key.
    fn item_rights(&self, asker: Asker, key: &str) -> Rights {
        let Some((endpoint, _)) = self.place(asker) else { return Rights::NONE };
        self.lasting.rights(endpoint, crossdock_layout::wire::SegmentKind::Item, key)
    }

    fn may_own(&self, asker: Asker, key: &str) -> Result<(), Refusal> {
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

    /// The item with this number, if it is one of the asker's workflow.
    fn item(&self, asker: Asker, item: SegmentId) -> Result<&Item, Refusal> {
        let workflow = self.place(asker).map(|(_, workflow)| workflow);
        let found = self.lasting.items.all.get(&item).filter(|i| Some(i.workflow) == workflow);
        found.ok_or_else(|| (Status::NotFound, format!("item {} is not there any more: it was destroyed", item.0)))
    }

    /// The item, if the asker is its owner and may do with it what owners do.
    fn own_item(&self, asker: Asker, item: SegmentId, what: &str) -> Result<&Item, Refusal> {
        let found = self.item(asker, item)?;
        self.may_own(asker, &found.key)?;
        let free = found.holder == MemberId::NOBODY && self.is_of(asker.member, found.workflow, &found.owner);
        if found.holder == asker.member || free || found.level == ItemLevel::Cooperative {
            return Ok(found);
        }
        Err((Status::Denied, format!("only its owner may {what} it: {}", self.whose(item, found))))
    }

    /// Whose it is, and since when, for people.
    fn whose(&self, item: SegmentId, found: &Item) -> String {
        let since = self.now.saturating_sub(self.desk.since.get(&item).copied().unwrap_or(0)) as f64 / 1000.0;
        let has = match self.lasting.members.get(&found.holder) {
            Some(holder) if found.shared => format!("process {} shares it", holder.peer.pid),
            Some(holder) => format!("process {} has it open", holder.peer.pid),
            None if found.shared => "it is shared".into(),
            None if self.desk.copying.contains_key(&item) => "it is being copied".into(),
            None => "which has not opened it".into(),
        };
        format!("item '{}' belongs to {} since {since:.1} s; {has}", found.key, found.owner)
    }

    /// Is anybody of that party alive, but for one?
    fn lives(&self, workflow: u64, party: &Party, but: MemberId) -> bool {
        let members = self.lasting.members.keys().filter(|m| **m != but);
        members.copied().any(|member| self.is_of(member, workflow, party))
    }
}
