# Installs packages with apt, as root or with a sudo that asks for no password. If neither is possible, says what an
# administrator has to run. The machine's own apt configuration decides where they come from. Sourced by scripts/setup.

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif can_sudo; then sudo -n "$@"; else return 1; fi
}

can_sudo() { have sudo && sudo -n true 2>/dev/null; }
can_install() { have apt-get && { [ "$(id -u)" = 0 ] || can_sudo; }; }

# With NO_INSTALL=1 nothing on the machine is changed. The script prints what it would install, and fails.
installs_nothing() { [ -n "${NO_INSTALL:-}" ] && [ "$NO_INSTALL" != 0 ]; }
must_install() { ! installs_nothing || die "NO_INSTALL=1: not installed: $*"; }

# The lists of packages may be missing (in new container images) or too old for the server, so the set-up
# fetches them once, before it looks for packages.
APT_IS_FRESH=
refresh_apt() {
    [ -z "$APT_IS_FRESH" ] || return 0
    step "apt-get update"
    as_root apt-get update -qq || warn "apt-get update failed; going on with the lists that are there"
    APT_IS_FRESH=1
}

apt_knows() { [ "$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p')" ] && ! apt-cache policy "$1" | grep -q 'Candidate: (none)'; }

# Debian 12's libboost-dev is 1.74, which is too old. Debian 12 also has 1.81, as libboost1.81-dev.
boost_package() {
    local newest
    newest=$(apt-cache pkgnames libboost1. 2>/dev/null | grep -E '^libboost1\.[0-9]+-dev$' | sort -V | tail -n 1)
    echo "${newest:-libboost1.81-dev}"
}

real_package() { if [ "$1" = @boost ]; then boost_package; else echo "$1"; fi; }

all_packages() {
    local need package
    for need in "${NEEDS[@]}"; do
        read -r _ package _ <<<"$need"
        real_package "$package"
    done | sort -u
}

install_missing_packages() {
    local missing package why names=()
    missing=$(missing_needs)
    [ -n "$missing" ] || return 0
    if ! have apt-get; then
        while read -r package why; do say "missing: $package ($why)"; done <<<"$missing"
        die "this machine has no apt-get; install the above (Debian's names) by its own means and run scripts/setup again"
    fi
    if can_install && ! installs_nothing; then refresh_apt; fi
    while read -r package why; do
        package=$(real_package "$package")
        say "  $package: $why"
        names+=("$package")
    done <<<"$missing"
    mapfile -t names < <(printf '%s\n' "${names[@]}" | sort -u)
    must_install "${names[@]}"
    if can_install; then
        apt_install "${names[@]}"
    else
        die "not root, and sudo asks for a password. An administrator has to run:
    apt-get install --no-install-recommends ${names[*]}"
    fi
}

# Installed packages must not start services, because this machine is for builds.
apt_install() {
    must_install "$@"
    step "apt-get install $*"
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "$@" >"${TMPDIR:-/tmp}/crossdock-apt.$$" 2>&1 || {
        tail -n 20 "${TMPDIR:-/tmp}/crossdock-apt.$$" >&2
        rm -f "${TMPDIR:-/tmp}/crossdock-apt.$$"
        die "apt-get could not install: $*"
    }
    rm -f "${TMPDIR:-/tmp}/crossdock-apt.$$"
    hash -r
}
