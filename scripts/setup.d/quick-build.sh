# Builds for tests and examples: without link-time optimisation, which takes most of the time of a release build. Sourced.
export CARGO_PROFILE_RELEASE_LTO=${CARGO_PROFILE_RELEASE_LTO:-off}
