//! Writes the files of a run: the graph for the tasks' program, and the workflow file for `crossdock run`.

use std::fmt::Write;
use std::path::Path;

use crate::args::Synth;
use crate::graph::{Graph, Method, Mpi};
use crate::program::first_of;

/// The path of the run's folder inside a container.
const INSIDE: &str = "/synth";

/// Gives the graph and the numbers of its measurement as text, for the C++ program of the tasks.
pub fn graph_text(graph: &Graph, options: &Synth, run: &str) -> String {
    let warmup = options.warmup.unwrap_or(u64::from(graph.depth) + 2).max(1);
    let trial_ns = (options.seconds.max(0.0) * 1e9) as u64;
    let inline = if options.no_inline { 0 } else { crossdock_client::INLINE_MAX };
    let mut text = format!(
        "workflow {} {warmup} {} {trial_ns} {} {} {inline} {} {} {run}\n",
        graph.iterations,
        options.trials,
        graph.depth,
        graph.region_bytes(),
        options.waiting as u32,
        u8::from(options.latency),
    );
    for task in &graph.tasks {
        let _ = writeln!(text, "task {} {} {}", task.name, task.elements, task.period_ns);
    }
    for port in &graph.ports {
        let _ = writeln!(text, "port {} {} {}", port.from, port.to, port.method.word());
    }
    text
}

/// Writes the workflow file. If the graph's tasks are processes, each is a task of the workflow file. If they are
/// threads or ranks of an MPI job, all of them together are one task of the workflow file. `shared` is a folder in
/// memory for Open MPI.
pub fn workflow_text(graph: &Graph, options: &Synth, folder: &Path, shared: Option<&Path>) -> Result<String, String> {
    let mut text = String::from("workflow: synth\ngrace: 1\ntasks:\n");
    let program = |argument: &str| -> (Vec<String>, Vec<String>) {
        let words = |at: &str| vec![format!("{at}/program"), format!("{at}/graph.txt"), argument.to_owned()];
        (words(INSIDE), words(&folder.to_string_lossy()))
    };
    if graph.needs_mpi() {
        let command = mpirun(graph, options.mpi, folder)?;
        task(&mut text, folder, "mpi", &command, &command, &ends(graph, None));
        if let Some(shared) = shared {
            text.push_str("    environment:\n");
            for name in ["btl_vader_backing_directory", "orte_tmpdir_base"] {
                let _ = writeln!(text, "      OMPI_MCA_{name}: {}", quoted(&shared.to_string_lossy()));
            }
        }
    } else if graph.uses(Method::Threads) {
        let (inside, outside) = program("threads");
        task(&mut text, folder, "threads", &inside, &outside, &ends(graph, None));
    } else {
        for (number, one) in graph.tasks.iter().enumerate() {
            let (inside, outside) = program(&number.to_string());
            task(&mut text, folder, &one.name, &inside, &outside, &ends(graph, Some(number)));
        }
    }
    let ports: Vec<usize> = (0..graph.ports.len()).filter(|&p| graph.ports[p].method.has_port()).collect();
    if !ports.is_empty() {
        text.push_str("ports:\n");
        for port in ports {
            let _ = writeln!(text, "  port-{port}: {{capacity: {}}}", graph.depth);
        }
    }
    Ok(text)
}

/// Gives the `ports` line for one task of the graph. If `task` is `None`, gives the line for the task of the workflow
/// file that contains all tasks of the graph.
fn ends(graph: &Graph, task: Option<usize>) -> String {
    let of = |(number, port): (usize, &crate::graph::Port)| {
        let right = match task {
            None => "[produce, consume]",
            Some(task) if port.from == task => "produce",
            Some(task) if port.to == task => "consume",
            Some(_) => return None,
        };
        port.method.has_port().then(|| format!("port-{number}: {right}"))
    };
    graph.ports.iter().enumerate().filter_map(of).collect::<Vec<_>>().join(", ")
}

fn task(text: &mut String, folder: &Path, name: &str, inside: &[String], outside: &[String], ports: &str) {
    let list = |words: &[String]| words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(", ");
    let folder = quoted(&folder.to_string_lossy());
    let _ = writeln!(text, "  {name}:\n    command: [{}]", list(inside));
    let _ = writeln!(text, "    mounts: [{{host: {folder}, task: {INSIDE}}}]\n    workdir: {INSIDE}");
    let _ = writeln!(text, "    regions: {{synth: create}}\n    ports: {{{ports}}}");
    let _ = writeln!(text, "    process: {{command: [{}], workdir: {folder}}}", list(outside));
}

/// Quotes a word as a JSON string, which is the same string in YAML.
fn quoted(word: &str) -> String {
    serde_json::Value::from(word).to_string()
}

/// Makes the command that starts the MPI job. Each MPI is called as its documentation says for one node. Some MPIs
/// need an option to run as root, or to run more ranks than there are CPUs.
fn mpirun(graph: &Graph, mpi: Mpi, folder: &Path) -> Result<Vec<String>, String> {
    let mut words = match mpi {
        Mpi::Mpich => vec![first_of(&["mpiexec.mpich", "mpiexec.hydra", "mpiexec"])?],
        Mpi::Openmpi => {
            let mut words = vec![first_of(&["mpirun.openmpi", "mpirun"])?, "--oversubscribe".into()];
            if crossdock_os::child::user() == 0 {
                words.push("--allow-run-as-root".into());
            }
            words
        }
    };
    let folder = folder.to_string_lossy();
    words.extend([
        "-n".into(),
        graph.tasks.len().to_string(),
        format!("{folder}/program"),
        format!("{folder}/graph.txt"),
    ]);
    Ok(words)
}
