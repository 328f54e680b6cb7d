//! Publishing: finds what changed, makes room, copies the changes to fresh slots, writes the version's record, and
//! makes the version visible.
//!
//! No observer sees anything of a version before the store of `latest`. A publish that finds no room loses nothing: the
//! changes that it found stay on the list, and are part of the next version. By the default policy such a publish
//! withholds its version, which is no error. If a publisher dies at any point, its earlier versions stay, and the
//! record that it was filling is not valid.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Instant;

use crossdock_layout::Status;
use crossdock_layout::series::state::{Latest, MAX_SEQUENCE};
use crossdock_layout::series::{KIND_NONE, MAX_ATTRIBUTES, NO_SLOT};
use crossdock_os::{clock, futex};

use super::changes::FoundChanges;
use super::copy::FreshSlots;
use super::describe::write_attribute;
use super::pool::store_value;
use super::protocol;
use super::publisher::Publisher;
use super::spec::{AttributeSpec, FullPolicy, Method};
use super::value::{Value, check_value};
use crate::{Result, fault_point};

/// What the record of a version says besides the version's contents: number, time and statistics.
pub(super) struct Stamp {
    pub sequence: u64,
    /// The time of the publish, in nanoseconds since 1970.
    pub time: u64,
    pub copied: u32,
    /// The [`Method`] by which the changes were found, as a number.
    pub method: u32,
}

impl Stamp {
    pub fn now(sequence: u64, copied: u32, method: Method) -> Self {
        Self { sequence, time: clock::since_1970_ns(), copied, method: method as u32 }
    }
}

impl Publisher {
    /// Publishes the variables' present contents as a version, and gives its sequence number. It never waits for an
    /// observer.
    ///
    /// The result 0 says that the version was withheld ([`super::FullPolicy::Withhold`]), because the pool cannot grow
    /// and observers hold all old versions, or because the daemon does not answer in time. No observer sees the withheld
    /// version. The next version that is published contains the changes of the withheld version, but not its attributes.
    ///
    /// `attributes` are the attributes of this version. If one of them was not declared before, this call declares it,
    /// as long as there is room for it. It stays declared even if no version is published.
    ///
    /// # Errors
    /// `NO_SPACE` under the policy [`super::FullPolicy::Fail`]; nothing is lost, because the next version contains
    /// these changes too. `WRONG_TYPE` or `INVALID` if an attribute's value does not fit. `SYSTEM` if the kernel
    /// refuses memory or a mapping.
    pub fn publish(&mut self, attributes: &[(&str, Value)]) -> Result<u64> {
        let started = Instant::now();
        self.check_use()?;
        let columns = self.columns(attributes).inspect_err(|_| self.give_up_step())?;
        if self.sequence >= MAX_SEQUENCE {
            return Err(self.error(Status::NoSpace, "it has had all the versions that there are numbers for"));
        }
        let published = if self.begun {
            self.publish_begun(&columns, attributes)
        } else {
            self.publish_in_place(&columns, attributes)
        };
        let published = match published {
            Err(error) if error.status == Status::NoSpace && self.full == FullPolicy::Withhold => {
                self.withhold(error, attributes);
                Ok(0)
            }
            other => other,
        };
        if let Err(error) = &published {
            self.counts.no_space += u64::from(error.status == Status::NoSpace);
        } else {
            self.counts.last = started.elapsed();
            self.counts.longest = self.counts.longest.max(self.counts.last);
        }
        self.show();
        published
    }

    /// Ends a step in which the publish was refused before it searched for changes. Language bindings call this
    /// function if they refuse a publish themselves. The changes of this step are part of the next version. If the
    /// program gave no hints in this step, the next publish searches for changes, even if the program gives hints then.
    /// If the program gave hints in this step, the chunks that these hints named stay noted as changed. Hints count
    /// only for the step in which the program gave them, so the next publish searches for changes unless the program
    /// gives hints again.
    pub fn give_up_step(&mut self) {
        self.unsearched |= !self.hinted;
        self.hinted = false;
    }

    /// For each value, finds the index of its attribute in the series' list of attributes. Declares the attributes that
    /// are new, unless one of the values does not fit.
    pub(super) fn columns(&mut self, attributes: &[(&str, Value)]) -> Result<Vec<u32>> {
        let room = self.pool.geometry().counts.attributes.min(MAX_ATTRIBUTES) as usize;
        let (mut columns, mut fresh) = (Vec::with_capacity(attributes.len()), Vec::new());
        for (name, value) in attributes {
            check_value(&self.name, name, value)?;
            let column = match self.attributes.iter().chain(&fresh).position(|known| known.name == *name) {
                Some(column) => column,
                None => {
                    crossdock_layout::name::check(name)
                        .map_err(|e| self.error(Status::Invalid, format!("attribute '{name}': {e}")))?;
                    if self.attributes.len() + fresh.len() >= room {
                        let text =
                            format!("attribute '{name}' would be one more than the {room} that there is room for");
                        return Err(self.error(Status::Invalid, text));
                    }
                    fresh.push(AttributeSpec { name: (*name).to_owned(), ty: value.kind() });
                    self.attributes.len() + fresh.len() - 1
                }
            };
            let declared = self.attributes.iter().chain(&fresh).nth(column).expect("an index of this list").ty;
            if declared != value.kind() {
                let (is, has) = (declared.word(), value.kind().word());
                return Err(
                    self.error(Status::WrongType, format!("attribute '{name}' is declared {is}, this value is {has}"))
                );
            }
            columns.push(column as u32);
        }
        for attribute in fresh {
            write_attribute(&self.pool, self.attributes.len() as u32, &attribute);
            self.attributes.push(attribute);
            self.pool.header().report.attributes.store(self.attributes.len() as u32, Release);
        }
        Ok(columns)
    }

    pub(super) fn publish_in_place(&mut self, columns: &[u32], attributes: &[(&str, Value)]) -> Result<u64> {
        let FoundChanges { method, dirty } = self.find_changes();
        fault_point!("series.publish.found");
        // From here on, `pending` contains all changes up to now, so the flags `hinted` and `unsearched` are reset. If
        // the program gives no hints in the next step, the publisher searches for the changes of that step.
        (self.hinted, self.unsearched) = (false, false);
        let needed = self.pending.count();
        let record = self.room_for_version(needed)?;
        let taken = self.take_slots();
        fault_point!("series.publish.taken");
        self.copy_changes(&taken, dirty.as_deref());
        fault_point!("series.publish.copied");
        for FreshSlots { field, chunk, run } in &taken {
            let first = (self.fields[*field].span.first + chunk) as usize;
            (0..run.count).for_each(|n| self.current[first + n as usize] = run.first + n);
        }
        let stamp = Stamp::now(self.sequence + 1, needed, method);
        self.finish(record, &stamp, columns, attributes);
        self.count_chunks(needed);
        self.pending.clear();
        // The method for the next step is chosen before `follow_up` maps the fresh slots. With some methods the slots
        // need not be mapped, because with them the program writes the chunks in ordinary memory of this process.
        if method != Method::Hints {
            self.choose_method();
        }
        self.follow_up(&taken, dirty.as_deref());
        self.retire(self.keep);
        // After a step with hints, no chunk changes its kind of memory. Such a change is right only if the variables
        // hold the same data as the newest version. If the program's hints named too little, the newest version lacks
        // some of the data, and the change would lose them.
        if method != Method::Hints {
            self.change_over();
        }
        Ok(self.sequence)
    }

    /// Writes the record of the next version and makes the version visible. Nothing in this function can fail.
    pub(super) fn finish(
        &mut self,
        record: u32,
        &Stamp { sequence, time, copied, method }: &Stamp,
        columns: &[u32],
        values: &[(&str, Value)],
    ) {
        let head = self.pool.record(record);
        protocol::fill(&head.state, sequence);
        fault_point!("series.publish.filling");
        head.sequence.store(sequence, Relaxed);
        head.time.store(time, Relaxed);
        head.copied.store(copied, Relaxed);
        head.method.store(method, Relaxed);
        for column in 0..self.attributes.len() as u32 {
            let field = self.pool.value(record, column);
            match columns.iter().position(|known| *known == column) {
                Some(given) => store_value(field, &values[given].1),
                None => field.kind.store(KIND_NONE, Relaxed),
            }
        }
        head.attributes.store(self.attributes.len() as u32, Relaxed);
        for (index, field) in (0..).zip(&self.fields) {
            let extent = self.pool.extent(record, index);
            for (dimension, word) in extent.shape.iter().enumerate() {
                word.store(field.shape.get(dimension).copied().unwrap_or(0), Relaxed);
            }
            extent.bytes.store(field.bytes, Relaxed);
        }
        self.pool.write_table(record, &self.current);
        fault_point!("series.publish.filled");
        protocol::go_live(&head.state, sequence);
        fault_point!("series.publish.live");
        let version_words = &self.pool.header().version_words;
        version_words.latest.store(Latest::new(sequence, record as u16).0, Release);
        fault_point!("series.publish.latest");
        let before = protocol::announce(&version_words.published, sequence as u32);
        if self.pins.may_sleep_at(before, &*self.host) {
            futex::wake_all(&version_words.published);
        }
        fault_point!("series.publish.woken");
        for slot in self.current.iter().filter(|slot| **slot != NO_SLOT) {
            self.slots.hold(*slot);
        }
        self.records[record as usize] = sequence;
        self.sequence = sequence;
        self.newest_record = record;
        self.counts.withheld_now = 0;
        self.withheld = None;
    }

    /// Counts the chunks of a published version: those that were copied for it, and those that it shares with the
    /// version before.
    pub(super) fn count_chunks(&mut self, copied: u32) {
        let chunks = u64::from(self.chunks());
        self.counts.copied += u64::from(copied);
        self.counts.shared += chunks.saturating_sub(u64::from(copied));
    }
}
