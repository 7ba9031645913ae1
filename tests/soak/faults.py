"""The faults of a soak: what members and agents go through meanwhile. Each is over when the pool is whole again."""

import dataclasses
import math
import signal
import time

from pool import Refused, until

#: Added on both sides of the time of a fault: orders and reports are under way.
MARGIN_S = 3
#: The rest between two faults.
REST_S = 2
STANDS_STILL_S = 0.5


@dataclasses.dataclass
class Fault:
    """A fault that was made: its kind, its victim, and when."""

    kind: str
    victim: str
    begun: float
    ended: float = math.inf

    def hits(self, nodes, since, end):
        """Returns whether it was on one of these nodes within these times, so that it may have interrupted work there."""
        return self.victim in nodes and since - MARGIN_S <= self.ended and self.begun <= end + MARGIN_S


class Faults:
    """Makes faults, one after the other."""

    def __init__(self, pool, random):
        self.pool, self.random, self.made = pool, random, []

    def run(self, end):
        """Makes faults of all kinds in turn until an event is set; a kind is begun again when each has been."""
        deck = []
        while not end.is_set():
            deck = deck or self.random.sample(KINDS, len(KINDS))
            deck.pop()(self)
            end.wait(REST_S)

    def make(self, kind, victim):
        """Notes a fault that begins now."""
        self.made.append(Fault(kind, victim, time.time()))
        print(f"soak: {time.strftime('%H:%M:%S')} {kind}: {victim}", flush=True)

    def mended(self):
        """Waits until the pool is whole again, and notes it."""
        until("the members to agree on a leader", self.pool.agrees)
        until("the nodes to be ready", self.pool.ready)
        self.made[-1].ended = time.time()

    def leader_is_killed(self):
        leader = self.pool.leader()
        self.make("leader killed", f"m{leader}")
        self.pool.end(f"m{leader}", signal.SIGKILL)
        until("another leader", lambda: self.pool.leader() != leader)
        self.pool.start_member(leader)
        self.mended()

    def member_stands_still(self):
        member = self.random.choice(self.pool.member_names())
        self.make("member stopped", member)
        self.pool.signal(member, signal.SIGSTOP)
        try:
            # The pause is the fault, and nothing is waited for by it.
            time.sleep(STANDS_STILL_S)
        finally:
            self.pool.signal(member, signal.SIGCONT)
        self.mended()

    def agent_is_killed(self):
        node = self.random.choice(self.pool.nodes)
        self.make("agent killed", node)
        self.pool.end(node, signal.SIGKILL)
        self.pool.start_agent(node)
        until("the agent to be connected", lambda: self.pool.connected(node))
        self.mended()

    def node_is_drained(self):
        # The first node has the one rare card, whose jobs must meet there.
        node = self.random.choice(self.pool.nodes[1:])
        self.make("node drained", node)
        self.order("drain", node)
        until(f"{node} to be empty", lambda: not self.pool.get(f"/v1/jobs?node_name={node}")["jobs"])
        self.order("uncordon", node)
        self.mended()

    def order(self, what, node):
        try:
            self.pool.post(f"/v1/nodes/{node}:{what}", {"node": {"name": node}})
        except Refused as refused:
            raise AssertionError(f"{node} cannot be told to {what}: {refused}") from None

    def leadership_is_handed_over(self):
        leader = self.pool.leader()
        self.make("leadership handed over", f"m{leader}")
        # Nobody may take it at this moment; the next fault then finds whoever leads.
        self.pool.tessera("cluster", "transfer-leader", check=False)
        self.mended()

    def follower_is_restarted(self):
        leader = self.pool.leader()
        follower = self.random.choice([number for number in range(len(self.pool.members)) if number != leader])
        self.make("follower restarted", f"m{follower}")
        self.pool.end(f"m{follower}", signal.SIGTERM)
        self.pool.start_member(follower)
        self.mended()


KINDS = [
    Faults.leader_is_killed, Faults.member_stands_still, Faults.agent_is_killed, Faults.node_is_drained,
    Faults.leadership_is_handed_over, Faults.follower_is_restarted,
]  # fmt: skip
