//! Writes the reference of the command line from the declaration of the arguments: man pages and a page of the site.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use crossdock_launch::run::code;

use crate::args::{Cli, Pages};
use crate::table::complain;

pub fn write(kind: Pages, folder: &Path) -> u8 {
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    let written = std::fs::create_dir_all(folder).and_then(|()| match kind {
        Pages::Man => man_pages(&cli, folder),
        Pages::Markdown => std::fs::write(folder.join("command-line.md"), markdown(&cli)),
    });
    match written {
        Ok(()) => code::OK,
        Err(error) => {
            complain(&format!("cannot write to {}: {error}", folder.display()));
            code::SYSTEM
        }
    }
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

fn man_pages(cli: &Command, folder: &Path) -> std::io::Result<()> {
    let page = |command: &Command, name: &str| {
        let man = clap_mangen::Man::new(command.clone()).title(name).manual("crossdock");
        let man = man.source(concat!("crossdock ", env!("CARGO_PKG_VERSION")));
        let mut text = Vec::new();
        man.render_title(&mut text)?;
        man.render_name_section(&mut text)?;
        man.render_synopsis_section(&mut text)?;
        man.render_options_section(&mut text)?;
        if command.get_subcommands().next().is_some() {
            man.render_subcommands_section(&mut text)?;
        }
        text.extend(more(command).map(as_it_is).unwrap_or_default().into_bytes());
        std::fs::write(folder.join(format!("{name}.1")), text)
    };
    page(cli, "crossdock")?;
    visible(cli).try_for_each(|sub| page(sub, &format!("crossdock-{}", sub.get_name())))
}

/// Gives the end of a command's long help: exit codes, environment, examples.
fn more(command: &Command) -> Option<String> {
    command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string)
}

/// Formats a section of a page whose lines must stay as they are.
fn as_it_is(text: String) -> String {
    let line = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
        if line.starts_with('.') { format!("\\&{line}\n") } else { format!("{line}\n") }
    };
    format!(".SH MORE\n.nf\n{}.fi\n", text.lines().map(line).collect::<String>())
}

fn markdown(cli: &Command) -> String {
    let mut text =
        String::from("# The crossdock command\n\nWritten from the same declaration as `crossdock help`.\n\n");
    for sub in visible(cli) {
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        let name = sub.get_name();
        writeln!(text, "- [`crossdock {name}`](#crossdock-{name}): {about}").ok();
    }
    for sub in visible(cli) {
        command(&mut text, sub);
    }
    text
}

fn command(text: &mut String, command: &Command) {
    let long = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    writeln!(text, "\n## crossdock {}\n\n{long}\n\n```text\n{usage}\n```\n", command.get_name()).ok();
    let shown = command.get_arguments().filter(|a| !a.is_hide_set() && a.get_id() != "help");
    let rows: Vec<_> = shown.map(row).collect();
    if !rows.is_empty() {
        writeln!(text, "| option | meaning |\n|---|---|\n{}", rows.join("\n")).ok();
    }
    if let Some(more) = more(command) {
        writeln!(text, "\n```text\n{more}\n```").ok();
    }
}

fn row(arg: &Arg) -> String {
    let names = [arg.get_short().map(|c| format!("-{c}")), arg.get_long().map(|long| format!("--{long}"))];
    let names: Vec<String> = names.into_iter().flatten().collect();
    let takes = arg.get_action().takes_values();
    let values: Vec<String> = arg.get_value_names().unwrap_or_default().iter().map(|v| format!("<{v}>")).collect();
    let mut words = names.join(", ");
    if takes {
        words = format!("{words} {}", values.join(" ")).trim().to_string();
    }
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut help = help.replace('\n', " ").replace('|', "\\|");
    let defaults: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).collect();
    if takes && !defaults.is_empty() {
        write!(help, " [default: {}]", defaults.join(" ")).ok();
    }
    let possible = arg.get_possible_values();
    let possible: Vec<_> =
        possible.iter().filter(|v| !v.is_hide_set()).map(|v| format!("`{}`", v.get_name())).collect();
    if takes && !possible.is_empty() {
        write!(help, "; one of {}", possible.join(", ")).ok();
    }
    format!("| `{}` | {help} |", words.replace('|', "\\|"))
}
