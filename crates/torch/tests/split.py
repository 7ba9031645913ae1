"""Trains small models on the virtual card and on the processor, and prints as JSON how far they are apart: a program of its own, because
a card of several slices is another one than the tests' own.

    python split.py mlp cnn transformer
"""

import copy
import json
import sys

import torch
from torch import nn

torch.set_num_threads(1)


class Block(nn.Module):
    """Attention and a feed-forward layer, batch first."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.before, self.after = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.together, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.forth, self.back = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.together(self.before(x)).split(width, -1)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        # Each sample sees as many words as it has, the first one all.
        mask = torch.arange(length, device=x.device) <= torch.arange(length, length - batch, -1, device=x.device).clamp(min=2).view(-1, 1, 1, 1)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, mask)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.back(nn.functional.gelu(self.forth(self.after(x))))


class Transformer(nn.Module):
    """Two blocks over tokens, with the head tied to the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding, self.place = nn.Embedding(31, 32), nn.Parameter(torch.randn(9, 32) * 0.1)
        self.blocks = nn.Sequential(Block(32, 4), Block(32, 4))
        self.head = nn.Linear(32, 31, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.blocks(self.embedding(tokens) + self.place)).flatten(0, 1)


def mlp():
    layers = nn.Linear(12, 48), nn.GELU(), nn.Dropout(0.3), nn.LayerNorm(48), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 5)
    return nn.Sequential(*layers), torch.randn(24, 12), torch.randint(0, 5, (24,))


def cnn():
    layers = (
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3), nn.GroupNorm(3, 12), nn.ReLU(),
        nn.BatchNorm2d(12), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(108, 6),
    )  # fmt: skip
    return nn.Sequential(*layers), torch.randn(12, 3, 16, 16), torch.randint(0, 6, (12,))


def transformer():
    return Transformer(), torch.randint(0, 31, (10, 9)), torch.randint(0, 31, (90,))


def encoder():
    """PyTorch's own, whose batch is not the outermost dimension within."""
    layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(80, 4)), torch.randn(6, 5, 16), torch.randint(0, 4, (6,))


def train(model, inputs, targets, optimiser, steps=4):
    device = next(model.parameters()).device
    inputs, targets = inputs.to(device), targets.to(device)
    torch.manual_seed(3)
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss)
    return [loss.item() for loss in losses]


def compare(make, kind):
    torch.manual_seed(0)
    here, inputs, targets = make()
    there = copy.deepcopy(here).to("tessera")
    before = torch.tessera.slice_status()["done"]
    losses = [
        train(model, inputs, targets, kind(model.parameters())) for model in (here, there)
    ]  # fmt: skip
    after = torch.tessera.slice_status()["done"]
    state = zip(here.state_dict().values(), there.state_dict().values(), strict=True)
    return {
        "losses": losses, "apart": max((one - other.cpu()).abs().max().item() for one, other in state if one.is_floating_point()),
        "done": {name: after[name] - before[name] for name in after},
    }  # fmt: skip


def main():
    kinds = {
        "mlp": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        "cnn": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
        "encoder": lambda parameters: torch.optim.SGD(parameters, lr=1e-2),
        "transformer": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, eps=1e-4),
    }
    print(json.dumps({name: compare(globals()[name], kinds[name]) for name in sys.argv[1:]}))


if __name__ == "__main__":
    main()
