//! Entries, and operations on them.

use std::collections::BTreeSet;

use crate::{COMMIT_MAX, CatalogError, CatalogResult, KEY_MAX, VALUE_MAX};

/// The number of a change of a catalog. Zero is before all changes.
pub type Revision = u64;

/// A lease. It is never zero, and no number is given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub key: String,
    /// What it maps to.
    pub value: Vec<u8>,
    /// The change that made the key.
    pub created: Revision,
    /// The change that set this value. Commits use it as their fence.
    pub modified: Revision,
    /// The lease that the entry hangs on.
    pub lease: Option<LeaseId>,
}

/// All entries below a prefix at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// A watch continues from the next revision.
    pub revision: Revision,
    /// In the order of their keys.
    pub entries: Vec<Entry>,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The entry was made, or has a new value.
    Put(Entry),
    /// The key is gone.
    Deleted {
        /// Which.
        key: String,
        /// When.
        revision: Revision,
    },
}

impl Event {
    /// The key that changed.
    pub fn key(&self) -> &str {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Deleted { key, .. } => key,
        }
    }

    /// When it changed.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put(entry) => entry.modified,
            Self::Deleted { revision, .. } => *revision,
        }
    }
}

/// A condition of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No entry has this key.
    Free(String),
    /// The entry was last changed at this revision.
    At(String, Revision),
}

impl Expect {
    /// The key it is about.
    pub fn key(&self) -> &str {
        match self {
            Self::Free(key) | Self::At(key, _) => key,
        }
    }

    /// Does the condition hold for this entry?
    pub fn holds(&self, found: Option<&Entry>) -> bool {
        match self {
            Self::Free(_) => found.is_none(),
            Self::At(_, revision) => found.is_some_and(|entry| entry.modified == *revision),
        }
    }
}

/// One change of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sets a value.
    Put {
        /// Of which key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The lease that the entry hangs on from now on.
        lease: Option<LeaseId>,
    },
    /// Deletes a key, if it exists.
    Delete {
        /// Which.
        key: String,
    },
}

impl Operation {
    /// The key it is about.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Changes that are made together, if all conditions hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The conditions.
    pub expect: Vec<Expect>,
    /// What is done then.
    pub then: Vec<Operation>,
}

impl Commit {
    /// Expects nothing and does nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The key must be free.
    #[must_use]
    pub fn expect_free(mut self, key: &str) -> Self {
        self.expect.push(Expect::Free(key.to_owned()));
        self
    }

    /// The entry must be the one of this revision.
    #[must_use]
    pub fn expect_at(mut self, key: &str, revision: Revision) -> Self {
        self.expect.push(Expect::At(key.to_owned(), revision));
        self
    }

    /// Then this value is set.
    #[must_use]
    pub fn put(mut self, key: &str, value: &[u8], lease: Option<LeaseId>) -> Self {
        self.then.push(Operation::Put { key: key.to_owned(), value: value.to_vec(), lease });
        self
    }

    /// Then this key is deleted.
    #[must_use]
    pub fn delete(mut self, key: &str) -> Self {
        self.then.push(Operation::Delete { key: key.to_owned() });
        self
    }

    /// Limits, and no key twice among the changes.
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

/// Keys are short, not empty, and hold no control characters.
pub(crate) fn check_key(key: &str) -> CatalogResult<()> {
    if key.is_empty() {
        return Err(CatalogError::Invalid("a key is empty".into()));
    }
    check_prefix(key)
}

/// A prefix may be empty.
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

/// What became of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// All expectations held, and all changes were made.
    pub done: bool,
    /// The catalog's revision after it.
    pub revision: Revision,
    /// If not done: the entry of each expectation's key, in their order.
    pub found: Vec<Option<Entry>>,
}
