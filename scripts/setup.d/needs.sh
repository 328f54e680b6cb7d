# What each part needs. Each line has one need: the probe that says whether it is met (however it was installed), the
# package of Debian and Ubuntu, and the reason. Sourced by scripts/setup.
#
# part          probe                              package             why
needs_table() {
    cat <<'TABLE'
demo            cmd:g++                            build-essential     compiles the C++ task
demo            cmd:make                           build-essential     runs the Makefile
demo            cmd:cmake                          cmake               builds the C++ task through find_package(crossdock)
demo            cmd:pkg-config                     pkg-config          finds libraries for the C++ parts
demo            boost                              @boost              Boost >= 1.81 headers: map, set, list … in shared memory
demo            venv                               python3-venv        two Python environments that cannot be one
demo            file:/etc/ssl/certs/ca-certificates.crt ca-certificates   lets cargo and pip check whom they talk to
heat            cmd:gfortran                       gfortran            the solver of examples/heat
heat            cmd:mpifort.openmpi                libopenmpi-dev      the solver's ranks: Open MPI lets waiting ranks yield
heat            cmd:mpirun.openmpi                 openmpi-bin         starts them
files           cmd:gfortran                       gfortran            a Fortran program of examples/files
files           cmd:rsync                          rsync               copies files as its users do
files           cmd:git                            git                 stores files as its users do
files           file:/usr/lib/python3/dist-packages/numpy/__init__.py python3-numpy arrays in files
files           file:/usr/lib/python3/dist-packages/h5py/__init__.py  python3-h5py  HDF5 files
files           file:/usr/lib/python3/dist-packages/netCDF4/__init__.py python3-netcdf4 netCDF files
gallery         cmd:javac                          default-jdk-headless Java programs of examples/files
gallery         cmd:node                           nodejs              JavaScript programs of examples/files
gallery         cmd:go                             golang-go           static programs of examples/files, which are no C
gallery         file:/usr/bin/convert              imagemagick         pictures in files
gallery         cmd:lmp                            lammps              dump files of a molecular-dynamics code
test            cmd:musl-gcc                       musl-tools          a program that musl's loader starts
test            cmd:nm                             binutils            reads the C library's names
test            cmd:h5dump                         hdf5-tools          reads checkpoints: HDF5's own opinion of our files
test            cmd:gfortran                       gfortran            the Fortran module and its tests
test            cmd:mpicc.openmpi                  libopenmpi-dev      handles over Open MPI
test            cmd:mpirun.openmpi                 openmpi-bin         handles over Open MPI
test            cmd:mpicc.mpich                    libmpich-dev        handles over MPICH
test            cmd:mpirun.mpich                   mpich               handles over MPICH
test            file:/usr/include/gtest/gtest.h    libgtest-dev        the C++ containers' tests
test            library:libucp.so.0                libucx0             connections over UCX between two nodes
test            cmd:setpriv                        util-linux          runs tests as an ordinary user
test            clang                              clang               compiles the C++ headers as well as g++ does
test            cmd:man                            man-db              the manual's pages without warnings
test            browser                            chromium-headless-shell clicks through the web page
test            cmd:git                            git                 looks at what the checkout holds
release         cmd:git                            git                 a release is a copy of HEAD
release         cmd:lintian                        lintian             judges the Debian packages
release         cmd:dpkg-shlibdeps                 dpkg-dev            what the Debian packages depend on
release         cmd:debootstrap                    debootstrap         roots of other distributions, to use the packages in
release         cmd:qemu-aarch64-static            qemu-user-static    runs what is built for aarch64
lint            cmd:shellcheck                     shellcheck          reads every shell script
bench           cmd:mpicc.mpich                    libmpich-dev        MPICH, to compare with
bench           cmd:mpirun.mpich                   mpich               MPICH, to compare with
bench           cmd:mpicc.openmpi                  libopenmpi-dev      Open MPI, to compare with
bench           cmd:mpirun.openmpi                 openmpi-bin         Open MPI, to compare with
bench           cmd:unshare                        util-linux          namespaces for each peer, so that nothing of it is left
bench           cmd:git                            git                 says which commit was measured
bench           cmd:sshd                           openssh-server      the hosts of MPI jobs have one each; nothing of the machine's is started
bench           cmd:ssh                            openssh-client      from host to host
bench           cmd:ip                             iproute2            the hosts' networks
bench           cmd:nsenter                        util-linux          hosts in namespaces
bench           cmd:ucx_perftest                   ucx-utils           how fast UCX is between two hosts, without crossdock
bench           cmd:NPopenmpi                      netpipe-openmpi     latency and bandwidth between MPI ranks
bench           cmd:hpcc                           hpcc                HPL over MPI
bench           cmd:lmp                            lammps              a real MPI code
mpi             cmd:sshd                           openssh-server      the hosts of the tests have one each; nothing of the machine's is started
mpi             cmd:ssh                            openssh-client      from host to host
mpi             cmd:ip                             iproute2            the hosts' networks
mpi             cmd:nsenter                        util-linux          hosts in namespaces
mpi             cmd:mpicc.openmpi                  libopenmpi-dev      Open MPI 4
mpi             cmd:mpirun.openmpi                 openmpi-bin         Open MPI 4
mpi             cmd:mpicc.mpich                    libmpich-dev        MPICH 4
mpi             cmd:mpiexec.hydra                  mpich               MPICH 4
mpi             cmd:gfortran                       gfortran            examples/heat on two hosts
mpi             cmd:srun                           slurm-client        Slurm starts ranks in its tests
mpi             cmd:slurmctld                      slurmctld           the tests' cluster has a controller; nothing of the machine's is started
mpi             cmd:slurmd                         slurmd              and nodes
mpi             cmd:munged                         munge               Slurm's nodes trust each other by it
mpi             library:libpmi2.so.0               libpmi2-0           Intel MPI speaks to Slurm with it
nodes           cmd:ip                             iproute2            the hosts' networks, and a slow link
nodes           cmd:iptables                       iptables            cuts one direction of a link
nodes           cmd:sshd                           openssh-server      the hosts of the tests have one each; nothing of the machine's is started
nodes           cmd:ssh                            openssh-client      starts a run's parts on other hosts
nodes           cmd:nsenter                        util-linux          hosts in namespaces
nodes           cmd:srun                           slurm-client        jobs of the tests start runs in allocations
nodes           cmd:slurmctld                      slurmctld           the tests' cluster has a controller; nothing of the machine's is started
nodes           cmd:slurmd                         slurmd              and nodes
nodes           cmd:munged                         munge               Slurm's nodes trust each other by it
catalog         cmd:etcd                           etcd-server         three members keep the catalog in its tests, and are killed
catalog         cmd:protoc                         protobuf-compiler   etcd's client compiles etcd's messages (feature etcd)
catalog         file:/usr/include/google/protobuf/descriptor.proto libprotobuf-dev what etcd's messages include
bubblewrap      cmd:bwrap                          bubblewrap          container engine for everybody, no daemon
podman          cmd:podman                         podman              container engine, with and without root
podman          cmd:runc                           runc                the runtime that podman uses here (crun refuses hybrid cgroups)
podman          cmd:newuidmap                      uidmap              podman without root maps user ids with it
docker          cmd:dockerd                        docker.io           container engine
docker          cmd:iptables                       iptables            dockerd will not start without it
docker          cmd:ip                             iproute2            gives a private dockerd its own network namespace
charliecloud    cmd:ch-run                         charliecloud        container engine of HPC sites
TABLE
}

# The demo runs in bubblewrap if there is no better engine. The tests use every engine that is there.
parts_of() {
    case $1 in
        demo | street) echo demo; any_engine || echo bubblewrap ;;
        heat) echo demo heat; any_engine || echo bubblewrap ;;
        files) echo demo files; any_engine || echo bubblewrap ;;
        gallery) echo demo files gallery; any_engine || echo bubblewrap ;;
        test) echo demo heat files test lint mpi nodes catalog bubblewrap podman docker charliecloud ;;
        bench) echo demo bench bubblewrap ;;
        lint) echo demo lint ;;
        mpi) echo demo mpi bubblewrap ;;
        nodes) echo demo nodes bubblewrap ;;
        docs) echo demo ;;
        release) echo demo release ;;
        *) echo demo "$1" ;;
    esac
}

any_engine() { have bwrap || have podman || have ch-run; }

gather_needs() {
    local part wanted=" "
    for part in "$@"; do wanted+="$(parts_of "$part" | tr '\n' ' ') "; done
    NEEDS=()
    local name probe package why
    while read -r name probe package why; do
        case $wanted in *" $name "*) NEEDS+=("$probe $package $why") ;; esac
    done < <(needs_table)
}

probe() {
    case $1 in
        cmd:*) have "${1#cmd:}" ;;
        file:*) [ -e "${1#file:}" ] ;;
        library:*) /sbin/ldconfig -p | grep -F "${1#library:}" >/dev/null ;;
        clang) [ -n "$(compgen -c clang-)" ] || have clang ;;
        boost) boost_is_new_enough ;;
        browser) browser_is_there_or_elsewhere ;;
        venv) python_for_environments >/dev/null ;;
    esac
}

# Ubuntu has no package of a browser. There the suite of the browser counts as skipped.
browser_is_there_or_elsewhere() {
    have chromium-headless-shell || have chromium || have google-chrome || ! grep -qx 'ID=debian' /etc/os-release
}

boost_is_new_enough() {
    local found
    found=$(sed -n 's/^#define BOOST_VERSION \([0-9]*\).*/\1/p' /usr/include/boost/version.hpp 2>/dev/null)
    [ "${found:-0}" -ge 108100 ]
}

# Prints one line for each missing need: the package and the reason.
missing_needs() {
    local need probe package why
    for need in "${NEEDS[@]}"; do
        read -r probe package why <<<"$need"
        probe "$probe" || echo "$package $why"
    done
}

report_missing() {
    local package why
    while read -r package why; do
        [ -z "$package" ] || say "missing: $package ($why)"
    done < <(missing_needs)
    cargo_is_new_enough || say "missing: a Rust toolchain >= $(rust_version)"
}
