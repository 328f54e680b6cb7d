//! The fuzzer's entry for everything that the shim reads: messages between the processes of an MPI job, command lines of
//! ssh, lists of CPUs, and the files of programs.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::message::Message;
use crate::{arguments, binding, program};

/// Reads the bytes in the way that the first byte selects:
///
/// - A message. A message that is accepted has the same bytes when it is encoded again.
/// - A stream of frames. Each frame that is accepted has the same bytes when it is written again, and a frame that is
///   cut off gives no message.
/// - A command line of ssh, with a zero byte between words. If the result is written as a command line again, reading
///   this line gives the same result.
/// - A list of CPUs. The list that is read has at most 8192 CPUs. If it is written as a list again, reading this list
///   gives the same result.
/// - The file of a program. A correct header is put before the bytes.
pub fn fuzz_shim(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else { return };
    match which % 5 {
        0 => {
            if let Some(message) = Message::decode(body) {
                assert_eq!(message.encode(), body, "{message:?}");
            }
        }
        1 => stream(body),
        2 => command_line(&words(body)),
        3 => cpus(&String::from_utf8_lossy(body)),
        _ => program(body),
    }
}

fn stream(body: &[u8]) {
    let mut rest = body;
    loop {
        let before = rest;
        let Some(message) = Message::read_frame(&mut rest) else { return };
        let frame = &before[..before.len() - rest.len()];
        assert_eq!(message.frame(), frame, "{message:?}");
        assert!(Message::read_frame(&mut &frame[..frame.len() - 1]).is_none(), "{message:?} without its end");
    }
}

/// Splits bytes at zero bytes into words.
pub fn words(body: &[u8]) -> Vec<String> {
    body.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn command_line(words: &[String]) {
    let found = match arguments::parse(words) {
        Ok(found) => found,
        Err(what) => return assert!(!what.is_empty()),
    };
    let mut simplest = found.options.clone();
    simplest.extend(found.user.iter().flat_map(|user| ["-l".to_owned(), user.clone()]));
    simplest.extend(found.port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]));
    simplest.extend(["--".to_owned(), found.host.clone()]);
    simplest.extend(Some(found.command.clone()).filter(|command| !command.is_empty()));
    assert_eq!(arguments::parse(&simplest), Ok(found), "{words:?}");
}

fn cpus(text: &str) {
    if let Some(cpus) = binding::parse(text) {
        assert!(cpus.len() <= 8192 && cpus.iter().all(|cpu| *cpu <= 8192));
        assert_eq!(binding::parse(&binding::show(&cpus)), Some(cpus), "{text}");
    }
}

/// Examines a program with a correct header. The table of its segments is at the beginning of `body`.
fn program(body: &[u8]) {
    let (count, body) = body.split_first().map_or((0, body), |(count, rest)| (count % 16, rest));
    let mut bytes = [0; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[18] = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    bytes[32] = 64;
    bytes[54] = 56;
    bytes[56] = count;
    let bytes = [&bytes[..], body].concat();
    let memory = crossdock_os::memfd::create("crossdock-fuzz", bytes.len() as u64).expect("a memfd");
    let file = File::from(memory);
    file.write_all_at(&bytes, 0).expect("room");
    program::fuzz_program(&file);
}

#[cfg(test)]
mod tests {
    use crossdock_os::testing::{Random, run_corpus};

    use super::*;
    use crate::message::{End, Order, Rank};

    #[test]
    fn inputs_of_the_fuzzer_do_no_harm() {
        run_corpus("shim", fuzz_shim);
    }

    #[test]
    fn random_messages_and_changed_ones_have_one_encoding_or_none() {
        let rank = Rank { rank: 1, size: 2, pid: 3, host: "h".into(), command: "c".into(), cpus: "0".into() };
        let order = Order { words: vec!["a".into(), "b".into()], shell: true, descriptor: -1, ..Order::default() };
        let messages = [
            Message::Run(order),
            Message::Remote(vec!["n2".into(), "orted".into()]),
            Message::RankEnded(rank.clone(), End { code: 1, signal: 0 }),
            Message::RankTrouble(rank, "what".into(), "hint".into()),
            Message::Output(1, vec![1, 2, 3]),
            Message::Environment(vec![("A".into(), "b".into())]),
        ];
        let mut random = Random(7);
        for round in 0..20_000 {
            let message = &messages[round % messages.len()];
            let framed = round % 2;
            let mut bytes = if framed == 1 { message.frame() } else { message.encode() };
            for _ in 0..1 + round % 3 {
                let at = random.below(bytes.len());
                bytes[at] = random.byte();
            }
            bytes.insert(0, framed as u8);
            fuzz_shim(&bytes);
            let length = random.below(100);
            fuzz_shim(&[vec![(round % 5) as u8], random.bytes(length)].concat());
        }
    }

    /// A flag must have only one valid encoding. If any number other than 0 meant true, one message would have many
    /// encodings.
    #[test]
    fn a_flag_is_zero_or_one() {
        let order = Order { shell: true, ..Order::default() };
        let mut bytes = Message::Run(order).encode();
        let at = 8 + 8 + 8;
        assert_eq!(bytes[at], 1);
        bytes[at] = 2;
        assert_eq!(Message::decode(&bytes), None);
    }
}
