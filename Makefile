# What people and CI call. Each target installs what it misses (scripts/setup) and costs little when nothing is missing.
#
#   make demo [ENGINE=auto|process|bubblewrap|podman|docker|charliecloud] [QUICK=1]
#   make test [SUITES="NAME…"] · bench [QUICK=1] · lint · fmt · clean · setup

SHELL := /bin/bash
ENGINE ?= auto
QUICK ?=
SUITES ?=
# rustup's place, where a shell that was not opened anew does not look.
export PATH := $(PATH):$(HOME)/.cargo/bin

export CARGO_TARGET_DIR ?= $(CURDIR)/build/target

.PHONY: demo test bench lint fmt clean setup

# A real coupled simulation, each task in a container of its own.
demo:
	@scripts/demo --engine $(ENGINE) $(if $(QUICK),--quick)

# Every suite of tests/suites, each closing with how many passed.
test:
	@scripts/setup test
	@scripts/test $(SUITES)

# Measures floors, peers and crossdock in one run each (bench/README.md); fails only where something does not work.
bench:
	@scripts/setup bench
	cargo build --release --quiet --locked -p crossdock-cli -p crossdock-bench
	$(CARGO_TARGET_DIR)/release/start $(CARGO_TARGET_DIR)/release/crossdock
	QUICK=$(QUICK) bench/ports/run --peer
	bench/containers/run $(if $(QUICK),--quick)
	bench/heap/run $(if $(QUICK),--quick)

lint:
	@scripts/setup lint
	@scripts/lint

fmt:
	@scripts/setup lint
	cargo fmt --all

setup:
	@scripts/setup test bench lint

clean:
	rm -rf build target
