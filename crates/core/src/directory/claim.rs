//! `claim`: finds a named object, or makes it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossdock_layout::region::ENTRY_READY;
use crossdock_layout::{MemberId, Status};
use crossdock_os::{Deadline, futex};

use super::{Claim, ObjectMode, TypeRef};
use crate::heap::LocalSlot;
use crate::region::Region;
use crate::{Error, Result};

/// The time that a caller without a timeout waits for an object that another member constructs.
const DEFAULT_WAIT: Duration = Duration::from_secs(60);
/// The result of one look for a named object in the directory.
enum Lookup {
    Claim(Claim),
    /// The index of an entry that this call made just now, and that has no block yet.
    Entry(u64),
    /// The caller has to wait, because the member that is named here is constructing the object.
    Constructing(MemberId),
    /// The caller has to wait, because there is no such object.
    Missing,
}

impl Region {
    /// Finds or makes a named object. If the result says `created`, the memory is zeroed and no other member sees the
    /// object until `commit`.
    ///
    /// `timeout` limits the wait for an object that another member is constructing. With `OpenOnly` it also limits the
    /// wait for an object that does not exist yet. If `timeout` is `None`, the call waits up to 60 s for a member that
    /// constructs the object, and does not wait for an object that does not exist.
    ///
    /// # Errors
    /// `EXISTS` if `CreateOnly` finds the object. `NOT_FOUND` if `OpenOnly` does not find it and does not wait;
    /// `TIMED_OUT` if it has waited in vain. `NOT_YET` if another member is still constructing the object at the
    /// deadline. `WRONG_TYPE` if the object has another type. `INVALID` if the name or the type is not allowed.
    /// `NO_SPACE` if the region cannot grow or its directory is full. `DENIED` if this task may only read the region
    /// and the object would have to be made. `CORRUPT` if the region holds what no correct member writes.
    pub fn claim(
        self: &Arc<Self>,
        name: &str,
        ty: &TypeRef,
        mode: ObjectMode,
        timeout: Option<Duration>,
    ) -> Result<Claim> {
        self.check_name(name)?;
        if self.writable {
            // A member may have died while it changed the object. This call finishes the dead member's change before
            // the object is opened below.
            self.check_succession()?;
        }
        ty.check().map_err(|e| self.error(Status::Invalid, format!("object '{name}': {e}")))?;
        if mode != ObjectMode::CreateOnly {
            if let Ok(info) = self.find(name) {
                self.check_type(name, &info.ty, ty)?;
                return Ok(Claim { offset: info.offset, created: false });
            }
        }
        let deadline = Deadline::after(timeout.unwrap_or(DEFAULT_WAIT));
        let gate = &self.memory.header().directory_gate;
        loop {
            let seen = gate.load(Ordering::Acquire);
            let found = if mode == ObjectMode::OpenOnly {
                self.look(name, ty, timeout.is_some_and(|t| !t.is_zero()))?
            } else {
                self.with_local(|local| self.look_or_create(local, name, ty, mode))?
            };
            match found {
                Lookup::Claim(claim) => return Ok(claim),
                Lookup::Entry(index) => return self.construct(index, ty),
                // `constructing` may ask the daemon who `owner` is. So this thread does not hold the region's lock
                // here.
                Lookup::Constructing(owner) if deadline.passed() => return Err(self.constructing(name, owner)),
                Lookup::Missing if deadline.passed() => {
                    let text = format!("no object '{name}' came into it before the deadline");
                    return Err(self.error(Status::TimedOut, text));
                }
                Lookup::Constructing(_) | Lookup::Missing => {
                    if self.writable {
                        self.memory.header().directory_waiting.store(1, Ordering::SeqCst);
                    }
                    futex::wait(gate, seen, deadline.at_most(futex::SLICE));
                }
            }
        }
    }

    /// Looks once for an object to open, without taking the region's lock.
    fn look(&self, name: &str, ty: &TypeRef, waits: bool) -> Result<Lookup> {
        match self.find(name) {
            Ok(info) => {
                self.check_type(name, &info.ty, ty)?;
                Ok(Lookup::Claim(Claim { offset: info.offset, created: false }))
            }
            Err(error) if error.status != Status::NotFound => Err(error),
            Err(error) => {
                let found =
                    self.read_directory(|| self.search(name).map(|(i, e)| (i, e.owner.load(Ordering::Acquire))))?;
                let constructor = found.filter(|(index, owner)| *owner != self.member.0 || !self.is_leftover(*index));
                match constructor.map(|(_, owner)| MemberId(owner)) {
                    Some(owner) if !self.host.liveness().is_dead(owner) => Ok(Lookup::Constructing(owner)),
                    // There is no such object, its constructor is dead, or the entry was left by a failed call of this
                    // process. So no member is constructing the object, and a caller that does not wait gets the error.
                    _ if !waits => Err(error),
                    _ => Ok(Lookup::Missing),
                }
            }
        }
    }

    fn look_or_create(&self, local: &mut LocalSlot, name: &str, ty: &TypeRef, mode: ObjectMode) -> Result<Lookup> {
        self.growing(|guard| {
            if let Some((index, entry)) = self.search(name) {
                let owner = MemberId(entry.owner.load(Ordering::Acquire));
                if entry.state.load(Ordering::Acquire) == ENTRY_READY {
                    if mode == ObjectMode::CreateOnly {
                        let text = format!("object '{name}' is there already; open it, or remove it first");
                        return Err(self.error(Status::Exists, text));
                    }
                    let Some(info) = self.info(entry) else {
                        return Err(self.corrupt(format!("the entry of object '{name}' makes no sense")));
                    };
                    self.check_type(name, &info.ty, ty)?;
                    return Ok(Lookup::Claim(Claim { offset: info.offset, created: false }));
                }
                if owner == self.member && self.take_leftover(index) {
                    self.drop_entry(index, entry, local.shared(self), local.index(), guard)?;
                } else if !self.host.liveness().is_dead(owner) {
                    return Ok(Lookup::Constructing(owner));
                } else {
                    self.heal_locked(guard);
                }
            }
            self.make_entry(guard, local, name, ty).map(Lookup::Entry)
        })
    }

    #[cold]
    fn constructing(&self, name: &str, owner: MemberId) -> Error {
        let who = self.host.describe(owner);
        self.error(Status::NotYet, format!("object '{name}' is still being constructed by {who}"))
    }
}
