//! A connection of this process to a workflow. It opens regions, ports, series and items.

use std::path::PathBuf;
use std::sync::Arc;

use crossdock_client::{ANY_SIZE, ConnectOptions, End, Mode, PortOptions, Session as Inner, Status};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};

use crate::errors::{OrRaise, error};
use crate::fork::Own;
use crate::handles::Handle;
use crate::item_words;
use crate::items::Item;
use crate::objects;
use crate::observing::Observer;
use crate::open_items::Access;
use crate::open_ports::OpenPort;
use crate::ports::Port;
use crate::publishing::{Declared, Publisher};
use crate::regions::Region;
use crate::session_state::SessionState;
use crate::sizes::{bytes_of, count, optional_small_count, small_count};
use crate::wait::{deadline, wait, wait_in_line};
use crate::words::member;

/// The connection of one member to a workflow. `crossdock.connect` makes it. It is a context manager. Threads may share
/// it. A forked child must connect a session of its own.
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Session {
    state: Arc<SessionState>,
}

/// Connects to the node daemon. It tries the given socket. If none is given, it tries the socket that CROSSDOCK_SOCKET
/// names, then that in /run/crossdock, then that in the user's runtime folder. If no daemon answers, it starts a
/// private daemon, unless `private_daemon` is False.
///
/// `task`, `rank` and `workflow` may be left out if the endpoint was made for a task. `timeout` is in seconds. Raises
/// NotFoundError if there is no daemon (the message lists the sockets that were tried), DeniedError if the daemon does
/// not serve this user or the endpoint is of another task, IncompatibleError if the daemon speaks another version of
/// the protocol, and TimedOutError if the daemon does not answer in time.
///
/// With `visitor=True` this session only looks, for example in a notebook or a monitor. Such a session neither begins a
/// run nor keeps a run from ending.
///
/// `run` names a living run of `crossdock run` by the same user: its id, the beginning of its id, or its workflow, as
/// `crossdock ps` prints them. NotFoundError names the runs that exist.
#[pyfunction]
#[pyo3(signature = (socket=None, *, task=None, rank=None, workflow=None, timeout=5.0, private_daemon=true, visitor=false, run=None))]
#[allow(clippy::too_many_arguments, reason = "keywords in Python")]
pub fn connect(
    py: Python<'_>,
    socket: Option<PathBuf>,
    task: Option<String>,
    rank: Option<u32>,
    workflow: Option<String>,
    timeout: f64,
    private_daemon: bool,
    visitor: bool,
    run: Option<&str>,
) -> PyResult<Py<Session>> {
    let (socket, workflow) = match run {
        None => (socket, workflow),
        Some(_) if socket.is_some() || workflow.is_some() => {
            let text = "run= says where the daemon is and which workflow; name no socket= and no workflow= besides";
            return Err(error(py, Status::Invalid, text));
        }
        Some(name) => {
            let (socket, workflow) = crossdock_client::runs::find(name).and_then(|run| run.place()).or_raise(py)?;
            (Some(socket), Some(workflow))
        }
    };
    let timeout = deadline(py, Some(timeout))?;
    let options = ConnectOptions { socket, task, rank, workflow, timeout, private_daemon, visitor };
    let session = py.detach(|| Inner::connect(&options)).or_raise(py)?;
    Py::new(py, Session { state: Arc::new(SessionState::new(session)) })
}

#[pymethods]
impl Session {
    /// The id of this member. No other member of this node ever gets it.
    #[getter]
    fn member(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.state.get(py)?.member().0)
    }

    /// The name of the task that this session acts as.
    #[getter]
    fn task(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.state.get(py)?.task().to_owned())
    }

    /// The number of the workflow's run that this session takes part in, counted from 1. Ports end with the run.
    #[getter]
    fn run(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.state.get(py)?.run())
    }

    /// The rank of this session in its task.
    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.state.get(py)?.rank())
    }

    /// The name of the workflow that this session takes part in.
    #[getter]
    fn workflow(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.state.get(py)?.workflow().to_owned())
    }

    /// Reports how far this task is: `done` of `of` steps. `crossdock ps`, `crossdock top`, the live view of `crossdock
    /// run`, the web page and the metrics show the report; no task waits for it. An `of` of 0 withdraws the report. The
    /// call never waits for the daemon, so it can be made in every iteration. Raises InvalidError if `done` is more
    /// than `of`.
    fn progress(&self, py: Python<'_>, done: &Bound<'_, PyAny>, of: &Bound<'_, PyAny>) -> PyResult<()> {
        let (done, of) = (count(done)?, count(of)?);
        self.state.get(py)?.progress(done, of).or_raise(py)
    }

    /// True if the session was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.state.is_over()
    }

    /// Opens or makes a region.
    ///
    /// `mode` is open_or_create, open_only, create_only or recreate. `size` is what a new region can grow to, in bytes
    /// or as a text such as "512 MiB"; memory is taken when it is used. If `size` is None, an existing region may have
    /// any size, and a new region can grow to 1 GiB. `timeout` is how many seconds open_only waits for another task to
    /// make the region (None: it does not wait). Raises ExistsError if create_only finds a region, NotFoundError if
    /// open_only without a timeout finds none, TimedOutError if open_only with a timeout finds none, InvalidError for a
    /// wrong name or size or if the existing region is smaller, NoSpaceError if the quota or the node's memory does not
    /// suffice, and DeniedError without a grant.
    #[pyo3(signature = (name, mode="open_or_create", size=None, *, timeout=None))]
    fn region(
        &self,
        py: Python<'_>,
        name: &str,
        mode: &str,
        size: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Region> {
        let way: Mode = member(py, "mode", mode)?;
        let size = size.map_or(Ok(ANY_SIZE), bytes_of)?;
        let session = self.state.get(py)?;
        let region = match timeout {
            Some(seconds) if way == Mode::OpenOnly && seconds != 0.0 => {
                let total = deadline(py, Some(seconds))?;
                wait(py, total, |slice| session.region(name, way, size, Some(slice)))?
            }
            _ => py.detach(|| session.region(name, way, size, None)).or_raise(py)?,
        };
        Ok(Region::new(self.state.shared(region)))
    }

    /// Copies the region `name` of any node of the site to this node, under the name `copy`, and opens the copy. The
    /// copy has the bytes of one moment in which no task had the region open. Handles that were saved in the region are
    /// valid in the copy.
    ///
    /// Within `timeout` seconds (None: 60) the call waits for the region to be made, and for all tasks to close it.
    /// Raises BusyError if a task still has the region open at the deadline (the message names the task), ExistsError
    /// if the name `copy` is taken, NotFoundError if no node has the region, NoSpaceError if the quota or this node's
    /// memory does not suffice, DeniedError without the grants, TimedOutError if the copying takes too long, and
    /// DisconnectedError if the region's node or the catalog was lost meanwhile. After an error there is no copy.
    #[pyo3(signature = (name, copy, *, timeout=None))]
    fn copy_region(&self, py: Python<'_>, name: &str, copy: &str, timeout: Option<f64>) -> PyResult<Region> {
        let (session, total) = (self.state.get(py)?, deadline(py, timeout)?);
        let region = py.detach(|| session.copy_region(name, copy, total)).or_raise(py)?;
        Ok(Region::new(self.state.shared(region)))
    }

    /// Moves the region `name` of any node of the site to this node, and opens it. The region keeps its name, and its
    /// handles stay valid. A region that is on this node already is only opened. `timeout` and errors are as for
    /// copy_region. After an error the region is where it was.
    #[pyo3(signature = (name, *, timeout=None))]
    fn move_region(&self, py: Python<'_>, name: &str, timeout: Option<f64>) -> PyResult<Region> {
        let (session, total) = (self.state.get(py)?, deadline(py, timeout)?);
        let region = py.detach(|| session.move_region(name, total)).or_raise(py)?;
        Ok(Region::new(self.state.shared(region)))
    }

    /// Removes the name of a region. Tasks that have the region open keep it. The memory is freed when the last task
    /// closes it.
    fn remove_region(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let session = self.state.get(py)?;
        py.detach(|| session.remove_region(name)).or_raise(py)
    }

    /// Opens one end of a port; `end` is "producer" or "consumer". The first task that opens an end also makes the port,
    /// so tasks may start in any order.
    ///
    /// `pattern` is one-to-one, fan-out (each consumer gets each message), fan-in, or work-queue (each message goes to
    /// one consumer). `capacity` is the number of messages in flight, a power of two up to 4096. If
    /// `pattern` or `capacity` is None, an existing port keeps the value from the task or workflow file that made it,
    /// and a new port is one-to-one with 8 messages. If a value is given and differs from that of the port, an
    /// InvalidError is raised. If another living member has the end, the call waits `timeout` seconds for it (None: it
    /// does not wait). `persistent` matters only if this call makes the port. A persistent port stays with its messages
    /// after the run, until it is removed; another port ends when the last member of the run leaves. Raises BusyError
    /// if the other member still has the end, InvalidError for a wrong name or capacity, DeniedError without a grant
    /// for this end, and NoSpaceError if the quota or the node's memory does not suffice.
    #[pyo3(signature = (name, end, *, pattern=None, capacity=None, timeout=None, persistent=false))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn port(
        &self,
        py: Python<'_>,
        name: &str,
        end: &str,
        pattern: Option<&str>,
        capacity: Option<Bound<'_, PyAny>>,
        timeout: Option<f64>,
        persistent: bool,
    ) -> PyResult<Port> {
        let side: End = member(py, "end", end)?;
        let pattern = pattern.map(|word| member(py, "pattern", word)).transpose()?;
        let capacity = match capacity.map(|given| count(&given)).transpose()? {
            None => 0,
            Some(0) => {
                return Err(error(
                    py,
                    Status::Invalid,
                    format!("port {name}: a capacity of 0 messages; it is 1 to 4096"),
                ));
            }
            // A capacity that does not fit into 32 bits becomes the largest number of 32 bits, which is refused like
            // every capacity above 4096.
            Some(given) => u32::try_from(given).unwrap_or(u32::MAX),
        };
        let options = PortOptions { pattern, capacity, persistent };
        let session = self.state.get(py)?;
        let port = match timeout {
            Some(seconds) => {
                let total = deadline(py, Some(seconds))?;
                wait(py, total, |slice| session.port(name, side, &options, Some(slice)))?
            }
            None => py.detach(|| session.port(name, side, &options, None)).or_raise(py)?,
        };
        let shape = port.shape();
        let port = Arc::new(OpenPort::new(name, port));
        self.state.keep_port(&port);
        Ok(Port::new(port, self.state.clone(), side, shape.pattern, shape.capacity))
    }

    /// Removes the name of a port. Members that have the port open keep it.
    fn remove_port(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let session = self.state.get(py)?;
        py.detach(|| session.remove_port(name)).or_raise(py)
    }

    /// Makes an item that this task owns. It has `size` zero bytes, or room for an array of this dtype, shape and
    /// order. If a dtype is given, the item keeps dtype, shape and order for later owners.
    ///
    /// `level` says how ownership is proved: "verified" (the kernel proves that the former owner has closed the item;
    /// otherwise the new owner gets a copy), "cooperative" (for tasks that trust each other; a transfer needs no call
    /// to the daemon) or "strict" (each owner gets fresh pages). `on_death` says what happens to the item when its
    /// owner dies: "keep" (the restarted task gets it), "return" (this task gets it back) or "destroy". Raises
    /// ExistsError if an item has this key (the message names its owner), NoSpaceError if the quota or the node's
    /// memory does not suffice, InvalidError for a wrong key, size or description, and DeniedError without a grant to
    /// own the item.
    #[pyo3(signature = (key, size=None, *, dtype=None, shape=None, order="C", level="verified", on_death="keep"))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn create_item(
        &self,
        py: Python<'_>,
        key: &str,
        size: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        shape: Option<&Bound<'_, PyAny>>,
        order: &str,
        level: &str,
        on_death: &str,
    ) -> PyResult<Item> {
        let options = item_words::options_of(py, key, size, (dtype, shape, order), (level, on_death))?;
        let session = self.state.get(py)?;
        let made = py.detach(|| session.create_item(key, &options)).or_raise(py)?;
        Ok(Item::new(&self.state, Access::Own(Own::new(made))))
    }

    /// Waits until this task owns the item, and opens it. The item need not exist yet. Waiting tasks are served in the
    /// order of their calls.
    ///
    /// `timeout` is in seconds (None: 60). With 0 it raises NotYetError if another task owns the item, and
    /// NotFoundError if the item does not exist. TimedOutError names the owner and tells since when it has the item.
    /// NotFoundError after a wait means that the item was destroyed meanwhile. BusyError means that this session has
    /// the item open already.
    #[pyo3(signature = (key, *, timeout=None))]
    fn access_item(&self, py: Python<'_>, key: String, timeout: Option<f64>) -> PyResult<Item> {
        let total = deadline(py, timeout)?;
        let session = self.state.get(py)?;
        let got = wait_in_line(py, total, move |wait| session.access_item(&key, wait))?;
        Ok(Item::new(&self.state, Access::Own(Own::new(got))))
    }

    /// Waits as `access_item` does for several items, and opens the first one that this task owns. The `key` of the
    /// returned item tells which one it is. There may be at most 24 keys.
    #[pyo3(signature = (keys, *, timeout=None))]
    fn access_any(&self, py: Python<'_>, keys: Vec<String>, timeout: Option<f64>) -> PyResult<Item> {
        let total = deadline(py, timeout)?;
        let session = self.state.get(py)?;
        let got = wait_in_line(py, total, move |wait| {
            session.access_any_item(&keys.iter().map(String::as_str).collect::<Vec<_>>(), wait)
        })?;
        Ok(Item::new(&self.state, Access::Own(Own::new(got))))
    }

    /// Waits until the owner of an item shares it, and opens it for reading. This process cannot write the item. Close
    /// the item (for example with `with`), so that the owner can take it back. The timeout and the errors are those of
    /// `access_item`.
    #[pyo3(signature = (key, *, timeout=None))]
    fn read_item(&self, py: Python<'_>, key: String, timeout: Option<f64>) -> PyResult<Item> {
        let total = deadline(py, timeout)?;
        let session = self.state.get(py)?;
        let got = wait_in_line(py, total, move |wait| session.read_item(&key, wait))?;
        Ok(Item::new(&self.state, Access::Read(Own::new(got))))
    }

    /// Returns what the daemon knows about an item of this workflow, even if another task owns it. Raises NotFoundError
    /// if there is no item of this key. In a site, the call waits up to 5 s for an item that is on its way between two
    /// nodes. It then raises TimedOutError if the item has not arrived, and DisconnectedError if its node or the
    /// catalog does not answer.
    fn find_item<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        let session = self.state.get(py)?;
        let found = py.detach(|| session.find_item(key)).or_raise(py)?;
        item_words::info_of(py, &found)
    }

    /// Gives this rank of this task a number as a second name: `transfer("#7")` goes to the rank that registered 7,
    /// even if it registers the number later. Raises ExistsError if another rank or task has the number.
    fn register_number(&self, py: Python<'_>, #[pyo3(from_py_with = count)] number: u64) -> PyResult<()> {
        let session = self.state.get(py)?;
        py.detach(|| session.register_number(number)).or_raise(py)
    }

    /// Begins to publish a series. `variables` is a dict from names to (dtype, shape), or to a dtype for a single
    /// value. The program reads and changes the array of a variable `u` in place, as `publisher.u` or `publisher["u"]`.
    ///
    /// `max_shape` is a dict from names to the largest shapes. `constants` is a dict from names to dicts of values that
    /// never change. `attributes` is a dict from names to int, float or str, for attributes that the versions will
    /// have; other attributes are declared by the first publish that has them. `capacity` is the largest size of the
    /// pool, in bytes or as a text such as "1 GiB" (None: the quota of the workflow is the limit). `keep` is the number
    /// of versions that are kept besides the newest. `full` says what happens when observers use all memory: "withhold"
    /// (publish returns 0, and the next version has the changes), "fail" (NoSpaceError) or "take_back" (the oldest
    /// versions are taken back, and their observers read private copies). `detect` is auto, hints, private_copies,
    /// write_protect, copy_all or compare. `pages` is "stay", so that the arrays can be registered (RDMA, io_uring,
    /// CUDA), or "may_move", which allows private copies and may need half the memory. Raises ExistsError if a living
    /// publisher has the name (the message names it), InvalidError for a wrong name, type, shape or size, DeniedError
    /// without a grant to publish the series, and NoSpaceError if the quota or the node's memory does not suffice.
    #[pyo3(signature = (name, variables, *, max_shape=None, constants=None, attributes=None, capacity=None, chunk=None,
                        keep=0, max_observers=64, full="withhold", detect="auto", pages="stay"))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn publisher(
        &self,
        py: Python<'_>,
        name: &str,
        variables: &Bound<'_, PyDict>,
        max_shape: Option<&Bound<'_, PyDict>>,
        constants: Option<&Bound<'_, PyDict>>,
        attributes: Option<&Bound<'_, PyDict>>,
        capacity: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_small_count)] chunk: Option<u32>,
        #[pyo3(from_py_with = small_count)] keep: u32,
        #[pyo3(from_py_with = small_count)] max_observers: u32,
        full: &str,
        detect: &str,
        pages: &str,
    ) -> PyResult<Publisher> {
        let session = self.state.get(py)?;
        let declared = Declared { variables, max_shape, constants, attributes, full, detect, pages };
        let mut options = declared.options(py)?;
        options.capacity = capacity.map(bytes_of).transpose()?;
        (options.chunk, options.keep, options.max_observers) = (chunk, keep, max_observers);
        let (publisher, open_publisher) = Publisher::open(py, &session, name, &options)?;
        self.state.keep_series(&open_publisher);
        Ok(publisher)
    }

    /// Observes the series of this name in the current run. Waits up to `timeout` seconds for it (None: it does not
    /// wait). `run="former"` takes the latest series of this name from any run, even one that has ended. Raises
    /// NotFoundError if there is no such series and `timeout` is None, TimedOutError if no such series comes within
    /// `timeout`, DeniedError without a grant to observe the series, and NoSpaceError if the series already has as many
    /// observers as it allows.
    #[pyo3(signature = (name, *, timeout=None, run="current"))]
    fn observe(&self, py: Python<'_>, name: &str, timeout: Option<f64>, run: &str) -> PyResult<Observer> {
        let session = self.state.get(py)?;
        let observe = match run {
            "current" => crossdock_client::Session::observe,
            "former" => crossdock_client::Session::observe_former,
            _ => {
                let text = format!("run '{run}' is neither 'current' nor 'former'");
                return Err(error(py, Status::Invalid, text));
            }
        };
        let observer = match timeout {
            Some(seconds) if seconds != 0.0 => {
                let total = deadline(py, Some(seconds))?;
                wait(py, total, |slice| observe(&session, name, slice))?
            }
            _ => py.detach(|| observe(&session, name, std::time::Duration::ZERO)).or_raise(py)?,
        };
        Ok(Observer::new(observer))
    }

    /// Removes the name of a series. Observers keep their versions. Raises BusyError while the series is being
    /// published.
    fn remove_series(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let session = self.state.get(py)?;
        py.detach(|| session.remove_series(name)).or_raise(py)
    }

    /// Loads the object that a handle names, from any region of the workflow. If this process has not opened the region
    /// yet, the call opens it. The argument `type` and the errors are those of `Region.load`.
    #[pyo3(signature = (handle, r#type=None))]
    fn load<'py>(
        &self,
        py: Python<'py>,
        handle: Handle,
        r#type: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let open_region = self.state.region_of(py, handle.into())?;
        objects::load(py, &open_region, handle.into(), r#type, None)
    }

    /// Lists the workflows, members and segments that this task may see.
    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let session = self.state.get(py)?;
        let listing = py.detach(|| session.list()).or_raise(py)?;
        let records = py.import("crossdock._records")?;
        let (workflow, member) = (records.getattr("WorkflowInfo")?, records.getattr("MemberInfo")?);
        let segment = records.getattr("SegmentInfo")?;
        let lists = [PyList::empty(py), PyList::empty(py), PyList::empty(py)];
        for w in listing.workflows {
            lists[0].append(workflow.call1((w.name, w.quota, w.reserved))?)?;
        }
        for m in listing.members {
            lists[1].append(member.call1((
                m.id.0,
                m.workflow,
                m.task,
                m.rank,
                m.pid,
                m.uid,
                m.connected,
                m.progress,
            ))?)?;
        }
        for s in listing.segments {
            let kind = s.kind.word();
            let since = s.since_ms as f64 / 1e3;
            lists[2].append(segment.call1((
                s.id.0,
                kind,
                s.workflow,
                s.name,
                s.size,
                s.reserved,
                s.creator.0,
                since,
            ))?)?;
        }
        let [workflows, members, segments] = lists;
        records.getattr("Listing")?.call1((workflows, members, segments))
    }

    /// Closes all ports and regions, and leaves the workflow. Raises BusyError if arrays of a region are alive; in this
    /// case nothing is closed. Closing twice does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.state.is_elsewhere() {
            for open_region in self.state.open_regions() {
                open_region.refuse_if_any_view(py)?;
            }
        }
        self.state.leave(py)
    }

    /// Closes the session as `close` does, but allows arrays that are still alive: they keep their memory until they
    /// are gone.
    fn _leave(&self, py: Python<'_>) -> PyResult<()> {
        self.state.leave(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Closes the session at the end of a `with` block. Arrays that are still alive keep their memory. If the block
    /// failed, the session is not closed. If the error then ends the program, peers see that the program died.
    #[pyo3(signature = (kind, _value, _trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyType>>,
        _value: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if kind.is_none() { self.state.leave(py) } else { Ok(()) }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.state.get(py) {
            Ok(s) => format!(
                "<crossdock.Session: task '{}' rank {} of workflow '{}', member {}>",
                s.task(),
                s.rank(),
                s.workflow(),
                s.member().0
            ),
            Err(_) => "<crossdock.Session: closed>".to_owned(),
        }
    }
}
