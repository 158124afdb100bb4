"""Services that are right pass, each in its own way, and what cannot be seen is not called passed."""

from __future__ import annotations

import json
import socket
from collections.abc import Hashable
from dataclasses import replace

import pytest

from semel_lab.conform import CASES, NotSeen, Target, TargetInvalid, Unreachable, conform
from tests.conform.conftest import Judge, failed, verdicts, whole_target
from tests.conform.service import Asked, Kept, Refused, Service, Told
from tests.conform.serving import serving
from tests.conform.wrong_comparisons import IgnoresTheBody

pytestmark = pytest.mark.slow


def test_a_right_service_passes_every_case(judge: Judge) -> None:
    assert verdicts(judge(Service())) == {case.id: "passed" for case in CASES}


class Waits(Service):
    """A duplicate waits for the answer of the first."""

    def settle(self, asked: Asked, identity: Hashable, kept: Kept, told: Told) -> None:
        super().settle(asked, identity, kept, told)
        kept.done.set()

    def duplicate(self, asked: Asked, kept: Kept, fingerprint: Hashable) -> Told:
        kept.met.set()
        if kept.fingerprint == fingerprint:
            kept.done.wait(60)
        return super().duplicate(asked, kept, fingerprint)


class SaysTooEarly(Service):
    """425 where others say 409."""

    def running(self, asked: Asked) -> Told:
        return replace(super().running(asked), status=425)


class RefusesBareKeys(Service):
    """Only a structured-field string is a key."""

    def spelled(self, line: str) -> str:
        if not line.startswith('"'):
            raise Refused("The key is not quoted.")
        return super().spelled(line)


class KeepsPathsApart(Service):
    """The same key on another path is another record."""

    def identity(self, asked: Asked, key: str) -> Hashable:
        return asked.path, asked.caller, key


class AlwaysSaysTheSame(Service):
    """No answer tells which payment it is about."""

    def paid(self) -> Told:
        return replace(super().paid(), body=b'{"ok": true}')


class DuplicateMembersAreAnotherRequest(Service):
    """A member given twice is taken, as it stands."""

    def members(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        return {
            f"{place}" if len(dict(pairs)) < len(pairs) else name: value for place, (name, value) in enumerate(pairs)
        }


RIGHT = [Waits, SaysTooEarly, RefusesBareKeys, KeepsPathsApart, AlwaysSaysTheSame, DuplicateMembersAreAnotherRequest]


@pytest.mark.parametrize("kind", RIGHT, ids=lambda kind: kind.__name__)
def test_another_right_way_is_not_called_wrong(kind: type[Service], judge: Judge) -> None:
    assert failed(judge(kind())) == []


@pytest.mark.parametrize("kind", [AlwaysSaysTheSame, Service], ids=lambda kind: kind.__name__)
def test_without_a_counter_effects_are_not_seen(kind: type[Service], judge: Judge) -> None:
    report = judge(kind(), effects=None)
    told = {name for name, verdict in verdicts(report).items() if verdict == "not seen"}
    assert failed(report) == []
    assert {"one-effect", "duplicates-one-effect", "disconnect-one-effect"} <= told


def test_equal_answers_alone_do_not_prove_one_record() -> None:
    class SaysTheSameAndIgnoresTheBody(AlwaysSaysTheSame, IgnoresTheBody):
        pass

    with serving(SaysTheSameAndIgnoresTheBody()) as url:
        report = conform(Target(url=f"{url}/payments"))
    assert verdicts(report)["quoted-and-bare"] == "not seen"


@pytest.mark.parametrize(
    ("missing", "cases"),
    [
        ("other_caller", ["other-caller"]),
        ("other_path", ["other-path"]),
        ("slow_body", ["duplicate-while-running", "other-body-while-running"]),
    ],
)
def test_what_was_not_told_is_not_seen(missing: str, cases: list[str], judge: Judge) -> None:
    seen = verdicts(judge(Service(), **{missing: () if missing == "other_caller" else None}))
    assert [seen[case] for case in cases] == ["not seen"] * len(cases)


def test_a_body_without_a_number_leaves_numbers_unseen(judge: Judge) -> None:
    seen = verdicts(judge(Service(), body=b'{"currency": "EUR"}'))
    assert (seen["same-number"], seen["near-numbers"], seen["member-order"]) == ("not seen",) * 3


def test_a_body_that_is_not_json_leaves_json_unseen(judge: Judge) -> None:
    class TakesText(Service):
        def canonical(self, body: bytes) -> str:
            return body.decode()

    report = judge(TakesText(), content_type="text/plain", body=b"pay 12", other_body=b"pay 13", slow_body=None)
    assert failed(report) == []
    assert verdicts(report)["white-space"] == "not seen"
    assert verdicts(report)["other-body"] == "passed"


def test_an_other_body_that_is_refused_by_itself_proves_nothing(judge: Judge) -> None:
    class TakesOneAmount(Service):
        def fingerprint(self, asked: Asked) -> Hashable:
            if json.loads(asked.body).get("amount") != 12.5:
                raise Refused("Not that amount.")
            return super().fingerprint(asked)

    report = judge(TakesOneAmount(), slow_body=None)
    assert failed(report) == []
    assert verdicts(report)["other-body"] == "not seen"


def test_what_rests_on_a_failed_case_is_not_seen_and_says_so(judge: Judge) -> None:
    report = judge(IgnoresTheBody())
    [near] = [result for result in report.results if result.case.id == "near-numbers"]
    assert near.verdict == NotSeen("it rests on other-body, which failed")


def test_a_required_key_is_asked_for(judge: Judge) -> None:
    class Requires(Service):
        required = True

    assert failed(judge(Requires(), required=True)) == []


def test_a_required_key_that_is_not_asked_for_is_told(judge: Judge) -> None:
    assert failed(judge(Service(), required=True)) == ["missing-key"]


def test_another_status_for_a_reused_key_can_be_agreed_on(judge: Judge) -> None:
    class SaysConflict(Service):
        def reused(self, asked: Asked) -> Told:
            return self.problem(400, "The key stands for another request.")

    assert failed(judge(SaysConflict(), reused_status=400)) == []


class SaysLocked(Service):
    """423 where others say 409."""

    def running(self, asked: Asked) -> Told:
        return replace(super().running(asked), status=423)


def test_another_status_for_what_still_runs_can_be_agreed_on(judge: Judge) -> None:
    assert failed(judge(SaysLocked(), running_status=423)) == []


def test_another_status_for_what_still_runs_is_told_where_it_was_not_agreed_on(judge: Judge) -> None:
    assert {"duplicates-agree", "duplicate-while-running"} & set(failed(judge(SaysLocked())))


def test_a_service_that_knows_only_bare_keys_can_be_judged(judge: Judge) -> None:
    class KnowsNoQuotes(Service):
        def spelled(self, line: str) -> str:
            if '"' in line:
                raise Refused("What is a quote?")
            return super().spelled(line)

    assert failed(judge(KnowsNoQuotes(), bare=True)) == []


def test_nobody_there_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unreachable, match="nothing was sent"):
        conform(Target(url=f"http://127.0.0.1:{port}/payments"))


@pytest.mark.parametrize("pointer", ["/name", "/nowhere", "/count/deeper"])
def test_a_counter_that_gives_no_number_is_refused(pointer: str) -> None:
    with serving(Service()) as url, pytest.raises(TargetInvalid, match="cannot be counted"):
        conform(whole_target(url, effects_pointer=pointer))


def test_a_number_can_be_pointed_at(judge: Judge) -> None:
    assert verdicts(judge(Service(), effects_pointer="/count"))["one-effect"] == "passed"


def test_progress_is_told_case_by_case() -> None:
    told: list[tuple[int, int, str]] = []
    with serving(Service()) as url:
        conform(whole_target(url), progress=lambda *step: told.append(step))
    assert told == [(number, len(CASES), case.id) for number, case in enumerate(CASES)]
