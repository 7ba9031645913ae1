"""Hosts made of namespaces of this machine, for the rehearsal: each with a network, processes, a name and files of its own."""

import os
import pathlib
import shlex
import signal
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
# How long anything may take before it counts as failed.
PATIENCE_S = 40


def say(text):
    print(f"rehearsal: {text}", flush=True)


def call(*command, **more):
    done = subprocess.run(command, check=False, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise SystemExit(f"rehearsal: FAILED: {' '.join(command)}: {done.stderr}")
    return done.stdout


def until(what, condition, describe=lambda: ""):
    """Waits for a condition; what it found."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.1)
    raise SystemExit(f"rehearsal: FAILED: {what}: not within {PATIENCE_S} s {describe()}")


def check(what, holds):
    if not holds:
        raise SystemExit(f"rehearsal: FAILED: {what}")
    say(f"ok   {what}")


class Host:
    """A host made of namespaces. Its file system outlives it, as a disk would."""

    def __init__(self, place, name, work, round_trip_ms):
        self.place, self.name, self.round_trip_ms = place, name, round_trip_ms
        self.address = f"10.77.0.{place}"
        self.root, self.disk = work / name / "root", work / "disks" / name
        self.pid_file = work / name / "pid"
        for folder in (self.root, self.disk / "upper", self.disk / "work", self.disk / "data"):
            folder.mkdir(parents=True)

    def start(self):
        """Switches it on."""
        root, disk, here = (shlex.quote(str(path)) for path in (self.root, self.disk, HERE))
        script = f"""
            set -e
            mount -t overlay overlay -o lowerdir=/,upperdir={disk}/upper,workdir={disk}/work {root}
            # An agent knows its folder again by the file system that it lies on, which an overlay is not twice.
            mkdir -p {root}/var/lib/tessera
            mount --bind {disk}/data {root}/var/lib/tessera
            mount -t proc proc {root}/proc
            mount --rbind /sys {root}/sys
            mount --rbind /dev {root}/dev
            for folder in run tmp; do mount -t tmpfs tmpfs {root}/$folder; done
            hostname {self.name}
            install -m 755 {here}/systemctl {root}/usr/local/bin/systemctl
            ip link set lo up
            echo up
            while :; do sleep 1000 & wait -n; done
        """
        spaces = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child"]
        with open(self.pid_file.with_name("log"), "w") as log:
            self.holder = subprocess.Popen(
                [*spaces, "bash", "-c", script], stdout=subprocess.PIPE, stderr=log, text=True
            )
        if self.holder.stdout.readline() != "up\n":
            raise SystemExit(f"rehearsal: {self.name} cannot be made: {self.pid_file.with_name('log').read_text()}")
        self.pid = int(pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()[0])
        self.pid_file.write_text(str(self.pid))
        call("ip", "link", "add", f"port{self.place}", "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        call("ip", "link", "set", f"port{self.place}", "master", "switch", "up")
        self.run(f"ip address add {self.address}/24 dev eth0 && ip link set eth0 up")
        if self.round_trip_ms:
            self.delay()

    def delay(self):
        """What comes from other hosts takes half the round trip, and so does what goes back."""
        ways = [f"1{port}:{self.address}:{port}" for port in (7400, 7410)]
        rules = "; ".join(
            f'add rule ip d pre iifname "eth0" tcp dport {port} redirect to :1{port}' for port in (7400, 7410)
        )
        chain = "add chain ip d pre { type nat hook prerouting priority dstnat; }"
        self.run(f"nft 'add table ip d; {chain}; {rules}'")
        command = ["python3", str(HERE / "delay.py"), str(self.round_trip_ms), *ways]
        subprocess.Popen([*self.enter(chroot=False), *command], stderr=subprocess.DEVNULL)

    def enter(self, chroot=True):
        inside = ["chroot", str(self.root)] if chroot else []
        return ["nsenter", "--target", str(self.pid), "--net", "--uts", "--mount", "--pid", *inside]

    def run(self, command):
        return call(*self.enter(), "sh", "-c", command)

    def lose(self):
        """Ends everything on it at once, without a word."""
        os.kill(self.pid, signal.SIGKILL)
        self.holder.wait()
        self.pid_file.unlink()
        # Its end of the cable is gone with it.
        until(
            "the cable is gone",
            lambda: not pathlib.Path(f"/sys/class/net/port{self.place}").exists()
            or subprocess.run(["ip", "link", "delete", f"port{self.place}"], check=False, capture_output=True),
        )
