"""The target of all these tests, and what a run over it answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from semel_lab.conform import Report, Target, conform
from tests.conform.service import SAMPLE, SLOW, Service
from tests.conform.serving import serving

Judge = Callable[..., Report]


def whole_target(url: str, **changes: Any) -> Target:
    """Everything that can be said of the service, so that every case can look."""
    settings: dict[str, Any] = {
        "url": f"{url}/payments",
        "body": SAMPLE,
        "slow_body": SLOW,
        "effects": "/effects",
        "other_path": "/refunds",
        "caller": (("Authorization", "Bearer a"),),
        "other_caller": (("Authorization", "Bearer b"),),
        "timeout": 5.0,
    }
    return Target(**(settings | changes))


@pytest.fixture
def judge() -> Judge:
    """Serves a service, and judges it."""

    def judge(service: Service, **changes: Any) -> Report:
        with serving(service) as url:
            return conform(whole_target(url, **changes))

    return judge


def failed(report: Report) -> list[str]:
    """The ids of what failed."""
    return [result.case.id for result in report.failed(strict=True)]


def verdicts(report: Report) -> dict[str, str]:
    """Every verdict by the id of its case."""
    return {result.case.id: result.word for result in report.results}
