"""A program as anybody would write it: trains a small network on `torch.device(sys.argv[1])`, and prints what it came to.

It saves itself into the folder of its checkpoints whenever it is asked to, and goes on from there. Nothing in it knows what its
device is, or where.
"""

import os
import pathlib
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

import tessera_control

device, steps = torch.device(sys.argv[1]), int(sys.argv[2])
control = tessera_control.Control()
kept = pathlib.Path(control.folder) / "state.pt"
paused_at = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None

torch.manual_seed(3)
data = torch.randn(256, 32)
labels = (data[:, 0] > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)).to(device)
optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
step = 0
if kept.exists():
    state = torch.load(kept, weights_only=True)
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    step = state["step"]
print(f"attempt {os.environ.get('TESSERA_ATTEMPT', '1')} begins at {step} on {device.type}", flush=True)

batches = list(DataLoader(TensorDataset(data, labels), batch_size=32))
while step < steps:
    held = paused_at is not None and paused_at.exists() and step >= steps // 2
    if not held:
        inputs, wanted = (part.to(device) for part in batches[step % len(batches)])
        loss = torch.nn.functional.cross_entropy(model(inputs), wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        step += 1
        if step == steps // 2:
            print("half", flush=True)
    if control.asked():
        torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step}, kept)
        control.saved(step)
        if control.stopping:
            sys.exit(0)
print(f"loss {loss.item():.6f}")
