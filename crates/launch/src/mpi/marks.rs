//! Marks: lines in which the tasks of a Slurm step report to the front. They are mixed with the lines that ranks write to
//! standard error, which srun brings to the front.
//!
//! Slurm passes on whole lines of at most a thousand bytes, so a mark is one short line.

use crossdock_layout::text::clipped;
use crossdock_shim::message::{End, Message, Rank};

const BEGIN: &str = "\u{1e}crossdock-mpi";
const BETWEEN: char = '\u{1f}';
/// The most bytes of one field of a mark, which is a line that a task of a Slurm step sends to the front.
const FIELD_MAX: usize = 240;

/// Writes this message as a mark, which is one line of text. Gives `None` for messages that tasks do not pass on to the
/// front.
pub fn line(message: &Message) -> Option<String> {
    let numbers = |list: &[i32]| list.iter().map(i32::to_string).collect::<Vec<_>>();
    let mut fields: Vec<String> = Vec::new();
    let of = |rank: &Rank| {
        let mut list = numbers(&[rank.rank, rank.size, rank.pid]);
        list.extend([rank.host.clone(), rank.command.clone(), rank.cpus.clone()]);
        list
    };
    match message {
        Message::Step(name) => fields.extend(["step".to_owned(), name.clone()]),
        Message::RankStarted(rank) => {
            fields.push("started".into());
            fields.extend(of(rank));
        }
        Message::RankLost(rank) => {
            fields.push("lost".into());
            fields.extend(of(rank));
        }
        Message::RankEnded(rank, end) => {
            fields.push("ended".into());
            fields.extend(of(rank));
            fields.extend(numbers(&[end.code, end.signal]));
        }
        Message::RankTrouble(rank, what, hint) => {
            fields.push("trouble".into());
            fields.extend(of(&Rank { cpus: String::new(), ..rank.clone() }));
            fields.extend([what.clone(), hint.clone()]);
        }
        Message::Failed(host, what, hint) => {
            fields.extend(["failed".to_owned(), host.clone(), what.clone(), hint.clone()]);
        }
        _ => return None,
    }
    let mut text = BEGIN.to_owned();
    for field in &fields {
        text.push(BETWEEN);
        text.extend(clipped(field, FIELD_MAX).chars().map(|c| if c.is_control() { ' ' } else { c }));
    }
    text.push('\n');
    Some(text)
}

/// Splits a line into the text that a rank wrote before the mark, and the mark's message.
pub fn find(line: &str) -> (&str, Option<Message>) {
    let Some(at) = line.find(BEGIN) else { return (line, None) };
    let mut fields = line[at + BEGIN.len()..].trim_end_matches('\n').split(BETWEEN).skip(1);
    (&line[..at], read(&mut fields))
}

fn read<'a>(fields: &mut impl Iterator<Item = &'a str>) -> Option<Message> {
    fn number<'a>(fields: &mut impl Iterator<Item = &'a str>) -> Option<i32> {
        fields.next()?.parse().ok()
    }
    fn rank<'a>(fields: &mut impl Iterator<Item = &'a str>) -> Option<Rank> {
        let (rank, size, pid) = (number(fields)?, number(fields)?, number(fields)?);
        let mut text = || fields.next().map(str::to_owned);
        Some(Rank { rank, size, pid, host: text()?, command: text()?, cpus: text()? })
    }
    Some(match fields.next()? {
        "step" => Message::Step(fields.next()?.to_owned()),
        "started" => Message::RankStarted(rank(fields)?),
        "lost" => Message::RankLost(rank(fields)?),
        "ended" => Message::RankEnded(rank(fields)?, End { code: number(fields)?, signal: number(fields)? }),
        "trouble" => Message::RankTrouble(rank(fields)?, fields.next()?.to_owned(), fields.next()?.to_owned()),
        "failed" => Message::Failed(fields.next()?.to_owned(), fields.next()?.to_owned(), fields.next()?.to_owned()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_behind_half_a_line_of_the_rank_and_says_the_same() {
        let rank =
            Rank { rank: 3, size: 8, pid: 12, host: "n2".into(), command: "./solver".into(), cpus: "0-3".into() };
        let nothing = Rank { cpus: String::new(), ..rank.clone() };
        for message in [
            Message::Step("7.0".into()),
            Message::RankStarted(rank.clone()),
            Message::RankLost(rank.clone()),
            Message::RankEnded(rank, End { code: 3, signal: 0 }),
            Message::RankTrouble(nothing, "what".into(), "hint".into()),
            Message::Failed("n1".into(), "what".into(), "hint".into()),
        ] {
            let text = format!("half{}", line(&message).unwrap());
            assert!(text.ends_with('\n') && text.len() < 1000);
            assert_eq!(find(&text), ("half", Some(message)));
        }
        assert_eq!(find("what a rank writes\n"), ("what a rank writes\n", None));
    }

    #[test]
    fn a_mark_stays_one_short_line_whatever_its_fields_hold() {
        let long = "ä".repeat(5000) + "\n\u{1f}";
        let text = line(&Message::Failed(long.clone(), long.clone(), long)).unwrap();
        assert!(text.len() < 1000 && text.matches('\n').count() == 1, "{}", text.len());
        assert!(matches!(find(&text).1, Some(Message::Failed(..))));
        assert_eq!(find("\u{1e}crossdock-mpi\u{1f}ended\u{1f}x\n"), ("", None));
    }
}
