"""Starts a slice server and runs a Python program on it: `python run_program.py opinfo.py --dtype bfloat16`."""

import subprocess
import sys
import tempfile

import serving


def main():
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        with serving.Server(folder, "--snapshots", folder, memory="4GiB", environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}) as server:
            sys.exit(subprocess.run([sys.executable, *sys.argv[1:]], env=server.environment()).returncode)


if __name__ == "__main__":
    main()
