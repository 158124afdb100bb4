"""`semel doctor --engine`: how long engines know processes that have ended, compared with records of their tasks."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client

from semel.cli.commands.workflow.engine_history import Kept, judge_history
from semel.workflow.engines.history import EngineHistory
from tests.cli.conftest import Database, Run
from tests.servers.server import HOST, free_port
from tests.workflow.temporal_server import temporal_server

DAY = timedelta(days=1)
MODULE = """
from datetime import timedelta

from semel import AsyncSemel
from semel.workflow import Delegate

semel = AsyncSemel("{url}")


class Pay(Delegate):
    operation = "PAYMENT_PROCESSING"
    key = "claimId"
    keep_for = timedelta(days=90)

    async def execute(self, claimId: str) -> None: ...

    async def compensate(self, value: None) -> None: ...


class Notify(Pay):
    operation = "NOTIFICATION_SEND"
    keep_for = timedelta(days=2)


pay = Pay(semel)
delegates = {{"pay": pay, "undo": pay.compensation, "notify": Notify(semel)}}
"""


class Camunda:
    """The part of Camunda 7's REST interface that tells about history. All calls have to name the user."""

    def __init__(self) -> None:
        self.definitions: list[dict[str, Any]] = []
        self.cleanup: dict[str, Any] | None = {"batchWindowStartTime": "2026-01-01T00:00:00.000+0000"}
        self.asked: list[str] = []
        self.status = 200

    def deploy(self, key: str, *days: int | None) -> None:
        """Versions of a process, each with how many days its history is kept."""
        self.definitions += [
            {"id": f"{key}:{version}", "key": key, "version": version, "historyTimeToLive": kept}
            for version, kept in enumerate(days, 1)
        ]

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        """What the engine says."""
        self.asked.append(path)
        if self.status != 200:
            return self.status, {}
        if path == "/engine-rest/history/cleanup/configuration":
            return (404, {}) if self.cleanup is None else (200, self.cleanup)
        assert path == "/engine-rest/process-definition"
        found = [one for one in self.definitions if query.get("key", one["key"]) == one["key"]]
        found.sort(key=lambda one: str(one[query["sortBy"]]))
        first = int(query["firstResult"])
        return 200, found[first : first + int(query["maxResults"])]


@pytest.fixture
def camunda() -> Iterator[tuple[Camunda, str]]:
    """The engine, and its address."""
    engine = Camunda()
    user = "Basic " + b64encode(b"kermit:hush").decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            is_user = self.headers["Authorization"] == user
            status, said = engine.answer(parts.path, query) if is_user else (401, {})
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield engine, f"http://kermit:hush@{HOST}:{server.server_port}/engine-rest"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server with namespaces `short` and `long`, which keep workflows for 1 and for 30 days."""
    with temporal_server(tmp_path_factory.mktemp("temporal")) as address:
        asyncio.run(_register(address, short=1, long=30))
        yield address


async def _register(address: str, **days: int) -> None:
    client = await Client.connect(address)
    for name, kept in days.items():
        period = Duration(seconds=kept * 86400)
        asked = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=period)
        await client.workflow_service.register_namespace(asked)


@pytest.fixture
def clinic(database: Database, tmp_path: Path) -> Database:
    database.completed("o-1")
    (tmp_path / "clinic.py").write_text(MODULE.format(url=database.url))
    return database


def find(call: Run, *arguments: str, topic: str = "engine history") -> tuple[int, dict[str, Any], str]:
    done = call("doctor", *arguments, "--json")
    assert done.returncode in (0, 1), done.stderr
    [found] = [one for one in json.loads(done.stdout)["findings"] if one["topic"] == topic]
    return done.returncode, found, done.stdout


@pytest.mark.slow
class TestTemporal:
    """On a real server."""

    @pytest.mark.parametrize(
        ("namespace", "delegates", "verdict", "words"),
        [
            ("short", "clinic:delegates", "ok", "Notify('NOTIFICATION_SEND') are kept for 2d, so a process may last"),
            ("long", "clinic:pay", "ok", "so a process may last 60d"),
            ("long", "clinic:delegates", "fix", "for 30d (its retention); forgotten before: Notify"),
            ("long", None, "fix", "a delegate that sets nothing (7d)"),
        ],
    )
    def test_the_retention_of_a_namespace_is_compared_with_the_records_of_tasks(
        self,
        *,
        temporal: str,
        clinic: Database,
        call: Run,
        namespace: str,
        delegates: str | None,
        verdict: str,
        words: str,
    ) -> None:
        options = ["--engine", f"temporal://{temporal}/{namespace}"]
        options += [] if delegates is None else ["--delegates", delegates]
        code, found, _ = find(call, clinic.url, *options)
        assert (code, found["verdict"]) == (verdict == "fix", verdict)
        assert found["found"].startswith(f"namespace {namespace}: ended processes for")
        assert words in found["found"]
        assert found["breaks"] == (["kept"] if verdict == "fix" else [])

    def test_a_namespace_may_come_from_the_environment_as_for_all_programs_of_temporal(
        self, temporal: str, clinic: Database, call: Run
    ) -> None:
        variables = {"TEMPORAL_ADDRESS": temporal, "TEMPORAL_NAMESPACE": "long"}
        done = call("doctor", clinic.url, "--engine", "temporal://", **variables)
        assert "namespace long" in done.stdout

    def test_a_namespace_that_is_not_there_is_refused(self, temporal: str, clinic: Database, call: Run) -> None:
        done = call("doctor", clinic.url, "--engine", f"temporal://{temporal}/nowhere")
        assert done.returncode == 2
        assert "no namespace 'nowhere'" in done.stderr


class TestCamunda7:
    """On a small server of the protocol."""

    @pytest.mark.parametrize(
        ("days", "verdict", "words"),
        [
            ((180, 1), "fix", "process claim: ended processes for 180d (historyTimeToLive); forgotten before"),
            ((1, 0), "ok", "so a process may last 24h"),
            ((1, None), "note", "process claim: ended processes for ever"),
        ],
        ids=["an older version keeps longer", "shorter", "without a limit"],
    )
    def test_the_longest_history_of_a_process_is_compared_with_the_records_of_tasks(
        self, *, camunda: tuple[Camunda, str], clinic: Database, call: Run, days: Any, verdict: str, words: str
    ) -> None:
        engine, address = camunda
        engine.deploy("claim", *days)
        engine.deploy("other", 1000)
        options = ["--engine", address, "--process", "claim", "--delegates", "clinic:delegates"]
        code, found, printed = find(call, clinic.url, *options)
        assert (code, found["verdict"]) == (verdict == "fix", verdict)
        assert words in found["found"]
        assert "hush" not in printed

    def test_without_a_process_all_of_them_count_however_many_there_are(
        self, camunda: tuple[Camunda, str], clinic: Database, call: Run
    ) -> None:
        engine, address = camunda
        engine.deploy("claim", *[1] * 500)
        engine.deploy("payment", 1000)
        code, found, _ = find(call, clinic.url, "--engine", address, "--delegates", "clinic:pay")
        assert (code, found["verdict"]) == (1, "fix")
        assert "process payment: ended processes for 1000d" in found["found"]

    def test_history_that_nothing_removes_is_kept_for_ever(
        self, camunda: tuple[Camunda, str], clinic: Database, call: Run
    ) -> None:
        engine, address = camunda
        engine.deploy("claim", 1)
        engine.cleanup = {"batchWindowStartTime": None}
        code, found, _ = find(call, clinic.url, "--engine", address)
        assert (code, found["verdict"]) == (0, "note")
        assert "batch window" in found["advice"]

    def test_an_engine_that_tells_nothing_of_its_cleanup_is_believed(
        self, camunda: tuple[Camunda, str], clinic: Database, call: Run
    ) -> None:
        engine, address = camunda
        engine.deploy("claim", 1)
        engine.cleanup = None
        assert find(call, clinic.url, "--engine", address)[1]["verdict"] == "ok"

    def test_an_engine_that_fails_has_to_be_fixed(
        self, camunda: tuple[Camunda, str], clinic: Database, call: Run
    ) -> None:
        engine, address = camunda
        engine.status = 500
        code, found, printed = find(call, clinic.url, "--engine", address, topic="engine")
        assert (code, found["verdict"]) == (1, "fix")
        assert "status 500" in found["found"]
        assert "hush" not in printed

    @pytest.mark.parametrize(
        ("user", "words"), [("kermit:hush@", "no process 'nowhere'"), ("", "may not look at processes")]
    )
    def test_what_cannot_be_looked_at_is_refused(
        self, camunda: tuple[Camunda, str], clinic: Database, call: Run, user: str, words: str
    ) -> None:
        address = camunda[1].replace("kermit:hush@", user)
        done = call("doctor", clinic.url, "--engine", address, "--process", "nowhere")
        assert done.returncode == 2
        assert words in done.stderr


@pytest.mark.parametrize(("history", "verdict"), [("30d", "ok"), ("90d", "fix")])
def test_an_engine_that_cannot_be_asked_is_compared_as_stated(
    clinic: Database, call: Run, history: str, verdict: str
) -> None:
    code, found, _ = find(call, clinic.url, "--engine-history", history, "--delegates", "clinic:pay")
    assert (code, found["verdict"]) == (verdict == "fix", verdict)
    assert f"as you say: ended processes for {history}" in found["found"]


@pytest.mark.slow
@pytest.mark.parametrize("address", ["temporal://{}/default", "http://kermit:hush@{}/engine-rest"])
def test_an_engine_that_does_not_answer_has_to_be_fixed_and_shows_no_password(
    clinic: Database, call: Run, address: str
) -> None:
    where = address.format(f"{HOST}:{free_port()}")
    code, found, printed = find(call, clinic.url, "--engine", where, topic="engine")
    assert (code, found["verdict"]) == (1, "fix")
    assert "may be reached" in found["advice"]
    assert "hush" not in printed


def test_without_an_engine_nothing_is_said_about_one(clinic: Database, call: Run) -> None:
    found = json.loads(call("doctor", clinic.url, "--json").stdout)["findings"]
    assert [one for one in found if "engine" in one["topic"]] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--delegates", "clinic:pay"], "--delegates needs an engine"),
        (["--process", "claim"], "--process needs an engine"),
        (["--engine", "temporal://h:1", "--engine-history", "1d"], "Give one of both"),
        (["--engine", "temporal://h:1", "--process", "claim"], "--process is for Camunda 7"),
        (["--engine", "temporal://u:hush@h:1"], "TEMPORAL_API_KEY"),
        (["--engine", "zeebe://h:26500"], "The engine is not known"),
        (["--engine-history", "1d", "--delegates", "clinic:semel"], "neither a delegate nor several"),
        (["--engine-history", "0d"], "no duration"),
    ],
)
def test_what_cannot_be_meant_is_refused(clinic: Database, call: Run, options: list[str], words: str) -> None:
    done = call("doctor", clinic.url, *options)
    assert done.returncode == 2, done.stdout
    assert words in done.stderr
    assert "hush" not in done.stderr


def test_many_delegates_that_are_forgotten_are_not_all_named() -> None:
    kept = [Kept(f"task {number}", DAY) for number in range(7)]
    found = judge_history(EngineHistory("here", DAY, "its retention"), kept)
    assert found.found.endswith("task 4 (24h) and 2 more")


@pytest.mark.parametrize(
    ("options", "verdict", "words"),
    [
        (["--engine-history", "30d"], "fix", "forgotten before: NOTIFICATION_SEND (14d)"),
        (["--engine-history", "10d"], "ok", "records of NOTIFICATION_SEND are kept for 14d"),
        (["--engine-history", "10d", "--delegates", "clinic:pay"], "ok", "records of Pay('PAYMENT_PROCESSING')"),
    ],
)
def test_without_delegates_the_operations_of_the_settings_file_are_compared(
    *, clinic: Database, call: Run, tmp_path: Path, options: list[str], verdict: str, words: str
) -> None:
    file = tmp_path / "hospital.toml"
    file.write_text(
        f'store = "{clinic.url}"\n'
        '[operations.PAYMENT_PROCESSING]\nkeep_for = "P90D"\n'
        '[operations.NOTIFICATION_SEND]\nkeep_for = "P14D"\n'
        '[operations."start:revenue"]\nkeep_for = "P1D"\n'
        '[operations.CUSTOM]\nin_doubt = "hold"\n'
    )
    code, found, _ = find(call, str(file), *options)
    assert (code, found["verdict"]) == (verdict == "fix", verdict)
    assert words in found["found"]
