//! Tests command lines that launchers have given to their ssh, and how the shim reads them.

use crossdock_shim::arguments::{Arguments, parse};

/// Parses a recorded command line, in which `·` stands between words.
fn line(recorded: &str) -> Arguments {
    let words: Vec<String> = recorded.split('·').map(str::to_owned).collect();
    parse(&words).unwrap()
}

#[test]
fn open_mpi_4_many_words_with_a_leading_space() {
    let found = line(
        "node4· orted·-mca·ess·\"env\"·-mca·ess_base_jobid·\"1356201984\"·-mca·ess_base_vpid·3·-mca·orte_node_regex·\"node[1:1-4]@0(4)\"·-mca·orte_hnp_uri·\"1356201984.0;tcp://10.77.0.1:33295\"·--mca·plm_rsh_agent·\"/run/agent\"·-mca·plm·\"rsh\"·--tree-spawn·-mca·routed·\"radix\"·-mca·pmix·\"^s1,s2,cray,isolated\"",
    );
    assert_eq!(found.host, "node4");
    assert!(found.options.is_empty());
    assert!(
        found.command.starts_with(" orted -mca ess \"env\" -mca ess_base_jobid \"1356201984\""),
        "{}",
        found.command
    );
    assert!(found.command.contains("\"1356201984.0;tcp://10.77.0.1:33295\""));
    assert!(found.command.ends_with("-mca pmix \"^s1,s2,cray,isolated\""));
}

#[test]
fn open_mpi_4_with_a_prefix() {
    let text = "          PATH=/usr/bin:$PATH ; export PATH ; LD_LIBRARY_PATH=/usr/lib:${LD_LIBRARY_PATH:-} ; export LD_LIBRARY_PATH ;   /usr/bin/orted";
    let found = line(&format!("node2·{text}·--daemonize·-mca·ess·\"env\""));
    assert_eq!(found.command, format!("{text} --daemonize -mca ess \"env\""));
}

#[test]
fn open_mpi_5_sets_variables_in_the_remote_shell() {
    let found = line(
        "node3·PRTE_PREFIX=V;export PRTE_PREFIX;PMIX_PREFIX=V;export PMIX_PREFIX;LD_LIBRARY_PATH=V/lib:V/lib:$LD_LIBRARY_PATH;export LD_LIBRARY_PATH;V/bin/prted·--allow-run-as-root·--prtemca·ess·\"env\"·--prtemca·prte_hnp_uri·\"prterun-node1-7224@0.0;tcp://10.77.0.1:57761:24\"·--tree-spawn",
    );
    assert_eq!(found.host, "node3");
    assert!(found.command.starts_with("PRTE_PREFIX=V;export PRTE_PREFIX;"));
    assert!(found.command.ends_with("\"prterun-node1-7224@0.0;tcp://10.77.0.1:57761:24\" --tree-spawn"));
}

#[test]
fn open_mpi_5_gives_the_port_after_the_host() {
    let found = line("-x·alice@node3·-p·2222·V/bin/prted·--prtemca·ess·\"env\"");
    assert_eq!((found.host.as_str(), found.user.as_deref(), found.port), ("node3", Some("alice"), Some(2222)));
    assert_eq!(found.options, ["-x"]);
    assert_eq!(found.command, "V/bin/prted --prtemca ess \"env\"");
}

#[test]
fn hydra_quotes_its_proxy() {
    for (size, program) in [("-2", "/usr/bin/hydra_pmi_proxy"), ("-1", "V/bin/hydra_pmi_proxy")] {
        let found = line(&format!(
            "-x·node3·\"{program}\"·--control-port·node1:34621·--rmk·user·--launcher·ssh·--launcher-exec·/run/agent·--demux·poll·--pgid·0·--retries·10·--usize·{size}·--pmi-port·0·--gpus-per-proc·-2·--proxy-id·2"
        ));
        assert_eq!((found.host.as_str(), found.options.as_slice()), ("node3", ["-x".to_owned()].as_slice()));
        assert!(found.command.starts_with(&format!("\"{program}\" --control-port node1:34621 --rmk user")));
        assert!(found.command.ends_with("--proxy-id 2"));
    }
}

#[test]
fn intel_mpi_puts_options_before_the_flag_of_hydra() {
    let found = line(
        "-q·-x·node3·V/bin//hydra_bstrap_proxy·--upstream-host·node1·--upstream-port·38947·--launcher-exec·/run/agent·--node-id·2·V/bin//hydra_pmi_proxy·--usize·-1·--abort-signal·9",
    );
    assert_eq!(found.options, ["-q", "-x"]);
    assert!(found.command.starts_with("V/bin//hydra_bstrap_proxy --upstream-host node1"));
    assert!(found.command.ends_with("V/bin//hydra_pmi_proxy --usize -1 --abort-signal 9"));
}

#[test]
fn mpirun_rsh_gives_one_string() {
    let text = "cd /home/alice; /usr/bin/env LD_LIBRARY_PATH=/opt/mvapich/lib MPISPAWN_MPIRUN_HOST=node1 MPISPAWN_ARGV_0='./solver' MPISPAWN_ARGC=1 /opt/mvapich/bin/mpispawn 0";
    let found = line(&format!("-q·node2·{text}"));
    assert_eq!((found.host.as_str(), found.command.as_str()), ("node2", text));
}

#[test]
fn options_of_ssh_are_read_in_every_form() {
    let same = Arguments {
        options: vec!["-x".into(), "-o".into(), "BatchMode=yes".into()],
        user: Some("bob".into()),
        port: Some(22),
        host: "h".into(),
        command: "true -x".into(),
    };
    for form in [
        "-x·-o·BatchMode=yes·-l·bob·-p·22·h·true·-x",
        "-xoBatchMode=yes·-lbob·-p22·h·true·-x",
        "-x·h·-o·BatchMode=yes·-p·22·-l·bob·true·-x",
        "-xo·BatchMode=yes·bob@h·-p22·--·true·-x",
        "-x·-oBatchMode=yes·ssh://bob@h:22·true·-x",
        "-x·-oBatchMode=yes·-p22·--·bob@h·true·-x",
        "-x·-l·bob·-o·BatchMode=yes·-p·22·carol@h·-l·dave·true·-x",
    ] {
        assert_eq!(line(form), same, "{form}");
    }
}

#[test]
fn words_behind_the_terminated_host_are_the_command_whatever_they_look_like() {
    assert_eq!(line("--·h·-l·x").command, "-l x");
    assert_eq!(line("h·--·-l·x").command, "-l x");
}

#[test]
fn what_ssh_refuses_is_refused() {
    for bad in ["", "-x", "-p·0·h·true", "-p·99999·h·true", "-Z·h·true", "-l", "@h·true", "--"] {
        let words: Vec<String> = bad.split('·').filter(|w| !w.is_empty()).map(str::to_owned).collect();
        assert!(parse(&words).is_err(), "{bad}");
    }
}
