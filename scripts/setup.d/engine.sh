# Chooses the container engine, and runs a docker engine as long as a script runs. Sourced by scripts/demo, heat, street
# and the tests that use engines, which must set $top and source say.sh first.
# shellcheck disable=SC2154 # top and here are set by the script that sources this

# engine_part ENGINE: prints the part of scripts/setup that the engine needs; nothing for an engine that needs none.
engine_part() {
    case $1 in
        auto | process) ;;
        bubblewrap | podman | docker | charliecloud) echo "$1" ;;
        *) die "unknown engine \"$1\": auto, process, bubblewrap, podman, docker or charliecloud" ;;
    esac
}

# use_docker starts docker's engine, unless an engine is running already. stop_docker stops the engine only if
# use_docker has started it. So each script that calls use_docker must call stop_docker in its EXIT trap.
docker_is_ours=no
use_docker() {
    local settings
    settings=$("$top/scripts/engine-docker" start) || exit 1
    eval "$settings"
}

stop_docker() {
    [ "$docker_is_ours" = yes ] || return 0
    docker_is_ours=no
    "$top/scripts/engine-docker" stop
}
