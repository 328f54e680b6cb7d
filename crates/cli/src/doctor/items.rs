//! Checks which kind of folder the daemon would use for items, and says what the level `verified` does not cover there.

use crossdock_os::tmpfs::Folder;

use super::{CheckResult, NodeCheck, check};

/// README.md, SECURITY.md and docs/ownership.md contain the text of this constant too. `scripts/check-claims` compares
/// the texts.
#[rustfmt::skip]
const OPEN: &str = "Open at the level `verified`: pages that the kernel pinned through a mapping of a former owner or reader (vmsplice, registered io_uring or device buffers; process_vm_readv, process_vm_writev, direct or zero-copy I/O in flight). The level `strict` closes it.";

pub(super) fn checks() -> Vec<NodeCheck> {
    vec![files(), check("memory", "items: open", CheckResult::Ok, OPEN, "")]
}

fn files() -> NodeCheck {
    let hint = "items work by copies where the kernel's proof or the read-only mount is missing; allow user namespaces (kernel.unprivileged_userns_clone, user.max_user_namespaces) or run the daemon as root";
    match (Folder::mount(1 << 20), Folder::shared_memory()) {
        (Ok(folder), _) => {
            let doors = match folder.gate() {
                Some(_) => {
                    "doors that are shut behind former owners and refuse read, splice and sendfile; transfers move no byte"
                }
                None => {
                    "a read-only mount; without doors (they take a daemon that is root) each transfer from a task that \
                     could come back by a path descriptor or a splice copies the item"
                }
            };
            let what = format!("files of a tmpfs of the daemon's own: proof by leases, huge pages, {doors}");
            check("memory", "items", CheckResult::Ok, what, "")
        }
        (Err(why), Ok(_)) => {
            let what = format!(
                "proof by leases in /dev/shm, transfers copy; readers could reopen what is shared, no huge pages ({why})"
            );
            check("memory", "items", CheckResult::Note, what, hint)
        }
        (Err(why), Err(_)) => check("memory", "items", CheckResult::Bad, format!("no memory file system: {why}"), hint),
    }
}
