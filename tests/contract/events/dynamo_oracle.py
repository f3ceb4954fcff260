"""
Runs in a process of its own, with Dynamo's package on its path: a JSON request a line in, an answer a line out.

``{"hashes": [tokens, block size, adapter, namespace, media per block]}``, ``{"apply": [instance, event]}``,
``{"match": [own hashes]}``, ``{"dump": []}``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from dynamo.llm import RadixTree, compute_block_hash_for_seq  # type: ignore[import-not-found]

tree = RadixTree()


def answer(what: str, given: list[Any]) -> Any:
    if what == "hashes":
        tokens, size, lora, namespace, media = given
        infos = None
        if media:
            infos = [{"mm_objects": [{"mm_hash": each, "offsets": []} for each in block]} for block in media]
        return compute_block_hash_for_seq(
            tokens, size, infos, lora_name=lora or None, cache_namespace=namespace or None
        )
    if what == "apply":
        return tree.apply_event(given[0], json.dumps(given[1]).encode())
    if what == "match":
        found = tree.find_matches(given[0])
        return [[worker, rank, blocks] for (worker, rank), blocks in found.scores.items()]
    return [json.loads(each) for each in tree.dump_tree_as_events()]


for line in sys.stdin:
    ((what, given),) = json.loads(line).items()
    sys.stdout.write(json.dumps(answer(what, given)) + "\n")
    sys.stdout.flush()
