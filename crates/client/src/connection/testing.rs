//! A connection for unit tests, whose other end the test has in its hands instead of a daemon.

use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossdock_core::liveness::LivenessDescriptors;
use crossdock_layout::liveness::{LIVENESS_MAGIC, LivenessTable};

use crossdock_layout::wire::{MAX_MESSAGE, Request};
use crossdock_layout::{LAYOUT_VERSION, MemberId};
use crossdock_os::roll::Roll;
use crossdock_os::socket::{self, Received};
use crossdock_os::{file, memfd};

use super::Connection;
use crate::handshake::{ClientIdentity, Welcome};

/// Makes a connection, and gives the daemon's end of its socket.
pub(super) fn connect() -> (Arc<Connection>, OwnedFd) {
    let member = MemberId::new(3, 3);
    let path = std::env::temp_dir().join(format!("crossdock-client-test-{:x}", crossdock_os::clock::now_ns()));
    let roll = Roll::open(&path).unwrap();
    let (entry, reader) = (roll.enter(member.0).unwrap(), roll.reader().unwrap());
    std::fs::remove_file(&path).unwrap();
    let table = memfd::create("crossdock-test", size_of::<LivenessTable>() as u64).unwrap();
    let magic = offset_of!(LivenessTable, magic) as u64;
    file::write_all_at(&table, &LIVENESS_MAGIC.to_ne_bytes(), magic).unwrap();
    let version = offset_of!(LivenessTable, version) as u64;
    file::write_all_at(&table, &LAYOUT_VERSION.to_ne_bytes(), version).unwrap();
    let (socket, daemon) = socket::pair().unwrap();
    let welcome = Welcome {
        socket,
        descriptors: LivenessDescriptors { table, entry, roll: reader },
        member,
        admin: true,
        incarnation: 1,
        run: 1,
        rank: 0,
        task: "test".into(),
        workflow: "default".into(),
    };
    let (task, workflow) = (None, None);
    let who = ClientIdentity { token: [1; 16], member, rank: 0, task, workflow, visitor: false, server: None };
    (Connection::new(path, false, who, welcome).unwrap(), daemon)
}

/// The requests that have arrived at the daemon's end.
pub(super) fn requests(daemon: &OwnedFd) -> Vec<Request> {
    let mut buffer = [0; MAX_MESSAGE + 1];
    let mut found = Vec::new();
    while let Ok(Some(Received::Message(length, fds))) = socket::receive(daemon, &mut buffer) {
        found.push(Request::decode(&buffer[..length], fds.len()).unwrap().1);
    }
    found
}
