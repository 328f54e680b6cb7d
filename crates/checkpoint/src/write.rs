//! Writes a checkpoint: first the data, then the headers, and the user block last. The sizes of the headers are known
//! before the data are written, so the data are written behind the space for the headers.

use std::collections::BTreeMap;
use std::path::Path;

use crossdock_layout::Status;
use crossdock_layout::type_name::Type;
use crossdock_os::fs::{self, File};

use crate::contents::{Contents, Series, Value, Variable, element_size};
use crate::error::{self, Error, Result};
use crate::hdf5::{self, header::Header};
use crate::user_block::{USER_BLOCK, UserBlock};

/// The data of a variable begin at a multiple of this size, so that they can be mapped.
const PAGE: u64 = 4096;
/// How many bytes are written at a time. The checksum of each part is computed just before the part is written, so the
/// part's bytes are still in the CPU's cache when they are written.
const SLICE: usize = 256 << 10;
/// The maximum size of all headers together, in bytes. A reader loads all headers, so the limit protects the reader. No
/// real program reaches it.
pub(crate) const MOST_HEADERS: u64 = 64 << 20;

/// The greatest number of dimensions of a dataset in HDF5.
const MOST_DIMENSIONS: usize = 32;
/// The largest number of bytes of a text. A header's message has at most 64 KiB.
const MOST_TEXT: usize = 32 << 10;
/// The largest number of bytes of the name of a series or a variable with its slashes. Each part of the name becomes a
/// group inside the group of the part before it, so a longer name could make very many nested groups.
const MOST_NAME: usize = 1024;
/// The prefix of the names of attributes that this library writes.
pub(crate) const OURS: &str = "crossdock.";

/// The result of writing a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The length of the file in bytes.
    pub length: u64,
    /// The number of bytes that the variables take in the file.
    pub data: u64,
}

/// Writes a checkpoint into an empty file and syncs it to the disk. `path` is used only in errors.
///
/// # Errors
/// `INVALID` for names and types that HDF5 cannot hold. If the file cannot be written: `NO_SPACE` if the disk or a
/// quota is full, `DENIED` if this user may not write it, otherwise `SYSTEM`.
pub fn write(file: &File, path: &Path, contents: &Contents) -> Result<Written> {
    let mut plan = Plan::new(contents)?;
    plan.place();
    let refused = |e: &std::io::Error| error::refused(path, "cannot write", e);
    for at in 0..plan.datasets.len() {
        let (place, bytes) = (plan.datasets[at].place, plan.datasets[at].variable.bytes);
        let mut sum = crc32fast::Hasher::new();
        for (i, slice) in bytes.chunks(SLICE).enumerate() {
            sum.update(slice);
            fs::write_all_at(file, slice, place + (i * SLICE) as u64).map_err(|e| refused(&e))?;
        }
        plan.datasets[at].crc32 = sum.finalize();
    }
    let headers = plan.headers();
    let user_block =
        UserBlock { length: plan.length, described: headers.len() as u64, crc32: crc32fast::hash(&headers) };
    fs::set_len(file, plan.length).map_err(|e| refused(&e))?;
    fs::write_all_at(file, &headers, USER_BLOCK).map_err(|e| refused(&e))?;
    fs::write_all_at(file, &user_block.bytes(), 0).map_err(|e| refused(&e))?;
    fs::sync_all(file).map_err(|e| refused(&e))?;
    Ok(Written { length: plan.length, data: plan.datasets.iter().map(|d| d.variable.bytes.len() as u64).sum() })
}

/// The positions of all parts of the file, counted from its first byte.
struct Plan<'a> {
    root: Group,
    root_place: u64,
    datasets: Vec<Dataset<'a>>,
    length: u64,
}

#[derive(Default)]
struct Group {
    attributes: Vec<(String, Value)>,
    groups: BTreeMap<String, (Group, u64)>,
    /// Maps the name of each dataset in this group to the index of the dataset in [`Plan::datasets`].
    datasets: BTreeMap<String, usize>,
}

struct Dataset<'a> {
    series: String,
    variable: &'a Variable<'a>,
    ty: Type,
    item: u64,
    header: u64,
    place: u64,
    crc32: u32,
}

impl<'a> Plan<'a> {
    fn new(contents: &'a Contents) -> Result<Self> {
        let mut plan = Self { root: Group::default(), root_place: 0, datasets: Vec::new(), length: 0 };
        check_attributes(&contents.attributes)?;
        plan.root.attributes.clone_from(&contents.attributes);
        plan.root.attributes.push(("crossdock.checkpoint".into(), Value::I64(1)));
        for series in &contents.series {
            check_path(&series.name)?;
            check_attributes(&series.attributes)?;
            let group = plan.root.descend(&series.name)?;
            if !group.attributes.is_empty() {
                return Err(invalid(&series.name, "is there twice among the series"));
            }
            group.attributes = attributes_of(series);
        }
        for series in &contents.series {
            for variable in &series.variables {
                check_path(&variable.name)?;
                check_attributes(&variable.constants)?;
                let dataset = Dataset::new(&series.name, variable)?;
                let group = plan.root.descend(&series.name)?;
                let (folder, name) = variable.name.rsplit_once('/').unwrap_or(("", &variable.name));
                let group = if folder.is_empty() { group } else { group.descend(folder)? };
                check_name(name)?;
                if group.groups.contains_key(name) || group.datasets.contains_key(name) {
                    return Err(invalid(&variable.name, &format!("is taken twice below {}", series.name)));
                }
                group.datasets.insert(name.into(), plan.datasets.len());
                plan.datasets.push(dataset);
            }
        }
        plan.root.no_clash()?;
        Ok(plan)
    }

    /// Chooses the position of every header and of every dataset's bytes.
    fn place(&mut self) {
        let mut next = USER_BLOCK + hdf5::SUPERBLOCK;
        let mut take = |bytes: usize| {
            let place = next;
            next += bytes as u64;
            place
        };
        self.root_place = take(self.root.header().len());
        self.root.place(&mut take);
        for dataset in &mut self.datasets {
            dataset.header = take(dataset.bytes().len());
        }
        let mut end = next;
        for dataset in &mut self.datasets {
            dataset.place = end.next_multiple_of(PAGE);
            end = dataset.place + dataset.variable.bytes.len() as u64;
        }
        self.length = end;
    }

    /// Writes superblock and headers, which follow the user block.
    fn headers(&self) -> Vec<u8> {
        let mut out = hdf5::superblock(USER_BLOCK, self.length, self.root_place - USER_BLOCK);
        out.extend(self.root.header_with(&self.datasets));
        self.root.put(&self.datasets, &mut out);
        for dataset in &self.datasets {
            out.extend(dataset.bytes());
        }
        out
    }
}

impl Group {
    fn descend(&mut self, path: &str) -> Result<&mut Group> {
        let mut group = self;
        for name in path.split('/') {
            check_name(name)?;
            group = &mut group.groups.entry(name.into()).or_default().0;
        }
        Ok(group)
    }

    /// Checks that no two objects have the same path. For example, a series `a/b` clashes with the variable `b` of a
    /// series `a`.
    fn no_clash(&self) -> Result<()> {
        match self.datasets.keys().find(|name| self.groups.contains_key(*name)) {
            Some(name) => Err(invalid(name, "is both a variable and the beginning of a series' name")),
            None => self.groups.values().try_for_each(|g| g.0.no_clash()),
        }
    }

    fn header(&self) -> Vec<u8> {
        self.header_with(&[])
    }

    fn header_with(&self, datasets: &[Dataset]) -> Vec<u8> {
        let place = |n: &usize| datasets.get(*n).map_or(USER_BLOCK, |d| d.header);
        let groups = self.groups.iter().map(|(name, g)| (name.as_str(), g.1.max(USER_BLOCK) - USER_BLOCK));
        let links = self.datasets.iter().map(|(name, n)| (name.as_str(), place(n) - USER_BLOCK));
        Header::group(&groups.chain(links).collect::<Vec<_>>(), &self.attributes).bytes()
    }

    fn place(&mut self, take: &mut impl FnMut(usize) -> u64) {
        for (group, place) in self.groups.values_mut() {
            *place = take(group.header().len());
            group.place(take);
        }
    }

    /// Writes the headers in the order in which `place` chooses their positions.
    fn put(&self, datasets: &[Dataset], out: &mut Vec<u8>) {
        for (group, _) in self.groups.values() {
            out.extend(group.header_with(datasets));
            group.put(datasets, out);
        }
    }
}

impl<'a> Dataset<'a> {
    fn new(series: &str, variable: &'a Variable<'a>) -> Result<Self> {
        let bad =
            |why: String| Error::new(Status::Invalid, format!("variable {} of series {series}: {why}", variable.name));
        let ty = Type::parse(&variable.type_name).map_err(|e| bad(e.to_string()))?;
        let bytes = variable.bytes.len() as u64;
        let Some(item) = element_size(&ty, &variable.shape, bytes) else {
            return Err(bad(format!("{bytes} bytes are not {:?} elements of {}", variable.shape, variable.type_name)));
        };
        if variable.shape.len() + hdf5::datatype::of(&ty, item).1.len() > MOST_DIMENSIONS {
            return Err(bad(format!("more than {MOST_DIMENSIONS} dimensions, with those of its type")));
        }
        Ok(Self { series: series.into(), variable, ty, item, header: 0, place: 0, crc32: 0 })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut attributes = self.variable.constants.clone();
        attributes.push(("crossdock.variable".into(), Value::Text(self.variable.name.clone())));
        attributes.push(("crossdock.series".into(), Value::Text(self.series.clone())));
        attributes.push(("crossdock.type".into(), Value::Text(self.variable.type_name.clone())));
        attributes.push(("crossdock.rank".into(), Value::U64(self.variable.shape.len() as u64)));
        attributes.push(("crossdock.crc32".into(), Value::U64(self.crc32.into())));
        let place = (self.place.max(USER_BLOCK) - USER_BLOCK, self.variable.bytes.len() as u64);
        Header::dataset(&self.ty, self.item, &self.variable.shape, place, &attributes).bytes()
    }
}

fn attributes_of(series: &Series) -> Vec<(String, Value)> {
    let mut attributes = series.attributes.clone();
    attributes.push(("crossdock.series".into(), Value::Text(series.name.clone())));
    attributes.push(("crossdock.sequence".into(), Value::U64(series.sequence)));
    attributes.push(("crossdock.time_ns".into(), Value::U64(series.time_ns)));
    attributes
}

fn check_attributes(attributes: &[(String, Value)]) -> Result<()> {
    for (i, (name, value)) in attributes.iter().enumerate() {
        check_name(name)?;
        if name.starts_with(OURS) {
            return Err(invalid(name, "is a name that crossdock keeps for itself"));
        }
        if attributes[..i].iter().any(|(other, _)| other == name) {
            return Err(invalid(name, "is there twice among the attributes"));
        }
        if matches!(value, Value::Text(text) if text.len() > MOST_TEXT) {
            return Err(invalid(name, "has a text longer than 32 KiB"));
        }
        // HDF5 pads texts with zero bytes, so a text that contains zero bytes could not be read back unchanged.
        if matches!(value, Value::Text(text) if text.contains('\0')) {
            return Err(invalid(name, "has a text with a zero byte"));
        }
    }
    Ok(())
}

/// Checks the length of a series' or a variable's name. Each part between slashes is checked where its group is made.
fn check_path(name: &str) -> Result<()> {
    if name.len() > MOST_NAME {
        return Err(invalid(&name.chars().take(64).collect::<String>(), "begins a name longer than 1024 bytes"));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    let why = match name {
        "" | "." | ".." => "is no name that HDF5 can hold",
        _ if name.len() > 255 => "is longer than 255 bytes",
        _ if name.contains('\0') => "holds a zero byte",
        _ => return Ok(()),
    };
    Err(invalid(name, why))
}

fn invalid(name: &str, why: &str) -> Error {
    Error::new(Status::Invalid, format!("{name:?} {why}"))
}
