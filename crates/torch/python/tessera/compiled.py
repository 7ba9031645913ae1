"""`torch.compile(backend="tessera")`: a step goes to the slice server once, and each later call of it is one message.

PyTorch finds out what a function does and what that relies on (dynamo), and makes one step of its forward and one of its backward pass
(AOT autograd). Here such a step is recorded like a graph (`graph.py`), with stand-ins for what it is called with; a call says what they
stand for, and how what it gives is named. Neither compiler nor inductor is needed: operations stay those of PyTorch, one by one, with the
same results, and their cost at the program is gone.

A step has one shape. For others PyTorch makes other steps, or one whose sizes are arguments: it is recorded once for each of them. What
cannot be recorded is executed op by op, and a warning says why; with `options={"strict": True}` that is an error.
"""

import warnings

import torch

from tessera import device, graph

#: How often one step is recorded, for different sizes and places in memory, before it is executed op by op.
MOST_FORMS = 16


def backend(module, inputs, options=None):
    """What dynamo calls with each piece of a program."""
    from torch._dynamo.backends.common import aot_autograd

    strict = bool((options or {}).get("strict", False))
    unknown = set(options or {}) - {"strict"}
    if unknown:
        raise ValueError(f"the backend 'tessera' has the option 'strict', and no {', '.join(map(repr, sorted(unknown)))}")

    def compile_step(module, _inputs):
        return Step(module, strict)

    return aot_autograd(fw_compiler=compile_step, bw_compiler=compile_step, inference_compiler=compile_step)(module, inputs)


def _with_constants(module):
    """The module with numbers in a row as constants of it: what makes them is no operation that can be recorded."""
    aten = torch.ops.aten
    makers = (aten.arange.default, aten.arange.start, aten.arange.start_step)
    for node in list(module.graph.nodes):
        if node.target not in makers or any(isinstance(each, torch.fx.Node) for each in (*node.args, *node.kwargs.values())):
            continue
        name = f"_tessera_{node.name}"
        module.register_buffer(name, node.target(*node.args, **node.kwargs), persistent=False)
        with module.graph.inserting_before(node):
            # A copy, because it may be what the step gives.
            kept = module.graph.call_function(aten.clone.default, (module.graph.get_attr(name),))
        node.replace_all_uses_with(kept)
        module.graph.erase_node(node)
    module.recompile()
    return module


class _Form:
    """A step as it was recorded: with tensors of these layouts, and these other arguments."""

    def __init__(self, module, arguments):
        self.others = _others(arguments)
        stand_ins = [device._dispatcher.stand_in(each) if isinstance(each, torch.Tensor) else each for each in arguments]
        self._graph = graph.Graph()
        with torch.no_grad(), graph.graph(self._graph):
            self._results = list(module(*stand_ins))
        self._recording = self._graph._recording
        tensors = [each for each in self._results if isinstance(each, torch.Tensor)]
        self._recording.make_callable([each for each in stand_ins if isinstance(each, torch.Tensor)], tensors)
        # The caller gets tensors of its own in their places.
        self._results = [_HERE if isinstance(each, torch.Tensor) else each for each in self._results]

    @property
    def operations(self):
        return self._graph.operations

    def call(self, tensors):
        """What it gives, or None when it was recorded for other layouts."""
        given = self._recording.call(tensors)
        if given is None:
            return None
        given = iter(given)
        return [next(given) if each is _HERE else each for each in self._results]


_HERE = object()


def _others(arguments):
    return tuple(each for each in arguments if not isinstance(each, torch.Tensor))


class Step:
    """A forward or a backward pass."""

    def __init__(self, module, strict):
        # It is called with one list, and empties it: what only the list holds is free then. Wrappers look for this at the object itself.
        self._boxed_call = True
        self._module, self._strict = module, strict
        self._forms = []
        self._tried = set()
        self._begun = False
        self._why_not = None

    def __call__(self, arguments):
        given = list(arguments)
        arguments.clear()
        # Within a step that the program records itself its operations are a part of that.
        if self._why_not is None and not graph.is_current_stream_capturing():
            tensors, others = [each for each in given if isinstance(each, torch.Tensor)], _others(given)
            for form in self._forms:
                if form.others == others and (results := form.call(tensors)) is not None:
                    return results
            if (form := self._record(given, tensors)) is not None:
                self._forms.append(form)
                return form.call(tensors)
        with torch.no_grad():
            return self._module(*given)

    def _record(self, given, tensors):
        device._dispatcher.need()
        elsewhere = next((each for each in tensors if each.device.type != device.NAME), None)
        if elsewhere is not None:
            return self._refuse(f"it is called with a tensor on {elsewhere.device}, which may have another value each time")
        if len(self._forms) == MOST_FORMS:
            return self._refuse(f"it was recorded for {MOST_FORMS} sizes or places in memory already")
        if not self._begun:
            self._begun, self._module = True, _with_constants(self._module)
        try:
            form = _Form(self._module, given)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, NotImplementedError) as error:
            # What some operations give is known only once they have run with these shapes: then it is tried again.
            shapes = _others(given) + tuple((each.shape, each.stride()) for each in tensors)
            if shapes in self._tried:
                return self._refuse(str(error), error)
            self._tried.add(shapes)
            return None
        # What only looks at tensors in another way costs no message as it is.
        return form if form.operations else self._leave("")

    def _refuse(self, why, error=None):
        if self._strict:
            raise RuntimeError(f"torch.compile(backend='tessera'): {why}") from error
        warnings.warn(f"torch.compile(backend='tessera'): this part of the program is executed op by op, because {why}", stacklevel=2)
        return self._leave(why)

    def _leave(self, why):
        self._why_not = why
        self._forms.clear()
        return None
