"""Allocates in one way on a GPU, which may be simulated; writes PyTorch's snapshot and what PyTorch itself counts.

snapshot.py WAY SNAPSHOT COUNTS. The allocator's settings come from PYTORCH_CUDA_ALLOC_CONF. Kernels may compute nothing: nothing
here depends on values of a GPU's memory.
"""

import json
import random
import sys

import torch

MIB = 1 << 20


def train():
    """Three steps of a small language model with AdamW."""
    model = torch.nn.Sequential(
        torch.nn.Embedding(1000, 256),
        torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True),
        torch.nn.Linear(256, 1000),
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        tokens = torch.zeros(16, 128, dtype=torch.long, device="cuda")
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def bytes_of(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def size(draw):
    """Sizes around each limit of the allocator, and between them."""
    around = draw.choice([512, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 100 * MIB])
    return max(1, draw.choice([around, around - 1, around + 1, draw.randrange(1, 2 * around)]))


def mixed(seed, streams=1, steps=600, most=40):
    """Blocks in random order; with several streams, blocks that another stream still uses when they are freed."""
    draw, live = random.Random(seed), []
    used = [torch.cuda.current_stream()] + [torch.cuda.Stream() for _ in range(streams - 1)]
    for _ in range(steps):
        if live and (len(live) >= most or draw.random() < 0.45):
            live.pop(draw.randrange(len(live)))
        elif draw.random() < 0.01:
            torch.cuda.empty_cache()
        else:
            with torch.cuda.stream(draw.choice(used)):
                block = bytes_of(size(draw))
            if streams > 1 and draw.random() < 0.2:
                block.record_stream(draw.choice(used))
            live.append(block)
    return live


def refused():
    """More than the GPU has, several times: the cached segments are released, and the request is repeated or refused."""
    draw, live = random.Random(5), []
    for _ in range(300):
        try:
            live.append(bytes_of(size(draw) * 8))
        except torch.OutOfMemoryError:
            del live[:: draw.randrange(2, 4)]
    return live


def graphs():
    """A CUDA graph, whose blocks are in a pool of its own, beside others."""
    before, graph = mixed(3, steps=100), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [torch.zeros(1 << power, device="cuda") for power in range(10, 24)]
        kept = [block * 2 for block in kept]
    graph.replay()
    return before, graph, kept, mixed(4, steps=100)


def ways(name):
    """A way by its name: one with draws has their seed behind a colon."""
    name, _, seed = name.partition(":")
    return {
        "train": train,
        "refused": refused,
        "graphs": graphs,
        "mixed": lambda: mixed(int(seed)),
        "streams": lambda: mixed(int(seed), streams=3),
    }[name]


def counts():
    """What PyTorch itself counts."""
    known = torch.cuda.memory_stats()
    wanted = ["requested_bytes.all.peak", "requested_bytes.all.current", "reserved_bytes.all.peak", "allocation.all.allocated", "num_ooms"]
    return {name: known[name] for name in wanted}


def main():
    way, snapshot, file = sys.argv[1:]
    torch.cuda.memory._record_memory_history(max_entries=1_000_000)
    kept = ways(way)()
    torch.cuda.synchronize()
    torch.cuda.memory._dump_snapshot(snapshot)
    with open(file, "w") as to:
        json.dump(counts(), to)
    del kept


main()
