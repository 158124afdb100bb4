"""`semel serve` as a real process, and its settings."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel import Semel
from semel.cli import main
from semel.errors import UsageError
from semel.server.settings import ServerSettings, examine_server
from tests.processes import child, run_bounded
from tests.servers.redis import Keys as RedisKeys
from tests.servers.server import free_port

MOST_MEMORY = 100 * 1024 * 1024
MOST_SECONDS = 2.0


def write_settings(folder: Path, *lines: str) -> Path:
    path = folder / "semel.toml"
    path.write_text("\n".join([f'store = "sqlite:///{folder}/semel.db"', *lines]))
    with Semel(folder / "semel.db") as semel:
        assert semel.count() == 0  # makes the file
    return path


def wait_for(url: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            assert httpx.get(f"{url}/health").status_code == 200
        except httpx.TransportError:
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)
        else:
            return


def seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def most_memory_of(pid: int) -> int:
    """The most that a process has had at any moment."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


@pytest.mark.slow
def test_a_process_serves_within_its_bounds_and_ends_when_told(tmp_path: Path) -> None:
    port = free_port()
    settings = write_settings(tmp_path, "[server]", f"port = {port}")
    command = [sys.executable, "-m", "semel", "serve", str(settings)]
    url = f"http://127.0.0.1:{port}"
    began = time.monotonic()
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        wait_for(url, process)
        waited = time.monotonic() - began
        took = seconds_of(process.pid)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        secret = lines[-1].strip()
        assert secret.startswith("semel_")
        assert process.stdout.readline() == f"Console and admin API: {url}. Ctrl-C ends it.\n"
        assert httpx.get(f"{url}/api/v1/me").status_code == 401
        signed = {"authorization": f"Bearer {secret}"}
        assert httpx.get(f"{url}/api/v1/me", headers=signed).json()["name"] == "admin"
        metrics = httpx.get(f"{url}/metrics", headers=signed)
        assert "semel_attention_up 1.0" in metrics.text
        assert httpx.get(f"{url}/api/v1/me", headers={**signed, "host": "evil.test"}).status_code == 421
        for place in ("/openapi.json", "/api/v1/records", "/api/v1/doctor"):
            assert httpx.get(url + place, headers=signed).status_code == 200
        page = httpx.get(url, headers=signed)
        assert "Nothing needs a person" in page.text
        memory = most_memory_of(process.pid)
        print(f"up after {waited:.2f} s, {took:.2f} s of processor time, at most {memory / 1e6:.0f} MB")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
        assert process.returncode in (0, -signal.SIGTERM)
        assert "semel_" not in rest
    assert took <= MOST_SECONDS
    assert memory <= MOST_MEMORY
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        wait_for(url, process)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
        assert "semel_" not in said  # the first token is shown once


@pytest.mark.parametrize(
    ("store", "code", "exit_code"),
    [
        ("postgresql://a@127.0.0.1:1/x", "store_unavailable", 75),
        ("sqlite:///empty.db", "schema_outdated", 1),
    ],
)
def test_a_store_that_cannot_be_served_is_one_line(tmp_path: Path, store: str, code: str, exit_code: int) -> None:
    (tmp_path / "empty.db").touch()
    command = [sys.executable, "-m", "semel", "serve", store, "--port", "0"]
    done = run_bounded(command, 60, cwd=tmp_path)
    assert done.returncode == exit_code
    assert done.stderr.startswith(f"semel: {code}: ")
    assert done.stderr.count("\n") == 1


def test_an_address_that_somebody_listens_on_is_refused_before_a_token_is_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = str(write_settings(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", settings, "--port", str(port)]) == 2
    said = capfd.readouterr()
    assert said.err.startswith(f"semel: usage: Nothing can listen on 127.0.0.1, port {port} (")
    assert said.err.count("\n") == 1
    assert "token" not in said.out
    assert main(["token", "list", settings]) == 0
    assert "No tokens" in capfd.readouterr().out


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "::", "semel.example"])  # noqa: S104 - the point
def test_listening_where_others_reach_it_needs_a_setting(host: str) -> None:
    with pytest.raises(UsageError, match="public = true"):
        ServerSettings.of({"host": host})
    assert ServerSettings.of({"host": host, "public": True}).answered_names is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_is_reached_by_its_own_names_alone(host: str) -> None:
    made = ServerSettings.of({"host": host})
    assert made.answered_names is not None
    assert "evil.test" not in made.answered_names


@pytest.mark.parametrize(
    ("table", "topics"),
    [
        ({}, []),
        ({"host": "0.0.0.0", "public": True, "anchor": "here"}, ["server address"]),  # noqa: S104 - the point
        ({"authentication": False, "anchor": "here"}, ["server users"]),
        ({"anchor": "here"}, []),
        ({"anchor": "no/such/folder/anchors"}, ["audit anchors"]),
    ],
)
def test_the_doctor_is_told_what_to_fix(table: dict[str, Any], topics: list[str]) -> None:
    findings = examine_server(table)
    assert [finding.topic for finding in findings] == topics
    assert all(finding.verdict == "fix" for finding in findings)


def test_the_doctor_is_told_that_seals_are_written_down_nowhere() -> None:
    (finding,) = examine_server({"port": 8787})
    assert (finding.topic, finding.verdict) == ("audit anchors", "note")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("[relay]", 'publisher = "foo://bar"'), "begins with none of amqp://"),
        (("[server]", 'consumers = ["nowhere:nothing"]'), "There is no module nowhere"),
        (("[server.links]", 'trace = "javascript:alert(1)"'), "has to begin with https://"),
        (("[server]", 'host = "0.0.0.0"'), "Write public = true"),
    ],
    ids=str,
)
def test_a_check_finds_what_the_server_would_not_start_with(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    lines: tuple[str, ...],
    found: str,
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    settings = write_settings(tmp_path, *lines)
    assert main(["serve", str(settings), "--check"]) == 1
    assert found in " ".join(capsys.readouterr().out.split())
    assert main(["serve", str(settings)]) == 2
    assert found in capsys.readouterr().err


def test_a_check_finds_that_nobody_could_sign_in(
    redis_keys: RedisKeys, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["serve", redis_keys.url, "--check"]) == 1
    assert "keeps no tokens" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("lines", "code"), [((), 0), (("[server]", "authentication = false"), 1)])
def test_a_check_ends_with_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: tuple[str, ...], code: int
) -> None:
    settings = write_settings(tmp_path, *lines)
    for command in ("doctor", "serve"):
        arguments = [command, str(settings), *(["--check"] if command == "serve" else [])]
        assert main(arguments) == code
        assert ("server users" in capsys.readouterr().out) is bool(code)
