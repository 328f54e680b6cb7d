//! Serves the page for the browser, for `crossdock web`, `run --web` and `serve --web`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crossdock_launch::run::code;
use crossdock_launch::run::state::Process;
use crossdock_web::{Options, Scope, Web};

use crate::args::{Page, WebPage};
use crate::output::wait;
use crate::series::StopSignal;
use crate::table::{complain, say};

/// Starts the server of a page. The server runs until the returned value is dropped.
pub fn start(page: &Page, scope: Scope) -> Result<Web, String> {
    let token = page.web_token.as_deref().map(token).transpose()?;
    Web::start(Options { port: page.web_port, token, scope })
}

/// Reads the token from a file of the user. If the file does not exist, it is written with a new token.
fn token(path: &Path) -> Result<String, String> {
    let refused = |e: std::io::Error| format!("cannot use the token in {}: {e}", path.display());
    match fs::metadata(path) {
        Ok(meta) if meta.mode() & 0o077 != 0 => {
            Err(format!("others may read {}: `chmod 600` it, or name a file that is not there yet", path.display()))
        }
        Ok(_) => Ok(fs::read_to_string(path).map_err(refused)?.trim().to_owned()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let bytes: [u8; 16] = crossdock_os::child::random().map_err(|e| e.to_string())?;
            let token: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
            file.and_then(|mut file| writeln!(file, "{token}")).map_err(refused)?;
            Ok(token)
        }
        Err(e) => Err(refused(e)),
    }
}

pub fn web(options: &WebPage) -> u8 {
    let stop = match StopSignal::on_signals() {
        Ok(stop) => stop,
        Err(why) => {
            complain(&why);
            return code::SYSTEM;
        }
    };
    let web = match start(&options.page, Scope { socket: options.socket.clone(), front: None }) {
        Ok(web) => web,
        Err(why) => {
            complain(&why);
            return code::SYSTEM;
        }
    };
    say(&web.url);
    let with = options.with.map(Process::living);
    while with.is_none_or(|process| process.lives()) {
        if wait(Duration::from_millis(500), &stop) {
            break;
        }
    }
    code::OK
}

/// Starts a process that serves the page of a daemon. The calling process becomes the daemon after the call. The
/// process that serves the page ends with the daemon.
pub fn beside(page: &Page, socket: Option<&PathBuf>) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut command = Command::new(program);
    command.args(["web", "--with", &std::process::id().to_string(), "--web-port", &page.web_port.to_string()]);
    command.args(socket.iter().flat_map(|s| ["--socket".as_ref(), s.as_os_str()]));
    command.args(page.web_token.iter().flat_map(|t| ["--web-token".as_ref(), t.as_os_str()]));
    // Standard output is for the byte of `--ready`, so the page's address goes to standard error.
    command.stdin(Stdio::null()).stdout(std::io::stderr());
    crossdock_os::spawn::start(&mut command).map(drop).map_err(|e| format!("cannot start the page's server: {e}"))
}
