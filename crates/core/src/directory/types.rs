//! Arguments and results of the calls that find, make and remove named objects.

use crossdock_layout::type_name::{MAX_TYPE_NAME, Type};

/// How to open a named object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectMode {
    /// Makes the object; it must not exist yet.
    CreateOnly,
    /// Opens the object; it must exist.
    OpenOnly,
    /// Opens the object, or makes it if it does not exist.
    OpenOrCreate,
}

/// The type of an object: its type name, which is the same in all languages, and its size and alignment in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeRef {
    /// The name has at most 191 bytes; `crossdock_layout::type_name` has its grammar.
    pub name: String,
    /// The size of the object in the region. For a container this is the size of its header.
    pub size: u64,
    /// The alignment in bytes, a power of two up to 4096.
    pub align: u32,
}

impl TypeRef {
    /// Makes a type from its name, if the name determines the size and the alignment. If it does not, the error says
    /// why.
    pub fn new(name: &str) -> Result<Self, String> {
        let parsed = Type::parse(name).map_err(|e| e.to_string())?;
        match parsed.size_and_align() {
            Some((size, align)) => Ok(Self { name: name.to_owned(), size, align }),
            None => Err(format!("the size of '{name}' does not follow from its name")),
        }
    }

    /// Checks the name, and that size and alignment agree with it.
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

/// The object that `claim` found or made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The object's offset in the region.
    pub offset: u64,
    /// True if this call made the object. In this case the object's memory is zeroed, and the caller must commit or
    /// abandon the object.
    pub created: bool,
}

/// Tells apart objects that had the same offset at different times. It consists of the index of the directory entry and
/// the number of objects that had this entry before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incarnation {
    pub(super) entry: u64,
    pub(super) count: u64,
}

/// The object that a handle names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// The object's offset in the region.
    pub offset: u64,
    /// The size in bytes of the named object, or of the whole block if the block has no name.
    pub size: u64,
    /// The type of a named object; `None` for a block without a name.
    pub ty: Option<TypeRef>,
    /// The identity of a named object; `None` for a block without a name.
    pub incarnation: Option<Incarnation>,
}

/// A named object in a region's directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectInfo {
    /// The object's name.
    pub name: String,
    /// The object's offset in the region.
    pub offset: u64,
    /// The object's type.
    pub ty: TypeRef,
}

/// The memory that `remove` freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Removed {
    /// The number of freed blocks: the object's own block and the blocks of its containers.
    pub blocks: u64,
    /// The number of bytes in the freed blocks.
    pub bytes: u64,
}
