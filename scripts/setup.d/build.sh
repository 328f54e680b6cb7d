# Functions that build what the examples and several tests run: the command, the library, and the Python wheel, which is
# installed into Python environments. A part that is up to date costs a fraction of a second. A script sources this file
# after it has set $top and has sourced say.sh and rust.sh.

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$top/build/target}
. "$top/scripts/setup.d/quick-build.sh"

build_release() {
    local cargo
    cargo=$(find_cargo) || die "no cargo >= $(rust_version); run scripts/setup"
    (cd "$top" && PATH=$(dirname "$cargo"):$PATH cargo build --quiet --release -p crossdock-cli -p crossdock-capi -p crossdock-preload)
    # Only `crossdock mpirun` needs this program, and not every system can link statically. So a failure is only a
    # warning.
    "$top/scripts/build-shim" || warn "no static crossdock-shim: crossdock mpirun will refuse containers with a root of their own"
}

# install_wheel ENVIRONMENT…: builds one wheel (stable ABI), and installs it into each environment that does not have it
# yet.
install_wheel() {
    local wheel site
    wheel=$("$top/scripts/build-wheel")
    for site in "$@"; do
        [ ! "$site/.wheel" -nt "$wheel" ] || continue
        "$site/bin/python3" -m pip install -q --no-input --disable-pip-version-check --no-deps --force-reinstall "$wheel"
        touch "$site/.wheel"
    done
}
