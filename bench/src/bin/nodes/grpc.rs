//! Measures gRPC between the two nodes, by bench/peers/grpc.

use std::process::Command;

use crate::Size;
use crate::rows::{GRPC, Times};

pub fn measure(times: &mut Times, program: &str, before: &[String], address: &str, sizes: &[&Size], rounds: usize) {
    times.is_counted = true;
    let mut command = Command::new(program);
    command.args(["--address", address]);
    if !before.is_empty() {
        command.args(["--receiver", &before.join(" ")]);
    }
    command.args(sizes.iter().map(|size| format!("{}:{}", size.bytes, rounds)));
    let output = command.output().expect("the peer can be started");
    assert!(output.status.success(), "gRPC: {}", String::from_utf8_lossy(&output.stderr));
    for (size, line) in sizes.iter().zip(String::from_utf8_lossy(&output.stdout).lines()) {
        let took = line.split(' ').nth(3).expect("the times of the hand-over");
        for time in took.split(',') {
            times.add(&[GRPC, size.name], time.parse().expect("a number"));
        }
    }
}
