"""F24, F51: a store that was used before a fork goes on in both processes, and nothing is shared between them."""

import os
from pathlib import Path

import pytest

from tests.faults.sqlite.processes import run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@pytest.mark.parametrize(
    "program",
    [
        "fork_no_connection",
        "fork_one_runner",
        "fork_during_a_round",
        "fork_during_a_round_that_does_not_end",
        "fork_that_outlives_its_parent",
    ],
)
def test_a_fork_does_no_harm(program: str, tmp_path: Path) -> None:
    run(program, tmp_path / "semel.db")
