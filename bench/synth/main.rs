//! Generates a synthetic workflow, runs it and prints how fast it was. README.md in this folder describes it.

mod args;
mod describe;
mod graph;
mod measure;
mod program;
mod run;
mod shared;
mod verify;
mod workflow;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use crossdock_launch::run::code;

use args::Synth;
use graph::{Graph, Mpi, Task};
use measure::Figures;

fn main() -> ExitCode {
    let options = Synth::parse();
    ExitCode::from(synth(&options))
}

fn synth(options: &Synth) -> u8 {
    let graph = match read_graph(options) {
        Ok(graph) => graph,
        Err(what) => {
            eprintln!("synth: {what}");
            return code::FILE;
        }
    };
    match &options.emit {
        Some(folder) => finish(emit(&graph, options, folder)),
        None => finish(measured(&graph, options)),
    }
}

fn finish(result: Result<(), String>) -> u8 {
    match result {
        Ok(()) => code::OK,
        Err(what) => {
            eprintln!("synth: {what}");
            1
        }
    }
}

fn read_graph(options: &Synth) -> Result<Graph, String> {
    let elements = describe::elements(options.size);
    let task = Task { name: String::new(), elements, period_ns: options.period };
    let graph = match Graph::shape(&options.graph, options.tasks, &task, options.method) {
        Some(graph) => Graph { iterations: options.iterations, depth: options.depth, region: options.region, ..graph },
        None => {
            let text = std::fs::read_to_string(&options.graph).map_err(|e| {
                format!(
                    "{} is neither simple, pipeline nor scatter-gather, nor a file that can be read: {e}",
                    options.graph
                )
            })?;
            let (method, iterations, depth, region) =
                (options.method, options.iterations, options.depth, options.region);
            let defaults = describe::Defaults { task, method, iterations, depth, region };
            describe::read(&text, defaults).map_err(|what| format!("{}: {what}", options.graph))?
        }
    };
    graph.check()?;
    if options.latency && (graph.tasks.len() != 2 || graph.ports.len() != 1) {
        return Err("--latency is for two tasks and one port; take the graph `simple`".into());
    }
    if graph.needs_mpi() && options.engine != "process" {
        return Err("mpi and hybrid run as plain processes; leave --engine out".into());
    }
    Ok(graph)
}

/// Writes all files of a run. `shared` is a folder in memory for Open MPI, which is removed after the run.
fn prepare(graph: &Graph, options: &Synth, folder: &Path, shared: Option<&Path>) -> Result<(), String> {
    let program = program::build(graph, options.mpi, &options.build)?;
    let text = workflow::graph_text(graph, options, &run::id(folder));
    run::fill(folder, &program, &text, &workflow::workflow_text(graph, options, folder, shared)?)
}

fn emit(graph: &Graph, options: &Synth, folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let folder = std::path::absolute(folder).map_err(|e| e.to_string())?;
    prepare(graph, options, &folder, None)?;
    println!("crossdock run {}", folder.join("workflow.yaml").display());
    Ok(())
}

fn measured(graph: &Graph, options: &Synth) -> Result<(), String> {
    let folder = run::Folder::make(&options.build)?;
    let shared = match options.mpi {
        Mpi::Openmpi if graph.needs_mpi() => Some(shared::make_folder(&run::id(&folder.0))?),
        _ => None,
    };
    prepare(graph, options, &folder.0, shared.as_deref())?;
    let (said, summary) = run::run(&folder.0, &options.engine, options.deadline, graph)?;
    let figures = measure::measure(graph, &said)?;
    print(graph, options, &figures, &summary);
    Ok(())
}

fn print(graph: &Graph, options: &Synth, figures: &Figures, summary: &serde_json::Value) {
    let mut methods: Vec<&str> = graph.ports.iter().map(|p| p.method.word()).collect();
    methods.dedup();
    let methods = methods.join("+");
    if options.json {
        let figures = serde_json::to_value(figures).unwrap_or_default();
        let mut all = serde_json::json!({
            "graph": options.graph, "method": methods, "engine": summary["engine"], "checksums": "right",
            "ports_summary": summary["ports"],
        });
        if graph.needs_mpi() {
            all["mpi"] = format!("{:?}", options.mpi).to_lowercase().into();
        }
        if let (Some(all), Some(figures)) = (all.as_object_mut(), figures.as_object()) {
            all.extend(figures.clone());
        }
        println!("{}", serde_json::to_string_pretty(&all).unwrap_or_default());
        return;
    }
    println!("{}, {} tasks, {} ports, {methods}", options.graph, figures.tasks, figures.ports);
    for trial in 0..figures.seconds.len() {
        println!(
            "  {} iterations in {:.3} s: {:.1} MB/s, {:.1} iterations/s; all checksums right",
            figures.iterations[trial],
            figures.seconds[trial],
            figures.megabytes_per_second[trial],
            figures.iterations_per_second[trial]
        );
    }
    if figures.sleeps_per_message > 0.0 {
        println!("  {:.3} sleeps and {:.3} wakes a message", figures.sleeps_per_message, figures.wakes_per_message);
    }
    if let Some(median) = figures.median_hand_over_ns() {
        println!("  hand-over {median} ns, the median");
    }
}
