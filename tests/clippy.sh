#!/usr/bin/env bash
# Compiles this clone's own crates, by clippy. Cargo tells apart what several clones have compiled by the path of this file. Not for sh,
# which loses variables such as CARGO_BIN_EXE_tessera-sim.
exec clippy-driver "$@"
