//! Values of attributes and constants.

use crossdock_layout::series::MAX_TEXT;
pub use crossdock_layout::series::ValueKind as Kind;

use super::spec::invalid;
use crate::Result;

/// A value of an attribute or a constant.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A signed integer of 64 bits.
    I64(i64),
    /// An unsigned integer of 64 bits.
    U64(u64),
    /// A floating-point number of 64 bits.
    F64(f64),
    /// Text of at most 63 bytes.
    Text(String),
}

impl Value {
    /// The kind of the value: an integer, a floating-point number or a text.
    pub fn kind(&self) -> Kind {
        match self {
            Self::I64(_) => Kind::I64,
            Self::U64(_) => Kind::U64,
            Self::F64(_) => Kind::F64,
            Self::Text(_) => Kind::Text,
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::I64(n) => n.fmt(f),
            Self::U64(n) => n.fmt(f),
            Self::F64(n) => n.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// Checks that a value fits into its field.
pub(super) fn check_value(series: &str, name: &str, value: &Value) -> Result<()> {
    match value {
        Value::Text(text) if text.len() > MAX_TEXT => {
            Err(invalid(series, format!("'{name}' has {} bytes of text; at most {MAX_TEXT} are allowed", text.len())))
        }
        Value::Text(text) if text.contains('\0') => Err(invalid(series, format!("'{name}' holds a zero byte"))),
        _ => Ok(()),
    }
}
