//! The peer gRPC, as most programs use it: one unary call of tonic transfers the bytes (`bench/peers/grpc`).

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The serving process and the pulling process. Both are killed when this program ends.
pub struct Unary {
    children: [Child; 2],
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// The standard input of the serving process. The process ends when this pipe is closed.
    _serving: ChildStdin,
}

impl Unary {
    /// Starts `program` twice: as the serving process and as the pulling process. The words in `before` stand in front
    /// of the serving process's command, for example to start the process in another network namespace. The serving
    /// process serves `most` bytes.
    pub fn start(before: &[String], program: &str, address: &str, most: usize) -> Self {
        let most = most.to_string();
        let words = before.iter().map(String::as_str).chain([program, "--serve", address, &most]);
        let (serving, _serving, mut lines) = start(&words.collect::<Vec<_>>());
        let address = lines.next().expect("an address").expect("text");
        let (pulling, ask, answers) = start(&[program, "--pull", &address]);
        Self { children: [serving, pulling], ask, answers, _serving }
    }

    /// Pulls `size` bytes, `times` times. Gives the time of one pull in µs.
    pub fn pull(&mut self, size: usize, times: usize) -> f64 {
        writeln!(self.ask, "{size} {times}").expect("asked");
        self.answers.next().expect("an answer").expect("text").parse().expect("a time")
    }
}

fn start(words: &[&str]) -> (Child, ChildStdin, Lines<BufReader<ChildStdout>>) {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("peer-grpc starts");
    let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    (child, input, BufReader::new(output).lines())
}

impl Drop for Unary {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
