//! Passes the caller's variables to tasks without a container on other hosts. Tasks on the caller's host inherit all of
//! the caller's variables. Tasks on other hosts get only the variables that do not describe the host or the login.

/// Beginnings of the names of variables that describe one host or one login, and are not passed on.
const OWN: [&str; 8] = ["SSH_", "XDG_", "SLURM", "CROSSDOCK_", "DBUS_", "PMI", "LC_TERMINAL", "SRUN_"];
/// Whole names of variables that describe one host or one login, and are not passed on.
const NAMES: [&str; 14] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "MAIL",
    "HOSTNAME",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "TMPDIR",
    "DISPLAY",
    "TTY",
    "INVOCATION_ID",
];

/// Collects the variables of this process's environment that the run's other hosts get.
pub fn variables() -> Vec<(String, String)> {
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    all.filter(|(name, _)| is_handed_on(name)).collect()
}

fn is_handed_on(name: &str) -> bool {
    !NAMES.contains(&name) && !OWN.iter().any(|own| name.starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::is_handed_on;

    #[test]
    fn a_hosts_own_variables_stay_on_it() {
        assert!(["PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "OMP_NUM_THREADS"].into_iter().all(is_handed_on));
        assert!(
            !["HOME", "SSH_CONNECTION", "SLURM_JOB_ID", "CROSSDOCK_SOCKET", "TMPDIR"].into_iter().any(is_handed_on)
        );
    }
}
