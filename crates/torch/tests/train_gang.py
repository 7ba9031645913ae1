"""A program as anybody would write it for a gang: trains a small network with DistributedDataParallel on `torch.device(sys.argv[1])`, each
of its processes with its part of every batch, and prints what it came to.

The first one writes what all need to go on, and all end together when they are told to. Nothing in it knows what its device is, or where.
"""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import tessera_control

device, steps = torch.device(sys.argv[1]), int(sys.argv[2])
control = tessera_control.Control()
kept = pathlib.Path(control.folder) / "state.pt"
paused_at = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None

distributed.init_process_group("gloo")
rank, count = distributed.get_rank(), distributed.get_world_size()
torch.manual_seed(3)
data = torch.randn(256, 32)
labels = (data[:, 0] > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
step, state = 0, [None]
if rank == 0 and kept.exists():
    state = [torch.load(kept, map_location="cpu", weights_only=True)]
distributed.broadcast_object_list(state)
if state[0] is not None:
    model.load_state_dict(state[0]["model"])
    step = state[0]["step"]
together = DistributedDataParallel(model.to(device))
optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
if state[0] is not None:
    optimiser.load_state_dict(state[0]["optimiser"])
print(f"attempt {os.environ.get('TESSERA_ATTEMPT', '1')} begins at {step} as {rank} of {count}", flush=True)


def save():
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step}, kept)
    control.saved()


batches = list(DataLoader(TensorDataset(data, labels), batch_size=32))
while step < steps:
    wanted = torch.tensor([control.stopping, paused_at is not None and paused_at.exists() and step >= steps // 2], dtype=torch.int)
    distributed.all_reduce(wanted, distributed.ReduceOp.MAX)
    stopping, held = wanted.tolist()
    if not held:
        inputs, answers = (part[rank::count].to(device) for part in batches[step % len(batches)])
        loss = torch.nn.functional.cross_entropy(together(inputs), answers)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        step += 1
        if step == steps // 2:
            print("half", flush=True)
    if control.asked() or stopping:
        save()
    if stopping:
        # Whoever ends before it is told to has not saved, but ended.
        while not control.stopping:
            time.sleep(0.01)
        sys.exit(0)
loss = loss.detach() / count
distributed.all_reduce(loss)
parameters = sum(part.abs().sum().item() for part in model.parameters())
print(f"parameters {parameters:.6f} loss {loss.item():.6f}")
distributed.destroy_process_group()
