//! The C functions for ports.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;

use crossdock_client::{End, Error, Handle, INLINE_MAX, Inline, Message, Port, PortOptions, Result, Status};

use crate::arguments::{choice, optional_wait, out, read, text, wait};
use crate::error::{call, call_in_use, invalid};
use crate::plain;
use crate::references::Table;
use crate::session::session;

static PORTS: Table<Port> = Table::new(3, "port", Status::Closed);

/// Gives the port that a reference refers to, for use in one call.
#[inline]
fn port(reference: &u64) -> Result<&Port> {
    // SAFETY: `crossdock.h` requires that a reference lasts as long as the call to which it is given. No function of
    // this file keeps the value after its call. No code calls `close` on this table: a closed port stays in it until
    // its last reference is given up.
    unsafe { PORTS.peek(*reference) }
}

/// The number `CROSSDOCK_ANY_PATTERN` of the C header.
const ANY_PATTERN: u32 = 4;

fn end(number: u32) -> Result<End> {
    choice(number, "end of a port", "crossdock_end")
}

/// Reads the options of a port. NULL means the default options.
///
/// # Safety
/// `options` must be NULL or readable.
unsafe fn port_options(options: *const plain::PortOptions) -> Result<PortOptions> {
    if options.is_null() {
        return Ok(PortOptions::default());
    }
    // SAFETY: the caller promises that this pointer is NULL or readable.
    let given = unsafe { read(options, "options")? };
    let pattern = match given.pattern {
        ANY_PATTERN => None,
        number => Some(choice(number, "pattern of a port", "crossdock_pattern")?),
    };
    Ok(PortOptions { pattern, capacity: given.capacity, persistent: given.persistent != 0 })
}

/// Reads the message that the caller gave.
///
/// # Safety
/// `message` must be NULL or readable.
#[inline(always)]
unsafe fn message_in(message: *const plain::Message) -> Result<Message> {
    // SAFETY: the caller promises that this pointer is NULL or readable.
    let m = unsafe { read(message, "message")? };
    let inline = Inline::cut(m.inline_bytes, m.inline_length).ok_or_else(|| too_long(m.inline_length))?;
    Ok(Message { handle: m.handle, tag: m.tag, inline, position: m.position })
}

#[cold]
fn too_long(length: u32) -> Error {
    invalid(format!("inline_length is {length}; a message carries at most {INLINE_MAX} bytes inline"))
}

#[inline(always)]
fn message_out(message: &Message) -> plain::Message {
    plain::Message {
        handle: message.handle,
        tag: message.tag,
        position: message.position,
        inline_length: message.inline.len() as u32,
        reserved: 0,
        inline_bytes: message.inline.padded(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_port_open(
    session: u64,
    name: *const c_char,
    end: u32,
    options: *const plain::PortOptions,
    timeout_ms: i64,
    port: *mut u64,
) -> i32 {
    call(|| {
        let port = out(port, "port")?;
        // SAFETY: `crossdock.h` requires zero-terminated text, and for NULL or valid options.
        let (name, options) = unsafe { (text(name, "port's name")?, port_options(options)?) };
        let opened = self::session(session)?.port(name, self::end(end)?, &options, optional_wait(timeout_ms)?)?;
        let reference = PORTS.insert(opened)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { port.set(reference) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_port_ref(port: u64) -> i32 {
    call(|| PORTS.add(port))
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_port_unref(port: u64) -> i32 {
    call(|| PORTS.remove(port))
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_port_close(port: u64) -> i32 {
    call(|| {
        self::port(&port)?.leave();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_port_remove(session: u64, name: *const c_char) -> i32 {
    // SAFETY: `crossdock.h` requires zero-terminated text.
    call(|| self::session(session)?.remove_port(unsafe { text(name, "port's name")? }))
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_port_wait_peer(port: u64, timeout_ms: i64) -> i32 {
    call(|| self::port(&port)?.wait_peer(Some(wait(timeout_ms)?)))
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "crossdock_in_use")]
unsafe extern "C" fn crossdock_port_send(
    port: u64,
    message: *const plain::Message,
    bytes: u64,
    timeout_ms: i64,
) -> i32 {
    call_in_use(|| {
        // SAFETY: `crossdock.h` requires a readable message.
        let message = unsafe { message_in(message)? };
        self::port(&port)?.send_sized(&message, bytes, Some(wait(timeout_ms)?))
    })
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "crossdock_in_use")]
unsafe extern "C" fn crossdock_port_reclaim(port: u64, timeout_ms: i64, handle: *mut Handle) -> i32 {
    call_in_use(|| {
        let handle = out(handle, "handle")?;
        let credit = self::port(&port)?.reclaim(Some(wait(timeout_ms)?))?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { handle.set(credit.unwrap_or(Handle::NONE)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "crossdock_in_use")]
unsafe extern "C" fn crossdock_port_receive(port: u64, timeout_ms: i64, message: *mut plain::Message) -> i32 {
    call_in_use(|| {
        let message = out(message, "message")?;
        let received = self::port(&port)?.receive(Some(wait(timeout_ms)?))?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { message.set(message_out(&received)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "crossdock_in_use")]
unsafe extern "C" fn crossdock_port_release(port: u64, message: *const plain::Message) -> i32 {
    call_in_use(|| {
        // SAFETY: `crossdock.h` requires a readable message.
        let position = unsafe { read(message, "message")? }.position;
        self::port(&port)?.release(&Message { position, ..Message::default() })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_port_put_back(port: u64, message: *const plain::Message) -> i32 {
    call(|| {
        // SAFETY: `crossdock.h` requires a readable message.
        let position = unsafe { read(message, "message")? }.position;
        self::port(&port)?.put_back(&Message { position, ..Message::default() })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_port_descriptor(port: u64, descriptor: *mut c_int) -> i32 {
    call(|| {
        let descriptor = out(descriptor, "descriptor")?;
        let number = self::port(&port)?.descriptor()?.as_raw_fd();
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { descriptor.set(number) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_port_arm(port: u64, ready: *mut c_int) -> i32 {
    call(|| {
        let ready = out(ready, "answer")?;
        let now = self::port(&port)?.arm()?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { ready.set(c_int::from(now)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_port_disarm(port: u64) -> i32 {
    call(|| {
        self::port(&port)?.disarm();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_port_statistics_get(port: u64, statistics: *mut plain::PortStatistics) -> i32 {
    call(|| {
        let statistics = out(statistics, "statistics")?;
        let s = self::port(&port)?.statistics();
        let copy = plain::PortStatistics {
            messages: s.messages,
            received: s.received,
            bytes_handed_over: s.bytes_handed_over,
            bytes_copied: s.bytes_copied,
            producer_wait_ns: s.producer_wait_ns,
            consumer_wait_ns: s.consumer_wait_ns,
            sleeps: s.sleeps,
            wakes: s.wakes,
            redelivered: s.redelivered,
            voided: s.voided,
            under_way: s.under_way,
            unused: 0,
        };
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { statistics.set(copy) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_port_set_waiting(port: u64, waiting: u32) -> i32 {
    call(|| {
        self::port(&port)?.set_waiting(choice(waiting, "way to wait", "crossdock_waiting")?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_port_note_copied(port: u64, bytes: u64) -> i32 {
    call(|| {
        self::port(&port)?.note_copied(bytes);
        Ok(())
    })
}
