//! What the relays of two daemons say to each other: the bodies of questions to the services 100 to 104.

use crossdock_client::Status;
use crossdock_link::Refusal;

use crate::object::{Object, Shape};

/// Opens an end of a port of the asked node. Answered by [`Opened`].
pub const OPEN: u32 = 100;
/// Brings messages. Answered by nothing.
pub const DELIVER: u32 = 101;
/// Messages were taken or released. Answered by nothing.
pub const RELEASED: u32 = 102;
/// A side has ended. Answered by nothing.
pub const ENDED: u32 = 103;
/// Which of these channels are unknown? Answered by [`Keys`].
pub const KNOWN: u32 = 104;

/// A channel between two relays: one end of a port, and its mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The token of the daemon that opened it.
    pub by: u64,
    /// Its number there.
    pub number: u64,
}

/// How a side ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// All that was there left in order.
    Closed,
    /// It died.
    Died,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    pub key: Key,
    pub workflow: String,
    pub port: String,
    pub task: String,
    pub rank: u32,
    /// The task sends; else it receives.
    pub sends: bool,
    pub wait_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub pattern: u32,
    pub capacity: u32,
    /// A task at the other end of the port; empty if there is none yet.
    pub peer: String,
}

/// A message's object on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cargo {
    None,
    /// It comes with the message.
    Here(Object),
    /// Its bytes are to be pulled: the ticket, and how many.
    Pull {
        object: Object,
        ticket: u64,
        length: u64,
    },
    /// It does not move by value.
    Left,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Where the message is in the ring that it comes from.
    pub position: u64,
    pub tag: u64,
    pub inline: Vec<u8>,
    pub cargo: Cargo,
    /// Of the region that the object comes from: id, capacity and name.
    pub region: (u64, u64, String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    pub key: Key,
    /// The number of the first of these messages in this channel.
    pub first: u64,
    pub parcels: Vec<Parcel>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    pub key: Key,
    pub taken: Vec<u64>,
    pub released: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub key: Key,
    pub how: How,
    /// From the side that sends: how many messages there were in all.
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys(pub Vec<Key>);

/// Reads a body from front to back; what does not fit is refused as a whole.
pub struct Reader<'a>(&'a [u8]);

pub type Read<T> = Result<T, Refusal>;

pub fn wrong() -> Refusal {
    Refusal::new(Status::Corrupt, "the body of the question is none of its service; run one version on all nodes")
}

impl<'a> Reader<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(wrong)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn number(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| wrong())?))
    }

    pub fn small(&mut self) -> Read<u32> {
        u32::try_from(self.number()?).map_err(|_| wrong())
    }

    pub fn flag(&mut self) -> Read<bool> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(wrong()),
        }
    }

    pub fn bytes(&mut self) -> Read<Vec<u8>> {
        let length = usize::try_from(self.number()?).map_err(|_| wrong())?;
        Ok(self.take(length)?.to_vec())
    }

    pub fn text(&mut self) -> Read<String> {
        String::from_utf8(self.bytes()?).map_err(|_| wrong())
    }

    pub fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = self.number()?;
        // Each takes at least eight bytes.
        if count > self.0.len() as u64 / 8 {
            return Err(wrong());
        }
        (0..count).map(|_| one(self)).collect()
    }

    pub fn end<T>(self, value: T) -> Read<T> {
        if self.0.is_empty() { Ok(value) } else { Err(wrong()) }
    }
}

/// Something that is said.
pub trait Word: Sized {
    fn write(&self, to: &mut Vec<u8>);
    fn read(from: &mut Reader<'_>) -> Read<Self>;

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        self.write(&mut body);
        body
    }

    fn decode(body: &[u8]) -> Read<Self> {
        let mut reader = Reader::new(body);
        let value = Self::read(&mut reader)?;
        reader.end(value)
    }
}

pub fn put(to: &mut Vec<u8>, number: u64) {
    to.extend(number.to_le_bytes());
}

pub fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put(to, bytes.len() as u64);
    to.extend(bytes);
}

impl Word for Key {
    fn write(&self, to: &mut Vec<u8>) {
        put(to, self.by);
        put(to, self.number);
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        Ok(Self { by: from.number()?, number: from.number()? })
    }
}

impl Word for Keys {
    fn write(&self, to: &mut Vec<u8>) {
        put(to, self.0.len() as u64);
        self.0.iter().for_each(|key| key.write(to));
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        Ok(Self(from.list(Key::read)?))
    }
}

impl Word for Open {
    fn write(&self, to: &mut Vec<u8>) {
        self.key.write(to);
        put_bytes(to, self.workflow.as_bytes());
        put_bytes(to, self.port.as_bytes());
        put_bytes(to, self.task.as_bytes());
        put(to, self.rank.into());
        put(to, self.sends.into());
        put(to, self.wait_ms);
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        Ok(Self {
            key: Key::read(from)?,
            workflow: from.text()?,
            port: from.text()?,
            task: from.text()?,
            rank: from.small()?,
            sends: from.flag()?,
            wait_ms: from.number()?,
        })
    }
}

impl Word for Opened {
    fn write(&self, to: &mut Vec<u8>) {
        put(to, self.pattern.into());
        put(to, self.capacity.into());
        put_bytes(to, self.peer.as_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        Ok(Self { pattern: from.small()?, capacity: from.small()?, peer: from.text()? })
    }
}

impl Word for Object {
    fn write(&self, to: &mut Vec<u8>) {
        match &self.shape {
            Shape::Plain => put(to, 0),
            Shape::Vector(count) => {
                put(to, 1);
                put(to, *count);
            }
            Shape::Ndarray(words) => {
                put(to, 2);
                words.iter().for_each(|word| put(to, *word));
            }
        }
        // No type is an empty text.
        put_bytes(to, self.ty.as_deref().unwrap_or("").as_bytes());
        put_bytes(to, &self.bytes);
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        let shape = match from.number()? {
            0 => Shape::Plain,
            1 => Shape::Vector(from.number()?),
            2 => {
                let mut words = [0; 9];
                for word in &mut words {
                    *word = from.number()?;
                }
                Shape::Ndarray(words)
            }
            _ => return Err(wrong()),
        };
        Ok(Self { shape, ty: Some(from.text()?).filter(|ty| !ty.is_empty()), bytes: from.bytes()? })
    }
}

impl Word for Parcel {
    fn write(&self, to: &mut Vec<u8>) {
        put(to, self.position);
        put(to, self.tag);
        put_bytes(to, &self.inline);
        put(to, self.region.0);
        put(to, self.region.1);
        put_bytes(to, self.region.2.as_bytes());
        match &self.cargo {
            Cargo::None => put(to, 0),
            Cargo::Here(object) => {
                put(to, 1);
                object.write(to);
            }
            Cargo::Pull { object, ticket, length } => {
                put(to, 2);
                object.write(to);
                put(to, *ticket);
                put(to, *length);
            }
            Cargo::Left => put(to, 3),
        }
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        let (position, tag, inline) = (from.number()?, from.number()?, from.bytes()?);
        let region = (from.number()?, from.number()?, from.text()?);
        let cargo = match from.number()? {
            0 => Cargo::None,
            1 => Cargo::Here(Object::read_word(from)?),
            2 => Cargo::Pull { object: Object::read_word(from)?, ticket: from.number()?, length: from.number()? },
            3 => Cargo::Left,
            _ => return Err(wrong()),
        };
        Ok(Self { position, tag, inline, cargo, region })
    }
}

impl Object {
    fn read_word(from: &mut Reader<'_>) -> Read<Self> {
        <Self as Word>::read(from)
    }
}

impl Word for Deliver {
    fn write(&self, to: &mut Vec<u8>) {
        self.key.write(to);
        put(to, self.first);
        put(to, self.parcels.len() as u64);
        self.parcels.iter().for_each(|parcel| parcel.write(to));
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        Ok(Self { key: Key::read(from)?, first: from.number()?, parcels: from.list(Parcel::read)? })
    }
}

impl Word for Released {
    fn write(&self, to: &mut Vec<u8>) {
        self.key.write(to);
        for list in [&self.taken, &self.released] {
            put(to, list.len() as u64);
            list.iter().for_each(|position| put(to, *position));
        }
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        Ok(Self { key: Key::read(from)?, taken: from.list(Reader::number)?, released: from.list(Reader::number)? })
    }
}

impl Word for How {
    fn write(&self, to: &mut Vec<u8>) {
        put(to, if *self == Self::Closed { 1 } else { 2 });
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        match from.number()? {
            1 => Ok(Self::Closed),
            2 => Ok(Self::Died),
            _ => Err(wrong()),
        }
    }
}

impl Word for Ended {
    fn write(&self, to: &mut Vec<u8>) {
        self.key.write(to);
        self.how.write(to);
        put(to, self.count);
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        Ok(Self { key: Key::read(from)?, how: How::read(from)?, count: from.number()? })
    }
}
