//! Items that one task transfers to another.

use std::path::Path;
use std::time::Duration;

use crossdock_client::{ConnectOptions, Item, ItemLevel, ItemOptions, Session};

use crate::trips::Side;

const WAIT: Duration = Duration::from_secs(60);

pub fn join(socket: &Path, task: &str) -> Session {
    let options = ConnectOptions {
        socket: Some(socket.into()),
        task: Some(task.into()),
        private_daemon: false,
        ..ConnectOptions::default()
    };
    Session::connect(&options).expect("the daemon answers")
}

pub fn create(session: &Session, name: &str, size: u64, level: ItemLevel) {
    let options = ItemOptions { level, ..ItemOptions::bytes(size) };
    let mut item = session.create_item(&key(name), &options).expect("room for it");
    // Writing every byte makes the kernel allocate and map all pages of the item.
    item.bytes_mut().fill(1);
}

fn key(name: &str) -> String {
    name.replace(' ', "-")
}

/// One side of a hand-over with items. It has the item only while the other side does not.
pub struct Hand<'a> {
    session: &'a Session,
    key: String,
    other: &'static str,
    item: Option<Item>,
}

impl<'a> Hand<'a> {
    pub fn new(session: &'a Session, name: &str, other: &'static str) -> Self {
        Self { session, key: key(name), other, item: None }
    }
}

impl Side for Hand<'_> {
    fn start(&mut self, asks: bool) {
        if asks {
            self.take();
        }
    }

    fn send(&mut self) {
        self.item.take().expect("it is here").transfer(self.other).expect("transferred");
    }

    fn take(&mut self) {
        let mut item = self.session.access_item(&self.key, Some(WAIT)).expect("it comes");
        item.bytes_mut()[1] = item.bytes()[0];
        self.item = Some(item);
    }
}
