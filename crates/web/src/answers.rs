//! The answers of the web page's server, one for each path that a client may request.

use crossdock_launch::graph::{Direction, lay_out, svg};
use serde_json::json;

use crate::frames::Key;
use crate::server::Shared;
use crate::{metrics, picture};

/// The server's answer to an HTTP request.
pub struct Answer {
    pub status: u16,
    pub kind: &'static str,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn new(status: u16, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, kind, body: body.into() }
    }

    fn json(value: &impl serde::Serialize) -> Self {
        Self::new(200, "application/json", serde_json::to_vec(value).unwrap_or_default())
    }

    pub fn error(status: u16, what: &str) -> Self {
        Self::new(status, "application/json", json!({ "error": what }).to_string())
    }
}

const NOT_FOUND: &str = "there is nothing here";

/// Returns the file of the page at this path. The file contains no data; its script asks the server for the data, with
/// the token.
pub fn page(path: &str) -> Option<Answer> {
    Some(match path {
        "/" | "/index.html" => Answer::new(200, "text/html; charset=utf-8", include_str!("../page/index.html")),
        "/page.js" => Answer::new(200, "text/javascript; charset=utf-8", include_str!("../page/page.js")),
        "/draw.js" => Answer::new(200, "text/javascript; charset=utf-8", include_str!("../page/draw.js")),
        "/page.css" => Answer::new(200, "text/css; charset=utf-8", include_str!("../page/page.css")),
        "/icon.svg" => Answer::new(200, "image/svg+xml", include_str!("../page/icon.svg")),
        _ => return None,
    })
}

/// Makes the answers that contain data. The caller has checked the request's token.
pub fn data(shared: &Shared, path: &str, query: &Query) -> Answer {
    let answer = match path {
        "/api/state" => Ok(Answer::json(&*shared.sample())),
        "/metrics" => Ok(Answer::new(200, "text/plain; version=0.0.4; charset=utf-8", metrics::text(&shared.sample()))),
        "/api/graph" => graph(shared, query),
        "/api/frames" => frames(shared, query),
        "/api/frame" => frame(shared, query),
        "/api/log" => log(shared, query),
        _ => Err((404, NOT_FOUND.to_owned())),
    };
    answer.unwrap_or_else(|(status, what)| Answer::error(status, &what))
}

type QueryResult = Result<Answer, (u16, String)>;

fn graph(shared: &Shared, query: &Query) -> QueryResult {
    let (run, place) = (query.get("run"), query.get("place"));
    let graph = picture::graph(&shared.sample(), run, place).ok_or((404, NOT_FOUND.to_owned()))?;
    let direction = if query.get("direction") == Some("down") { Direction::Down } else { Direction::Right };
    let nodes: Vec<_> = graph.nodes.iter().map(|n| json!({ "kind": n.kind.word(), "name": n.name })).collect();
    let edges: Vec<_> = graph.edges.iter().map(|e| json!([e.from, e.to])).collect();
    let svg = svg(&graph, &lay_out(&graph, direction), run.or(place).unwrap_or_default());
    Ok(Answer::json(&json!({ "nodes": nodes, "edges": edges, "svg": svg })))
}

fn key(query: &Query) -> Result<Key, (u16, String)> {
    let get = |name: &str| query.get(name).map(str::to_owned).ok_or_else(|| (400, format!("`{name}` is missing")));
    Ok(Key { place: get("place")?, workflow: get("workflow")?, series: get("series")?, variable: get("variable")? })
}

/// Makes the list of a variable's frames: only their descriptions, without the values of their elements.
fn frames(shared: &Shared, query: &Query) -> QueryResult {
    let key = key(query)?;
    shared.with_frames(&key, |frames| Ok(Answer::json(&json!({ "frames": frames }))))
}

/// Makes the answer with one frame: the length of its description, the description, and the values of the frame's
/// elements as little-endian f32.
fn frame(shared: &Shared, query: &Query) -> QueryResult {
    let key = key(query)?;
    let sequence = query.get("sequence").and_then(|n| n.parse::<u64>().ok());
    shared.with_frames(&key, |frames| {
        let found = match sequence {
            Some(n) => frames.iter().find(|f| f.sequence == n),
            None => frames.back(),
        };
        let frame = found.ok_or((404, "this version is not kept (any more)".to_owned()))?;
        let mut text = serde_json::to_vec(frame).unwrap_or_default();
        // The values begin at a multiple of 4 bytes, so that a browser can read them without a copy.
        text.resize(text.len().next_multiple_of(4), b' ');
        let mut body = (text.len() as u32).to_le_bytes().to_vec();
        body.extend(text);
        body.extend(frame.values.iter().flat_map(|v| v.to_le_bytes()));
        Ok(Answer::new(200, "application/octet-stream", body))
    })
}

/// The maximum number of bytes that the server sends of a log. If the log is longer, the server sends its last bytes.
const TAIL: u64 = 64 << 10;

fn log(shared: &Shared, query: &Query) -> QueryResult {
    use std::io::{Read, Seek, SeekFrom};
    let (Some(run), Some(name)) = (query.get("run"), query.get("task")) else {
        return Err((400, "`run` and `task` are needed".into()));
    };
    // The path comes from the run's own state and not from the request, so a client cannot read other files.
    let path = shared.log(run, name).ok_or((404, format!("run {run} has no task {name}")))?;
    let read = || -> std::io::Result<Vec<u8>> {
        // A task may have put a link, a pipe or a device in the place of its log, which is not opened.
        let ordinary = crossdock_os::file::open_ordinary(&path).map_err(|e| e.reason())?;
        let mut file = std::fs::File::from(ordinary.ok_or_else(|| std::io::Error::other("this is no ordinary file"))?);
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut text = Vec::new();
        file.take(TAIL).read_to_end(&mut text)?;
        if length > TAIL {
            let whole = text.iter().position(|b| *b == b'\n').map_or(0, |at| at + 1);
            text.drain(..whole);
        }
        Ok(text)
    };
    let text = read().map_err(|e| (404, format!("{}: {e}", path.display())))?;
    Ok(Answer::new(200, "text/plain; charset=utf-8", String::from_utf8_lossy(&text).into_owned()))
}

/// The part of an address after `?`.
#[derive(Debug, Default, PartialEq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(text: &str) -> Self {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        };
        Self(text.split('&').filter(|p| !p.is_empty()).map(pair).collect())
    }

    /// Gives the names and values of the query, in their order.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |n: usize| bytes.get(at + n).and_then(|b| char::from(*b).to_digit(16));
        match (bytes[at], hex(1), hex(2)) {
            (b'%', Some(a), Some(b)) => {
                out.push((a * 16 + b) as u8);
                at += 3;
                continue;
            }
            (b'+', ..) => out.push(b' '),
            (other, ..) => out.push(other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_and_anything_else_is_taken_as_it_is() {
        let query = Query::parse("run=a%2fb+c&x&y=%zz&%C3%A9=%");
        assert_eq!(
            (query.get("run"), query.get("x"), query.get("y"), query.get("é")),
            (Some("a/b c"), Some(""), Some("%zz"), Some("%"))
        );
        assert_eq!(query.get("none"), None);
    }
}
