"""Starts slice servers and runs a Python program on them: `python run_program.py opinfo.py --dtype bfloat16`, and on two unequal slices that
divide rows `python run_program.py --divided opinfo.py --divided`."""

import subprocess
import sys
import tempfile

import groups
import serving

UNEQUAL = [("4GiB", "--share", 0.9), ("3GiB", "--share", 0.45)]


def main():
    command = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        if command[0] == "--divided":
            command, server = command[1:], groups.Group(folder, UNEQUAL, split="batch")
        else:
            server = serving.Server(folder, "--snapshots", folder, memory="4GiB", environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
        with server:
            sys.exit(subprocess.run([sys.executable, *command], env=server.environment()).returncode)


if __name__ == "__main__":
    main()
