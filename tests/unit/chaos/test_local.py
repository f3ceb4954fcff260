"""Pools of the suite: their start."""

from typing import cast

import pytest

from chaos.targets.local import START_TRIES, Local, started
from picker.sim.processes import ProcessError


class Pool:
    def __init__(self, *, starts: bool) -> None:
        self.starts = starts

    async def start(self) -> None:
        if not self.starts:
            raise ProcessError("picker-0 cannot listen: address already in use")


async def test_a_pool_whose_port_was_taken_meanwhile_is_made_anew() -> None:
    pools = [Pool(starts=False), Pool(starts=True)]
    made = iter(pools)
    assert await started(lambda: cast("Local", next(made))) is cast("Local", pools[1])


async def test_a_pool_that_never_starts_says_why() -> None:
    made: list[Pool] = []

    def make() -> Local:
        made.append(Pool(starts=False))
        return cast("Local", made[-1])

    with pytest.raises(ProcessError, match="cannot listen"):
        await started(make)
    assert len(made) == START_TRIES
