"""Pools of the suite: their start."""

from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from chaos.plugin import Session
from chaos.targets.local import GIVEN_UP, START_TRIES, Local, started
from chaos.topology import Topology
from picker.sim.processes import ProcessError


class Pool:
    folder = Path("/dev/null/nowhere")

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


async def test_a_pool_that_cannot_be_made_whole_is_replaced_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_local: Local) -> None:
        raise KeyError("envoy")

    monkeypatch.setattr(Local, "make_whole", broken)
    local = Local(Topology(), folder=tmp_path / "01-redis")
    session = Session(seed=1, suite="release", folder=tmp_path)
    with capture_logs() as logs:
        assert not await session._usable(local)
    assert "KeyError: 'envoy'" in (tmp_path / "01-redis" / GIVEN_UP).read_text()
    assert [line["pool"] for line in logs] == ["01-redis"]
    assert "KeyError" in logs[0]["reason"]
