//! Tests rows R1 to R17 of the table in tests/languages/conformance.md: regions and their objects.

use std::time::{Duration, Instant};

use crossdock_client::{Handle, Mode, ObjectMode, Order, Region, Status, TypeRef, Vector};

use crate::harness::{Context, LONG, Outcome, REGION, Row, alone, equal, fails, says, text, took};

const ANY: ObjectMode = ObjectMode::OpenOrCreate;

pub fn rows() -> Vec<Row> {
    vec![
        Row { id: "R1", claim: "modes", test: r1, role: alone },
        Row { id: "R2", claim: "simple", test: r2, role: r2_peer },
        Row { id: "R3", claim: "struct and array", test: r3, role: r3_peer },
        Row { id: "R4", claim: "vector", test: r4, role: r4_peer },
        Row { id: "R5", claim: "string", test: r5, role: r5_peer },
        Row { id: "R6", claim: "ndarray", test: r6, role: r6_peer },
        Row { id: "R7", claim: "wrong type", test: r7, role: alone },
        Row { id: "R8", claim: "not found, with and without deadline", test: r8, role: r8_peer },
        Row { id: "R9", claim: "create only", test: r9, role: alone },
        Row { id: "R10", claim: "save and load", test: r10, role: r10_peer },
        Row { id: "R11", claim: "bad handles", test: r11, role: alone },
        Row { id: "R12", claim: "remove and reuse", test: r12, role: alone },
        Row { id: "R13", claim: "region full", test: r13, role: alone },
        Row { id: "R14", claim: "removed region", test: r14, role: alone },
        Row { id: "R15", claim: "size", test: r15, role: alone },
        Row { id: "R16", claim: "move", test: r16, role: r16_peer },
        Row { id: "R17", claim: "ndarray of fixed arrays", test: r17, role: r17_peer },
    ]
}

fn r1(context: &Context) -> Outcome {
    let (session, name) = (&context.session, context.name(""));
    let open = |mode| session.region(&name, mode, REGION, None);
    fails(Status::NotFound, open(Mode::OpenOnly))?;
    let first = open(Mode::CreateOnly).map_err(text)?;
    says(&fails(Status::Exists, open(Mode::CreateOnly))?, &name)?;
    equal("id by open_only", open(Mode::OpenOnly).map_err(text)?.id(), first.id())?;
    equal("id by open_or_create", open(Mode::OpenOrCreate).map_err(text)?.id(), first.id())?;
    first.simple::<i32>("n", ANY, None).map_err(text)?;
    let second = open(Mode::Recreate).map_err(text)?;
    if second.id() == first.id() {
        return Err("recreate gave the old region".into());
    }
    fails(Status::NotFound, second.simple::<i32>("n", ObjectMode::OpenOnly, None)).map(drop)
}

fn r2(context: &Context) -> Outcome {
    let n = context.region()?.simple::<i32>("n", ANY, None).map_err(text)?;
    equal("n when new", n.get().map_err(text)?, 0)?;
    n.set(123).map_err(text)?;
    context.run("b", &[])?;
    equal("n", n.get().map_err(text)?, 370)
}

fn r2_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let n = context.region()?.simple::<i32>("n", ObjectMode::OpenOnly, None).map_err(text)?;
    equal("n", n.get().map_err(text)?, 123)?;
    n.set(3 * 123 + 1).map_err(text)
}

/// A struct `{i32,f64,i32[3]}` as C lays it out: the fields are at 0, 8 and 16, and the size is 32 bytes. Rust programs
/// read it as bytes.
fn r3_struct(region: &Region) -> Result<crossdock_client::Raw, String> {
    let ty = TypeRef { name: "{i32,f64,i32[3]}".into(), size: 32, align: 8 };
    region.raw("s", &ty, ANY, None).map_err(text)
}

fn r3(context: &Context) -> Outcome {
    let region = context.region()?;
    let s = r3_struct(&region)?;
    s.set(0, 7i32).map_err(text)?;
    s.set(8, 2.5f64).map_err(text)?;
    s.set(16, [1i32, 2, 3]).map_err(text)?;
    let a = region.simple::<[f32; 512]>("a", ANY, None).map_err(text)?;
    a.set(std::array::from_fn(|i| i as f32 / 2.0)).map_err(text)?;
    context.run("b", &[])?;
    equal("s.f64", s.get::<f64>(8).map_err(text)?, -2.5)?;
    equal("a[511]", a.get().map_err(text)?[511], 1.0)
}

fn r3_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let region = context.region()?;
    let s = r3_struct(&region)?;
    equal("s.i32", s.get::<i32>(0).map_err(text)?, 7)?;
    equal("s.f64", s.get::<f64>(8).map_err(text)?, 2.5)?;
    equal("s.i32[3]", s.get::<[i32; 3]>(16).map_err(text)?, [1, 2, 3])?;
    s.set(8, -2.5f64).map_err(text)?;
    let a = region.simple::<[f32; 512]>("a", ObjectMode::OpenOnly, None).map_err(text)?;
    let mut values = a.get().map_err(text)?;
    equal("a", values, std::array::from_fn(|i| i as f32 / 2.0))?;
    values[511] = 1.0;
    a.set(values).map_err(text)
}

fn r4(context: &Context) -> Outcome {
    let v = context.region()?.vector::<f64>("v", ANY, None).map_err(text)?;
    equal("length when new", v.len().map_err(text)?, 0)?;
    v.resize(1000).map_err(text)?;
    for i in 0..1000 {
        v.set(i, i as f64).map_err(text)?;
    }
    context.run("b", &[])?;
    let values = v.to_vec().map_err(text)?;
    equal("length", values.len(), 100_000)?;
    if (0..100_000).any(|i| values[i] != if i < 1000 { i as f64 } else { 0.0 }) {
        return Err("the elements changed, or the new ones are not 0".into());
    }
    v.resize(10).map_err(text)?;
    equal("length", v.len().map_err(text)?, 10)?;
    equal("v[9]", v.get(9).map_err(text)?, 9.0)?;
    fails(Status::Invalid, v.get(10)).map(drop)
}

fn r4_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let v = context.region()?.vector::<f64>("v", ObjectMode::OpenOnly, None).map_err(text)?;
    equal("length", v.len().map_err(text)?, 1000)?;
    v.resize(100_000).map_err(text)
}

fn r5(context: &Context) -> Outcome {
    let s = context.region()?.text("s", ANY, None).map_err(text)?;
    equal("when new", s.get().map_err(text)?, String::new())?;
    s.set("crossdock").map_err(text)?;
    context.run("b", &[])?;
    equal("text", s.get().map_err(text)?, "x".repeat(1000))?;
    s.set("").map_err(text)?;
    equal("length", s.bytes().len().map_err(text)?, 0)
}

fn r5_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let s = context.region()?.text("s", ObjectMode::OpenOnly, None).map_err(text)?;
    equal("text", s.get().map_err(text)?, "crossdock".to_string())?;
    s.set(&"x".repeat(1000)).map_err(text)
}

fn r6(context: &Context) -> Outcome {
    let region = context.region()?;
    for (name, order) in [("c", Order::C), ("f", Order::Fortran)] {
        let array = region.ndarray::<f32>(name, ANY, None).map_err(text)?;
        array.reshape(order, &[3, 4, 5]).map_err(text)?;
        for (i, j, k) in indices() {
            array.set(&[i, j, k], (100 * i + 10 * j + k) as f32).map_err(text)?;
        }
    }
    context.run("b", &[])?;
    let c = region.ndarray::<f32>("c", ANY, None).map_err(text)?;
    equal("shape", c.shape().map_err(text)?, vec![6, 10])
}

fn indices() -> impl Iterator<Item = (u64, u64, u64)> {
    (0..3).flat_map(|i| (0..4).flat_map(move |j| (0..5).map(move |k| (i, j, k))))
}

fn r6_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let region = context.region()?;
    for (name, order) in [("c", Order::C), ("f", Order::Fortran)] {
        let array = region.ndarray::<f32>(name, ObjectMode::OpenOnly, None).map_err(text)?;
        equal("shape", array.shape().map_err(text)?, vec![3, 4, 5])?;
        equal("order", array.order().map_err(text)?, order)?;
        for (i, j, k) in indices() {
            equal("element", array.get(&[i, j, k]).map_err(text)?, (100 * i + 10 * j + k) as f32)?;
        }
        // In memory, the last index varies fastest in C order, and the first index in Fortran order.
        let second = array.to_vec().map_err(text)?[1];
        equal("second in memory", second, if order == Order::C { 1.0 } else { 100.0 })?;
    }
    region.ndarray::<f32>("c", ANY, None).map_err(text)?.reshape(Order::C, &[6, 10]).map_err(text)
}

fn r7(context: &Context) -> Outcome {
    let region = context.region()?;
    let n = region.simple::<i32>("n", ANY, None).map_err(text)?;
    n.set(5).map_err(text)?;
    let message = fails(Status::WrongType, region.simple::<f64>("n", ANY, None).map(drop))?;
    ["n", "i32", "f64"].into_iter().try_for_each(|word| says(&message, word))?;
    equal("n", n.get().map_err(text)?, 5)
}

fn r8(context: &Context) -> Outcome {
    let region = context.region()?;
    let open = |timeout| region.simple::<i32>("late", ObjectMode::OpenOnly, timeout).map(drop);
    let started = Instant::now();
    fails(Status::NotFound, open(None))?;
    took(started, 0, 100)?;
    let started = Instant::now();
    says(&fails(Status::TimedOut, open(Some(Duration::from_millis(200))))?, "late")?;
    took(started, 200, 2000)?;
    let peer = context.start("b", &[]);
    open(LONG).map_err(text)?;
    peer.finish()
}

fn r8_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    std::thread::sleep(Duration::from_millis(200));
    context.region()?.simple::<i32>("late", ObjectMode::CreateOnly, None).map(drop).map_err(text)
}

fn r9(context: &Context) -> Outcome {
    let region = context.region()?;
    let n = region.simple::<i32>("n", ObjectMode::CreateOnly, None).map_err(text)?;
    n.set(5).map_err(text)?;
    says(&fails(Status::Exists, region.simple::<i32>("n", ObjectMode::CreateOnly, None).map(drop))?, "'n'")?;
    equal("n", n.get().map_err(text)?, 5)
}

fn r10(context: &Context) -> Outcome {
    let v = context.region()?.vector::<f64>("v", ANY, None).map_err(text)?;
    v.assign(&[1.0, 2.0, 3.0]).map_err(text)?;
    let handle = v.save().map_err(text)?;
    context.run("b", &[&handle.segment.to_string(), &handle.offset.to_string()])
}

fn r10_peer(context: &Context, _: &str, arguments: &[&str]) -> Outcome {
    let [segment, offset] = arguments else { return Err("two numbers are needed".into()) };
    let number = |word: &str| word.parse::<u64>().map_err(|error| error.to_string());
    let handle = Handle { segment: number(segment)?, offset: number(offset)? };
    let region = context.session.region_of(handle).map_err(text)?;
    let v: Vector<f64> = region.load_vector(handle).map_err(text)?;
    equal("elements", v.to_vec().map_err(text)?, vec![1.0, 2.0, 3.0])?;
    equal("handle", v.save().map_err(text)?, handle)?;
    fails(Status::WrongType, region.load_vector::<i32>(handle).map(drop)).map(drop)
}

fn r11(context: &Context) -> Outcome {
    let region = context.region()?;
    let other = context.session.region(&context.name("b"), Mode::CreateOnly, REGION, None).map_err(text)?;
    let foreign = other.vector::<f64>("v", ANY, None).and_then(|v| v.save()).map_err(text)?;
    let good = region.vector::<f64>("v", ANY, None).and_then(|v| v.save()).map_err(text)?;
    let gone = region.vector::<f64>("gone", ANY, None).and_then(|v| v.save()).map_err(text)?;
    region.remove("gone").map_err(text)?;
    let bad = [
        foreign,
        gone,
        Handle { offset: good.offset + 8, ..good },
        Handle { offset: 1 << 40, ..good },
        Handle { segment: 0x9e37_79b9_7f4a_7c15, offset: 0xbf58_476d_1ce4_e5b9 },
        Handle::NONE,
    ];
    for handle in bad {
        fails(Status::BadHandle, region.load_vector::<f64>(handle).map(drop))
            .map_err(|why| format!("{handle}: {why}"))?;
    }
    region.load_vector::<f64>(good).map(drop).map_err(text)
}

fn r12(context: &Context) -> Outcome {
    let region = context.region()?;
    fails(Status::NotFound, region.remove("o"))?;
    let cycle = || {
        region.vector::<f64>("o", ANY, None)?.resize(1000)?;
        region.remove("o")?;
        region.simple::<i32>("o", ANY, None)?;
        region.remove("o")
    };
    // The heap may keep a little memory for itself after the first cycle. From then on it must not grow.
    cycle().map_err(text)?;
    let before = region.statistics();
    for _ in 0..100 {
        cycle().map_err(text)?;
    }
    let after = region.statistics();
    equal("used bytes and objects", (after.used, after.objects), (before.used, before.objects))
}

fn r13(context: &Context) -> Outcome {
    let region = context.session.region(&context.name("b"), Mode::CreateOnly, 1 << 20, None).map_err(text)?;
    let v = region.vector::<u8>("v", ANY, None).map_err(text)?;
    v.assign(&[1, 2, 3]).map_err(text)?;
    fails(Status::NoSpace, v.resize(4 << 20))?;
    equal("v", v.to_vec().map_err(text)?, vec![1, 2, 3])?;
    let mut blocks = Vec::new();
    let error = loop {
        match region.allocate(64 << 10, 64) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
        if blocks.len() > 64 {
            return Err("a region of 1 MiB gave more than 4 MiB".into());
        }
    };
    equal("status when full", error.status, Status::NoSpace)?;
    if blocks.len() < 8 {
        return Err(format!("a region of 1 MiB was full after {} blocks of 64 KiB", blocks.len()));
    }
    for block in blocks.iter().step_by(2) {
        region.deallocate(*block).map_err(text)?;
    }
    region.allocate(64 << 10, 64).map(drop).map_err(text)
}

fn r14(context: &Context) -> Outcome {
    let (name, region) = (context.name(""), context.region()?);
    let n = region.simple::<i32>("n", ANY, None).map_err(text)?;
    n.set(5).map_err(text)?;
    let handle = n.save().map_err(text)?;
    context.session.remove_region(&name).map_err(text)?;
    equal("n", n.get().map_err(text)?, 5)?;
    n.set(6).map_err(text)?;
    equal("n", n.get().map_err(text)?, 6)?;
    fails(Status::NotFound, context.session.region(&name, Mode::OpenOnly, REGION, None))?;
    let anew = context.region()?;
    if anew.id() == region.id() {
        return Err("the new region has the old id".into());
    }
    fails(Status::BadHandle, anew.load_simple::<i32>(handle).map(drop)).map(drop)
}

fn r15(context: &Context) -> Outcome {
    let (name, size) = (context.name(""), 16 << 20);
    let open = |size| context.session.region(&name, Mode::OpenOrCreate, size, None);
    let made = open(size).map_err(text)?;
    equal("capacity", made.capacity(), size)?;
    equal("id", open(size).map_err(text)?.id(), made.id())?;
    let why = fails(Status::Invalid, open(size + 4096))?;
    says(&why, "16777216")?;
    says(&why, "16781312")
}

fn r16(context: &Context) -> Outcome {
    let made = context.session.region(&context.name("b"), Mode::CreateOnly, REGION, None).map_err(text)?;
    let v = made.vector::<f64>("v", ANY, None).map_err(text)?;
    v.assign(&[1.0, 2.0, 3.0]).map_err(text)?;
    let handle = v.save().map_err(text)?;
    drop((v, made));
    context.run("b", &[&handle.segment.to_string(), &handle.offset.to_string()])
}

fn r16_peer(context: &Context, _: &str, arguments: &[&str]) -> Outcome {
    let [segment, offset] = arguments else { return Err("two numbers are needed".into()) };
    let number = |word: &str| word.parse::<u64>().map_err(|error| error.to_string());
    let handle = Handle { segment: number(segment)?, offset: number(offset)? };
    let (session, name, wait) = (&context.session, context.name("b"), Duration::from_secs(20));
    let moved = session.move_region(&name, wait).map_err(text)?;
    let v: Vector<f64> = moved.load_vector(handle).map_err(text)?;
    equal("elements", v.to_vec().map_err(text)?, vec![1.0, 2.0, 3.0])?;
    equal("id", session.move_region(&name, wait).map_err(text)?.id(), moved.id())?;
    let short = Duration::from_millis(100);
    fails(Status::Invalid, session.copy_region(&name, &name, short))?;
    fails(Status::NotFound, session.move_region(&context.name("c"), short))?;
    session.remove_region(&name).map_err(text)
}

/// The elements of row R17's array, in the order in which they lie in memory.
fn fixed_arrays() -> impl Iterator<Item = ([u64; 2], [f64; 3])> {
    let first = |i: u64, j: u64| (100 * i + 10 * j) as f64;
    let element = move |i, j| ([i, j], [first(i, j), first(i, j) + 1.0, first(i, j) + 2.0]);
    (0..3).flat_map(move |j| (0..2).map(move |i| element(i, j)))
}

fn r17(context: &Context) -> Outcome {
    let f = context.region()?.ndarray::<[f64; 3]>("f", ANY, None).map_err(text)?;
    f.reshape(Order::Fortran, &[2, 3]).map_err(text)?;
    for (index, element) in fixed_arrays() {
        f.set(&index, element).map_err(text)?;
    }
    context.run("b", &[])?;
    equal("the last element", f.get(&[1, 2]).map_err(text)?, [-1.0, -2.0, -3.0])
}

fn r17_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let f = context.region()?.ndarray::<[f64; 3]>("f", ObjectMode::OpenOnly, None).map_err(text)?;
    equal("shape", f.shape().map_err(text)?, vec![2, 3])?;
    equal("order", f.order().map_err(text)?, Order::Fortran)?;
    for (index, element) in fixed_arrays() {
        equal("element", f.get(&index).map_err(text)?, element)?;
    }
    let in_memory: Vec<[f64; 3]> = fixed_arrays().map(|(_, element)| element).collect();
    equal("elements in memory", f.to_vec().map_err(text)?, in_memory)?;
    f.set(&[1, 2], [-1.0, -2.0, -3.0]).map_err(text)
}
