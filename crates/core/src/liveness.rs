//! The liveness table as members see it: mapped read-only, checked once.

use crossdock_layout::liveness::LivenessTable;
use crossdock_os::{Access, Mapping, OsResult};
use std::os::fd::AsFd;

/// A node daemon's liveness table, mapped for as long as this lives.
#[derive(Debug)]
pub struct Liveness(Mapping);

impl Liveness {
    /// Maps the table that came from the daemon; `None` in the answer if the memory is no table of this layout.
    pub fn map(fd: impl AsFd) -> OsResult<Option<Self>> {
        let mapping = Mapping::new(fd, size_of::<LivenessTable>(), Access::Read)?;
        let table = Self(mapping);
        Ok(table.is_valid().then_some(table))
    }

    /// A restarted daemon's table takes the place of the former one, at the same address.
    pub fn replace(&self, fd: impl AsFd) -> OsResult<bool> {
        self.0.replace(fd, Access::Read)?;
        Ok(self.is_valid())
    }
}

impl std::ops::Deref for Liveness {
    type Target = LivenessTable;

    fn deref(&self) -> &LivenessTable {
        // SAFETY: the mapping is as long as the table, page-aligned, and stays for as long as `self`; the table is made
        // of atomics, for which every bit pattern is a value, and of padding that nobody reads.
        unsafe { self.0.start().cast::<LivenessTable>().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_layout::MemberId;

    #[test]
    fn memory_that_is_no_table_is_refused_and_a_new_table_takes_the_place_of_the_old() {
        let size = size_of::<LivenessTable>() as u64;
        let (fd, writer) = crossdock_os::memfd::create_for_own_writing("crossdock-test", size).unwrap();
        assert!(Liveness::map(&fd).unwrap().is_none());
        // SAFETY: as in `deref`; this mapping is writable.
        let table = unsafe { writer.start().cast::<LivenessTable>().as_ref() };
        table.format();
        let seen = Liveness::map(&fd).unwrap().unwrap();
        let member = MemberId::new(3, 5);
        table.set_alive(member);
        assert!(seen.is_alive(member));
        let (other, other_writer) = crossdock_os::memfd::create_for_own_writing("crossdock-test", size).unwrap();
        // SAFETY: as above.
        unsafe { other_writer.start().cast::<LivenessTable>().as_ref() }.format();
        assert!(seen.replace(&other).unwrap());
        assert!(!seen.is_alive(member));
    }
}
