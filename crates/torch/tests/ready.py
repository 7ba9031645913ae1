"""Starts Python programs from a process that has PyTorch loaded already. Loading it takes seconds of a processor, and the tests start
a thousand programs: most of their time would be that.

`Popen` and `run` are those of `subprocess`, for commands that begin with this Python. The program is a process of its own and a child of
the tests, with its own arguments, environment, working directory, streams and end; `import torch` in it does what it does at its
end elsewhere, and loads the device. Servers come from one such process and programs from another, so that they differ in what a
Python draws when it starts (the order of sets).

What the loader and PyTorch read when they are loaded is that of the tests. Where a test is about that, or about what starts programs (an
agent, a namespace), it takes `subprocess`: so whatever runs in a pool is started anew.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib.util
import io
import json
import os
import random
import runpy
import site
import socket
import subprocess
import sys
import threading
import types

_PR_SET_CHILD_SUBREAPER = 36
_LONGEST = 1 << 18


class Popen(subprocess.Popen):
    """A program, started where PyTorch is loaded."""

    def _execute_child(self, args, executable, preexec, close, pass_fds, cwd, env, startup, creation, shell, *streams_and_more):
        python, *command = map(os.fspath, args)
        assert python == sys.executable, f"{python} is not this Python"
        # Streams, then what is as it is: signals are restored, and group, user, mask and session are those of the tests.
        pipes, rest = streams_and_more[:6], streams_and_more[6:]
        assert not (executable or preexec or pass_fds or shell) and rest == (True, None, None, None, -1, False, -1)[: len(rest)], rest
        given = [stream if stream >= 0 else number for number, stream in enumerate((pipes[0], pipes[3], pipes[5]))]
        environment = {name: str(value) for name, value in (os.environ if env is None else env).items()}
        self.pid = _nursery(servers=command[0] == "-m").start(command, os.fspath(cwd or os.getcwd()), environment, given)
        self._child_created = True
        self._close_pipe_fds(*pipes)


def run(command, *, timeout=None, check=False, capture_output=False, **options):
    """Runs such a program to its end."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **options) as program:
        try:
            out, errors = program.communicate(timeout=timeout)
        except BaseException:
            program.kill()
            raise
    if check and program.returncode:
        raise subprocess.CalledProcessError(program.returncode, command, out, errors)
    return subprocess.CompletedProcess(command, program.returncode, out, errors)


class _Nursery:
    """The process with PyTorch, as its parent sees it."""

    def __init__(self, servers):
        self._asking = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST)
        # It loads PyTorch first. Whoever waits in vain must not be given the answer that another one waited for.
        self._socket.settimeout(120)
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONHASHSEED": str(1 + servers)}
        # The compiler takes as long as all the rest, and PyTorch loads it with the first optimiser.
        modules = ["torch"] if servers else ["torch", "torch._dynamo"]
        self._process = subprocess.Popen([sys.executable, __file__, str(other.fileno()), *modules], pass_fds=[other.fileno()], env=environment)
        other.close()
        atexit.register(self._stop)

    def start(self, command, folder, environment, streams):
        """The pid of a new program."""
        asked = json.dumps({"command": command, "folder": folder, "environment": environment}).encode()
        with self._asking, _next_of_kin():
            try:
                socket.send_fds(self._socket, [asked], streams)
                answer = self._socket.recv(64)
            except TimeoutError:
                self._socket.close()
                raise
        if not answer:
            raise RuntimeError("the process with PyTorch has ended")
        return int(answer)

    def _stop(self):
        self._socket.close()
        self._process.wait()


_making, _made = threading.Lock(), {}


def _nursery(servers):
    with _making:
        if servers not in _made:
            _made[servers] = _Nursery(servers)
    return _made[servers]


@contextlib.contextmanager
def _next_of_kin():
    """Whoever forks a program for us ends at once, and we are the parent of what is left behind. Of nothing else: what the tests' programs
    leave behind is no concern of ours."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _serve(asked):
    """Answers as long as somebody asks. Returns in each new program, with what it is to be."""
    while True:
        message, streams, *_ = socket.recv_fds(asked, _LONGEST, 3)
        if not message:
            os._exit(0)
        reads, writes = os.pipe()
        between = os.fork()
        if not between:
            gone, here = os.pipe()
            pid = os.fork()
            if not pid:
                os.close(here)
                os.read(gone, 1)  # nothing, once its parent has ended
                for ours in (gone, reads, writes, asked.detach()):
                    os.close(ours)
                return json.loads(message), streams
            os.write(writes, str(pid).encode())
            os._exit(0)
        os.waitpid(between, 0)
        asked.send(os.read(reads, 64))
        for ours in (reads, writes, *streams):
            os.close(ours)


class _Import:
    """`import torch`, of what is loaded: no more than what it does at its end."""

    def __init__(self, torch):
        self._torch, self._spec = torch, torch.__spec__

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == "torch" else None

    def create_module(self, spec):
        return self._torch

    def exec_module(self, torch):
        sys.meta_path.remove(self)
        torch.__spec__, torch.__loader__ = self._spec, self._spec.loader
        if "OMP_NUM_THREADS" in os.environ:
            torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        if torch._is_device_backend_autoload_enabled():
            torch._import_device_backends()


def _settle(folder, environment, streams):
    """Makes this process its own."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    at_once = 0 if environment.get("PYTHONUNBUFFERED") else -1
    sys.stdin = open(0, closefd=False)
    sys.stdout = io.TextIOWrapper(open(1, "wb", at_once, closefd=False), write_through=at_once == 0)
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    sys.meta_path.insert(0, _Import(sys.modules.pop("torch")))


def _execute(command):
    """What Python does with such arguments."""
    sys.path[0] = ""
    if more := [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder and folder not in sys.path]:
        sys.path[1:1] = more
        sys.modules.pop("sitecustomize", None)
        site.execsitecustomize()
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    if command[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = command[1:]
        runpy._run_module_as_main(command[1])
        return
    if command[0] == "-c":
        sys.argv = ["-c", *command[2:]]
        code = compile(command[1], "<string>", "exec")
    else:
        sys.argv = command
        sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
        main.__file__ = command[0]
        with open(command[0], "rb") as file:
            code = compile(file.read(), command[0], "exec")
    exec(code, main.__dict__)


if __name__ == "__main__":
    # Nothing that is loaded is garbage: looking for some takes a sixth of the time.
    gc.disable()
    for _module in sys.argv[2:]:
        importlib.import_module(_module)
    gc.freeze()
    gc.enable()
    _asked, _streams = _serve(socket.socket(fileno=int(sys.argv[1])))
    _settle(_asked["folder"], _asked["environment"], _streams)
    _execute(_asked["command"])
