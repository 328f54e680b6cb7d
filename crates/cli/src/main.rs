//! The `crossdock` command.

mod args;
mod audit;
mod certificates;
mod check;
mod checkpoint;
mod completions;
mod directories;
mod doctor;
mod export;
mod graph;
mod inspect;
mod items;
mod ls;
mod mpirun;
mod names;
mod nodes;
mod output;
mod pages;
mod region;
mod remove;
mod run;
mod runs;
mod series;
mod serve;
mod table;
mod top;
mod watch;
mod web;

use std::process::ExitCode;

use args::Command;
use crossdock_os::child;

fn main() -> ExitCode {
    // The caller's open files are not for the containers, daemons and tasks that this program starts. What this program
    // passes on purpose, it passes by `spawn::inherit` or by a message.
    child::pass_no_descriptors();
    // A caller that ignores SIGCHLD passes this setting on.
    child::keep_ended_children();
    let code = match args::parse() {
        Command::Run(options) => run::run(&options),
        Command::Supervise => crossdock_launch::run::supervisor(),
        Command::Mpirun(options) => mpirun::mpirun(*options),
        Command::MpiKeeper { folder } => crossdock_launch::mpi::keeper(&folder),
        Command::MpiStarter => crossdock_launch::mpi::starter(),
        Command::RunPart => crossdock_launch::run::part(),
        Command::SupervisePart => crossdock_launch::run::part_supervisor(),
        Command::MpiTask => crossdock_launch::mpi::task(),
        Command::Serve(options) => serve::serve(options),
        Command::Ps(options) => runs::ps(&options),
        Command::Logs(options) => runs::logs(&options),
        Command::Stop(options) => runs::stop(&options),
        Command::Attach(options) => runs::attach(&options),
        Command::Top(options) => top::top(&options),
        Command::Web(options) => web::web(&options),
        Command::Ls(options) => ls::ls(&options),
        Command::Inspect(options) => inspect::inspect(&options),
        Command::Rm(options) => remove::remove(&options),
        Command::Region(command) => region::region(&command),
        Command::Check(options) => check::check(&options),
        Command::Audit(options) => audit::audit(&options),
        Command::Checkpoint(options) => checkpoint::checkpoint(&options),
        Command::Watch(options) => watch::watch(&options),
        Command::Export(options) => export::export(&options),
        Command::Doctor(options) => doctor::doctor(&options),
        Command::Certificates(options) => certificates::make(&options),
        Command::Completions { shell } => {
            table::say(&completions::script(shell));
            0
        }
        Command::Names { kind } => completions::names(kind),
        Command::Pages { kind, folder } => pages::write(kind, &folder),
    };
    ExitCode::from(code)
}
