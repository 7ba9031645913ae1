"""Tessera's device for PyTorch: programs compute on a virtual card, wherever its slices are.

Nothing has to be imported: PyTorch loads this package as it starts (the entry point `torch.backends`), and `torch.device("tessera")`
is there. Where the card is comes from the environment of the program, which the agent sets:

    TESSERA_SLICES   address of the slice server, unix:/path or tcp:host:port
    TESSERA_TOKEN    token of the allocation (or TESSERA_TOKEN_FILE, a file that holds it)
    TESSERA_EPOCH    epoch of the allocation

Without `TESSERA_SLICES` the device is not there, and PyTorch is as it would be without this package.
"""

import os


def autoload() -> None:
    """Called by PyTorch at the end of `import torch`."""
    if os.environ.get("TESSERA_SLICES"):
        from tessera import device

        device.start()
