//! Sends payloads over gRPC between two processes. The steps are those that `exchange` uses for TCP and items: the
//! sender writes every word and hands the payload over, and the receiver reads every word. A payload is a protobuf
//! message with one field of bytes, in one unary call.
//!
//! `peer-grpc [--address IP] [--receiver COMMAND] SIZE:ROUNDS…` prints a line for each size: `grpc SIZE WHOLE_US,…
//! HANDOVER_US,…`. The first list has the whole times, from before the first word is written until the last word was
//! read. The second list has the hand-over times, from the end of the writing until the beginning of the reading. The
//! receiver listens at `--address`. It is started through `--receiver`, for example in another network namespace.
//!
//! For `links`, which compares pulls over a network, the program has two more forms. `peer-grpc --serve IP MOST` prints
//! the address at which it serves a payload of at most MOST bytes, until its standard input ends. `peer-grpc --pull
//! ADDRESS` reads lines `SIZE TIMES`, and prints for each line the time of one pull in µs.

use std::io::BufRead;
use std::process::{Command, Stdio};

use bytes::Bytes;
use tonic::{Request, Response, Status};

include!(concat!(env!("OUT_DIR"), "/exchange.Payloads.rs"));

#[derive(Clone, PartialEq, prost::Message)]
pub struct Payload {
    #[prost(bytes = "bytes", tag = "1")]
    data: Bytes,
}

/// The receiver's answer: the time when it got the payload, the time when it had read the payload, and the sum of the
/// words.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Taken {
    #[prost(fixed64, tag = "1")]
    got_ns: u64,
    #[prost(fixed64, tag = "2")]
    read_ns: u64,
    #[prost(fixed64, tag = "3")]
    sum: u64,
}

/// The number of bytes that a puller wants.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Wanted {
    #[prost(uint64, tag = "1")]
    size: u64,
}

/// Receives payloads, and gives parts of a payload of its own.
#[derive(Default)]
struct Receiver {
    own: Bytes,
}

#[tonic::async_trait]
impl payloads_server::Payloads for Receiver {
    async fn get(&self, request: Request<Wanted>) -> Result<Response<Payload>, Status> {
        let size = usize::try_from(request.into_inner().size).ok().filter(|size| *size <= self.own.len());
        let size = size.ok_or_else(|| Status::out_of_range("the payload is not so long"))?;
        Ok(Response::new(Payload { data: self.own.slice(..size) }))
    }

    async fn put(&self, request: Request<Payload>) -> Result<Response<Taken>, Status> {
        let data = request.into_inner().data;
        let got_ns = now_ns();
        let sum = data
            .chunks_exact(8)
            .fold(0u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(word.try_into().unwrap_or_default())));
        Ok(Response::new(Taken { got_ns, read_ns: now_ns(), sum }))
    }
}

/// How many bytes HTTP/2 may send before the receiver allows more.
const WINDOW: u32 = 16 << 20;
/// The longest frame of HTTP/2. By default it is 16 KiB.
const FRAME: u32 = 1 << 20;
/// How long both processes sleep before the rounds of each size, as in `exchange` (bench/src/bin/exchange.rs).
const REST: std::time::Duration = std::time::Duration::from_millis(300);

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--serve", address, most] => return receive(address, most.parse()?).await,
        ["--pull", address] => return pull(address).await,
        _ => {}
    }
    let mut value = |name: &str| {
        let at = arguments.iter().position(|word| word == name)?;
        arguments.remove(at);
        (at < arguments.len()).then(|| arguments.remove(at))
    };
    let address = value("--address").unwrap_or_else(|| "127.0.0.1".to_owned());
    let before = value("--receiver").unwrap_or_default();
    let own = std::env::current_exe()?.display().to_string();
    let words: Vec<&str> = before.split_whitespace().chain([own.as_str(), "--serve", &address, "0"]).collect();
    let mut child = Command::new(words[0]).args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut address = String::new();
    std::io::BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut address)?;
    let mut client = connect(address.trim()).await?;
    for case in &arguments {
        let (size, rounds) = case.split_once(':').ok_or("SIZE:ROUNDS is needed")?;
        let (size, rounds): (usize, u64) = (size.parse()?, rounds.parse()?);
        let (mut whole, mut handover) = (Vec::new(), Vec::new());
        std::thread::sleep(REST);
        // The first two rounds warm up and are not measured.
        for round in 0..rounds + 2 {
            let begun = now_ns();
            let mut data = vec![0u8; size];
            for word in data.chunks_exact_mut(8) {
                word.copy_from_slice(&round.to_ne_bytes());
            }
            let written = now_ns();
            let taken = client.put(Payload { data: data.into() }).await?.into_inner();
            if taken.sum != round.wrapping_mul(size as u64 / 8) {
                return Err("the receiver read something else than was written".into());
            }
            if round >= 2 {
                whole.push(format!("{:.2}", (taken.read_ns - begun) as f64 / 1e3));
                handover.push(format!("{:.2}", (taken.got_ns - written) as f64 / 1e3));
            }
        }
        println!("grpc {size} {} {}", whole.join(","), handover.join(","));
    }
    drop(child.stdin.take());
    child.wait()?;
    Ok(())
}

type Client = payloads_client::PayloadsClient<tonic::transport::Channel>;

async fn connect(address: &str) -> Result<Client, Box<dyn std::error::Error>> {
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}"))?
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME)
        .tcp_nodelay(true)
        .connect()
        .await?;
    let client = payloads_client::PayloadsClient::new(channel);
    Ok(client.max_encoding_message_size(usize::MAX).max_decoding_message_size(usize::MAX))
}

/// Reads lines `SIZE TIMES` from the standard input. For each line it pulls payloads of this size, and prints the time
/// of one pull.
async fn pull(address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut client = connect(address).await?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let (size, times) = line.split_once(' ').ok_or("SIZE TIMES is needed")?;
        let (size, times): (u64, u64) = (size.parse()?, times.parse()?);
        let begun = now_ns();
        for _ in 0..times {
            let data = client.get(Wanted { size }).await?.into_inner().data;
            if data.len() as u64 != size {
                return Err("another number of bytes arrived".into());
            }
        }
        println!("{}", (now_ns() - begun) as f64 / 1e3 / times as f64);
    }
    Ok(())
}

/// Serves the calls until the parent process closes the pipe. Its own payload has `most` bytes.
async fn receive(address: &str, most: usize) -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind((address, 0)).await?;
    println!("{}", listener.local_addr()?);
    let service = payloads_server::PayloadsServer::new(Receiver { own: vec![7; most].into() })
        .max_decoding_message_size(usize::MAX)
        .max_encoding_message_size(usize::MAX);
    let parent_is_done = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
    });
    // tonic's server ignores its own setting of TCP_NODELAY if it is given a listener. Without TCP_NODELAY, the last part
    // of an answer waits until the client acknowledges the parts before, up to 40 ms.
    let listener = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
    tonic::transport::Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME)
        .add_service(service)
        .serve_with_incoming_shutdown(listener, async {
            let _ = parent_is_done.await;
        })
        .await?;
    Ok(())
}

/// Gives the present time of a clock that both processes share.
fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
