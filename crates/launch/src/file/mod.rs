//! Reads the workflow file. The result is a checked [`Workflow`], or [`Problems`] with positions and hints.

mod check;
mod cycles;
mod directories;
pub mod grants;
mod keys;
mod placement;
mod problem;
mod reader;
mod schema;
mod sections;
mod suggest;
mod task;
mod tree;
pub mod units;
mod workflow;

use std::path::Path;

pub use cycles::circles;
pub use grants::TaskGrant;
pub use keys::ENGINES;
pub use placement::{Count, Places, share};
pub use problem::{Position, Problem, Problems};
pub use reader::clip;
pub use schema::text as schema_text;
pub use suggest::nearest;
pub use workflow::*;

use reader::{Item, Notes};

/// Reads and checks a workflow file.
///
/// # Errors
/// The error lists everything that is wrong with the file, not only the first problem.
pub fn read(file: &Path) -> Result<Workflow, Problems> {
    parse(file, &text(file)?)
}

/// Reads a file's text. Callers that need the text twice read it once and pass it to [`parse`], because the file may
/// change between two reads.
///
/// # Errors
/// The file cannot be read, is too long, or is not a text.
pub fn text(file: &Path) -> Result<String, Problems> {
    let unreadable = |what: String, hint: &str| {
        let problem = Problem { position: Position::default(), key: String::new(), what, hint: hint.into() };
        Problems::new(file, "", vec![problem])
    };
    // The size is checked before reading, because a device or a huge file must not fill the memory.
    let bytes = match std::fs::metadata(file) {
        Err(e) => return Err(unreadable(format!("cannot be read: {e}"), "give the path of a workflow file")),
        Ok(m) if m.is_dir() => {
            return Err(unreadable("is a folder".into(), "give the path of the workflow file in it"));
        }
        Ok(m) if m.len() > tree::TEXT_MAX as u64 => {
            return Err(unreadable(format!("has {} bytes", m.len()), "is this a workflow file?"));
        }
        Ok(_) => read_bounded(file)
            .map_err(|e| unreadable(format!("cannot be read: {e}"), "check its permissions"))?
            .ok_or_else(|| {
            unreadable(format!("has more than {} bytes", tree::TEXT_MAX), "is this a workflow file?")
        })?,
    };
    String::from_utf8(bytes).map_err(|e| {
        let what = format!("is not UTF-8 text (byte {})", e.utf8_error().valid_up_to());
        unreadable(what, "save it as UTF-8")
    })
}

/// Reads the bytes of a file. Gives `None` if there are more bytes than a workflow file may have. The limit is needed
/// because a pipe or a device does not give its size in advance, and may never end.
fn read_bounded(file: &Path) -> std::io::Result<Option<Vec<u8>>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(tree::TEXT_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= tree::TEXT_MAX).then_some(bytes))
}

/// Checks `text` as the contents of the workflow file `file`.
///
/// # Errors
/// The error lists everything that is wrong with the file, not only the first problem.
pub fn parse(file: &Path, text: &str) -> Result<Workflow, Problems> {
    parse_for(file, text, None)
}

/// Works like [`parse`], and also decides which task runs on which of the hosts `hosts`. Folders are checked only for
/// tasks of the host with the number `here`. If `here` is `None`, no folder is checked.
///
/// # Errors
/// The error lists everything that is wrong with the file, not only the first problem.
pub fn parse_on(
    file: &Path,
    text: &str,
    hosts: &[String],
    here: Option<usize>,
) -> Result<(Workflow, Places), Problems> {
    let workflow = parse_for(file, text, Some(&[]))?;
    let places = Places::choose(&workflow, hosts).map_err(|list| Problems::new(file, text, list))?;
    let names = here.map(|host| places.tasks(&workflow, host)).unwrap_or_default();
    Ok((parse_for(file, text, Some(&names))?, places))
}

fn parse_for(file: &Path, text: &str, here: Option<&[String]>) -> Result<Workflow, Problems> {
    let root = tree::parse(text).map_err(|p| Problems::new(file, text, vec![p]))?;
    let notes = Notes::on(here);
    let top = Item { node: root, path: String::new(), notes: &notes };
    let mut workflow = sections::workflow(&top, file);
    if let Some(workflow) = &mut workflow {
        check::check(workflow, &notes);
    }
    let list = notes.take();
    match workflow {
        Some(workflow) if list.is_empty() => Ok(workflow),
        _ => Err(Problems::new(file, text, list)),
    }
}
