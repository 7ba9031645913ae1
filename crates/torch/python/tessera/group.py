"""The servers of one card that has several slices: how they find each other, and how tensors travel between them.

The first server (rank 0) listens for the others at an address of its own. Each comes there with the token of the epoch, as another slice
server and not as a program, and says what it has; when all are there they begin together. What each does with an operation is decided in
C++ (csrc/server/group.h); tensors travel by `torch.distributed` only, with the backend of the device where all are devices of one kind, and with
gloo through the memory of their hosts otherwise.
"""

import dataclasses
import datetime
import fcntl
import functools
import hashlib
import ipaddress
import json
import os
import pathlib
import socket
import struct
import threading
import time

import torch
import torch.distributed as distributed

from tessera import _native, pulse
from tessera.remarks import remark

#: torch.distributed's name of what connects devices of one kind.
_BACKENDS = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl", "xpu": "xccl"}
#: Most slices of a card.
MOST = 64
#: Seconds until all servers are there, when nothing else is said.
PATIENCE = 120.0
_PAUSE = 0.1
_GREETING = 5.0  # seconds within which one that comes says what it is
#: How long an exchange may take, with all that another server computes before it: who is alive is waited for (pulse.py). In milliseconds it is
#: still a number of 32 bits.
_LONGEST = datetime.timedelta(days=20)
_MEASURED = 0.05  # seconds of the device's time
_LEAST = 1e-3  # seconds that a product takes at least, so that starting it counts for nothing
_DRAWN = 1 << 22


@dataclasses.dataclass
class Server:
    """A slice server of the card."""

    rank: int
    device: str
    memory_bytes: int
    #: FLOP per second that it computes for the card: what its device was measured to do, times its part of it.
    rate: float
    #: Which device of the world that is, where it says so.
    identity: str = ""

    @property
    def kind(self) -> str:
        return torch.device(self.device).type


def identity(device: torch.device) -> str:
    """What tells a device from all others, such as the UUID of a GPU; nothing where none is known."""
    if device.type == "cpu":
        return ""
    return str(getattr(torch.get_device_module(device).get_device_properties(device), "uuid", ""))


def _backend(servers: list[Server]) -> str:
    kinds, identities = {server.kind for server in servers}, [server.identity for server in servers if server.identity]
    # Libraries of makers connect devices, and not a device with itself.
    is_direct = len(kinds) == 1 and len(identities) == len(set(identities))
    return _BACKENDS.get(kinds.pop(), "gloo") if is_direct else "gloo"


def _wait_for(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def measure(device: torch.device, part: float) -> float:
    """FLOP per second of products of matrices, in the device's own time, times the part of it that the slice has."""
    # On processors by their own time: what a control group holds back is in the part already, and neighbours do not count.
    threads = torch.get_num_threads()
    clock = (lambda: time.process_time() / threads) if device.type == "cpu" else time.perf_counter

    def product(left: torch.Tensor) -> float:
        _wait_for(device)
        start = clock()
        left @ left
        _wait_for(device)
        return clock() - start

    size, work, spent = 256, 0, 0.0
    while True:
        left = torch.randn(size, size, device=device)
        product(left)
        if min(product(left) for _ in range(3)) >= _LEAST or size == 8192:
            break
        size *= 2
    while spent < _MEASURED:
        spent += product(left)
        work += 2 * size**3
    return work / spent * part


def draws(device: torch.device) -> int:
    """A number for the random numbers of a device: devices with the same draw the same, which other kernels or another size of grid do not."""
    generator = torch.Generator(device).manual_seed(0)
    drawn = torch.randn(_DRAWN, generator=generator, device=device), torch.empty(_DRAWN, device=device).bernoulli_(0.5, generator=generator)
    digest = hashlib.sha256()
    for numbers in drawn:
        digest.update(numbers.cpu().numpy())
    return int.from_bytes(digest.digest()[:7])


def _between_servers(exchange):
    """What goes wrong between servers is told as which of them is gone."""

    @functools.wraps(exchange)
    def told(self, *arguments):
        try:
            return exchange(self, *arguments)
        except torch.OutOfMemoryError as error:
            # Of its own device, and nobody else's fault.
            raise MemoryError(f"slice {self._own} of {self._count} has no memory for what travels: {error}") from None
        except (RuntimeError, ValueError) as error:
            raise self._gone(error) from None

    return told


class Exchange:
    """How tensors travel, for the executor. What goes wrong here means that another server is gone."""

    def __init__(self, own: int, servers: list[Server], connections: dict):
        #: To those servers that this one knows: they tell which of them have ended.
        self._connections = connections
        self.backend = _backend(servers)
        self._own, self._count = own, len(servers)
        self._own_device = torch.device(servers[own].device)
        self._device = torch.device("cpu") if self.backend == "gloo" else self._own_device

    def _out(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.device == self._device else tensor.to(self._device)

    def _gone(self, error: Exception) -> ConnectionError:
        """Which server is gone, when an exchange failed."""
        ended = [str(rank) for rank, connection in self._connections.items() if not connection.is_open]
        who = f"slice {' and '.join(ended)} of {self._count} is gone" if ended else f"the {self._count} slices cannot reach each other"
        return ConnectionError(f"{who} ({str(error).splitlines()[0]})")

    @_between_servers
    def pass_on(self, tensor: torch.Tensor, source: int, to: int) -> None:
        """From one to another."""
        there = _bytes(tensor)
        travels = self._out(there)
        if self._own == source:
            distributed.send(travels, to)
            return
        distributed.recv(travels, source)
        if travels is not there:
            there.copy_(travels)

    @_between_servers
    def spread(self, pieces: list[tuple[torch.Tensor, int]]) -> None:
        """Each from one to all."""
        travelling = [(_bytes(tensor), source) for tensor, source in pieces]
        out = [self._out(tensor) for tensor, _ in travelling]
        under_way = [distributed.broadcast(tensor, source, async_op=True) for tensor, (_, source) in zip(out, travelling, strict=True)]
        for work in under_way:
            work.wait()
        for tensor, (there, source) in zip(out, travelling, strict=True):
            if tensor is not there and source != self._own:
                there.copy_(tensor)

    @_between_servers
    def sum(self, tensor: torch.Tensor) -> None:
        """Of all servers, at each."""
        travels = self._out(tensor)
        distributed.all_reduce(travels)
        if travels is not tensor:
            tensor.copy_(travels)

    @_between_servers
    def gather(self, number: int) -> list[int]:
        """One number of each."""
        own = torch.tensor([number], device=self._device)
        all = [torch.empty_like(own) for _ in range(self._count)]
        distributed.all_gather(all, own)
        return [int(one) for one in all]

    def speed(self) -> float:
        """Bytes per second of a sum of what is on the devices, measured."""
        piece = torch.ones(1 << 20, device=self._own_device)
        self.sum(piece)
        _wait_for(self._own_device)
        start = time.perf_counter()
        self.sum(piece)
        _wait_for(self._own_device)
        took = torch.tensor([time.perf_counter() - start], dtype=torch.float64, device=self._device)
        distributed.all_reduce(took, op=distributed.ReduceOp.MAX)
        return piece.nbytes / took.item()

    def delay(self) -> float:
        """Seconds of the smallest exchange, measured."""
        start = time.perf_counter()
        for _ in range(8):
            self.gather(0)
        took = torch.tensor([(time.perf_counter() - start) / 8], dtype=torch.float64, device=self._device)
        distributed.all_reduce(took, op=distributed.ReduceOp.MAX)
        return took.item()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


class Group:
    """The servers of a card, as one of them knows them."""

    def __init__(self, own: Server, of: int, address: str, token: str, epoch: int, patience: float = PATIENCE):
        self.own, self.count, self._patience = own, of, patience
        self._address, self._token, self._epoch = address, token, epoch
        self._connections: dict[int, _native.Connection] = {}
        self._pulses: dict[int, _native.Connection] = {}
        self._told = {}
        self.servers: list[Server] = []

    def form(self, told: dict) -> None:
        """Waits until all are there. What the first one tells, the others know afterwards (`told`); its `lease` is when a silent one is gone."""
        store = self._gather_followers(told) if self.own.rank == 0 else self._come()
        self.exchange = Exchange(self.own.rank, self.servers, self._connections)
        # torch.distributed has one limit for this and for all that follows.
        late = threading.Timer(PATIENCE, pulse.end, (f"the {self.count} slices did not reach each other within {PATIENCE:.0f} s",))
        late.daemon = True
        late.start()
        distributed.init_process_group(
            self.exchange.backend, store=store, rank=self.own.rank, world_size=self.count, timeout=_LONGEST,
        )  # fmt: skip
        late.cancel()
        lease = self._told["lease"]
        if self.own.rank == 0:
            pulse.Watch(self._pulses, lease)
        else:
            pulse.beat(self._pulses[0], lease)

    @property
    def told(self) -> dict:
        return self._told

    def join(self, executor, split: str, part: float) -> None:
        """Has the executor, which has this part of its device's time, compute as one of the group."""
        alike = len(set(self.exchange.gather(draws(torch.device(self.own.device))))) == 1
        changes = self._told["split"] == "auto"
        memory, rates = [server.memory_bytes for server in self.servers], [server.rate for server in self.servers]
        executor.join(self.own.rank, memory, rates, part, alike, changes, split, self.exchange)
        for rank in range(1, self.count) if self.own.rank == 0 else ():
            executor.lead(self._connections[rank].table)

    @property
    def first(self):
        """The connection to the first server."""
        return self._connections[0]

    def _gather_followers(self, told: dict):
        listener = _native.Listener(
            self._address, torch=torch.__version__, token=self._token, epoch=self._epoch, device=self.own.device,
            memory_bytes=self.own.memory_bytes, share=1.0, sequence=0, followers=2 * (self.count - 1),
        )  # fmt: skip
        remark(f"waiting for {self.count - 1} more at {listener.address}")
        found, until = {0: self.own}, time.monotonic() + self._patience
        while len(found) < self.count or len(self._pulses) < self.count - 1:
            connection = listener.accept(1.0)
            if connection is None:
                if ended := [rank for rank, known in self._connections.items() if not known.is_open]:
                    raise ConnectionError(f"slice {ended[0]} of {self.count} has ended before all were there")
                if time.monotonic() > until:
                    missing = [str(rank) for rank in range(1, self.count) if rank not in found or rank not in self._pulses]
                    raise TimeoutError(f"slice {', '.join(missing)} of {self.count} did not come within {self._patience:.0f} s")
                continue
            if not self._admit(connection, found):
                listener.free(0)
        self.servers = [found[rank] for rank in range(self.count)]
        # Servers of this host reach it at an address at which those of other hosts may not.
        hosts = [connection.hosts[0] for connection in self._connections.values() if connection.hosts]
        own_host = min(hosts, key=_leads_here_only, default="127.0.0.1")
        _use_interface_of(own_host)
        if self._file is not None:
            # What is left of an earlier card must not be read.
            self._file.unlink(missing_ok=True)
        store = distributed.FileStore(str(self._file), self.count) if self._file is not None else self._listen_at(own_host)
        self._told = told
        servers = [dataclasses.asdict(server) for server in self.servers]
        for connection in self._connections.values():
            connection.send(json.dumps({"servers": servers, "host": own_host, "port": getattr(store, "port", 0), "told": told}).encode())
        return store

    @property
    def _file(self) -> pathlib.Path | None:
        """Where torch.distributed keeps what it has to say at the start, when all are on this host."""
        return pathlib.Path(f"{self._address.removeprefix('unix:')}.store") if self._address.startswith("unix:") else None

    def _listen_at(self, host: str):
        """The same by a port, at the address where the servers reach each other and no other."""
        address = _address(host)
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        listening = socket.create_server((str(address), 0), family=family)
        port = listening.getsockname()[1]
        return distributed.TCPStore(host, port, self.count, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())

    def _admit(self, connection, found: dict) -> bool:
        """Whether another server belongs here, by what it says of itself; when it does not, it is told why."""
        silent = threading.Timer(_GREETING, connection.close)
        silent.start()
        try:
            said = json.loads(connection.receive() or b"{}")
            silent.cancel()
            if (beating := said.get("beats")) is not None:
                # It may be heard before what it says of itself is.
                if not 0 < beating < self.count or (beating in self._pulses and self._pulses[beating].is_open):
                    raise ValueError(f"nobody expects slice {beating} of {self.count}")
                self._pulses[beating] = connection
                return True
            server = Server(int(said["rank"]), str(said["device"]), int(said["memory_bytes"]), float(said["rate"]), str(said["identity"]))
            if said["of"] != self.count:
                raise ValueError(f"the card has {self.count} slices, and not {said['of']}")
            if not 0 < server.rank < self.count:
                raise ValueError(f"there is no slice {server.rank} of {self.count} to be one of the others")
            if server.rank in found:
                raise ValueError(f"slice {server.rank} of {self.count} is there already")
            if not (server.memory_bytes > 0 and 0 < server.rate < float("inf")):
                raise ValueError("a slice has memory and a rate above 0")
            found[server.rank] = server
            self._connections[server.rank] = connection
            return True
        except (ConnectionError, AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            why = str(error) if isinstance(error, ValueError) else f"it did not say what it is ({type(error).__name__})"
            remark(f"a slice server was sent away: {why}")
            try:
                connection.send(json.dumps({"refused": why}).encode())
            except ConnectionError:
                pass
            connection.close()
            return False
        finally:
            silent.cancel()

    def _come(self):
        until = time.monotonic() + self._patience

        def connect():
            while True:
                try:
                    return _native.Connection.connect(self._address, torch.__version__, self._token, self._epoch)
                except ConnectionError as error:
                    # The first server may be being started yet, or one that says nothing has a place there; one that refuses otherwise means it.
                    refused = "refused:" in str(error) and "there already" not in str(error)
                    if refused or time.monotonic() > until:
                        raise
                    time.sleep(_PAUSE)

        connection = connect()
        connection.send(json.dumps({**dataclasses.asdict(self.own), "of": self.count}).encode())
        self._pulses[0] = connect()
        self._pulses[0].send(json.dumps({"beats": self.own.rank}).encode())
        answer = json.loads(connection.receive() or b'{"refused": "the first slice server has ended"}')
        if "refused" in answer:
            raise ConnectionError(f"the first slice server at {self._address} refused: {answer['refused']}")
        self._connections[0] = connection
        self.servers = [Server(**server) for server in answer["servers"]]
        self._told = answer["told"]
        # One that is on the host of the first server is reached by the others where that is.
        hosts = connection.hosts
        own_host, host = hosts if hosts and not _leads_here_only(hosts[0]) else (answer["host"], answer["host"])
        _use_interface_of(own_host)
        if self._file is not None:
            return distributed.FileStore(str(self._file), self.count)
        return distributed.TCPStore(host, answer["port"], self.count, is_master=False)


def _address(host: str):
    """The address of a host, the same whichever version of the protocol a socket says it by."""
    address = ipaddress.ip_address(host.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _leads_here_only(host: str) -> bool:
    return _address(host).is_loopback


def _use_interface_of(host: str) -> None:
    """Has gloo listen where the servers reach each other, unless it was told where."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    wanted = _address(host)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                # SIOCGIFADDR: the address of this interface.
                answer = fcntl.ioctl(asked.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if ipaddress.ip_address(answer[20:24]) == wanted:
                os.environ["GLOO_SOCKET_IFNAME"] = name
                return
