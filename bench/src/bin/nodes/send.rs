//! The sender's side of each kind of transfer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossdock_bench::Daemon;
use crossdock_catalog::Memory;
use crossdock_client::{
    ConnectOptions, End, Handle, Item, ItemOptions, Message, Mode, Pattern, Port, PortOptions, Publisher, Region,
    SeriesOptions, Session, Variable,
};
use crossdock_files::{Announcement, Exchange, Keep, Publish, RemoteHosts, Service, entry_key};
use crossdock_layout::files::Phase;
use crossdock_os::Deadline;

use crate::content;
use crate::site::{Site, transports};

pub const WAIT: Option<Duration> = Some(Duration::from_secs(60));
/// The receiver's task.
pub const RECEIVER: &str = "receiver";
pub const PORT: &str = "messages";
/// The name of the managed directory.
pub const DIRECTORY: &str = "files";

pub trait Sender {
    /// Makes the object, or uses the object of the previous transfer again, and writes its bytes. Returns the object's
    /// name.
    fn write(&mut self, bytes: usize, number: u64) -> String;
    /// Hands the object over. The measured time begins with this call.
    fn send(&mut self);
    /// Cleans up when the receiver has had the object.
    fn done(&mut self) {}
}

/// All senders of node `a` in one site.
pub struct Senders {
    items: Items,
    messages: Messages,
    versions: Versions,
    files: Files,
}

impl Senders {
    /// Makes the senders. Messages have objects of at most `most` bytes.
    pub fn new(site: &Site, most: usize) -> Self {
        let session = join(&site.a, "sender");
        Self {
            items: Items { session: session.clone(), item: None },
            messages: Messages::new(&session, most),
            versions: Versions { session, all: BTreeMap::new(), present: 0 },
            files: Files::new(site),
        }
    }

    pub fn all(&mut self) -> [(&'static str, &mut dyn Sender); 4] {
        [
            ("item", &mut self.items),
            ("message", &mut self.messages),
            ("version", &mut self.versions),
            ("file", &mut self.files),
        ]
    }

    pub fn files_address(&self) -> &str {
        self.files.exchange.as_ref().expect("it runs").address()
    }
}

fn join(daemon: &Daemon, task: &str) -> Session {
    join_at(&daemon.socket(), task)
}

pub fn join_at(socket: &Path, task: &str) -> Session {
    let options = ConnectOptions {
        socket: Some(socket.to_owned()),
        task: Some(task.to_owned()),
        private_daemon: false,
        ..ConnectOptions::default()
    };
    Session::connect(&options).expect("the daemon answers")
}

/// Makes a new item for each transfer, and transfers it.
struct Items {
    session: Session,
    item: Option<Item>,
}

impl Sender for Items {
    fn write(&mut self, bytes: usize, number: u64) -> String {
        let name = format!("item-{number}");
        let mut item = self.session.create_item(&name, &ItemOptions::bytes(bytes as u64)).expect("room for it");
        content::write(&mut item.bytes_mut()[..bytes], number);
        self.item = Some(item);
        name
    }

    fn send(&mut self) {
        self.item.take().expect("it is here").transfer(RECEIVER).expect("transferred");
    }
}

/// Sends messages whose handles name blocks of bytes in a region of node `a`. There is one block for each size.
struct Messages {
    region: Region,
    port: Port,
    blocks: BTreeMap<usize, u64>,
    message: Message,
}

impl Messages {
    fn new(session: &Session, most: usize) -> Self {
        let room = most as u64 * 3 / 2;
        let region = session.region("objects", Mode::CreateOnly, room, None).expect("room for it");
        let options = PortOptions { pattern: Some(Pattern::OneToOne), capacity: 4, persistent: false };
        let port = session.port(PORT, End::Producer, &options, WAIT).expect("a port");
        Self { region, port, blocks: BTreeMap::new(), message: Message::new(Handle::NONE, 0) }
    }
}

impl Sender for Messages {
    fn write(&mut self, bytes: usize, number: u64) -> String {
        let region = &self.region;
        let block =
            *self.blocks.entry(bytes).or_insert_with(|| region.allocate(bytes as u64, 64).expect("room for it"));
        let mut content = vec![0; bytes];
        content::write(&mut content, number);
        crossdock_core::shared_access::copy_in(region.mapping(), block, &content).expect("within the region");
        self.message = Message::new(region.save(block).expect("a handle"), number);
        PORT.to_owned()
    }

    fn send(&mut self) {
        self.port.send(&self.message, WAIT).expect("sent");
    }

    fn done(&mut self) {
        self.port.reclaim(WAIT).expect("the block comes back");
    }
}

/// Publishes versions of one array, in which all bytes have changed. There is one series for each size.
struct Versions {
    session: Session,
    all: BTreeMap<usize, Publisher>,
    present: usize,
}

impl Sender for Versions {
    fn write(&mut self, bytes: usize, number: u64) -> String {
        let name = format!("series-{bytes}");
        let publisher = self.all.entry(bytes).or_insert_with(|| {
            let options = SeriesOptions::of(vec![Variable::new("u", "f64", &[bytes as u64 / 8])]);
            self.session.publisher(&name, &options).expect("a series")
        });
        let start = publisher.memory("u").expect("a variable of that name");
        // SAFETY: the variable has `bytes` bytes, and only this function uses them.
        content::write(unsafe { std::slice::from_raw_parts_mut(start, bytes) }, number);
        self.present = bytes;
        name
    }

    fn send(&mut self) {
        self.all.get_mut(&self.present).expect("it was written").publish(&[]).expect("room for a version");
    }
}

/// Writes files in a managed directory. The files go to the other node in the same way as the files of a run on two
/// hosts.
struct Files {
    root: PathBuf,
    service: Option<Service>,
    exchange: Option<Exchange>,
    open: Option<File>,
}

impl Files {
    fn new(site: &Site) -> Self {
        let root = PathBuf::from(format!("/dev/shm/crossdock-bench-a-{}-{}", site.name, std::process::id()));
        let service = service(&root);
        service.producers(Phase::Producing);
        let across = RemoteHosts { produces: true, readers: vec!["b".into()], ..RemoteHosts::default() };
        let transports = transports(site.papers.as_deref(), "a");
        let (address, files) = (format!("{}:0", site.own), site_of_files(None));
        let exchange = Exchange::start(&transports, "a", &address, &files, &[(DIRECTORY, &service, &across)]);
        Self { root, service: Some(service), exchange: Some(exchange.expect("an exchange")), open: None }
    }
}

/// Makes a site with a catalog that exists only in this process. The two nodes of the benchmark tell each other where
/// the files are served, so the transfer of a file does not depend on the catalog. `of_a` is the address of node `a`.
pub fn site_of_files(of_a: Option<&str>) -> crossdock_files::Site {
    let site = crossdock_files::Site {
        catalog: Arc::new(Memory::new()),
        name: "bench".into(),
        workflow: "bench".into(),
        lease: crossdock_files::Site::LEASE,
    };
    if let Some(address) = of_a {
        let announced = Announcement::producing(1, address);
        let key = entry_key(&site.name, &site.workflow, DIRECTORY, "a");
        let by = Deadline::after(Duration::from_secs(10));
        site.catalog.put(&key, &announced.value(), None, by).expect("a catalog in memory");
    }
    site
}

/// Starts the service of a managed directory that keeps one file.
pub fn service(root: &Path) -> Service {
    let notice = root.with_extension("notice");
    Service::start(root, &notice, "sender", Publish::Close, Keep::Newest(1)).expect("a managed directory")
}

impl Sender for Files {
    fn write(&mut self, bytes: usize, number: u64) -> String {
        let name = number.to_string();
        let mut content = vec![0; bytes];
        content::write(&mut content, number);
        let mut file = File::create(self.root.join("stage").join(&name)).expect("room");
        file.write_all(&content).expect("room");
        self.open = Some(file);
        name
    }

    fn send(&mut self) {
        self.open = None;
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        (self.exchange, self.service) = (None, None);
        remove(&self.root);
    }
}

/// Removes the store of a managed directory.
pub fn remove(root: &Path) {
    let _ = std::fs::remove_dir_all(root);
    let _ = std::fs::remove_file(root.with_extension("notice"));
}
