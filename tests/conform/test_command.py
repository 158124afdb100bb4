"""The command: what it prints, what it writes, and what it ends with."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from semel.cli import main
from semel_lab.conform import CASES
from tests.conform.service import Service
from tests.conform.serving import serving
from tests.conform.wrong_answers import DoesNotMarkReplays
from tests.conform.wrong_comparisons import IgnoresTheBody
from tests.processes import run_bounded

pytestmark = pytest.mark.slow

Done = tuple[int, str, str]
Command = Callable[..., Done]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Serves a service, points the command at it, and answers exit code, output and complaints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")

    def command(service: Service, *options: str) -> Done:
        with serving(service) as url:
            code = main(["conform", f"{url}/payments", "--effects", "/effects", *options])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


@pytest.mark.parametrize(
    ("service", "options", "code"),
    [
        (Service, [], 0),
        (Service, ["--strict"], 0),
        (DoesNotMarkReplays, [], 0),
        (DoesNotMarkReplays, ["--strict"], 1),
        (IgnoresTheBody, [], 1),
    ],
    ids=["right", "right and strict", "a should", "a should, strict", "a must"],
)
def test_the_exit_code_counts_the_musts_and_strictly_the_shoulds(
    service: type[Service], options: list[str], code: int, command: Command
) -> None:
    assert command(service(), *options)[0] == code


@pytest.mark.parametrize(
    "options", [["ftp://x/"], [], ["http://127.0.0.1/", "--with", "x"], ["--app", "a", "--wsgi", "b"]]
)
def test_a_wrong_target_is_a_wrong_command(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_nobody_there_means_try_later(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert main(["conform", f"http://127.0.0.1:{port}/"]) == 75
    assert capsys.readouterr().err.startswith("semel: unreachable: ")


def test_the_table_has_a_row_for_every_case(command: Command) -> None:
    _, said, _ = command(Service())
    assert [case.id for case in CASES if f" {case.id} " not in said] == []


def test_a_failure_says_what_was_expected_what_was_seen_and_why_it_matters(command: Command) -> None:
    _, said, _ = command(IgnoresTheBody())
    plain = " ".join(said.split())
    [case] = [case for case in CASES if case.id == "other-body"]
    assert 'expected 422 seen 201 {"payment":' in plain
    assert f"why {case.why}" in plain


def test_the_summary_counts(command: Command) -> None:
    _, said, _ = command(Service())
    assert f"{len(CASES) - 5} passed, 0 failed, 5 not seen" in said


def test_credentials_are_in_no_output(command: Command, tmp_path: Path) -> None:
    files = ["--json", "report.json", "--junit", "report.xml"]
    callers = ["--with", "Authorization: Bearer hunter2", "--other-caller", "Authorization: Bearer hunter3"]
    code, said, complained = command(Service(), *callers, *files)
    written = (tmp_path / "report.json").read_text() + (tmp_path / "report.xml").read_text()
    assert code == 0
    assert "hunter" not in said + complained + written


def test_json_on_stdout_is_all_there_is(command: Command) -> None:
    code, said, _ = command(IgnoresTheBody(), "--json", "-")
    report = json.loads(said)
    assert code == 1
    assert (report["passed"], report["counts"]["failed"]) == (False, 1)
    assert [case["id"] for case in report["cases"]] == [case.id for case in CASES]


def test_a_failed_case_is_whole_in_json(command: Command, tmp_path: Path) -> None:
    command(IgnoresTheBody(), "--json", "report.json")
    cases = json.loads((tmp_path / "report.json").read_bytes())["cases"]
    [failed] = [case for case in cases if case["verdict"] == "failed"]
    assert (failed["id"], failed["severity"], failed["rule"], failed["expected"]) == (
        "other-body",
        "must",
        "draft 2.7",
        "422",
    )
    assert failed["seen"].startswith("201 ")


def _suite(path: Path) -> ET.Element:
    suite = ET.parse(path).getroot().find("testsuite")  # noqa: S314 - we wrote it
    assert suite is not None
    return suite


def test_junit_has_a_test_for_every_case(command: Command, tmp_path: Path) -> None:
    command(Service(), "--junit", "report.xml")
    suite = _suite(tmp_path / "report.xml")
    assert [test.get("name") for test in suite] == [case.id for case in CASES]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == (str(len(CASES)), "0", "5")


@pytest.mark.parametrize(
    ("service", "options", "failures"),
    [
        (IgnoresTheBody, [], ["other-body"]),
        (DoesNotMarkReplays, [], []),
        (DoesNotMarkReplays, ["--strict"], ["replay-marked"]),
    ],
    ids=["a must", "a should", "a should, strict"],
)
def test_junit_fails_what_the_exit_code_fails(
    service: type[Service], options: list[str], failures: list[str], command: Command, tmp_path: Path
) -> None:
    command(service(), "--junit", "report.xml", *options)
    suite = _suite(tmp_path / "report.xml")
    assert [test.get("name") for test in suite if test.find("failure") is not None] == failures
    assert suite.get("failures") == str(len(failures))


def test_a_report_that_cannot_be_written_says_so(command: Command) -> None:
    code, _, complained = command(Service(), "--json", "no/such/folder/report.json")
    assert code == 2
    assert "The cases were run." in complained


def test_an_option_wins_over_the_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "target.toml").write_text(
        'url = "http://127.0.0.1:1/"\nrequired = true\nbody = "{}"\nslow-body = "{}"\n'
    )
    code, said, _ = command(Service(), "--target", "target.toml", "--body", '{"amount": 7}', "--json", "-")
    seen = {case["id"]: case for case in json.loads(said)["cases"]}
    assert code == 1
    assert seen["missing-key"]["verdict"] == "failed"
    assert seen["same-number"]["seen"] == "7.0 for 7: replayed"


@pytest.mark.parametrize(("option", "app"), [("--app", "asgi"), ("--wsgi", "wsgi")])
def test_an_app_of_this_machine_is_served_and_stopped(option: str, app: str) -> None:
    done = _semel("conform", "/payments", option, f"tests.conform.apps:{app}", "--effects", "/effects", "--json", "-")
    report = json.loads(done.stdout)
    port = int(report["url"].split(":")[2].partition("/")[0])
    assert (done.returncode, report["counts"]["failed"], done.stderr) == (0, 0, "")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.parametrize("app", ["no.such:app", "tests.conform.apps:nothing", "tests.conform.apps:_service"])
def test_an_app_that_cannot_be_served_is_one_line(app: str) -> None:
    done = _semel("conform", "/payments", "--wsgi", app)
    if app.endswith("_service"):  # found, and no app: the service answers 500
        assert done.returncode == 1
    else:
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith("semel: target_invalid: ")
        assert "Error: " in done.stderr


def test_what_an_app_prints_can_be_kept(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    _semel("conform", "/payments", "--wsgi", "tests.conform.apps:_service", "--log", str(log))
    assert "'Service' object is not callable" in log.read_text()


def _semel(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-W", "error", "-m", "semel", *arguments]
    return run_bounded(command, 90, cwd=root, env={**os.environ, "PYTHONPATH": str(root / "src")})
