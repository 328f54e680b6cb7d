//! The parties that can own an item.

use super::super::cursor::{Malformed, Reader, Writer};

/// A party that can own an item. The party need not exist yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// A task of the item's workflow: one certain rank of the task, or the first of its ranks that asks for the item.
    Task {
        /// The name of the task.
        task: String,
        /// The rank; `None` for any rank.
        rank: Option<u32>,
    },
    /// The task and rank that has registered this number.
    Number(u64),
}

const ANY_RANK: u64 = u64::MAX;

impl Party {
    /// Makes the party that is one rank of a task.
    #[must_use]
    pub fn rank(task: &str, rank: u32) -> Self {
        Self::Task { task: task.to_owned(), rank: Some(rank) }
    }

    /// Makes the party that is any rank of a task.
    #[must_use]
    pub fn task(task: &str) -> Self {
        Self::Task { task: task.to_owned(), rank: None }
    }

    pub(in crate::wire) fn write(&self, w: &mut Writer) {
        match self {
            Self::Task { task, rank } => w.u64(rank.map_or(ANY_RANK, u64::from)).name(task),
            Self::Number(number) => w.u64(*number).name(""),
        };
    }

    pub(in crate::wire) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (number, task) = (r.u64()?, r.optional_name()?);
        Ok(match task {
            None => Self::Number(number),
            Some(task) if number == ANY_RANK => Self::Task { task, rank: None },
            Some(task) => {
                let rank = u32::try_from(number).map_err(|_| Malformed::Value("rank"))?;
                Self::Task { task, rank: Some(rank) }
            }
        })
    }
}

impl std::fmt::Display for Party {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Task { task, rank: None } => write!(f, "task '{task}'"),
            Self::Task { task, rank: Some(rank) } => write!(f, "task '{task}', rank {rank}"),
            Self::Number(number) => write!(f, "container {number}"),
        }
    }
}
