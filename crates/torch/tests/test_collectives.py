"""Programs, each with a virtual card of its own, that exchange tensors and train together."""

import json
import os
import subprocess
import sys

import pytest

import ready
import serving
from pools import free_port

PROGRAM = """
import json, os, sys, torch, torch.distributed as distributed
device, backend = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
distributed.init_process_group(backend)
rank, count = distributed.get_rank(), distributed.get_world_size()
said = {}
def note(name, *tensors):
    said[name] = [tensor.tolist() for tensor in tensors]
own = torch.arange(4.0, device=device) + 10 * rank
summed = own.clone(); distributed.all_reduce(summed); note("sum", summed)
greatest = own[1:3]; distributed.all_reduce(greatest, distributed.ReduceOp.MAX); note("view", greatest, own)
work = distributed.all_reduce(half := own.bfloat16(), async_op=True); work.wait(); note("later", half.float())
distributed.broadcast(given := own.clone(), 1); note("broadcast", given)
all = [torch.empty(4, device=device) for _ in range(count)]; distributed.all_gather(all, own); note("all_gather", *all)
whole = torch.empty(4 * count, device=device); distributed.all_gather_into_tensor(whole, own); note("all_gather_into", whole)
part = torch.empty(4 // count, device=device); distributed.reduce_scatter_tensor(part, own); note("reduce_scatter", part)
parts = [torch.empty(2, device=device) for _ in range(count)]
distributed.all_to_all(parts, list(own.chunk(count))); note("all_to_all", *parts)
mixed = torch.empty(4, device=device); distributed.all_to_all_single(mixed, own); note("all_to_all_single", mixed)
distributed.gather(own, all if rank == 0 else None); note("gather", *(all if rank == 0 else []))
mine = torch.empty(4, device=device); distributed.scatter(mine, [own, own + 1] if rank == 0 else None); note("scatter", mine)
distributed.reduce(rooted := own.clone(), 0); note("reduce", *([rooted] if rank == 0 else []))
if rank == 0: distributed.send(own, 1)
else: distributed.recv(mine, 0); note("received", mine)
whom = 1 - rank; came = torch.empty(4, device=device)
works = [distributed.isend(own, whom), distributed.irecv(came, whom)]
for work in works: work.wait()
note("exchanged", came)
ring = [distributed.P2POp(distributed.isend, own + 1, whom), distributed.P2POp(distributed.irecv, came, whom)]
for work in distributed.batch_isend_irecv(ring): work.wait()
note("ring", came)
distributed.barrier()
objects = [None] * count; distributed.all_gather_object(objects, {"rank": rank}); said["objects"] = objects
here = torch.ones(2); distributed.all_reduce(here); note("processor", here)
some = distributed.new_group([0, 1]); distributed.all_reduce(again := own.clone(), group=some); note("group", again)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.ReLU(), torch.nn.Linear(16, 2)).to(device)
together = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
inputs, answers = torch.randn(32, 8), torch.randint(0, 2, (32,))
for _ in range(6):
    loss = torch.nn.functional.cross_entropy(together(inputs[rank::count].to(device)), answers[rank::count].to(device))
    optimiser.zero_grad(); loss.backward(); optimiser.step()
said["trained"] = torch.cat([part.flatten() for part in model.parameters()]).tolist()
print(json.dumps(said))
# Who does not end what exchanges something ends it with the program.
distributed.destroy_process_group()
"""


def run(device, servers, *backend):
    """What both programs print."""
    port, programs = str(free_port()), []
    for rank, server in enumerate(servers):
        own = server.environment() if server else {**os.environ, "TESSERA_SLICES": ""}
        own |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        own["PYTHONFAULTHANDLER"] = "1"
        command = [sys.executable, "-c", PROGRAM, device, *backend]
        programs.append(ready.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    try:
        printed = [program.communicate(timeout=120) for program in programs]
    finally:
        for program in programs:
            program.kill()
    assert [program.returncode for program in programs] == [0, 0], printed
    return [json.loads(one) for one, _ in printed]


@pytest.fixture(scope="module")
def at_the_processor():
    return run("cpu", [None, None], "gloo")


@pytest.mark.parametrize("backend", [["gloo"], [], ["cpu:gloo,tessera:tessera"]])
def test_programs_exchange_what_is_on_their_cards_and_train_together(folder, at_the_processor, backend):
    servers = [serving.Server(folder) for _ in range(2)]
    try:
        said = run("tessera", servers, *backend)
    finally:
        for server in servers:
            server.stop()
    for own, expected in zip(said, at_the_processor, strict=True):
        assert own.pop("trained") == pytest.approx(expected["trained"], abs=1e-5)
        assert own == {name: expected[name] for name in own}
