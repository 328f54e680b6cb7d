//! Reads a checkpoint. The headers are checked when the file is opened. A variable's bytes are checked when they are
//! read.

use std::collections::HashMap;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crossdock_layout::Status;
use crossdock_layout::type_name::Type;
use crossdock_os::fs::{self, File, OpenOptions};

use crate::contents::{Value, element_size};
use crate::error::{self, Error, Result};
use crate::hdf5::decode;
use crate::user_block::{USER_BLOCK, UserBlock};
use crate::write::{MOST_HEADERS, OURS};

/// A checkpoint, opened for reading.
#[derive(Debug)]
pub struct Checkpoint {
    file: File,
    path: PathBuf,
    length: u64,
    attributes: Vec<(String, Value)>,
    series: Vec<StoredSeries>,
}

/// The attributes and the variables that a checkpoint has of one series.
#[derive(Debug)]
struct StoredSeries {
    name: String,
    attributes: Vec<(String, Value)>,
    variables: Vec<Stored>,
}

/// A variable in a checkpoint.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The name of the variable.
    pub name: String,
    /// The crossdock name of the elements' type.
    pub type_name: String,
    /// The extents of the dimensions in C order.
    pub shape: Vec<u64>,
    /// The constants of the variable, which hold for all versions.
    pub constants: Vec<(String, Value)>,
    /// The number of bytes of all elements.
    pub bytes: u64,
    at: u64,
    crc32: u32,
}

/// The flag O_NONBLOCK of Linux on x86-64 and AArch64.
const NONBLOCK: i32 = 0o4000;

impl Checkpoint {
    /// Opens a checkpoint and checks its headers; [`Checkpoint::verify`] checks the data as well.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such file, `DENIED` if this user may not read it, `CORRUPT` if it is damaged or no
    /// checkpoint, `SYSTEM` if the kernel refuses to read it for another reason.
    pub fn open(path: &Path) -> Result<Self> {
        // With this flag, the open of a named pipe does not wait for a writer.
        let file = fs::open(OpenOptions::new().read(true).custom_flags(NONBLOCK), path);
        let file = file.map_err(|e| error::refused(path, "cannot open", &e))?;
        let meta = file.metadata().map_err(|e| error::refused(path, "cannot look at", &e))?;
        if !meta.is_file() {
            return Err(error::damaged(path, "it is no ordinary file"));
        }
        let length = meta.len();
        let user_block = read_at(&file, path, 0, USER_BLOCK)
            .and_then(|b| UserBlock::read(&b).map_err(|why| error::damaged(path, why)))?;
        if user_block.length != length {
            return Err(error::damaged(path, format!("it has {length} bytes and should have {}", user_block.length)));
        }
        if user_block.described > MOST_HEADERS {
            return Err(error::damaged(path, "its headers are larger than any"));
        }
        let headers = read_at(&file, path, USER_BLOCK, user_block.described)?;
        if crc32fast::hash(&headers) != user_block.crc32 {
            return Err(error::damaged(path, "the checksum of its headers is wrong"));
        }
        let mut checkpoint = Self { file, path: path.into(), length, attributes: Vec::new(), series: Vec::new() };
        let objects = decode::objects(&headers).map_err(|why| error::damaged(path, why))?;
        checkpoint.sort(objects).map_err(|why| error::damaged(path, why))?;
        Ok(checkpoint)
    }

    fn sort(&mut self, objects: Vec<decode::Object>) -> std::result::Result<(), &'static str> {
        let mut objects = objects.into_iter();
        self.attributes = objects.next().filter(|root| root.data.is_none()).ok_or("its root is no group")?.attributes;
        let (datasets, groups): (Vec<_>, Vec<_>) = objects.partition(|o| o.data.is_some());
        for group in groups {
            if let Some(name) = text(&group.attributes, "crossdock.series") {
                self.series.push(StoredSeries { name, attributes: group.attributes, variables: Vec::new() });
            }
        }
        self.series.sort_by_cached_key(|s| natural(&s.name));
        let numbers: HashMap<String, usize> = self.series.iter().map(|s| s.name.clone()).zip(0..).collect();
        if numbers.len() < self.series.len() {
            return Err("two groups are the same series");
        }
        for dataset in datasets {
            let stored = self.dataset(&dataset).ok_or("a dataset lacks what crossdock says of each")?;
            let of = text(&dataset.attributes, "crossdock.series").and_then(|name| numbers.get(&name));
            self.series[*of.ok_or("a dataset belongs to no series")?].variables.push(stored);
        }
        for series in &mut self.series {
            series.variables.sort_by(|a, b| a.name.cmp(&b.name));
            if series.variables.windows(2).any(|two| two[0].name == two[1].name) {
                return Err("two datasets are the same variable");
            }
        }
        Ok(())
    }

    fn dataset(&self, dataset: &decode::Object) -> Option<Stored> {
        let (at, bytes) = dataset.data?;
        let at = if bytes == 0 { USER_BLOCK } else { at.checked_add(USER_BLOCK)? };
        if at.checked_add(bytes)? > self.length {
            return None;
        }
        let rank = usize::try_from(number(&dataset.attributes, "crossdock.rank")?).ok()?;
        let (type_name, shape) = (text(&dataset.attributes, "crossdock.type")?, dataset.shape.get(..rank)?.to_vec());
        // A program that reads the dataset makes an array of this shape. So the array must have exactly as many bytes
        // as the dataset.
        element_size(&Type::parse(&type_name).ok()?, &shape, bytes)?;
        Some(Stored {
            name: text(&dataset.attributes, "crossdock.variable")?,
            type_name,
            shape,
            constants: dataset.attributes.iter().filter(|(name, _)| !name.starts_with(OURS)).cloned().collect(),
            bytes,
            at,
            crc32: u32::try_from(number(&dataset.attributes, "crossdock.crc32")?).ok()?,
        })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the attributes of the whole file.
    pub fn attributes(&self) -> impl Iterator<Item = &(String, Value)> {
        self.attributes.iter().filter(|(name, _)| !name.starts_with(OURS))
    }

    /// Gives the names of the series in the file. The series of several ranks come in the order of the ranks.
    pub fn series(&self) -> impl Iterator<Item = &str> {
        self.series.iter().map(|s| s.name.as_str())
    }

    fn one(&self, series: &str) -> Result<&StoredSeries> {
        let found = self.series.iter().find(|s| s.name == series || (series.is_empty() && self.series.len() == 1));
        found.ok_or_else(|| {
            let known: Vec<&str> = self.series().collect();
            let message = format!("{} holds no series {series:?}; it holds {}", self.path.display(), known.join(", "));
            Error::new(Status::NotFound, message)
        })
    }

    /// Gives the number of the version in the file. If `series` is empty, the file must have only one series.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such series.
    pub fn sequence(&self, series: &str) -> Result<u64> {
        Ok(number(&self.one(series)?.attributes, "crossdock.sequence").unwrap_or(0))
    }

    /// Gives the time of publishing, in nanoseconds since 1970.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such series.
    pub fn time_ns(&self, series: &str) -> Result<u64> {
        Ok(number(&self.one(series)?.attributes, "crossdock.time_ns").unwrap_or(0))
    }

    /// Gives the publisher's attributes of the version.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such series.
    pub fn series_attributes(&self, series: &str) -> Result<Vec<(String, Value)>> {
        Ok(self.one(series)?.attributes.iter().filter(|(name, _)| !name.starts_with(OURS)).cloned().collect())
    }

    /// Gives one attribute of the version.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such series or attribute; the error names the attributes that exist.
    pub fn attribute(&self, series: &str, name: &str) -> Result<Value> {
        let attributes = self.series_attributes(series)?;
        let found = attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
        found.ok_or_else(|| self.missing("attribute", name, attributes.iter().map(|(n, _)| n.as_str())))
    }

    /// The variables of a series.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such series.
    pub fn variables(&self, series: &str) -> Result<&[Stored]> {
        Ok(&self.one(series)?.variables)
    }

    /// One variable of a series.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such series or variable; the error names the variables that exist.
    pub fn variable(&self, series: &str, name: &str) -> Result<&Stored> {
        let variables = self.variables(series)?;
        let found = variables.iter().find(|v| v.name == name);
        found.ok_or_else(|| self.missing("variable", name, variables.iter().map(|v| v.name.as_str())))
    }

    fn missing<'a>(&self, what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
        let known: Vec<&str> = known.collect();
        let message = format!("{} has no {what} {name:?}; it has {}", self.path.display(), known.join(", "));
        Error::new(Status::NotFound, message)
    }

    /// Reads a variable's bytes into `into` and checks them. `into` must have exactly the size of the variable.
    ///
    /// # Errors
    /// `WRONG_TYPE` if `into` has another size; `CORRUPT` if the bytes are damaged, so that they must not be used;
    /// `NOT_FOUND` if there is no such variable; `SYSTEM` if the file cannot be read.
    pub fn read(&self, series: &str, name: &str, into: &mut [u8]) -> Result<()> {
        let stored = self.variable(series, name)?;
        if into.len() as u64 != stored.bytes {
            let message = format!(
                "{}: {name} has {} bytes ({} {:?}), and memory for {} was given",
                self.path.display(),
                stored.bytes,
                stored.type_name,
                stored.shape,
                into.len()
            );
            return Err(Error::new(Status::WrongType, message));
        }
        self.file.read_exact_at(into, stored.at).map_err(|e| error::refused(&self.path, "cannot read", &e))?;
        self.judge(stored, crc32fast::hash(into))
    }

    /// Reads all data and checks them against their checksums.
    ///
    /// # Errors
    /// `CORRUPT` if a variable's bytes are damaged (the error names the variable), `SYSTEM` if the file cannot be read.
    pub fn verify(&self) -> Result<()> {
        let mut buffer = vec![0; 1 << 20];
        for stored in self.series.iter().flat_map(|s| &s.variables) {
            let (mut sum, mut done) = (crc32fast::Hasher::new(), 0);
            while done < stored.bytes {
                let slice = &mut buffer[..(stored.bytes - done).min(1 << 20) as usize];
                let read = self.file.read_exact_at(slice, stored.at + done);
                read.map_err(|e| error::refused(&self.path, "cannot read", &e))?;
                sum.update(slice);
                done += slice.len() as u64;
            }
            self.judge(stored, sum.finalize())?;
        }
        Ok(())
    }

    fn judge(&self, stored: &Stored, sum: u32) -> Result<()> {
        if sum == stored.crc32 {
            return Ok(());
        }
        let why = format!("the checksum of {} is {sum:08x} and should be {:08x}", stored.name, stored.crc32);
        Err(error::damaged(&self.path, why))
    }
}

fn read_at(file: &File, path: &Path, at: u64, bytes: u64) -> Result<Vec<u8>> {
    let mut buffer = vec![0; bytes as usize];
    file.read_exact_at(&mut buffer, at).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => error::damaged(path, "it ends before its headers do"),
        _ => error::refused(path, "cannot read", &e),
    })?;
    Ok(buffer)
}

fn text(attributes: &[(String, Value)], name: &str) -> Option<String> {
    attributes.iter().find(|(n, _)| n == name).and_then(|(_, value)| match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    })
}

fn number(attributes: &[(String, Value)], name: &str) -> Option<u64> {
    attributes.iter().find(|(n, _)| n == name).and_then(|(_, value)| match value {
        Value::U64(n) => Some(*n),
        _ => None,
    })
}

/// Makes a key for sorting that puts `field/10` after `field/9`.
fn natural(name: &str) -> (String, u64) {
    let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    (name[..digits].to_owned(), name[digits..].parse().unwrap_or(0))
}
