//! Objects of a region, of any kind: where they are, what type they have, and how they are found by a handle or a name.

use std::sync::Arc;

use crossdock_client::{Handle as RawHandle, Incarnation, NdarrayData, Order, Region, Result, Status, TypeRef};
use crossdock_layout::type_name::Type;
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;

use crate::containers::{Ndarray, Object, Simple, Vector};
use crate::dtypes::{from_type, parse, to_dtype, to_type};
use crate::errors::{OrRaise, error};
use crate::handles::Handle;
use crate::messages::Credit;
use crate::texts::Text;
use crate::views::{ArrayBase, ArrayLayout, OpenRegion, array};

/// The kind of an object, and the dtype of its elements.
pub enum Kind {
    /// A vector, with the dtype of its elements.
    Vector(Py<PyArrayDescr>),
    /// An ndarray, with the dtype of its elements.
    Ndarray(Py<PyArrayDescr>),
    /// A string, with the dtype of its bytes.
    String(Py<PyArrayDescr>),
    /// An object of fixed size: a number, a fixed array, a struct.
    Simple(Py<PyArrayDescr>),
}

impl Kind {
    /// Finds the kind for the name of a type. `given` is the dtype that the caller gave for the elements; this dtype
    /// may contain names for the fields of a struct.
    pub fn of(py: Python<'_>, name: &str, given: Option<&Bound<'_, PyArrayDescr>>) -> PyResult<Self> {
        let dtype = |of: &Type| match given {
            Some(given) => Ok(given.clone().unbind()),
            None => from_type(py, of, name).map(Bound::unbind),
        };
        Ok(match parse(py, name)? {
            Type::Vector(of) => Self::Vector(dtype(&of)?),
            Type::Ndarray(of) => Self::Ndarray(dtype(&of)?),
            Type::String => Self::String(from_type(py, &Type::Scalar("u8", 1), name)?.unbind()),
            plain => Self::Simple(dtype(&plain)?),
        })
    }

    /// The dtype of an element.
    pub fn dtype<'py>(&self, py: Python<'py>) -> Bound<'py, PyArrayDescr> {
        let (Self::Vector(dtype) | Self::Ndarray(dtype) | Self::String(dtype) | Self::Simple(dtype)) = self;
        dtype.bind(py).clone()
    }

    /// The name of the kind, for error messages.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Vector(_) => "vector",
            Self::Ndarray(_) => "ndarray",
            Self::String(_) => "string",
            Self::Simple(_) => "simple",
        }
    }
}

/// Where an object lies, and of which kind it is.
pub struct ObjectRef {
    /// The region that the object is in.
    pub open_region: Arc<OpenRegion>,
    /// The offset of the object's header in the region.
    pub offset: u64,
    /// The name of the object; `None` if the object was opened by a handle and not by its name.
    pub name: Option<String>,
    /// The type of the object.
    pub ty: TypeRef,
    /// The object's kind in Python.
    pub kind: Kind,
    /// The credit of the message through which the object was loaded, if there was one. The credit stays with this
    /// consumer as long as the object is used.
    credit: Option<Arc<Credit>>,
    /// The size of one element in bytes.
    element: u64,
    /// The incarnation of the object: which of the successive objects of this name it is. With the incarnation, a later
    /// use finds the object without a search in the region's directory. `None` for a block without a name.
    incarnation: Option<Incarnation>,
}

impl ObjectRef {
    /// Describes a named object that was just opened or made.
    pub fn opened(
        py: Python<'_>,
        open_region: &Arc<OpenRegion>,
        (name, offset): (&str, u64),
        ty: TypeRef,
        kind: Kind,
    ) -> PyResult<Self> {
        let region = open_region.get(py)?;
        let handle = RawHandle { segment: region.id().0, offset };
        let loaded = look_up(py, &region, |region| region.load(handle, Some(&ty)))?;
        let (open_region, name, element) =
            (open_region.clone(), Some(name.to_owned()), kind.dtype(py).itemsize() as u64);
        Ok(Self { open_region, offset, name, ty, kind, credit: None, element, incarnation: loaded.incarnation })
    }

    /// The object's kind and name for error messages, for example "vector 'x'".
    pub fn what(&self) -> String {
        match &self.name {
            Some(name) => format!("{} '{name}'", self.kind.word()),
            None => format!("{} at {:#x}", self.kind.word(), self.offset),
        }
    }

    /// Gives the region, after it has checked that the object still exists and has its type.
    pub fn region(&self, py: Python<'_>) -> PyResult<Region> {
        let region = self.open_region.get(py)?;
        if self.incarnation.is_some_and(|incarnation| region.is_still(self.offset, incarnation)) {
            return Ok(region);
        }
        let loaded = look_up(py, &region, |region| region.load(self.handle_in(region), Some(&self.ty)))?;
        if loaded.incarnation != self.incarnation {
            let text =
                format!("{} of region '{}' was removed; what lies there now is another", self.what(), region.name());
            return Err(error(py, Status::BadHandle, text));
        }
        Ok(region)
    }

    fn handle_in(&self, region: &Region) -> RawHandle {
        RawHandle { segment: region.id().0, offset: self.offset }
    }

    /// The offset of the first element, the shape, and whether the order is Fortran's.
    fn extent(&self, py: Python<'_>, region: &Region) -> PyResult<(u64, Vec<u64>, bool)> {
        let (data, shape, fortran) = match self.kind {
            Kind::Simple(_) => return Ok((self.offset, Vec::new(), false)),
            Kind::Vector(_) | Kind::String(_) => {
                let found = region.vector_at(self.offset, self.element).or_raise(py)?;
                (found.data, vec![found.size], false)
            }
            Kind::Ndarray(_) => {
                let found = region.ndarray_at(self.offset, self.element).or_raise(py)?;
                // An ndarray that was never given a shape has no elements.
                let shape =
                    if found.data.is_none() && found.shape().is_empty() { vec![0] } else { found.shape().to_vec() };
                (found.data, shape, found.order == Order::Fortran)
            }
        };
        Ok((data.unwrap_or(0), shape, fortran))
    }

    /// The contents of the ndarray's header.
    pub fn ndarray(&self, py: Python<'_>) -> PyResult<NdarrayData> {
        self.region(py)?.ndarray_at(self.offset, self.element).or_raise(py)
    }

    /// The size of one element in bytes.
    pub fn element(&self) -> u64 {
        self.element
    }

    /// Makes an array over the elements of the object.
    pub fn array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let view = self.open_region.count_view(py, self.offset)?;
        let region = self.region(py)?;
        let (data, shape, fortran) = self.extent(py, &region)?;
        let layout = ArrayLayout { dtype: self.kind.dtype(py), shape, fortran, data };
        array(py, view, self.credit.as_ref(), layout)
    }

    /// The number of elements in each dimension.
    pub fn shape(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        Ok(self.extent(py, &self.region(py)?)?.1)
    }

    /// The number of bytes of all elements.
    pub fn nbytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.bytes_in(py, &self.region(py)?)
    }

    fn bytes_in(&self, py: Python<'_>, region: &Region) -> PyResult<u64> {
        Ok(match self.kind {
            Kind::Simple(_) => self.element,
            Kind::Vector(_) | Kind::String(_) => {
                let size = region.vector_at(self.offset, self.element).or_raise(py)?.size;
                size.saturating_mul(self.element)
            }
            Kind::Ndarray(_) => region.ndarray_at(self.offset, self.element).or_raise(py)?.bytes,
        })
    }

    /// The handle of the object.
    pub fn handle(&self, py: Python<'_>) -> PyResult<RawHandle> {
        Ok(self.handle_in(&self.region(py)?))
    }

    /// The handle of the object and the number of bytes of its elements, for a message.
    fn sent(&self, py: Python<'_>) -> PyResult<(RawHandle, u64)> {
        let region = self.region(py)?;
        Ok((self.handle_in(&region), self.bytes_in(py, &region)?))
    }

    /// Makes the Python object for this kind: a `Vector`, an `Ndarray`, a `Text` or a `Simple`.
    pub fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let base = |object| PyClassInitializer::from(Object { object });
        Ok(match self.kind {
            Kind::Vector(_) => Bound::new(py, base(self).add_subclass(Vector))?.into_any(),
            Kind::Ndarray(_) => Bound::new(py, base(self).add_subclass(Ndarray))?.into_any(),
            Kind::String(_) => Bound::new(py, base(self).add_subclass(Text))?.into_any(),
            Kind::Simple(_) => Bound::new(py, base(self).add_subclass(Simple))?.into_any(),
        })
    }
}

/// Reads the `type` argument of a caller: the name of a crossdock type, or a dtype. Only a dtype also contains the
/// names of the fields, so the dtype is returned, too.
fn said<'py>(given: &Bound<'py, PyAny>) -> PyResult<(TypeRef, Option<Bound<'py, PyArrayDescr>>)> {
    let py = given.py();
    if let Ok(name) = given.extract::<String>() {
        return Ok((type_ref(py, name)?, None));
    }
    let dtype = to_dtype(given)?;
    Ok((type_ref(py, to_type(&dtype)?)?, Some(dtype)))
}

/// Makes a type from its name. The type's size is computed from the name.
pub fn type_ref(py: Python<'_>, name: String) -> PyResult<TypeRef> {
    match parse(py, &name)?.size_and_align() {
        Some((size, align)) => Ok(TypeRef { name, size, align }),
        None => {
            let text = format!("{name} has a size that only its own language knows; use it from there");
            Err(error(py, Status::Invalid, text))
        }
    }
}

/// Calls `call`, which finds objects of a region. If it may have to wait for another member, calls it twice: first while
/// other Python threads run, and then, without a wait, for the result. So the result is that of a moment at which no
/// other thread of this interpreter runs, and the caller can use it before another thread changes the region.
pub fn look_up<T: Send>(
    py: Python<'_>,
    region: &Region,
    call: impl Fn(&Region) -> Result<T> + Send + Sync,
) -> PyResult<T> {
    if region.may_wait() {
        py.detach(|| call(region)).or_raise(py)?;
    }
    call(region).or_raise(py)
}

/// Loads the object that a handle names.
pub fn load<'py>(
    py: Python<'py>,
    open_region: &Arc<OpenRegion>,
    handle: RawHandle,
    given: Option<&Bound<'py, PyAny>>,
    credit: Option<&Arc<Credit>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (wanted, dtype) = match given {
        Some(given) => said(given).map(|(ty, dtype)| (Some(ty), dtype))?,
        None => (None, None),
    };
    let region = open_region.get(py)?;
    let loaded = look_up(py, &region, |region| region.load(handle, wanted.as_ref()))?;
    let Some(ty) = loaded.ty.or(wanted) else {
        let text = format!(
            "{handle} of region '{}' is a block without a name, so without a type; say type=",
            open_region.name
        );
        return Err(error(py, Status::Invalid, text));
    };
    let kind = Kind::of(py, &ty.name, dtype.as_ref())?;
    let (open_region, element, credit) = (open_region.clone(), kind.dtype(py).itemsize() as u64, credit.cloned());
    let (offset, incarnation) = (loaded.offset, loaded.incarnation);
    ObjectRef { open_region, offset, name: None, ty, kind, credit, element, incarnation }.into_object(py)
}

/// Gives the handle for the object that a caller sends or saves, and the number of bytes that the handle stands for (0
/// if it is unknown).
pub fn handle_of(data: &Bound<'_, PyAny>) -> PyResult<(RawHandle, u64)> {
    let py = data.py();
    if let Ok(handle) = data.cast::<Handle>() {
        return Ok(((*handle.get()).into(), 0));
    }
    if let Ok(object) = data.cast::<Object>() {
        return object.get().object.sent(py);
    }
    let refuse = |status, text: String| Err(error(py, status, text));
    let kind = data.get_type().name()?;
    let mut base = data.clone();
    while let Ok(next) = base.getattr("base") {
        if next.is_none() {
            break;
        }
        base = next;
    }
    let Ok(view) = base.cast::<ArrayBase>() else {
        return refuse(
            Status::Invalid,
            format!("this {kind} lies in no region, so it has no handle; copy it into a Vector or Ndarray of one"),
        );
    };
    let view = view.get();
    let address: usize = data.getattr("__array_interface__")?.get_item("data")?.get_item(0)?.extract()?;
    let bytes: u64 = data.getattr("nbytes")?.extract()?;
    if (address, bytes) != view.extent {
        return refuse(
            Status::Invalid,
            format!(
                "this {kind} is a part of the object at {:#x} of region '{}', and only the whole has a handle; send the \
                 object, and which part of it in the tag or inline bytes",
                view.offset(),
                view.open_region().name
            ),
        );
    }
    Ok((view.open_region().get(py)?.save(view.offset()).or_raise(py)?, bytes))
}
