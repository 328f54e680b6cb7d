# Starts and stops the program that serves managed directories. The rows of the conformance list that test files need
# these directories.
#   start_directories PROGRAM FOLDER     exports CROSSDOCK_CONFORMANCE_FILES and CROSSDOCK_FILES
#   stop_directories
# shellcheck shell=bash

start_directories() {
    local line
    # The program ends when its standard input ends, and then removes what it made. This works even if this script is
    # killed.
    coproc DIRECTORIES { exec "$1" "$2"; }
    directories=$DIRECTORIES_PID
    directories_input=${DIRECTORIES[1]}
    if ! IFS= read -r -t 20 -u "${DIRECTORIES[0]}" line || [ "${line%% *}" != ready ]; then
        echo "the managed directories of rows F1 to F9 could not be made in $2" >&2
        return 1
    fi
    line=${line#ready }
    export CROSSDOCK_CONFORMANCE_FILES=$2 CROSSDOCK_FILES=${line//|/$'\n'}
}

stop_directories() {
    [ -n "${directories:-}" ] || return 0
    eval "exec $directories_input>&-"
    wait "$directories" || true
    directories=
}
