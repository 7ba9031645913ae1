#!/usr/bin/env bash
# Runs the installed units under a real systemd, which is process 1 of a container made of this machine's own files. Needs root
# and systemd-nspawn.
#
#     TESSERA_PACKAGE=tessera_0.1.0-1_amd64.deb deploy/systemd/test.sh
#
# This machine is left as it was: see deploy/package/test.sh.
set -euo pipefail

# Inside: what is seen of the units, one line each; the first that is not so ends it.
guest() {
    export TESSERA_SERVER=10.0.0.1:7400
    ok() { echo "ok   $1"; }
    die() {
        echo "FAILED: $1"
        systemctl --no-pager --lines 20 status tessera-controller tessera-agent slow-end
        exit 1
    }
    until_true() {
        local what=$1 end=$((SECONDS + 30))
        shift
        until "$@" >/dev/null 2>&1; do
            [ $SECONDS -lt $end ] || die "$what: not within 30 s"
            sleep 0.2
        done
    }
    shows() { systemctl show "$1" --property "$2" --value; }
    restarted() { [ "$(shows tessera-controller NRestarts)" -ge 1 ] && systemctl is-active --quiet tessera-controller; }

    ip link set lo up
    ip address add 10.0.0.1/32 dev lo
    systemctl start tessera-controller 2>/dev/null && die "a member without a configuration was started"
    ok "a unit without a configuration is not started"
    cp /etc/tessera/controller.toml.example /etc/tessera/controller.toml
    echo 'datadir = "/nowhere"' >/etc/tessera/agent.toml
    systemctl start tessera-agent 2>/dev/null && die "an agent with a misspelt setting is ready"
    [ "$(shows tessera-agent ActiveState)" = failed ] || die "a misspelt setting is tried again and again"
    ok "a unit with a misspelt setting fails once"
    cp /etc/tessera/agent.toml.example /etc/tessera/agent.toml
    systemctl reset-failed tessera-agent

    systemctl start tessera-controller || die "the member does not start"
    tessera cluster init --block-size 10GFLOPS --reference-precision fp32 >/dev/null || die "a unit that is ready is not reached"
    systemctl start tessera-agent || die "the agent does not start"
    ok "both units are ready when what they serve is reached"
    local member
    member=$(shows tessera-controller MainPID)
    [ "$(stat -c %U "/proc/$member")" = tessera ] || die "the member is not run by tessera"
    grep -q '^CapBnd:.*0000000000000000$' "/proc/$member/status" || die "the member could gain capabilities"
    until_true "the node is ready" sh -c 'tessera node list | grep -q ready'
    [ "$(tessera job run --tflops 0.01 -- sh -c 'id -u')" -ge 1879048192 ] || die "a job does not run as a user of its own"
    ok "a job runs behind what the unit closes, as a user of its own"

    tessera job run --tflops 0.01 -- sh -c 'until [ -e /tmp/go ]; do sleep 0.1; done; echo went on' >/dev/null &
    until_true "the job runs" sh -c 'tessera job show 2 | grep -q running'
    systemctl restart tessera-agent || die "the agent does not start again"
    touch /tmp/go
    wait $! || die "the job ended with its agent"
    tessera job logs 2 | grep -q 'went on' || die "the output of the job is lost"
    tessera job show 2 | grep -Eq '^  2 ' && die "the job was started again"
    ok "a job outlives a restart of the agent's unit"

    mkdir -p /run/systemd/system/tessera-controller.service.d
    printf '[Service]\nWatchdogSec=5s\n' >/run/systemd/system/tessera-controller.service.d/sooner.conf
    systemctl daemon-reload
    systemctl restart tessera-controller
    sleep 6
    [ "$(shows tessera-controller NRestarts)" = 0 ] || die "a member that is well was ended by its watchdog"
    kill -STOP "$(shows tessera-controller MainPID)"
    until_true "a member that hangs is started again" restarted
    until_true "it leads again" tessera job list
    ok "a member that hangs is ended by its watchdog and started again, with all it knew"

    # A process that says that it stops, gives no further sign of life, and goes on for longer than its watchdog would bear.
    cat >/run/slow-end.sh <<'SLOW'
trap 'systemd-notify STOPPING=1; sleep 5; exit 0' TERM
systemd-notify --ready
while :; do systemd-notify WATCHDOG=1; sleep 0.2; done
SLOW
    systemd-run --quiet --unit slow-end --property Type=notify --property NotifyAccess=all --property WatchdogSec=2s \
        --property TimeoutStopSec=20s --property RemainAfterExit=yes bash /run/slow-end.sh || die "it does not start"
    systemctl kill slow-end --kill-whom main
    until_true "it ends" sh -c '[ "$(systemctl show slow-end --property MainPID --value)" = 0 ]'
    [ "$(shows slow-end Result)" = success ] || die "what says that it stops is ended by its watchdog: $(shows slow-end Result)"
    ok "the watchdog is off for what says that it stops: TimeoutStopSec alone counts"
    systemctl stop tessera-agent tessera-controller
    [ "$(shows tessera-controller Result)$(shows tessera-agent Result)" = successsuccess ] || die "the units do not end in order"
    ok "both units end in order"
    echo "all is well"
}

if [ "${1:-}" = guest ]; then
    guest
    exit
fi
if [ "${1:-}" != inside ]; then
    work=$(mktemp -d)
    name=units${TESSERA_SUITE:+-$TESSERA_SUITE}-$$
    cleanup() {
        find /sys/fs/cgroup -depth -type d \( -path "*/$name*" -o -path "*/tessera/$name*" \) -exec rmdir {} + 2>/dev/null || true
        rm -rf "$work"
    }
    trap cleanup EXIT
    cp "${TESSERA_PACKAGE:?names the package that is to be installed}" "$work/tessera.deb"
    timeout 150 unshare --mount --pid --fork --kill-child --mount-proc "$0" inside "$work" "$name"
    exit
fi

work=$2 name=$3 root=$2/root
mkdir "$work/layers" "$root"
mount -t tmpfs tmpfs "$work/layers"
mkdir "$work/layers/upper" "$work/layers/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/layers/upper,workdir=$work/layers/work" "$root"
cp "$work/tessera.deb" "$root/var/lib/tessera.deb"
install -m 755 "$0" "$root/var/lib/units-test.sh"
# Nothing that this machine has enabled is of any interest there.
rm -rf "$root"/etc/systemd/system/*.wants
ln -sf /dev/null "$root/etc/systemd/system/systemd-networkd-wait-online.service"
cat >"$root/etc/systemd/system/units-test.service" <<'UNIT'
[Unit]
Requires=basic.target
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'dpkg --install /var/lib/tessera.deb && exec /var/lib/units-test.sh guest'
StandardOutput=append:/var/lib/units-test.log
StandardError=append:/var/lib/units-test.log
ExecStopPost=/bin/systemctl poweroff --force
UNIT
# A part of the tree of control groups that is its own.
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
    [ -e "$hierarchy/cgroup.procs" ] || continue
    mkdir "$hierarchy/$name"
    echo $$ >"$hierarchy/$name/cgroup.procs"
done
systemd-nspawn --directory "$root" --machine "$name" --boot --register=no --keep-unit --private-network --link-journal=no \
    --capability=all --console=pipe -- --unit=units-test.service >"$work/console.log" 2>&1 </dev/null || true
sed 's/^ok /units: ok /' "$root/var/lib/units-test.log" | grep -a '^units:' || true
grep -q '^all is well$' "$root/var/lib/units-test.log" 2>/dev/null || {
    cat "$root/var/lib/units-test.log" "$work/console.log" >&2
    exit 1
}
