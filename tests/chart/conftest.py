"""What the chart's tests share: real helm, one render a scenario."""

from __future__ import annotations

import pytest

from tests.chart.rendering import SCENARIOS, Objects, render


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the golden renders again")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are written instead of compared."""
    return bool(request.config.getoption("--update", default=False))


@pytest.fixture(params=sorted(SCENARIOS))
def scenario(request: pytest.FixtureRequest) -> str:
    """Each values file of charts/picker/ci by its name."""
    return str(request.param)


@pytest.fixture
def objects(scenario: str) -> Objects:
    """What that values file renders."""
    return render(scenario)
