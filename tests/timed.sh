#!/usr/bin/env bash
# Runs a test executable for cargo, which names this file in CARGO_TARGET_<HOST>_RUNNER: each test says how long it took. Saying so is
# not stable, so that the executable, and nothing that compiles, is told to allow it.
#
# End-to-end tests wait for leases and elections most of the time: more of them than there are processors run at once. Those that
# judge shares of a processor, or take all that a member has, run after the others.
run() { RUSTC_BOOTSTRAP=1 "$@" -Z unstable-options --report-time; }
case $1 in
    */deps/end_to_end-*)
        at_once=$(($(nproc) * 2))
        [ "$at_once" -le 8 ] || at_once=8
        failed=
        run "$@" "--test-threads=$at_once" --skip exhaust:: --skip slicing:: || failed=1
        run "$@" --test-threads=2 exhaust:: slicing:: || failed=1
        [ -z "$failed" ]
        ;;
    */deps/*) run "$@" ;;
    # An example of a document.
    *) exec "$@" ;;
esac
