//! What a publisher declares about its series, and the checks of this declaration.

use crossdock_layout::series::{MAX_ATTRIBUTES, MAX_CONSTANTS, MAX_VARIABLES};
use crossdock_layout::text::clipped;
use crossdock_layout::type_name::Type;
use crossdock_layout::wire::SegmentKind;
use crossdock_layout::{MemberId, Status};

use super::value::{Kind, Value, check_value};
use crate::containers::Order;
use crate::{Error, Result};

/// A variable of a series: an array in the publisher's memory, which the program changes in place.
#[derive(Clone, PartialEq, Debug)]
pub struct Variable {
    /// The variable's name, unique in the series.
    pub name: String,
    /// The type of the elements, written as a type name of crossdock: `f64`, `{f64,i32}`, `f32[3]`.
    pub ty: String,
    /// The present length of each dimension, at most 8 dimensions; empty for a single value.
    pub shape: Vec<u64>,
    /// The largest length that each dimension can have. If the list is empty, the variable's shape never changes.
    pub max_shape: Vec<u64>,
    /// The order of the elements in memory: which index varies fastest. crossdock itself does not use the order, but
    /// tells it to observers.
    pub order: Order,
    /// Facts about the variable that never change, for observers: spacing, units, origin.
    pub constants: Vec<(String, Value)>,
}

impl Variable {
    /// Makes a variable of fixed shape in C order, without constants.
    pub fn new(name: impl Into<String>, ty: impl Into<String>, shape: &[u64]) -> Self {
        Self {
            name: name.into(),
            ty: ty.into(),
            shape: shape.to_vec(),
            max_shape: Vec::new(),
            order: Order::C,
            constants: Vec::new(),
        }
    }

    /// Converts a shape from the variable's order of elements to C order, or from C order to the variable's order. Both
    /// directions are the same calculation.
    #[must_use]
    pub fn c_shape(&self, shape: &[u64]) -> Vec<u64> {
        c_shape(self.order, shape)
    }
}

/// Reverses the extents if the order is Fortran's. The reversed extents describe the same elements of memory in C
/// order.
pub(super) fn c_shape(order: Order, shape: &[u64]) -> Vec<u64> {
    match order {
        Order::C => shape.to_vec(),
        Order::Fortran => shape.iter().rev().copied().collect(),
    }
}

/// An attribute that each version can carry. It is declared in the spec, or by the first publish that sets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttributeSpec {
    /// The attribute's name, which is unique among the attributes.
    pub name: String,
    /// The kind of the attribute's values.
    pub ty: Kind,
}

pub use crossdock_layout::series::{Detect, FullPolicy, Method, Pages};

/// The names of a series and of its workflow, and the member that publishes the series.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The series' name, for error messages and `/proc/PID/maps`.
    pub name: String,
    /// The workflow that the series belongs to, for `/proc/PID/maps`.
    pub workflow: String,
    /// The member that publishes the series.
    pub member: MemberId,
}

impl Identity {
    /// Makes the identity of a series with this name, for a program that runs without a daemon.
    #[must_use]
    pub fn alone(name: &str) -> Self {
        Self { name: name.into(), workflow: "default".into(), member: crate::host::StandaloneHost::MEMBER }
    }

    /// Gives the name that one of the series' segments has in `/proc/PID/maps`: `crossdock:WORKFLOW:KIND:NAME`, as for
    /// all segments. The name is cut to 240 bytes, because the kernel allows at most 249.
    pub(super) fn label(&self, kind: &str) -> String {
        let mut label = format!("crossdock:{}:{kind}:{}", self.workflow, self.name);
        label.truncate(clipped(&label, 240).len());
        label
    }
}

/// Everything that a publisher declares about its series.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// The variables (arrays) of the series, at least one.
    pub variables: Vec<Variable>,
    /// The attributes that versions will carry. A publish may set an attribute that is not in this list; it then
    /// declares the attribute.
    pub attributes: Vec<AttributeSpec>,
    /// The constants that belong to the whole series.
    pub constants: Vec<(String, Value)>,
    /// The largest size of the pool in bytes. If it is `None`, only the quota limits the pool, so the pool grows with
    /// `keep` and with observers that lag behind. Memory is taken only as it is used. If a capacity is given, it also
    /// limits how many old versions the pool can hold, whatever `keep` is.
    pub capacity: Option<u64>,
    /// The size of a chunk in bytes: a power of two from 4 KiB to 2 MiB. If it is `None`, the library chooses it from
    /// the size of the data.
    pub chunk: Option<u32>,
    /// The number of versions besides the newest that are kept although no observer holds them. If the pool is full,
    /// the publisher drops them before it withholds a new version.
    pub keep: u32,
    /// The largest number of observers at the same time, at most 1024.
    pub max_observers: u32,
    /// What a publish does if the pool is full and observers hold all old versions.
    pub full: FullPolicy,
    /// Says whether a publish may put other pages at the variables' addresses.
    pub pages: Pages,
    /// The way in which the publisher finds what changed.
    pub detect: Detect,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            variables: Vec::new(),
            attributes: Vec::new(),
            constants: Vec::new(),
            capacity: None,
            chunk: None,
            keep: 0,
            max_observers: 64,
            full: FullPolicy::Withhold,
            pages: Pages::Stay,
            detect: Detect::Auto,
        }
    }
}

impl Spec {
    /// Makes the spec of a series with these variables, with defaults for everything else.
    pub fn of(variables: Vec<Variable>) -> Self {
        Self { variables, ..Self::default() }
    }

    /// Checks all of the spec that can be checked without memory. `name` is the series' name.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        let bad = |what: String| Err(invalid(name, what));
        if self.variables.is_empty() || self.variables.len() > MAX_VARIABLES as usize {
            return bad(format!("{} variables; 1 to {MAX_VARIABLES} are allowed", self.variables.len()));
        }
        if self.attributes.len() > MAX_ATTRIBUTES as usize {
            return bad(format!("{} attributes; at most {MAX_ATTRIBUTES} are allowed", self.attributes.len()));
        }
        let constants = self.constants.len() + self.variables.iter().map(|v| v.constants.len()).sum::<usize>();
        if constants > MAX_CONSTANTS as usize {
            return bad(format!("{constants} constants; at most {MAX_CONSTANTS} are allowed"));
        }
        if self.detect == Detect::PrivateCopies && self.pages == Pages::Stay {
            return bad(
                "private copies put other pages at the variables' addresses, which registered memory does not \
                 survive; say `pages = may_move` if nothing is registered"
                    .into(),
            );
        }
        unique(name, "variable", self.variables.iter().map(|v| v.name.as_str()))?;
        unique(name, "attribute", self.attributes.iter().map(|a| a.name.as_str()))?;
        unique(name, "constant", self.constants.iter().map(|c| c.0.as_str()))?;
        self.constants.iter().try_for_each(|(of, value)| check_value(name, of, value))?;
        for variable in &self.variables {
            unique(name, "constant", variable.constants.iter().map(|c| c.0.as_str()))?;
            variable.constants.iter().try_for_each(|(of, value)| check_value(name, of, value))?;
            Extents::of(name, variable)?;
        }
        Ok(())
    }
}

/// The sizes of a variable in bytes, which are computed when the series is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extents {
    /// The number of dimensions.
    pub rank: u32,
    /// The size of an element in bytes.
    pub element: u64,
    /// The number of bytes of all elements at the present shape.
    pub bytes: u64,
    /// The number of bytes of all elements at the largest shape.
    pub most: u64,
}

impl Extents {
    pub fn of(series: &str, variable: &Variable) -> Result<Self> {
        let bad = |what: String| invalid(series, format!("variable '{}': {what}", variable.name));
        let ty = Type::parse(&variable.ty).map_err(|e| bad(e.to_string()))?;
        let Some((element, _)) = ty.size_and_align().filter(|_| is_plain(&ty)) else {
            return Err(bad(format!(
                "elements of type {} are no plain data; use numbers and structs of them",
                variable.ty
            )));
        };
        let most = if variable.max_shape.is_empty() { &variable.shape } else { &variable.max_shape };
        if variable.shape.len() > 8 || most.len() != variable.shape.len() {
            let (rank, largest) = (variable.shape.len(), most.len());
            return Err(bad(format!(
                "{rank} dimensions with a largest shape of {largest}; at most 8, and as many of each"
            )));
        }
        if variable.shape.iter().zip(most).any(|(now, most)| now > most) {
            return Err(bad(format!("shape {:?} is beyond the largest, {most:?}", variable.shape)));
        }
        let (Some(bytes), Some(most_bytes)) = (bytes(element, &variable.shape), bytes(element, most)) else {
            return Err(bad(format!("shape {most:?} of {} takes more bytes than there are addresses", variable.ty)));
        };
        Ok(Self { rank: most.len() as u32, element, bytes, most: most_bytes })
    }
}

fn is_plain(ty: &Type) -> bool {
    match ty {
        Type::Scalar(..) => true,
        Type::Array(of, _) => is_plain(of),
        Type::Struct(fields) => fields.iter().all(is_plain),
        _ => false,
    }
}

/// The number of bytes of an array; `None` if it does not fit into an address space.
pub(super) fn bytes(element: u64, shape: &[u64]) -> Option<u64> {
    let bytes = shape.iter().try_fold(element, |bytes, length| bytes.checked_mul(*length))?;
    (bytes < 1 << 46).then_some(bytes)
}

fn unique<'a>(series: &str, what: &'static str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        let bad = |why| Error::bad_name(what, name, why).about(SegmentKind::Series, series);
        crossdock_layout::name::check(name).map_err(bad)?;
        if !seen.insert(name) {
            return Err(invalid(series, format!("two {what}s are called '{name}'")));
        }
    }
    Ok(())
}

#[cold]
pub(super) fn invalid(series: &str, what: impl std::fmt::Display) -> Error {
    Error::new(Status::Invalid, what.to_string()).about(SegmentKind::Series, series)
}

/// Makes the error for a series that has no variable of this name.
#[cold]
pub(super) fn no_variable(name: &str) -> Error {
    Error::lacks("variable", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_published_is_refused_with_its_name() {
        let u = || Variable::new("u", "f64", &[10, 10]);
        for (wrong, word) in [
            (Spec::of(vec![]), "0 variables"),
            (Spec::of(vec![u(), u()]), "'u'"),
            (Spec::of(vec![Variable::new("a b", "f64", &[1])]), "' '"),
            (Spec::of(vec![Variable::new("u", "vector<f64>", &[1])]), "no plain data"),
            (Spec::of(vec![Variable::new("u", "{f64,string}", &[1])]), "no plain data"),
            (Spec::of(vec![Variable::new("u", "f65", &[1])]), "not a type name"),
            (Spec::of(vec![Variable::new("u", "f64", &[1; 9])]), "dimensions"),
            (Spec::of(vec![Variable::new("u", "f64", &[1 << 40, 1 << 40])]), "more bytes"),
            (Spec::of(vec![Variable { max_shape: vec![9, 10], ..u() }]), "beyond"),
            (Spec::of(vec![Variable { max_shape: vec![10], ..u() }]), "as many of each"),
            (
                Spec::of(vec![Variable { constants: vec![("c".into(), Value::Text("x".repeat(64)))], ..u() }]),
                "64 bytes",
            ),
        ] {
            let error = wrong.check("field").unwrap_err();
            assert_eq!(error.status, Status::Invalid);
            assert!(error.to_string().contains(word), "{error}");
        }
        Spec::of(vec![u(), Variable::new("t", "f64", &[])]).check("field").unwrap();
    }
}
