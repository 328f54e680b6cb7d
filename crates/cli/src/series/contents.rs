//! Converts a version into the form from which files are written. The bytes are not copied.

use crossdock_checkpoint as file;
use crossdock_client::{FullPolicy, Observer, Value, Version};

/// Converts one version of the series `name` into the form that checkpoint files hold. Files are in C order, so the
/// extents of a variable in Fortran order are reversed.
pub fn of<'a>(name: &str, observer: &Observer, version: &'a Version) -> Result<file::Series<'a>, String> {
    let mut variables = Vec::new();
    for variable in &observer.description().variables {
        variables.push(file::Variable {
            name: variable.name.clone(),
            type_name: variable.ty.to_string(),
            shape: variable.c_shape(version.shape(&variable.name).map_err(|e| e.to_string())?),
            constants: values(&variable.constants),
            bytes: version.bytes(&variable.name).map_err(|e| e.to_string())?,
        });
    }
    Ok(file::Series {
        name: name.to_owned(),
        sequence: version.sequence(),
        time_ns: version.time(),
        attributes: values(version.attributes()),
        variables,
    })
}

/// Tells whether the bytes that the command has read are those of this version. With the policy `take_back` this is
/// always so, because the command has a copy. With other policies the publisher may change the bytes when the version
/// is not valid any more.
pub fn is_steady(version: &Version) -> bool {
    version.is_valid() || version.description().full == FullPolicy::TakeBack
}

fn values(list: &[(String, Value)]) -> Vec<(String, file::Value)> {
    list.iter().map(|(name, v)| (name.clone(), value(v))).collect()
}

/// Converts a value into the form that files hold.
pub fn value(value: &Value) -> file::Value {
    match value {
        Value::I64(n) => file::Value::I64(*n),
        Value::U64(n) => file::Value::U64(*n),
        Value::F64(x) => file::Value::F64(*x),
        Value::Text(text) => file::Value::Text(text.to_string()),
    }
}
