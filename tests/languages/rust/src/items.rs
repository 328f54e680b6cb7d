//! Tests rows I1 to I16 of the table in tests/languages/conformance.md: items.

use std::time::{Duration, Instant};

use crossdock_client::{Contents, Item, ItemInfo, ItemLevel, ItemOptions, ItemState, ObjectMode, OnDeath, Status};

use crate::harness::{Context, LONG, Outcome, POLL, Row, alone, equal, fails, kill_self, say_ready, says, text, took};

const SHORT: Option<Duration> = Some(Duration::from_millis(200));
/// The name of the task as which the harness connects the first process of a row.
const TEST: &str = "conformance";
const LEVELS: [(&str, ItemLevel); 3] =
    [("", ItemLevel::Verified), ("b", ItemLevel::Strict), ("c", ItemLevel::Cooperative)];

pub fn rows() -> Vec<Row> {
    vec![
        Row { id: "I1", claim: "create, find, destroy", test: i1, role: alone },
        Row { id: "I2", claim: "transfer there and back", test: i2, role: i2_peer },
        Row { id: "I3", claim: "to a task that is not there yet", test: i3, role: i3_peer },
        Row { id: "I4", claim: "a waiting task gets it", test: i4, role: i4_peer },
        Row { id: "I5", claim: "deadline names the owner", test: i5, role: i5_peer },
        Row { id: "I6", claim: "a spent item is nothing", test: i6, role: i6_peer },
        Row { id: "I7", claim: "copy", test: i7, role: alone },
        Row { id: "I8", claim: "share and unshare", test: i8, role: i8_peer },
        Row { id: "I9", claim: "resize", test: i9, role: alone },
        Row { id: "I10", claim: "bad arguments", test: i10, role: alone },
        Row { id: "I11", claim: "access twice", test: i11, role: alone },
        Row { id: "I12", claim: "destroyed while others wait", test: i12, role: i12_peer },
        Row { id: "I13", claim: "the first of several", test: i13, role: i13_peer },
        Row { id: "I14", claim: "a heap in an item", test: i14, role: i14_peer },
        Row { id: "I15", claim: "owner's death", test: i15, role: i15_peer },
        Row { id: "I16", claim: "numbers", test: i16, role: i16_peer },
    ]
}

fn create(context: &Context, suffix: &str, size: u64) -> Result<Item, String> {
    create_as(context, suffix, size, ItemLevel::Verified, OnDeath::Keep)
}

fn create_as(context: &Context, suffix: &str, size: u64, level: ItemLevel, on_death: OnDeath) -> Result<Item, String> {
    let options = ItemOptions { level, on_death, ..ItemOptions::bytes(size) };
    context.session.create_item(&context.name(suffix), &options).map_err(text)
}

fn take(context: &Context, suffix: &str) -> Result<Item, String> {
    context.session.access_item(&context.name(suffix), LONG).map_err(text)
}

fn find(context: &Context, suffix: &str) -> crossdock_client::Result<ItemInfo> {
    context.session.find_item(&context.name(suffix))
}

fn all_are(bytes: &[u8], value: u8) -> Outcome {
    match bytes.iter().position(|byte| *byte != value) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} of {} is {}, not {value}", bytes.len(), bytes[at])),
    }
}

fn belongs_to(context: &Context, task: &str, suffix: &str) -> Outcome {
    let entry = find(context, suffix).map_err(text)?;
    equal("mine", entry.mine, task == TEST)?;
    says(&entry.owner.to_string(), task)
}

fn i1(context: &Context) -> Outcome {
    fails(Status::NotFound, find(context, ""))?;
    let item = create(context, "", 10_000)?;
    equal("size", item.bytes().len(), 10_000)?;
    all_are(item.bytes(), 0)?;
    equal("known size", find(context, "").map_err(text)?.size, 10_000)?;
    belongs_to(context, TEST, "")?;
    let options = ItemOptions::bytes(10_000);
    let message = fails(Status::Exists, context.session.create_item(&context.name(""), &options).map(drop))?;
    says(&message, &context.name(""))?;
    says(&message, TEST)?;
    item.destroy().map_err(text)?;
    fails(Status::NotFound, find(context, ""))?;
    create(context, "", 10_000)?.destroy().map_err(text)
}

fn i2(context: &Context) -> Outcome {
    let peer = context.start("b", &[]);
    for (suffix, level) in LEVELS {
        let mut item = create_as(context, suffix, 1_000_000, level, OnDeath::Keep)?;
        item.bytes_mut().fill(7);
        item.transfer("peer").map_err(text)?;
        let item = take(context, suffix)?;
        equal("first byte", item.bytes()[0], 9)?;
        all_are(&item.bytes()[1..], 7)?;
        item.destroy().map_err(text)?;
    }
    peer.finish()
}

fn i2_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    for (suffix, _) in LEVELS {
        let mut item = take(context, suffix)?;
        equal("size", item.bytes().len(), 1_000_000)?;
        all_are(item.bytes(), 7)?;
        item.bytes_mut()[0] = 9;
        item.transfer(TEST).map_err(text)?;
    }
    Ok(())
}

fn i3(context: &Context) -> Outcome {
    let mut item = create(context, "", 5000)?;
    item.bytes_mut().fill(4);
    item.transfer("peer").map_err(text)?;
    belongs_to(context, "peer", "")?;
    context.run("b", &[])
}

fn i3_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let item = take(context, "")?;
    all_are(item.bytes(), 4)?;
    item.destroy().map_err(text)
}

fn i4(context: &Context) -> Outcome {
    let peer = context.start_ready("b", &[])?;
    let started = Instant::now();
    let item = take(context, "")?;
    took(started, 100, 2000)?;
    item.destroy().map_err(text)?;
    peer.finish()
}

fn i4_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let item = create(context, "", 4096)?;
    say_ready();
    std::thread::sleep(Duration::from_millis(200));
    item.transfer(TEST).map_err(text)
}

fn i5(context: &Context) -> Outcome {
    let peer = context.start_ready("b", &[])?;
    let key = context.name("");
    fails(Status::NotYet, context.session.access_item(&key, POLL).map(drop))?;
    let started = Instant::now();
    let message = fails(Status::TimedOut, context.session.access_item(&key, SHORT).map(drop))?;
    took(started, 190, 2000)?;
    says(&message, &key)?;
    says(&message, "peer")?;
    peer.finish()
}

fn i5_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let item = create(context, "", 4096)?;
    say_ready();
    std::thread::sleep(Duration::from_millis(800));
    item.destroy().map_err(text)
}

/// In Rust the compiler checks that a transferred item cannot be used any more, because `transfer` takes the item by
/// value.
fn i6(context: &Context) -> Outcome {
    let mut item = create(context, "", 4096)?;
    item.bytes_mut().fill(8);
    item.transfer("peer").map_err(text)?;
    context.run("b", &[])
}

fn i6_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let item = take(context, "")?;
    all_are(item.bytes(), 8)?;
    item.destroy().map_err(text)
}

fn i7(context: &Context) -> Outcome {
    let mut item = create(context, "", 100_000)?;
    item.bytes_mut().fill(5);
    let copy = item.copy(&context.name("b")).map_err(text)?;
    fails(Status::Exists, item.copy(&context.name("b")).map(drop))?;
    item.bytes_mut().fill(6);
    all_are(copy.bytes(), 5)?;
    item.destroy().map_err(text)?;
    all_are(copy.bytes(), 5)?;
    belongs_to(context, TEST, "b")?;
    copy.destroy().map_err(text)
}

fn i8(context: &Context) -> Outcome {
    let mut item = create(context, "", 50_000)?;
    item.bytes_mut().fill(3);
    let shared = item.share().map_err(text)?;
    all_are(shared.bytes(), 3)?;
    let peer = context.start_ready("b", &[])?;
    let entry = find(context, "").map_err(text)?;
    equal("state", entry.state, ItemState::Shared)?;
    equal("readers, the owner among them", entry.readers, 2)?;
    let mut item = shared.unshare(LONG).map_err(text)?;
    all_are(item.bytes(), 3)?;
    item.bytes_mut().fill(4);
    peer.finish()?;
    item.destroy().map_err(text)
}

fn i8_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let key = context.name("");
    {
        let shared = context.session.read_item(&key, LONG).map_err(text)?;
        all_are(shared.bytes(), 3)?;
        say_ready();
        std::thread::sleep(Duration::from_millis(300));
    }
    // The owner's `unshare` ends as soon as this reader has closed the item. After that, the item can no longer be
    // read.
    std::thread::sleep(Duration::from_millis(200));
    fails(Status::NotYet, context.session.read_item(&key, POLL).map(drop)).map(drop)
}

fn i9(context: &Context) -> Outcome {
    let mut item = create(context, "", 4096)?;
    item.bytes_mut().fill(5);
    item.resize(1_000_000).map_err(text)?;
    equal("size", item.bytes().len(), 1_000_000)?;
    all_are(&item.bytes()[..4096], 5)?;
    all_are(&item.bytes()[4096..], 0)?;
    item.resize(100).map_err(text)?;
    equal("size", item.bytes().len(), 100)?;
    all_are(item.bytes(), 5)?;
    fails(Status::Invalid, item.resize(0))?;
    all_are(item.bytes(), 5)?;
    item.destroy().map_err(text)
}

fn i10(context: &Context) -> Outcome {
    let make = |key: &str, size| context.session.create_item(key, &ItemOptions::bytes(size)).map(drop);
    let key = context.name("");
    fails(Status::Invalid, make(&key, 0))?;
    match make(&key, 1 << 60) {
        Err(error) if matches!(error.status, Status::NoSpace | Status::Invalid) => {}
        other => return Err(format!("2^60 bytes: {other:?}")),
    }
    fails(Status::Invalid, make("a b", 10))?;
    fails(Status::Invalid, make("", 10))?;
    let mut item = create(context, "", 4096)?;
    item.bytes_mut().fill(2);
    for to in ["", "a b", "#x"] {
        fails(Status::Invalid, item.transfer_mut(to))?;
    }
    all_are(item.bytes(), 2)?;
    belongs_to(context, TEST, "")?;
    fails(Status::NotFound, find(context, "b"))?;
    fails(Status::NotFound, context.session.access_item(&context.name("b"), POLL).map(drop))?;
    item.destroy().map_err(text)
}

fn i11(context: &Context) -> Outcome {
    let mut item = create(context, "", 4096)?;
    item.bytes_mut().fill(6);
    fails(Status::Busy, context.session.access_item(&context.name(""), POLL).map(drop))?;
    drop(item);
    let item = take(context, "")?;
    all_are(item.bytes(), 6)?;
    item.destroy().map_err(text)
}

fn i12(context: &Context) -> Outcome {
    let item = create(context, "", 4096)?;
    let peer = context.start_ready("b", &[])?;
    std::thread::sleep(Duration::from_millis(200));
    item.destroy().map_err(text)?;
    peer.finish()
}

fn i12_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    say_ready();
    let started = Instant::now();
    fails(Status::NotFound, context.session.access_item(&context.name(""), LONG).map(drop))?;
    took(started, 0, 3000)
}

fn i13(context: &Context) -> Outcome {
    let peer = context.start_ready("b", &[])?;
    let keys = [context.name(""), context.name("b"), context.name("c")];
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let item = context.session.access_any_item(&keys, LONG).map_err(text)?;
    equal("key", item.key(), keys[1])?;
    fails(Status::Invalid, context.session.access_any_item(&[], LONG).map(drop))?;
    item.destroy().map_err(text)?;
    peer.finish()
}

fn i13_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let (first, second, third) = (create(context, "", 4096)?, create(context, "b", 4096)?, create(context, "c", 4096)?);
    say_ready();
    std::thread::sleep(Duration::from_millis(200));
    second.transfer(TEST).map_err(text)?;
    std::thread::sleep(Duration::from_millis(500));
    first.destroy().map_err(text)?;
    third.destroy().map_err(text)
}

fn i14(context: &Context) -> Outcome {
    let mut item = create(context, "", 4 << 20)?;
    {
        item.describe(&Contents::Heap).map_err(text)?;
        let heap = item.region().map_err(text)?;
        let v = heap.vector::<f64>("v", ObjectMode::CreateOnly, None).map_err(text)?;
        v.resize(1000).map_err(text)?;
        (0..1000u64).try_for_each(|n| v.set(n, (n + 1) as f64)).map_err(text)?;
        fails(Status::Busy, item.transfer_mut("peer"))?;
    }
    item.transfer("peer").map_err(text)?;
    let peer = context.start("b", &[]);
    let mut item = take(context, "")?;
    {
        let heap = item.region().map_err(text)?;
        let v = heap.vector::<f64>("v", ObjectMode::OpenOnly, None).map_err(text)?;
        equal("size", v.len().map_err(text)?, 1001)?;
        equal("last", v.get(1000).map_err(text)?, -1.0)?;
    }
    item.destroy().map_err(text)?;
    peer.finish()
}

fn i14_peer(context: &Context, _: &str, _: &[&str]) -> Outcome {
    let mut item = take(context, "")?;
    {
        let heap = item.region().map_err(text)?;
        let v = heap.vector::<f64>("v", ObjectMode::OpenOnly, None).map_err(text)?;
        equal("sum", (0..1000).filter_map(|n| v.get(n).ok()).sum::<f64>(), 500_500.0)?;
        v.resize(1001).map_err(text)?;
        v.set(1000, -1.0).map_err(text)?;
    }
    item.transfer(TEST).map_err(text)
}

fn i15(context: &Context) -> Outcome {
    for (suffix, on_death) in [("", OnDeath::Keep), ("b", OnDeath::Return), ("c", OnDeath::Destroy)] {
        create_as(context, suffix, 4096, ItemLevel::Verified, on_death)?.transfer("peer").map_err(text)?;
    }
    context.start("b", &[]).killed()?;
    let started = Instant::now();
    take(context, "b")?.destroy().map_err(text)?;
    while find(context, "c").is_ok() && started.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(10));
    }
    fails(Status::NotFound, find(context, "c"))?;
    took(started, 0, 2000)?;
    belongs_to(context, "peer", "")?;
    context.run("c", &[])
}

fn i15_peer(context: &Context, role: &str, _: &[&str]) -> Outcome {
    if role == "c" {
        return take(context, "")?.destroy().map_err(text);
    }
    let _held = (take(context, "")?, take(context, "b")?, take(context, "c")?);
    kill_self()
}

fn i16(context: &Context) -> Outcome {
    let number = 4000 + u64::from(std::process::id());
    context.session.register_number(number).map_err(text)?;
    let peer = context.start("b", &[&format!("#{number}")]);
    let item = take(context, "")?;
    all_are(item.bytes(), 1)?;
    peer.finish()?;
    item.transfer(&format!("#{}", number + 1)).map_err(text)?;
    fails(Status::NotYet, context.session.access_item(&context.name(""), POLL).map(drop))?;
    context.session.register_number(number + 1).map_err(text)?;
    take(context, "")?.destroy().map_err(text)
}

fn i16_peer(context: &Context, _: &str, arguments: &[&str]) -> Outcome {
    let mut item = create(context, "", 4096)?;
    item.bytes_mut().fill(1);
    item.transfer(arguments.first().copied().unwrap_or_default()).map_err(text)
}
