#!/usr/bin/env bash
# Builds the images of scratch.sh, and runs what they say is to be run, as the user that they name and with nothing around it but
# what they hold: a member that becomes a pool, and an agent on which a job prints what its image has. Needs root, podman, buildah,
# and debootstrap for the agent's. Containers themselves are not run: their engine may not make them where this is tested.
#
#     TESSERA_BIN=target/release/tessera deploy/container/test.sh [member]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ "${1:-}" != inside ]; then
    binary=${TESSERA_BIN:?names the binary that the images are to hold}
    work=$(mktemp -d)
    member=localhost/tessera-test-member:$$ agent=localhost/tessera-test-agent:$$
    made=()
    cleanup() {
        for container in "${made[@]}"; do buildah rm "$container" >/dev/null 2>&1 || true; done
        podman rmi --force "$member" "$agent" >/dev/null 2>&1 || true
        rm -rf "$work"
    }
    trap cleanup EXIT
    for target in ${1:-member agent}; do
        image=${!target}
        "$here/scratch.sh" "$binary" "$target" "$image" >/dev/null
        made+=("$(buildah from --pull-never "$image")")
        buildah mount "${made[-1]}" >"$work/$target.root"
        podman inspect --format '{{json .Config}}' "$image" >"$work/$target.json"
    done
    timeout 180 unshare --mount --net --pid --fork --kill-child "$0" inside "$work"
    exit
fi

work=$2
say() { echo "container: $*"; }
die() {
    echo "container: FAILED: $*" >&2
    tail -n 20 "$work"/*.log >&2 2>/dev/null || true
    exit 1
}
until_true() {
    local what=$1 end=$((SECONDS + 60))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || die "$what: not within 60 s"
        sleep 0.1
    done
}
# of TARGET FIELD...: what the image says, a word in a line.
of() { python3 -c 'import json, sys
found = json.load(open(sys.argv[1]))
for field in sys.argv[2:]: print(*(found[field] if isinstance(found[field], list) else [found[field]]), sep="\n")' "$work/$1.json" "${@:2}"; }
# in_image TARGET COMMAND...: as its user, with its files and no others.
in_image() {
    local root
    root=$(cat "$work/$1.root")
    chroot --userspec="$(of "$1" User)" "$root" "${@:2}"
}
# begin TARGET COMMAND...: the same in the place of this shell, so that signals reach it.
begin() { exec chroot --userspec="$(of "$1" User)" "$(cat "$work/$1.root")" "${@:2}"; }
client() { in_image member /usr/bin/tessera "$@" --server 10.0.0.1:7400; }

ip link set lo up
# An address as a host has one: a member that listens for others is not to be found at its own loopback.
ip address add 10.0.0.1/32 dev lo
for file in "$work"/*.root; do
    root=$(cat "$file")
    install -d "$root"/{proc,dev,sys,tmp}
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
done

[ "$(of member User)" = 10001:10001 ] || die "the member's image runs as $(of member User)"
in_image member /usr/bin/tessera version >/dev/null || die "the binary lacks a library in the member's image"
[ ! -e "$(cat "$work/member.root")/bin/sh" ] || die "the member's image has a shell"
mapfile -t words < <(of member Entrypoint Cmd)
(begin member "${words[@]}" --advertise 10.0.0.1:7400) >"$work/member.log" 2>&1 &
serving=$!
until_true "the member to live" python3 -c 'import urllib.request; urllib.request.urlopen("http://127.0.0.1:7401/livez")'
until_true "the pool to begin" client cluster init
say "the member's image serves a pool as $(of member User), from $(du -smx "$(cat "$work/member.root")" | cut -f1) MiB"

if [ -e "$work/agent.root" ]; then
    root=$(cat "$work/agent.root")
    cp "$here/inventory.toml" "$root/tmp/inventory.toml"
    name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$here/inventory.toml" | head -1)
    mapfile -t words < <(of agent Entrypoint Cmd)
    in_image agent "${words[@]}" --name "$name" --server 10.0.0.1:7400 --run-as agent --inventory /tmp/inventory.toml \
        --advertise 10.0.0.1:7410 --worker-host 10.0.0.1 >"$work/agent.log" 2>&1 &
    until_true "the node to be ready" sh -c '[ -n "$(chroot --userspec=10001:10001 "$0" /usr/bin/tessera node list -o name --server 10.0.0.1:7400)" ]' "$(cat "$work/member.root")"
    said=$(client job run --tflops 1 -- /usr/bin/python3 -c 'print("from", open("/etc/os-release").readline().strip())')
    grep -q 'from PRETTY_NAME' <<<"$said" || die "the job printed: $said"
    say "a job runs in the agent's image: $said"
fi

# As an engine stops a container; a member hands over what it leads, and ends well.
kill -TERM "$serving"
wait "$serving" || die "the member ended with $?"
say "all is well"
