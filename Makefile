# What people and CI call. Each target installs what it misses (scripts/setup) and costs little when nothing is missing.
#
#   make demo [ENGINE=auto|process|bubblewrap|podman|docker|charliecloud] [QUICK=1]
#   make heat [ENGINE=…] [QUICK=1]
#   make street [ENGINE=…] [QUICK=1] [NODES=1,2,3]
#   make files [ENGINE=…] [QUICK=1]
#   make mpi [QUICK=1]
#   make soak [MINUTES=10]
#   make nodes [QUICK=1]
#   make test [SUITES="NAME…"] · lint · fmt · clean · setup
#   make install [PREFIX=/usr/local] [DESTDIR=] [LIBDIR=lib] [FROM=folder of what is built]
#   make docs · release · release-check
#   make bench [QUICK=1] [ONLY=P1,P4] · bench-docs
#   make bench-compare A=old.json B=new.json · bench-compare BASE=commit [TURNS=5] [ONE_CPU=1] [AWAKE=1] [QUICK=1] [ONLY=P1,P4]

SHELL := /bin/bash
ENGINE ?= auto
QUICK ?=
SUITES ?=
ONLY ?=
BASE ?=
TURNS ?= 5
A ?=
B ?= build/bench/results.json
MINUTES ?= 10
NODES ?=
PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= lib
FROM ?=
export CARGO_TARGET_DIR ?= $(CURDIR)/build/target

.PHONY: demo heat street files mpi nodes soak test bench bench-docs bench-compare lint fmt clean setup install docs release release-check

# Runs a real coupled simulation (examples/melt), each task in a container of its own.
demo:
	@scripts/demo --engine $(ENGINE) $(if $(QUICK),--quick)

# Runs an MPI program that publishes its arrays while it works (examples/heat), kills it, restarts it from a checkpoint,
# and proves that the result is the same bit for bit.
heat:
	@scripts/heat --engine $(ENGINE) $(if $(QUICK),--quick)

# Runs the CDI paper's augmented-reality application over crossdock, TCP and gRPC, and compares them. With NODES=1,2,3
# it runs on one, two and three hosts, which are network namespaces and need root.
street:
	@scripts/street --engine $(ENGINE) $(if $(QUICK),--quick) $(if $(NODES),--nodes $(NODES))

# Runs unmodified programs that wait for each other's files.
files:
	@scripts/files --engine $(ENGINE) $(if $(QUICK),--quick)

# Tests `crossdock mpirun` on four hosts in network namespaces: each MPI library in each container engine, and each kind
# of failure. Without QUICK=1, also runs mpi4py's own test suite on two hosts.
mpi:
	@scripts/mpi $(if $(QUICK),--quick)

# Kills and stops the daemon and programs that use regions, ports, series and items, makes their system calls fail, and
# checks every byte that they exchange. At the end writes a report and a plot.
soak:
	@scripts/setup test demo heat street
	@scripts/with-rust tests/soak/run $(if $(MINUTES),$(MINUTES),10) --applications

# Tests a site of three hosts in network namespaces, also while links between the hosts are cut. Then runs workflows and
# the examples melt, heat and street on the three hosts, and proves that the examples' results are those of one host bit
# for bit. QUICK=1 runs only the examples, with small sizes.
nodes:
	@scripts/setup nodes
	@$(if $(filter-out 0,$(QUICK)),,tests/nodes/run)
	@scripts/nodes $(if $(filter-out 0,$(QUICK)),--quick)

# Runs every suite that tests/suites lists. Each suite ends with the number of tests that passed.
test:
	@scripts/setup test
	@scripts/with-rust scripts/test $(SUITES)

# Runs the benchmarks (bench/README.md): each measures crossdock, other systems, and the least time that this machine
# needs. Writes build/bench/results.json and report.html. Fails only if a program fails, never because a machine is
# slow.
bench:
	@scripts/setup bench
	@scripts/with-rust bench/run $(if $(filter-out 0,$(QUICK)),--quick) $(if $(ONLY),--only $(ONLY))

# Writes the tables of docs/benchmarks.md from the last results of `make bench`.
bench-docs:
	@bench/run --docs

# Shows which figures of the benchmark results A and B differ by more than the noise of both. With BASE, measures that
# commit and this checkout in turns, which is better: both meet the same machine. With ONE_CPU, all processes that are
# measured run on one CPU, so that the kernel's choice of CPUs does not matter. With AWAKE, no CPU stops while it is idle.
bench-compare:
	@$(if $(BASE),scripts/setup bench && scripts/with-rust bench/run --against $(BASE) --turns $(TURNS) $(if $(filter-out 0,$(ONE_CPU)),--one-cpu) $(if $(filter-out 0,$(AWAKE)),--awake) $(if $(filter-out 0,$(QUICK)),--quick) $(if $(ONLY),--only $(ONLY)),bench/run --compare $(A) $(B))

# Installs the command, library, headers, CMake package, pkg-config file, Fortran sources, man pages, completions and
# systemd units into PREFIX.
install:
	@$(if $(FROM),,scripts/with-rust cargo build --release --locked -p crossdock-cli -p crossdock-capi -p crossdock-preload && { scripts/with-rust scripts/build-shim || echo 'warning: no static crossdock-shim; crossdock mpirun needs it in containers'; })
	@packaging/install-tree --from "$(or $(FROM),$(CARGO_TARGET_DIR)/release)" --prefix "$(PREFIX)" --destdir "$(DESTDIR)" --libdir "$(LIBDIR)"

# Builds the site of the documentation in build/site, and checks every link in it.
docs:
	@scripts/setup docs
	@scripts/with-rust scripts/docs

# Makes the wheels, static commands, Debian packages and archives of a release, with checksums and SBOM, in
# build/release/VERSION.
release:
	@scripts/setup release
	@scripts/with-rust scripts/release

# Checks each artefact of a release with the usual tool for its format, and installs and uses it in root folders of
# other distributions.
release-check:
	@scripts/setup release
	@tests/install/release

lint:
	@scripts/setup lint
	@scripts/with-rust scripts/lint

fmt:
	@scripts/setup lint
	scripts/with-rust cargo fmt --all

setup:
	@scripts/setup test bench lint

clean:
	rm -rf build target
