//! Doors: the mounts through which processes open items' files ([`crossdock_os::tmpfs::door`]), and the user of each
//! door.
//!
//! Each member that owns an item has its own door to the item's file. All readers of a file share one door. A door
//! is open from the time when its user gets the file until the file is next proved. The kernel is asked for a proof
//! only after all doors are shut. The keeper gets every door before a task uses the door. So if this broker is killed,
//! the next one can shut the door.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;

use crossdock_layout::MemberId;
use crossdock_os::tmpfs::Folder;
use crossdock_os::tmpfs::door::{Door, Gate};
use crossdock_os::{Access, OsResult, child};

/// If a file has this many doors, all of them are dropped as soon as the file is proved. With fewer doors, a member
/// that opens the file again gets its former door. `PART` limits the doors of all files together: they may take one
/// eighth of the descriptors.
const MANY: usize = 16;
const PART: u64 = 8;

/// The members or tasks that use a door to an item's file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DoorUser {
    /// The member that owns the item.
    Owner(MemberId),
    /// All tasks that may read the shared item.
    Readers,
    /// A task to which a former broker gave the file.
    Unknown,
}

struct DoorPath {
    party: DoorUser,
    door: Door,
    state: DoorState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DoorState {
    Shut,
    /// Opening or shutting the door failed, so it may be open or shut.
    Half,
    Open,
}

/// The doors to the files of all items.
pub(super) struct Doors {
    files: HashMap<u64, Vec<DoorPath>>,
    count: usize,
    most: usize,
}

impl Doors {
    /// Takes over the doors that the keeper holds. Each of them may be open.
    pub(super) fn new(kept: BTreeMap<u64, Vec<OwnedFd>>) -> Self {
        let way = |door| DoorPath { party: DoorUser::Unknown, door: Door::inherited(door), state: DoorState::Open };
        let files: HashMap<_, Vec<_>> =
            kept.into_iter().map(|(file, doors)| (file, doors.into_iter().map(way).collect())).collect();
        let count = files.values().map(Vec::len).sum();
        Self { files, count, most: (child::raise_descriptor_limit() / PART) as usize }
    }

    /// Opens the door through which `party` uses a file, and makes the door if there is none. Returns the door, and
    /// whether it was made now. The caller must give a new door to the keeper before a task uses it.
    pub(super) fn open(&mut self, folder: &Folder, file: u64, party: DoorUser) -> OsResult<(&Door, bool)> {
        let ways = self.files.entry(file).or_default();
        let found = ways.iter().position(|way| way.party == party);
        let at = match found {
            Some(at) => at,
            None => {
                let access = if party == DoorUser::Readers { Access::Read } else { Access::ReadWrite };
                let door = folder.new_door(access)?;
                ways.push(DoorPath { party, door, state: DoorState::Shut });
                self.count += 1;
                ways.len() - 1
            }
        };
        let way = &mut ways[at];
        if let Some(gate) = folder.gate().filter(|_| way.state != DoorState::Open) {
            // Until the kernel has opened the door, the door counts as half open, so it is shut before the next proof.
            way.state = DoorState::Half;
            if let Err(error) = way.door.open(gate) {
                if found.is_none() {
                    // The door could not be opened. It is dropped, because no task has used it and the keeper does not
                    // have it.
                    ways.pop();
                    self.count -= 1;
                }
                return Err(error);
            }
            way.state = DoorState::Open;
        }
        Ok((&self.files[&file][at].door, found.is_none()))
    }

    /// Shuts every door to a file. Returns `false` if a process writes through one of them.
    pub(super) fn shut(&mut self, gate: &Gate, file: u64) -> OsResult<bool> {
        let ways = self.files.get_mut(&file).into_iter().flatten();
        for way in ways.filter(|way| way.state != DoorState::Shut) {
            let before = std::mem::replace(&mut way.state, DoorState::Half);
            if !way.door.shut(gate)? {
                way.state = before;
                return Ok(false);
            }
            way.state = DoorState::Shut;
        }
        Ok(true)
    }

    /// Tells whether a file has so many doors that they are dropped after the proof. The next user of the file then
    /// gets a new door.
    pub(super) fn are_many(&self, file: u64) -> bool {
        let of_file = self.files.get(&file).map_or(0, Vec::len);
        of_file >= MANY || of_file > 0 && self.count >= self.most
    }

    /// Drops the doors to a file. A process that has opened the file through a door keeps the file open.
    pub(super) fn forget(&mut self, file: u64) {
        self.count -= self.files.remove(&file).map_or(0, |ways| ways.len());
    }
}
