//! A catalog that etcd keeps (feature `etcd`).
//!
//! Each call goes to the member of the etcd cluster that answered last. If this member does not answer within a second,
//! the call goes to the next one. The name of the client decides which member is asked first, so the clients of a site
//! are spread over all members. This client chooses the member itself, because a gRPC channel that balances the load
//! would go on sending calls to a dead member. etcd's client ends watches and keep-alive streams when their member is
//! lost. So this catalog continues a watch at another member, from the revision that the watch had reached, and makes
//! each keep-alive a call of its own.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crossdock_os::Deadline;
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, Error, EventType, GetOptions, Identity, KeyValue,
    PutOptions, TlsOptions, Txn, TxnOp, TxnOpResponse, WatchOptions, WatchStream,
};
use tokio::runtime::Runtime;

use crate::entry::{check_key, check_prefix};
use crate::{
    Catalog, CatalogError, CatalogResult, Commit, Committed, Entry, Event, Expect, IsOver, LEASE_MIN, LeaseId, Listing,
    Operation, Revision, Watch,
};

/// How long one etcd member may take to answer before the next member is asked.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// How many entries one list request asks etcd for. With this number, an answer stays below gRPC's limit of 4 MiB.
const PAGE: i64 = 500;

/// How to reach an etcd cluster.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    /// The URL of each etcd member: `http://host:port` or `https://host:port`.
    pub members: Vec<String>,
    /// The certificate of the authority that signed the certificates of the etcd members, as PEM.
    pub authority: Option<Vec<u8>>,
    /// This client's own certificate and key, as PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name of this client. The name decides which etcd member the client asks first, so that clients with
    /// different names usually ask different etcd members first. A client without a name asks the first etcd member
    /// first.
    pub name: String,
}

impl EtcdOptions {
    /// Gives the index of the member that the client asks first.
    fn first(&self) -> usize {
        crc32fast::hash(self.name.as_bytes()) as usize % self.members.len()
    }
}

struct Members {
    runtime: Runtime,
    clients: Vec<(String, Mutex<Option<Client>>)>,
    options: ConnectOptions,
    current: AtomicUsize,
}

/// A catalog that is kept by an etcd cluster.
pub struct Etcd {
    members: Arc<Members>,
}

/// Why one etcd member gave no answer.
enum CallFailure {
    /// The call did not reach the etcd member, so it changed nothing.
    Before(String),
    /// The etcd member may have carried out the call.
    After(String),
    /// The etcd member refused the call with this error.
    Refused(CatalogError),
}

impl Etcd {
    /// Makes a client of the cluster. It connects with the first call.
    ///
    /// # Errors
    /// `options` names no etcd member, or no thread for the connections could be started.
    pub fn new(options: &EtcdOptions) -> CatalogResult<Self> {
        if options.members.is_empty() {
            return Err(CatalogError::Invalid("no member of etcd is named".into()));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("catalog-etcd")
            .enable_all()
            .build()
            .map_err(|error| CatalogError::Full(format!("no thread for etcd: {error}")))?;
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(PATIENCE)
            .with_keep_alive(Duration::from_secs(2), Duration::from_secs(2))
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if options.authority.is_some() || options.identity.is_some() {
            let mut tls = TlsOptions::new();
            if let Some(authority) = &options.authority {
                tls = tls.ca_certificate(Certificate::from_pem(authority));
            }
            if let Some((certificate, key)) = &options.identity {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            connect = connect.with_tls(tls);
        }
        let clients = options.members.iter().map(|member| (member.clone(), Mutex::new(None))).collect();
        let current = AtomicUsize::new(options.first());
        let members = Members { runtime, clients, options: connect, current };
        Ok(Self { members: Arc::new(members) })
    }

    /// Asks one etcd member after another until one answers. If `once` is true, a call that a member may have carried
    /// out is not repeated.
    fn ask<T, F: Future<Output = Result<T, Error>>>(
        &self,
        by: Deadline,
        once: bool,
        call: impl Fn(Client) -> F,
    ) -> CatalogResult<T> {
        self.ask_until(by, &|| false, once, call)
    }

    /// Like [`Self::ask`], but fails soon after `is_over` begins to return true.
    fn ask_until<T, F: Future<Output = Result<T, Error>>>(
        &self,
        by: Deadline,
        is_over: IsOver<'_>,
        once: bool,
        call: impl Fn(Client) -> F,
    ) -> CatalogResult<T> {
        loop {
            if is_over() {
                return Err(CatalogError::Unreachable("the call was ended early".into()));
            }
            let why = match self.members.ask_one(by, &call) {
                Ok(answer) => return Ok(answer),
                Err(CallFailure::Refused(error)) => return Err(error),
                Err(CallFailure::After(why)) if once => return Err(CatalogError::Unknown(why)),
                Err(CallFailure::Before(why) | CallFailure::After(why)) => why,
            };
            if by.passed() {
                return Err(CatalogError::Unreachable(why));
            }
            thread::sleep(PAUSE.min(by.left()));
        }
    }
}

impl Members {
    /// Gives the index of the etcd member to which calls go at present, and a client for that member.
    fn client(&self) -> Result<(usize, Client), CallFailure> {
        let current = self.current.load(Ordering::Relaxed) % self.clients.len();
        let (member, client) = &self.clients[current];
        let mut client = client.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(client) = &*client {
            return Ok((current, client.clone()));
        }
        // `connect` only prepares the connection. The connection is made with the first call.
        let fresh = self.runtime.block_on(Client::connect([member], Some(self.options.clone())));
        let fresh = fresh.map_err(|error| CallFailure::Before(format!("{member}: {error}")))?;
        Ok((current, client.insert(fresh).clone()))
    }

    /// Directs the next call to the etcd member after `member`, and drops the connection to `member`.
    fn leave(&self, member: usize) {
        *self.clients[member].1.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
        let next = (member + 1) % self.clients.len();
        self.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed).ok();
    }

    fn ask_one<T, F: Future<Output = Result<T, Error>>>(
        &self,
        by: Deadline,
        call: &impl Fn(Client) -> F,
    ) -> Result<T, CallFailure> {
        let (member, client) = self.client()?;
        let name = &self.clients[member].0;
        let patience = by.left().clamp(Duration::from_millis(1), PATIENCE);
        let answer = self.runtime.block_on(async { tokio::time::timeout(patience, call(client)).await });
        let missed = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => missed(name, error),
            Err(_) => CallFailure::After(format!("{name} did not answer")),
        };
        if !matches!(missed, CallFailure::Refused(_)) {
            self.leave(member);
        }
        Err(missed)
    }
}

/// Tells from an error of etcd whether the call may have been carried out.
fn missed(member: &str, error: Error) -> CallFailure {
    let text = format!("{member}: {error}");
    match error {
        Error::GRpcStatus(status) => match status.code() as i32 {
            // gRPC code 5: not found
            5 if status.message().contains("lease") => CallFailure::Refused(CatalogError::NoLease),
            // gRPC code 3: invalid argument
            3 => CallFailure::Refused(CatalogError::Invalid(text)),
            // gRPC code 8: resource exhausted
            8 => CallFailure::Refused(CatalogError::Full(text)),
            // gRPC code 11: out of range
            11 if status.message().contains("compacted") => CallFailure::Refused(CatalogError::Compacted(0)),
            // gRPC codes 7 and 16: permission denied, unauthenticated
            7 | 16 => CallFailure::Refused(CatalogError::Invalid(text)),
            // gRPC code 14: unavailable
            14 if text.contains("connect error") => CallFailure::Before(text),
            _ => CallFailure::After(text),
        },
        Error::LeaseKeepAliveError(why) if why.contains("not found") => CallFailure::Refused(CatalogError::NoLease),
        Error::InvalidArgs(_) | Error::InvalidUri(_) => CallFailure::Refused(CatalogError::Invalid(text)),
        Error::TransportError(_) if text.contains("connect error") => CallFailure::Before(text),
        _ => CallFailure::After(text),
    }
}

fn entry(found: &KeyValue) -> CatalogResult<Entry> {
    let key = found.key_str().map_err(|error| CatalogError::Broken(format!("a key in etcd: {error}")))?;
    Ok(Entry {
        key: key.to_owned(),
        value: found.value().to_vec(),
        created: found.create_revision() as u64,
        modified: found.mod_revision() as u64,
        lease: Some(found.lease() as u64).filter(|lease| *lease != 0).map(LeaseId),
    })
}

/// Gives the first key that is above all keys that begin with `prefix`.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // This addition cannot overflow, because all bytes of UTF-8 text are below 0xf5.
    match end.last_mut() {
        Some(last) => *last += 1,
        None => end.push(0),
    }
    end
}

fn first_of(prefix: &str) -> Vec<u8> {
    if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() }
}

fn no_header<T>() -> CatalogResult<T> {
    Err(CatalogError::Broken("etcd's answer has no header".into()))
}

impl Catalog for Etcd {
    fn commit(&self, commit: &Commit, by: Deadline) -> CatalogResult<Committed> {
        commit.check()?;
        let compare = |expect: &Expect| match expect {
            Expect::Free(key) => Compare::create_revision(key.as_str(), CompareOp::Equal, 0),
            Expect::At(key, revision) => Compare::mod_revision(key.as_str(), CompareOp::Equal, *revision as i64),
        };
        let operation = |operation: &Operation| match operation {
            Operation::Put { key, value, lease } => {
                let lease = lease.map_or(0, |lease| lease.0) as i64;
                TxnOp::put(key.as_str(), value.as_slice(), Some(PutOptions::new().with_lease(lease)))
            }
            Operation::Delete { key } => TxnOp::delete(key.as_str(), None),
        };
        let compares: Vec<_> = commit.expect.iter().map(compare).collect();
        let gets: Vec<_> = commit.expect.iter().map(|expect| TxnOp::get(expect.key(), None)).collect();
        let operations: Vec<_> = commit.then.iter().map(operation).collect();
        let txn = Txn::new().when(compares).and_then(operations).or_else(gets);
        let answer = self.ask(by, true, |client| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        })?;
        let Some(revision) = answer.header().map(|header| header.revision() as u64) else { return no_header() };
        if answer.succeeded() {
            return Ok(Committed { done: true, revision, found: Vec::new() });
        }
        let mut found = Vec::new();
        for response in answer.op_responses() {
            if let TxnOpResponse::Get(get) = response {
                found.push(get.kvs().first().map(entry).transpose()?);
            }
        }
        if found.len() != commit.expect.len() {
            return Err(CatalogError::Broken("etcd answered another transaction".into()));
        }
        Ok(Committed { done: false, revision, found })
    }

    fn get(&self, key: &str, by: Deadline) -> CatalogResult<Option<Entry>> {
        check_key(key)?;
        let answer = self.ask(by, false, |client| async move { client.kv_client().get(key, None).await })?;
        answer.kvs().first().map(entry).transpose()
    }

    fn list(&self, prefix: &str, by: Deadline) -> CatalogResult<Listing> {
        self.list_until(prefix, by, &|| false)
    }

    fn list_until(&self, prefix: &str, by: Deadline, is_over: IsOver<'_>) -> CatalogResult<Listing> {
        check_prefix(prefix)?;
        'anew: loop {
            let (mut entries, mut from, mut at) = (Vec::new(), first_of(prefix), 0);
            loop {
                let answer = self.ask_until(by, is_over, false, |client| {
                    let options = GetOptions::new().with_range(end_of(prefix)).with_limit(PAGE).with_revision(at);
                    let from = from.clone();
                    async move { client.kv_client().get(from, Some(options)).await }
                });
                let answer = match answer {
                    // etcd forgot the revision of the first page before the second page was read. So the list is read
                    // again from the beginning.
                    Err(CatalogError::Compacted(_)) if !by.passed() => continue 'anew,
                    answer => answer?,
                };
                if at == 0 {
                    let Some(header) = answer.header() else { return no_header() };
                    at = header.revision();
                }
                for found in answer.kvs() {
                    entries.push(entry(found)?);
                }
                if !answer.more() {
                    return Ok(Listing { revision: at as u64, entries });
                }
                let Some(last) = entries.last() else { return no_header() };
                from = [last.key.as_bytes(), &[0]].concat();
            }
        }
    }

    fn grant(&self, time: Duration, by: Deadline) -> CatalogResult<LeaseId> {
        // etcd counts lease times in whole seconds, and makes them longer if they are below its own minimum.
        let seconds = time.max(LEASE_MIN).as_millis().div_ceil(1000) as i64;
        let answer = self.ask(by, false, |client| async move { client.lease_client().grant(seconds, None).await })?;
        Ok(LeaseId(answer.id() as u64))
    }

    fn keep_alive(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()> {
        self.ask(by, false, |client| async move { client.lease_client().keep_alive(lease.0 as i64).await }).map(drop)
    }

    fn revoke(&self, lease: LeaseId, by: Deadline) -> CatalogResult<()> {
        self.ask(by, false, |client| async move { client.lease_client().revoke(lease.0 as i64).await }).map(drop)
    }

    fn watch(&self, prefix: &str, from: Revision) -> CatalogResult<Box<dyn Watch>> {
        check_prefix(prefix)?;
        let members = Arc::clone(&self.members);
        // The watch never begins at revision 0, because etcd takes 0 for "from now on".
        Ok(Box::new(EtcdWatch { members, prefix: prefix.to_owned(), next: from.max(1), stream: None }))
    }
}

struct EtcdWatch {
    members: Arc<Members>,
    prefix: String,
    next: Revision,
    stream: Option<(usize, WatchStream)>,
}

impl EtcdWatch {
    /// Opens a stream at the etcd member to which calls go at present. The member has the usual time for its answer,
    /// even if the deadline of the call is earlier.
    fn connect(&mut self) -> CatalogResult<()> {
        let (member, _) = match self.members.client() {
            Ok(found) => found,
            Err(CallFailure::Before(why) | CallFailure::After(why)) => return Err(CatalogError::Unreachable(why)),
            Err(CallFailure::Refused(error)) => return Err(error),
        };
        let (from, end, next) = (first_of(&self.prefix), end_of(&self.prefix), self.next as i64);
        let stream = self.members.ask_one(Deadline::after(PATIENCE), &|client: Client| {
            let options = WatchOptions::new().with_range(end.clone()).with_start_revision(next);
            let from = from.clone();
            async move { client.watch_client().watch(from, Some(options)).await }
        });
        match stream {
            Ok(stream) => self.stream = Some((member, stream)),
            Err(CallFailure::Refused(error)) => return Err(error),
            Err(CallFailure::Before(why) | CallFailure::After(why)) => return Err(CatalogError::Unreachable(why)),
        }
        Ok(())
    }

    /// Drops the stream, which failed for the reason `why`. Before the deadline, this returns no error, and the caller
    /// opens another stream. After the deadline, `why` is returned as an error.
    fn lost(&mut self, why: CatalogError, by: Deadline) -> CatalogResult<()> {
        if let Some((member, _)) = self.stream.take() {
            self.members.leave(member);
        }
        if by.passed() {
            return Err(why);
        }
        thread::sleep(PAUSE.min(by.left()));
        Ok(())
    }
}

impl Watch for EtcdWatch {
    fn next(&mut self, by: Deadline) -> CatalogResult<Vec<Event>> {
        loop {
            let Some((_, stream)) = &mut self.stream else {
                if let Err(error) = self.connect() {
                    self.lost(error, by)?;
                }
                continue;
            };
            let left = by.left().max(Duration::from_millis(1));
            let message = self.members.runtime.block_on(async { tokio::time::timeout(left, stream.message()).await });
            let message = match message {
                Err(_) => return Ok(Vec::new()),
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) => {
                    self.lost(CatalogError::Unreachable("the member ended the watch".into()), by)?;
                    continue;
                }
                Ok(Err(error)) => {
                    self.lost(CatalogError::Unreachable(error.to_string()), by)?;
                    continue;
                }
            };
            if message.compact_revision() > 0 {
                self.stream = None;
                return Err(CatalogError::Compacted(message.compact_revision() as u64));
            }
            if message.canceled() {
                self.lost(CatalogError::Unreachable(format!("watch canceled: {}", message.cancel_reason())), by)?;
                continue;
            }
            let mut events = Vec::new();
            for event in message.events() {
                let Some(found) = event.kv() else { continue };
                let found = entry(found)?;
                self.next = self.next.max(found.modified + 1);
                events.push(match event.event_type() {
                    EventType::Put => Event::Put(found),
                    EventType::Delete => Event::Deleted { key: found.key, revision: found.modified },
                });
            }
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_spread_over_all_members_and_a_client_without_a_name_begins_with_the_first() {
        for count in 1..=7 {
            let members = vec![String::new(); count];
            let mut nodes = vec![0; count];
            for number in 0..1000 {
                nodes[EtcdOptions { members: members.clone(), name: format!("n{number}"), ..Default::default() }
                    .first()] += 1;
            }
            let equal = 1000 / count;
            assert!(
                nodes.iter().all(|n| (equal * 3 / 4..=equal * 5 / 4 + 1).contains(n)),
                "{count} members: {nodes:?}"
            );
            assert_eq!(EtcdOptions { members, ..Default::default() }.first(), 0);
        }
    }
}
