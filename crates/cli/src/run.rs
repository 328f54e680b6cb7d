//! `crossdock run`: starts a workflow.

use crossdock_launch::file;
use crossdock_launch::run::hosts::{HostOptions, Hosts, Launcher};
use crossdock_launch::run::{self, RunOptions, code};

use crate::args::{Run, RunLauncher, SUPERVISE, Show};
use crate::table::{complain, say};

pub fn run(options: &Run) -> u8 {
    if options.check || options.graph.is_some() {
        return check(options);
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(e) => {
            complain(&format!("cannot find this program in the file system: {e}"));
            return code::SYSTEM;
        }
    };
    let hosts = match hosts(options) {
        Ok(hosts) => hosts,
        Err(why) => {
            complain(&why);
            return code::USAGE;
        }
    };
    let order = RunOptions {
        hosts,
        file: options.file.clone(),
        engine: options.engine.clone(),
        logs: options.logs.clone(),
        log_limit: options.log_limit,
        show: match options.show {
            Show::Auto => run::Show::Auto,
            Show::Live => run::Show::Live,
            Show::Lines => run::Show::Lines,
            Show::Quiet => run::Show::Quiet,
        },
        json: options.json,
        daemon: options.daemon.clone(),
        deadline_s: options.deadline.map(|time| time.as_secs()),
    };
    let _web = match options.web {
        true => {
            let scope = crossdock_web::Scope { socket: None, front: Some(std::process::id()) };
            match crate::web::start(&options.page, scope) {
                Ok(web) => {
                    eprintln!("look at this run: {}", web.url);
                    Some(web)
                }
                Err(why) => {
                    complain(&why);
                    return code::SYSTEM;
                }
            }
        }
        false => None,
    };
    run::front(&order, (&program, &[SUPERVISE]))
}

/// Finds the hosts of the run; `None` if it runs on this host only.
fn hosts(options: &Run) -> Result<Option<Hosts>, String> {
    let o = &options.hosts;
    let hostfile = o
        .hostfile
        .as_ref()
        .map(|path| std::fs::read_to_string(path).map_err(|e| format!("--hostfile {}: {e}", path.display())));
    if o.hosts.is_none() && o.hostfile.is_none() && options.daemon.is_some() {
        // The daemon that the user named is on this host, so the run uses no other hosts.
        return Ok(None);
    }
    let wanted = HostOptions {
        hosts: o.hosts.clone(),
        hostfile: hostfile.transpose()?,
        launcher: o.launcher.map(|launcher| match launcher {
            RunLauncher::Ssh => Launcher::Ssh,
            RunLauncher::Srun => Launcher::Srun,
        }),
        ssh: o.ssh.as_deref().unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
        starter: o.starter.clone(),
        address: o.address.clone(),
        transport: o.transport,
        trusted_network: o.trusted_network,
    };
    wanted.find()
}

/// Reads the workflow file. With hosts, it also checks on which host each task runs.
fn read(options: &Run, hosts: Option<&Hosts>) -> Result<file::Workflow, file::Problems> {
    match hosts {
        Some(hosts) => {
            let text = file::text(&options.file)?;
            Ok(file::parse_on(&options.file, &text, &hosts.names, hosts.here)?.0)
        }
        None => file::read(&options.file),
    }
}

fn check(options: &Run) -> u8 {
    let hosts = match hosts(options) {
        Ok(hosts) => hosts,
        Err(why) => {
            complain(&why);
            return code::USAGE;
        }
    };
    match read(options, hosts.as_ref()) {
        Ok(workflow) => {
            if let Some(picture) = &options.graph {
                return crate::graph::draw(&workflow, picture);
            }
            if options.json {
                say(&format!("{{\"problems\": [], \"tasks\": {}}}", workflow.tasks.len()));
            } else {
                say(&format!(
                    "{}: no problems in {} tasks and {} ports",
                    options.file.display(),
                    workflow.tasks.len(),
                    workflow.ports.len()
                ));
            }
            code::OK
        }
        Err(problems) => {
            if options.json {
                let list: Vec<_> = problems.list().iter().map(|p| {
                    serde_json::json!({ "line": p.position.line, "column": p.position.column, "key": p.key, "what": p.what, "hint": p.hint })
                }).collect();
                crate::table::json(&serde_json::json!({ "problems": list }));
            } else {
                eprintln!("{problems}");
            }
            code::FILE
        }
    }
}
