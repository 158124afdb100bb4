"""TLC checks the TLA+ model in docs/model.

`Semel.cfg`, semel as it is, must pass; every weakened configuration must fail, each for its own
reason. Small edits of the model must not go unnoticed either, so that every property has been seen
to fail. SEMEL_EFFORT=full allows for more faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.effort import FULL
from tests.model.tlc import SPEC, Tlc, Verdict

MODEL: Final = Path(__file__).parents[2] / "docs" / "model"
REAL: Final = "Semel.cfg"
STATED: Final = "Stated.cfg"  # with operators, and therefore one worker less
REOPENED: Final = "Reopened.cfg"  # with operators who force and reopen, and consumers who count
STATING: Final = {"Resolve", "Look", "Correct"}
REOPENING: Final = {"Force", "LookAtFailure", "Reopen", "Count"}
WEAKENED: Final = {
    "NoFence.cfg": "UseFence",
    "NoNonce.cfg": "UseNonce",
    "NoFingerprint.cfg": "CompareFingerprint",
    "ForgetDoubt.cfg": "KeepDoubt",
}

pytestmark = pytest.mark.timeout(900)

PROPERTY: Final = re.compile(r"^    (\w+)$", re.MULTILINE)
ACTION: Final = re.compile(r"^<(\w+) line .*>: \d+:(\d+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def tlc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tlc]:
    checker = Tlc(tmp_path_factory.mktemp("tlc"))
    yield checker
    checker.close()


@pytest.fixture(scope="module")
def counting_tlc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tlc]:
    """TLC, and how often it took each action; that takes it twice as long."""
    checker = Tlc(tmp_path_factory.mktemp("tlc"), "-coverage", "1")
    yield checker
    checker.close()


def text(name: str) -> str:
    return (MODEL / name).read_text(encoding="utf-8")


def replace_once(before: str, old: str, new: str) -> str:
    assert before.count(old) == 1, f"expected once, found {before.count(old)} times: {old!r}"
    return before.replace(old, new)


def only(config: str, name: str) -> str:
    """The configuration with all properties but one taken out; deadlock is always checked."""
    return PROPERTY.sub(lambda match: match[0] if match[1] == name else "", config)


def two_workers(config: str) -> str:
    """Two are enough for most mistakes, and found sooner."""
    return replace_once(config, "{w1, w2, w3}", "{w1, w2}")


def assert_passes(verdict: Verdict, *, more_than: int) -> None:
    assert verdict.code == 0, verdict.output
    assert "No error has been found" in verdict.output
    assert verdict.distinct > more_than


def assert_violates(verdict: Verdict, name: str) -> None:
    assert verdict.violated == name, verdict.output
    assert verdict.code != 0


def actions_taken(verdict: Verdict) -> set[str]:
    return {name for name, times in ACTION.findall(verdict.output) if int(times) > 0} - {"Init"}


def actions_of(spec: str) -> set[str]:
    _, rest = spec.split("\nNext ==\n")
    return set(re.findall(r"\\/ ([A-Z]\w+)", rest.split("\n\n")[0]))


def with_faults(config: str, faults: int) -> str:
    return re.sub(r"MaxFaults = \d", f"MaxFaults = {faults}", config)


@pytest.mark.slow
def test_semel_keeps_its_promises(tlc: Tlc) -> None:
    faults, states = (4, 500_000) if FULL else (1, 50_000)
    assert_passes(tlc.check(text(SPEC), with_faults(text(REAL), faults)), more_than=states)


@pytest.mark.slow
def test_two_workers_and_two_faults_take_every_action_and_keep_the_promises(counting_tlc: Tlc) -> None:
    verdict = counting_tlc.check(text(SPEC), two_workers(text(REAL)))
    assert_passes(verdict, more_than=15_000)
    assert actions_taken(verdict) == actions_of(text(SPEC)) - STATING - REOPENING


@pytest.mark.slow
def test_semel_keeps_its_promises_where_operators_state_and_correct(counting_tlc: Tlc) -> None:
    faults, states = (2, 40_000) if FULL else (1, 15_000)
    verdict = counting_tlc.check(text(SPEC), with_faults(text(STATED), faults))
    assert_passes(verdict, more_than=states)
    assert actions_taken(verdict) == actions_of(text(SPEC)) - REOPENING


@pytest.mark.slow
def test_semel_keeps_its_promises_where_operators_force_and_reopen_and_failures_are_counted(counting_tlc: Tlc) -> None:
    reopenings, states = ("{r1, r2}", 100_000) if FULL else ("{r1}", 40_000)
    verdict = counting_tlc.check(text(SPEC), replace_once(text(REOPENED), "{r1, r2}", reopenings))
    assert_passes(verdict, more_than=states)
    assert actions_taken(verdict) == actions_of(text(SPEC)) - STATING - {"Expire"}


@pytest.mark.slow
def test_semel_keeps_its_promises_where_operators_reopen_twice(tlc: Tlc) -> None:
    assert_passes(tlc.check(text(SPEC), with_faults(text(REOPENED), 0)), more_than=15_000)


def test_the_configuration_with_operators_asks_for_the_same_promises() -> None:
    _, real = text(REAL).split("\n", 1)
    _, stated = text(STATED).split("\n", 1)
    assert stated == replace_once(two_workers(real), "Statements = {}", "Statements = {s1, s2}")


def test_the_configuration_with_second_chances_asks_for_the_same_promises() -> None:
    _, asked = text(REAL).split("\n", 1)
    _, reopened = text(REOPENED).split("\n", 1)
    for old, new in (
        ("Forces = {}", "Forces = {f1}"),
        ("Reopenings = {}", "Reopenings = {r1, r2}"),
        ("Failures = {}", "Failures = {c1}"),
        ("MaxFaults = 2", "MaxFaults = 1"),
        ("MaxGenerations = 2", "MaxGenerations = 1"),
    ):
        asked = replace_once(asked, old, new)
    assert reopened == two_workers(asked)


@pytest.mark.slow
def test_every_call_ends(tlc: Tlc) -> None:
    faults, states = (2, 15_000) if FULL else (1, 5_000)
    assert_passes(tlc.check(text(SPEC), with_faults(text("Settles.cfg"), faults)), more_than=states)


@pytest.mark.parametrize(("name", "constant"), WEAKENED.items())
def test_weakened_configuration_differs_in_one_constant(name: str, constant: str) -> None:
    _, real = text(REAL).split("\n", 1)
    _, weakened = text(name).split("\n", 1)
    assert weakened == replace_once(real, f"{constant} = TRUE", f"{constant} = FALSE")


# What TLC finds first, with three workers and every property asked for.
CAUGHT: Final = [
    ("NoFence.cfg", "I10_RepeatsAreTold"),
    ("NoNonce.cfg", "I10_RepeatsAreTold"),
    ("NoFingerprint.cfg", "I5_OneFingerprint"),
    ("ForgetDoubt.cfg", "I10_RepeatsAreTold"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "violated"), CAUGHT)
def test_weakened_configuration_is_caught(name: str, violated: str, tlc: Tlc) -> None:
    verdict = tlc.check(text(SPEC), text(name))
    assert_violates(verdict, violated)
    row = next(line for line in text("README.md").splitlines() if line.startswith(f"| `{name}` |"))
    assert f"| {verdict.generated:,} | {verdict.distinct:,} |" in row, "not as many states as TLC finds by itself"


@pytest.mark.slow
def test_hold_needs_the_doubt_kept(tlc: Tlc) -> None:
    config = only(text("ForgetDoubt.cfg"), "Hold_AtMostOnce")
    assert_violates(tlc.check(text(SPEC), config), "Hold_AtMostOnce")


# What else it finds, when asked for one property at a time.
ALONE: Final = [
    ("NoFence.cfg", "I4_NewestLeaseCompletes"),
    ("NoFence.cfg", "I7_NoEffectAfterOutcome"),
    ("NoNonce.cfg", "I3_AnswersRecorded"),
    ("NoNonce.cfg", "I4_NewestLeaseCompletes"),
    ("NoNonce.cfg", "I5_OneFingerprint"),
    ("NoNonce.cfg", "I7_NoEffectAfterOutcome"),
    ("NoNonce.cfg", "Hold_AtMostOnce"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "violated"), ALONE)
def test_weakened_configuration_violates(name: str, violated: str, tlc: Tlc) -> None:
    assert_violates(tlc.check(text(SPEC), two_workers(only(text(name), violated))), violated)


@dataclass(frozen=True)
class Edit:
    """A mistake somebody could make, the property that must notice it, and how many records in a row that takes.

    Where second chances are given, there is one record.

    `config` is where it shows: with operators of one kind or another, or without.
    """

    label: str
    old: str
    new: str
    violated: str
    generations: int = 2
    config: str = REAL


REFUSED: Final = """\
    /\\ IF record.status = "completed" /\\ SameFingerprint(w)
       THEN EndWith(w, record.outcome.by)
       ELSE EndWithout(w)
"""
HOLDS: Final = """\
    /\\ record.status = "running"
    /\\ UseFence => record.fence = fence
    /\\ UseNonce => record.nonce = w
"""
BOTH_ALLOW: Final = 'record.policy = "rerun" /\\ asks[w].policy = "rerun"'

CORRECTABLE: Final = 'record.status = "completed" /\\ (UseNonce => record.nonce = saw[s])'
STATED_VALUE: Final = "!.outcome = [by |-> s, generation |-> generation,"
REOPENABLE: Final = 'record.status = "final" /\\ (UseNonce => record.nonce = saw[r])'
FORCED: Final = """\
    [record EXCEPT !.status = "final", !.live = FALSE, !.doubt = FALSE,
                   !.nonce = f, !.fence = record.fence + 1,
"""
ENTERED_FAILURE: Final = """\
    /\\ record' = [record EXCEPT !.status = "final", !.live = FALSE,
                                !.history = @ \\cup Forgotten("attempt")]
"""
FIRST_STATED: Final = """\
    /\\ \\E o \\in outcomes : o.generation = generation /\\ EndWith(w, o.by)
    /\\ UNCHANGED <<asks, record, claims"""

EDITS: Final = [
    Edit(
        "a refused worker gives its own value instead of the recorded one",
        REFUSED,
        REFUSED.replace("record.outcome.by", "w"),
        "I2_AnswersEqual",
    ),
    Edit(
        "a refused worker gives its own value instead of LeaseLost",
        REFUSED,
        REFUSED.replace("EndWithout(w)", "EndWith(w, w)"),
        "I3_AnswersRecorded",
    ),
    Edit(
        "a refused worker replays another fingerprint",
        REFUSED,
        REFUSED.replace(" /\\ SameFingerprint(w)", ""),
        "I5_OneFingerprint",
    ),
    Edit(
        "a take-over starts the fence again",
        "fence       |-> record.fence + 1",
        "fence       |-> 1",
        "I4_FencesRise",
    ),
    Edit("completion is unconditional", HOLDS, "    TRUE\n", "I7_OneOutcome"),
    Edit(
        "completion forgets the status",
        HOLDS,
        HOLDS.replace('    /\\ record.status = "running"\n', ""),
        "I7_CompletedStays",
    ),
    Edit(
        "a late copy of a claim is granted because the nonce is its own",
        "record' = IF Claimable(w) THEN",
        "record' = IF Claimable(w) \\/ record.nonce = w THEN",
        "I7_CompletedStays",
    ),
    Edit(
        "a live lease is taken over",
        'record.status = "running" /\\ ~record.live\n\n',
        'record.status = "running"\n\n',
        "I9_FaultFreeOnce",
    ),
    Edit(
        "only the claimer's policy counts",
        BOTH_ALLOW,
        'asks[w].policy = "rerun"',
        "Hold_AtMostOnce",
    ),
    Edit(
        "only the record's policy counts",
        BOTH_ALLOW,
        'record.policy = "rerun"',
        "Hold_AtMostOnce",
    ),
    Edit(
        "the lease of a crashed worker never lapses",
        "IF Attended THEN Fault ELSE UNCHANGED faults",
        "Attended /\\ Fault",
        "Deadlock",
    ),
    Edit(
        "erasing leaves the fingerprint",
        """\
    [record EXCEPT !.status = "erased", !.outcome = None,
                   !.fingerprint = None,
""",
        """\
    [record EXCEPT !.status = "erased", !.outcome = None,
""",
        "Erased_NothingLeft",
    ),
    Edit(
        "the fingerprint of an erased record is compared",
        '    /\\ record.status = "erased"\n    /\\ EndWithout(w)\n',
        '    /\\ record.status = "erased" /\\ SameFingerprint(w)\n    /\\ EndWithout(w)\n',
        "Deadlock",
        generations=1,  # with a second one the record would expire, and its claim be answered by the next
    ),
    Edit(
        "an erased key is claimed anew before it expires",
        '    \\/ record.status = "absent"\n    \\/ /\\ SameFingerprint(w)\n',
        '    \\/ record.status \\in {"absent", "erased"}\n    \\/ /\\ SameFingerprint(w)\n',
        "I7_ErasedStays",
    ),
    Edit(
        "a claim on its way outlives keep_for",
        "    /\\ claims = {}\n    /\\ record' = Absent\n",
        "    /\\ record' = Absent\n",
        "I4_NewestLeaseCompletes",
    ),
    Edit(
        "a correction does not compare the record with the one that was seen",
        CORRECTABLE,
        'record.status = "completed"',
        "I4_StatedWhereSeen",
        config=STATED,
    ),
    Edit(
        "a correction settles whatever is there",
        CORRECTABLE,
        'record.status # "absent"',
        "I4_StatedWhereSeen",
        config=STATED,
    ),
    Edit(
        "what a handler gave is corrected",
        " /\\ record.nonce \\in Statements\n    /\\ saw'",
        "\n    /\\ saw'",
        "I7_CompletedStays",
        config=STATED,
    ),
    Edit(
        "a running attempt is settled by decision",
        "    /\\ InDoubt\n    /\\ Take(s)\n",
        '    /\\ record.status \\in {"running", "in_doubt"}\n    /\\ Take(s)\n',
        "I4_StatedWhereSeen",
        config=STATED,
    ),
    Edit(
        "a correction leaves the fence as it is",
        "!.nonce = s, !.fence = record.fence + 1,",
        "!.nonce = s,",
        "I4_FencesRise",
        config=STATED,
    ),
    Edit(
        "a correction leaves the value that was stated before",
        STATED_VALUE,
        STATED_VALUE.replace("[by |-> s,", "[by |-> IF record.outcome = None THEN s ELSE record.outcome.by,"),
        "I3_StatementsRecorded",
        config=STATED,
    ),
    Edit(
        "a replay tells what was stated first",
        "    /\\ EndWith(w, record.outcome.by)\n    /\\ UNCHANGED <<asks, record, claims",
        FIRST_STATED,
        "I2_AnswersCurrent",
        config=STATED,
    ),
    Edit(
        "a reopening does not compare the record with the one that was seen",
        REOPENABLE,
        'record.status = "final"',
        "I7_ReopenedWhereSeen",
        config=REOPENED,
    ),
    Edit(
        "what is completed is reopened",
        REOPENABLE,
        'record.status \\in {"final", "completed"}',
        "I7_ReopenedWhereSeen",
        config=REOPENED,
    ),
    Edit(
        "a reopening forgets what was in doubt",
        'Reopened(r) == [record EXCEPT !.status = "failed", !.nonce = r,',
        'Reopened(r) == [record EXCEPT !.status = "failed", !.nonce = r, !.doubt = FALSE,',
        "I7_ReopenedWhereSeen",
        config=REOPENED,
    ),
    Edit(
        "force ends a lease as time does, and its holder completes",
        FORCED,
        "    [record EXCEPT !.live = FALSE,\n",
        "I4_ForcedRecordsNothing",
        config=REOPENED,
    ),
    Edit(
        "force leaves the fence as it is",
        FORCED,
        FORCED.replace(", !.fence = record.fence + 1", ""),
        "I4_FencesRise",
        config=REOPENED,
    ),
    Edit(
        "a failure is counted in a record that runs",
        '    \\/ /\\ record.status = "failed"\n       /\\ CompareFingerprint',
        '    \\/ /\\ record.status \\in {"failed", "running"}\n       /\\ CompareFingerprint',
        "I4_CountedWhereOpen",
        config=REOPENED,
    ),
    Edit(
        "a failure is counted for another fingerprint",
        '       /\\ CompareFingerprint => record.fingerprint = "this"\n',
        "",
        "I4_CountedWhereOpen",
        config=REOPENED,
    ),
    Edit(
        "a failure that is sent again is counted again",
        "       /\\ UseNonce => record.nonce # f\n",
        "",
        "I4_CountedWhereOpen",
        config=REOPENED,
    ),
    Edit(
        "a take-over is not entered",
        '\\cup Forgotten("taken_over")]',
        "]",
        "History_Complete",
    ),
    Edit(
        "a failure for good is not entered",
        ENTERED_FAILURE,
        ENTERED_FAILURE.replace(',\n                                !.history = @ \\cup Forgotten("attempt")', ""),
        "History_Complete",
    ),
    Edit(
        "an attempt that ended is entered again when another one takes over",
        '    IF record.status = "running" THEN {Entry(record.fence, kind)} ELSE {}',
        '    IF record.status # "absent" THEN {Entry(record.fence, kind)} ELSE {}',
        "History_Once",
    ),
    Edit(
        "an attempt is entered when it begins",
        '\\cup Forgotten("taken_over")]',
        '\\cup Forgotten("taken_over") \\cup {Entry(record.fence + 1, "attempt")}]',
        "History_NothingEarly",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.label.replace(" ", "-"))
def test_edit_is_noticed(edit: Edit, tlc: Tlc) -> None:
    spec = replace_once(text(SPEC), edit.old, edit.new)
    config = only(text(edit.config), edit.violated)
    config = two_workers(config) if edit.config == REAL else config
    if edit.config != REOPENED:
        config = replace_once(config, "MaxGenerations = 2", f"MaxGenerations = {edit.generations}")
    verdict = tlc.check(spec, config)
    assert_violates(verdict, edit.violated)


def test_every_property_has_been_seen_to_fail() -> None:
    _, listed = text(REAL).split("\nINVARIANTS\n")
    seen = {violated for _, violated in CAUGHT + ALONE} | {edit.violated for edit in EDITS}
    assert set(PROPERTY.findall(listed)) - {"TypeOK"} == seen - {"Deadlock"}
