//! The entries of listings.

use super::SegmentKind;
use super::answer::PAGE_ROOM;
use super::cursor::{Malformed, Reader, Writer};
use crate::{MemberId, SegmentId};

/// A workflow in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowEntry {
    /// Grows from workflow to workflow; where a listing goes on.
    pub number: u64,
    /// Most bytes; 0 = the node's.
    pub quota: u64,
    /// Bytes that count against it.
    pub reserved: u64,
    /// The member that it ends with; nobody for the default one.
    pub owner: MemberId,
    /// Its name.
    pub name: String,
}

impl WorkflowEntry {
    pub(super) const SIZE: usize = 160;
    /// How many fit on a page.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;

    pub(super) fn write(&self, w: &mut Writer) {
        w.u64(self.number).u64(self.quota).u64(self.reserved).u64(self.owner.0).name(&self.name);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (number, quota, reserved, owner) = (r.u64()?, r.u64()?, r.u64()?, MemberId(r.u64()?));
        Ok(Self { number, quota, reserved, owner, name: r.name()? })
    }
}

/// What is known of a member's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MemberState {
    /// Its connection stands.
    Connected = 1,
    /// Its process lives, its connection went down with the former broker.
    Away = 2,
    /// It left in order.
    Left = 3,
    /// It died.
    Dead = 4,
}

/// A member in a listing, or the answer to `Describe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberEntry {
    /// Which.
    pub member: MemberId,
    /// Milliseconds since it was last heard of.
    pub silent_ms: u64,
    /// Its rank in its task.
    pub rank: u32,
    /// Its process, as the node sees it.
    pub pid: u32,
    /// Its user, as the node sees it.
    pub uid: u32,
    /// What is known of it.
    pub state: MemberState,
    /// The workflow that it takes part in.
    pub workflow: String,
    /// The task that it acts as.
    pub task: String,
}

impl MemberEntry {
    pub(super) const SIZE: usize = 288;
    /// How many fit on a page.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;

    pub(super) fn write(&self, w: &mut Writer) {
        w.u64(self.member.0).u64(self.silent_ms).u32(self.rank).u32(self.pid).u32(self.uid).u32(self.state as u32);
        w.name(&self.workflow).name(&self.task);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (member, silent_ms) = (MemberId(r.u64()?), r.u64()?);
        let (rank, pid, uid) = (r.u32()?, r.u32()?, r.u32()?);
        let state = match r.u32()? {
            1 => MemberState::Connected,
            2 => MemberState::Away,
            3 => MemberState::Left,
            4 => MemberState::Dead,
            _ => return Err(Malformed::Value("state")),
        };
        Ok(Self { member, silent_ms, rank, pid, uid, state, workflow: r.name()?, task: r.name()? })
    }
}

/// A segment in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// Which.
    pub segment: SegmentId,
    /// Bytes.
    pub size: u64,
    /// Bytes that count against the quota.
    pub reserved: u64,
    /// What its maker gave.
    pub attribute: u64,
    /// The member that made it.
    pub creator: MemberId,
    /// Region or port.
    pub kind: SegmentKind,
    /// How many members have it open.
    pub members: u32,
    /// Its name is taken away already; its memory is still in use.
    pub removed: bool,
    /// Whose it is.
    pub workflow: String,
    /// Its name.
    pub name: String,
}

impl SegmentEntry {
    pub(super) const SIZE: usize = 312;
    /// How many fit on a page.
    pub const PER_PAGE: usize = PAGE_ROOM / Self::SIZE;

    pub(super) fn write(&self, w: &mut Writer) {
        w.u64(self.segment.0).u64(self.size).u64(self.reserved).u64(self.attribute).u64(self.creator.0);
        w.u32(self.kind as u32).u32(self.members).u32(u32::from(self.removed)).u32(0);
        w.name(&self.workflow).name(&self.name);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (segment, size, reserved, attribute) = (SegmentId(r.u64()?), r.u64()?, r.u64()?, r.u64()?);
        let creator = MemberId(r.u64()?);
        let kind = SegmentKind::from_u32(r.u32()?).ok_or(Malformed::Value("kind"))?;
        let members = r.u32()?;
        let removed = match r.u32()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed::Value("removed")),
        };
        r.reserved()?;
        let (workflow, name) = (r.name()?, r.name()?);
        Ok(Self { segment, size, reserved, attribute, creator, kind, members, removed, workflow, name })
    }
}
