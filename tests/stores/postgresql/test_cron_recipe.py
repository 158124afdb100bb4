"""The SQL that the how-to gives for pg_cron deletes what a sweep deletes, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from semel.core.operations import Checkpoint
from semel.core.record import Step
from tests.stores.postgresql.kit import Asker, claims, completions, rows

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "run-the-sweeper.md"
EXPIRE = "UPDATE semel_record SET expires_us = 1 WHERE digest = ANY(%s)"


def recipe() -> str:
    found = re.search(r"<!-- pg_cron -->\n```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, "the how-to has no recipe"
    return found.group(1)


def test_the_recipe_deletes_what_is_settled_and_expired_with_its_steps(url: str, asker: Asker) -> None:
    granted = asker.all(claims(6))
    for answer in granted[:4]:
        asker.one(Checkpoint(answer.lease, Step(0, "a", b"\x01")))
    asker.all(completions(granted[:4]))
    digests = [answer.lease.key.digest for answer in granted]
    rows(url, EXPIRE, [*digests[:3], digests[4]])  # two of the settled ones with another keep, one still running
    rows(url, "UPDATE semel_record SET keep_us = 7 WHERE digest = %s", digests[0])
    assert rows(url, recipe()) == [(3,)]
    left = {digest for (digest,) in rows(url, "SELECT digest FROM semel_record")}
    assert left == set(digests[3:])
    assert rows(url, "SELECT digest FROM semel_step") == [(digests[3],)]
    assert rows(url, recipe()) == [(0,)]
