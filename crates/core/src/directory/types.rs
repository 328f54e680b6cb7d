//! Arguments and results of the directory's calls.

use crossdock_layout::type_name::{MAX_TYPE_NAME, Type};

/// How to open a named object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectMode {
    /// The object must not exist yet.
    CreateOnly,
    /// Must be there.
    OpenOnly,
    /// Whichever.
    OpenOrCreate,
}

/// The type of an object: its name in the common grammar, and its size and alignment in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeRef {
    /// The name has at most 191 bytes; `crossdock_layout::type_name` has its grammar.
    pub name: String,
    /// The size of the object in the region. For a container this is the size of its header.
    pub size: u64,
    /// A power of two, at most 4096.
    pub align: u32,
}

impl TypeRef {
    /// A type whose size and alignment follow from its name. If they do not, the error says why.
    pub fn new(name: &str) -> Result<Self, String> {
        let parsed = Type::parse(name).map_err(|e| e.to_string())?;
        match parsed.size_and_align() {
            Some((size, align)) => Ok(Self { name: name.to_owned(), size, align }),
            None => Err(format!("the size of '{name}' does not follow from its name")),
        }
    }

    /// Is the name valid, and do size and alignment agree with it?
    pub(crate) fn check(&self) -> Result<Type, String> {
        if self.name.len() > MAX_TYPE_NAME {
            return Err(format!("a type name of {} bytes: at most {MAX_TYPE_NAME}", self.name.len()));
        }
        let parsed = Type::parse(&self.name).map_err(|e| e.to_string())?;
        if self.size == 0 || !self.align.is_power_of_two() || self.align > 4096 {
            return Err(format!("{self}: at least 1 byte, aligned to a power of two up to 4096"));
        }
        match parsed.size_and_align() {
            Some((size, align)) if (size, align) != (self.size, self.align) => {
                Err(format!("{self}: by its name it has {size} bytes aligned to {align}"))
            }
            _ => Ok(parsed),
        }
    }
}

impl std::fmt::Display for TypeRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes, aligned to {})", self.name, self.size, self.align)
    }
}

/// What `claim` found or made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The object's offset in the region.
    pub offset: u64,
    /// The object was made just now: it is zeroed, and the caller must commit or abandon it.
    pub created: bool,
}

/// Identifies one object among those that lie at the same offset one after another: the directory's entry, and the
/// number of objects that had this entry before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incarnation {
    pub(super) entry: u64,
    pub(super) count: u64,
}

/// What a handle names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// Where it lies.
    pub offset: u64,
    /// Bytes of the named object, or of the whole block if the block has no name.
    pub size: u64,
    /// The type of a named object; `None` for a block without a name.
    pub ty: Option<TypeRef>,
    /// The identity of a named object; `None` for a block without a name.
    pub incarnation: Option<Incarnation>,
}

/// A named object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectInfo {
    /// Its name.
    pub name: String,
    /// Where it lies.
    pub offset: u64,
    /// What it is.
    pub ty: TypeRef,
}

/// What `remove` freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Removed {
    /// Number of freed blocks: the object's own block and those of its containers.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}
