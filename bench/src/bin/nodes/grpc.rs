//! Measures gRPC between the two nodes, by bench/peers/grpc.

use std::process::Command;

use crate::rows::{GRPC, Times};
use crate::{Place, Size};

pub fn measure(times: &mut Times, program: &str, place: &Place, sizes: &[&Size], rounds: usize) {
    times.is_counted = true;
    let mut command = Command::new(program);
    command.args(["--address", place.other]);
    if !place.before.is_empty() {
        command.args(["--receiver", &place.before.join(" ")]);
    }
    command.args(sizes.iter().map(|size| format!("{}:{}", size.bytes, rounds)));
    let output = command.output().expect("the peer can be started");
    assert!(output.status.success(), "gRPC: {}", String::from_utf8_lossy(&output.stderr));
    for (size, line) in sizes.iter().zip(String::from_utf8_lossy(&output.stdout).lines()) {
        let took = line.split(' ').nth(3).expect("the times of the hand-over");
        for time in took.split(',') {
            times.add_each(&[GRPC, size.name], &[time.parse().expect("a number")]);
        }
    }
}
