//! What the region's calls take and give.

/// How to open a region by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Must not be there.
    CreateOnly,
    /// Must be there.
    OpenOnly,
    /// Whichever.
    OpenOrCreate,
    /// A new one, in place of an old one if there is one. Who has the old one open keeps it.
    Recreate,
}

/// How to open a named object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectMode {
    /// Must not be there.
    CreateOnly,
    /// Must be there.
    OpenOnly,
    /// Whichever.
    OpenOrCreate,
}

/// The type of an object: its name in the common grammar, and its size and alignment in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeRef {
    /// At most 191 bytes; `crossdock_layout::type_name` has the grammar.
    pub name: String,
    /// Of the object in the region: for containers, of the header.
    pub size: u64,
    /// A power of two, at most 4096.
    pub align: u32,
}

/// Order of an ndarray's elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Last index fastest.
    C,
    /// First index fastest.
    Fortran,
}

/// What `claim` found or made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Where the object lies.
    pub offset: u64,
    /// Made just now: zeroed, and to be committed or abandoned.
    pub created: bool,
}

/// What a handle names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// Where it lies.
    pub offset: u64,
    /// Bytes of the named object, or of the block if it has no name.
    pub size: u64,
    /// Its type, if it has a name.
    pub ty: Option<TypeRef>,
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
    /// Blocks, the object's own and those of its containers.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a region holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Bytes that the region can grow to, header included.
    pub capacity: u64,
    /// Bytes of memory taken so far.
    pub reserved: u64,
    /// Bytes of blocks in use (sizes as rounded up by the heap).
    pub used: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Named objects.
    pub objects: u64,
    /// Heap slots that living members hold.
    pub slots: u64,
    /// Bytes of the largest block that fits without further growth.
    pub largest_free: u64,
}

/// What `heal` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HealReport {
    /// Dead members' heap slots that were put in order.
    pub slots: u64,
    /// Half-done operations that were finished or taken back.
    pub operations: u64,
    /// Objects whose constructor or remover had died.
    pub objects: u64,
}
