//! A client's connection to the keeper of its host. The client starts a keeper if none is running.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossdock_os::{socket, spawn};

use super::container;
use super::job::Job;
use super::job_folder::{self, JobFolder};
use crate::engine::tool;

/// How long a keeper may take from its start until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client's connection to the keeper that an MPI job has on this host.
pub struct Session {
    /// The socket that leads to the keeper.
    pub keeper: OwnedFd,
    /// The job's folder on this host.
    pub place: JobFolder,
    job: Job,
    own: Option<Child>,
}

impl Session {
    /// Connects to the job's keeper on this host, or starts the keeper first.
    pub fn join(job: &Job) -> Result<Self, String> {
        let place = JobFolder::of(&job.id);
        let end = Instant::now() + PATIENCE;
        let mut own: Option<(Child, File)> = None;
        loop {
            if let Ok(keeper) = socket::connect(&place.client_socket()) {
                return Ok(Self { keeper, place, job: job.clone(), own: own.map(|(child, _)| child) });
            }
            match &mut own {
                None => {
                    job_folder::sweep();
                    place.make()?;
                    own = Some(start(job, &place)?);
                }
                // If the keeper that was started here ended with success, another client's keeper had the lock, so the
                // loop connects to that keeper.
                Some((child, log)) => match child.try_wait() {
                    Ok(Some(status)) if !status.success() => {
                        // The keeper has removed its folder with the log in it. But this process still has the log
                        // open, and reads the reason of the failure from the log.
                        let mut words = String::new();
                        let _ = log.rewind().and_then(|()| log.read_to_string(&mut words));
                        place.remove();
                        let why = tool::reason_in(&words).map_or_else(|| status.to_string(), str::to_owned);
                        return Err(format!("the job's keeper did not come up: {why}"));
                    }
                    _ => {}
                },
            }
            if Instant::now() > end {
                return Err(format!("the job's keeper did not listen within {} s", PATIENCE.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Disconnects. If this session started the keeper, waits until the keeper has removed everything. If the keeper
    /// was killed, removes what is left.
    pub fn end(self) {
        let Self { keeper, place, job, own } = self;
        // Other threads may have copies of the descriptor, so closing it here alone would not end the connection.
        socket::shut_down(&keeper);
        drop(keeper);
        let Some(mut child) = own else { return };
        let end = Instant::now() + Duration::from_secs(25);
        while Instant::now() < end {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return,
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                _ => break,
            }
        }
        let _ = child.kill();
        let _ = child.wait();
        clean(&job, &place);
    }

    /// Disconnects. If this session started the keeper, waits for the keeper's end; the keeper ends only after its last
    /// client has disconnected.
    pub fn end_with_last(self) {
        socket::shut_down(&self.keeper);
        drop(self.keeper);
        let Some(mut child) = self.own else { return };
        if !child.wait().is_ok_and(|status| status.success()) {
            clean(&self.job, &self.place);
        }
    }

    /// Gives the path of the keeper's folder for the commands of the job: the path in the container, or, without a
    /// container, the path on the host.
    pub fn place_of(&self, job: &Job) -> String {
        if job.engine == "process" {
            return self.place.inside().to_string_lossy().into_owned();
        }
        crossdock_shim::PLACE.into()
    }

    /// Removes what a killed keeper left. Does nothing while a keeper lives.
    pub fn clean(&self) {
        clean(&self.job, &self.place);
    }
}

/// Removes what the job's keeper on this host has left, as soon as the keeper has ended.
pub fn clean_soon(job: &Job, patience: Duration) {
    let place = JobFolder::of(&job.id);
    let end = Instant::now() + patience;
    while place.folder.exists() && Instant::now() < end {
        clean(job, &place);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn clean(job: &Job, place: &JobFolder) {
    if matches!(place.lock(), Ok(Some(_))) {
        container::remove(job, (job.engine == "docker").then(|| container::image_name(job)).as_deref());
        // After the keeper's end, init and the ranks take a moment to end, and may still write files. So the folder is
        // removed after a short wait.
        std::thread::sleep(Duration::from_millis(50));
        place.remove();
    }
}

/// Starts the keeper, and opens its log for reading.
fn start(job: &Job, place: &JobFolder) -> Result<(Child, File), String> {
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let path = place.folder.join("keeper.log");
    let trouble = |e: std::io::Error| format!("cannot make the keeper's log: {e}");
    let log = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path).map_err(trouble)?;
    let errors = log.try_clone().map_err(trouble)?;
    let mut child = spawn::start(
        Command::new(program)
            .arg(super::KEEPER)
            .arg(&place.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(errors),
    )
    .map_err(|e| format!("cannot start the job's keeper: {e}"))?;
    let text = serde_json::to_string(job).map_err(|e| e.to_string())?;
    if let Some(mut input) = child.stdin.take() {
        // A keeper that ends early writes the reason into its log, so an error of writing to the keeper's input is
        // ignored.
        let _ = input.write_all(text.as_bytes());
    }
    Ok((child, log))
}
