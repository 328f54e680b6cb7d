//! The side of gRPC that dials. A node makes one connection for each call.

use super::call::{Call, Outgoing, Pipes, receive};
use super::codec::{MESSAGE, PATH, Pieces};
use super::event_loop::{EventLoop, Spawn};
use super::socket::{Broken, Socket};
use super::{FRAME, SEND, WINDOW};
use crate::connection::Connection;
use crate::{Error, Result, Stream};
use crossdock_layout::Status;
use crossdock_os::Deadline;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};

/// Sends calls on one connection.
#[derive(Clone)]
struct Calling(SendRequest<Body>);

impl GrpcService<Body> for Calling {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// A connection for calls. It ends when this value is dropped and its last call has ended.
pub struct Caller {
    event_loop: Arc<EventLoop>,
    connection: Arc<Connection>,
    broken: Broken,
    grpc: Grpc<Calling>,
}

impl Caller {
    /// Exchanges the greeting of HTTP/2 on the connection. Each call contains the address that was dialed, from which a
    /// proxy knows where to send the call.
    ///
    /// # Errors
    /// The peer does not speak HTTP/2, or the deadline passed.
    pub fn open(event_loop: &Arc<EventLoop>, connection: Connection, deadline: Deadline) -> Result<Self> {
        let scheme = if connection.is_protected() { "https" } else { "http" };
        let origin = format!("{scheme}://{}", connection.address()).parse::<Uri>();
        let origin = origin.map_err(|error| Error::new(Status::Invalid, CONNECT, error.to_string()))?;
        let (connection, broken) = (Arc::new(connection), Broken::default());
        let spawn = event_loop.spawn().clone();
        let greeting = greet(spawn, connection.clone(), broken.clone());
        let calling = wait(event_loop, deadline, greeting)?.map_err(|status| broken.error(CONNECT, &status))?;
        let grpc = Grpc::with_origin(calling, origin).max_decoding_message_size(MESSAGE);
        Ok(Self { event_loop: event_loop.clone(), connection, broken, grpc })
    }

    /// Begins a call, and waits until the peer has accepted it.
    ///
    /// # Errors
    /// The peer refuses, the connection broke, or the deadline passed.
    pub fn call(&self, deadline: Deadline) -> Result<Arc<dyn Stream>> {
        let pipes = Pipes::default();
        let call = Call::new(pipes.clone(), self.connection.clone(), self.event_loop.clone());
        let (mut grpc, outgoing) = (self.grpc.clone(), Outgoing(pipes.outgoing));
        let asked = async move {
            let request = tonic::Request::new(outgoing);
            let answer = grpc.streaming(request, PathAndQuery::from_static(PATH), Pieces).await;
            answer.map(|answer| (answer.into_inner(), grpc))
        };
        let answer = wait(&self.event_loop, deadline, asked)?;
        let (from, grpc) = answer.map_err(|status| self.broken.error(CONNECT, &status))?;
        let broken = self.broken.clone();
        self.event_loop.spawn().spawn(async move {
            receive(from, pipes.incoming, broken).await;
            // The call has ended, so `grpc` is dropped. Until now, `grpc` has kept the connection open.
            drop(grpc);
        });
        Ok(Arc::new(call))
    }
}

const CONNECT: &str = "connect";

/// Runs an asynchronous task, and waits for its result until the deadline. If the task has no result at the deadline,
/// the task is ended.
fn wait<T: Send + 'static>(
    event_loop: &EventLoop,
    deadline: Deadline,
    task: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    let (done, result) = sync_channel(1);
    let task = event_loop.spawn().spawn(async move {
        // If the caller's deadline has passed, no thread receives the result, so a failed `send` is ignored.
        let _ = done.send(task.await);
    });
    result.recv_timeout(deadline.left()).map_err(|error| {
        task.abort();
        match error {
            RecvTimeoutError::Timeout => {
                Error::new(Status::TimedOut, CONNECT, "gRPC: the peer did not answer by the deadline")
            }
            RecvTimeoutError::Disconnected => Error::new(Status::System, CONNECT, "gRPC: its thread has ended"),
        }
    })
}

async fn greet(
    spawn: Spawn,
    connection: Arc<Connection>,
    broken: Broken,
) -> std::result::Result<Calling, tonic::Status> {
    let socket = Socket::new(connection, broken).map_err(|error| tonic::Status::from_error(Box::new(error)))?;
    let mut builder = Builder::new(spawn.clone());
    builder.initial_stream_window_size(WINDOW).initial_connection_window_size(2 * WINDOW);
    builder.max_frame_size(FRAME).max_send_buf_size(SEND);
    let handshake = builder.handshake(TokioIo::new(socket)).await;
    let (sender, work) = handshake.map_err(|error| tonic::Status::from_error(Box::new(error)))?;
    spawn.spawn(async move {
        // The result is ignored, because each call of the connection gets the connection's error as well.
        let _ = work.await;
    });
    Ok(Calling(sender))
}
