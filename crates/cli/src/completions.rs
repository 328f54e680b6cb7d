//! Writes completion scripts for shells. The scripts also complete the names of runs, objects and series that exist
//! when the user presses the Tab key.

use clap::CommandFactory;
use clap_complete::Shell;
use crossdock_client::SegmentKind;
use crossdock_web::find;

use crate::args::{Cli, Names};
use crate::names;
use crate::table::say;

/// For each kind of names, the commands whose first argument is such a name. The entry `region` stands for the commands
/// of `crossdock region`.
const TAKES: [(&str, &[&str]); 4] = [
    ("runs", &["ps", "logs", "stop", "attach"]),
    ("objects", &["inspect", "rm", "audit"]),
    ("series", &["watch", "export", "checkpoint"]),
    ("regions", &[GROUP]),
];

/// The command whose first argument is another command; the second argument is a name.
const GROUP: &str = "region";

/// Gives the completion script for a shell: the script that clap writes, extended by the completion of names.
pub fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "crossdock", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script + &bash(),
        Shell::Fish => script + &fish(),
        Shell::Zsh => zsh(&script),
        _ => script,
    }
}

/// Prints the names, one on each line. Without a daemon it prints none and succeeds.
pub fn names(kind: Names) -> u8 {
    let mut all: Vec<String> = Vec::new();
    if kind == Names::Runs {
        all.extend(crossdock_launch::run::living().into_iter().map(|run| run.id));
    } else {
        for daemon in find::daemons(None).unwrap_or_default() {
            let Ok(listing) = daemon.session.list() else { continue };
            let wanted = |n: &names::NamedObject| match kind {
                Names::Regions => n.kind == SegmentKind::Region,
                Names::Series => n.kind == SegmentKind::Series,
                Names::Objects | Names::Runs => true,
            };
            all.extend(names::all(&listing).iter().filter(|n| wanted(n)).map(names::NamedObject::whole));
        }
    }
    all.sort();
    all.dedup();
    if !all.is_empty() {
        say(&all.join("\n"));
    }
    0
}

/// Gives a bash function that completes the first word after a command that takes names. It runs before the function
/// that clap writes.
fn bash() -> String {
    let cases: String =
        TAKES.iter().map(|(kind, commands)| format!("        {}) kind={kind} ;;\n", commands.join("|"))).collect();
    format!(
        r#"
_crossdock_with_names() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} kind= first=2
    case ${{COMP_WORDS[1]}} in
{cases}    esac
    [[ ${{COMP_WORDS[1]}} != {GROUP} ]] || first=3
    if [[ -n $kind && $COMP_CWORD -ge $first && $word != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(crossdock names "$kind" 2>/dev/null)" -- "$word")
        [[ ${{#COMPREPLY[@]}} -eq 0 ]] || return 0
    fi
    _crossdock "$@"
}}
complete -F _crossdock_with_names -o bashdefault -o default crossdock
"#
    )
}

fn fish() -> String {
    let line = |(kind, commands): &(&str, &[&str])| {
        let below = if commands.contains(&GROUP) { "; and __fish_seen_subcommand_from copy move" } else { "" };
        let condition = format!("__fish_seen_subcommand_from {}{below}", commands.join(" "));
        format!("complete -c crossdock -n \"{condition}\" -f -a \"(crossdock names {kind} 2>/dev/null)\"\n")
    };
    TAKES.iter().map(line).collect()
}

/// In zsh's script, each argument of a command has a completer. For arguments that are names, this function replaces
/// the completer by another completer, which asks crossdock for the names.
fn zsh(script: &str) -> String {
    let completer = |line: &str| {
        let place = line.trim_start().trim_start_matches(['\'', ':', '*']);
        let name = place.split(" -- ").next().unwrap_or_default();
        match name {
            "run" | "runs" => Some("runs"),
            "name" | "names" => Some("objects"),
            "series" => Some("series"),
            "region" => Some("regions"),
            _ => None,
        }
    };
    let line = |line: &str| match completer(line) {
        Some(kind) => line.replace(":_default'", &format!(":_crossdock_names_{kind}'")),
        None => line.to_owned(),
    };
    let (first, rest) = script.split_once('\n').unwrap_or((script, ""));
    let functions: String = TAKES
        .iter()
        .map(|(kind, _)| {
            format!("_crossdock_names_{kind}() {{ compadd -- ${{(f)\"$(crossdock names {kind} 2>/dev/null)\"}} }}\n")
        })
        .collect();
    let rest: Vec<String> = rest.lines().map(line).collect();
    format!("{first}\n{functions}{}\n", rest.join("\n"))
}
