#!/usr/bin/env bash
# Measures everything that docs/benchmarks.md has tables of, in one run at one commit, and keeps the raw figures beside
# this file: one JSON object a line, a file for each benchmark. Takes half an hour and more on a machine that does
# nothing else.
#
#     docs/benchmarks/run.sh [BENCHMARK...]      # all, or those named: failover failover-etcd submit neighbour stream start
#                                                # preempt motion slicing restart backup place idle exhaust crowd watched
#
# Cutting hosts off (failover) takes root. Afterwards, `python3 docs/benchmarks/tables.py` writes the tables into the page.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
variables=$(deploy/setup.sh build)
eval "$variables"
cargo build --release --locked --workspace --bin tessera --bin tessera-chaos
built=$CARGO_TARGET_DIR/release
export TESSERA_BIN=$built/tessera
etcd=$(chaos/get-etcd.sh)

measure() {
    local name=$1
    shift
    [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $name "* ]] || return 0
    local raw=$here/$name.json
    printf '{"bench":"%s","what":"command","commit":"%s","command":"tessera-chaos %s"}\n' \
        "$name" "$(git rev-parse --short=12 HEAD)" "${*//$etcd/etcd}" >"$raw"
    "$built/tessera-chaos" "$@" --json "$raw"
}

only=("$@")
measure failover failover --loss killed,hung,cut-off,stopped --times 20
measure failover-etcd failover --loss killed --etcd "$etcd" --times 20
# Shorter than the others: all these jobs stay, and a pool holds so many.
measure submit submit --etcd "$etcd" --rounds 3 --duration 3s --clients 1,16,64,256
measure neighbour submit --etcd "$etcd" --rounds 3 --duration 3s --clients 1 --neighbours 1
measure stream submit --stream --rounds 3 --duration 5s --clients 1,4
measure start start
measure preempt preempt
measure motion motion
measure slicing slicing
measure restart restart
measure backup backup
measure place place --etcd "$etcd"
measure idle idle
measure exhaust exhaust --expect-below 2048 --expect-leader
measure crowd crowd --expect-within 200ms
measure watched watched
