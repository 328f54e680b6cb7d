//! The contents of a checkpoint file: one version of each of its series, and where the bytes of the variables lie in
//! memory.

use crossdock_layout::type_name::Type;

/// An attribute's or a constant's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A signed number.
    I64(i64),
    /// An unsigned number.
    U64(u64),
    /// A floating-point number.
    F64(f64),
    /// A text.
    Text(String),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::I64(n) => write!(f, "{n}"),
            Self::U64(n) => write!(f, "{n}"),
            Self::F64(x) => write!(f, "{x}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Self::I64(n)
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Self {
        Self::U64(n)
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Self {
        Self::F64(x)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A variable of one version.
#[derive(Clone, Debug)]
pub struct Variable<'a> {
    /// The name of the variable, such as `u`.
    pub name: String,
    /// The crossdock name of the elements' type, such as `f64`, `f32[3]` or `{i32,f64}`.
    pub type_name: String,
    /// The extents of the dimensions in C order.
    pub shape: Vec<u64>,
    /// Constants that hold for all versions. They become attributes of the dataset.
    pub constants: Vec<(String, Value)>,
    /// The bytes of the elements.
    pub bytes: &'a [u8],
}

/// One version of one series.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// The name of the series, such as `field/3`.
    pub name: String,
    /// The version's number.
    pub sequence: u64,
    /// The time of publishing, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The publisher's attributes of this version: step, time, ….
    pub attributes: Vec<(String, Value)>,
    /// The variables of the version.
    pub variables: Vec<Variable<'a>>,
}

/// The contents of a whole file.
#[derive(Clone, Debug, Default)]
pub struct Contents<'a> {
    /// The attributes of the whole file, which become attributes of the root group.
    pub attributes: Vec<(String, Value)>,
    /// The series in the file: one, or one for each rank.
    pub series: Vec<Series<'a>>,
}

/// Gives the size of one element if `bytes` is the size of an array of this type and shape, and `None` if it is not.
/// The name of an opaque type does not tell the size of an element, so this size is computed from `bytes`. For elements
/// of zero bytes the result is `None`, because HDF5 has no such elements.
pub(crate) fn element_size(ty: &Type, shape: &[u64], bytes: u64) -> Option<u64> {
    let count = shape.iter().try_fold(1u64, |n, extent| n.checked_mul(*extent))?;
    let size = match (ty, ty.size_and_align()) {
        (_, Some((size, _))) => size,
        (Type::Opaque(_), None) => bytes.checked_div(count).unwrap_or(1),
        (_, None) => return None,
    };
    (count.checked_mul(size) == Some(bytes) && size > 0 && u32::try_from(size).is_ok()).then_some(size)
}
