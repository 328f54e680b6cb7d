//! The publishing side.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossdock_core::series as core;
use crossdock_layout::{SegmentId, Status};

use super::daemon::{Known, Place};
use super::{AttributeSpec, Runner, SeriesOptions, SeriesStatistics, Value};
use crate::host::SessionHost;
use crate::{Error, Plain, Result, Session};

/// How long a publish waits for the daemon when its pool has to grow.
const PATIENCE: Duration = Duration::from_millis(500);

impl Session {
    /// Begins to publish a series. A name whose former publisher ended or died is taken over; observers of the old series
    /// keep what they have.
    ///
    /// # Errors
    /// `EXISTS` (names the living publisher), `INVALID` (names, types, shapes, sizes), `DENIED`, `NO_SPACE`.
    pub fn publisher(&self, name: &str, options: &SeriesOptions) -> Result<Publisher> {
        let known: Known = Arc::new(OnceLock::new());
        // What is taken before the daemon knows the series is counted when it gets to know it.
        let host = Arc::new(SessionHost::new(self, None).growing(known.clone(), Some(PATIENCE)));
        let identity = core::Identity { name: name.into(), workflow: self.workflow().into(), member: self.member() };
        let (inner, offer) = core::Publisher::create(identity, options, host)?;
        crate::leaving::keep_series(inner.end_mark());
        let place = self.place_series(name, offer)?;
        let _ = known.set(place.segment());
        let types = options.variables.iter().map(|v| v.ty.clone()).collect();
        Ok(Publisher { inner, place, session: self.clone(), types })
    }
}

/// The publisher of a series. Dropping it ends the series in order. A forked child's is of no use.
pub struct Publisher {
    /// First to go: what observers look at says that it ended before the daemon lets a successor in.
    inner: core::Publisher,
    place: Place,
    session: Session,
    /// Of the variables' elements.
    types: Vec<String>,
}

impl Publisher {
    /// The series' name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The segment's id.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.place.segment()
    }

    /// The newest version's number; 0 before the first.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.inner.sequence()
    }

    /// The attributes that are known so far.
    #[must_use]
    pub fn attributes(&self) -> &[AttributeSpec] {
        self.inner.attributes()
    }

    /// Where a variable's elements are: an array to be read and written in place. The address stays for the publisher's
    /// life, over resizing, too, but for the time from `begin` to `publish` or `abandon`.
    ///
    /// The pages stay, too, so the memory can be registered (RDMA, io_uring, CUDA, a pending `MPI_Irecv`). They move if the
    /// series is made with [`super::Pages::MayMove`], and when the program calls `begin`.
    ///
    /// `publish` reads this memory; no other thread may write it then.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub fn memory(&self, variable: &str) -> Result<*mut u8> {
        Ok(self.inner.memory(self.index(variable)?))
    }

    /// A variable's elements, in place. Take them anew after `begin`, `publish` of what was begun, `abandon` and `resize`.
    ///
    /// # Errors
    /// `NOT_FOUND`; `WRONG_TYPE`: it was declared with another type.
    pub fn elements<T: Plain>(&mut self, variable: &str) -> Result<&mut [T]> {
        let index = self.index(variable)?;
        let (declared, wanted) = (&self.types[index], T::type_name());
        if *declared != wanted {
            let text = format!("variable '{variable}' of series '{}' is of type {declared}, not {wanted}", self.name());
            return Err(Error::new(Status::WrongType, text));
        }
        self.inner.elements(index)
    }

    /// Bytes of a variable now.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub fn bytes(&self, variable: &str) -> Result<u64> {
        Ok(self.inner.bytes(self.index(variable)?))
    }

    /// Lengths of a variable now.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub fn shape(&self, variable: &str) -> Result<&[u64]> {
        Ok(self.inner.shape(self.index(variable)?))
    }

    /// Gives a variable another shape, within its largest; new elements are zero.
    ///
    /// # Errors
    /// `NOT_FOUND`, `INVALID`, `NO_SPACE`.
    pub fn resize(&mut self, variable: &str, shape: &[u64]) -> Result<()> {
        let index = self.index(variable)?;
        self.check_open()?;
        self.inner.resize(index, shape)
    }

    /// A hint: these bytes of a variable were written since the last publish.
    ///
    /// # Errors
    /// `NOT_FOUND`, `INVALID`.
    pub fn touched(&mut self, variable: &str, bytes: Range<u64>) -> Result<()> {
        let index = self.index(variable)?;
        self.check_open()?;
        self.inner.touched(index, bytes)
    }

    /// Publishes what is in place, with these attributes; the version's number. Waits for no observer.
    ///
    /// 0: the version was withheld, since the pool cannot grow and observers hold all the old ones. The next publish that
    /// finds room carries its changes; `statistics` count it and say why.
    ///
    /// # Errors
    /// `NO_SPACE` by the policy `fail`: nothing was published, and nothing is lost. `WRONG_TYPE`, `INVALID` (attributes).
    pub fn publish(&mut self, attributes: &[(&str, Value)]) -> Result<u64> {
        self.check_open()?;
        self.inner.publish(attributes)
    }

    /// Turns the variables' memory into the next version itself: take `memory` anew, write all of it, then publish, which
    /// copies nothing. Afterwards the variables are at their own addresses again, and **other pages lie there**: memory that
    /// was registered has to be registered anew.
    ///
    /// # Errors
    /// `BUSY`: begun already. `NO_SPACE` by the policy `fail`.
    pub fn begin(&mut self) -> Result<()> {
        self.check_open()?;
        self.inner.begin()
    }

    /// As if `begin` had not been.
    ///
    /// # Errors
    /// `INVALID`: not begun.
    pub fn abandon(&mut self) -> Result<()> {
        self.check_open()?;
        self.inner.abandon()
    }

    /// Lets large copies be done by several threads.
    pub fn copy_with(&mut self, runner: Arc<dyn Runner>) {
        self.inner.copy_with(runner);
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> SeriesStatistics {
        self.inner.statistics()
    }

    /// Ends the series in order: the last version stays for observers, those who wait are told.
    ///
    /// # Errors
    /// `DISCONNECTED`, `TIMED_OUT`: the daemon was not told; the name is this session's until it ends.
    pub fn end(mut self) -> Result<()> {
        self.finish()
    }

    /// The same, but the variables' memory stays until this is dropped: for languages whose arrays may live on.
    ///
    /// # Errors
    /// As `end`.
    pub fn finish(&mut self) -> Result<()> {
        self.inner.end_and_stay();
        self.place.leave(self.session.deadline())
    }

    /// Nothing more can be published once it ended.
    fn check_open(&self) -> Result<()> {
        if self.place.is_left() {
            return Err(Error::new(
                Status::Closed,
                format!("series '{}' was ended here; publish it anew", self.name()),
            ));
        }
        Ok(())
    }

    fn index(&self, variable: &str) -> Result<usize> {
        self.inner.variable(variable).ok_or_else(|| {
            let text = format!("series '{}' has no variable '{variable}'", self.inner.name());
            Error::new(Status::NotFound, text)
        })
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Publisher");
        out.field("name", &self.name()).field("id", &self.id()).field("sequence", &self.sequence()).finish()
    }
}
