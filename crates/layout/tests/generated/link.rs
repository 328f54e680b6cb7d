//! Writes the tables of `docs/node-protocol.md`.

use std::fmt::Write;

use crossdock_layout::link::{FRAME_HEADER, NodeMessage, Purpose};
use crossdock_layout::set::ClosedSet;

use super::protocol::{between, table};
use super::{keep, remark, whole};

const PAGE: &str = "docs/node-protocol.md";

fn overview() -> String {
    let mut text = "| op | message | answered by |\n|---|---|---|\n".to_owned();
    for message in NodeMessage::DECLARED {
        let answer = message.answer.map_or_else(|| "–".to_owned(), |answer| format!("{answer} or Failed"));
        let _ = writeln!(text, "| {} | {} | {answer} |", message.number, message.name);
    }
    text
}

fn messages() -> String {
    let mut text = String::new();
    for message in NodeMessage::DECLARED {
        let body = message.body.map(|body| format!(" The body is {body}.")).unwrap_or_default();
        let _ = writeln!(text, "**{} {}.** {}{body}\n", message.number, message.name, whole(message.doc));
        if !message.fields.is_empty() {
            let _ = writeln!(text, "{}", table(message.fields, Some(FRAME_HEADER)));
        }
    }
    text.trim_end().to_owned() + "\n"
}

fn sets() -> String {
    let members = Purpose::SET.members.iter().map(|m| format!("{} **{}**: {}", m.number, m.word, remark(m.doc)));
    format!("| set | numbers |\n|---|---|\n| Purpose | {} |\n", members.collect::<Vec<_>>().join("<br>"))
}

#[test]
fn tables_of_the_protocol_between_nodes_are_the_declared_messages() {
    keep(PAGE, |text| {
        let text = between(text, "overview", &overview());
        let text = between(&text, "messages", &messages());
        between(&text, "sets", &sets())
    });
}
