"""`semel erase` on a real file."""

import json
from pathlib import Path

import httpx
import pytest

from semel import Policy, Semel
from semel.cli import main
from semel.client import INTENT, SUBJECT, Client
from semel.errors import ResultNotKept
from semel.security import Keyring
from tests.cli.conftest import Database, Run
from tests.servers.redis import Keys

NAMED = ("--operation", "charge", "--scope", "acme")


def test_an_erased_record_never_runs_again(database: Database, run: Run) -> None:
    record = database.completed("o-1")
    done = run("erase", record.reference[:8], database.url, "--reason", "request 17", "--yes")
    assert done.returncode == 0
    assert "erased" in done.stdout
    with Semel(database.path) as semel, pytest.raises(ResultNotKept, match="it was erased"):
        semel.run("o-1", lambda: "ran again", operation="charge", fingerprint=None, scope="acme")


def test_a_record_is_found_by_its_key(database: Database, call: Run) -> None:
    database.completed("o-1")
    assert call("erase", "o-1", database.url, *NAMED, "--reason", "request 17", "--yes").returncode == 0
    assert database.read("o-1").erased


@pytest.mark.parametrize(("options", "scope"), [(("--scope", "acme"), "acme"), ((), "")])
def test_the_chain_of_the_scope_says_that_a_subject_was_erased(
    database: Database, call: Run, options: tuple[str, ...], scope: str
) -> None:
    with Semel(database.path) as semel:
        semel.run("k", lambda: 1, operation="charge", fingerprint=None, scope="acme", about={"subject": "patient-7"})
    named = ("--subject", "patient-7", *options, "--reason", "request 17", "--yes")
    assert call("erase", database.url, *named).returncode == 0
    told = [json.loads(line) for line in call("audit", "list", database.url, "--json").stdout.splitlines()]
    assert [(one["scope"], one["phase"]) for one in told] == [(scope, "ended"), (scope, "begun")]
    assert "patient-7" not in str(told)


@pytest.mark.slow
def test_the_cache_that_the_environment_names_forgets_it(database: Database, call: Run, redis_keys: Keys) -> None:
    redis_keys.empty()
    record = database.completed("o-1")
    cache = f"{redis_keys.url}&timeout=5"
    with Semel(database.path, cache=cache) as semel:
        found = [
            semel.run("o-1", lambda: "again", operation="charge", fingerprint=None, scope="acme") for _ in range(3)
        ]
        assert found[-1].cache == "hit"
        done = call("erase", record.reference, database.url, "--reason", "r 17", "--yes", SEMEL_CACHE=cache)
        assert done.returncode == 0
        with pytest.raises(ResultNotKept, match="it was erased"):
            semel.run("o-1", lambda: "again", operation="charge", fingerprint=None, scope="acme")


@pytest.mark.slow
def test_one_entry_of_the_cache_is_purged_and_its_record_stays(database: Database, run: Run, redis_keys: Keys) -> None:
    redis_keys.empty()
    record = database.completed("o-1")
    cache = f"{redis_keys.url}&timeout=5"
    with Semel(database.path, cache=cache) as semel:

        def look() -> str | None:
            return semel.run("o-1", lambda: "again", operation="charge", fingerprint=None, scope="acme").cache

        assert [look() for _ in range(3)][-1] == "hit"
        done = run("cache", "purge", record.reference, database.url, SEMEL_CACHE=cache)
        assert done.returncode == 0, done.stderr
        assert "was not touched" in done.stdout
        assert look() == "miss"
        assert database.read("o-1").status == "completed"


def test_without_a_cache_nothing_is_purged(database: Database, call: Run) -> None:
    record = database.completed("o-1")
    done = call("cache", "purge", record.reference, database.url)
    assert done.returncode != 0
    assert "no cache in front of the store" in done.stderr


def test_what_was_erased_is_not_shown(database: Database, call: Run) -> None:
    record = database.completed("o-1")
    call("erase", record.reference, database.url, "--reason", "request 17", "--by", "jane", "--yes")
    shown = call("show", record.reference, database.url).stdout
    assert "Erased  by jane" in shown
    assert "o-1" not in shown
    assert "acme" not in shown


def test_what_was_erased_is_null_for_machines(database: Database, call: Run) -> None:
    record = database.completed("o-1")
    call("erase", record.reference, database.url, "--reason", "request 17", "--yes")
    listed = json.loads(call("list", database.url, "--json").stdout)
    assert (listed["reference"], listed["key"], listed["scope"]) == (record.reference, None, None)


def test_without_a_terminal_and_yes_nothing_is_erased(database: Database, call: Run) -> None:
    record = database.completed("o-1")
    done = call("erase", record.reference, database.url, "--reason", "request 17")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert database.read("o-1") == record


@pytest.mark.parametrize("reason", [[], ["--reason", ""], ["--reason", "  "]])
def test_erasing_needs_a_reason(database: Database, reason: list[str]) -> None:
    record = database.completed("o-1")
    assert main(["erase", record.reference, database.url, "--yes", *reason]) == 2
    assert database.read("o-1") == record


@pytest.mark.parametrize("kind", ["in_doubt", "running"])
def test_only_what_is_settled_is_erased(database: Database, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    record = getattr(database, kind)("o-1")
    assert main(["erase", record.reference, database.url, "--reason", "x", "--yes"]) == 2
    assert "nothing was erased" in capsys.readouterr().err
    assert database.read("o-1") == record


def test_an_unknown_record_is_not_found(database: Database) -> None:
    database.completed("o-1")
    assert main(["erase", "o-2", database.url, *NAMED, "--reason", "x", "--yes"]) == 3


def _admit(database: Database, *subjects: str, scope: str = "acme") -> None:
    with Semel(database.path) as semel:
        for number, subject in enumerate(subjects):
            about = {"subject": subject}
            semel.run(f"a-{number}", lambda: "Ann", operation="admit", fingerprint=None, scope=scope, about=about)


def test_a_person_is_erased(database: Database, run: Run) -> None:
    _admit(database, "patient-7", "patient-8", "patient-7")
    told = run("erase", database.url, "--subject", "patient-7", "--reason", "request 17", "--dry-run")
    assert (told.returncode, told.stdout) == (0, "would be erased 2 records\n"), told.stderr
    done = run("erase", database.url, "--subject", "patient-7", "--reason", "request 17", "--yes")
    assert (done.returncode, done.stdout) == (0, "erased 2 records\n"), done.stderr
    again = run("erase", "--subject", "patient-7", "--reason", "request 17", "--yes", SEMEL_URL=database.url)
    assert (again.returncode, again.stdout) == (0, "Nothing is kept about this subject.\n"), again.stderr


def test_a_person_is_erased_in_one_scope_only(database: Database, call: Run) -> None:
    _admit(database, "patient-7")
    asked = ("erase", database.url, "--subject", "patient-7", "--reason", "request 17", "--yes", "--scope")
    assert "Nothing is kept" in call(*asked, "zenith").stdout
    assert "Nothing is kept" in call(*asked, "").stdout
    assert call(*asked, "acme").stdout == "erased 1 records\n"


def test_what_was_refused_is_said_and_the_exit_code_tells(database: Database, call: Run) -> None:
    def cut_off() -> None:
        raise OSError("cut off")

    about, policy = {"subject": "patient-7"}, Policy(in_doubt="hold")
    with Semel(database.path) as semel, pytest.raises(OSError, match="cut off"):
        semel.run("k", cut_off, operation="admit", fingerprint=None, about=about, policy=policy)
    done = call("erase", database.url, "--subject", "patient-7", "--reason", "request 17", "--yes")
    assert done.returncode == 1
    assert "not erased 1 records: in doubt" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    "asked",
    [
        ("--reason", "request 17", "--yes"),
        ("--dry-run", "--reason", "request 17"),
        ("a-0", "sqlite:///semel.db", "--subject", "patient-7", "--reason", "request 17", "--yes"),
        ("--operation", "admit", "--subject", "patient-7", "--reason", "request 17", "--yes"),
        ("sqlite:///semel.db", "--journal", "semel.db", "--subject", "patient-7", "--reason", "r 17", "--yes"),
        ("sqlite:///semel.db", "--subject", "patient-7", "--reason", "request 17"),
        ("sqlite:///semel.db", "--subject", "patient-7", "--reason", "  ", "--yes"),
    ],
)
def test_what_does_not_say_whom_to_erase_is_refused(database: Database, call: Run, asked: tuple[str, ...]) -> None:
    _admit(database, "patient-7")
    done = call("erase", *asked, SEMEL_URL="sqlite:///semel.db")
    assert done.returncode == 2, done.stdout
    assert "nothing was" in done.stderr
    with Semel(database.path) as semel:
        assert len(list(semel.records(subject="patient-7"))) == 1


def test_the_journal_of_a_client_is_erased_by_the_subject_of_its_requests(tmp_path: Path, call: Run) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(201, json={"name": "Ann Personal"})

    journal, headers = tmp_path / "keys.db", {INTENT: "admit 7", SUBJECT: "patient-7"}
    with Client(journal, transport=httpx.MockTransport(answer)) as client:
        client.post("https://clinic.example/patients", json={"name": "Ann Personal"}, headers=headers)
        asked = ("erase", "--journal", str(journal), "--subject", "patient-7", "--reason", "request 17", "--yes")
        done = call(*asked)
        assert (done.returncode, done.stdout) == (0, "erased 1 records\n"), done.stderr
        with pytest.raises(ResultNotKept, match="it was erased"):
            client.post("https://clinic.example/patients", json={"name": "Ann Personal"}, headers=headers)
    assert len(sent) == 1
    assert "semel-subject" not in sent[0].headers


def test_a_sealed_journal_is_erased_without_its_keys(tmp_path: Path, call: Run) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(201, json={"name": "Ann Personal"})

    journal, headers = tmp_path / "keys.db", {INTENT: "admit 7", SUBJECT: "patient-7"}
    ring = Keyring(active="2026-11", keys={"2026-11": bytes(range(32))})
    with Semel(journal, seal=ring) as semel, Client(semel, transport=httpx.MockTransport(answer)) as client:
        client.post("https://clinic.example/patients", headers=headers)
        done = call("erase", "--journal", str(journal), "--subject", "patient-7", "--reason", "request 17", "--yes")
        assert (done.returncode, done.stdout) == (0, "erased 1 records\n"), done.stderr
        with pytest.raises(ResultNotKept, match="it was erased"):
            client.post("https://clinic.example/patients", headers=headers)
    assert len(sent) == 1


UPLOADS = """
from pathlib import Path

from semel import {kind}
from semel.erasure import register_erasable


class Uploads:
    def erase_subject(self, asked, tally):
        tally.add_erased("uploads")
        if not asked.dry_run:
            Path(asked.subject).unlink()
        return
        yield


semel = {kind}("sqlite:///semel.db")
register_erasable(semel, Uploads())
"""


@pytest.mark.parametrize("kind", ["Semel", "AsyncSemel"])
def test_what_an_application_has_registered_is_erased_too(tmp_path: Path, call: Run, kind: str) -> None:
    with Semel(tmp_path / "semel.db") as semel:
        semel.run("a-1", lambda: "Ann", operation="admit", fingerprint=None, about={"subject": "patient-7"})
    module = f"clinic_{kind.lower()}"
    (tmp_path / f"{module}.py").write_text(UPLOADS.format(kind=kind))
    (tmp_path / "patient-7").write_text("x-ray")
    asked = ("erase", "--app", f"{module}:semel", "--subject", "patient-7", "--reason", "request 17")
    done = call(*asked, "--dry-run")
    assert done.stdout == "would be erased 1 uploads\nwould be erased 1 records\n", done.stderr
    done = call(*asked, "--yes")
    assert (done.returncode, done.stdout) == (0, "erased 1 uploads\nerased 1 records\n"), done.stderr
    assert not (tmp_path / "patient-7").exists()


@pytest.mark.parametrize(
    ("beside", "why"), [("semel.db", "brings its own database"), ("--journal=keys.db", "nothing else can be named")]
)
def test_an_application_brings_its_own_database(call: Run, beside: str, why: str) -> None:
    done = call("erase", beside, "--app", "clinic:semel", "--subject", "patient-7", "--reason", "request 17", "--yes")
    assert done.returncode == 2
    assert why in done.stderr


def test_a_journal_that_is_not_there_is_not_made(tmp_path: Path, call: Run) -> None:
    done = call("erase", "--journal", "missing.db", "--subject", "patient-7", "--reason", "request 17", "--yes")
    assert done.returncode == 3
    assert not (tmp_path / "missing.db").exists()
