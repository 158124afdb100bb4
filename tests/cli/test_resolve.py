"""`semel resolve` on a real file, with and without a terminal."""

import os
import pty
import select
import signal
from collections.abc import Callable

import pytest

from semel import Policy, Semel
from semel.cli import main
from semel.errors import FailedBefore
from tests.cli.conftest import Database, Run, command, environment
from tests.processes import child

HOLD = Policy(in_doubt="hold")


def answer(database: Database, key: str, value: object = "ran again") -> object:
    with Semel(database.path, policy=HOLD) as semel:
        return semel.run(key, lambda: value, operation="charge", fingerprint=None, scope="acme").value


def test_what_happened_is_given_to_duplicates(database: Database, run: Run) -> None:
    record = database.in_doubt("o-1")
    done = run("resolve", record.reference[:8], database.url, "--happened", '{"id": 7}', "--reason", "seen", "--yes")
    assert done.returncode == 0
    assert "completed" in done.stdout
    assert answer(database, "o-1") == {"id": 7}


def test_what_did_not_happen_runs_again(database: Database, call: Run) -> None:
    database.in_doubt("o-1")
    named = ("--operation", "charge", "--scope", "acme")
    done = call("resolve", "o-1", database.url, *named, "--did-not-happen", "--reason", "not there", "--yes")
    assert done.returncode == 0
    assert answer(database, "o-1") == "ran again"


def test_what_is_cancelled_never_runs(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    assert call("resolve", record.reference, database.url, "--cancelled", "--reason", "no", "--yes").returncode == 0
    with pytest.raises(FailedBefore):
        answer(database, "o-1")


def test_reason_and_name_are_kept_and_shown(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    options = ("--did-not-happen", "--reason", "asked \x1b[7m the bank", "--by", "jane", "--yes")
    assert call("resolve", record.reference, database.url, *options).returncode == 0
    note = database.read("o-1").note
    assert note is not None
    assert (note.resolution, note.reason, note.by) == ("DidNotHappen", "asked \x1b[7m the bank", "jane")
    shown = call("show", record.reference, database.url).stdout
    assert "DidNotHappen  by jane" in shown
    assert "asked \\x1b[7m the bank" in shown


def test_the_login_name_is_the_default(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    call("resolve", record.reference, database.url, "--cancelled", "--reason", "no", "--yes", LOGNAME="operator-7")
    note = database.read("o-1").note
    assert note is not None
    assert note.by == "operator-7"


def test_without_a_terminal_and_yes_nothing_is_changed(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    done = call("resolve", record.reference, database.url, "--cancelled", "--reason", "no")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert database.read("o-1") == record


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--cancelled", "--did-not-happen"],
        ["--cancelled", "--happened", "1"],
        ["--happened", "not json"],
        ["--happened", "NaN"],
        ["--happened", "1e999"],
        ["--happened", "0.12345678901234567890"],
        ["--happened", "[" * 100_000],
        ["--happened", r'"\ud800"'],
    ],
)
def test_an_unclear_decision_is_refused(database: Database, options: list[str]) -> None:
    record = database.in_doubt("o-1")
    assert main(["resolve", record.reference, database.url, "--reason", "x", "--yes", *options]) == 2
    assert database.read("o-1") == record


@pytest.mark.parametrize("reason", [[], ["--reason", ""], ["--reason", "  "]])
def test_a_decision_needs_a_reason(database: Database, reason: list[str]) -> None:
    record = database.in_doubt("o-1")
    assert main(["resolve", record.reference, database.url, "--cancelled", "--yes", *reason]) == 2
    assert database.read("o-1") == record


@pytest.mark.parametrize("kind", ["completed", "running"])
def test_only_what_is_in_doubt_is_resolved(database: Database, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    record = getattr(database, kind)("o-1")
    assert main(["resolve", record.reference, database.url, "--cancelled", "--reason", "x", "--yes"]) == 2
    assert capsys.readouterr().err.startswith("semel: not_resolvable: ")
    assert database.read("o-1").status == kind


def asked(database: Database, reference: str, react: Callable[[int, int], object]) -> tuple[int, str]:
    """The command on a terminal; `react` gets the terminal and the process once the question stands there."""
    controller, terminal = pty.openpty()
    with child(
        command(["resolve", reference, database.url, "--cancelled", "--reason", "no"]),
        env=environment(TERM="xterm", COLUMNS="100"),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        output, reacted = "", False
        for _ in range(200):
            if not select.select([controller], [], [], 1)[0]:
                continue
            try:
                output += os.read(controller, 4096).decode(errors="replace")
            except OSError:  # the other end is closed
                break
            if "Resolve it so?" in output and not reacted:
                react(controller, process.pid)
                reacted = True
        os.close(controller)
        return process.wait(60), output


def typing(text: str) -> Callable[[int, int], object]:
    return lambda terminal, _process: os.write(terminal, text.encode())


def test_on_a_terminal_it_asks_first(database: Database) -> None:
    record = database.in_doubt("o-1")
    code, output = asked(database, record.reference, typing("n\n"))
    assert code == 1
    assert "Nothing was changed." in output
    assert database.read("o-1") == record
    code, output = asked(database, record.reference, typing("y\n"))
    assert code == 0
    assert database.read("o-1").status == "cancelled"


def test_a_record_that_changed_during_the_question_is_left_alone(database: Database) -> None:
    record = database.in_doubt("o-1")

    def meanwhile(terminal: int, process: int) -> None:
        arguments = ["resolve", record.reference, database.url, "--did-not-happen", "--reason", "first", "--yes"]
        assert main(arguments) == 0
        typing("y\n")(terminal, process)

    code, output = asked(database, record.reference, meanwhile)
    assert code == 1
    assert "concurrent_modification" in output
    assert database.read("o-1").status == "failed"


def interrupting(terminal: int, process: int) -> None:
    """Ctrl-C, and then the end of a line: a signal that comes before Python reads is noticed when the reading ends."""
    os.kill(process, signal.SIGINT)
    os.write(terminal, b"\n")


def test_ctrl_c_at_the_question_changes_nothing(database: Database) -> None:
    record = database.in_doubt("o-1")
    code, _ = asked(database, record.reference, interrupting)
    assert code == 130
    assert database.read("o-1") == record


APP = """
from dataclasses import dataclass
from semel import {kind}

@dataclass
class Receipt:
    number: int

semel = {kind}("sqlite:///semel.db")

@semel.once(key="order", scope="tenant", operation="charge", in_doubt="hold")
{function} charge(tenant: str, order: str) -> Receipt:
    raise TimeoutError
"""
APPS = {
    "sync": APP.format(kind="Semel", function="def"),
    "async": APP.format(kind="AsyncSemel", function="async def"),
}


@pytest.mark.parametrize("kind", APPS)
def test_a_value_that_the_function_does_not_return_is_refused_with_app(
    database: Database, call: Run, kind: str
) -> None:
    record = database.in_doubt("o-1")
    (database.path.parent / "shop.py").write_text(APPS[kind])
    options = ("--app", "shop:semel", "--reason", "seen", "--yes")
    done = call("resolve", record.reference, "--happened", '"receipt 7"', *options)
    assert done.returncode == 2
    assert "not what the operation returns" in done.stderr
    assert "nothing was changed" in done.stderr
    assert database.read("o-1").status == "in_doubt"
    done = call("resolve", record.reference, "--happened", '{"number": 7}', *options)
    assert done.returncode == 0, done.stderr
    assert database.read("o-1").status == "completed"


def test_an_app_that_does_not_know_the_operation_is_refused(database: Database, call: Run) -> None:
    record = database.failed("o-1", HOLD)
    (database.path.parent / "shop.py").write_text(APPS["sync"].replace('operation="charge"', 'operation="refund"'))
    done = call("resolve", record.reference, "--happened", "1", "--app", "shop:semel", "--reason", "seen", "--yes")
    assert done.returncode == 2
    assert "knows no operation 'charge', only refund" in done.stderr
    assert database.read("o-1").status == "in_doubt"


def test_app_and_a_url_are_not_given_together(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    done = call("resolve", record.reference, database.url, "--cancelled", "--app", "a:b", "--reason", "x", "--yes")
    assert done.returncode == 2
    assert "--app brings its own database" in done.stderr


def test_a_value_that_nobody_checked_is_said_to_be_so(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    done = call("resolve", record.reference, database.url, "--happened", "1", "--reason", "seen", "--yes")
    assert "was not compared with what the operation returns" in done.stdout
    assert "--app" in done.stdout


def test_a_wrong_value_is_corrected_with_correct(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    stated = ("resolve", record.reference, database.url, "--reason", "seen", "--yes")
    assert call(*stated, "--happened", '"wrong"').returncode == 0
    again = call(*stated, "--happened", '"right"')
    assert again.returncode == 2
    assert "--correct" in again.stderr
    assert answer(database, "o-1") == "wrong"
    assert call(*stated, "--happened", '"right"', "--correct").returncode == 0
    assert answer(database, "o-1") == "right"


def test_what_a_handler_returned_cannot_be_corrected(database: Database, call: Run) -> None:
    record = database.completed("o-1", "its own")
    done = call("resolve", record.reference, database.url, "--happened", "1", "--correct", "--reason", "x", "--yes")
    assert done.returncode == 2
    assert "none to correct" in done.stderr
    assert database.read("o-1") == record
