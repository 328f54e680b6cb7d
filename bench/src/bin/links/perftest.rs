//! Measures UCX without crossdock, by `ucx_perftest`, the program of UCX's authors.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The TCP port at which the serving `ucx_perftest` listens.
const PORT: &str = "13377";
/// Forbids UCX to use shared memory, as the daemon does. Otherwise the two namespaces of one machine could reach each
/// other through shared memory.
const TRANSPORTS: (&str, &str) = ("UCX_TLS", "^sm");
/// How long one measurement may take.
const LONGEST: Duration = Duration::from_secs(60);

struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures the time in µs that UCX takes to get `size` bytes from the other host; `None` if the machine has no
/// `ucx_perftest`.
pub fn get(before: &[String], address: &str, size: usize) -> Option<f64> {
    let words = ["ucx_perftest", "-p", PORT].map(str::to_owned);
    let words: Vec<&String> = before.iter().chain(&words).collect();
    let mut server = Command::new(words[0]);
    let server = server
        .args(&words[1..])
        .env(TRANSPORTS.0, TRANSPORTS.1)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _server = Guard(server.ok()?);
    // Of the largest object only a few copies are pulled, because each takes up to a second.
    let (iterations, warm_up) = if size > 100_000_000 { (2, 1) } else { ((20_000_000 / size).clamp(10, 2_000), 5) };
    let begun = Instant::now();
    // The serving program needs a moment until it listens. So the pulling program is started again until it succeeds.
    while begun.elapsed() < LONGEST {
        let mut client = Command::new("ucx_perftest");
        client.args([address, "-p", PORT, "-t", "ucp_get", "-f", "-v", "-w", &warm_up.to_string()]);
        client.args(["-n", &iterations.to_string(), "-s", &size.to_string()]);
        let done = client.env(TRANSPORTS.0, TRANSPORTS.1).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        if let Some(time) = average(&String::from_utf8_lossy(&done.stdout)) {
            return Some(time);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

/// Finds the overall average in the last line of the output. Its columns are: iterations, percentile, average of the
/// last part, overall average …
fn average(said: &str) -> Option<f64> {
    said.lines().rev().find_map(|line| {
        let fields: Vec<f64> = line.split(',').map(|field| field.trim().parse().ok()).collect::<Option<_>>()?;
        fields.get(3).copied()
    })
}
