//! A version: what the publisher had at one publish, for as long as it is held.

use std::ops::Range;
use std::sync::Arc;

use crossdock_core::series as core;
use crossdock_layout::Status;

use super::observer::Place;
use super::{Description, Method, SeriesState, Value};
use crate::{Error, Plain, Result};

/// A version of a series. What it shows never changes but by `refresh`. A publisher with the policy `take_back` may take a
/// version back: what was read of it stays, what was not is an error.
pub struct Version {
    /// First to go: its pin is taken out before the page is given back.
    pub(super) inner: core::Version,
    pub(super) place: Arc<Place>,
}

impl Version {
    /// Its number: 1 for the series' first.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.inner.sequence()
    }

    /// How many versions between this one and the one that `Observer::each` gave before were gone by then.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.inner.missed()
    }

    /// When it was published, nanoseconds since 1970.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.inner.time()
    }

    /// Variables and constants of its series.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.place.description
    }

    /// How its changes were found.
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        self.inner.method()
    }

    /// How many of its chunks are its own rather than shared with the version before.
    #[must_use]
    pub fn copied(&self) -> u32 {
        self.inner.copied()
    }

    /// All the attributes that it has.
    #[must_use]
    pub fn attributes(&self) -> &[(String, Value)] {
        self.inner.attributes()
    }

    /// An attribute.
    ///
    /// # Errors
    /// `NOT_FOUND`: this version does not carry it.
    pub fn attribute(&self, name: &str) -> Result<&Value> {
        self.inner.attribute(name).ok_or_else(|| {
            let text = format!("version {} of series '{}' has no attribute '{name}'", self.sequence(), self.place.name);
            Error::new(Status::NotFound, text)
        })
    }

    /// A variable's lengths in this version.
    ///
    /// # Errors
    /// `NOT_FOUND`: no such variable.
    pub fn shape(&self, variable: &str) -> Result<&[u64]> {
        Ok(self.inner.shape(self.index(variable)?))
    }

    /// A variable's elements, contiguous. The address stays, also over `refresh`.
    ///
    /// # Errors
    /// `NOT_FOUND`: no such variable, or the version was taken back before this was asked for. `SYSTEM`: no memory for a
    /// copy.
    pub fn bytes(&self, variable: &str) -> Result<&[u8]> {
        self.inner.bytes(self.index(variable)?)
    }

    /// A variable's elements.
    ///
    /// # Errors
    /// As `bytes`; `WRONG_TYPE`: it is of another type.
    pub fn elements<T: Plain>(&self, variable: &str) -> Result<&[T]> {
        let index = self.index(variable)?;
        let (declared, wanted) = (&self.place.description.variables[index].ty, T::type_name());
        if *declared != wanted {
            let text =
                format!("variable '{variable}' of series '{}' is of type {declared}, not {wanted}", self.place.name);
            return Err(Error::new(Status::WrongType, text));
        }
        self.inner.elements(index)
    }

    /// Copies bytes of a variable out, and makes sure that they are this version's.
    ///
    /// # Errors
    /// As `bytes`; `INVALID`: beyond its end.
    pub fn copy_out(&self, variable: &str, offset: u64, to: &mut [u8]) -> Result<()> {
        self.inner.copy_out(self.index(variable)?, offset, to)
    }

    /// Is it still there, or did a publisher with the policy `take_back` take it back? What was read of it stays in any case.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.inner.is_valid()
    }

    /// Turns this into the newest version; only chunks that differ are mapped anew. How many those were.
    ///
    /// # Errors
    /// `BUSY`: this observer holds 15 versions, which is the most. `SYSTEM`.
    pub fn refresh(&mut self) -> Result<u64> {
        self.inner.refresh()
    }

    /// Turns this into another version of the same observer; how many chunks were mapped anew.
    ///
    /// # Errors
    /// `INVALID`: of another observer. `SYSTEM`.
    pub fn replace_by(&mut self, other: Self) -> Result<u64> {
        self.inner.replace_by(other.inner)
    }

    /// How the publisher is doing.
    #[must_use]
    pub fn publisher(&self) -> SeriesState {
        self.inner.publisher()
    }

    fn index(&self, variable: &str) -> Result<usize> {
        let found = self.place.description.variables.iter().position(|v| v.name == variable);
        found.ok_or_else(|| {
            let text = format!("series '{}' has no variable '{variable}'", self.place.name);
            Error::new(Status::NotFound, text)
        })
    }
}

impl std::fmt::Debug for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Version");
        out.field("series", &self.place.name).field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}

/// Where two versions of one observer differ: variables with byte ranges, exact to the chunk.
///
/// # Errors
/// `INVALID`: they are not of the same observer. `NOT_FOUND`: one was taken back.
pub fn diff(a: &Version, b: &Version) -> Result<Vec<(String, Range<u64>)>> {
    let name = |variable: usize| a.place.description.variables.get(variable).map_or(String::new(), |v| v.name.clone());
    let found = core::diff(&a.inner, &b.inner)?;
    Ok(found.into_iter().map(|(variable, range)| (name(variable), range)).collect())
}
