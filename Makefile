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
#   make bench [QUICK=1] [ONLY=P1,P4] · bench-docs · bench-compare A=old.json B=new.json

SHELL := /bin/bash
ENGINE ?= auto
QUICK ?=
SUITES ?=
ONLY ?=
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

# A real coupled simulation, each task in a container of its own.
demo:
	@scripts/demo --engine $(ENGINE) $(if $(QUICK),--quick)

# An MPI code that publishes its arrays while it works; killed, restarted from a checkpoint, and the same bit for bit.
heat:
	@scripts/heat --engine $(ENGINE) $(if $(QUICK),--quick)

# The CDI paper's augmented-reality application over crossdock, TCP and gRPC, compared; with NODES=1,2,3 on so many hosts, which
# are network namespaces and need root.
street:
	@scripts/street --engine $(ENGINE) $(if $(QUICK),--quick) $(if $(NODES),--nodes $(NODES))

# Unmodified programs that wait for each other's files.
files:
	@scripts/files --engine $(ENGINE) $(if $(QUICK),--quick)

# `crossdock mpirun` on four hosts in network namespaces: each MPI in each engine, and each failure; mpi4py's own tests on two.
mpi:
	@scripts/mpi $(if $(QUICK),--quick)

# Kills, stops and starves programs of all nouns and the daemon, and checks every byte. At the end a report and a plot.
soak:
	@scripts/setup test demo heat street
	@scripts/with-rust tests/soak/run $(if $(MINUTES),$(MINUTES),10) --applications

# Daemons of three hosts in network namespaces join a site; links are cut. Then workflows on the three hosts, and the examples
# melt, heat and street, with the results of one host bit for bit. QUICK=1: only the examples, and small.
nodes:
	@scripts/setup nodes
	@$(if $(filter-out 0,$(QUICK)),,tests/nodes/run)
	@scripts/nodes $(if $(filter-out 0,$(QUICK)),--quick)

# Every suite of tests/suites, each closing with how many passed.
test:
	@scripts/setup test
	@scripts/with-rust scripts/test $(SUITES)

# Measures floors, peers and crossdock in one run each (bench/README.md) into build/bench/results.json and report.html;
# fails only where something does not work, never because a machine is slow.
bench:
	@scripts/setup bench
	@scripts/with-rust bench/run $(if $(filter-out 0,$(QUICK)),--quick) $(if $(ONLY),--only $(ONLY))

# The tables of docs/benchmarks.md, from the last result.
bench-docs:
	@bench/run --docs

# What got slower, beyond the noise of both.
bench-compare:
	@bench/run --compare $(A) $(B)

# Command, library, headers, CMake package, pkg-config file, Fortran sources, man pages, completions and systemd units into PREFIX.
install:
	@$(if $(FROM),,scripts/with-rust cargo build --release --locked -p crossdock-cli -p crossdock-capi -p crossdock-preload && { scripts/with-rust scripts/build-shim || echo 'warning: no static crossdock-shim; crossdock mpirun needs it in containers'; })
	@packaging/install-tree --from "$(or $(FROM),$(CARGO_TARGET_DIR)/release)" --prefix "$(PREFIX)" --destdir "$(DESTDIR)" --libdir "$(LIBDIR)"

# The site of documentation, in build/site; every link of it is checked.
docs:
	@scripts/setup docs
	@scripts/with-rust scripts/docs

# Wheels, static commands, Debian packages, archives, with checksums and SBOM, in build/release/VERSION.
release:
	@scripts/setup release
	@scripts/with-rust scripts/release

# Each artefact by its own judge, and used in root folders of other distributions.
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
