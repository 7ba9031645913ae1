#!/usr/bin/env python3
"""Makes a list of pods of which more name the card models that they need.

    constrained.py SHARE NODES PODS NAMED > LIST

SHARE per cent of the pods with cards in the list PODS name models, each as some pod of the list NAMED does. What no node of NODES
could hold is left out. All files are in the formats of Alibaba's openb trace.
"""

import csv
import random
import sys


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def fits(node, pod):
    models = pod["gpu_spec"].split("|") if pod["gpu_spec"] else [node["model"]]
    needs = [("cpu_milli", "cpu_milli"), ("memory_mib", "memory_mib"), ("gpu", "num_gpu")]
    return node["model"] in models and all(int(node[has]) >= int(pod[asks]) for has, asks in needs)


def main(share, nodes, pods, named):
    draw = random.Random(5)
    nodes, pods = rows(nodes), rows(pods)
    wishes = [pod["gpu_spec"] for pod in rows(named) if pod["gpu_spec"]]
    for pod in pods:
        if int(pod["num_gpu"]) > 0 and draw.random() * 100 < float(share):
            pod["gpu_spec"] = draw.choice(wishes)
    out = csv.DictWriter(sys.stdout, pods[0].keys(), lineterminator="\n")
    out.writeheader()
    out.writerows(pod for pod in pods if any(fits(node, pod) for node in nodes))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
