"""What a pick knows of a request's prompts: their tokens, the blocks they occupy, and the hashes these are known by."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from picker.core.blocks import Chains, extend_hashes, tail_seed
from picker.requests.ask import Ask, TokenIds, Untold
from stateplane.values import value

MOST_SEQUENCES: Final = 1_024
"""Sequences beyond the prompts themselves that one request is counted with: no engine runs more at one time."""
MOST_BLOCKS: Final = 131_072
"""Blocks of hashed prompts that are remembered: 6 MB in long stretches, 14 MB in the shortest."""

_chains = Chains(MOST_BLOCKS, secret=secrets.randbits(64))


@value
class Prompt:
    """What a pick knows of a prompt."""

    tokens: int
    blocks: int
    hashes: tuple[Sequence[int], ...]
    """Sequence hashes of each prompt's full blocks; empty where token ids are not known."""
    untold: str = ""
    """Why token ids are not known."""
    tail: Sequence[int] = ()
    """Of a prompt with media: hashes of what stands behind its known blocks, good among replicas only."""
    complete: bool = True
    """Whether the hashes reach to the end of the prompt."""

    @property
    def last_block(self) -> int | None:
        """Hash of the last full block of the last prompt: what a worker announces once it has computed the prompt."""
        return self.hashes[-1][-1] if self.complete and self.hashes and self.hashes[-1] else None


def prompt_of(ask: Ask, told: TokenIds | Untold, size: int) -> Prompt:
    """
    Count a request's tokens and blocks, and hash what is known.

    Of several sequences to one prompt each is counted with one block more, the one it does not share with the others:
    the prompt's full blocks are theirs together, and how far each grows is not known, for one sequence no more than for
    many.

    Args:
        ask: The request.
        told: What is known of its tokens.
        size: Tokens per block.

    """
    more = 0 if ask.sequences == 1 else min((ask.sequences - 1) * max(len(ask.prompts), 1), MOST_SEQUENCES)
    if isinstance(told, Untold):
        reason = told.reason if ask.unread is None else ask.unread
        tokens = ask.estimated_tokens
        return Prompt(tokens, -(-tokens // size) + more, (), untold=str(reason))
    if len(told.prompts) == 1 and told.complete:
        ids = told.prompts[0]
        chain = _chains.hashes(ids, size, lora=ask.lora, salt=ask.salt)
        return Prompt(len(ids), -(-len(ids) // size) + more, (chain,))
    hashes = tuple(_chains.hashes(ids, size, lora=ask.lora, salt=ask.salt) for ids in told.prompts)
    tokens = sum(len(ids) for ids in told.prompts)
    if not told.complete:
        tokens = max(tokens + len(told.behind), ask.estimated_tokens)
    blocks = max(sum(-(-len(ids) // size) for ids in told.prompts), -(-tokens // size))
    return Prompt(
        tokens, blocks + more, hashes, tail=_tail(ask, told, hashes[0], size), complete=told.complete
    )


def _tail(ask: Ask, told: TokenIds, known: Sequence[int], size: int) -> Sequence[int]:
    """The chain goes on from the last known block, under a seed of its own."""
    if not told.behind:
        return ()
    rest = told.prompts[0][len(known) * size :] + told.behind
    return extend_hashes(known[-1] if known else None, rest, size, seed=tail_seed(ask.lora, ask.salt))
