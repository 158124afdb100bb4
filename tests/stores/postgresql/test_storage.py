"""Whether a completion on PostgreSQL touches the indexes again."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from semel.stores.postgresql import PostgresStore
from tests.stores.postgresql.kit import Asker, claims, completions, rows

pytestmark = pytest.mark.slow

UPDATES = """
SELECT s.n_tup_upd, s.n_tup_hot_upd FROM pg_stat_user_tables AS s
WHERE s.relname = 'semel_record' AND s.n_tup_upd >= %s
"""


def filled(url: str, records: int, batch: int) -> None:
    """Records that were claimed and completed in lists, vacuumed as often as autovacuum would on a large table."""
    asker = Asker(PostgresStore(url))
    asker.all(completions(asker.all(claims(batch))))
    rows(url, "ALTER TABLE semel_record SET (autovacuum_enabled = false)")
    done = vacuumed = batch
    with psycopg.connect(url, autocommit=True) as keeper:
        while done < records:
            asker.all(completions(asker.all(claims(batch))))
            done += batch
            if done >= vacuumed * 1.05:
                vacuumed = done
                keeper.execute("VACUUM semel_record")
    asker.close()


def hot_share(url: str, updates: int) -> float:
    while not (found := rows(url, UPDATES, updates)):  # the counts arrive when the session that wrote has ended
        continue
    every, hot = found[0]
    return float(hot / every)


@pytest.mark.parametrize(("batch", "least"), [(1, 0.8), (8, 0.3)], ids=["one caller", "eight callers"])
def test_most_completions_touch_no_index(
    url: str, batch: int, least: float, record_property: Callable[[str, object], None]
) -> None:
    filled(url, 2_000, batch)
    share = hot_share(url, 2_000)
    record_property("figures", f"lists of {batch}: {share:.0%} of completions are HOT")
    assert share >= least


def test_no_index_covers_what_a_completion_changes(url: str) -> None:
    PostgresStore(url).admin().migrate()
    text = """
        SELECT DISTINCT a.attname FROM pg_index AS i
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey::int2[])
        WHERE i.indrelid = 'semel_record'::regclass
    """
    assert {name for (name,) in rows(url, text)} == {"digest", "keep_us", "expires_us", "doubt_us"}
