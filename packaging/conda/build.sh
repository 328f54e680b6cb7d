#!/usr/bin/env bash
# What conda build runs: the prefix by `make install`, the module by pip.
set -euo pipefail
cargo build --release --locked -p crossdock-cli -p crossdock-capi -p crossdock-preload
make install PREFIX="$PREFIX" FROM="$PWD/target/release"
"$PYTHON" -m pip install --no-deps --no-build-isolation -v bindings/python
# One copy of command, library and headers is enough.
rm -rf "$SP_DIR"/crossdock/{bin,lib,include,share}
