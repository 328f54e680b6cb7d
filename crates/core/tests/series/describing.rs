//! Tests of the description that a series has in its pool.

use crossdock_core::series::{AttributeSpec, Kind, Report, Spec, Value, Variable};
use crossdock_layout::Status;

use crate::series_world::{self, World, as_numbers, numbers, spec};

#[test]
fn attributes_have_kinds_and_may_be_declared_by_their_first_use() {
    let world = World::new();
    let step = AttributeSpec { name: "step".into(), ty: Kind::I64 };
    let (mut publisher, series) = world.publisher(Spec { attributes: vec![step], ..spec(8) });
    let mut observer = series.observe(0);
    let values = [
        ("step", Value::I64(-3)),
        ("time", Value::F64(0.5)),
        ("what", Value::Text("täst".into())),
        ("n", Value::U64(7)),
    ];
    publisher.publish(&values).unwrap();
    let version = observer.latest().unwrap();
    let seen: Vec<(&str, Value)> =
        version.attributes().iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    assert_eq!(seen, values);
    publisher.publish(&[("time", Value::F64(1.5))]).unwrap();
    let version = observer.latest().unwrap();
    assert_eq!((version.attribute("step").ok(), version.attribute("time").ok()), (None, Some(&Value::F64(1.5))));
    assert_eq!(publisher.publish(&[("step", Value::F64(1.0))]).unwrap_err().status, Status::WrongType);
    assert_eq!(publisher.publish(&[("what", Value::Text("x".repeat(64)))]).unwrap_err().status, Status::Invalid);
    assert_eq!(publisher.publish(&[("a b", Value::I64(1))]).unwrap_err().status, Status::Invalid);
    assert_eq!(publisher.sequence(), 2);
    for n in 0..12 {
        publisher.publish(&[(&format!("more-{n}"), Value::I64(n))]).unwrap();
    }
    let error = publisher.publish(&[("one-too-many", Value::I64(1))]).unwrap_err();
    assert_eq!(error.status, Status::Invalid, "{error}");
}

#[test]
fn a_series_describes_itself() {
    let world = World::new();
    let mut u = Variable::new("u", "{f64,i32}", &[3, 4]);
    u.max_shape = vec![30, 4];
    u.constants = vec![("dx".into(), Value::F64(0.25)), ("unit".into(), Value::Text("K".into()))];
    let t = Variable::new("t", "f64", &[]);
    let constants = vec![("code".into(), Value::Text("heat".into()))];
    let (mut publisher, series) =
        world.publisher(Spec { constants: constants.clone(), ..Spec::of(vec![u.clone(), t]) });
    publisher.publish(&[("step", Value::I64(1))]).unwrap();
    let observer = series.observe(0);
    let description = observer.description();
    assert_eq!(description.constants, constants);
    let seen = &description.variables[0];
    assert_eq!((&seen.name, &seen.ty, &seen.max_shape, &seen.constants), (&u.name, &u.ty, &u.max_shape, &u.constants));
    assert_eq!(description.attributes, [AttributeSpec { name: "step".into(), ty: Kind::I64 }]);
    assert_eq!(description.publisher, series_world::PUBLISHER);
    let report = Report::read("field", &series.offer.pool, series.offer.size).unwrap();
    assert_eq!((report.newest, report.versions.len(), report.ended), (1, 1, false));
    assert_eq!(&report.description, description);
}

#[test]
fn a_series_may_begin_empty() {
    let world = World::new();
    let empty = Variable { max_shape: vec![1000], ..Variable::new("u", "u64", &[0]) };
    let (mut publisher, series) = world.publisher(Spec::of(vec![empty]));
    publisher.publish(&[]).unwrap();
    publisher.begin().unwrap();
    publisher.publish(&[]).unwrap();
    let mut version = series.observe(0).latest().unwrap();
    assert!(version.bytes("u").unwrap().is_empty());
    publisher.resize("u", &[1000]).unwrap();
    numbers(&mut publisher, "u").fill(3);
    publisher.publish(&[]).unwrap();
    version.refresh().unwrap();
    assert!(as_numbers(version.bytes("u").unwrap()).iter().all(|n| *n == 3));
    // This variable has a dimension of length 0, so it has no elements in any version.
    let nothing = Spec::of(vec![Variable::new("n", "f64", &[0, 7])]);
    let (mut publisher, series) = world.publisher(nothing);
    publisher.publish(&[("step", Value::I64(1))]).unwrap();
    assert_eq!(series.observe(0).latest().unwrap().shape("n").unwrap(), [0, 7]);
}
