//! A version that an observer holds. It is pinned, and its record is copied out of the pool and checked. Its variables
//! are mapped when the program asks for them.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crossdock_layout::Status;
use crossdock_layout::series::state::Latest;
use crossdock_layout::wire::SegmentKind;

use super::attached::Attached;
use super::describe::Description;
use super::observer::{Found, OVERTAKEN, PublisherState};
use super::record::{Record, read};
use super::spec::Method;
use super::value::Value;
use super::variable_mapping::VariableMapping;
use crate::error::Reason;
use crate::{Error, Result, fault_point};

/// A version of a series. Its contents stay the same as long as this value exists. Only [`Version::refresh`] and
/// [`Version::replace_by`] change them.
///
/// If the publisher takes versions back from observers that lag behind ([`super::FullPolicy::TakeBack`]), the bytes are
/// private copies. They are made when the program first asks for them. If the version was taken back before that, the
/// request fails with `NOT_FOUND`.
pub struct Version {
    attached: Arc<Attached>,
    pin: usize,
    record: Record,
    views: Vec<OnceLock<VariableMapping>>,
    /// The number of versions between the last version that `Observer::each` gave and this one. They were recycled
    /// before `each` could give them.
    pub(super) missed: u64,
}

impl Version {
    /// Pins a version and reads its record.
    pub(super) fn take(attached: &Arc<Attached>, which: Latest) -> Result<Found<Self>> {
        let pin = match attached.pin(which)? {
            Found::There(pin) => pin,
            Found::Gone => return Ok(Found::Gone),
            Found::Undecided => return Ok(Found::Undecided),
        };
        let record = read(attached, which);
        let still = attached.exists_after_reads(which);
        match record {
            Ok(record) if still => {
                let views = attached.spans.iter().map(|_| OnceLock::new()).collect();
                Ok(Found::There(Self { attached: attached.clone(), pin, record, views, missed: 0 }))
            }
            record => {
                attached.unpin(pin);
                // If the version is gone, its record was overwritten while it was read. In this case an error in the
                // record is no sign of damage; it only shows that the version is gone.
                if still { record.map(|_| Found::Gone) } else { Ok(Found::Gone) }
            }
        }
    }

    /// The version's number. The first version of a series has the number 1, and the number grows by one with each
    /// version.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.record.sequence
    }

    /// The number of versions that were recycled before `Observer::each` could give them. They lie between this version
    /// and the version that `each` gave before this one. The result is 0 if this version does not come from `each`.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The time of publishing, in nanoseconds since 1970.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.record.time
    }

    /// The method by which the version's changes were found.
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        Method::from_number(self.record.method)
    }

    /// The number of chunks that the publisher copied for this version. The other chunks are shared with the version
    /// before it.
    #[must_use]
    pub fn copied(&self) -> u32 {
        self.record.copied
    }

    /// The attributes of this version.
    #[must_use]
    pub fn attributes(&self) -> &[(String, Value)] {
        &self.record.attributes
    }

    /// Gives the value of an attribute.
    ///
    /// # Errors
    /// `NOT_FOUND` if this version does not carry the attribute.
    pub fn attribute(&self, name: &str) -> Result<&Value> {
        let found = self.record.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value).ok_or_else(|| {
            let reason = Reason::Lacks { what: "attribute", name: name.to_owned() };
            let error = Error::because(Status::NotFound, reason).during(format!("version {}", self.sequence()));
            error.about(SegmentKind::Series, &self.attached.name)
        })
    }

    /// The shape of a variable in this version: its length in each dimension, in elements.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such variable.
    pub fn shape(&self, variable: &str) -> Result<&[u64]> {
        Ok(&self.record.extents[self.index(variable)?].0)
    }

    /// The shape of the variable with this index in the description.
    pub(super) fn shape_of(&self, variable: usize) -> &[u64] {
        &self.record.extents[variable].0
    }

    /// The number of bytes of the variable with this index in the description.
    ///
    /// # Panics
    /// If there is no variable with this index.
    #[must_use]
    pub fn bytes_length(&self, variable: usize) -> u64 {
        self.record.extents[variable].1
    }

    /// Gives the index, in the description, of the variable with this name.
    pub(super) fn index(&self, variable: &str) -> Result<usize> {
        self.attached.index(variable)
    }

    /// The name of the series.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.attached.name
    }

    /// The description of the version's series: variables with their largest shapes, attributes and constants.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.attached.description
    }

    /// Tells whether the version still exists. Only a publisher with the policy `take_back` ever takes a version back.
    /// Bytes that the program has already got from this value stay as they are.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.attached.exists_after_reads(Latest::new(self.record.sequence, self.record.index as u16))
    }

    fn check_valid(&self) -> Result<()> {
        if self.is_valid() {
            return Ok(());
        }
        let sequence = self.record.sequence;
        let text = format!(
            "version {sequence} was taken back: the pool was full and the publisher's policy is 'take_back'; take a newer one"
        );
        Err(self.attached.error(Status::NotFound, text))
    }

    /// A variable's elements, contiguous and read-only. The first call maps the version's own pages. If the process may
    /// make no further mappings, or if the publisher takes versions back, the first call makes a copy instead. The
    /// address stays the same, also after [`Version::refresh`].
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such variable, or if the version was taken back before its bytes were asked for.
    /// `SYSTEM` if there is no memory for a copy.
    pub fn bytes(&self, variable: &str) -> Result<&[u8]> {
        self.bytes_of(self.index(variable)?)
    }

    fn bytes_of(&self, variable: usize) -> Result<&[u8]> {
        if !self.attached.takes_back {
            self.check_valid()?;
        }
        let length = self.record.extents[variable].1 as usize;
        if length == 0 {
            return Ok(&[]);
        }
        let view = self.view(variable)?;
        // SAFETY: `view` maps at least `length` bytes for reading, as long as `self` exists, and `refresh`, which
        // changes the mapping, needs `self` mutably. Nothing writes to the mapped pages. If the publisher takes
        // versions back, the pages are copies that belong to this process. Otherwise the pages may also be those of a
        // pinned version, and such a publisher does not write to the pages of a pinned version.
        Ok(unsafe { std::slice::from_raw_parts(view.start(), length) })
    }

    /// Tells whether the bytes of this variable, as [`Version::bytes`] gave them, are a copy. They are a copy if this
    /// process may make no further mappings, if the publisher takes versions back, or if a variable with room for
    /// at most 64 KiB was refreshed several times.
    #[must_use]
    pub fn is_copy(&self, variable: &str) -> bool {
        self.index(variable).is_ok_and(|variable| self.views[variable].get().is_some_and(VariableMapping::is_copy))
    }

    fn view(&self, variable: usize) -> Result<&VariableMapping> {
        if let Some(view) = self.views[variable].get() {
            return Ok(view);
        }
        let slots = self.record.slots(&self.attached.spans[variable], variable, self.attached.pool.chunk());
        let attached = &self.attached;
        if attached.takes_back {
            let view = VariableMapping::copy_of(attached.spans[variable].chunks, slots, &attached.pool)
                .map_err(|e| Error::os(&e).about(SegmentKind::Series, &attached.name))?;
            // The publisher may take the version back during the copy. So this check comes after all bytes are read:
            // the bytes belong to the version only if it still exists after the copy.
            self.check_valid()?;
            return Ok(self.views[variable].get_or_init(|| view));
        }
        let chunks = attached.spans[variable].chunks;
        let view = (attached.descriptor.proved_if_in_doubt())
            .and_then(|descriptor| VariableMapping::new(chunks, slots, &attached.pool, descriptor))
            .map_err(|e| Error::os(&e).about(SegmentKind::Series, &attached.name))?;
        // If another thread mapped the variable first, that thread's mapping is used, and the mapping made here is
        // dropped.
        Ok(self.views[variable].get_or_init(|| view))
    }

    /// Copies bytes of a variable out, beginning at `offset`. After the copy, checks that the bytes belonged to this
    /// version.
    ///
    /// # Errors
    /// `INVALID` if the range goes beyond the variable's end, `NOT_FOUND` if there is no such variable or if the
    /// version was taken back during the copy.
    pub fn copy_out(&self, variable: &str, offset: u64, to: &mut [u8]) -> Result<()> {
        let variable = self.index(variable)?;
        let (_, bytes) = &self.record.extents[variable];
        if offset.checked_add(to.len() as u64).is_none_or(|end| end > *bytes) {
            let text = format!("{} bytes at {offset} of a variable of {bytes}", to.len());
            return Err(self.attached.error(Status::Invalid, text));
        }
        if self.views[variable].get().is_some_and(VariableMapping::is_copy) {
            let from = &self.bytes_of(variable)?[offset as usize..][..to.len()];
            to.copy_from_slice(from);
            return Ok(());
        }
        let chunk = self.attached.pool.chunk();
        let slots = self.record.slots(&self.attached.spans[variable], variable, chunk);
        let (mut at, mut done) = (offset as usize, 0);
        while done < to.len() {
            let within = at % chunk;
            let length = (chunk - within).min(to.len() - done);
            let from = self.attached.pool.slot(slots[at / chunk]);
            let (from, to) = (from.wrapping_add(within), to[done..].as_mut_ptr());
            // SAFETY: `from` lies within a slot of the mapped pool, and `to` is memory of this process alone. A
            // publisher that takes no version back does not write to the slots of a pinned version. A publisher that
            // takes versions back may write to a slot while `copy_racing` reads it; `copy_racing` is made for this
            // case.
            unsafe {
                match self.attached.takes_back {
                    true => crossdock_os::copy::copy_racing(to, from, length),
                    false => std::ptr::copy_nonoverlapping(from, to, length),
                }
            };
            at += length;
            done += length;
        }
        self.check_valid()
    }

    /// Turns this value into the newest version, at the same addresses. Returns the number of chunks that had to be
    /// mapped or copied. Chunks that the old and the new version share cost nothing. The result is 0 if this value is
    /// the newest version already. From the fourth refresh on, a variable with room for at most 64 KiB is copied,
    /// because a copy takes less time than a change of the mapping. What a forked child sees at these addresses after
    /// the refresh is undefined.
    ///
    /// # Errors
    /// `DISCONNECTED` in a forked child. `BUSY` if this observer holds 15 versions. `NOT_FOUND` if the publisher takes
    /// each version back before it is read; this value is then unchanged. `NO_SPACE` and `SYSTEM` as for
    /// [`Self::replace_by`].
    pub fn refresh(&mut self) -> Result<u64> {
        let mut taken_back = None;
        for _ in 0..OVERTAKEN {
            let newest = self.attached.newest();
            if newest.sequence() == self.record.sequence && self.is_valid() {
                return Ok(0);
            }
            if let Found::There(newer) = Self::take(&self.attached, newest)? {
                fault_point!("series.refresh.pinned");
                match self.replace_by(newer) {
                    // The publisher took `newer` back while this call was reading it. So a version newer than `newer`
                    // exists, and the loop tries again with that version.
                    Err(error) if error.status == Status::NotFound => taken_back = Some(error),
                    done => return done,
                }
            }
        }
        Err(taken_back.unwrap_or_else(|| self.attached.corrupt("its newest version cannot be taken")))
    }

    /// Turns this value into `other`, a version of the same observer. The addresses stay the same, as in
    /// [`Self::refresh`].
    ///
    /// # Errors
    /// `INVALID` if `other` belongs to another observer. `DISCONNECTED` in a forked child. `NOT_FOUND` if `other` was
    /// taken back; this value is then unchanged. `NO_SPACE` or `SYSTEM` if the kernel gives no memory for a copy. After
    /// one of these two errors, this value is unchanged if the publisher takes versions back. Otherwise this value is
    /// `other` already, but the addresses of a variable that could not be mapped are not valid any more. The next call
    /// of [`Version::bytes`] maps that variable at other addresses.
    pub fn replace_by(&mut self, mut other: Version) -> Result<u64> {
        if !Arc::ptr_eq(&self.attached, &other.attached) {
            return Err(self.attached.error(Status::Invalid, "the other version is not of the same observer"));
        }
        // The memory of a copy is shared with forked children, so a child must not write to it.
        self.attached.check_process()?;
        if self.attached.takes_back {
            return self.replace_by_copy(other);
        }
        let (mut mapped, mut failed) = (0, None);
        let attached = &self.attached;
        let descriptor = (attached.descriptor.proved_if_in_doubt())
            .map_err(|e| Error::os(&e).about(SegmentKind::Series, &attached.name))?;
        for (variable, cell) in self.views.iter_mut().enumerate() {
            let Some(mut view) = cell.take() else { continue };
            let slots = other.record.slots(&attached.spans[variable], variable, attached.pool.chunk());
            match view.show(slots, &attached.pool, descriptor) {
                Ok(count) => {
                    mapped += count;
                    let _ = cell.set(view);
                }
                Err(error) => failed = Some(error),
            }
            fault_point!("series.refresh.half");
        }
        // After this swap, `other` has the pin of the old version, and clears it when `other` is dropped.
        std::mem::swap(&mut self.pin, &mut other.pin);
        std::mem::swap(&mut self.record, &mut other.record);
        match failed {
            None => Ok(mapped),
            Some(error) => Err(Error::os(&error).about(SegmentKind::Series, &self.attached.name)),
        }
    }

    /// Does the work of [`Self::replace_by`] if the publisher takes versions back, and so may overwrite a version at
    /// any time. The function first copies all bytes of `other`. If `other` still exists after that, this value shows
    /// the copied bytes.
    fn replace_by_copy(&mut self, mut other: Version) -> Result<u64> {
        // Two versions with the same slot number for a chunk share the chunk only if both versions exist at the same
        // time. So if this version is gone, all chunks are copied.
        let all = !self.is_valid();
        let mut prepared = Vec::new();
        for (variable, cell) in self.views.iter().enumerate() {
            let Some(view) = cell.get() else { continue };
            let slots = other.record.slots(&self.attached.spans[variable], variable, self.attached.pool.chunk());
            prepared.push((variable, view.prepare(slots, all, &self.attached.pool)));
        }
        fault_point!("series.refresh.copied");
        other.check_valid()?;
        // Only the calls of `set_writable` can fail. So the copies of all variables are made writable first, and then
        // changed. If a call fails, no copy has been changed yet.
        let views = || prepared.iter().filter_map(|(variable, _)| self.views[*variable].get());
        if let Err(error) = views().try_for_each(|view| view.set_writable(true)) {
            views().for_each(|view| drop(view.set_writable(false)));
            return Err(Error::os(&error).about(SegmentKind::Series, &self.attached.name));
        }
        let mut copied = 0;
        for (variable, prepared) in prepared {
            let Some(view) = self.views[variable].get_mut() else { continue };
            copied += view.show_prepared(prepared, &self.attached.pool);
        }
        std::mem::swap(&mut self.pin, &mut other.pin);
        std::mem::swap(&mut self.record, &mut other.record);
        Ok(copied)
    }

    /// The state of the publisher.
    #[must_use]
    pub fn publisher(&self) -> PublisherState {
        self.attached.state()
    }
}

/// Finds where two versions of one series may differ. The result is a list of variables and ranges of bytes, in the
/// order of the description and in ascending order of bytes; adjacent ranges are joined. Outside of these ranges the
/// two versions share their chunks, so the bytes are the same.
///
/// # Errors
/// `INVALID` if the versions are not of the same observer, `NOT_FOUND` if one of them was taken back.
pub fn diff(a: &Version, b: &Version) -> Result<Vec<(String, Range<u64>)>> {
    if !Arc::ptr_eq(&a.attached, &b.attached) {
        return Err(a.attached.error(Status::Invalid, "the two versions are not of the same observer"));
    }
    let chunk = a.attached.pool.chunk();
    let mut found: Vec<(usize, Range<u64>)> = Vec::new();
    for (variable, span) in a.attached.spans.iter().enumerate() {
        let (one, other) = (a.record.slots(span, variable, chunk), b.record.slots(span, variable, chunk));
        let lengths = [a, b].map(|version| version.record.extents[variable].1);
        let (least, end) = (lengths[0].min(lengths[1]), lengths[0].max(lengths[1]));
        for index in 0..one.len().max(other.len()) {
            let mut range = (index * chunk) as u64..(((index + 1) * chunk) as u64).min(end);
            if one.get(index) == other.get(index) {
                // Both versions share this chunk, so the bytes that both have are the same. If the variable is longer
                // in one version, only the bytes beyond the shorter length differ.
                range.start = range.start.max(least);
                if range.is_empty() {
                    continue;
                }
            }
            match found.last_mut() {
                Some((last, joined)) if *last == variable && joined.end == range.start => joined.end = range.end,
                _ => found.push((variable, range)),
            }
        }
    }
    a.check_valid()?;
    b.check_valid()?;
    let name = |variable: usize| a.attached.description.variables[variable].name.clone();
    Ok(found.into_iter().map(|(variable, range)| (name(variable), range)).collect())
}

impl Drop for Version {
    fn drop(&mut self) {
        self.views.clear();
        self.attached.unpin(self.pin);
    }
}

impl std::fmt::Debug for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Version");
        out.field("series", &self.attached.name).field("sequence", &self.record.sequence).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "faults"))]
mod tests {
    use super::super::{AttachParts, FullPolicy, Identity, Observer, Publisher, Spec, Variable};
    use super::*;
    use crate::host::StandaloneHost;
    use crossdock_os::{faults, memfd};

    #[test]
    fn a_refresh_that_fails_shows_all_variables_of_one_version() {
        let seen = faults::each_call_fails(|attempt| {
            let variables = ["a", "b"].map(|name| Variable::new(name, "u64", &[1000]));
            let spec = Spec { full: FullPolicy::TakeBack, ..Spec::of(variables.into()) };
            let host = || Arc::new(StandaloneHost::default());
            let (mut publisher, offer) = Publisher::create(Identity::alone("s"), &spec, host()).unwrap();
            let mut observer = Observer::attach(AttachParts {
                name: "s".into(),
                segment: Default::default(),
                pool: offer.pool.clone(),
                size: offer.size,
                pin_page: memfd::create("pins", 4096).unwrap().into(),
                slot: 0,
                publisher: StandaloneHost::MEMBER,
                host: host(),
            })
            .unwrap();
            publisher.publish(&[]).unwrap();
            let mut version = observer.latest().unwrap();
            let seen = |version: &Version| ["a", "b"].map(|name| version.bytes(name).unwrap()[0]);
            assert_eq!(seen(&version), [0, 0]);
            for name in ["a", "b"] {
                publisher.elements::<u64>(name).unwrap().fill(2);
            }
            publisher.publish(&[]).unwrap();
            attempt.arm();
            let refreshed = version.refresh();
            let failed = attempt.disarm();
            let shows = if refreshed.is_ok() { 2 } else { 0 };
            assert_eq!(seen(&version), [shows; 2], "{failed:?}: {refreshed:?}");
            assert_eq!(version.sequence(), if refreshed.is_ok() { 2 } else { 1 });
        });
        assert!(seen.contains("mprotect"), "{seen:?}");
    }
}
