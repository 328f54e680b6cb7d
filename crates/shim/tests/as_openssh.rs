//! Tests with random command lines that the shim reads the same host, user and port as the ssh of this machine (`ssh
//! -G`).

use std::process::Command;

use crossdock_shim::arguments::parse;
use proptest::prelude::*;

fn word() -> impl Strategy<Value = Vec<String>> {
    let one = |text: &'static str| Just(vec![text.to_owned()]);
    prop_oneof![
        one("-x"),
        one("-xT"),
        one("-q"),
        one("-lbob"),
        one("-p2222"),
        one("-xp77"),
        one("-oBatchMode=yes"),
        one("--"),
        one("node1"),
        one("carol@node2"),
        one("ssh://dave@node3:88"),
        one("ssh://node4"),
        one("orted"),
        one("-"),
        Just(vec!["-p".to_owned(), "99".to_owned()]),
        Just(vec!["-l".to_owned(), "erin".to_owned()]),
        Just(vec!["-o".to_owned(), "Port=5".to_owned()]),
        Just(vec!["-c".to_owned(), "aes128-ctr".to_owned()]),
    ]
}

/// Gives host, user and port as ssh reads them; `None` if ssh refuses the command line.
fn by_openssh(words: &[String]) -> Option<(String, String, String)> {
    let answer = Command::new("ssh").args(["-F", "none", "-G"]).args(words).output().ok()?;
    if !answer.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let value =
        |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')).unwrap_or_default().to_owned();
    Some((value("hostname"), value("user"), value("port")))
}

fn have_ssh() -> bool {
    by_openssh(&["node".into()]).is_some()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_shim_reads_a_command_line_as_openssh_does(parts in prop::collection::vec(word(), 1..7)) {
        prop_assume!(have_ssh());
        let words = parts.concat();
        let theirs = by_openssh(&words);
        match (parse(&words), theirs) {
            (Ok(ours), Some((host, user, port))) => {
                prop_assert_eq!(ours.host, host, "{:?}", words);
                if let Some(name) = ours.user {
                    prop_assert_eq!(name, user, "{:?}", words);
                }
                let by_option = words.iter().any(|w| w.contains("Port="));
                if let (Some(number), false) = (ours.port, by_option) {
                    prop_assert_eq!(number.to_string(), port, "{:?}", words);
                }
            }
            (Err(_), None) => {}
            (ours, theirs) => prop_assert!(false, "{:?}: shim {:?}, ssh {:?}", words, ours, theirs),
        }
    }
}
