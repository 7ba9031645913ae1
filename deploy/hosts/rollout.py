#!/usr/bin/env python3
"""Brings the hosts of an inventory to what it says: package, configuration, services, the cluster.

    deploy/hosts/rollout.py apply --inventory hosts.toml     # what differs is changed; a second time nothing is
    deploy/hosts/rollout.py restart --inventory hosts.toml   # restarts everything, one after the other

A host is reached by the inventory's `shell`, ssh as root unless it says otherwise, and needs nothing but Debian and systemd.
What was changed is restarted member by member, followers first, each only while all others are well, and agents after the
members; jobs run on. The cluster is made once. A member that is new in an inventory, or has lost its disk, joins a cluster
that exists by `tessera cluster member add` (docs/operations.md), which is a person's decision.
"""

import argparse
import hashlib
import json
import pathlib
import shlex
import subprocess
import sys
import time
import tomllib

PORTS = {"member": (7400, 7401), "agent": (7410, 7411)}
UNITS = {"member": "tessera-controller", "agent": "tessera-agent"}
FILES = {"member": "/etc/tessera/controller.toml", "agent": "/etc/tessera/agent.toml"}
INSTALLED = "/var/lib/tessera/package.sha256"
# How long a member may take to be current again after it was restarted.
PATIENCE_S = 300


class Refused(Exception):
    """What cannot be done, and what to do about it."""


class Host:
    """A host, and how commands are run on it."""

    def __init__(self, entry, shell):
        try:
            self.name, self.address, self.roles = entry["name"], entry["address"], entry["roles"]
        except KeyError as missing:
            raise Refused(f"a host of the inventory has no {missing}") from None
        if unknown := set(self.roles) - set(UNITS):
            raise Refused(f"{self.name}: no such role: {', '.join(sorted(unknown))}; there are member and agent")
        self.own = entry
        self.shell = [word.format(name=self.name, address=self.address) for word in shell]

    def run(self, command, given=None, accept=(0,)):
        """Runs a command of the shell; its exit code and output."""
        done = subprocess.run([*self.shell, command], input=given or b"", capture_output=True, check=False)
        if accept != "any" and done.returncode not in accept:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise Refused(f"{self.name}: `{command}` ended with {done.returncode}: {said}")
        return done.returncode, done.stdout.decode(errors="replace").strip()

    def is_there(self):
        return self.run("true", accept="any")[0] == 0


def say(text):
    print(f"rollout: {text}", flush=True)


def toml(table, path=()):
    """Writes a table as TOML."""
    plain = [(key, value) for key, value in table.items() if not isinstance(value, dict)]
    lines = [f"{key} = {json.dumps(value)}" for key, value in plain]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += ["", f"[{'.'.join((*path, key))}]", toml(value, (*path, key))]
    return "\n".join(lines).strip("\n")


def merged(*tables):
    """Later tables go before earlier ones, table by table."""
    result = {}
    for table in tables:
        for key, value in table.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both else value
    return result


class Pool:
    """The hosts of an inventory."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        try:
            self.inventory = tomllib.loads(self.path.read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise Refused(f"the inventory {path} cannot be read: {error}") from None
        shell = self.inventory.get("shell", ["ssh", "root@{address}"])
        self.hosts = [Host(entry, shell) for entry in self.inventory.get("host", [])]
        self.members = [host for host in self.hosts if "member" in host.roles]
        self.agents = [host for host in self.hosts if "agent" in host.roles]
        if len(self.members) not in (1, 3, 5):
            raise Refused(f"{len(self.members)} hosts have the role member; one, three or five make a cluster")
        self.servers = [f"{host.address}:{PORTS['member'][0]}" for host in self.members]

    def configuration(self, host, role):
        """The text of a configuration file."""
        port, http = PORTS[role]
        if role == "member":
            table = {
                "data_dir": "/var/lib/tessera/member",
                "listen": f"0.0.0.0:{port}",
                "advertise": f"{host.address}:{port}",
                "name": host.name,
                "http": f"0.0.0.0:{http}",
            }
        else:
            table = {
                "name": host.name,
                "data_dir": "/var/lib/tessera/agent",
                "server": self.servers,
                "listen": f"{host.address}:{port}",
                "http": f"0.0.0.0:{http}",
            }
        table = merged(table, self.inventory.get(role, {}), host.own.get(role, {}))
        return f"# Written by deploy/hosts/rollout.py from its inventory.\n{toml(table)}\n"

    def tessera(self, command, accept=(0,)):
        """Runs the command line on the first host that is there."""
        for host in self.members:
            if host.is_there():
                return host.run(f"tessera {command} --server {','.join(self.servers)}", accept=accept)
        raise Refused("no host with a member can be reached; look at `shell` in the inventory, and at the hosts")

    def status(self):
        """What the members say of themselves; `None` when nobody answers."""
        code, said = self.tessera("cluster status -o json --timeout 5s", accept="any")
        return json.loads(said) if code == 0 else None

    # One host at a time.

    def install(self, host):
        """Installs the package; whether anything was changed."""
        package = self.path.parent / self.inventory["package"]
        content = package.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if host.run(f"cat {INSTALLED} 2>/dev/null", accept="any")[1] == digest:
            return False
        host.run("cat >/var/tmp/tessera.deb", content)
        # What the package depends on comes from where the host gets its packages.
        host.run(
            "export DEBIAN_FRONTEND=noninteractive; dpkg --force-confold --install /var/tmp/tessera.deb >&2"
            " || { apt-get update -qq && apt-get install -qq --fix-broken; } >&2 && rm /var/tmp/tessera.deb"
        )
        host.run(f"echo {digest} >{INSTALLED}")
        say(f"{host.name}: installed {package.name}")
        return True

    def configure(self, host, role):
        """Writes a configuration file; whether it differs from what was there."""
        text, file = self.configuration(host, role), FILES[role]
        if host.run(f"cat {file} 2>/dev/null", accept="any")[1] == text.strip():
            return False
        # A file that is half written is never read.
        host.run(f"cat >{file}.new && chmod 644 {file}.new && mv {file}.new {file}", text.encode())
        say(f"{host.name}: wrote {file}")
        return True

    def runs(self, host, role):
        return host.run(f"systemctl is-active --quiet {UNITS[role]}", accept="any")[0] == 0

    def start(self, host, role):
        host.run(f"systemctl daemon-reload && systemctl enable --quiet {UNITS[role]} && systemctl start {UNITS[role]}")
        say(f"{host.name}: started {UNITS[role]}")

    # All of them.

    def apply(self):
        changed = set()
        for host in self.hosts:
            if not host.is_there():
                raise Refused(f"{host.name} cannot be reached; nothing was changed on it and on those after it")
            installed = self.install(host)
            for role in host.roles:
                if self.configure(host, role) or installed:
                    changed.add((host, role))
        running = {(host, role) for host in self.hosts for role in host.roles if self.runs(host, role)}
        for host in self.members:
            if (host, "member") not in running:
                self.start(host, "member")
        self.found()
        for host in self.agents:
            if (host, "agent") not in running:
                self.start(host, "agent")
        self.roll(changed & running)
        say("the hosts are as the inventory says")

    def found(self):
        """Makes the cluster, unless there is one."""
        if self.status() is not None:
            return
        options = " ".join(
            f"--{key} {shlex.quote(str(value))}" for key, value in self.inventory.get("cluster", {}).items()
        )
        names = " ".join(f"--member {host.name}={host.address}:{PORTS['member'][0]}" for host in self.members)
        code, said = self.tessera(f"cluster init {options} {names}", accept="any")
        if code == 0:
            say("the cluster is made")
        elif self.status() is None:
            raise Refused(
                f"there is no cluster, and none could be made: {said}; look at `journalctl -u tessera-controller`"
            )

    def roll(self, parts):
        """Restarts members one after the other, then agents."""
        members = [host for host in self.members if (host, "member") in parts]
        while members:
            status = self.all_well()
            leader = status["leader"]["address"]
            # The leader comes last, after it has handed leadership over to one that was restarted.
            host = next((host for host in members if not self.is_at(host, leader)), members[0])
            if self.is_at(host, leader) and len(self.members) > 1:
                self.tessera("cluster transfer-leader")
            applied = max(member["committed_index"] for member in status["members"])
            host.run(f"systemctl restart {UNITS['member']}")
            self.all_well(applied)
            members.remove(host)
            say(f"{host.name}: restarted the member")
        for host in self.agents:
            if (host, "agent") in parts:
                host.run(f"systemctl restart {UNITS['agent']}")
                say(f"{host.name}: restarted the agent")

    @staticmethod
    def is_at(host, address):
        return address == f"{host.address}:{PORTS['member'][0]}"

    def all_well(self, applied=0):
        """Waits until every member answers, can be written to, and has applied the log up to there."""
        end, why = time.monotonic() + PATIENCE_S, "no member answers"
        while time.monotonic() < end:
            if (status := self.status()) is not None:
                ill = [m["address"] for m in status["members"] if m["error"] or m["applied_index"] < applied]
                if not ill and status["leader"] and status["writable"]:
                    return status
                why = f"not well: {', '.join(ill)}" if ill else "nobody leads"
            time.sleep(0.2)
        raise Refused(f"{why}, for {PATIENCE_S} s; nothing more is restarted. Mend it, then run this again")

    def restart(self):
        self.roll({(host, role) for host in self.hosts for role in host.roles})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["apply", "restart"])
    parser.add_argument("--inventory", required=True, help="the inventory file (TOML); see deploy/hosts/hosts.toml")
    arguments = parser.parse_args()
    try:
        pool = Pool(arguments.inventory)
        pool.apply() if arguments.what == "apply" else pool.restart()
    except Refused as refused:
        sys.exit(f"rollout: {refused}")


if __name__ == "__main__":
    main()
