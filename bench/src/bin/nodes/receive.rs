//! The receiving process on node `b`. It reads a line for each transfer, says when it waits, and says when it had the
//! object open.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use crossdock_bench::raw;
use crossdock_client::{End, Observer, Port, PortOptions, Session};
use crossdock_core::files::{FileWaitOutcome, Views};
use crossdock_files::{Exchange, RemoteHosts, Service};
use crossdock_os::clock::now_ns;

use crate::content;
use crate::send::{DIRECTORY, PORT, RECEIVER, WAIT, join_at, remove, service, site_of_files};
use crate::site::{Setting, SiteSetting, transports};

/// Runs the receiving process until its standard input ends.
pub fn receive(setting: &str) {
    let setting: Setting = serde_json::from_str(setting).expect("a setting");
    let listener = TcpListener::bind((setting.address.as_str(), 0)).expect("a free port");
    let mut receivers: BTreeMap<&str, Receiver> =
        setting.sites.iter().map(|site| (site.name.as_str(), Receiver::new(site))).collect();
    say(listener.local_addr().expect("its address"));
    let bytes = Arc::new(vec![1; setting.raw]);
    std::thread::spawn(move || raw::serve(listener, bytes));
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split(' ').collect();
        let [site, noun, name, bytes, number] = words[..] else { panic!("no transfer: {line}") };
        let (bytes, number) = (bytes.parse().expect("a size"), number.parse().expect("a number"));
        receivers.get_mut(site).expect("a site").take(noun, name, bytes, number);
    }
}

fn say(text: impl std::fmt::Display) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}").and_then(|()| output.flush()).expect("the sender reads");
}

/// The objects through which node `b` receives in one site: its session, port, observers and managed directory.
struct Receiver {
    session: Session,
    port: Port,
    observers: BTreeMap<String, Observer>,
    directory: Directory,
}

impl Receiver {
    fn new(site: &SiteSetting) -> Self {
        let session = join_at(&site.socket, RECEIVER);
        let port = session.port(PORT, End::Consumer, &PortOptions::default(), WAIT).expect("the sender's port");
        Self { session, port, observers: BTreeMap::new(), directory: Directory::new(site) }
    }

    fn take(&mut self, noun: &str, name: &str, bytes: usize, number: u64) {
        let wait = WAIT.expect("a time");
        let open = match noun {
            "item" => {
                say("waits");
                let item = self.session.access_item(name, WAIT).expect("the item");
                let open = now_ns();
                content::check(&item.bytes()[..bytes], number);
                item.destroy().expect("it is ours");
                open
            }
            "message" => {
                say("waits");
                let message = self.port.receive(WAIT).expect("a message");
                let region = self.session.region_of(message.handle).expect("the object's region");
                let open = now_ns();
                assert_eq!(message.tag, number, "another message");
                let object = region.mapping().settled_bytes(message.handle.offset, bytes as u64);
                content::check(object.expect("within the region"), number);
                self.port.release(&message).expect("released");
                open
            }
            "version" => {
                let session = &self.session;
                let opened = || session.observe(name, wait).expect("the series");
                let observer = self.observers.entry(name.to_owned()).or_insert_with(opened);
                say("waits");
                loop {
                    let version = observer.next(wait).expect("a version");
                    let found = version.bytes("u").expect("the array");
                    let open = now_ns();
                    if content::number(found) == number {
                        content::check(found, number);
                        break open;
                    }
                }
            }
            _ => {
                say("waits");
                let mut file = self.directory.open(name);
                let open = now_ns();
                let mut found = Vec::with_capacity(bytes);
                file.read_to_end(&mut found).expect("a file in memory");
                assert_eq!(found.len(), bytes, "a file of another size");
                content::check(&found, number);
                open
            }
        };
        say(open);
    }
}

/// A managed directory that fetches the files of node `a`.
struct Directory {
    root: PathBuf,
    views: Views,
    service: Option<Service>,
    exchange: Option<Exchange>,
}

impl Directory {
    fn new(site: &SiteSetting) -> Self {
        let root = PathBuf::from(format!("/dev/shm/crossdock-bench-b-{}-{}", site.name, std::process::id()));
        let service = service(&root);
        let (published, notice) = (root.join("published"), root.with_extension("notice"));
        let text = |path: &PathBuf| path.to_str().expect("plain letters").to_owned();
        let wait = WAIT.expect("a time");
        let across = RemoteHosts {
            consumes: true,
            origins: vec!["a".into()],
            wait,
            path: text(&published),
            ..RemoteHosts::default()
        };
        let transports = transports(site.papers.as_deref(), "b");
        let files = site_of_files(Some(&site.files));
        let exchange = Exchange::start(&transports, "b", "", &files, &[(DIRECTORY, &service, &across)]);
        let exchange = exchange.expect("an exchange");
        let views = Views::parse(&Views::line(&text(&published), &text(&notice), wait, &[])).expect("a directory");
        Self { root, views, service: Some(service), exchange: Some(exchange) }
    }

    /// Waits for a file and opens it.
    fn open(&self, name: &str) -> File {
        let path = self.root.join("published").join(name);
        let outcome = self.views.await_file(path.to_str().expect("plain letters").as_bytes());
        assert!(matches!(outcome, FileWaitOutcome::Published), "the file does not come");
        File::open(path).expect("a published file")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        (self.exchange, self.service) = (None, None);
        remove(&self.root);
    }
}
