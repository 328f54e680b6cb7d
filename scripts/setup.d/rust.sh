# Provides a Rust toolchain as new as the workspace requires: an installed one, else the distribution's newest one, else
# one that an installed rustup fetches. No installer is downloaded. Sourced by scripts/setup.
# shellcheck disable=SC2154 # top and here are set by the script that sources this

rust_version() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$top/Cargo.toml"; }

# Finds the first cargo that is new enough, also outside of the PATH.
find_cargo() {
    local cargo version
    # Ubuntu's numbered toolchains lie beside each other. The newest is tried first.
    for cargo in "$(command -v cargo 2>/dev/null)" "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin/cargo" /usr/bin/cargo \
        $(ls -d /usr/lib/rust-*/bin/cargo 2>/dev/null | sort -rV); do
        [ -n "$cargo" ] && [ -x "$cargo" ] || continue
        version=$("$cargo" --version 2>/dev/null | cut -d' ' -f2) || continue
        if [ -n "$version" ] && version_at_least "${version%%-*}" "$(rust_version)"; then
            echo "$cargo"
            return
        fi
    done
    return 1
}

cargo_is_new_enough() { find_cargo >/dev/null; }

# Debian 12 has version 1.63 as "cargo" and a current one as "cargo-web". Ubuntu numbers its packages (cargo-1.85).
apt_cargo() {
    local name best= best_version=0 version
    for name in $(apt-cache pkgnames cargo 2>/dev/null | grep -E '^cargo(-web|-[0-9.]+)?$'); do
        version=$(apt-cache policy "$name" | sed -n 's/^ *Candidate: //p')
        if version_at_least "$version" "$(rust_version)" && version_at_least "$version" "$best_version"; then
            best=$name best_version=$version
        fi
    done
    [ -n "$best" ] && echo "$best"
}

provide_rust() {
    cargo_is_new_enough && return
    local package rustc
    must_install "a Rust toolchain >= $(rust_version)"
    if can_install; then
        refresh_apt
        if package=$(apt_cargo); then
            rustc=${package/cargo/rustc}
            say "  $package, $rustc: crossdock is written in Rust >= $(rust_version)"
            apt_install "$package" "$rustc"
            cargo_is_new_enough && return
        fi
    fi
    if have rustup; then
        step "rustup toolchain install stable"
        rustup toolchain install stable --profile minimal && cargo_is_new_enough && return
    fi
    package=$(apt_cargo || echo cargo-web)
    die "no Rust toolchain >= $(rust_version). An administrator has to run:
    apt-get install --no-install-recommends $package ${package/cargo/rustc}
or install one for yourself with rustup (https://rustup.rs)"
}

# Provides rustfmt and clippy of the toolchain that builds the project.
provide_rust_tools() {
    local cargo tools version
    cargo=$(find_cargo) || return 0
    PATH=$PATH:$(dirname "$cargo")
    export PATH
    { "$cargo" fmt --version && "$cargo" clippy --version; } >/dev/null 2>&1 && return
    if have rustup && [ "$cargo" != /usr/bin/cargo ]; then
        must_install "rustfmt clippy (rustup component add)"
        step "rustup component add rustfmt clippy"
        rustup component add rustfmt clippy && return
    fi
    tools="rustfmt-web rust-web-clippy"
    [ -e /usr/share/doc/cargo-web ] || tools="rustfmt rust-clippy"
    case $cargo in
        /usr/lib/rust-*) version=${cargo#/usr/lib/rust-} version=${version%%/*} tools="rustfmt-$version rust-$version-clippy" ;;
    esac
    if can_install; then
        say "  $tools: the formatter and the linter that \`make lint\` runs"
        # shellcheck disable=SC2086 # two packages
        apt_install $tools
    else
        die "no rustfmt and clippy. An administrator has to run:
    apt-get install --no-install-recommends $tools"
    fi
}
