//! Entry point for the fuzzer: makes a mirror of a series that another node describes, and offers it versions. All
//! messages can have any content.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossdock_client::{AttributeSpec, Description, Error, FullPolicy, Kind, MemberId, SegmentId, Status, Value};
use crossdock_core::Host;
use crossdock_core::host::{PinPageGiven, StandaloneHost};
use crossdock_core::liveness::LivenessSource;
use crossdock_core::series::{
    AttachParts, ChunkRun, Identity, Observer, Original, Replica, Variable, Version, VersionHead,
};
use crossdock_layout::type_name::Type;
use crossdock_os::{file, memfd};

use super::messages::{Load, Offered, Supplied};
use super::mirror::spread;
use crate::messages::{BodyField, ChannelKey};

/// Makes a mirror from a description that another node sends, and takes the versions that the other node offers. A few
/// bytes of each message are changed on the way.
///
/// The test fails if one of these rules is broken. A message that is accepted has the same bytes when it is encoded
/// again. An unchanged offer is accepted, unless there is no room. After an offer that is refused, the mirror shows
/// what it showed before. After an offer that is accepted, an observer sees the number, the time, the attributes and
/// the shapes of the offer, the bytes that were sent, and the former bytes in all other chunks. A version that an
/// observer holds never changes.
pub fn fuzz_mirror(bytes: &[u8]) {
    let mut input = Input(bytes);
    let supplied = Supplied { original: input.original(), publisher: "t".into() };
    let Some(heard) = input.sent(&supplied) else { return };
    let is_honest = heard == supplied;
    let Some(mut world) = World::new(heard.original, is_honest) else { return };
    for _ in 0..64 {
        if input.0.is_empty() {
            break;
        }
        world.step(&mut input);
    }
}

/// What an observer of the mirror must see.
#[derive(Clone, Default)]
struct Model {
    sequence: u64,
    time: u64,
    attributes: Vec<(String, Value)>,
    shapes: Vec<Vec<u64>>,
    /// The bytes of each variable. `None` stands for a byte that was never sent, because the variable was shorter
    /// before.
    bytes: Vec<Vec<Option<u8>>>,
}

struct World {
    original: Original,
    replica: Replica,
    observer: Observer,
    model: Model,
    held: Vec<(Version, Vec<Option<Vec<u8>>>)>,
    /// True if no message that the mirror has accepted was changed on its way.
    is_honest: bool,
}

impl World {
    fn new(original: Original, is_honest: bool) -> Option<Self> {
        let page = memfd::create("crossdock-fuzz-pins", 4096).expect("a memfd");
        let copy = page.try_clone().expect("a descriptor");
        let host: Arc<dyn Host> = Arc::new(Small(StandaloneHost::default(), copy));
        let (mut replica, offer) = match Replica::create(Identity::alone("fuzz"), &original, host.clone()) {
            Ok(made) => made,
            Err(error) => {
                let known = matches!(error.status, Status::Invalid | Status::NoSpace | Status::System);
                assert!(known && !error.to_string().is_empty(), "{error}");
                return None;
            }
        };
        replica.placed(SegmentId(7));
        let observer = Observer::attach(AttachParts {
            name: "fuzz".into(),
            segment: SegmentId(7),
            pool: file::reopen_read_only(&offer.pool).expect("a memfd").into(),
            size: offer.size,
            pin_page: page.into(),
            slot: 0,
            publisher: StandaloneHost::MEMBER,
            host,
        });
        let observer = observer.expect("an observer of an honest pool");
        Some(Self { original, replica, observer, model: Model::default(), held: Vec::new(), is_honest })
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0..=4 => {
                let Some((offered, is_whole)) = self.next(input) else { return };
                let Some(heard) = input.sent(&offered) else { return };
                self.take(&heard, is_whole && heard == offered, false);
            }
            5 => {
                let Some((offered, is_whole)) = self.next(input) else { return };
                self.take(&offered, is_whole, true);
            }
            6 if self.held.len() < 8 => {
                if let Ok(version) = self.observer.latest() {
                    let bytes = self.contents(&version);
                    self.held.push((version, bytes));
                }
            }
            _ => {
                let which = usize::from(input.byte());
                if !self.held.is_empty() {
                    self.held.swap_remove(which % self.held.len());
                }
            }
        }
        self.check();
    }

    /// Gives the number of bytes of a variable with this shape; `None` if the shape is too large for this test.
    fn size(&self, variable: usize, shape: &[u64]) -> Option<u64> {
        let element = Type::parse(&self.original.description.variables[variable].ty).ok()?.size_and_align()?.0;
        let bytes = shape.iter().try_fold(element, |bytes, length| bytes.checked_mul(*length))?;
        Some(bytes).filter(|bytes| *bytes <= 1 << 18)
    }

    /// Makes a version as an honest node offers it: with bytes for all chunks that the mirror lacks, and for some other
    /// chunks. Returns the version, and whether it is complete. An incomplete version leaves out one chunk that the
    /// mirror lacks.
    fn next(&self, input: &mut Input<'_>) -> Option<(Offered, bool)> {
        let (lacks, mut is_whole) = (input.byte() % 4 == 3, true);
        let chunk = self.original.description.chunk;
        let (mut shapes, mut pieces, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for (index, variable) in self.original.description.variables.iter().enumerate() {
            let choice = input.byte();
            let mut shape = variable.shape.clone();
            match choice % 4 {
                0 => shape.iter_mut().for_each(|length| *length /= 2),
                1 if choice % 8 == 1 => shape.iter_mut().for_each(|length| *length = 0),
                _ => {}
            }
            let size = self.size(index, &shape)?;
            let has = self.model.bytes.get(index).map_or(0, |bytes| bytes.len() as u64).div_ceil(chunk.into());
            for first in 0..size.div_ceil(chunk.into()) as u32 {
                let is_changed = choice >> 3 >> (first % 5) & 1 == 1;
                if lacks && is_whole && u64::from(first) >= has {
                    is_whole = false;
                } else if is_changed || u64::from(first) >= has {
                    let piece = ChunkRun { variable: index as u32, first, count: 1 };
                    let range = piece.range(chunk, size);
                    bytes.extend((range.start..range.end).map(|n| (n as u8) ^ choice));
                    pieces.push(piece);
                }
            }
            shapes.push(shape);
        }
        let sequence = self.model.sequence + 1 + u64::from(input.byte() % 3);
        let mut attributes = vec![("n".to_owned(), Value::U64(sequence))];
        if sequence % 2 == 0 {
            attributes.push((format!("a{}", sequence % 16), Value::Text("x".into())));
        }
        let head = VersionHead {
            sequence,
            time: sequence.wrapping_mul(7),
            copied: 1,
            method: 1,
            attributes,
            shapes,
            withheld: 0,
        };
        let load = if input.byte() % 16 == 0 { Load::Pull(1, bytes.len() as u64) } else { Load::Here(bytes) };
        Some((Offered { key: ChannelKey { by: 1, number: 2 }, head, pieces, load }, is_whole))
    }

    /// Takes an offered version as a mirror does. If `gives_up` is set, the bytes of the version do not arrive.
    fn take(&mut self, offered: &Offered, is_honest: bool, gives_up: bool) {
        let Offered { head, pieces, load, .. } = offered;
        let before = self.replica.sequence();
        let mut fresh = match self.replica.prepare(head.clone(), pieces) {
            Ok(fresh) => fresh,
            Err(error) => {
                let is_full = error.status == Status::NoSpace;
                assert!(is_full || !(is_honest && self.is_honest), "an honest offer is refused: {error}");
                return assert_eq!(self.replica.sequence(), before, "after {error}");
            }
        };
        let sizes: Option<Vec<u64>> =
            head.shapes.iter().enumerate().map(|(variable, shape)| self.size(variable, shape)).collect();
        let mut parts = fresh.parts();
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let (Load::Here(bytes), Some(sizes), false) = (load, sizes, gives_up) else {
            return self.replica.abandon(fresh);
        };
        if bytes.len() != length {
            return self.replica.abandon(fresh);
        }
        spread(&mut parts, bytes);
        self.replica.publish(fresh);
        assert_eq!(self.replica.sequence(), head.sequence);
        self.is_honest &= is_honest;
        let (model, chunk) = (&mut self.model, self.original.description.chunk);
        let former: Vec<usize> = model.bytes.iter().map(Vec::len).collect();
        model.bytes.resize(sizes.len(), Vec::new());
        for (all, size) in model.bytes.iter_mut().zip(&sizes) {
            all.resize(*size as usize, None);
        }
        let mut rest = &bytes[..];
        for piece in pieces {
            let variable = piece.variable as usize;
            let range = piece.range(chunk, sizes[variable]);
            let (own, behind) = rest.split_at((range.end - range.start) as usize);
            rest = behind;
            let to = &mut model.bytes[variable][range.start as usize..range.end as usize];
            to.iter_mut().zip(own).for_each(|(to, byte)| *to = Some(*byte));
        }
        for (index, all) in model.bytes.iter().enumerate() {
            let known = former.get(index).copied().unwrap_or(0).next_multiple_of(chunk as usize).min(all.len());
            assert!(all[known..].iter().all(Option::is_some), "a chunk is shown that was not sent");
        }
        (model.sequence, model.time) = (head.sequence, head.time);
        model.attributes.clone_from(&head.attributes);
        model.shapes.clone_from(&head.shapes);
    }

    fn contents(&self, version: &Version) -> Vec<Option<Vec<u8>>> {
        let names = self.original.description.variables.iter().map(|variable| variable.name.as_str());
        names.map(|name| version.bytes(name).ok().map(<[u8]>::to_vec)).collect()
    }

    fn check(&mut self) {
        for (version, bytes) in &self.held {
            let now = self.contents(version);
            assert!(!version.is_valid() || now == *bytes, "version {} has changed", version.sequence());
            assert!(version.is_valid() || self.original.description.full == FullPolicy::TakeBack);
        }
        let model = &self.model;
        if model.sequence == 0 {
            return assert!(self.observer.latest().is_err(), "a version that was not offered");
        }
        // The fuzzer holds at most eight versions. An observer may hold fifteen, so `latest` cannot fail here.
        let version = self.observer.latest().expect("the newest version");
        assert_eq!((version.sequence(), version.time()), (model.sequence, model.time));
        let (mut seen, mut expected) = (comparable(version.attributes()), comparable(&model.attributes));
        seen.sort();
        // If an attribute occurs twice, its first value counts.
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        expected.dedup_by(|later, earlier| later.0 == earlier.0);
        assert_eq!(seen, expected);
        for (index, variable) in self.original.description.variables.iter().enumerate() {
            assert_eq!(version.shape(&variable.name).expect("a variable"), model.shapes[index]);
            let bytes = version.bytes(&variable.name).expect("the newest version's bytes");
            let known = &model.bytes[index];
            assert_eq!(bytes.len(), known.len());
            assert!(
                bytes.iter().zip(known).all(|(byte, known)| known.is_none_or(|known| known == *byte)),
                "{variable:?}"
            );
        }
    }
}

/// Converts values to texts that can be compared. A NaN is not equal to itself, so floats become their bits.
fn comparable(values: &[(String, Value)]) -> Vec<(String, String)> {
    let text = |value: &Value| match value {
        Value::F64(x) => format!("F64({:x})", x.to_bits()),
        other => format!("{other:?}"),
    };
    values.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

/// Replaces the daemon in this test: it has one pin page, and gives out memory up to a small quota.
struct Small(StandaloneHost, OwnedFd);

/// The quota for memory, in bytes.
const QUOTA: u64 = 8 << 20;

impl Host for Small {
    fn liveness(&self) -> &dyn LivenessSource {
        &self.0
    }

    fn reserve(&self, total: u64) -> crossdock_core::Result<()> {
        if total <= QUOTA { Ok(()) } else { Err(Error::new(Status::NoSpace, "the quota is used up")) }
    }

    fn pages_word(&self) -> u32 {
        1
    }

    fn pin_page(&self, from: u32) -> crossdock_core::Result<Option<PinPageGiven>> {
        let page = self.1.try_clone().expect("a descriptor");
        Ok((from == 0).then_some(PinPageGiven { page: page.into(), next: 1, left: 0 }))
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn original(&mut self) -> Original {
        let shapes: [&[u64]; 4] = [&[5000], &[3, 1024], &[], &[17]];
        let types = ["u8", "f64", "{i32,f64}", "f32[3]"];
        let count = 1 + self.byte() % 3;
        let variables = (0..count).map(|n| {
            let which = usize::from(self.byte());
            Variable::new(format!("v{n}"), types[which / 4 % 4], shapes[which % 4])
        });
        let variables = variables.collect();
        let more = self.byte();
        let full = [FullPolicy::Withhold, FullPolicy::Fail, FullPolicy::TakeBack][usize::from(more) % 3];
        let description = Description {
            variables,
            attributes: vec![AttributeSpec { name: "n".into(), ty: Kind::U64 }],
            constants: vec![("c".into(), Value::Text("x".into()))],
            chunk: 4096,
            publisher: MemberId(5),
            created: 6,
            full,
        };
        let slots = 30 + u32::from(self.byte() % 64);
        Original { description, keep: u32::from(more / 4 % 4), observers: 2, slots }
    }

    /// Sends a message through a faulty network: encodes `word`, changes up to three bytes, and decodes the result.
    fn sent<W: BodyField + std::fmt::Debug>(&mut self, word: &W) -> Option<W> {
        let mut bytes = word.encode();
        for _ in 0..self.byte() % 4 {
            let at = usize::from(self.byte()) + 256 * usize::from(self.byte());
            let length = bytes.len();
            // Most of a version's bytes are its contents. The changed byte is near the beginning, because the numbers
            // that describe the version are there.
            bytes[at % length.min(400)] = self.byte();
        }
        let decoded = W::decode(&bytes).ok()?;
        assert_eq!(decoded.encode(), bytes, "{decoded:?}");
        Some(decoded)
    }
}

#[cfg(test)]
mod tests {
    use crossdock_os::testing::{Random, run_corpus};

    use super::*;

    #[test]
    fn inputs_of_the_fuzzer_do_no_harm() {
        run_corpus("mirror", fuzz_mirror);
    }

    #[test]
    fn whatever_another_node_offers_observers_see_whole_versions() {
        let mut random = Random(11);
        for _ in 0..300 {
            // An input byte of 0 means "no change", so about half of the inputs begin with an unchanged description.
            let bytes: Vec<u8> = (0..200).map(|_| if random.one_in(2) { 0 } else { random.byte() }).collect();
            fuzz_mirror(&bytes);
        }
    }
}
