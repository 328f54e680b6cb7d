//! Writes a file with a variable of every type, for the tests of other readers: `sample FILE.h5|FILE.npz`. The bytes of
//! a variable's elements are 0, 1, 2 and so on; those of booleans are 0 and 1.

use std::fs::File;
use std::path::Path;

use crossdock_checkpoint::{Contents, Series, Value, Variable, write, write_npz};

const TYPES: [(&str, usize); 18] = [
    ("bool", 1),
    ("i8", 1),
    ("i16", 2),
    ("i32", 4),
    ("i64", 8),
    ("u8", 1),
    ("u16", 2),
    ("u32", 4),
    ("u64", 8),
    ("f32", 4),
    ("f64", 8),
    ("c64", 8),
    ("c128", 16),
    ("f32[3]", 12),
    ("i16[2][4]", 16),
    ("{i32,f64}", 16),
    ("{u8,f32[2],{i16,i64}}", 32),
    ("cpp:Thing", 5),
];

fn main() {
    let path = std::env::args().nth(1).expect("FILE.h5 or FILE.npz");
    let path = Path::new(&path);
    let as_npz = path.extension().is_some_and(|e| e == "npz");
    let bytes: Vec<u8> = (0..6 * 32).map(|i| if i < 6 { (i & 1) as u8 } else { i as u8 }).collect();
    let variables =
        TYPES.iter().filter(|(name, _)| !as_npz || !name.contains(':')).enumerate().map(|(i, (name, size))| {
            let constants = vec![("size".into(), Value::I64(*size as i64)), ("of".into(), Value::Text((*name).into()))];
            let bytes = &bytes[..6 * size];
            Variable { name: format!("v{i:02}"), type_name: (*name).into(), shape: vec![2, 3], constants, bytes }
        });
    let mut variables: Vec<Variable> = variables.collect();
    variables.push(Variable {
        name: "empty".into(),
        type_name: "f64".into(),
        shape: vec![4, 0],
        constants: vec![],
        bytes: &[],
    });
    variables.push(Variable {
        name: "single".into(),
        type_name: "f64".into(),
        shape: vec![],
        constants: vec![],
        bytes: &bytes[..8],
    });
    let attributes = vec![
        ("step".into(), Value::I64(-12)),
        ("count".into(), Value::U64(u64::MAX)),
        ("time".into(), Value::F64(0.125)),
        ("note".into(), Value::Text("plate é".into())),
        ("nothing".into(), Value::Text(String::new())),
    ];
    let series = Series { name: "field/3".into(), sequence: 17, time_ns: 5, attributes, variables };
    let file = File::create(path).expect("a file that can be written");
    if as_npz {
        write_npz(&mut &file, &series).expect("an archive");
    } else {
        write(&file, path, &Contents { attributes: vec![], series: vec![series] }).expect("a file");
    }
}
