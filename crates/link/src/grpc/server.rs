//! The side of gRPC that accepts calls. A node makes one connection for each call; a proxy may send several calls on
//! one connection.

use super::call::{Answer, Call, Outgoing, Pipes, receive};
use super::codec::{MESSAGE, PATH, Pieces};
use super::event_loop::{EventLoop, Spawn};
use super::socket::{Broken, Socket};
use super::{FRAME, SEND, WINDOW};
use crate::connection::Connection;
use crate::{Arriving, Error, Result, Stream};
use bytes::Bytes;
use crossdock_layout::Status;
use crossdock_os::{Deadline, event};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Ready;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::server::{Grpc, StreamingService};
use tonic::{Code, Streaming};

/// How many calls one connection may have at the same time.
const CALLS: u32 = 256;
/// How many gRPC calls of other nodes may wait until the listener takes them.
const WAITING: usize = 64;
/// A connection without a call is closed after this time.
const IDLE: Duration = Duration::from_secs(60);
/// After its listener has ended, a connection ends at most this long after its last call.
const LINGER: Duration = Duration::from_secs(1);
/// How many bytes the header fields of a call may have.
const HEADERS: u32 = 16 << 10;

/// The calls that arrive at one listener. After this value is dropped, their connections take no further calls, and each
/// connection ends with the last of its calls.
pub struct IncomingCalls {
    event_loop: Arc<EventLoop>,
    queue: Arc<Queue>,
    stop: watch::Sender<()>,
}

/// The calls that wait until the listener takes them, and a descriptor that is readable while this queue is not empty.
struct Queue {
    calls: Mutex<VecDeque<Call>>,
    bell: OwnedFd,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IncomingCalls {
    pub fn new(event_loop: Arc<EventLoop>) -> Result<Self> {
        let bell = event::eventfd().map_err(|error| Error::new(Status::System, "listen", error.to_string()))?;
        Ok(Self { event_loop, queue: Arc::new(Queue { calls: Mutex::default(), bell }), stop: watch::channel(()).0 })
    }

    /// Gives a descriptor that is readable while calls wait.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.queue.bell.as_fd()
    }

    /// Takes the next call that waits.
    pub fn next(&self) -> Option<Box<dyn Arriving>> {
        let mut calls = self.queue.lock();
        let next = calls.pop_front();
        event::clear(&self.queue.bell);
        if !calls.is_empty() {
            event::signal(&self.queue.bell);
        }
        next.map(|call| Box::new(QueuedCall(call)) as Box<dyn Arriving>)
    }

    /// Serves a connection, and waits for its first call. Its further calls wait for [`Self::next`].
    ///
    /// # Errors
    /// No call came by the deadline. The connection is ended.
    pub fn first(&self, connection: Connection, deadline: Deadline) -> Result<Arc<dyn Stream>> {
        let address = connection.address().to_owned();
        let (first, came) = sync_channel(1);
        let served = ServedConnection {
            connection: Arc::new(connection),
            event_loop: Arc::downgrade(&self.event_loop),
            spawn: self.event_loop.spawn().clone(),
            queue: Arc::downgrade(&self.queue),
            first: Mutex::new(Some(first)),
            broken: Broken::default(),
            calls: Arc::new(()),
        };
        let broken = served.broken.clone();
        let task = self.event_loop.spawn().spawn(serve(Arc::new(served), self.stop.subscribe()));
        match came.recv_timeout(deadline.left()) {
            Ok(call) => Ok(Arc::new(call)),
            Err(RecvTimeoutError::Timeout) => {
                task.abort();
                Err(Error::new(Status::TimedOut, "accept", "gRPC: no call came by the deadline").at(&address))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let ended = tonic::Status::new(Code::Unavailable, "the connection ended without a call");
                Err(broken.error("accept", &ended).at(&address))
            }
        }
    }
}

impl Drop for IncomingCalls {
    fn drop(&mut self) {
        // Each waiting call keeps the event loop and its thread alive. Whichever thread drops the last call has to wait
        // for the end of the event loop's thread. The event loop's thread cannot do this, because no thread can wait
        // for its own end. So this function drops the waiting calls, and leaves none to the event loop.
        self.queue.lock().clear();
    }
}

/// A call that came on a connection which had brought another call before.
struct QueuedCall(Call);

impl Arriving for QueuedCall {
    fn address(&self) -> &str {
        self.0.address()
    }

    fn establish(self: Box<Self>, _deadline: Deadline) -> Result<Arc<dyn Stream>> {
        Ok(Arc::new(self.0))
    }
}

/// A connection that a peer has made, with what its calls use.
struct ServedConnection {
    connection: Arc<Connection>,
    event_loop: Weak<EventLoop>,
    spawn: Spawn,
    queue: Weak<Queue>,
    /// Hands the connection's first call to the thread that waits for it.
    first: Mutex<Option<SyncSender<Call>>>,
    broken: Broken,
    /// Each call holds a clone of this `Arc` as long as it receives bytes. So the number of clones tells whether the
    /// connection still has a call.
    calls: Arc<()>,
}

/// Serves a connection until it ends or has no call for too long. After the connection's listener has ended, serves only
/// the calls that the connection already has.
async fn serve(served: Arc<ServedConnection>, mut stop: watch::Receiver<()>) {
    let Ok(socket) = Socket::new(served.connection.clone(), served.broken.clone()) else { return };
    let mut builder = Builder::new(served.spawn.clone());
    builder.timer(TokioTimer::new());
    builder.initial_stream_window_size(WINDOW).initial_connection_window_size(2 * WINDOW);
    builder.max_frame_size(FRAME).max_send_buf_size(SEND).max_concurrent_streams(CALLS);
    builder.max_header_list_size(HEADERS).auto_date_header(false);
    let answering = served.clone();
    let service = service_fn(move |request| answer(answering.clone(), request));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), service));
    let ends = async {
        let mut had_calls = true;
        loop {
            tokio::select! {
                _ = stop.changed() => return,
                () = tokio::time::sleep(IDLE) => {}
            }
            let has_calls = served.has_calls();
            if !has_calls && !had_calls {
                return;
            }
            had_calls = has_calls;
        }
    };
    tokio::select! {
        _ = connection.as_mut() => {}
        () = ends => {
            connection.as_mut().graceful_shutdown();
            let mut had_calls = true;
            while had_calls && tokio::time::timeout(LINGER, connection.as_mut()).await.is_err() {
                had_calls = served.has_calls();
            }
        }
    }
}

async fn answer(
    served: Arc<ServedConnection>,
    request: Request<Incoming>,
) -> std::result::Result<Response<Body>, Infallible> {
    if request.uri().path() != PATH {
        let reason = format!("this is a node of crossdock, which answers {PATH}");
        return Ok(tonic::Status::unimplemented(reason).into_http());
    }
    Ok(Grpc::new(Pieces).max_decoding_message_size(MESSAGE).streaming(Accepting(served), request).await)
}

struct Accepting(Arc<ServedConnection>);

impl StreamingService<Bytes> for Accepting {
    type Response = Bytes;
    type ResponseStream = Answer;
    type Future = Ready<std::result::Result<tonic::Response<Answer>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<Bytes>>) -> Self::Future {
        std::future::ready(self.0.begin(request.into_inner()).map(tonic::Response::new))
    }
}

impl ServedConnection {
    /// Tells whether the connection has a call that still receives bytes.
    fn has_calls(&self) -> bool {
        Arc::strong_count(&self.calls) > 1
    }

    /// Makes a stream of a call, and hands it to the listener.
    fn begin(&self, from: Streaming<Bytes>) -> std::result::Result<Answer, tonic::Status> {
        let ends = || tonic::Status::unavailable("this node ends");
        let (event_loop, queue) = self.event_loop.upgrade().zip(self.queue.upgrade()).ok_or_else(ends)?;
        let pipes = Pipes::default();
        let call = Call::new(pipes.clone(), self.connection.clone(), event_loop);
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        match first {
            Some(first) => first.send(call).map_err(|_| ends())?,
            None => {
                let mut calls = queue.lock();
                if calls.len() >= WAITING {
                    return Err(tonic::Status::resource_exhausted(format!("{WAITING} calls wait already")));
                }
                calls.push_back(call);
                event::signal(&queue.bell);
            }
        }
        let (counted, broken, incoming) = (self.calls.clone(), self.broken.clone(), pipes.incoming);
        self.spawn.spawn(async move {
            receive(from, incoming, broken).await;
            drop(counted);
        });
        Ok(Answer(Outgoing(pipes.outgoing)))
    }
}
