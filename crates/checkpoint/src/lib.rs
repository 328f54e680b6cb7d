//! Writes checkpoints, which are HDF5 files, and checks them and reads them back. Also writes `.npz` files.
//!
//! [`write`](fn@write) makes a file of [`Contents`]. [`Checkpoint`] reads a file, and gives only bytes whose checksums
//! are correct. [`Folder`] numbers files, gives each its final name by one rename, and keeps the newest K.
//! [`restart`](fn@restart) finds the newest good file and says which newer ones were damaged. This library neither
//! prints nor exits.

#![warn(missing_docs)]

mod contents;
mod error;
mod folder;
mod fuzz;
mod hdf5;
mod npz;
mod read;
mod restart;
mod user_block;
mod write;

pub use contents::{Contents, Series, Value, Variable};
pub use error::{Error, Result};
pub use folder::{Folder, Saved, base_of};
pub use fuzz::fuzz_file;
pub use npz::write_npz;
pub use read::{Checkpoint, Stored};
pub use restart::{Restart, restart};
pub use write::{Written, write};
