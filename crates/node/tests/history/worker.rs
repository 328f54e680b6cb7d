//! One task of the history: it does random operations on items until it is killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crossdock_client::{ConnectOptions, Item, ItemLevel, ItemOptions, Party, Session, Status};

use crate::event::{Dice, Kind, Log, Outcome, id};
use crate::{KEYS, TASKS};

/// Does random operations as one task of the history, until the process is killed. `across` is true if the tasks run on
/// several nodes.
pub fn run(task: u64, incarnation: u64, seed: u64, across: bool, socket: &Path, file: &Path) {
    let who = id(task, incarnation);
    let mut dice = Dice::new(seed.wrapping_add(who * 7919));
    let mut log = Log::new(file, who);
    let options = ConnectOptions {
        socket: Some(socket.into()),
        task: Some(format!("t{task}")),
        timeout: Duration::from_secs(20),
        ..ConnectOptions::default()
    };
    // If the broker was just killed, connecting fails. So the task tries again.
    let session = loop {
        match Session::connect(&options) {
            Ok(session) => break session,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut held: BTreeMap<u64, Item> = BTreeMap::new();
    let mut next = 0;
    loop {
        let key = dice.below(KEYS);
        next += 1;
        // Each write writes a different value, so that a value that is read shows which write it comes from.
        let value = who * 1_000_000 + next;
        match (held.remove(&key), dice.below(16)) {
            (None, 0..=2) => create(&session, &mut log, &mut held, key),
            (None, 3) => find(&session, &mut log, key),
            (None, _) => {
                let wait = dice.below(10).saturating_sub(6);
                access(&session, &mut log, &mut held, key, wait, across);
            }
            (Some(item), 0) => end(&mut log, key, Kind::Destroy, item),
            (Some(item), 1) => end(&mut log, key, Kind::Release, item),
            (Some(mut item), 2..=6) => {
                write(&mut log, key, &mut item, value);
                held.insert(key, item);
            }
            (Some(item), _) => {
                let to = dice.below(TASKS);
                let kind = if to == task { Kind::Release } else { Kind::Transfer(to) };
                end(&mut log, key, kind, item);
            }
        }
    }
}

/// Tells whether this error means that another node or the catalog could not be asked. Such an error does not occur if
/// there is only one node.
fn is_network(error: &crossdock_client::Error) -> bool {
    matches!(error.status, Status::Disconnected | Status::TimedOut)
}

fn name(key: u64) -> String {
    format!("k{key}")
}

fn create(session: &Session, log: &mut Log, held: &mut BTreeMap<u64, Item>, key: u64) {
    let level = if key % 3 == 0 { ItemLevel::Strict } else { ItemLevel::Verified };
    let options = ItemOptions { level, ..ItemOptions::bytes(4096) };
    let call = log.call(key, Kind::Create);
    match session.create_item(&name(key), &options) {
        Ok(item) => {
            log.answer(call, Outcome::Done);
            held.insert(key, item);
        }
        Err(error) if error.status == Status::Exists => log.answer(call, Outcome::Exists),
        Err(error) if is_network(&error) => log.answer(call, Outcome::Failed),
        Err(error) => panic!("create: {error}"),
    }
}

fn find(session: &Session, log: &mut Log, key: u64) {
    let call = log.call(key, Kind::Find);
    match session.find_item(&name(key)) {
        Ok(info) => {
            let Party::Task { task, .. } = info.owner else { panic!("{:?}", info.owner) };
            log.answer(call, Outcome::Saw(task[1..].parse().unwrap()));
        }
        Err(error) if error.status == Status::NotFound => log.answer(call, Outcome::NotFound),
        Err(error) if is_network(&error) => log.answer(call, Outcome::Failed),
        Err(error) => panic!("find: {error}"),
    }
}

fn access(session: &Session, log: &mut Log, held: &mut BTreeMap<u64, Item>, key: u64, wait: u64, across: bool) {
    let timeout = (wait > 0).then(|| Duration::from_millis(if across { wait * 100 } else { wait }));
    let call = log.call(key, Kind::Access);
    match session.access_item(&name(key), timeout) {
        Ok(item) => {
            let word = u64::from_le_bytes(item.bytes()[..8].try_into().unwrap());
            log.answer(call, Outcome::Saw(word));
            held.insert(key, item);
        }
        Err(error) => match error.status {
            Status::NotFound => log.answer(call, Outcome::NotFound),
            Status::NotYet => log.answer(call, Outcome::NotYet),
            // If there are several nodes, a timeout says nothing about the item, because the item may be on its way
            // between two nodes.
            Status::TimedOut if across => log.answer(call, Outcome::Failed),
            // The item may already belong to this task, but the daemon has not copied the item in time.
            Status::TimedOut if error.to_string().contains("it is being copied") => log.answer(call, Outcome::Failed),
            // The call waited for the item until its timeout. The error only says that the item did not exist when the
            // wait ended.
            Status::TimedOut if error.to_string().contains("there was no item") => log.answer(call, Outcome::NotFound),
            Status::TimedOut => log.answer(call, Outcome::NotYet),
            _ if is_network(&error) => log.answer(call, Outcome::Failed),
            _ => panic!("access: {error}"),
        },
    }
}

fn write(log: &mut Log, key: u64, item: &mut Item, value: u64) {
    let call = log.call(key, Kind::Write(value));
    item.bytes_mut()[..8].copy_from_slice(&value.to_le_bytes());
    log.answer(call, Outcome::Done);
}

/// Gives the item up: releases, transfers or destroys it, as `kind` says.
fn end(log: &mut Log, key: u64, kind: Kind, item: Item) {
    let call = log.call(key, kind);
    match kind {
        Kind::Destroy => item.destroy().unwrap(),
        Kind::Transfer(to) => item.transfer(&format!("t{to}")).unwrap(),
        _ => drop(item),
    }
    log.answer(call, Outcome::Done);
}
