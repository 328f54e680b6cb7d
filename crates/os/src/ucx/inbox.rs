//! The messages that UCX has delivered to a wire (a connection over UCX) and that the program has not read yet. UCX's
//! callbacks store them here.

use super::abi::{self, MessageParams, Status};
use super::lock;
use super::wire::{LARGE, PIECE};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI8, Ordering};

/// The largest number of bytes of small messages that may wait to be read.
const WAITING: usize = 16 << 20;
/// A waiting small message counts as at least this many bytes, because storing a message takes more memory than its
/// bytes.
const LEAST: usize = 128;

/// A message that has arrived and was not read yet.
pub enum UnreadMessage {
    /// All bytes of the message, which have arrived with it.
    Small(Vec<u8>),
    /// UCX's description of bytes that are still with the sender, and the number of these bytes.
    Large(*mut c_void, usize),
}

#[derive(Default)]
struct Unread {
    /// The messages that were not read yet, each under its number. They have numbers because UCX may deliver them in
    /// another order than they were sent.
    messages: BTreeMap<u64, UnreadMessage>,
    /// The number of bytes of the small messages in `messages`. Each message counts as at least [`LEAST`] bytes.
    held: usize,
    /// What the peer did wrong, as a text; `None` if the peer did nothing wrong.
    wrong: Option<&'static str>,
}

/// The messages and reports that UCX's callbacks store for one wire. UCX keeps the address of this value, so the value
/// lies in a `Box` and never moves.
pub struct Inbox {
    /// The number of this wire. The header of each message for this wire has this number. A message with another number
    /// is ignored.
    token: u64,
    /// The status with which UCX reported the loss of the endpoint; `OK` if UCX has reported no loss.
    lost: AtomicI8,
    arrived: Mutex<Unread>,
}

impl Inbox {
    pub fn new(token: u64) -> Box<Self> {
        Box::new(Self { token, lost: AtomicI8::new(abi::OK), arrived: Mutex::default() })
    }

    /// Takes the message with this number, if it has arrived.
    pub fn take(&self, number: u64) -> Option<UnreadMessage> {
        let mut arrived = lock(&self.arrived);
        let message = arrived.messages.remove(&number);
        if let Some(UnreadMessage::Small(bytes)) = &message {
            arrived.held -= bytes.len().max(LEAST);
        }
        message
    }

    /// Takes UCX's descriptions of all messages whose bytes are still with the sender.
    pub fn take_large(&self) -> Vec<*mut c_void> {
        let all = std::mem::take(&mut lock(&self.arrived).messages);
        let large = |message| if let UnreadMessage::Large(description, _) = message { Some(description) } else { None };
        all.into_values().filter_map(large).collect()
    }

    /// What the peer did wrong, as a text; `None` if the peer did nothing wrong.
    pub fn wrong(&self) -> Option<&'static str> {
        lock(&self.arrived).wrong
    }

    /// The status with which UCX reported the loss of the peer; `OK` if UCX has reported no loss.
    pub fn lost(&self) -> Status {
        self.lost.load(Ordering::Acquire)
    }
}

/// Puts a message into the inbox. UCX calls this function for each message that arrives.
///
/// # Safety
/// `argument` is the address of an [`Inbox`]; the other arguments are as UCX gives them.
pub unsafe extern "C" fn message_arrived(
    argument: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    params: *const MessageParams,
) -> Status {
    // SAFETY: the inbox lives until the worker is destroyed; UCX's parameters are valid during the call.
    let (inbox, params) = unsafe { (&*argument.cast::<Inbox>(), &*params) };
    if header_length != size_of::<[u64; 2]>() {
        return abi::OK;
    }
    // SAFETY: the header has two words, at an address that need not be aligned.
    let [token, number] = unsafe { header.cast::<[u64; 2]>().read_unaligned() };
    if token != inbox.token {
        return abi::OK;
    }
    let mut arrived = lock(&inbox.arrived);
    if arrived.messages.contains_key(&number) {
        // The first message with this number stays in the inbox, and the second message is dropped. The first message
        // must not be lost: if its bytes are still with the sender, UCX waits until this process fetches or releases
        // these bytes.
        arrived.wrong = Some("the peer sent two messages with the same number");
        return abi::OK;
    }
    if params.attributes & abi::MESSAGE_RENDEZVOUS != 0 {
        if length == 0 || length > PIECE || arrived.messages.len() > WAITING / LARGE {
            arrived.wrong = Some("the peer sent a piece of a wrong size, or too many of them");
            return abi::OK;
        }
        arrived.messages.insert(number, UnreadMessage::Large(data, length));
        return abi::IN_PROGRESS;
    }
    arrived.held += length.max(LEAST);
    if length == 0 || arrived.held > WAITING {
        arrived.wrong = Some("the peer sent more than was read");
        return abi::OK;
    }
    // SAFETY: the data of a message that came whole have `length` bytes, which are valid during the call.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec();
    arrived.messages.insert(number, UnreadMessage::Small(bytes));
    abi::OK
}

/// Notes in the inbox that the peer is lost. UCX calls this function when it has lost the peer.
///
/// # Safety
/// `argument` is the address of an [`Inbox`].
pub unsafe extern "C" fn peer_lost(argument: *mut c_void, _endpoint: *mut c_void, status: Status) {
    // SAFETY: the inbox lives until the worker is destroyed.
    let inbox = unsafe { &*argument.cast::<Inbox>() };
    inbox.lost.store(status, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls the callback as UCX does when a message arrives, and gives the status that the callback returns to UCX.
    /// `description` is UCX's description of a large message.
    fn arrives(inbox: &Inbox, number: u64, bytes: &[u8], description: Option<usize>) -> Status {
        let header = [inbox.token, number];
        let attributes = if description.is_some() { abi::MESSAGE_RENDEZVOUS } else { 0 };
        let params = MessageParams { attributes, reply_endpoint: std::ptr::null_mut() };
        let data = description.map_or(bytes.as_ptr().cast_mut().cast(), |address| address as *mut c_void);
        // SAFETY: the arguments are as UCX gives them. The function only stores the address of a description.
        unsafe {
            message_arrived(
                (&raw const *inbox).cast_mut().cast(),
                header.as_ptr().cast(),
                size_of_val(&header),
                data,
                bytes.len(),
                &raw const params,
            )
        }
    }

    #[test]
    fn a_second_message_of_one_number_is_a_fault_and_the_first_one_stays() {
        let inbox = Inbox::new(7);
        assert_eq!(arrives(&inbox, 1, &[0; 9], Some(0x1000)), abi::IN_PROGRESS);
        assert_eq!(arrives(&inbox, 2, &[2; 9], None), abi::OK);
        assert_eq!(inbox.wrong(), None);
        for (number, description) in [(1, Some(0x2000)), (1, None), (2, Some(0x2000)), (2, None)] {
            lock(&inbox.arrived).wrong = None;
            assert_eq!(arrives(&inbox, number, &[3; 5], description), abi::OK);
            assert!(inbox.wrong().is_some(), "message {number}");
        }
        assert!(matches!(inbox.take(2), Some(UnreadMessage::Small(bytes)) if bytes == [2; 9]));
        assert_eq!(lock(&inbox.arrived).held, 0);
        assert_eq!(inbox.take_large(), [0x1000 as *mut c_void]);
    }

    #[test]
    fn messages_of_one_byte_do_not_take_memory_without_end() {
        let inbox = Inbox::new(7);
        let count = (1..).find(|number| {
            arrives(&inbox, *number, &[1], None);
            inbox.wrong().is_some() || *number > (WAITING / LEAST) as u64 + 1
        });
        assert_eq!(count, Some((WAITING / LEAST) as u64 + 1));
        assert!(inbox.wrong().is_some());
    }
}
