"""What the tests of dashboards and rules share."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.docs.pages import ROOT
from tests.servers.plugin import verdict


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus' own checker."""
    found = shutil.which("promtool", path=f"{os.environ['PATH']}:{ROOT / '.servers/usr/bin'}")
    if found is None:
        raise verdict("promtool is not installed: scripts/setup-system promtool")
    return found
