//! The entries of a catalog, and the operations that commits make on them.

use std::collections::BTreeSet;

use crate::{COMMIT_MAX, CatalogError, CatalogResult, KEY_MAX, VALUE_MAX};

/// The number of a change in a catalog. Later changes have larger numbers. Zero stands for the state before all
/// changes.
pub type Revision = u64;

/// The number of a lease. It is never zero, and no number is given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key of the entry.
    pub key: String,
    /// The bytes that the key maps to.
    pub value: Vec<u8>,
    /// The revision of the change that created the entry.
    pub created: Revision,
    /// The revision of the change that set this value. A commit can require that the entry has not changed since
    /// ([`Expect::At`]).
    pub modified: Revision,
    /// The lease to which the entry belongs. The entry is deleted when the lease ends. `None` if the entry has no
    /// lease.
    pub lease: Option<LeaseId>,
}

/// All entries below a prefix at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The catalog's revision when the entries were listed. A watch from the next revision on misses nothing.
    pub revision: Revision,
    /// The entries, in the order of their keys.
    pub entries: Vec<Entry>,
}

/// A change of one entry, as a watch reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An entry was made, or its value was changed.
    Put(Entry),
    /// An entry was deleted.
    Deleted {
        /// The key of the deleted entry.
        key: String,
        /// The revision of the deletion.
        revision: Revision,
    },
}

impl Event {
    /// Gives the key that changed.
    pub fn key(&self) -> &str {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Deleted { key, .. } => key,
        }
    }

    /// Gives the revision of the change.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put(entry) => entry.modified,
            Self::Deleted { revision, .. } => *revision,
        }
    }
}

/// A condition of a commit; see [`Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No entry has this key.
    Free(String),
    /// The entry with this key was last changed at this revision.
    At(String, Revision),
}

impl Expect {
    /// Gives the key that the condition is about.
    pub fn key(&self) -> &str {
        match self {
            Self::Free(key) | Self::At(key, _) => key,
        }
    }

    /// Tells whether the condition holds, if `found` is the catalog's entry for the key.
    pub fn holds(&self, found: Option<&Entry>) -> bool {
        match self {
            Self::Free(_) => found.is_none(),
            Self::At(_, revision) => found.is_some_and(|entry| entry.modified == *revision),
        }
    }
}

/// One change that a commit makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sets the value of a key.
    Put {
        /// The key whose value is set.
        key: String,
        /// The new value of the key.
        value: Vec<u8>,
        /// The lease to which the entry belongs from now on. With `None`, the entry stays until it is deleted.
        lease: Option<LeaseId>,
    },
    /// Deletes a key, if it exists.
    Delete {
        /// The key that is deleted.
        key: String,
    },
}

impl Operation {
    /// Gives the key that the operation changes.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Several changes that are made together if all conditions hold, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The conditions, which must all hold.
    pub expect: Vec<Expect>,
    /// The changes that are made if all conditions hold.
    pub then: Vec<Operation>,
}

impl Commit {
    /// Makes a commit without conditions and without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the condition that no entry has this key.
    #[must_use]
    pub fn expect_free(mut self, key: &str) -> Self {
        self.expect.push(Expect::Free(key.to_owned()));
        self
    }

    /// Adds the condition that the entry was last changed at `revision`.
    #[must_use]
    pub fn expect_at(mut self, key: &str, revision: Revision) -> Self {
        self.expect.push(Expect::At(key.to_owned(), revision));
        self
    }

    /// Adds the change that sets the value and the lease of a key.
    #[must_use]
    pub fn put(mut self, key: &str, value: &[u8], lease: Option<LeaseId>) -> Self {
        self.then.push(Operation::Put { key: key.to_owned(), value: value.to_vec(), lease });
        self
    }

    /// Adds the change that deletes a key.
    #[must_use]
    pub fn delete(mut self, key: &str) -> Self {
        self.then.push(Operation::Delete { key: key.to_owned() });
        self
    }

    /// Checks that the commit keeps the limits and changes no key twice.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] says what is wrong.
    pub fn check(&self) -> CatalogResult<()> {
        if self.expect.len() > COMMIT_MAX || self.then.len() > COMMIT_MAX {
            let most = self.expect.len().max(self.then.len());
            return Err(CatalogError::Invalid(format!("a commit has {most} parts, and {COMMIT_MAX} are allowed")));
        }
        let mut changed = BTreeSet::new();
        for operation in &self.then {
            check_key(operation.key())?;
            if !changed.insert(operation.key()) {
                return Err(CatalogError::Invalid(format!("key '{}' is twice in one commit", operation.key())));
            }
            if let Operation::Put { key, value, .. } = operation {
                if value.len() > VALUE_MAX {
                    let text = format!("the value of '{key}' has {} bytes, and {VALUE_MAX} are allowed", value.len());
                    return Err(CatalogError::Invalid(text));
                }
            }
        }
        self.expect.iter().try_for_each(|expect| check_key(expect.key()))
    }
}

/// Checks a key. It must not be empty, must not be longer than [`KEY_MAX`](crate::KEY_MAX), and must not hold control
/// characters.
pub(crate) fn check_key(key: &str) -> CatalogResult<()> {
    if key.is_empty() {
        return Err(CatalogError::Invalid("a key is empty".into()));
    }
    check_prefix(key)
}

/// Checks a prefix of keys by the rules for keys. In contrast to a key, a prefix may be empty.
pub(crate) fn check_prefix(key: &str) -> CatalogResult<()> {
    if key.len() > KEY_MAX {
        let text = format!("a key has {} bytes, and {KEY_MAX} are allowed", key.len());
        return Err(CatalogError::Invalid(text));
    }
    if key.chars().any(char::is_control) {
        return Err(CatalogError::Invalid(format!("key {key:?} holds a control character")));
    }
    Ok(())
}

/// The outcome of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Whether all conditions held and all changes were made.
    pub done: bool,
    /// The catalog's revision after the commit.
    pub revision: Revision,
    /// If a condition did not hold: the catalog's entry for the key of each condition, in the order of the conditions.
    /// `None` stands for a key without entry.
    pub found: Vec<Option<Entry>>,
}
