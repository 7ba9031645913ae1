"""A program that knows nothing of Tessera but the name of its device: trains with dropout, and prints what it came to.

It halts half-way as long as the file exists that it is given. It saves nothing itself.
"""

import pathlib
import sys
import time

import torch

device, steps = torch.device(sys.argv[1]), int(sys.argv[2])
halted = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None

torch.manual_seed(5)
data = torch.randn(256, 32)
labels = (data[:, 0] > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 2)).to(device)
optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(steps):
    if step == steps // 2:
        print("half", flush=True)
        while halted is not None and halted.exists():
            time.sleep(0.01)
    chosen = torch.randint(len(data), (32,))
    loss = torch.nn.functional.cross_entropy(model(data[chosen].to(device)), labels[chosen].to(device))
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print(f"loss {loss.item():.6f}")
