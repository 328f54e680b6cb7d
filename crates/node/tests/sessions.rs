//! Tests of a session that many threads use, and of a session that a forked child must not use. This program has a
//! `main` of its own, because a fork needs a process with one thread, and the usual test harness starts threads.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_client::{
    ConnectOptions, Contents, End, Handle, ItemLevel, ItemOptions, Message, Mode, OnDeath, PortOptions, Session, Status,
};
use crossdock_os::child::{self, ExitStatus, Signal};
use crossdock_os::{Deadline, event};

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("endpoint.sock");
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_crossdock-node"));
    let started = daemon.args(["--detach", "--socket"]).arg(&socket).stderr(Stdio::null()).status().unwrap();
    assert!(started.success());
    let keeper: i32 =
        std::fs::read_to_string(folder.path().join("endpoint.sock.lock")).unwrap().trim().parse().unwrap();
    let ends = Ends(keeper);
    let options = ConnectOptions { socket: Some(socket.clone()), ..ConnectOptions::default() };

    a_forked_child_is_told_to_connect_anew_and_does_not_end_its_parents_session(&options);
    a_forked_child_cannot_give_away_its_parents_item_and_the_parent_does_not_leave_with_it(&options);
    a_forked_child_does_not_take_its_parents_events(&options);
    threads_share_a_session_and_get_each_its_own_answers(&options);
    a_stopped_daemon_is_an_error_at_the_deadline_and_no_hang(&options, keeper);

    drop(ends);
    let began = Instant::now();
    while std::fs::read_dir(folder.path()).unwrap().count() > 0 {
        assert!(began.elapsed() < Duration::from_secs(5), "the daemon left something");
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("sessions: 5 passed");
}

/// Ends the daemon when this value is dropped, also after a failure.
struct Ends(i32);

impl Drop for Ends {
    fn drop(&mut self) {
        child::signal(self.0, Signal::TERM).unwrap();
    }
}

fn a_forked_child_is_told_to_connect_anew_and_does_not_end_its_parents_session(options: &ConnectOptions) {
    let mut session = Some(Session::connect(options).unwrap());
    let mut port = session.as_ref().map(|s| s.port("parents", End::Producer, &PortOptions::default(), None).unwrap());
    let forked = child::fork_beside_threads(|| {
        let (Some(session), Some(port)) = (session.take(), port.take()) else { return 2 };
        let armed = port.arm();
        let refused =
            session.list().is_err_and(|e| e.status == Status::Disconnected && e.to_string().contains("connect anew"));
        let own = Session::connect(options).is_ok_and(|own| own.member() != session.member() && own.list().is_ok());
        // The child drops its copies of the parent's session and port. This must not end the parent's session, nor
        // close the parent's port.
        drop((port, session));
        let not_armed = armed.is_err_and(|e| e.status == Status::Disconnected);
        i32::from(!refused) + 2 * i32::from(!own) + 4 * i32::from(!not_armed)
    });
    assert_eq!(child::ended(forked.unwrap(), true).unwrap(), Some(ExitStatus::Code(0)));
    let session = session.unwrap();
    assert_eq!(session.list().unwrap().members.len(), 1, "the child's own session ended with it, the parent's did not");
    drop(port);
    session.close().unwrap();
}

fn a_forked_child_cannot_give_away_its_parents_item_and_the_parent_does_not_leave_with_it(options: &ConnectOptions) {
    let session = Session::connect(options).unwrap();
    let (level, on_death) = (ItemLevel::Cooperative, OnDeath::Keep);
    let mut item =
        session.create_item("parents", &ItemOptions { size: 100, level, on_death, ..ItemOptions::bytes(100) }).unwrap();
    let forked = child::fork_beside_threads(|| {
        let refused = |result: crossdock_client::Result<()>| result.is_err_and(|e| e.status == Status::Disconnected);
        let outcomes = [
            item.transfer_mut("another"),
            item.set_on_death(OnDeath::Destroy),
            item.describe(&Contents::Heap),
            item.open_region(Mode::Recreate).map(drop),
            item.region().map(drop),
            item.share_mut().map(drop),
            item.destroy_mut(),
        ];
        outcomes.into_iter().map(refused).filter(|refused| !refused).count() as i32
    });
    assert_eq!(child::ended(forked.unwrap(), true).unwrap(), Some(ExitStatus::Code(0)));
    item.bytes_mut().fill(7);
    assert_eq!(session.clone().close().unwrap_err().status, Status::Busy, "another member would take the item");
    let other = Session::connect(options).unwrap();
    assert_eq!(other.access_item("parents", None).unwrap_err().status, Status::NotYet);
    item.destroy().unwrap();
    session.close().unwrap();
    other.close().unwrap();
}

fn a_forked_child_does_not_take_its_parents_events(options: &ConnectOptions) {
    let session = Session::connect(options).unwrap();
    let open = |end| session.port("events", end, &PortOptions::default(), None).unwrap();
    let (producer, mut consumer) = (open(End::Producer), Some(open(End::Consumer)));
    let parents = consumer.as_ref().unwrap().descriptor().unwrap().try_clone_to_owned().unwrap();
    assert!(!consumer.as_ref().unwrap().arm().unwrap());
    producer.send(&Message::new(Handle::NONE, 1), None).unwrap();
    assert!(event::wait_readable(&parents, Deadline::after(Duration::from_secs(20))).unwrap());
    let forked = child::fork_beside_threads(|| {
        let Some(consumer) = consumer.take() else { return 2 };
        let refused = consumer.arm().is_err_and(|e| e.status == Status::Disconnected);
        consumer.disarm();
        drop(consumer);
        i32::from(!refused)
    });
    assert_eq!(child::ended(forked.unwrap(), true).unwrap(), Some(ExitStatus::Code(0)));
    assert!(event::wait_readable(&parents, Deadline::after(Duration::ZERO)).unwrap(), "the child took the event");
    consumer.as_ref().unwrap().receive(Some(Duration::ZERO)).unwrap();
    drop((producer, consumer));
    session.remove_port("events").unwrap();
    session.close().unwrap();
}

fn threads_share_a_session_and_get_each_its_own_answers(options: &ConnectOptions) {
    let session = Session::connect(options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let session = session.clone();
            scope.spawn(move || {
                for round in 0..50 {
                    let name = format!("t{thread}/{round}");
                    let port = session.port(&name, End::Producer, &PortOptions::default(), None).unwrap();
                    assert_eq!(port.name(), name);
                    session.remove_port(&name).unwrap();
                    assert_eq!(session.remove_port(&name).unwrap_err().status, Status::NotFound);
                }
            });
        }
    });
    assert!(session.list().unwrap().segments.iter().all(|s| s.removed || s.name == "parents"), "all ports are gone");
    session.close().unwrap();
}

fn a_stopped_daemon_is_an_error_at_the_deadline_and_no_hang(options: &ConnectOptions, keeper: i32) {
    let options = ConnectOptions { timeout: Duration::from_millis(200), ..options.clone() };
    let session = Session::connect(&options).unwrap();
    let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap();
    let broker: i32 = children.trim().parse().unwrap();
    child::signal(broker, Signal::STOP).unwrap();
    let began = Instant::now();
    assert_eq!(session.list().unwrap_err().status, Status::TimedOut);
    assert!(began.elapsed() < Duration::from_millis(400), "{:?}", began.elapsed());
    assert_eq!(Session::connect(&options).unwrap_err().status, Status::TimedOut);
    child::signal(broker, Signal::CONT).unwrap();
    session.list().unwrap();
    session.close().unwrap();
}
