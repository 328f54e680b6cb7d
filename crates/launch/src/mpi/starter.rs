//! The starter: a process on another host, at the other end of the ssh that a keeper has started. It is a client of its
//! own host's keeper, and exchanges frames with the keeper at the other end of ssh on its standard streams.
//!
//! The end of standard input means that the keeper at the other end of ssh is gone. The starter then disconnects from
//! the keeper of its own host, and that keeper ends everything that the starter had asked for.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crossdock_os::{Deadline, child, event, socket};
use crossdock_shim::message::{Message, ReceiveResult, receive, send};

use super::GREETING;
use super::job::Job;
use super::session::Session;

/// Runs the hidden command `mpi-starter` and returns the exit code.
pub fn starter() -> u8 {
    let mut output = std::io::stdout();
    if output.write_all(GREETING).and_then(|()| output.flush()).is_err() {
        return 71;
    }
    let mut say = move |message: &Message| output.write_all(&message.frame()).and_then(|()| output.flush()).is_ok();
    match serve(&mut say) {
        Ok(()) => 0,
        Err(what) => {
            say(&Message::Failed(String::new(), what, "look at the host's disk, limits and /tmp".into()));
            71
        }
    }
}

fn serve(say: &mut impl FnMut(&Message) -> bool) -> Result<(), String> {
    let text = |e: crossdock_os::OsError| e.to_string();
    let mut input = std::io::stdin();
    let Some(Message::Job(description)) = Message::read_frame(&mut input) else { return Ok(()) };
    let job = Job::read(&description)
        .ok_or_else(|| "crossdock is of another version there than on the first host".to_owned())?;
    let Some(Message::Run(order)) = Message::read_frame(&mut input) else { return Ok(()) };
    let session = Session::join(&job)?;
    let (out, theirs_out) = pipe()?;
    let (err, theirs_err) = pipe()?;
    let nothing = File::open("/dev/null").map_err(|e| e.to_string())?;
    send(&session.keeper, &Message::Run(order), &[nothing.as_fd(), theirs_out.as_fd(), theirs_err.as_fd()])?;
    drop((theirs_out, theirs_err, nothing));

    let lost = Arc::new(event::eventfd().map_err(text)?);
    let (noted, signals) = (lost.clone(), session.keeper.try_clone().map_err(|e| e.to_string())?);
    let reader = crossdock_os::thread::start(move || {
        while let Some(message) = Message::read_frame(&mut input) {
            if matches!(message, Message::Signal(..)) {
                let _ = send(&signals, &message, &[]);
            }
        }
        event::signal(&*noted);
    });
    reader.map_err(|e| format!("cannot start a thread: {e}"))?;

    let epoll = event::Epoll::new().map_err(text)?;
    epoll.add(&session.keeper, 0, false).map_err(text)?;
    epoll.add(&*lost, 1, false).map_err(text)?;
    epoll.add(&out, 2, false).map_err(text)?;
    epoll.add(&err, 3, false).map_err(text)?;
    let mut streams = [Some(out), Some(err)];
    let mut ended = false;
    loop {
        let ready = epoll.wait(Deadline::after(Duration::from_secs(3600))).map_err(text)?;
        if ready.iter().any(|r| r.token == 1) {
            break;
        }
        let has_output = |stream: &u8| ready.iter().any(|r| r.token == u64::from(*stream) + 1);
        if ![1u8, 2].into_iter().filter(has_output).all(|stream| pump(&epoll, &mut streams, stream, say)) {
            break;
        }
        if !ready.iter().any(|r| r.token == 0) {
            continue;
        }
        match receive(&session.keeper) {
            ReceiveResult::Message(Message::Ended(_, end), _) => {
                // The command has ended, so its last output is in the two pipes already.
                if ![1, 2].into_iter().all(|stream| pump(&epoll, &mut streams, stream, say)) {
                    break;
                }
                say(&Message::Ended(0, end));
                ended = true;
            }
            ReceiveResult::Message(Message::Idle, _) if ended => break,
            ReceiveResult::Message(message, _) => {
                say(&message);
            }
            ReceiveResult::Nothing => {}
            ReceiveResult::End => {
                session.clean();
                if !ended {
                    say(&Message::Failed(
                        String::new(),
                        "its keeper has ended before the job, or was killed".into(),
                        "look there for what ends processes: limits, an out-of-memory killer".into(),
                    ));
                }
                break;
            }
        }
    }
    child::leave_stream(1);
    session.end();
    Ok(())
}

/// Makes a pipe whose reading end does not block.
fn pipe() -> Result<(File, File), String> {
    let (reader, writer) = crossdock_os::spawn::pipe().map_err(|e| e.to_string())?;
    socket::set_nonblocking(&reader).map_err(|e| e.to_string())?;
    Ok((File::from(reader), File::from(writer)))
}

/// The most reads of one call of [`pump`]. After them, a pipe that has the kernel's default limit of 1 MiB is empty.
const READS: usize = 32;

/// Sends bytes that wait in a pipe to the keeper at the other end of ssh. The number of bytes is bounded, so that a
/// command that writes without end does not keep the starter from messages. Returns false if that keeper is gone.
fn pump(
    epoll: &event::Epoll,
    streams: &mut [Option<File>; 2],
    stream: u8,
    say: &mut impl FnMut(&Message) -> bool,
) -> bool {
    let slot = &mut streams[usize::from(stream) - 1];
    let Some(file) = slot else { return true };
    let mut buffer = vec![0; 32 << 10];
    for _ in 0..READS {
        match file.read(&mut buffer) {
            Ok(n) if n > 0 => {
                if !say(&Message::Output(stream, buffer[..n].to_vec())) {
                    return false;
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return true,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            // The pipe is closed, or cannot be read.
            Ok(_) | Err(_) => {
                let _ = epoll.remove(&*file);
                *slot = None;
                return true;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_writes_without_end_does_not_keep_the_starter() {
        let (out, theirs) = pipe().unwrap();
        let epoll = event::Epoll::new().unwrap();
        epoll.add(&out, 2, false).unwrap();
        let mut streams = [Some(out), None];
        let (mut theirs, mut said) = (theirs, 0);
        theirs.write_all(b"x").unwrap();
        // Each message is answered by more bytes.
        let mut say = |_: &Message| {
            said += 1;
            theirs.write_all(b"more").unwrap();
            said < 1000
        };
        assert!(pump(&epoll, &mut streams, 1, &mut say) && streams[0].is_some());
        assert_eq!(said, READS);
        assert!(!pump(&epoll, &mut streams, 1, &mut |_| false), "the other end is gone");
        drop(theirs);
        while streams[0].is_some() {
            assert!(pump(&epoll, &mut streams, 1, &mut |_| true));
        }
    }
}
