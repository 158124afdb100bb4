"""What a run left behind, gathered for the checker; and the last question for every key, once the killing is over."""

from pathlib import Path
from typing import NamedTuple

from semel import DidNotHappen, Happened, Policy, Semel
from semel.errors import SemelError
from tests.kill.grounds.ground import Ground, Row
from tests.kill.ledger import ANSWERS, EFFECTS, Ledger, Line, read_ledger
from tests.kill.positions import Mode, Modes, mode_of
from tests.kill.run import Hit, Outage, Run

_HOLD = Policy(in_doubt="hold", when_running="reject")
_RERUN = Policy(when_running="reject")


class Settled(NamedTuple):
    """What a key came to: its record, and the value that a last asker gets."""

    status: str
    value: str
    fence: int
    steps: int
    in_doubt_before: bool = False
    attempts: int = 0
    """How many attempts the record counts."""
    entered: tuple[int, ...] = ()
    """The numbers of the attempts that its history tells, in their order."""


class History(NamedTuple):
    """Everything the verdict rests on."""

    effects: list[Line]
    modes: Modes
    rows: list[Row]
    answers: list[Line]
    kills: list[tuple[Hit, ...]]
    outages: list[Outage]
    settled: dict[int, Settled]
    lease_us: int


def settle(folder: Path, ground: Ground, keys: int) -> dict[int, Settled]:
    """Resolve what is held, by what the ledger knows, then ask for every key a last time: all must have an answer."""
    effects = {line.key: line for line in read_ledger(folder / EFFECTS) if line.what == "effect" and not line.step}
    settled = {}
    with Semel(ground.store()) as semel:
        semel.sweep()
        held = {int(record.key.value) for record in semel.records(status="in_doubt", operation=Mode.HOLD.name)}
        for key in held:
            resolution = Happened(effects[key].value) if key in effects else DidNotHappen()
            semel.resolve(str(key), resolution, operation=Mode.HOLD.name, reason="looked up in the ledger")
        ledger = Ledger(folder / EFFECTS, durable=True)
        for key in range(keys):
            settled[key] = _last_question(
                semel, ledger, key, mode_of(key, ground.modes), may_run=key in held and key not in effects
            )
    if ground.cache is not None:
        _ask_the_cache(folder, ground, ground.cache, keys)
    return {key: end._replace(in_doubt_before=key in held) for key, end in settled.items()}


def _ask_the_cache(folder: Path, ground: Ground, cache: str, keys: int) -> None:
    """One more answer for every key, by way of the cache; whether it is the right one is judged with the others."""
    ledger = Ledger(folder / ANSWERS, durable=False)
    with Semel(ground.store(), cache=cache) as semel:
        for key in range(keys):
            mode = mode_of(key, ground.modes)
            try:
                result = semel.run(
                    str(key),
                    _nobody,
                    operation=mode.name,
                    fingerprint=None,
                    policy=_HOLD if mode is Mode.HOLD else _RERUN,
                )
                what, value = "cached" if result.cache == "hit" else "replayed", result.value
            except (SemelError, AssertionError) as error:
                what, value = "replayed", f"{type(error).__name__}: {error}"[:40]
            ledger.append(Line(what, mode, key, 0, 0, 0, 0, 0, key, 0, 0, value))


def _nobody() -> str:
    message = "nobody is left to run this key"
    raise AssertionError(message)


def _last_question(semel: Semel, ledger: Ledger, key: int, mode: Mode, *, may_run: bool) -> Settled:
    def handler() -> str:
        if not may_run:
            _nobody()
        fence = semel.current().fence
        line = Line("effect", mode, key, 0, fence, semel.current().number, 0, 0, key, 0, 0, f"{fence}.0.{key}")
        ledger.append(line)
        return line.value

    policy = _HOLD if mode is Mode.HOLD else _RERUN
    try:
        value = semel.run(str(key), handler, operation=mode.name, fingerprint=None, policy=policy).value
    except (SemelError, AssertionError) as error:
        value = f"{type(error).__name__}: {error}"
    record = semel.read(str(key), operation=mode.name)
    if record is None:
        return Settled("absent", value, 0, 0)
    entries = semel.history(str(key), operation=mode.name)
    entered = tuple(entry.number for entry in entries if entry.kind in ("attempt", "taken_over"))
    steps = len(record.steps)
    return Settled(record.status, value, record.fence, steps, attempts=record.attempts, entered=entered)


def gather(folder: Path, ground: Ground, run: Run, settled: dict[int, Settled], lease_us: int) -> History:
    """Read the ledgers and the table."""
    effects, answers = list(read_ledger(folder / EFFECTS)), list(read_ledger(folder / ANSWERS))
    return History(effects, ground.modes, ground.rows(), answers, run.kills, run.outages, settled, lease_us)
