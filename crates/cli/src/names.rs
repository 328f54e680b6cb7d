//! Finds objects by their names. Every command takes names as `crossdock ls` prints them, `WORKFLOW/NAME`, and names
//! without the workflow.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crossdock_client::{Listing, Observer, SegmentKind, Session, Status};
use crossdock_launch::file::nearest;
use crossdock_layout::name::MIRROR;

use crossdock_web::find::{self, FoundDaemon};

/// An object that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    pub kind: SegmentKind,
    pub workflow: String,
    pub name: String,
    /// For a series, the id of its segment. The next field tells whether the series' run has ended.
    pub id: u64,
    pub former: bool,
}

impl NamedObject {
    /// The name as `ls` prints it.
    pub fn whole(&self) -> String {
        format!("{}/{}", self.workflow, self.name)
    }

    /// Tells whether `given` is this object's name, alone or with its workflow.
    pub fn is_called(&self, given: &str) -> bool {
        given == self.name
            || given.strip_prefix(self.workflow.as_str()).and_then(|rest| rest.strip_prefix('/')) == Some(&self.name)
    }
}

/// All named objects of a daemon.
pub fn all(listing: &Listing) -> Vec<NamedObject> {
    let segments = listing.segments.iter().filter(|s| s.kind != SegmentKind::Item && !s.removed).map(|s| NamedObject {
        kind: s.kind,
        workflow: s.workflow.clone(),
        name: s.name.clone(),
        id: s.id.0,
        former: s.former,
    });
    let items = listing.items.iter().map(|i| NamedObject {
        kind: SegmentKind::Item,
        workflow: i.workflow.clone(),
        name: i.key.clone(),
        id: 0,
        former: false,
    });
    segments.chain(items).collect()
}

/// Gives a hint for an unknown name: ` Did you mean ...?`, or the first few names that exist.
pub fn hint(given: &str, known: &[NamedObject]) -> String {
    let whole: Vec<String> = known.iter().map(NamedObject::whole).collect();
    let short = known.iter().map(|k| k.name.as_str());
    if let Some(near) = nearest(given, whole.iter().map(String::as_str).chain(short)) {
        return format!("; did you mean `{near}`?");
    }
    let last = given.rsplit('/').next().unwrap_or(given);
    let alike: Vec<_> = whole.iter().filter(|name| name.contains(last)).take(5).cloned().collect();
    match (alike.is_empty(), whole.is_empty()) {
        (false, _) => format!("; similar: {}", alike.join(", ")),
        (true, true) => "; no daemon of yours has any".to_owned(),
        (true, false) => format!("; there are: {}", whole.iter().take(5).cloned().collect::<Vec<_>>().join(", ")),
    }
}

/// The result of a search for a series.
pub enum Series {
    /// A session in the series' workflow, and the length in bytes of the prefix `WORKFLOW/` of the given name; 0
    /// without a prefix.
    Found(Session, usize),
    /// A series that began and ended between two searches. The fields have the same meaning as in `Found`.
    CameAndWent(Session, usize),
    /// A series on another node of the daemon's site. The first two fields have the same meaning as in `Found`. The
    /// `Observer` is the first observer of the series on this node.
    Elsewhere(Session, usize, Box<Observer>),
    /// The series does not exist. The text tells the user what the command waits for.
    Missing(String),
}

/// Searches for a series in the given daemon, or in every daemon of the user. The first search stores in `before` the
/// series that have already ended. If a later search finds an ended series that is not in `before`, this series began
/// and ended between two searches.
pub fn series(
    given: &str,
    socket: Option<&Path>,
    former: bool,
    before: &mut Option<BTreeSet<(String, u64)>>,
) -> Result<Series, String> {
    let socket = socket.map(Path::to_owned).or_else(|| std::env::var_os("CROSSDOCK_SOCKET").map(Into::into));
    let first = before.is_none();
    let before = before.get_or_insert_default();
    let mut known = Vec::new();
    for daemon in find::daemons(socket.as_deref())? {
        let listing = daemon.session.list().map_err(|e| e.to_string())?;
        let all = all(&listing).into_iter().filter(|n| n.kind == SegmentKind::Series);
        let (called, others): (Vec<_>, Vec<_>) = all.partition(|n| n.is_called(given));
        if let Some(found) = called.iter().find(|n| former || !n.former) {
            let prefix = given.len() - found.name.len();
            return Ok(Series::Found(inside(&daemon, &found.workflow, socket.as_deref())?, prefix));
        }
        if first {
            before.extend(called.iter().map(|n| (daemon.place.clone(), n.id)));
        }
        if let Some(found) = called.iter().find(|n| !before.contains(&(daemon.place.clone(), n.id))) {
            let prefix = given.len() - found.name.len();
            return Ok(Series::CameAndWent(inside(&daemon, &found.workflow, socket.as_deref())?, prefix));
        }
        if !called.is_empty() {
            return Ok(Series::Missing(format!(
                "the series `{given}` that is there is one of a former run; --former takes that one"
            )));
        }
        match elsewhere(&daemon, &listing, given, socket.as_deref(), former)? {
            RemoteSearch::Found(found) => return Ok(found),
            RemoteSearch::Failed(why) => return Ok(Series::Missing(why)),
            RemoteSearch::Missing => {}
        }
        known.extend(others.into_iter().filter(|n| !n.name.starts_with(MIRROR)));
    }
    Ok(Series::Missing(format!("there is no series `{given}` yet{}", hint(given, &known))))
}

/// The result of a search on other nodes.
enum RemoteSearch {
    Found(Series),
    Missing,
    /// The search failed with this error, so the series may exist. The caller searches again.
    Failed(String),
}

/// Searches for a series on other nodes, in all workflows that this node knows.
fn elsewhere(
    daemon: &FoundDaemon,
    listing: &Listing,
    given: &str,
    socket: Option<&Path>,
    former: bool,
) -> Result<RemoteSearch, String> {
    let mut result = RemoteSearch::Missing;
    if daemon.session.nodes().map_err(|e| e.to_string())?.len() < 2 {
        return Ok(result);
    }
    for workflow in &listing.workflows {
        let inner = given.strip_prefix(workflow.name.as_str()).and_then(|rest| rest.strip_prefix('/'));
        for name in inner.into_iter().chain([given]) {
            let session = inside(daemon, &workflow.name, socket)?;
            let wait = Duration::ZERO;
            let observer = if former { session.observe_former(name, wait) } else { session.observe(name, wait) };
            match observer {
                Ok(observer) => {
                    let prefix = given.len() - name.len();
                    return Ok(RemoteSearch::Found(Series::Elsewhere(session, prefix, Box::new(observer))));
                }
                Err(error) if error.status == Status::NotFound => {}
                Err(error) => result = RemoteSearch::Failed(error.to_string()),
            }
        }
    }
    Ok(result)
}

fn inside(daemon: &FoundDaemon, workflow: &str, socket: Option<&Path>) -> Result<Session, String> {
    daemon.inside(workflow, socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(workflow: &str, name: &str) -> NamedObject {
        NamedObject { kind: SegmentKind::Series, workflow: workflow.into(), name: name.into(), id: 0, former: false }
    }

    #[test]
    fn names_are_taken_as_ls_prints_them_and_alone() {
        let wave = named("waves", "wave/0");
        assert_eq!(wave.whole(), "waves/wave/0");
        assert!(wave.is_called("waves/wave/0") && wave.is_called("wave/0"));
        assert!(!wave.is_called("wave") && !wave.is_called("waves") && !wave.is_called("other/wave/0"));
    }

    #[test]
    fn unknown_names_lead_to_similar_ones() {
        let known = [named("waves", "wave"), named("heat", "field/0"), named("heat", "field/1")];
        assert!(hint("waves/wvae", &known).contains("did you mean `waves/wave`"));
        assert!(hint("field", &known).contains("heat/field/0"));
        assert!(hint("temperature", &known).contains("there are: waves/wave"));
        assert!(hint("x", &[]).contains("no daemon"));
    }
}
