//! The messages between the relays of two daemons about ports: the bodies of the requests to the services 100 to 104,
//! and of their answers.

use crossdock_link::body::{Read, Reader, put, put_bytes, wrong};

use crate::object::{Object, Shape};

/// Asks the daemon of a port's node to open an end of the port. The answer is [`Opened`].
pub const OPEN: u32 = 100;
/// Brings messages from a source to the sink of the same channel. The answer is empty.
pub const DELIVER: u32 = 101;
/// Reports to a source that messages were taken or released. The answer is empty.
pub const RELEASED: u32 = 102;
/// Reports that a side of a channel has ended. The answer is empty.
pub const ENDED: u32 = 103;
/// Asks which keys of a list of channels the other daemon does not know. The answer is [`ChannelKeys`].
pub const KNOWN: u32 = 104;

/// The key of a channel between two relays. The channel joins an end of a port with a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelKey {
    /// The token of the daemon that opened the channel: a random number, new at each start of the daemon's broker.
    pub by: u64,
    /// The channel's number at the daemon that opened the channel.
    pub number: u64,
}

/// How one side of a channel, or a series, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// All members of the side have closed their ends; none of them died.
    Closed,
    /// A member of the side died.
    Died,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    pub key: ChannelKey,
    pub workflow: String,
    pub port: String,
    pub task: String,
    pub rank: u32,
    /// Whether the task sends messages. If not, it receives them.
    pub sends: bool,
    pub wait_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub pattern: u32,
    pub capacity: u32,
    /// The name of a task at the other end of the port; empty if there is none yet.
    pub peer: String,
}

/// How the object of a message goes to the other node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageObject {
    None,
    /// The object is part of this message.
    Here(Object),
    /// The other side pulls the object's bytes: `length` bytes, which are offered under the number `ticket`.
    Pull {
        object: Object,
        ticket: u64,
        length: u64,
    },
    /// The object cannot be copied by value, so the message goes without its object.
    Left,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayedMessage {
    /// The position of the message in the ring that it was received from.
    pub position: u64,
    pub tag: u64,
    pub inline: Vec<u8>,
    pub cargo: MessageObject,
    /// The region that holds the object on the sender's node: its id, capacity and name.
    pub region: (u64, u64, String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    pub key: ChannelKey,
    /// The number of the first of these messages, counted from the channel's beginning.
    pub first: u64,
    pub relayed_messages: Vec<RelayedMessage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    pub key: ChannelKey,
    pub taken: Vec<u64>,
    pub released: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub key: ChannelKey,
    pub how: EndReason,
    /// If the side that reports its end is the source: how many messages it has sent in total. Otherwise 0.
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelKeys(pub Vec<ChannelKey>);

/// A value that can be written into the body of a request or answer, and read from it.
pub trait BodyField: Sized {
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

impl BodyField for u64 {
    fn write(&self, to: &mut Vec<u8>) {
        put(to, *self);
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        from.number()
    }
}

impl BodyField for u32 {
    fn write(&self, to: &mut Vec<u8>) {
        put(to, (*self).into());
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        from.small()
    }
}

impl BodyField for bool {
    fn write(&self, to: &mut Vec<u8>) {
        put(to, (*self).into());
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        from.flag()
    }
}

impl BodyField for String {
    fn write(&self, to: &mut Vec<u8>) {
        put_bytes(to, self.as_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        from.text()
    }
}

impl<T: BodyField> BodyField for Vec<T> {
    fn write(&self, to: &mut Vec<u8>) {
        put(to, self.len() as u64);
        self.iter().for_each(|one| one.write(to));
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        from.list(T::read)
    }
}

impl<A: BodyField, B: BodyField> BodyField for (A, B) {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
        self.1.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        Ok((A::read(from)?, B::read(from)?))
    }
}

/// Implements [`BodyField`] for structs. The fields are encoded in the order in which the call of the macro names them.
macro_rules! spell {
    ($($name:ident { $($field:ident),+ })+) => {$(
        impl $crate::messages::BodyField for $name {
            fn write(&self, to: &mut Vec<u8>) {
                $($crate::messages::BodyField::write(&self.$field, to);)+
            }

            fn read(from: &mut crossdock_link::body::Reader<'_>) -> crossdock_link::body::Read<Self> {
                Ok(Self { $($field: $crate::messages::BodyField::read(from)?),+ })
            }
        }
    )+};
}
pub(crate) use spell;

spell! {
    ChannelKey { by, number }
    Open { key, workflow, port, task, rank, sends, wait_ms }
    Opened { pattern, capacity, peer }
    Deliver { key, first, relayed_messages }
    Released { key, taken, released }
    Ended { key, how, count }
}

impl BodyField for ChannelKeys {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        Ok(Self(BodyField::read(from)?))
    }
}

impl BodyField for Object {
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
        // If the type of the object has no name, an empty text is written.
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

impl BodyField for RelayedMessage {
    fn write(&self, to: &mut Vec<u8>) {
        put(to, self.position);
        put(to, self.tag);
        put_bytes(to, &self.inline);
        put(to, self.region.0);
        put(to, self.region.1);
        put_bytes(to, self.region.2.as_bytes());
        match &self.cargo {
            MessageObject::None => put(to, 0),
            MessageObject::Here(object) => {
                put(to, 1);
                object.write(to);
            }
            MessageObject::Pull { object, ticket, length } => {
                put(to, 2);
                object.write(to);
                put(to, *ticket);
                put(to, *length);
            }
            MessageObject::Left => put(to, 3),
        }
    }

    fn read(from: &mut Reader<'_>) -> Read<Self> {
        let (position, tag, inline) = (from.number()?, from.number()?, from.bytes()?);
        let region = (from.number()?, from.number()?, from.text()?);
        let cargo = match from.number()? {
            0 => MessageObject::None,
            1 => MessageObject::Here(BodyField::read(from)?),
            2 => MessageObject::Pull { object: BodyField::read(from)?, ticket: from.number()?, length: from.number()? },
            3 => MessageObject::Left,
            _ => return Err(wrong()),
        };
        Ok(Self { position, tag, inline, cargo, region })
    }
}

impl BodyField for EndReason {
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
