# The targets that people and CI use. `make demo` and `make test` install what they miss (scripts/setup).
#
#   make demo [ENGINE=auto|process|bubblewrap|podman|docker|charliecloud] [QUICK=1]
#   make test · bench · lint · fmt · clean · setup

SHELL := /bin/bash
ENGINE ?= auto
QUICK ?=

.PHONY: demo test bench lint fmt clean setup

demo: ## a real coupled simulation, each task in a container of its own
	@scripts/demo --engine $(ENGINE) $(if $(QUICK),--quick)

setup:
	@scripts/setup test bench lint

clean:
	rm -rf build target
