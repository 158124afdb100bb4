"""`semel audit` and `semel token` on a real file, and the entries that other commands leave."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Policy, Semel
from semel.batch import Batches
from semel.core.flow import ask
from semel.core.operators.tokens import FindToken
from semel.engine.engine import engine_of
from semel.server import User
from semel.server.actions import make_actions
from tests.cli.conftest import Broken, Database, Run

FINAL = Policy(final_errors=(Broken,))


def entries(call: Run, database: Database, *words: str) -> list[dict[str, Any]]:
    done = call("audit", "list", database.url, "--json", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def decide(call: Run, database: Database, command: str, reference: str, *words: str) -> int:
    return call(command, reference, database.url, "--reason", "as said", "--by", "jane", "--yes", *words).returncode


@pytest.mark.parametrize(
    ("command", "words", "action"),
    [
        ("resolve", ("--happened", "1"), "resolve"),
        ("resolve", ("--did-not-happen",), "release"),
        ("release", (), "release"),
        ("cancel", (), "cancel"),
        ("fail", (), "fail"),
    ],
)
def test_a_decision_leaves_two_entries(
    database: Database, call: Run, command: str, words: tuple[str, ...], action: str
) -> None:
    record = database.in_doubt("o-1")
    assert decide(call, database, command, record.reference, *words) == 0
    ended, begun = entries(call, database)
    assert {(one["scope"], one["actor"], one["action"], one["target"]) for one in (ended, begun)} == {
        ("acme", "jane", action, record.reference)
    }
    assert (begun["phase"], begun["reason"], begun["open"]) == ("begun", "as said", False)
    assert (ended["phase"], ended["outcome"], ended["begun"]) == ("ended", "done", begun["seq"])


def test_reopening_and_erasing_leave_entries(database: Database, call: Run) -> None:
    record = database.failed("o-1", FINAL)
    assert decide(call, database, "reopen", record.reference) == 0
    other = database.failed("o-2", FINAL)
    assert decide(call, database, "erase", other.reference) == 0
    assert [one["action"] for one in entries(call, database)] == ["erase", "erase", "reopen", "reopen"]


def test_a_lease_that_is_ended_by_force_is_called_so(database: Database, call: Run) -> None:
    record = database.running("o-1")
    assert decide(call, database, "cancel", record.reference, "--force") == 0
    ended, begun = entries(call, database, "--action", "cancel")
    assert (ended["outcome"], begun["detail"]["force"]) == ("done", "True")


def test_what_is_refused_before_it_begins_leaves_nothing(database: Database, call: Run) -> None:
    record = database.completed("o-1")
    assert decide(call, database, "cancel", record.reference) == 2
    assert entries(call, database) == []


def test_decisions_about_batches_leave_entries(database: Database, call: Run) -> None:
    with Semel(database.path) as semel:
        Batches(semel).start("b-1", [1, 2], operation="pay")
    assert call("batch", "pause", "b-1", database.url, "--reason", "late", "--by", "jane").returncode == 0
    assert call("batch", "resume", "b-1", database.url, "--by", "jane").returncode == 0
    assert call("batch", "cancel", "b-1", database.url, "--reason", "no", "--yes").returncode == 0
    begun = [one for one in entries(call, database, "--action", "batch") if one["phase"] == "begun"]
    assert [one["detail"]["what"] for one in begun] == ["cancel", "resume", "pause"]
    assert {one["target"] for one in begun} == {"batch:b-1"}


def test_a_batch_is_named_the_same_by_the_command_line_and_by_the_server(database: Database, call: Run) -> None:
    with Semel(database.path) as semel:
        Batches(semel).start("b-1", [1, 2], operation="pay")
    assert call("batch", "pause", "b-1", database.url, "--reason", "late", "--by", "jane").returncode == 0

    async def resume() -> None:
        async with AsyncSemel(database.path) as semel:
            await make_actions(semel).resume_batch(User("olga", {"operator"}), "", "b-1", reason="back")

    asyncio.run(resume())
    chain = entries(call, database)
    assert {one["actor"] for one in chain} == {"jane", "olga"}
    assert {one["target"] for one in chain} == {"batch:b-1"}


def test_entries_are_filtered_and_shown(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    assert decide(call, database, "cancel", record.reference) == 0
    assert len(entries(call, database, "--actor", "jane", "--limit", "1")) == 1
    assert entries(call, database, "--actor", "eve") == []
    assert entries(call, database, "--open") == []
    assert entries(call, database, "--before", "1h") == []
    shown = call("audit", "list", database.url)
    assert "jane" in shown.stdout
    assert "as said" in shown.stdout


def test_a_chain_that_is_whole_is_said_to_be_so(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    assert decide(call, database, "cancel", record.reference) == 0
    done = call("audit", "verify", database.url)
    assert done.returncode == 0
    assert "whole: 2 entries in 1 chains, 0 of them sealed" in done.stdout


def test_a_chain_that_was_changed_ends_with_one(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    assert decide(call, database, "cancel", record.reference) == 0
    _tamper(database.path, "DROP TRIGGER semel_audit_changed", "UPDATE semel_audit SET actor = 'eve' WHERE seq = 1")
    done = call("audit", "verify", database.url)
    assert done.returncode == 1
    assert "edit in the chain of 'acme': entry 1: it was changed" in done.stdout
    told = json.loads(call("audit", "verify", database.url, "--json").stdout)
    assert (told["whole"], [fault["kind"] for fault in told["faults"]]) == (False, ["edit"])


def test_an_anchor_finds_what_was_cut_off_with_head_and_seals(database: Database, call: Run, tmp_path: Path) -> None:
    anchors = str(tmp_path / "anchors")
    record = database.in_doubt("o-1")
    assert decide(call, database, "cancel", record.reference) == 0
    done = call("audit", "seal", database.url, "--anchor", anchors)
    assert "sealed 1 chains; 1 new anchors" in done.stdout
    done = call("audit", "verify", database.url, "--anchor", anchors)
    assert (done.returncode, "No anchor" in done.stdout) == (0, False)
    tables = ("semel_audit", "semel_audit_head", "semel_audit_seal")
    _tamper(database.path, "DROP TRIGGER semel_audit_deleted", *(f"DELETE FROM {table}" for table in tables))  # noqa: S608 - names above
    done = call("audit", "verify", database.url)
    assert (done.returncode, "No anchor was compared" in done.stdout) == (0, True)
    done = call("audit", "verify", database.url, "--anchor", anchors)
    assert done.returncode == 1
    assert "truncation" in done.stdout


def test_a_reason_is_taken_out(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    assert decide(call, database, "cancel", record.reference) == 0
    named = ("--scope", "acme", "--reason", "request 17", "--by", "dpo")
    assert call("audit", "redact", "1", database.url, *named).returncode == 0
    said, _, begun = entries(call, database)
    assert (begun["reason"], said["action"], said["actor"]) == (None, "audit.redact", "dpo")
    assert call("audit", "verify", database.url).returncode == 0


def test_old_entries_are_deleted_where_that_is_asked_for(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    assert decide(call, database, "cancel", record.reference) == 0
    assert call("audit", "seal", database.url).returncode == 0
    done = call("audit", "expire", database.url, "--older-than", "1ms", "--reason", "retention", "--by", "jane")
    assert "deleted 2 entries" in done.stdout
    assert [one["action"] for one in entries(call, database)] == ["audit.expire"]
    assert call("audit", "verify", database.url).returncode == 0


def test_a_store_without_a_chain_is_refused(call: Run) -> None:
    for words in (("audit", "list"), ("audit", "verify"), ("token", "list")):
        done = call(*words, "redis://localhost:1")
        assert done.returncode == 2
        assert "Use PostgreSQL, MySQL, MariaDB or SQLite" in done.stderr


def test_a_token_is_printed_once_and_alone(database: Database, call: Run) -> None:
    database.completed("o-1")
    done = call("token", "add", "ci", database.url, "--role", "viewer", "--scope", "acme", "--by", "jane")
    assert done.returncode == 0, done.stderr
    secret = done.stdout.strip()
    assert secret.startswith("semel_")
    assert secret not in done.stderr
    with Semel(database.path) as semel:
        found = engine_of(semel).perform_on(None, ask(FindToken(bytes.fromhex(secret.split("_")[1]))))
    assert found.token is not None
    assert found.token.name == "ci"
    (listed,) = [json.loads(line) for line in call("token", "list", database.url, "--json").stdout.splitlines()]
    assert (listed["name"], listed["roles"], listed["scopes"], listed["valid"]) == ("ci", ["viewer"], ["acme"], True)
    assert secret not in call("token", "list", database.url).stdout


def test_a_token_is_revoked_once(database: Database, call: Run) -> None:
    database.completed("o-1")
    assert call("token", "add", "ci", database.url, "--role", "viewer").returncode == 0
    assert call("token", "revoke", "ci", database.url, "--by", "jane").returncode == 0
    assert call("token", "revoke", "ci", database.url).returncode == 3
    assert "revoked" in call("token", "list", database.url).stdout
    begun = [one for one in entries(call, database) if one["phase"] == "begun"]
    assert [one["action"] for one in begun] == ["token.revoke", "token.revoke", "token.create"]


def test_a_token_needs_a_role_that_there_is(database: Database, call: Run) -> None:
    database.completed("o-1")
    assert call("token", "add", "ci", database.url).returncode == 2
    assert call("token", "add", "ci", database.url, "--role", "king").returncode == 2
    assert call("token", "add", "ci", database.url, "--role", "viewer", "--expires-in", "400d").returncode == 2
    assert entries(call, database) == []


def _tamper(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
