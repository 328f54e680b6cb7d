//! Writes the tables of `docs/wire-protocol.md`.

use std::fmt::Write;

use crossdock_layout::Rights;
use crossdock_layout::set::{ClosedSet, Set};
use crossdock_layout::wire::{
    Answer, Field, Grant, HEADER, ItemEntry, ItemGiven, ItemLevel, ItemRequest, ItemState, ListOf, MemberEntry,
    MemberState, Message, NodeEntry, NodeState, OnDeath, OpenMode, PageEntry, Request, SegmentEntry, SegmentKind,
    SeriesEntry, WorkflowEntry,
};

use super::{keep, remark, replace, whole};

const PAGE: &str = "docs/wire-protocol.md";

pub(super) fn between(text: &str, name: &str, with: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: written from crates/layout -->"), format!("<!-- end of {name} -->"));
    replace(text, &begin, &end, &format!("{begin}\n\n{with}\n{end}"))
}

fn requests() -> impl Iterator<Item = (&'static str, &'static Message)> {
    let items = ItemRequest::DECLARED.iter().map(|message| ("Item: ", message));
    Request::DECLARED.iter().map(|message| ("", message)).chain(items)
}

fn overview() -> String {
    let mut text =
        "| op | request | its descriptors | answer (op + 0x8000) | its descriptors |\n|---|---|---|---|---|\n"
            .to_owned();
    for (family, request) in requests() {
        let answer = request.answer.and_then(|name| Answer::DECLARED.iter().find(|answer| answer.name == name));
        let _ = writeln!(
            text,
            "| {} | {family}{} | {} | {} | {} |",
            request.number,
            request.name,
            request.descriptors.unwrap_or_default(),
            request.answer.unwrap_or("–"),
            answer.and_then(|answer| answer.descriptors).unwrap_or_default(),
        );
    }
    text
}

pub(super) fn table(fields: &[Field], mut at: Option<usize>) -> String {
    let mut text = "| byte | field | type | meaning |\n|---|---|---|---|\n".to_owned();
    for field in fields {
        let bits = |(n, name): (usize, &&str)| {
            if field.names.len() > 1 { format!("bit {n} {name}") } else { (*name).to_owned() }
        };
        let names: Vec<_> = field.names.iter().enumerate().map(bits).collect();
        let padded = field.size == 8 && field.what.ends_with("u32");
        let (what, rest) = (field.what, if padded { ", reserved u32" } else { "" });
        let byte = at.map_or("…".to_owned(), |byte| byte.to_string());
        let _ = writeln!(text, "| {byte} | {} | {what}{rest} | {} |", names.join(" · "), whole(field.doc));
        at = at.filter(|_| field.size > 0).map(|byte| byte + field.size);
    }
    text
}

fn messages() -> String {
    let mut text = String::new();
    for (family, request) in requests() {
        let _ = writeln!(text, "**{} {family}{}.** {}\n", request.number, request.name, whole(request.doc));
        if !request.fields.is_empty() {
            let _ = writeln!(text, "{}", table(request.fields, Some(HEADER)));
        }
    }
    for answer in Answer::DECLARED.iter().filter(|answer| answer.body != Some("Page")) {
        let body = answer.body.map(|body| format!(" The body is {body}.")).unwrap_or_default();
        let _ = writeln!(text, "**Answer {}.** {}{body}\n", answer.name, whole(answer.doc));
        if !answer.fields.is_empty() {
            let _ = writeln!(text, "{}", table(answer.fields, Some(HEADER)));
        }
    }
    let parts = [
        &Grant::DECLARED,
        &WorkflowEntry::DECLARED,
        &MemberEntry::DECLARED,
        &SegmentEntry::DECLARED,
        &SeriesEntry::DECLARED,
        &PageEntry::DECLARED,
        &ItemGiven::DECLARED,
        &ItemEntry::DECLARED,
        &NodeEntry::DECLARED,
    ];
    for part in parts {
        let _ = writeln!(text, "**{}.** {}\n\n{}", part.name, whole(part.doc), table(part.fields, Some(0)));
    }
    text.trim_end().to_owned() + "\n"
}

fn sets() -> String {
    let mut text = "| set | numbers |\n|---|---|\n".to_owned();
    let all: [Set; 11] = [
        SegmentKind::SET,
        OpenMode::SET,
        crossdock_layout::wire::InUse::SET,
        Rights::SET,
        ListOf::SET,
        MemberState::SET,
        NodeState::SET,
        ItemLevel::SET,
        OnDeath::SET,
        ItemState::SET,
        crossdock_layout::Status::SET,
    ];
    for set in all {
        let members = set.members.iter().map(|m| format!("{} **{}**: {}", m.number, m.word, remark(m.doc)));
        let _ = writeln!(text, "| {} | {} |", set.name, members.collect::<Vec<_>>().join("<br>"));
    }
    text
}

#[test]
fn tables_of_the_protocol_are_the_declared_messages() {
    keep(PAGE, |text| {
        let text = between(text, "overview", &overview());
        let text = between(&text, "messages", &messages());
        between(&text, "sets", &sets())
    });
}
