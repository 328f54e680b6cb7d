//! Tests of what hosts do through the catalog. The tests are the same for every kind of catalog. A test here is called
//! a claim: a function whose argument makes clients of one catalog.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossdock_catalog::Catalog;
use crossdock_core::files::{FileWaitOutcome, Views};
use crossdock_files::{Announcement, Exchange, HostRole, Keep, Publish, RemoteHosts, Service, Site, entry_key};
use crossdock_layout::files::Phase;
use crossdock_link::{Choice, Transports, Trust};
use crossdock_os::Deadline;
pub use crossdock_os::testing::until;

const LONG: Duration = Duration::from_secs(120);

/// A function that makes a new client of the test's catalog with each call.
pub type Clients<'a> = &'a dyn Fn() -> Arc<dyn Catalog>;

/// A claim about hosts that use one catalog.
pub type Claim = fn(Clients<'_>);

/// The claims that hold for every catalog.
pub const CLAIMS: &[(&str, Claim)] = &[
    ("hosts meet whichever starts first", hosts_meet_whichever_starts_first),
    ("entries say what each host has, and go with the host", entries_say_what_each_host_has_and_go_with_the_host),
    ("a bad entry is ignored and named", a_bad_entry_is_ignored_and_named),
    ("an entry that another process overwrites is written again", an_overwritten_entry_is_written_again),
    ("a service that is started anew is met again", a_service_that_is_started_anew_is_met_again),
];

pub fn soon() -> Deadline {
    Deadline::after(LONG)
}

/// Gives a site for one claim alone, so that no claim finds the hosts of another claim.
pub fn site(catalog: Arc<dyn Catalog>, name: &str) -> Site {
    Site { catalog, name: name.into(), workflow: "flow/x".into(), lease: Duration::from_secs(1) }
}

/// A host of the test, with a store of its own and one managed directory.
pub struct Host {
    name: &'static str,
    pub root: PathBuf,
    across: RemoteHosts,
    exchange: Option<Exchange>,
    service: Option<Service>,
}

impl Host {
    /// Starts the host `a` with producers.
    pub fn producers(site: &Site) -> Self {
        let across = RemoteHosts { produces: true, readers: vec!["b".into()], ..RemoteHosts::default() };
        Self::start("a", across, site)
    }

    /// Starts the host `b` with consumers.
    pub fn consumers(site: &Site) -> Self {
        let across = RemoteHosts { consumes: true, origins: vec!["a".into()], wait: LONG, ..RemoteHosts::default() };
        Self::start("b", across, site)
    }

    fn start(name: &'static str, across: RemoteHosts, site: &Site) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = PathBuf::from(format!("/dev/shm/crossdock-meeting-{}-{number}", std::process::id()));
        let mut host = Self { name, root, across, exchange: None, service: None };
        host.restart(site);
        host
    }

    /// Starts the service of the host, and its exchange with other hosts.
    pub fn restart(&mut self, site: &Site) {
        let notice = self.root.with_extension("notice");
        let service = Service::start(&self.root, &notice, "simulate on a", Publish::Close, Keep::All).unwrap();
        let transports = Transports::new(&Trust::Loopback, Choice::Auto).unwrap();
        let directories = [("frames", &service, &self.across)];
        let exchange = Exchange::start(&transports, self.name, "127.0.0.1:0", site, &directories).unwrap();
        (self.service, self.exchange) = (Some(service), Some(exchange));
    }

    /// Ends the service and the exchange.
    pub fn end(&mut self) {
        (self.exchange, self.service) = (None, None);
    }

    pub fn service(&self) -> &Service {
        self.service.as_ref().unwrap()
    }

    pub fn write(&self, name: &str) {
        fs::write(self.root.join("stage").join(name), name).unwrap();
    }

    /// Writes a sparse file. No host has room to fetch the file, but the file takes no memory on this host.
    pub fn write_huge(&self, name: &str) {
        let file = fs::File::create(self.root.join("stage").join(name)).unwrap();
        file.set_len(1 << 42).unwrap();
    }

    pub fn wait(&self, name: &str, time: Duration) -> FileWaitOutcome {
        let (folder, notice) = (self.root.join("published"), self.root.with_extension("notice"));
        let views = Views::parse(&Views::line(folder.to_str().unwrap(), notice.to_str().unwrap(), time, &[])).unwrap();
        views.await_file(folder.join(name).to_str().unwrap().as_bytes())
    }

    pub fn gets(&self, name: &str) {
        assert_eq!(self.wait(name, LONG), FileWaitOutcome::Published, "{:?}", self.service().report().troubles);
        assert_eq!(fs::read_to_string(self.root.join("published").join(name)).unwrap(), name);
    }

    pub fn has_said(&self, words: &str) -> bool {
        self.service().report().troubles.iter().any(|line| line.contains(words))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end();
        fs::remove_dir_all(&self.root).unwrap();
        fs::remove_file(self.root.with_extension("notice")).unwrap();
    }
}

/// Reads what a host announces.
pub fn announced(site: &Site, node: &str) -> Option<Announcement> {
    let entry = site.catalog.get(&entry_key(&site.name, &site.workflow, "frames", node), soon()).unwrap()?;
    Some(Announcement::read(&entry.value).unwrap())
}

fn put(site: &Site, node: &str, value: &[u8]) {
    let key = entry_key(&site.name, &site.workflow, "frames", node);
    site.catalog.put(&key, value, None, soon()).unwrap();
}

fn hosts_meet_whichever_starts_first(clients: Clients<'_>) {
    let site = |name: &str| site(clients(), name);
    let (a, b) = (Host::producers(&site("first")), Host::consumers(&site("first")));
    a.write("x");
    b.gets("x");
    let b = Host::consumers(&site("second"));
    std::thread::sleep(Duration::from_millis(300));
    let a = Host::producers(&site("second"));
    a.write("x");
    b.gets("x");
    assert_eq!(b.service().report().troubles, Vec::<String>::new());
}

fn entries_say_what_each_host_has_and_go_with_the_host(clients: Clients<'_>) {
    let site = site(clients(), "entries");
    let (mut a, b) = (Host::producers(&site), Host::consumers(&site));
    a.write("x");
    a.write("xyz");
    b.gets("x");
    b.gets("xyz");
    a.service().producers(Phase::Ended);
    until("the counts", || {
        let (of_a, of_b) = (announced(&site, "a"), announced(&site, "b"));
        of_a.is_some_and(|a| (a.role, a.phase, a.published, a.bytes) == (HostRole::Produces, Some(Phase::Ended), 2, 4))
            && of_b
                .is_some_and(|b| (b.role, b.phase, b.fetched) == (HostRole::Consumes, None, 2) && b.address.is_empty())
    });
    let listed = site.announced(soon()).unwrap();
    let listed: Vec<_> = listed.iter().map(|(directory, node, found)| (&**directory, &**node, found.fetched)).collect();
    assert_eq!(listed, [("frames", "a", 0), ("frames", "b", 2)]);
    a.end();
    assert_eq!(announced(&site, "a"), None, "a host that ends takes its entries with it");
    assert!(announced(&site, "b").is_some());
}

fn a_bad_entry_is_ignored_and_named(clients: Clients<'_>) {
    let site = site(clients(), "bad");
    put(&site, "a", b"1 7 produces asleep 0 0 0 0 127.0.0.1:1");
    put(&site, "-", b"what a strange host");
    put(&site, "stranger", &[0xff; 4096]);
    let b = Host::consumers(&site);
    until("the line of the log", || b.has_said("flow/x/frames/a' is ignored: its phase is unknown"));
    until("the other line", || b.has_said("flow/x/frames/-' is ignored: its key names no directory and node"));
    let a = Host::producers(&site);
    a.write("x");
    b.gets("x");
    assert_eq!(b.service().report().troubles.len(), 2, "an entry that no task of this host needs is no trouble");
}

fn an_overwritten_entry_is_written_again(clients: Clients<'_>) {
    let site = site(clients(), "overwritten");
    let (a, b) = (Host::producers(&site), Host::consumers(&site));
    a.write("x");
    b.gets("x");
    // The counts of the host do not change any more. So the host writes its entry only because another process has
    // overwritten it.
    until("the count of files", || announced(&site, "a").is_some_and(|now| now.published == 1));
    let own = announced(&site, "a").unwrap();
    put(&site, "a", &Announcement { life: own.life ^ 1, address: "127.0.0.1:1".into(), ..own.clone() }.value());
    until("the entry to be right again", || announced(&site, "a").is_some_and(|now| now.life == own.life));
    until("the line of the log", || a.has_said("another process announces itself in the catalog as this host"));
    a.write("y");
    b.gets("y");
}

fn a_service_that_is_started_anew_is_met_again(clients: Clients<'_>) {
    let site = site(clients(), "anew");
    let (mut a, b) = (Host::producers(&site), Host::consumers(&site));
    a.write("x");
    b.gets("x");
    let first = announced(&site, "a").unwrap();
    a.end();
    a.restart(&site);
    a.write("y");
    b.gets("y");
    let second = announced(&site, "a").unwrap();
    assert_ne!((first.life, first.address), (second.life, second.address));
    assert_eq!(b.service().report().fetched, 2, "nothing is fetched twice");
}
