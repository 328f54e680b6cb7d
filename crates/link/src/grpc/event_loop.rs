//! The thread that runs the asynchronous tasks of gRPC. It starts with the first use of the transport gRPC, and ends
//! after the last use.

use crate::{Error, Result};
use crossdock_layout::Status;
use std::future::Future;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};

/// The thread waits at most this long for asynchronous tasks that are still closing connections.
const LINGER: Duration = Duration::from_secs(1);

/// Starts asynchronous tasks in the thread of the event loop.
#[derive(Clone)]
pub struct Spawn {
    handle: Handle,
    /// Each task holds a clone of this sender, so that the thread notices when the last task has ended.
    alive: mpsc::Sender<()>,
}

impl Spawn {
    /// Starts the future `task` as an asynchronous task in the thread of the event loop.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
        let alive = self.alive.clone();
        self.handle.spawn(async move {
            task.await;
            drop(alive);
        })
    }
}

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Spawn {
    fn execute(&self, task: F) {
        self.spawn(async move {
            task.await;
        });
    }
}

/// The thread that runs the asynchronous tasks of gRPC. Dropping this value ends the thread.
pub struct EventLoop {
    spawn: Option<Spawn>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl EventLoop {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread or no descriptor.
    pub fn start() -> Result<Self> {
        let failed = |error: std::io::Error| Error::new(Status::System, "start gRPC", error.to_string());
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (alive, mut ended) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel::<()>();
        let spawn = Spawn { handle: runtime.handle().clone(), alive };
        let run = move || {
            runtime.block_on(async {
                let _ = stopped.await;
                let _ = tokio::time::timeout(LINGER, ended.recv()).await;
            });
        };
        let thread = std::thread::Builder::new().name("crossdock-grpc".into()).spawn(run).map_err(failed)?;
        Ok(Self { spawn: Some(spawn), stop: Some(stop), thread: Some(thread) })
    }

    /// Gives the value that starts asynchronous tasks in the thread.
    pub fn spawn(&self) -> &Spawn {
        self.spawn.as_ref().expect("it is taken only in drop")
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        self.spawn = None;
        drop(self.stop.take());
        // This code may run in a task of the thread, because a task may drop the last stream. A thread cannot wait for
        // its own end, so in this case the code does not wait, and the thread ends after the task.
        let from_within = |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| !from_within(thread)) {
            // If the thread panicked, its message has been printed already, so the panic is ignored here.
            let _ = thread.join();
        }
    }
}
