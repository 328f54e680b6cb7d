//! `crossdock run`

use crossdock_launch::file;
use crossdock_launch::run::{self, RunOptions, code};

use crate::args::{Run, SUPERVISE, Show};
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
    let order = RunOptions {
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

fn check(options: &Run) -> u8 {
    match file::read(&options.file) {
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
