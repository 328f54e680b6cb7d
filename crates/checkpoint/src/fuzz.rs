//! Entry point for the fuzzer: reads damaged checkpoint files, and reads back files that this library writes.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crossdock_layout::Status;

use crate::contents::{Contents, Series, Value, Variable};
use crate::hdf5::{SIGNATURE, SUPERBLOCK, lookup3};
use crate::read::Checkpoint;
use crate::user_block::{USER_BLOCK, UserBlock};
use crate::write;

/// Makes a file from the input and reads it. The first byte of the input says what the other bytes are used for:
///
/// - they are the whole file;
/// - they are the file's headers, which get correct checksums;
/// - they say how the headers of a small file of this library are changed; the headers then get correct checksums;
/// - they describe contents, which this library writes into the file. Reading must give the same contents. Then some
///   bytes of the file are changed, and reading must fail or give the same contents.
///
/// A file that is refused gives an error that names the file. A file that is accepted is consistent: see [`check`].
pub fn fuzz_file(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else { return };
    let scratch = Scratch::new();
    match which % 4 {
        0 => scratch.put(body),
        1 => scratch.put(&with_checksums(body, &[0; 64])),
        2 => {
            scratch.write(&template()).expect("the template can be written");
            let file = scratch.bytes();
            let described = UserBlock::read(&file[..USER_BLOCK as usize]).expect("a user block").described as usize;
            let (headers, data) = file[USER_BLOCK as usize..].split_at(described);
            let mut headers = headers.to_vec();
            change(&mut headers, body);
            scratch.put(&with_checksums(&headers, data));
        }
        _ => return written(&scratch, &mut Input(body)),
    }
    check(&scratch);
}

/// A file whose name was removed. The path in this value leads to the file as long as this value exists.
struct Scratch {
    file: File,
    path: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = folder.join(format!("crossdock-fuzz-{}-{number}.h5", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&name).expect("a file");
        std::fs::remove_file(&name).expect("the file has a name");
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Self { file, path }
    }

    fn put(&self, bytes: &[u8]) {
        self.file.set_len(bytes.len() as u64).expect("room");
        self.file.write_all_at(bytes, 0).expect("room");
    }

    fn write(&self, contents: &Contents) -> crate::Result<()> {
        self.file.set_len(0).expect("an open file");
        write::write(&self.file, &self.path, contents).map(drop)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.file.metadata().expect("an open file").len() as usize];
        self.file.read_exact_at(&mut bytes, 0).expect("its own length");
        bytes
    }

    /// Opens the file. If that fails, checks that the error says that the file is damaged.
    fn open(&self) -> Option<Checkpoint> {
        match Checkpoint::open(&self.path) {
            Ok(checkpoint) => Some(checkpoint),
            Err(error) => {
                let text = error.to_string();
                assert!(error.status == Status::Corrupt && text.contains(&self.path.display().to_string()), "{text}");
                None
            }
        }
    }
}

/// All contents of a checkpoint, in a form that can be compared.
#[derive(PartialEq, Debug)]
struct Snapshot {
    attributes: Vec<(String, String)>,
    series: BTreeMap<String, Version>,
}

/// A version: its number, its time, its attributes and its variables.
type Version = (u64, u64, Vec<(String, String)>, BTreeMap<String, Array>);

/// A variable: its type, its shape, its constants and its bytes.
type Array = (String, Vec<u64>, Vec<(String, String)>, Vec<u8>);

/// Turns values into texts that can be compared. A NaN is not equal to itself, but its text is.
fn comparable<'a>(values: impl Iterator<Item = &'a (String, Value)>) -> Vec<(String, String)> {
    let text = |value: &Value| match value {
        Value::F64(x) => format!("F64({:x})", x.to_bits()),
        other => format!("{other:?}"),
    };
    values.map(|(name, value)| (name.clone(), text(value))).collect()
}

impl Snapshot {
    fn of(contents: &Contents) -> Self {
        let array = |v: &Variable| {
            let constants = comparable(v.constants.iter());
            (v.name.clone(), (v.type_name.clone(), v.shape.clone(), constants, v.bytes.to_vec()))
        };
        let one = |s: &Series| {
            let variables = s.variables.iter().map(array).collect();
            (s.name.clone(), (s.sequence, s.time_ns, comparable(s.attributes.iter()), variables))
        };
        let series = contents.series.iter().map(one).collect();
        Self { attributes: comparable(contents.attributes.iter()), series }
    }

    /// Reads all of a checkpoint. Returns `None` if the bytes of a variable are damaged.
    fn by(checkpoint: &Checkpoint) -> Option<Self> {
        let mut series = BTreeMap::new();
        let names: Vec<String> = checkpoint.series().map(str::to_owned).collect();
        for name in &names {
            let mut variables = BTreeMap::new();
            for stored in checkpoint.variables(name).expect("a series of the file") {
                let mut bytes = vec![0; stored.bytes as usize];
                match checkpoint.read(name, &stored.name, &mut bytes) {
                    Ok(()) => {}
                    Err(error) if error.status == Status::Corrupt => return None,
                    Err(error) => panic!("{error}"),
                }
                let array =
                    (stored.type_name.clone(), stored.shape.clone(), comparable(stored.constants.iter()), bytes);
                assert!(variables.insert(stored.name.clone(), array).is_none(), "two variables {}", stored.name);
            }
            let attributes = comparable(checkpoint.series_attributes(name).expect("a series of the file").iter());
            let (sequence, time) = (checkpoint.sequence(name).expect("one"), checkpoint.time_ns(name).expect("one"));
            let before = series.insert(name.clone(), (sequence, time, attributes, variables));
            assert!(before.is_none(), "two series {name}");
        }
        Some(Self { attributes: comparable(checkpoint.attributes()), series })
    }
}

/// Reads a file of any bytes. If the file is accepted, no two series and no two variables of a series have the same
/// name, each array has the bytes of its shape, and `verify` fails exactly if reading one of the variables fails. If
/// the contents can be written into a new file, reading the new file gives the same contents.
fn check(scratch: &Scratch) -> Option<Snapshot> {
    let checkpoint = scratch.open()?;
    let length = scratch.file.metadata().expect("an open file").len();
    for name in checkpoint.series() {
        for stored in checkpoint.variables(name).expect("a series of the file") {
            let count = stored.shape.iter().product::<u64>();
            assert!(stored.bytes <= length && (count == 0) == (stored.bytes == 0), "{stored:?}");
            assert!(count == 0 || stored.bytes % count == 0, "{stored:?}");
            let found = checkpoint.variable(name, &stored.name).expect("a variable of the series");
            assert_eq!((found.bytes, &found.shape), (stored.bytes, &stored.shape));
            let wrong = checkpoint.read(name, &stored.name, &mut vec![0; stored.bytes as usize + 1]);
            assert_eq!(wrong.expect_err("another size").status, Status::WrongType);
        }
    }
    let snapshot = Snapshot::by(&checkpoint);
    assert_eq!(checkpoint.verify().is_ok(), snapshot.is_some());
    let snapshot = snapshot?;
    let again = Scratch::new();
    if again.write(&contents_of(&checkpoint, &snapshot)).is_ok() {
        let copy = Checkpoint::open(&again.path).expect("what this library has written");
        assert_eq!(Snapshot::by(&copy).as_ref(), Some(&snapshot));
    }
    Some(snapshot)
}

fn contents_of<'a>(checkpoint: &Checkpoint, snapshot: &'a Snapshot) -> Contents<'a> {
    let series = snapshot.series.iter().map(|(name, (sequence, time_ns, _, variables))| {
        let attributes = checkpoint.series_attributes(name).expect("a series of the file");
        let stored = |variable: &String| checkpoint.variable(name, variable).expect("a variable of the series").clone();
        let variables = variables.iter().map(|(variable, (type_name, shape, _, bytes))| Variable {
            name: variable.clone(),
            type_name: type_name.clone(),
            shape: shape.clone(),
            constants: stored(variable).constants,
            bytes,
        });
        let (sequence, time_ns) = (*sequence, *time_ns);
        Series { name: name.clone(), sequence, time_ns, attributes, variables: variables.collect() }
    });
    Contents { attributes: checkpoint.attributes().cloned().collect(), series: series.collect() }
}

/// Writes contents that the input describes, and reads them. Then changes the file and reads it once more.
fn written(scratch: &Scratch, input: &mut Input<'_>) {
    let data: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let contents = input.contents(&data);
    if let Err(error) = scratch.write(&contents) {
        assert!(error.status == Status::Invalid && !error.to_string().is_empty(), "{error}");
        return;
    }
    let snapshot = check(scratch);
    assert_eq!(snapshot.as_ref(), Some(&Snapshot::of(&contents)), "what was written comes back");
    let mut bytes = scratch.bytes();
    change(&mut bytes, input.0);
    scratch.put(&bytes);
    if let Some(changed) = check(scratch) {
        assert_eq!(Some(changed), snapshot, "a changed file is refused, or means the same");
    }
}

/// Makes a file from these headers and data: adds a user block, and the checksums in the user block and in the headers.
fn with_checksums(headers: &[u8], data: &[u8]) -> Vec<u8> {
    let mut headers = headers.to_vec();
    headers.resize(headers.len().max(SUPERBLOCK as usize), 0);
    headers[..8].copy_from_slice(&SIGNATURE);
    headers[8..12].copy_from_slice(&[2, 8, 8, 0]);
    let sum = lookup3::sum(&headers[..44]);
    headers[44..48].copy_from_slice(&sum.to_le_bytes());
    // A header may lie inside another header, which begins before it. The checksum of the outer header then covers the
    // inner header with its checksum. So the checksums are written from the last header to the first one.
    for at in (SUPERBLOCK as usize..headers.len().saturating_sub(14)).rev() {
        if headers[at..].starts_with(b"OHDR") {
            let length = u32::from_le_bytes(headers[at + 6..at + 10].try_into().expect("four bytes")) as usize;
            let end = at + 10 + length.min(headers.len());
            if end + 4 <= headers.len() {
                let sum = lookup3::sum(&headers[at..end]);
                headers[end..end + 4].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
    let length = USER_BLOCK + (headers.len() + data.len()) as u64;
    let user_block = UserBlock { length, described: headers.len() as u64, crc32: crc32fast::hash(&headers) };
    [&user_block.bytes()[..], &headers, data].concat()
}

/// Changes bytes. `changes` is a list of groups of three bytes, a position (two bytes) and a value.
fn change(bytes: &mut [u8], changes: &[u8]) {
    for one in changes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([one[0], one[1]])) % bytes.len();
        bytes[at] = one[2];
    }
}

/// The contents of a small file in which every feature of the format occurs.
fn template() -> Contents<'static> {
    let variable = |name: &str, type_name: &str, shape: &[u64], bytes| Variable {
        name: name.into(),
        type_name: type_name.into(),
        shape: shape.to_vec(),
        constants: vec![("x".into(), Value::F64(0.5))],
        bytes,
    };
    let series = |name: &str, variables| Series {
        name: name.into(),
        sequence: 3,
        time_ns: 4,
        attributes: vec![("step".into(), Value::I64(-1)), ("note".into(), Value::Text("n".into()))],
        variables,
    };
    let all = vec![
        series("f/0", vec![variable("u", "f64", &[2], &[7; 16]), variable("g/v", "u8", &[0], &[])]),
        series("f/1", vec![variable("u", "cpp:T", &[2, 1], &[9; 6])]),
    ];
    Contents { attributes: vec![("a".into(), Value::U64(1))], series: all }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Chooses one of `words`, or makes a text from the next bytes of the input.
    fn word(&mut self, words: &[&str]) -> String {
        let which = usize::from(self.byte());
        if let Some(word) = words.get(which % (words.len() + 1)) {
            return (*word).to_owned();
        }
        let length = (which / (words.len() + 1)).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    fn values(&mut self) -> Vec<(String, Value)> {
        let count = self.byte() % 4;
        let one = |_| {
            let name = self.word(&["x", "y", "crossdock.rank", "crossdock.series"]);
            let value = match self.byte() % 4 {
                0 => Value::I64(-i64::from(self.byte())),
                1 => Value::U64(self.byte().into()),
                2 => Value::F64(f64::from(self.byte()) / 0.0),
                _ => Value::Text(self.word(&["", "text"])),
            };
            (name, value)
        };
        (0..count).map(one).collect()
    }

    fn contents<'d>(&mut self, data: &'d [u8]) -> Contents<'d> {
        let attributes = self.values();
        let count = self.byte() % 4;
        let series = (0..count).map(|_| self.series(data)).collect();
        Contents { attributes, series }
    }

    fn series<'d>(&mut self, data: &'d [u8]) -> Series<'d> {
        let name = self.word(&["a", "a/b", "f/1", "f/10"]);
        let (sequence, time_ns, attributes) = (self.byte().into(), self.byte().into(), self.values());
        let count = self.byte() % 3;
        let variables = (0..count).map(|_| {
            let shape: Vec<u64> = (0..self.byte() % 4).map(|_| u64::from(self.byte() % 8)).collect();
            let (type_name, bytes) = match self.byte() % 8 {
                0 => ("f64".to_owned(), 8),
                1 => ("{i32,f64}".to_owned(), 16),
                2 => ("f32[3]".to_owned(), 12),
                3 => ("string".to_owned(), 32),
                4 => ("cpp:T".to_owned(), u64::from(self.byte() % 4)),
                _ => (self.word(&["u8", "c128", "bool", "{u8[2],c64}", "vector<f64>"]), u64::from(self.byte() % 33)),
            };
            let bytes = shape.iter().product::<u64>() * bytes;
            let bytes = &data[..(bytes as usize).min(data.len())];
            Variable { name: self.word(&["u", "v", "b/u", "u/w"]), type_name, shape, constants: self.values(), bytes }
        });
        let variables = variables.collect();
        Series { name, sequence, time_ns, attributes, variables }
    }
}

#[cfg(test)]
mod tests {
    use crossdock_os::testing::{Random, run_corpus};

    use super::*;

    #[test]
    fn inputs_of_the_fuzzer_do_no_harm() {
        run_corpus("checkpoint", fuzz_file);
    }

    #[test]
    fn random_files_and_contents_do_no_harm() {
        let mut random = Random(5);
        for round in 0..2000u32 {
            let bytes: Vec<u8> = [vec![2 + (round % 2) as u8], random.bytes(120)].concat();
            fuzz_file(&bytes);
        }
    }

    /// A file in which headers lie inside each other must be refused. Otherwise each header would be read together with
    /// all headers inside it, and a short file would take very long.
    #[test]
    fn headers_inside_headers_are_refused() {
        // The second header lies inside a message of the first one, which links to it.
        let link = |to: u64| [&[6, 12, 0, 0, 1, 0x10, 1, 0][..], &to.to_le_bytes()].concat();
        let header = |messages: &[u8]| {
            let mut bytes = b"OHDR\x02\x02".to_vec();
            bytes.extend((messages.len() as u32).to_le_bytes());
            bytes.extend(messages);
            [bytes, vec![0; 4]].concat()
        };
        let inner = header(&[]);
        let message = [&[2, inner.len() as u8, 0, 0][..], &inner].concat();
        let outer = header(&[link(SUPERBLOCK + 10 + 16 + 4), message].concat());
        let mut headers = vec![0; SUPERBLOCK as usize];
        headers[36..44].copy_from_slice(&SUPERBLOCK.to_le_bytes());
        headers.extend(outer);
        let scratch = Scratch::new();
        scratch.put(&with_checksums(&headers, &[]));
        let error = Checkpoint::open(&scratch.path).unwrap_err().to_string();
        assert!(error.contains("its headers overlap"), "{error}");
    }
}
