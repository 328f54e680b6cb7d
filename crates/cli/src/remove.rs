//! `crossdock rm`: removes objects by name.

use crossdock_client::InUse;
use crossdock_launch::run::code;

use crate::args::{Kind, Remove};
use crate::names;
use crate::table::{complain, say};
use crossdock_web::find;

pub fn remove(options: &Remove) -> u8 {
    let mut outcome = code::OK;
    for name in &options.names {
        match one(name, options) {
            Ok(line) => say(&line),
            Err(why) => {
                complain(&why);
                outcome = code::UNAVAILABLE;
            }
        }
    }
    outcome
}

fn one(name: &str, options: &Remove) -> Result<String, String> {
    let socket = options.socket.as_deref();
    let (mut found, mut known) = (Vec::new(), Vec::new());
    for daemon in find::daemons(socket)? {
        let listing = daemon.session.list().map_err(|e| e.to_string())?;
        let fits = |n: &names::NamedObject| options.kind.is_none_or(|kind: Kind| kind.is(n.kind)) && n.is_called(name);
        let (called, others): (Vec<_>, Vec<_>) = names::all(&listing).into_iter().partition(fits);
        known.extend(others);
        found.extend(called.into_iter().map(|named| (daemon.place.clone(), named)));
    }
    let (place, named) = match &found[..] {
        [one] => one.clone(),
        [] => return Err(format!("there is no region, port, series or item `{name}`{}", names::hint(name, &known))),
        several => {
            let all = several.iter().map(|(place, n)| format!("{} {} ({place})", n.kind.word(), n.whole()));
            let all = all.collect::<Vec<_>>().join(", ");
            return Err(format!("`{name}` is several things: {all}; say --kind, or WORKFLOW/NAME, or --socket"));
        }
    };
    let daemon = find::daemons(socket)?.into_iter().find(|d| d.place == place).ok_or("the daemon has just ended")?;
    let inside = daemon.inside(&named.workflow, socket)?;
    let in_use = if options.force { InUse::Force } else { InUse::Refuse };
    inside.remove(named.kind, &named.name, in_use).map_err(|e| e.to_string())?;
    Ok(format!("removed {} {}", named.kind.word(), named.whole()))
}
