"""The device of a program: `torch.tessera`, and what makes PyTorch use it."""

import atexit
import contextlib
import dataclasses
import json
import os
import pathlib
import struct
import sys
import types

import torch

from tessera import _native, absent, build, collective, elsewhere, graph, operators, uninitialized

NAME = "tessera"
_connection = None
_dispatcher = None
_program = None


def start() -> None:
    """Installs the device. Nothing goes to its slice server before something needs it: a launcher, or a process that only loads data,
    has PyTorch too, and a slice serves one program."""
    global _dispatcher
    if _dispatcher is not None:
        return
    try:
        _dispatcher = build.load()
    except build.Unavailable as error:
        return absent.install(NAME, str(error))
    _install()
    collective.install(NAME)
    # Parameters stay the same objects when a module moves: tied weights stay tied, and optimisers made before go on working.
    # Overwriting them instead trains tied models wrongly without a word.
    torch.__future__.set_swap_module_params_on_conversion(True)
    uninitialized.install()
    if batch := os.environ.get("TESSERA_BATCH"):
        _dispatcher.set_batch(int(batch))
    _decompose_cells()
    # There is one queue, and what is in it has its tensors until it is done.
    _library.impl("record_stream", lambda tensor, stream: None, "PrivateUse1")
    _answer_for_cuda()
    _dispatcher.set_connector(_connect_first)
    atexit.register(_stop)


def _install() -> None:
    """Makes PyTorch's device of this name that of the dispatcher."""
    _dispatcher.set_libraries([str(pathlib.Path(file).parent) + os.sep for file in (torch.__file__, __file__)])
    torch.utils.rename_privateuse1_backend(NAME)
    _dispatcher.install(operators.bound(), operators.WORDS)
    torch._register_device_module(NAME, _module())
    torch.utils.generate_methods_for_privateuse1_backend()


def _connect_first() -> None:
    address = os.environ["TESSERA_SLICES"]
    if not address.startswith(elsewhere.PREFIX):
        return _connect(address, fresh=True)
    global _program
    asked = elsewhere.Asked(address)
    _program = asked.enter()
    _dispatcher.keep_journal(elsewhere.journal_bytes(), lambda why: _connect_again(asked, why), asked.safe)
    return asked.until_connected(lambda place: _connect_to(place, fresh=True))


def _connect_again(asked: elsewhere.Asked, why: str) -> None:
    """The slice server is gone: waits for the next one, and tells it what was issued since."""
    asked.until_connected(_resume_at, why)


def _resume_at(place: elsewhere.Place) -> None:
    global _connection
    # The one before may still stand, where a wait for the next one was broken off.
    _connection.close()
    _connection = _reach(place, goes_on=True)
    slice = _connection.slice
    if not _dispatcher.resume(_connection, slice["memory_bytes"], slice["sequence"]):
        raise ConnectionError("the connection broke while the operations since the snapshot were sent")


def _reach(place: elsewhere.Place, goes_on: bool):
    program = dataclasses.astuple(_program)
    return _native.Connection.connect(place.address, torch.__version__, place.token, place.epoch, program, goes_on)


def _credentials() -> tuple[str, int]:
    file = os.environ.get("TESSERA_TOKEN_FILE")
    token = pathlib.Path(file).read_text().strip() if file else os.environ.get("TESSERA_TOKEN", "")
    return token, int(os.environ.get("TESSERA_EPOCH", "0"))


def _connect(address: str, fresh: bool) -> None:
    _connect_to(elsewhere.Place(address, *_credentials()), fresh)


def _connect_to(place: elsewhere.Place, fresh: bool) -> None:
    global _connection, _program
    before = _connection
    _program = _program or elsewhere.alone()
    _connection = _reach(place, goes_on=not fresh)
    # Kept from here on, whatever interrupts this: the dispatcher has its address once it is told of it.
    slice = _connection.slice
    try:
        _dispatcher.connect(_connection, slice["memory_bytes"], slice["sequence"], fresh)
    except RuntimeError:
        _connection.close()
        _connection = before
        raise
    if fresh and slice["sequence"]:
        # Programs were here before; errors are told with the numbers of operations, which the server goes on with.
        _dispatcher.count_from(torch.tessera.slice_status()["operations"])
    # What asks whether the device was used before it looks at its random numbers, as recomputing activations does.
    torch.tessera._initialized = True


def _stop() -> None:
    collective.end()
    if _connection is None or _dispatcher.is_forked():
        return  # A forked process leaves its parent's connection alone.
    try:
        _dispatcher.finish()
    except (RuntimeError, ConnectionError):
        pass  # The program ends anyway, and was told where it used the card.
    _dispatcher.disconnect("the program has ended")
    _connection.close()


def reconnect(address: str, token: str | None = None, epoch: int | None = None) -> None:
    """Goes on with another slice server, which was restored from a snapshot of this program's card.

    Refused when anything was issued since the snapshot: that is not in it.
    """
    if token is not None:
        os.environ.pop("TESSERA_TOKEN_FILE", None)
        os.environ["TESSERA_TOKEN"] = token
    if epoch is not None:
        os.environ["TESSERA_EPOCH"] = str(epoch)
    os.environ["TESSERA_SLICES"] = address
    if _connection is None:
        return _dispatcher.need()
    _connection.close()
    return _connect(address, fresh=False)


def snapshot(name: str) -> None:
    """Has the slice server write a snapshot under this name, between operations, into its folder for snapshots."""
    _dispatcher.snapshot(name)


def _decompose_cells() -> None:
    """Fused cells of recurrent networks, which PyTorch picks for any device but the processor, and which no processor has."""

    def gru(input_gates, hidden_gates, hidden, input_bias=None, hidden_bias=None):
        if input_bias is not None:
            input_gates, hidden_gates = input_gates + input_bias, hidden_gates + hidden_bias
        input_reset, input_update, input_new = input_gates.chunk(3, 1)
        hidden_reset, hidden_update, hidden_new = hidden_gates.chunk(3, 1)
        reset, update = (hidden_reset + input_reset).sigmoid(), (hidden_update + input_update).sigmoid()
        new = (input_new + reset * hidden_new).tanh()
        return (hidden - new) * update + new, input_gates.new_empty(0)

    def lstm(input_gates, hidden_gates, cell, input_bias=None, hidden_bias=None):
        gates = input_gates + hidden_gates
        if input_bias is not None:
            gates = gates + input_bias + hidden_bias
        enter, forget, new, leave = gates.chunk(4, 1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * cell.tanh(), cell, input_gates.new_empty(0)

    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        _library.impl("_thnn_fused_gru_cell", gru, key)
        _library.impl("_thnn_fused_lstm_cell", lstm, key)


_library = torch.library.Library("aten", "IMPL")


def _answer_for_cuda() -> None:
    """Libraries ask PyTorch's CUDA side whether a graph is being recorded, also on hosts without a card, where it raises."""
    of_cuda = torch.cuda.is_current_stream_capturing

    def is_capturing() -> bool:
        return graph.is_current_stream_capturing() or (torch.cuda.is_available() and of_cuda())

    torch.cuda.is_current_stream_capturing = torch.cuda.graphs.is_current_stream_capturing = is_capturing


class _Properties(types.SimpleNamespace):
    """What `torch.tessera.get_device_properties` tells."""


def _numbers(said: bytes, *names: str) -> dict[str, int]:
    return dict(zip(names, struct.unpack_from(f"<{len(names)}Q", said), strict=True))


def _module() -> types.ModuleType:
    module = types.ModuleType("torch.tessera", "The virtual card of this program.")

    def offer(function):
        setattr(module, function.__name__, function)
        return function

    @offer
    def is_available():
        return not _dispatcher.is_forked()

    @offer
    def is_initialized():
        return _connection is not None

    @offer
    def device_count():
        return 1

    @offer
    def current_device():
        return 0

    @offer
    def set_device(device):
        index = torch.device(device).index if not isinstance(device, int) else device
        if index not in (None, 0):
            raise RuntimeError(f"there is one virtual card, and no device {device}")

    @offer
    def synchronize(device=None):
        _dispatcher.synchronize()

    @offer
    def manual_seed(seed):
        _dispatcher.seed(int(seed) % (1 << 64))

    module.manual_seed_all = manual_seed

    @offer
    def get_rng_state(device=None):
        return torch.frombuffer(bytearray(_dispatcher.get_random()), dtype=torch.uint8)

    @offer
    def get_rng_state_all():
        return [get_rng_state()]

    @offer
    def set_rng_state_all(states):
        (state,) = states  # of the one card that there is
        set_rng_state(state)

    @offer
    def set_rng_state(state, device=None):
        _dispatcher.set_random(state.cpu().numpy().tobytes())

    @offer
    def get_amp_supported_dtype():
        return [torch.bfloat16, torch.float16]

    @offer
    def is_bf16_supported(including_emulation=True):
        return True

    @offer
    def current_stream(device=None):
        return torch.accelerator.current_stream()

    module.default_stream = current_stream

    @offer
    def stream(stream):
        """For as long as a `with` lasts. There is one queue, so that nothing changes."""
        return contextlib.nullcontext(stream)

    @offer
    def set_stream(stream):
        """There is one queue."""

    @offer
    def memory_allocated(device=None):
        return _dispatcher.memory()[0]

    @offer
    def max_memory_allocated(device=None):
        return _dispatcher.memory()[1]

    # Nothing is reserved that is not allocated.
    module.memory_reserved, module.max_memory_reserved = memory_allocated, max_memory_allocated

    @offer
    def memory_stats(device=None):
        used, peak, _ = _dispatcher.memory()
        kinds = ("allocated", "reserved", "active", "requested")
        return {f"{kind}_bytes.all.{when}": bytes for kind in kinds for when, bytes in (("current", used), ("peak", peak))}

    @offer
    def reset_peak_memory_stats(device=None):
        _dispatcher.reset_peak()

    @offer
    def mem_get_info(device=None):
        _dispatcher.need()
        used, _, limit = _dispatcher.memory()
        return max(limit - used, 0), limit

    @offer
    def empty_cache():
        """Nothing is cached: what a tensor leaves is free at once."""

    @offer
    def get_device_properties(device=None):
        _dispatcher.need()
        slice = _connection.slice
        return _Properties(name=f"Tessera virtual card ({slice['device']})", total_memory=slice["memory_bytes"], share=slice["share"])

    @offer
    def get_device_name(device=None):
        return get_device_properties().name

    @offer
    def statistics():
        """What was issued so far: operations, frames, bytes, waits, replays, templates, views, immediate; and how often the program went
        on with another slice server."""
        return _dispatcher.statistics()

    @offer
    def slice_status():
        """What the slice server says of itself, in bytes and numbers; for a card of several slices also how they share the work."""
        said = _dispatcher.status()
        status = _numbers(said, "memory_used", "memory_peak", "memory_limit", "operations", "storages")
        if several := said[40:]:
            names = ("at_one", "at_all", "by_rows", "by_element", "moved_bytes", "summed_bytes", "exchanges")
            status |= {**json.loads(several[56:]), "done": _numbers(several, *names)}
        return status

    module._initialized = False
    module._is_compiled = is_available
    # Seeding is passed over in a process that was forked from one with a connection, such as a worker of a data loader; computing is
    # refused there.
    module._is_in_bad_fork = _dispatcher.is_forked
    module._lazy_init = lambda: None
    module.snapshot, module.reconnect = snapshot, reconnect
    module.Graph, module.graph = graph.Graph, graph.graph
    module.is_current_stream_capturing = graph.is_current_stream_capturing
    module.Stream, module.Event = torch.Stream, torch.Event
    module.device = _DeviceContext
    sys.modules["torch.tessera"] = module
    return module


class _DeviceContext:
    """`with torch.tessera.device(0)`: there is one device, so that nothing changes."""

    def __init__(self, device):
        self.idx = device

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False
