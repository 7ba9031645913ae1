"""The slice server: owns one slice of a device and computes for the program of its allocation.

    python -m tessera.slice --listen unix:/run/slice.sock --device cpu --memory 4GiB --share 0.25

The token and the epoch of the allocation come from the environment, `TESSERA_TOKEN` (or the file `TESSERA_TOKEN_FILE`) and
`TESSERA_EPOCH`, so that no list of processes shows them. Once it listens it prints one line, `listening ADDRESS`. It serves one
program at a time and keeps what the program has on the card when the connection ends, until it is stopped itself or, with
`--linger`, until that many seconds have gone by without a program.

A card of several slices has a server for each, which all get the same token and epoch. The first one serves the program, and the
others come to it:

    python -m tessera.slice --rank 0 --of 2 --group tcp:0.0.0.0:4100 --listen unix:/run/slice.sock --memory 4GiB
    python -m tessera.slice --rank 1 --of 2 --group tcp:first:4100 --memory 8GiB
"""

import argparse
import gc
import json
import os
import pathlib
import signal
import sys
import traceback

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # A server is no program: it must not connect to a slice of its own.
if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:
    # Memory of a device comes in pieces that grow. Blocks of some sizes would leave a tenth of a small slice unused.
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
# Nothing that is loaded is garbage: looking for some would take a sixth of the time that a server needs to start.
gc.disable()

import torch

from tessera import _native, build, checkpoints, counts, group, plan, server, snapshot
from tessera.remarks import remark

gc.freeze()
gc.enable()

#: Bytes by which an allocator of a device may hold more than the slice: it takes memory in pieces of some sizes, libraries have a place to
#: work in, and servers of one card what they exchange.
ROOM = 128 << 20
#: What becomes of a split that is asked for and brings nothing.
SLOWER = ("warn", "refuse")
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def memory(text: str) -> int:
    """Bytes of `512MiB`."""
    number = text.rstrip("KMGTiB")
    try:
        bytes = int(float(number) * UNITS[text[len(number) :]])
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is no amount of memory; give 4GiB, 512MiB or a number of bytes") from None
    if bytes <= 0:
        raise argparse.ArgumentTypeError("a slice without memory holds nothing")
    return bytes


def share(text: str) -> float:
    """A part of the device's time."""
    part = float(text)
    if not 0 < part <= 1:
        raise argparse.ArgumentTypeError("a share is above 0 and at most 1")
    return part


class Check(argparse.Action):
    """Says which PyTorch would serve, without building what would take a minute at the start of every server."""

    def __init__(self, option_strings, dest, **options):
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser, *_):
        if build.find() is None:
            parser.exit(1, f"the dispatcher is not built: run TESSERA_BUILD={build.folder().parent} {sys.executable} -m tessera.build once\n")
        print(f"tessera {_native.RELEASE}\npytorch {torch.__version__}", flush=True)
        parser.exit(0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tessera.slice", description="Serves one slice of a device to a program.")
    parser.add_argument("--listen", metavar="ADDRESS", help="unix:/path or tcp:host:port; port 0 takes a free one")
    parser.add_argument("--device", default="cpu", help="device of PyTorch that the slice is a part of: cpu, cuda:0, npu:0, xpu:0")
    parser.add_argument("--memory", required=True, type=memory, help="memory of the slice, such as 4GiB")
    parser.add_argument("--share", default=1.0, type=share, help="part of the device's time (default: all)")
    parser.add_argument("--card", metavar="FILE", type=pathlib.Path, help="the card that the slice is of: a file that the servers of its slices share")
    parser.add_argument("--elastic", action="store_true", help="use what the neighbours on the card leave")
    parser.add_argument("--snapshots", metavar="FOLDER", type=pathlib.Path, help="folder for snapshots; without it they are refused")
    parser.add_argument("--restore", metavar="FILE", type=pathlib.Path, help="go on from this snapshot")
    parser.add_argument("--standby", action="store_true", help="load everything, then read from standard input which snapshot to go on from")
    parser.add_argument("--linger", type=float, metavar="SECONDS", help="end after this long without a program")
    parser.add_argument("--lease", type=float, metavar="SECONDS", help="end when the host of the program was not heard of for that long")
    parser.add_argument("--await-host", action="store_true", help="wait for that host as long as it takes to come; the lease counts from then on")
    parser.add_argument(
        "--checkpoints", action="store_true", help="save into TESSERA_CHECKPOINT_DIR when asked over TESSERA_CONTROL and at SIGTERM, and go on from there"
    )
    parser.add_argument("--check", action=Check, help="say which PyTorch would serve, and end; fail when something is missing")
    parser.add_argument("--threads", type=int, help="threads of a processor that the device stands for (default: PyTorch's)")
    several = parser.add_argument_group("several slices as one card")
    several.add_argument("--of", type=int, default=1, metavar="COUNT", help="slices of the card (default: 1)")
    several.add_argument("--rank", type=int, default=0, help="which of them this is; 0 serves the program")
    several.add_argument("--group", metavar="ADDRESS", help="where the first one listens for the others, and they reach it")
    several.add_argument(
        "--patience", type=float, default=group.PATIENCE, metavar="SECONDS", help="how long the first one waits for the others, and they for it (default: 120)"
    )
    several.add_argument(
        "--split", choices=plan.SPLITS, default=os.environ.get("TESSERA_SPLIT", "auto"),
        help="how the slices share the work, told to the first one (default: TESSERA_SPLIT, or auto)",
    )  # fmt: skip
    several.add_argument(
        "--slower", choices=SLOWER, default=os.environ.get("TESSERA_SLOWER", "warn"),
        help="what becomes of a split that was asked for and would be slower than the best slice alone (default: TESSERA_SLOWER, or warn)",
    )  # fmt: skip
    several.add_argument(
        "--silence", type=float, default=60.0, metavar="SECONDS", help="end when another slice was silent for that long, told to the first one (default: 60)"
    )
    several.add_argument("--part", type=share, help="part of the device's time that something else holds the slice to (default: the share)")
    options = parser.parse_args()
    # What comes from the environment argparse takes as it is.
    for name, value, known in (("TESSERA_SPLIT", options.split, plan.SPLITS), ("TESSERA_SLOWER", options.slower, SLOWER)):
        if value not in known:
            parser.error(f"{name} is {value!r}, and not one of {', '.join(known)}")
    if not 0 <= options.rank < options.of <= group.MOST:
        parser.error(f"--rank counts from 0 up to --of, which is at most {group.MOST}")
    if options.elastic and not options.card:
        parser.error("an elastic slice knows its neighbours by the file of their --card")
    if options.of > 1 and not options.group:
        parser.error("several slices find each other at the address --group")
    if options.rank == 0 and not options.listen:
        parser.error("--listen says where the program finds the slice")
    if options.standby and (options.restore or options.checkpoints):
        parser.error("--standby is told later what to go on from")
    if options.rank > 0 and (options.restore or options.standby or options.checkpoints or options.snapshots):
        parser.error("the first server of a card writes its snapshots, and goes on from them, for all of its slices")
    return options


def credentials() -> tuple[str, int]:
    """Token and epoch of the allocation."""
    token = os.environ.get("TESSERA_TOKEN") or ""
    if file := os.environ.get("TESSERA_TOKEN_FILE"):
        token = pathlib.Path(file).read_text().strip()
    if len(token) < 16:
        sys.exit("TESSERA_TOKEN (or TESSERA_TOKEN_FILE) must hold the token of the allocation, at least 16 characters")
    try:
        return token, int(os.environ["TESSERA_EPOCH"])
    except (KeyError, ValueError):
        sys.exit("TESSERA_EPOCH must hold the epoch of the allocation, a number")


def present(name: str) -> str:
    """The device of this name with its number, such as `cuda:0` for `cuda`. Ends the server where there is none."""
    try:
        return str(torch.empty(0, device=name).device)
    except (RuntimeError, AssertionError) as error:
        sys.exit(f"PyTorch {torch.__version__} has no device {name} here: {str(error).partition(chr(10))[0]}")


def hold(device: str, memory: int) -> None:
    """Holds PyTorch's allocator for a device to the memory of the slice. What operators need on their way counts there too, and what is
    kept for later is given up before that is an error. Of a processor the control group does."""
    module = torch.get_device_module(device)
    if not hasattr(module, "set_per_process_memory_fraction"):
        return
    try:
        total = module.get_device_properties(device).total_memory
        module.set_per_process_memory_fraction(min(1.0, (memory + ROOM) / total), device)
    except (AttributeError, RuntimeError) as error:
        remark(f"operators may need more of {device} than the slice has: {error}")


def dispatcher():
    """The module in C++. Ends the server where it cannot be had."""
    try:
        return build.load()
    except build.Unavailable as error:
        sys.exit(str(error))


def main() -> None:
    options = arguments()
    token, epoch = credentials()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    # Ends at once when it is told to, unless it saves itself; what it holds is no file that could be left half written.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    options.device = present(options.device)
    hold(options.device, options.memory)
    gated = options.share < 1 or options.elastic
    # Other processes make a processor's own time no longer; other devices are measured by what time passes.
    takes_turns = torch.device(options.device).type != "cpu"
    gate = _native.Gate(options.share, options.card if gated else None, options.elastic, takes_turns)
    executor = dispatcher().Executor(options.device, options.memory, gate.table, gated, torch.get_num_threads())
    kept = owner = None
    several = Several(options, executor, token, epoch) if options.of > 1 else None
    if several and options.rank > 0:
        end(several.follow)
    try:
        if options.snapshots:
            snapshot.tidy(options.snapshots)
        if options.checkpoints:
            kept = checkpoints.Checkpoints()
            kept.listen()
            owner = kept.restore(executor)
        elif file := awaited() if options.standby else options.restore:
            owner = snapshot.load(executor, file)
    except (snapshot.Damaged, OSError, torch.OutOfMemoryError) as error:
        sys.exit(f"the snapshot cannot be gone on from: {error}")
    listener = _native.Listener(
        options.listen, torch=torch.__version__, token=token, epoch=epoch, device=several.device if several else options.device,
        memory_bytes=several.memory_bytes if several else options.memory, share=options.share, sequence=executor.sequence, owner=owner,
    )  # fmt: skip
    served = server.Server(executor, listener, snapshots=options.snapshots, linger=options.linger, lease=options.lease, awaits_host=options.await_host)
    served.attach(kept)
    counts.keep(executor, options.share, torch.device(options.device))
    say(f"listening {listener.address}")
    end(served.run)


def awaited() -> pathlib.Path:
    """The snapshot that a server which has loaded everything goes on from, once it is told."""
    print("standing by", flush=True)
    if not (file := sys.stdin.readline().strip()):
        sys.exit("nobody needs this server: it was not told which snapshot to go on from")
    return pathlib.Path(file)


def say(line: str) -> None:
    """The one line that whoever started this server waits for."""
    print(line, flush=True)
    # Nobody reads on: what libraries print goes where errors go, and never fills a pipe.
    os.dup2(2, 1)


class Several:
    """This server as one of several."""

    def __init__(self, options: argparse.Namespace, executor, token: str, epoch: int):
        part = options.part or options.share
        device = torch.device(options.device)
        own = group.Server(options.rank, options.device, options.memory, group.measure(device, part), group.identity(device))
        self._executor, self._counted = executor, (options.share, device)
        self._group = group.Group(own, options.of, options.group, token, epoch, options.patience)
        self._group.form({"split": options.split, "refuse": options.slower == "refuse", "lease": options.silence})
        self._slices = [plan.Slice(server.memory_bytes, server.rate) for server in self._group.servers]
        self._parts = plan.parts(self._slices)
        exchange = self._group.exchange
        self._link = plan.Link(exchange.speed(), exchange.delay())
        exchange.reconsider, exchange.begin, exchange.divided = self._reconsider, self._begin, self._divided
        self._choose(None)
        # A processor's own time stands still while others than the gate hold the server back; the time of any other device passes.
        self._group.join(executor, self.plan.split, part if device.type == "cpu" else options.share)
        self.memory_bytes = self.plan.memory_bytes
        self.device = " + ".join(server.device for server in self._group.servers)

    def _choose(self, work: plan.Work | None) -> None:
        told = self._group.told
        self.plan = plan.choose(self._slices, self._link, work, told["split"], refuse_slower=told["refuse"])
        if self._group.own.rank == 0:
            remark(str(self.plan))
            self._describe()

    def _describe(self) -> None:
        self._executor.about = json.dumps(self.plan.describe(self._slices, self._link, self._parts))

    def _begin(self) -> None:
        """Another program: of what it does nothing is known."""
        self._parts = plan.parts(self._slices)
        self._choose(None)

    def _divided(self, parts: list[float]) -> None:
        """Rows are divided otherwise, by what each slice was seen to take for its part."""
        self._parts = parts
        self._describe()

    def _reconsider(self, divisible: float, repeated: float, exchanged_bytes: float, exchanges: float, fits: bool) -> str:
        """At the first server, now that it is known what the program does: how it goes on."""
        self._choose(plan.Work(divisible, repeated, exchanged_bytes, exchanges, fits))
        return "refused" if self.plan.refused else self.plan.split

    def follow(self) -> int:
        """Does what the first server passes on, until that ends."""
        counts.keep(self._executor, *self._counted)
        say("following")
        self._executor.serve(self._group.first.table)
        if self._executor.over:
            return 0
        remark("the first slice server of the card is gone")
        return server.FAULT


def end(work) -> None:
    """Does the work of this process and ends it with the code that it gives."""
    try:
        code = work()
    except Exception:
        traceback.print_exc()
        code = server.FAULT
    sys.stderr.flush()
    # At once: threads of PyTorch have nothing to tidy up, and may be at work.
    os._exit(code)


if __name__ == "__main__":
    main()
