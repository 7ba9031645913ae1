#!/usr/bin/env python3
"""Brings the hosts of an inventory to what it says: package, configuration, services, the cluster.

    deploy/hosts/rollout.py apply --inventory hosts.toml     # what differs is changed; a second time nothing is
    deploy/hosts/rollout.py restart --inventory hosts.toml   # restarts everything, one after the other

A host is reached by the inventory's `shell`, ssh as root unless it says otherwise, and needs only Debian and systemd.
What was changed is restarted member by member, followers first, each only while all others are well, and agents after
the members, each only when a leader has welcomed the one before; jobs run on. What is still to be restarted is marked on
its host before anything there is changed: a run that was interrupted is simply run again. The cluster is made once. A
member that is new in an inventory, or has lost its disk, joins a cluster that exists by `tessera cluster member add`
(docs/operations.md), which is a person's decision.
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
# How long a member may take to be current again after it was restarted, and an agent to be welcomed by a leader.
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


def mark(role):
    """The file that says on a host: what runs there is older than what lies there."""
    return f"/var/lib/tessera/restart-{UNITS[role]}"


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

    def __init__(self, path, patience_s=PATIENCE_S):
        self.path, self.patience_s = pathlib.Path(path), patience_s
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

    def settings(self, host, role):
        """What a configuration file says."""
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
        return merged(table, self.inventory.get(role, {}), host.own.get(role, {}))

    def configuration(self, host, role):
        """The text of a configuration file."""
        return f"# Written by deploy/hosts/rollout.py from its inventory.\n{toml(self.settings(host, role))}\n"

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

    def is_marked(self, host, role):
        return host.run(f"test -e {mark(role)}", accept=(0, 1))[0] == 0

    def mark(self, host, role):
        """Notes that what runs is to be restarted, so that whoever is interrupted from here on knows it again."""
        host.run(f"mkdir -p {pathlib.PurePosixPath(mark(role)).parent} && : >{mark(role)} && sync {mark(role)}")

    def unmark(self, host, role):
        host.run(f"rm -f {mark(role)}")

    def install(self, host):
        """Installs the package, unless it is there."""
        package = self.path.parent / self.inventory["package"]
        content = package.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if host.run(f"cat {INSTALLED} 2>/dev/null", accept="any")[1] == digest:
            return
        for role in host.roles:
            self.mark(host, role)
        host.run("cat >/var/tmp/tessera.deb", content)
        # What the package depends on comes from where the host gets its packages.
        host.run(
            "export DEBIAN_FRONTEND=noninteractive; dpkg --force-confold --install /var/tmp/tessera.deb >&2"
            " || { apt-get update -qq && apt-get install -qq --fix-broken; } >&2 && rm /var/tmp/tessera.deb"
        )
        host.run(f"echo {digest} >{INSTALLED}")
        say(f"{host.name}: installed {package.name}")

    def configure(self, host, role):
        """Writes a configuration file, unless it is there."""
        text, file = self.configuration(host, role), FILES[role]
        if host.run(f"cat {file} 2>/dev/null", accept="any")[1] == text.strip():
            return
        self.mark(host, role)
        # A file that is half written is never read.
        host.run(f"cat >{file}.new && chmod 644 {file}.new && mv {file}.new {file}", text.encode())
        say(f"{host.name}: wrote {file}")

    def runs(self, host, role):
        return host.run(f"systemctl is-active --quiet {UNITS[role]}", accept="any")[0] == 0

    def start(self, host, role):
        self.mark(host, role)
        host.run(f"systemctl daemon-reload && systemctl enable --quiet {UNITS[role]} && systemctl start {UNITS[role]}")
        if role == "agent":
            self.welcomed(host)
        self.unmark(host, role)
        say(f"{host.name}: started {UNITS[role]}")

    def welcomed(self, host):
        """Waits until a leader has welcomed the agent: it serves before that, and holds no lease without one."""
        address, _, port = self.settings(host, "agent")["http"].rpartition(":")
        # An address that stands for all of a host is asked at by none.
        address = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}.get(address, address.strip("[]"))
        # Bash asks, because a host need have nothing else that could.
        ask = f'exec 3<>/dev/tcp/{address}/{port} && printf "GET /readyz HTTP/1.0\\r\\n\\r\\n" >&3 && cat <&3'
        end = time.monotonic() + self.patience_s
        while True:
            said = host.run(f"timeout 5 bash -c {shlex.quote(ask)} 2>&1", accept="any")[1].splitlines() or ["nothing"]
            if said[0].split(" ")[1:2] == ["200"]:
                return
            if time.monotonic() > end:
                break
            time.sleep(0.2)
        raise Refused(
            f"{host.name}: no leader has welcomed the agent within {self.patience_s:g} s (/readyz says: {said[-1]}); no "
            "agent after it is restarted, and its work ends with its lease. Mend `[agent]` in the inventory, `server` "
            "above all, or the network, then run this again"
        )

    # All of them.

    def apply(self):
        for host in self.hosts:
            if not host.is_there():
                raise Refused(f"{host.name} cannot be reached; nothing was changed on it and on those after it")
            self.install(host)
            for role in host.roles:
                self.configure(host, role)
        parts = [(host, role) for host in self.hosts for role in host.roles]
        running = {part for part in parts if self.runs(*part)}
        for host in self.members:
            if (host, "member") not in running:
                self.start(host, "member")
        self.found()
        for host in self.agents:
            if (host, "agent") not in running:
                self.start(host, "agent")
        self.roll({part for part in running if self.is_marked(*part)})
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
            status = self.all_well(spared=members)
            leader = status["leader"]["address"]
            ill = next((member["address"] for member in status["members"] if member["error"]), None)
            # The one that is ill comes first: its restart may be what mends it. The leader comes last, after it has
            # handed leadership over to one that was restarted.
            host = next((host for host in members if self.is_at(host, ill)), None) or next(
                (host for host in members if not self.is_at(host, leader)), members[0]
            )
            if self.is_at(host, leader) and len(self.members) > 1:
                self.tessera("cluster transfer-leader")
            applied = max(member["committed_index"] for member in status["members"])
            host.run(f"systemctl restart {UNITS['member']}")
            self.all_well(applied)
            self.unmark(host, "member")
            members.remove(host)
            say(f"{host.name}: restarted the member")
        for host in self.agents:
            if (host, "agent") in parts:
                # An agent that cannot come back ends its work: none is risked while members are ill.
                self.all_well()
                host.run(f"systemctl restart {UNITS['agent']}")
                self.welcomed(host)
                self.unmark(host, "agent")
                say(f"{host.name}: restarted the agent")

    @staticmethod
    def is_at(host, address):
        return address == f"{host.address}:{PORTS['member'][0]}"

    def all_well(self, applied=0, spared=()):
        """Waits until every member answers, can be written to, and has applied the log up to there. One of the spared,
        which are still to be restarted, may be ill."""
        end, why = time.monotonic() + self.patience_s, "no member answers"
        while time.monotonic() < end:
            if (status := self.status()) is not None:
                ill = [m["address"] for m in status["members"] if m["error"] or m["applied_index"] < applied]
                one = len(ill) == 1 and any(self.is_at(host, ill[0]) for host in spared)
                if (one or not ill) and status["leader"] and status["writable"]:
                    return status
                why = f"not well: {', '.join(ill)}" if ill else "nobody leads"
            time.sleep(0.2)
        raise Refused(f"{why}, for {self.patience_s:g} s; nothing more is restarted. Mend it, then run this again")

    def restart(self):
        parts = {(host, role) for host in self.hosts for role in host.roles}
        for part in parts:
            self.mark(*part)
        self.roll(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["apply", "restart"])
    parser.add_argument("--inventory", required=True, help="the inventory file (TOML); see deploy/hosts/hosts.toml")
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE_S,
        metavar="SECONDS",
        help="how long a member may take to be current, and an agent to be welcomed (%(default)s)",
    )
    arguments = parser.parse_args()
    try:
        pool = Pool(arguments.inventory, arguments.patience)
        pool.apply() if arguments.what == "apply" else pool.restart()
    except Refused as refused:
        sys.exit(f"rollout: {refused}")


if __name__ == "__main__":
    main()
