"""Trains a small network on scikit-learn's handwritten digits with a gang of workers.

Each worker holds its share of the samples, computes gradients on it, and averages them with the others over TCP. The workers
find each other by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as launchers of the field give them; nothing else is shared.
Samples are dealt out in proportion to the TFLOPS behind each worker, as the virtual-card file says, and gradients are weighted
by samples, so that the result does not depend on how the gang was placed.

The first worker prints the accuracy on samples that no worker trained on and exits with 1 when it stays below TARGET.
"""

import json
import os
import socket
import struct
import sys
import time

import numpy as np
from sklearn.datasets import load_digits

TARGET = float(os.environ.get("TARGET", "0.95"))
EPOCHS = int(os.environ.get("EPOCHS", "60"))
# A pause per step makes the run long enough to lose a leader in; the arithmetic is the same without it.
STEP_PAUSE = float(os.environ.get("STEP_PAUSE", "0.02"))
HIDDEN, BATCH, RATE = 64, 240, 0.3
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def exactly(connection, count):
    """Reads `count` bytes or fails."""
    parts = []
    while count:
        part = connection.recv(count)
        if not part:
            raise ConnectionError("a worker of the gang went away")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Gang:
    """The workers as one: rank 0 adds up what all send and answers the sum."""

    def __init__(self):
        self.peers = []
        if RANK == 0:
            with socket.create_server(ADDRESS, backlog=WORLD) as server:
                server.settimeout(60)
                while len(self.peers) < WORLD - 1:
                    self.peers.append(self.ready(server.accept()[0]))
            return
        deadline = time.monotonic() + 60
        while not self.peers:
            try:
                self.peers.append(self.ready(socket.create_connection(ADDRESS, timeout=5)))
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    @staticmethod
    def ready(connection):
        connection.settimeout(60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def all_sum(self, array):
        """The element-wise sum of every worker's array."""
        if RANK == 0:
            total = array.copy()
            for peer in self.peers:
                (size,) = struct.unpack("!Q", exactly(peer, 8))
                total += np.frombuffer(exactly(peer, size), dtype=np.float64)
            for peer in self.peers:
                peer.sendall(total.tobytes())
            return total
        (peer,) = self.peers
        data = array.tobytes()
        peer.sendall(struct.pack("!Q", len(data)) + data)
        return np.frombuffer(exactly(peer, len(data)), dtype=np.float64)


def share_of_samples():
    """This worker's part of the samples, as (from, to) in parts of the whole."""
    path = os.environ.get("TESSERA_VCARD_FILE")
    weight = 1.0
    if path:
        with open(path, encoding="utf-8") as file:
            weight = max(sum(float(piece.get("tflops", 1)) for piece in json.load(file)["slices"]), 1e-9)
    return weight


def forward(parameters, samples):
    """Hidden layer and class probabilities."""
    first, bias1, second, bias2 = parameters
    hidden = np.tanh(samples @ first + bias1)
    scores = hidden @ second + bias2
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def gradients(parameters, samples, labels):
    """Sums of gradients over the samples."""
    hidden, probabilities = forward(parameters, samples)
    error = probabilities
    error[np.arange(len(labels)), labels] -= 1
    inner = (error @ parameters[2].T) * (1 - hidden**2)
    return [samples.T @ inner, inner.sum(axis=0), hidden.T @ error, error.sum(axis=0)]


def main():
    digits = load_digits()
    order = np.random.default_rng(7).permutation(len(digits.target))
    samples, labels = digits.data[order] / 16.0, digits.target[order]
    test, samples = samples[:360], samples[360:]
    test_labels, labels = labels[:360], labels[360:]

    gang = Gang()
    weights = np.zeros(WORLD)
    weights[RANK] = share_of_samples()
    bounds = np.concatenate([[0], np.cumsum(gang.all_sum(weights))])
    bounds = np.round(bounds / bounds[-1] * len(labels)).astype(int)
    mine = slice(bounds[RANK], bounds[RANK + 1])
    samples, labels = samples[mine], labels[mine]
    print(f"rank {RANK} of {WORLD}: {len(labels)} samples on {socket.gethostname()}", flush=True)

    random = np.random.default_rng(11)
    parameters = [
        random.normal(0, 0.1, (64, HIDDEN)),
        np.zeros(HIDDEN),
        random.normal(0, 0.1, (HIDDEN, 10)),
        np.zeros(10),
    ]
    batch = max(BATCH // WORLD, 1)
    steps = max(bounds[-1] // BATCH, 1)
    for epoch in range(1, EPOCHS + 1):
        shuffled = np.random.default_rng(epoch * 1000 + RANK).permutation(len(labels))
        for step in range(steps):
            chosen = shuffled[step * batch : (step + 1) * batch]
            parts = gradients(parameters, samples[chosen], labels[chosen])
            flat = np.concatenate([[float(len(chosen))], *[part.ravel() for part in parts]])
            total = gang.all_sum(flat)
            place = 1
            for parameter in parameters:
                parameter -= RATE * total[place : place + parameter.size].reshape(parameter.shape) / max(total[0], 1)
                place += parameter.size
            time.sleep(STEP_PAUSE)
        accuracy = float((forward(parameters, test)[1].argmax(axis=1) == test_labels).mean())
        if RANK == 0 and (epoch % 5 == 0 or epoch == EPOCHS):
            print(f"epoch {epoch}: accuracy {accuracy:.3f}", flush=True)
    if RANK == 0:
        print(f"final accuracy {accuracy:.3f}", flush=True)
        return 0 if accuracy >= TARGET else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
