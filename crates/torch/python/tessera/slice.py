"""The slice server: owns one slice of a device and computes for the program of its allocation.

    python -m tessera.slice --listen unix:/run/slice.sock --device cpu --memory 4GiB --share 0.25

The token and the epoch of the grant come from the environment, `TESSERA_TOKEN` (or the file `TESSERA_TOKEN_FILE`) and
`TESSERA_EPOCH`, so that no list of processes shows them. Once it listens it prints one line, `listening ADDRESS`. It serves one
program at a time and keeps what the program has on the card when the connection ends, until it is stopped itself or, with
`--linger`, until that many seconds have gone by without a program.
"""

import argparse
import os
import pathlib
import signal
import sys
import traceback

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # A server is no program: it must not connect to a slice of its own.

import torch

from tessera import _native, build, checkpoints, server, snapshot

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
        if not build.is_built():
            parser.exit(1, f"the dispatcher is not built: run TESSERA_BUILD={build.folder().parent} {sys.executable} -m tessera.build once\n")
        build.load()
        print(f"pytorch {torch.__version__}", flush=True)
        parser.exit(0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tessera.slice", description="Serves one slice of a device to a program.")
    parser.add_argument("--listen", required=True, metavar="ADDRESS", help="unix:/path or tcp:host:port; port 0 takes a free one")
    parser.add_argument("--device", default="cpu", help="device of PyTorch that the slice is a part of: cpu, cuda:0, npu:0, xpu:0")
    parser.add_argument("--memory", required=True, type=memory, help="memory of the slice, such as 4GiB")
    parser.add_argument("--share", default=1.0, type=share, help="part of the device's time (default: all)")
    parser.add_argument("--elastic", metavar="FILE", type=pathlib.Path, help="use what neighbours leave; a file they share")
    parser.add_argument("--snapshots", metavar="FOLDER", type=pathlib.Path, help="folder for snapshots; without it they are refused")
    parser.add_argument("--restore", metavar="FILE", type=pathlib.Path, help="go on from this snapshot")
    parser.add_argument("--linger", type=float, metavar="SECONDS", help="end after this long without a program")
    parser.add_argument("--lease", type=float, metavar="SECONDS", help="end when the host of the program was not heard of for that long")
    parser.add_argument(
        "--checkpoints", action="store_true", help="save into TESSERA_CHECKPOINT_DIR when asked over TESSERA_CONTROL and at SIGTERM, and go on from there"
    )
    parser.add_argument("--check", action=Check, help="say which PyTorch would serve, and end; fail when something is missing")
    parser.add_argument("--threads", type=int, help="threads of a processor that the device stands for (default: PyTorch's)")
    return parser.parse_args()


def grant() -> tuple[str, int]:
    """Token and epoch of the grant."""
    token = os.environ.get("TESSERA_TOKEN") or ""
    if file := os.environ.get("TESSERA_TOKEN_FILE"):
        token = pathlib.Path(file).read_text().strip()
    if len(token) < 16:
        sys.exit("TESSERA_TOKEN (or TESSERA_TOKEN_FILE) must hold the token of the grant, at least 16 characters")
    try:
        return token, int(os.environ["TESSERA_EPOCH"])
    except (KeyError, ValueError):
        sys.exit("TESSERA_EPOCH must hold the epoch of the grant, a number")


def main() -> None:
    options = arguments()
    token, epoch = grant()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    # Ends at once when it is told to, unless it saves itself; what it holds is no file that could be left half written.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gate = _native.Gate(options.share, options.elastic)
    gated = options.share < 1 or options.elastic is not None
    executor = build.load().Executor(options.device, options.memory, gate.table, gated, torch.get_num_threads())
    kept = None
    if options.checkpoints:
        kept = checkpoints.Checkpoints()
        kept.listen()
        kept.restore(executor)
    elif options.restore:
        snapshot.load(executor, options.restore)
    listener = _native.Listener(
        options.listen, torch=torch.__version__, token=token, epoch=epoch, device=options.device, memory_bytes=options.memory,
        share=options.share, sequence=executor.sequence,
    )  # fmt: skip
    served = server.Server(executor, listener, snapshots=options.snapshots, linger=options.linger, lease=options.lease)
    served.attach(kept)
    print(f"listening {listener.address}", flush=True)
    # Nobody reads on: what libraries print goes where errors go, and never fills a pipe.
    os.dup2(2, 1)
    # At once: threads of PyTorch have nothing to tidy up, and may be at work.
    try:
        code = served.run()
    except Exception:
        traceback.print_exc()
        code = server.FAULT
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
