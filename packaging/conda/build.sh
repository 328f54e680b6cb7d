#!/usr/bin/env bash
# The commands that conda build runs. `make install` fills the prefix, and pip installs the Python module.
set -euo pipefail
cargo build --release --locked -p crossdock-cli -p crossdock-capi -p crossdock-preload
make install PREFIX="$PREFIX" FROM="$PWD/target/release"
"$PYTHON" -m pip install --no-deps --no-build-isolation -v bindings/python
# The prefix has the command, the library and the headers already, so the copies in the Python package are removed.
rm -rf "$SP_DIR"/crossdock/{bin,lib,include,share}
