"""`examine` on PostgreSQL: what is found on real servers, and what findings mean for the promise."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest

from semel.core.operations import Claim, Fail
from semel.core.record import Failure
from semel.stores.admin import Finding, about_clock, promises
from semel.stores.postgresql import PostgresStore
from semel.stores.postgresql.admin import durability, habits, persistence, pooling, replication
from tests.servers.postgresql import PostgresqlServer
from tests.stores.postgresql.kit import NEXT, SECOND, SOON, Asker, claim, claims, completions, release, rows

DAY = timedelta(days=1)
FINE = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "synchronous_standby_names": "",
    "transaction_isolation": "read committed",
    "server_encoding": "UTF8",
    "server_version": "15.1",
    "autovacuum": "on",
}
Start = Callable[..., AbstractContextManager[PostgresqlServer]]


def found(store: PostgresStore, horizon: timedelta = DAY) -> dict[str, Finding]:
    return {finding.topic: finding for finding in store.admin().examine(horizon)}


def held(findings: list[Finding]) -> dict[str, bool | None]:
    return {row.boundary: row.holds for row in promises(findings)}


@pytest.mark.slow
def test_a_durable_server_with_its_tables_needs_nothing(start_postgresql: Start) -> None:
    with start_postgresql(fsync=True) as server:
        store = PostgresStore(server.endpoint.url)
        store.admin().migrate()
        findings = store.admin().examine(DAY)
    assert {finding.verdict for finding in findings} == {"ok"}
    assert False not in held(findings).values()


@pytest.mark.slow
def test_a_server_that_does_not_sync_keeps_no_promise(start_postgresql: Start) -> None:
    with start_postgresql(fsync=False) as server:
        store = PostgresStore(server.endpoint.url)
        store.admin().migrate()
        findings = store.admin().examine(DAY)
    wrong = {finding.topic for finding in findings if finding.verdict == "fix"}
    assert wrong == {"fsync", "synchronous_commit", "full_page_writes"}
    assert True not in held(findings).values()


def test_looking_makes_no_tables(url: str) -> None:
    assert found(PostgresStore(url))["schema"].verdict == "fix"
    assert rows(url, "SELECT to_regclass('semel_record')") == [(None,)]


def test_a_pending_pre_half_must_be_applied(url: str) -> None:
    PostgresStore(url).admin().migrate()
    schema = found(release(url, NEXT))["schema"]
    assert (schema.verdict, schema.breaks) == ("fix", ("schema",))
    assert f"{SOON:04} pre" in schema.found


def test_a_pending_post_half_is_worth_knowing(url: str) -> None:
    PostgresStore(url).admin().migrate()
    release(url, NEXT).admin().migrate()
    schema = found(release(url, NEXT))["schema"]
    assert schema.verdict == "note"
    assert "--half post" in schema.advice


def test_a_table_that_a_crash_empties_must_be_changed(url: str) -> None:
    PostgresStore(url).admin().migrate()
    rows(url, "ALTER TABLE semel_record SET UNLOGGED")
    tables = found(PostgresStore(url))["tables"]
    assert (tables.verdict, tables.breaks) == ("fix", ("durable",))


def test_records_that_are_forgotten_before_the_last_retry_break_replay(url: str, asker: Asker) -> None:
    asker.all(completions(asker.all(claims(2))))
    assert found(asker.store, timedelta(hours=24))["keep_for"].verdict == "ok"
    findings = asker.store.admin().examine(timedelta(hours=25))
    assert held(findings)["replay"] is False
    assert {f.topic: f.verdict for f in findings}["keep_for"] == "fix"


def test_what_waits_for_somebody_is_counted(url: str, asker: Asker) -> None:
    asker.one(Fail(asker.lease(claim("o-1")), "doubt", Failure("app.Broke", ""), doubtful=True))
    lapsed: Claim = claim("o-2", lease=0)
    asker.one(lapsed)
    told = found(asker.store)
    assert (told["in doubt"].found, told["in doubt"].verdict) == ("1", "note")
    assert told["lease ended, not swept"].found == "1"


def test_a_restore_mark_is_told(url: str) -> None:
    admin = PostgresStore(url).admin()
    admin.migrate()
    assert "restore mark" not in found(PostgresStore(url))
    admin.restored(1, 3600 * SECOND)
    assert "held" in found(PostgresStore(url))["restore mark"].found
    admin.restored(1, 1)
    assert "--end" in found(PostgresStore(url))["restore mark"].advice


@pytest.mark.parametrize("name", ["fsync", "synchronous_commit", "full_page_writes"])
def test_a_setting_that_loses_commits_must_be_changed(name: str) -> None:
    wrong = [finding for finding in durability({**FINE, name: "off"}) if finding.verdict != "ok"]
    assert [(finding.topic, finding.breaks) for finding in wrong] == [(name, ("durable",))]


def test_a_replica_must_not_be_used() -> None:
    assert replication(FINE, recovery=True, replicas=0).breaks == ("primary",)


@pytest.mark.parametrize(("names", "verdict"), [("", "note"), ("first", "ok")], ids=["asynchronous", "synchronous"])
def test_a_failover_that_can_lose_commits_is_worth_knowing(names: str, verdict: str) -> None:
    told = replication({**FINE, "synchronous_standby_names": names}, recovery=False, replicas=1)
    assert told.verdict == verdict


def test_another_encoding_must_be_changed() -> None:
    told = {finding.topic: finding.verdict for finding in habits({**FINE, "server_encoding": "LATIN1"})}
    assert told["encoding"] == "fix"


@pytest.mark.parametrize(
    ("moved", "lost", "verdict"), [(False, False, "ok"), (True, False, "note"), (True, True, "fix")]
)
def test_a_pooling_proxy_is_told(moved: bool, lost: bool, verdict: str) -> None:
    assert pooling(moved=moved, lost=lost).verdict == verdict


def test_logged_tables_are_fine() -> None:
    assert persistence({"semel_record": "p"}).verdict == "ok"
    assert persistence({"semel_record": "p", "semel_step": "u"}).verdict == "fix"


@pytest.mark.parametrize(("seconds", "verdict"), [(0.2, "ok"), (-0.2, "ok"), (5, "note"), (-5, "note")], ids=str)
def test_a_clock_that_is_off_is_never_more_than_a_note(seconds: float, verdict: str) -> None:
    told = about_clock(timedelta(seconds=seconds), timedelta(milliseconds=1))
    assert told.verdict == verdict
    assert ("ahead" in told.found) == (seconds > 0)
