"""The dispatcher in Python: every operator comes here, and leaves as a few dozen bytes.

What an operator gives back is inferred with meta tensors that share storages as the real ones do, once for each key; from then on a call
costs a look-up. Results that are views of arguments send nothing. Where inference fails, because shapes depend on data or the call is
wrong, the operator runs at once and the server says what came of it, with PyTorch's own words. `csrc/dispatch.cpp` does the same in C++.
"""

import struct

import torch

from tessera.interpreted import tensors as card
from tessera.interpreted import wire
from tessera.interpreted.calls import Call, Signature, template
from tessera.interpreted.client import CLIENT, LOCK, QUEUE

#: Entries of all caches together.
MOST_ENTRIES = 1 << 15

_DEFINE, _EXECUTE, _NOW, _DROP = (wire.COMMAND[name] for name in ("Define", "Execute", "ExecuteNow", "Drop"))
_UNDEFINED, _NEW, _OF_ARGUMENT, _OF_RESULT = (wire.RESULT[name] for name in ("Undefined", "New", "OfArgument", "OfResult"))
_ARGUMENT, _TENSOR, _LIST = "argument", "tensor", "list"


class Expected:
    """What a result is: of which kind, of which argument or earlier result it is a view, and how it lies."""

    __slots__ = ("bytes", "form", "kind", "layout", "of")

    def __init__(self, kind, layout=None, of=0, nbytes=0):
        self.kind, self.layout, self.of, self.bytes = kind, layout, of, nbytes
        self.form = card.Form(*layout, nbytes) if kind == _NEW else None


class Entry:
    """A call that was seen before, with its template at the server."""

    __slots__ = ("bytes", "fresh", "generation", "id", "immediate", "pack", "resizes", "results", "returns", "send", "single", "used_at")

    def __init__(self, immediate: bool):
        self.id, self.generation, self.immediate, self.used_at = CLIENT.template(), 0, immediate, 0
        self.results, self.returns = [], []
        self.send, self.resizes, self.single = True, False, None
        self.bytes = self.fresh = 0
        self.pack = None

    def expect(self, result: Expected) -> None:
        self.results.append(result)
        if result.kind == _NEW:
            self.bytes += result.bytes
            self.fresh += 1

    def settle(self) -> None:
        """Its results are known: most calls give one new tensor."""
        if len(self.returns) == 1 and self.returns[0][0] == _TENSOR and self.results[0].kind == _NEW:
            self.single = self.results[0].form.made


_entries = 0
_operators = {}


class Operator(Signature):
    """One of PyTorch's operators on the card."""

    def __init__(self, overload, upload):
        super().__init__(overload)
        self.cache = {}
        self._upload = upload

    def __call__(self, *args, **kwargs):
        # What a subclass of tensors has for PyTorch's functions is not for ours.
        with LOCK, torch._C.DisableTorchFunctionSubclass():
            if CLIENT.forked or not CLIENT.connected:
                CLIENT.need()
            call = Call(self, args, kwargs, self._upload)
            entry = self.cache.get(call.key)
            if entry is None:
                entry = self._learn(call, args, kwargs)
            entry.used_at = CLIENT.operations
            if entry.immediate:
                return self._run_now(entry, call, args, kwargs)
            return self._run_ahead(entry, call, args, kwargs)

    def _learn(self, call: Call, args, kwargs) -> Entry:
        global _entries
        self.check_written(args, kwargs)
        _make_room()
        CLIENT.templates += 1
        entry = None
        if not (self.always_now or self.learns):
            try:
                entry = self._infer(call, args, kwargs)
            except Exception:
                entry = None  # the server says what is wrong, or what it gives
            # What resizes an argument (out=) must have its storage grown first, and is rare: the server tells what came of it.
            if entry is not None and entry.resizes:
                entry = None
        if entry is None:
            entry = Entry(immediate=True)
        self.cache[call.key] = entry
        _entries += 1
        return entry

    def _define(self, entry: Entry, call: Call, args, kwargs) -> bytes:
        """What the server must hear before it is told of the entry."""
        key = template(self, args, kwargs, call.tensors)
        parts = [struct.pack("<BI", _DEFINE, entry.id), wire.text(self.name), wire.text(self.overload_name)]
        parts += [struct.pack("<I", len(key)), key, struct.pack("<BI", entry.immediate, len(entry.results))]
        for result in entry.results:
            parts.append(bytes([result.kind]))
            if result.kind == _NEW:
                parts += [wire.layout(*result.layout), struct.pack("<Q", result.bytes)]
        return b"".join(parts)

    def _issue(self, entry: Entry, call: Call, args, kwargs, names) -> bytes:
        """The command of a call, without names of results."""
        changing = b"".join(call.changing)
        if entry.pack is None:
            results = 1 if entry.immediate else entry.fresh
            entry.pack = struct.Struct(f"<BIIII{len(call.names)}Q{len(changing)}s{results}Q").pack
        slots = call.names
        code = _NOW if entry.immediate else _EXECUTE
        command = entry.pack(code, entry.id, len(slots), len(changing), len(names), *slots, changing, *names)
        return command if entry.generation == CLIENT.generation else self._define(entry, call, args, kwargs) + command

    def _run_ahead(self, entry: Entry, call: Call, args, kwargs):
        if entry.bytes and not QUEUE.room(entry.bytes):
            CLIENT.ask_for(entry.bytes)
        first = CLIENT.storages(entry.fresh)
        # Before anything is said: what breaks off between makes names that nobody has, and not storages that nobody frees.
        single = entry.single
        results = self._make(entry, call, first) if single is None else single(first)
        if entry.send:
            command = self._issue(entry, call, args, kwargs, range(first, first + entry.fresh))
            CLIENT.issue(command)
            entry.generation = CLIENT.generation
        else:
            CLIENT.views += 1
        return results if single is not None else self._give(entry.returns, results, args, kwargs)

    @staticmethod
    def _make(entry: Entry, call: Call, name: int) -> list:
        results = []
        for expected in entry.results:
            if expected.kind == _NEW:
                results.append(expected.form.made(name))
                name += 1
            elif expected.kind == _UNDEFINED:
                results.append(None)
            else:
                of = call.tensors if expected.kind == _OF_ARGUMENT else results
                results.append(card.view(of[expected.of], *expected.layout))
        return results

    def _give(self, returns, results, args, kwargs):
        given = []
        for kind, first, count in returns:
            if kind == _ARGUMENT:
                given.append(self.value(first, args, kwargs)[0])
            else:
                given.append(results[first] if kind == _TENSOR else results[first : first + count])
        return given[0] if len(given) == 1 else tuple(given) if given else None

    def _run_now(self, entry: Entry, call: Call, args, kwargs):
        global _entries
        CLIENT.immediate += 1
        first = CLIENT.storages(wire.MOST_ELEMENTS if self.lists else len(self.written) or 1)
        command = self._issue(entry, call, args, kwargs, (first,))
        try:
            answer = CLIENT.issue_and_ask(command)
        except BaseException:
            # A wrong call is not worth a place.
            if self.cache.pop(call.key, None) is not None:
                _entries -= 1
            _drop(entry)
            raise
        entry.generation = CLIENT.generation
        changed = answer.get("I")
        for _ in range(changed):
            _adopt(call.tensors[answer.get("I")], answer.layout(), answer.get("Q"))
        learned, given = self._read_results(answer, call, args, kwargs)
        if self.learns and not changed and learned is not None:
            _drop(entry)
            self.cache[call.key] = learned
        return given

    def _read_results(self, answer: wire.Reader, call: Call, args, kwargs):
        """What the server says that a call has given; and an entry for those to come, when all of it are tensors."""
        learned, results, made = Entry(immediate=False), [], {}

        def tensor(written=None):
            kind = answer.get("B")
            if kind == _UNDEFINED:
                learned.expect(Expected(kind))
                return results.append(None)
            layout = answer.layout()
            if kind == _OF_ARGUMENT:
                of = answer.get("I")
                learned.expect(Expected(kind, layout, of))
                # What is written to is given back as it came.
                return results.append(card.view(call.tensors[of], *layout) if written is None else None)
            name, nbytes = answer.get("QQ")
            if name in made:
                learned.expect(Expected(_OF_RESULT, layout, made[name]))
                return results.append(card.view(results[made[name]], *layout))
            made[name] = len(results)
            learned.expect(Expected(_NEW, layout, 0, nbytes))
            return results.append(learned.results[-1].form.made(name))

        given, count = [], answer.get("I")
        for at in range(count):
            kind, first = answer.get("c"), len(results)
            if kind in (b"T", b"M"):
                length = answer.get("I") if kind == b"M" else 1
                for _ in range(length):
                    tensor(self.written[at])
                learned.returns.append((_TENSOR if kind == b"T" else _LIST, first, length))
                given.append(results[first] if kind == b"T" else results[first:])
                if self.written[at] is not None:
                    learned.returns[-1] = (_ARGUMENT, self.written[at], 0)
                    given[-1] = self.value(self.written[at], args, kwargs)[0]
            else:
                given.append(_plain(answer, kind))
        complete = len(learned.returns) == count
        if complete:
            learned.settle()
        return learned if complete else None, given[0] if count == 1 else tuple(given) if given else None

    def _infer(self, call: Call, args, kwargs) -> Entry:
        """Works out what a call gives. Raises what the meta kernel raises."""
        storages, metas = {}, []
        for tensor, name in zip(call.tensors, call.names, strict=True):
            if name not in storages:
                storages[name] = torch.UntypedStorage(tensor.untyped_storage().nbytes(), device="meta")
            metas.append(_meta(storages[name], *card.layout_of(tensor)))
        before = [(meta.shape, meta.stride()) for meta in metas]
        following = iter(metas)
        args = [_on_meta(value, following) for value in args]
        kwargs = {name: _on_meta(kwargs[name], following) for name in self.keywords if name in kwargs}
        with torch._C._AutoDispatchBelowADInplaceOrView():
            results = self.call(*args, **kwargs)
        entry = Entry(immediate=False)
        entry.resizes = any((meta.shape, meta.stride()) != was for meta, was in zip(metas, before, strict=True))
        owners = {}
        for at, meta in enumerate(metas):
            owners.setdefault(meta.untyped_storage()._cdata, (_OF_ARGUMENT, at))
        several = len(self.written) != 1
        for result, written in zip((results or ()) if several else (results,), self.written, strict=True):
            first = len(entry.results)
            if written is not None:
                entry.returns.append((_ARGUMENT, written, 0))
                continue
            of_list = isinstance(result, (list, tuple))
            for each in result if of_list else (result,):
                expected = _expected(each, owners, len(entry.results))
                if expected.kind == _OF_ARGUMENT and call.changing and not self.aliases[len(entry.returns)]:
                    raise NotImplementedError("whether it gives an argument back may be decided by a number that is not in the key")
                entry.expect(expected)
            entry.returns.append((_LIST if of_list else _TENSOR, first, len(entry.results) - first))
        entry.send = self.mutates or entry.fresh > 0 or any(result.kind == _UNDEFINED for result in entry.results)
        entry.settle()
        return entry


def _expected(result, owners, at: int) -> Expected:
    if result is None:
        return Expected(_UNDEFINED)
    if result.layout != torch.strided or result.is_quantized:
        raise NotImplementedError("not a plain tensor")
    storage = result.untyped_storage()
    kind, of = owners.setdefault(storage._cdata, (_OF_RESULT, at))
    if kind == _OF_RESULT and of == at:
        kind = _NEW
    return Expected(kind, card.layout_of(result), of, storage.nbytes())


def _meta(storage, dtype, flags, sizes, strides, offset):
    made = torch.empty(0, dtype=dtype, device="meta").set_(storage, offset, sizes, strides)
    return card.with_flags(made, flags)


def _on_meta(value, metas):
    if isinstance(value, torch.Tensor):
        inline = value.device.type == "cpu" and value.dim() == 0
        return value if inline else next(metas)
    if isinstance(value, (list, tuple)):
        return [_on_meta(each, metas) for each in value]
    return torch.device("meta") if isinstance(value, torch.device) else value


def _plain(answer: wire.Reader, kind: bytes):
    if kind == b"i":
        return answer.get("q")
    if kind == b"b":
        return answer.get("B") != 0
    if kind == b"d":
        return answer.get("d")
    return complex(*answer.get("dd"))


def _adopt(tensor, layout, nbytes: int) -> None:
    """The server has changed the shape of an argument, and its storage when that was too small."""
    _, _, sizes, strides, offset = layout
    if tensor.untyped_storage().nbytes() < nbytes:
        card.widen(tensor, nbytes)
    card.place(tensor, tensor.untyped_storage(), offset, sizes, strides)


def _drop(entry: Entry) -> None:
    """The server may forget it."""
    try:
        QUEUE.put(struct.pack("<BI", _DROP, entry.id))
    except RuntimeError:
        pass  # a connection that is lost has no templates


def _make_room() -> None:
    """Forgets the half of all entries that was not used for longest, here and at the server."""
    global _entries
    if _entries < MOST_ENTRIES:
        return
    # What is collected meanwhile may issue operations of its own.
    operators = list(_operators.values())
    every = sorted(entry.used_at for operator in operators for entry in list(operator.cache.values()))
    oldest_kept = every[len(every) // 2]
    for operator in operators:
        for key, entry in list(operator.cache.items()):
            if entry.used_at < oldest_kept:
                del operator.cache[key]
                _entries -= 1
                _drop(entry)


def operator_of(overload, upload) -> Operator:
    return _operators.get(overload) or _operators.setdefault(overload, Operator(overload, upload))
