//! Tests rows F1 to F9 of the table in tests/languages/conformance.md: files in managed directories.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossdock_client::{Status, await_file};

use crate::harness::{Context, Outcome, Row, alone, equal, fails, kill_self, say_ready, says, text, took};

pub fn rows() -> Vec<Row> {
    vec![
        Row { id: "F1", claim: "a file that comes", test: f1, role: writes },
        Row { id: "F2", claim: "deadline names the producer", test: f2, role: alone },
        Row { id: "F3", claim: "dead producer", test: f3, role: dies },
        Row { id: "F4", claim: "published name written again", test: f4, role: writes },
        Row { id: "F5", claim: "never part of a file", test: f5, role: writes },
        Row { id: "F6", claim: "directories", test: f6, role: writes },
        Row { id: "F7", claim: "removal", test: f7, role: writes },
        Row { id: "F8", claim: "quota", test: f8, role: writes },
        Row { id: "F9", claim: "retention", test: f9, role: writes },
    ]
}

const SIZE: usize = 100_000;

fn place(row: &str, side: &str, name: &str) -> Result<PathBuf, String> {
    let root = std::env::var_os("CROSSDOCK_CONFORMANCE_FILES")
        .ok_or("CROSSDOCK_CONFORMANCE_FILES is not set; tests/languages/run sets it")?;
    Ok(Path::new(&root).join(row).join(side).join(name))
}

fn io<T>(result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// Runs one step of the producer of row `row`. `step` names the step.
fn writes(_: &Context, step: &str, row: &[&str]) -> Outcome {
    let &[row] = row else { return Err("a producer needs its row".into()) };
    let at = |name: &str| place(row, "stage", name);
    let write = |name: &str, byte: u8| io(fs::write(at(name)?, [byte].repeat(SIZE)));
    match step {
        "later" => {
            std::thread::sleep(Duration::from_millis(200));
            write("coming", b'x')
        }
        "slowly" => {
            let mut file = io(File::create(at("slow")?))?;
            io(file.write_all(&[b'x'; SIZE / 2]))?;
            say_ready();
            // The producer waits for this link. The consumer makes the link after it has looked for the file.
            let began = Instant::now();
            while fs::read_link(at(".looked")?).is_err() {
                if began.elapsed() > Duration::from_secs(10) {
                    return Err("the consumer did not look within 10 s".into());
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            io(file.write_all(&[b'x'; SIZE / 2]))
        }
        "folder" => {
            io(fs::create_dir_all(at("a/b")?))?;
            write("a/b/c", b'x')
        }
        "again" => {
            write("next", b'y')?;
            io(fs::rename(at("next")?, at("name")?))?;
            write("after", b'x')
        }
        "remove" => {
            io(fs::remove_file(at("gone")?))?;
            write("after", b'x')
        }
        "full" => {
            let mut file = io(File::create(at("big")?))?;
            match file.write_all(&vec![b'x'; 2_000_000]) {
                Err(error) if error.kind() == ErrorKind::StorageFull => {}
                other => return Err(format!("writing 2 000 000 bytes into 1 MiB: {other:?}")),
            }
            drop(file);
            io(fs::remove_file(at("big")?))?;
            // Waits until the file system has room again. A file whose name begins with a dot is not managed, but it
            // needs room in the file system of the managed directory, so it shows whether there is room.
            for _ in 0..1000 {
                let fits = fs::write(at(".room")?, [b'x'; 2 * SIZE]).is_ok();
                io(fs::remove_file(at(".room")?))?;
                if fits {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            write("small", b'x')
        }
        name => write(name, b'x'),
    }
}

fn dies(_: &Context, _: &str, _: &[&str]) -> Outcome {
    io(std::os::unix::fs::symlink(std::process::id().to_string(), place("f3", "stage", ".producer")?))?;
    let mut file = io(File::create(place("f3", "stage", "half")?))?;
    io(file.write_all(&[b'x'; SIZE / 2]))?;
    std::thread::sleep(Duration::from_millis(200));
    kill_self();
}

/// Waits for a name and reads the file. It must have `SIZE` bytes that are all equal to `byte`.
fn comes(row: &str, name: &str, byte: u8) -> Outcome {
    let path = place(row, "published", name)?;
    await_file(&path).map_err(text)?;
    holds(io(File::open(path))?, byte)
}

fn holds(mut file: File, byte: u8) -> Outcome {
    let mut bytes = Vec::new();
    io(file.read_to_end(&mut bytes))?;
    equal("bytes of the file", bytes.len(), SIZE)?;
    equal("they are all the same", bytes.iter().all(|b| *b == byte), true)
}

fn is_seen(row: &str, name: &str) -> Result<bool, String> {
    Ok(place(row, "published", name)?.exists())
}

/// Runs the producer, which writes a file, and then opens this file.
fn opened(context: &Context, row: &str, name: &str) -> Result<File, String> {
    context.run(name, &[row])?;
    let path = place(row, "published", name)?;
    await_file(&path).map_err(text)?;
    io(File::open(path))
}

fn f1(context: &Context) -> Outcome {
    let producer = context.start("later", &["f1"]);
    comes("f1", "coming", b'x')?;
    producer.finish()?;
    let began = Instant::now();
    await_file("/nonexistent/file").map_err(text)?;
    took(began, 0, 2000)
}

fn f2(_: &Context) -> Outcome {
    let began = Instant::now();
    let message = fails(Status::TimedOut, await_file(place("f2", "published", "never")?))?;
    took(began, 300, 5000)?;
    says(&message, "f2/published/never")?;
    says(&message, "simulate")
}

fn f3(context: &Context) -> Outcome {
    let producer = context.start("dies", &[]);
    let message = fails(Status::NotFound, await_file(place("f3", "published", "half")?))?;
    for word in ["half", "simulate failed", "killed"] {
        says(&message, word)?;
    }
    equal("half is seen", is_seen("f3", "half")?, false)?;
    producer.killed()
}

fn f4(context: &Context) -> Outcome {
    let held = opened(context, "f4", "name")?;
    context.run("again", &["f4"])?;
    comes("f4", "after", b'x')?;
    comes("f4", "name", b'y')?;
    holds(held, b'x')
}

fn f5(context: &Context) -> Outcome {
    let producer = context.start_ready("slowly", &["f5"])?;
    equal("slow is seen", is_seen("f5", "slow")?, false)?;
    io(std::os::unix::fs::symlink("yes", place("f5", "stage", ".looked")?))?;
    comes("f5", "slow", b'x')?;
    producer.finish()
}

fn f6(context: &Context) -> Outcome {
    context.run("folder", &["f6"])?;
    comes("f6", "a/b/c", b'x')
}

fn f7(context: &Context) -> Outcome {
    let held = opened(context, "f7", "gone")?;
    context.run("remove", &["f7"])?;
    comes("f7", "after", b'x')?;
    equal("gone is seen", is_seen("f7", "gone")?, false)?;
    holds(held, b'x')
}

fn f8(context: &Context) -> Outcome {
    context.run("full", &["f8"])?;
    comes("f8", "small", b'x')?;
    equal("big is seen", is_seen("f8", "big")?, false)
}

fn f9(context: &Context) -> Outcome {
    for name in ["1", "2", "3"] {
        drop(opened(context, "f9", name)?);
    }
    equal("1 is seen", is_seen("f9", "1")?, false)?;
    comes("f9", "2", b'x')
}
