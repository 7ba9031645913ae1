"""The device of a program that was to have one and has no dispatcher: PyTorch works, and whatever uses the device raises why."""

import sys
import types

import torch


def install(name: str, why: str) -> None:
    """Makes PyTorch know the device by its name. `import torch` goes well with that, and so does a program that does not use it."""
    torch.utils.rename_privateuse1_backend(name)
    torch._register_device_module(name, _module(name, why))


def _module(name: str, why: str) -> types.ModuleType:
    module = types.ModuleType(f"torch.{name}", why)

    def refuse():
        raise RuntimeError(why)

    def missing(attribute):
        raise AttributeError(f"torch.{name}.{attribute}: {why}")

    # Called by PyTorch before it makes or moves a tensor there for the first time.
    module._lazy_init = refuse
    module.is_available = module.is_initialized = lambda: False
    module.device_count = lambda: 0
    # Seeds go to all devices.
    module.manual_seed_all = lambda seed: None
    module._is_in_bad_fork = lambda: False
    module.__getattr__ = missing
    sys.modules[module.__name__] = module
    return module
