#!/usr/bin/env bash
# Builds the Debian package, installs it with dpkg, runs a pool of one member and one agent from what it
# installed, as its units would, and removes it again. Needs root, and cargo-deb on the path.
#
#     TESSERA_BIN=target/release/tessera deploy/package/test.sh
#     TESSERA_PACKAGE=tessera_0.1.0-1_amd64.deb deploy/package/test.sh     # one that is built
#
# This machine is left as it was: the installation goes into an overlay above its file system, in namespaces of mounts,
# processes and networks that end with the test. The addresses of the example configurations exist in that network alone.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ "${1:-}" != inside ]; then
    work=$(mktemp -d)
    node=package-test${TESSERA_SUITE:+-$TESSERA_SUITE}-$$
    cleanup() {
        find /sys/fs/cgroup -depth -type d -path "*/tessera/$node*" -exec rmdir {} + 2>/dev/null || true
        rm -rf "$work"
    }
    trap cleanup EXIT
    if [ -n "${TESSERA_PACKAGE:-}" ]; then
        cp "$TESSERA_PACKAGE" "$work"
    else
        PACKAGE_COMPRESSION=gz "$here/build.sh" "${TESSERA_BIN:?names the binary to be packaged}" "$work" >/dev/null
    fi
    timeout 120 unshare --mount --net --pid --fork --kill-child "$0" inside "$work" "$node"
    exit
fi

work=$2 node=$3 root=$2/root
say() { echo "package: $*"; }
die() {
    echo "package: FAILED: $*" >&2
    tail -n 20 "$root"/var/log/tessera-*.log >&2 2>/dev/null || true
    exit 1
}
# until_true WHAT COMMAND...: waits for a condition.
until_true() {
    local what=$1 end=$((SECONDS + 30))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || die "$what: not within 30 s"
        sleep 0.1
    done
}
inside() { chroot "$root" "$@"; }

mkdir "$work/layers"
mount -t tmpfs tmpfs "$work/layers"
mkdir "$work/layers/upper" "$work/layers/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/layers/upper,workdir=$work/layers/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
ip link set lo up
# The address of the first host in the example configurations.
ip address add 10.0.0.1/32 dev lo

cp "$work"/tessera_*.deb "$root/var/lib/tessera.deb"
inside dpkg --install /var/lib/tessera.deb >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log" >&2; die "dpkg --install"; }
say "installed"
inside id tessera >/dev/null || die "no account tessera"
[ -z "$(inside pgrep -x tessera)" ] || die "something was started unasked"
inside systemctl --quiet is-enabled tessera-agent tessera-controller && die "something was enabled unasked"
problems=$(inside systemd-analyze verify tessera-controller.service tessera-agent.service 2>&1) || die "units: $problems"
[ -z "$problems" ] || die "units: $problems"
# What deploy/README.md says of them, in tenths; what loosens a unit is seen here.
for bound in controller:12 agent:61; do
    inside systemd-analyze security --offline=yes --threshold="${bound#*:}" "tessera-${bound%:*}.service" >/dev/null \
        || die "tessera-${bound%:*}.service is more exposed than ${bound#*:} tenths"
done
inside man --where tessera-job-submit tessera-server >/dev/null || die "no manual"
inside bash -n /usr/share/bash-completion/completions/tessera || die "completions for bash"
say "units, manual and completions are right"

# What systemd would do for the units, by the units: the account, the capabilities, the folders, the command.
setting() { sed -n "s/^$2=//p" "$root/usr/lib/systemd/system/tessera-$1.service"; }
bounds() {
    local bounds=-all capability
    for capability in $(setting "$1" CapabilityBoundingSet); do
        bounds+=",+${capability#CAP_}"
    done
    echo "${bounds,,}"
}
cp "$root/etc/tessera/controller.toml.example" "$root/etc/tessera/controller.toml"
cp "$root/etc/tessera/agent.toml.example" "$root/etc/tessera/agent.toml"
inside install -d -o tessera -g tessera -m "$(setting controller StateDirectoryMode)" \
    "/var/lib/$(setting controller StateDirectory)"
inside install -d -m "$(setting agent StateDirectoryMode)" "/var/lib/$(setting agent StateDirectory)"

# shellcheck disable=SC2046 # The command of a unit is words.
chroot "$root" setpriv --reuid tessera --regid tessera --init-groups --no-new-privs --bounding-set "$(bounds controller)" \
    $(setting controller ExecStart) >"$root/var/log/tessera-controller.log" 2>&1 &
controller=$!
until_true "the member makes a cluster" inside tessera cluster init --server 10.0.0.1:7400 \
    --block-size 10GFLOPS --reference-precision fp32
# shellcheck disable=SC2046
TESSERA_NODE=$node chroot "$root" setpriv --no-new-privs --bounding-set "$(bounds agent)" \
    $(setting agent ExecStart) >"$root/var/log/tessera-agent.log" 2>&1 &
agent=$!
export TESSERA_SERVER=10.0.0.1:7400
until_true "the agent is welcomed" inside curl -sf http://10.0.0.1:7411/readyz
until_true "the member is ready" inside curl -sf http://127.0.0.1:7401/readyz
! inside curl -sf http://10.0.0.1:7401/v1/jobs >/dev/null || die "the example shows every job to the network"
said=$(inside tessera job run --tflops 0.01 -- sh -c 'echo "user $(id -u), $TESSERA_JOB_ID"') || die "the job failed: $said"
[[ $said =~ ^user\ ([0-9]+),\ 1$ ]] || die "the job said: $said"
[ "${BASH_REMATCH[1]}" -ge 1879048192 ] || die "the job ran as somebody else's user ${BASH_REMATCH[1]}"
inside tessera node show "$node" | grep -q 'work ends with its supervisor' || die "workers are not contained"
inside tessera pool verify >/dev/null || die "pool verify"
say "a job ran under the capabilities of the unit, as user ${BASH_REMATCH[1]}"

# A restart of the agent harms no work.
inside tessera job submit --detach /dev/stdin >/dev/null <<'JOB'
name: survivor
command: [sh, -c, "touch started; until [ -e /tmp/go ]; do sleep 0.1; done"]
virtual_card: { tflops: 0.01 }
JOB
until_true "the job runs" sh -c "chroot $root tessera job show 2 | grep -q running"
kill "$agent"
wait "$agent" || die "the agent ended with $?"
# shellcheck disable=SC2046
TESSERA_NODE=$node chroot "$root" setpriv --no-new-privs --bounding-set "$(bounds agent)" \
    $(setting agent ExecStart) >>"$root/var/log/tessera-agent.log" 2>&1 &
agent=$!
until_true "the next agent is welcomed" inside curl -sf http://10.0.0.1:7411/readyz
touch "$root/tmp/go"
inside tessera job wait 2 >/dev/null || die "the job did not survive the restart of its agent"
! inside tessera job show 2 | grep -Eq '^  2 ' || die "the job was started again: $(inside tessera job show 2)"
say "a job outlived its agent"

inside dpkg --install /var/lib/tessera.deb >"$work/dpkg.log" 2>&1 || die "installing again: $(cat "$work/dpkg.log")"
inside curl -sf http://127.0.0.1:7401/readyz >/dev/null || die "an upgrade of the package ended the member"
kill "$agent" "$controller"
wait "$agent" || die "the agent ended with $?"
wait "$controller" || die "the member ended with $?"
inside dpkg --purge tessera >"$work/dpkg.log" 2>&1 || die "purging: $(cat "$work/dpkg.log")"
[ ! -e "$root/usr/bin/tessera" ] || die "the binary is left"
[ -e "$root/etc/tessera/controller.toml" ] || die "the configuration is gone"
[ -e "$root/var/lib/tessera/member" ] || die "the member's data is gone"
say "removed, and the data is kept"
