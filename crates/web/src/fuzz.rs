//! Entry point for the fuzzer of the web page: requests of any client, and arrays of any publisher.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::answers::{Answer, Query, page};
use crate::frames::reduce;
use crate::sample::{Daemon, ItemRow, PortRow, RankRow, RunRow, Sample, Sampler, Scope, SeriesRow, WorkflowRow};
use crate::server::{self, Shared};

const TOKEN: &str = "0123456789abcdef";
/// A text that only an answer to a request with the token may contain.
const SECRET: &str = "zq-secret";
/// A name with characters that would end a text, a tag or a line if they were not escaped.
const NASTY: &str = "\"'><script>&\n}\\";

/// Tests one of three parts of the web page's server. The first byte chooses the part. The list says for each part what
/// the other bytes are, and then what must hold:
///
/// - A request of any bytes, or changes of a valid request. Without the token, the answer is a file of the page, which
///   contains no data, or an error. The answer does not depend on how the request was split on its way. The answer is
///   correct HTTP with correct JSON.
/// - The part of an address after `?`. Each name and each value is the same after it was encoded and decoded.
/// - An array of a publisher. Its picture has one number for each cell of its rows and columns, and at most 32 768
///   numbers.
pub fn fuzz_request(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else { return };
    match which % 4 {
        0 => request(body),
        1 => request(&nearly_good(body)),
        2 => query(&String::from_utf8_lossy(body)),
        _ => array(body),
    }
}

fn request(head: &[u8]) {
    thread_local! {
        static SHARED: RefCell<Shared> = RefCell::new(shared());
    }
    SHARED.with_borrow(|shared| {
        let Some((answer, with_body)) = server::answer(head, shared) else { return };
        is_http(&answer, with_body);
        // The token has only letters and digits, so it is never encoded. A request with the token contains it
        // unchanged.
        let has_token = head.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes());
        let text = String::from_utf8_lossy(&answer.body);
        if !has_token {
            assert!(!text.contains(SECRET), "{text}");
            let is_page = ["/", "/page.js", "/draw.js", "/page.css", "/icon.svg"]
                .iter()
                .any(|path| page(path).is_some_and(|page| page.body == answer.body));
            assert!(answer.status != 200 || is_page, "an answer without the token: {text}");
        }
        let method = head.split(|b| *b == b' ').next().unwrap_or_default();
        let is_read = method.ends_with(b"GET") || method.ends_with(b"HEAD");
        assert!(answer.status != 200 || is_read, "an answer to another method");
        for part in 1..4 {
            let end = head.len() * part / 4;
            if let Some((early, same)) = server::answer(&head[..end], shared) {
                assert_eq!((early.status, early.kind, same), (answer.status, answer.kind, with_body));
                assert!(early.body == answer.body, "the answer depends on how the request was split");
            }
        }
    });
}

/// Makes a server that has a sample already, so that it asks no daemon.
fn shared() -> Shared {
    let nowhere = std::path::PathBuf::from("/nonexistent/crossdock-fuzz.sock");
    let sampler = Sampler::new(Scope { socket: Some(nowhere), front: None });
    let rank = RankRow {
        name: NASTY.into(),
        task: NASTY.into(),
        rank: 0,
        state: "runs",
        code: None,
        how: None,
        pid: Some(1),
        seconds: None,
        progress: Some((1, 2)),
        cpu_seconds: 0.5,
        cpus: 0.5,
        memory: 1,
        shared: 1,
        processes: 1,
    };
    let run = RunRow {
        id: "r".into(),
        workflow: SECRET.into(),
        engine: "process".into(),
        since_ms: 0,
        stopping: None,
        ranks: vec![rank],
        links: Vec::new(),
        place: Some("d".into()),
    };
    let item = ItemRow {
        id: 1,
        workflow: SECRET.into(),
        name: "i".into(),
        size: 1,
        level: "strict".into(),
        owner: NASTY.into(),
        since_seconds: 0.0,
        transfers: 0,
        copies: 0,
        waiting: 0,
        readers: 0,
        rate: 0.0,
    };
    let daemon = Daemon {
        place: "d".into(),
        trouble: None,
        workflows: vec![WorkflowRow { name: SECRET.into(), run: 1, reserved: 0, quota: 0 }],
        ports: vec![PortRow { name: NASTY.into(), workflow: SECRET.into(), ..PortRow::default() }],
        series: vec![SeriesRow {
            name: NASTY.into(),
            workflow: SECRET.into(),
            publisher: "t".into(),
            state: "live",
            ..SeriesRow::default()
        }],
        items: vec![item],
        ..Daemon::default()
    };
    let sample = Sample { runs: vec![run], daemons: vec![daemon], ..Sample::default() };
    // The sample is never too old, because its time lies in the future.
    Shared::new(sampler, Instant::now() + Duration::from_secs(1 << 20), sample, TOKEN.into(), 1)
}

/// Checks that the answer's bytes are correct HTTP, as a client reads it.
fn is_http(answer: &Answer, with_body: bool) {
    let mut bytes = Vec::new();
    server::write(&mut bytes, answer, with_body).expect("memory");
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(end)) = response.parse(&bytes) else { panic!("no HTTP: {bytes:?}") };
    assert_eq!((response.code, response.headers.len()), (Some(answer.status), 8));
    let length = response.headers.iter().find(|h| h.name == "Content-Length").expect("a length").value;
    assert_eq!(length, answer.body.len().to_string().as_bytes());
    let body: &[u8] = if with_body { &answer.body } else { &[] };
    assert!(bytes[end..] == *body, "the length does not fit the body");
    match answer.kind {
        "application/json" => {
            let value: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
            if let Some(svg) = value.get("svg").and_then(serde_json::Value::as_str) {
                assert!(svg.starts_with("<svg") && !svg.contains("<script"), "{svg}");
            }
            assert!(answer.status == 200 || value["error"].as_str().is_some_and(|what| !what.is_empty()));
        }
        "text/plain; version=0.0.4; charset=utf-8" => {
            let text = std::str::from_utf8(&answer.body).expect("UTF-8");
            for line in text.lines().filter(|line| !line.starts_with("# ")) {
                let (name, value) = line.rsplit_once(' ').expect("a name and a value");
                assert!(name.starts_with("crossdock_") && name.ends_with('}'), "{line}");
                value.parse::<f64>().expect("a number");
            }
        }
        _ => {}
    }
}

/// Makes a request from parts that the first bytes choose. The other bytes become a part of the address, or change the
/// request.
fn nearly_good(body: &[u8]) -> Vec<u8> {
    let Some((&[method, path, host, token, changes], rest)) = body.split_first_chunk() else { return body.to_vec() };
    let (changed, address) = rest.split_at(rest.len().min(usize::from(changes % 8) * 3));
    let method = ["GET", "HEAD", "POST", "GET"][usize::from(method) % 4];
    let paths =
        ["/", "/api/state", "/metrics", "/api/graph", "/api/frames", "/api/frame", "/api/log", "/page.js", "/icon.svg"];
    let path = paths[usize::from(path) % paths.len()];
    let queries =
        ["run=r&", "place=d&direction=down&", "run=r&task=%22&", "place=d&workflow=w&series=s&variable=v&", ""];
    let query = queries[usize::from(host / 4) % queries.len()];
    let host = ["127.0.0.1:1", "localhost", "[::1]:7", "evil.example"][usize::from(host) % 4];
    let token = match token % 4 {
        0 => String::new(),
        1 => format!("Authorization: Bearer {}\r\n", TOKEN.replace('f', "0")),
        _ => format!("Authorization: Bearer {TOKEN}\r\n"),
    };
    let mut request = format!("{method} {path}?{query}").into_bytes();
    request.extend(address);
    request.extend(format!(" HTTP/1.1\r\nHost: {host}\r\n{token}\r\n").into_bytes());
    for one in changed.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([one[0], one[1]])) % request.len();
        request[at] = one[2];
    }
    request
}

fn query(text: &str) {
    let read = Query::parse(text);
    let encoded = |text: &str| text.bytes().map(|b| format!("%{b:02x}")).collect::<String>();
    let again: Vec<String> =
        read.pairs().iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    assert_eq!(Query::parse(&again.join("&")), read, "{text}");
    for (name, _) in read.pairs() {
        assert!(read.get(name).is_some());
    }
}

fn array(body: &[u8]) {
    let Some((&[which, rank], rest)) = body.split_first_chunk() else { return };
    let (shape, rest) = rest.split_at(rest.len().min(usize::from(rank % 5) * 2));
    let mut shape: Vec<u64> = shape.chunks_exact(2).map(|n| u16::from_le_bytes([n[0], n[1]]).into()).collect();
    if rank & 128 != 0 {
        shape.push(u64::MAX / (1 + u64::from(which)));
    }
    let words = ["f64", "u8", "f32[3]", "i16[2][2]", "bool", "u8[4]", "{i32,f64}"];
    let ty = match words.get(usize::from(which) % (words.len() + 1)) {
        Some(word) => (*word).to_owned(),
        None => String::from_utf8_lossy(&rest[..rest.len().min(12)]).into_owned(),
    };
    let bytes: Vec<u8> = rest.iter().copied().cycle().take(if rest.is_empty() { 0 } else { 1 << 16 }).collect();
    if let Some(reduced) = reduce(&ty, &shape, &bytes) {
        assert_eq!(reduced.values.len(), reduced.rows * reduced.columns, "{ty} {shape:?}");
        assert!(!reduced.values.is_empty() && reduced.values.len() <= 1 << 15, "{ty} {shape:?}");
    }
}

#[cfg(test)]
mod tests {
    use crossdock_os::testing::{Random, run_corpus};

    use super::*;

    #[test]
    fn inputs_of_the_fuzzer_do_no_harm() {
        run_corpus("web", fuzz_request);
    }

    #[test]
    fn random_requests_queries_and_arrays_do_no_harm() {
        let mut random = Random(9);
        for round in 0..2000 {
            let length = random.byte() % 64;
            let bytes: Vec<u8> = [vec![round as u8 % 4], random.bytes(length.into())].concat();
            fuzz_request(&bytes);
        }
    }
}
