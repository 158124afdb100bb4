"""Where a worker can be when it is killed. The worker writes the position down before it goes on; the dead cannot lie.

What always holds: a position names the stretch of the way that begins with it, so a process killed at `DONE` has had
its effect and has not yet begun to complete.
"""

from enum import IntEnum, unique
from typing import Final


@unique
class At(IntEnum):
    """A stretch of the way of one operation."""

    IDLE = 0
    ASKING = 1
    CLAIMING = 2
    CLAIM_WRITTEN = 3
    CLAIMED = 4
    WAITING = 5
    STARTED = 6
    IN_EFFECT = 7
    DONE = 8
    RETURNING = 9
    COMPLETING = 10
    COMPLETE_WRITTEN = 11
    COMPLETED = 12
    LOOKING = 13
    FILLING = 14
    STEP_STARTED = 20
    STEP_EFFECT = 21
    STEP_DONE = 22
    STEP_SAVING = 23
    STEP_WRITTEN = 24
    STEP_SAVED = 25
    STEP_JOINED = 30
    STEP_JOINED_EFFECT = 31
    STEP_JOINED_SAVED = 32
    STEP_COMMITTING = 33
    STEP_COMMITTED = 34
    BEGUN = 40
    JOINING = 41
    JOINED = 42
    JOINED_STARTED = 43
    JOINED_EFFECT = 44
    JOINED_COMPLETING = 45
    JOINED_COMPLETED = 46
    COMMITTING = 47
    COMMITTED = 48


MEANING: Final = {
    At.IDLE: "between two operations",
    At.ASKING: "before the claim",
    At.CLAIMING: "in the claim, sent to the store",
    At.CLAIM_WRITTEN: "in the claim, written, until committed",
    At.CLAIMED: "after the claim, before the handler",
    At.WAITING: "waiting for the owner, or refused",
    At.STARTED: "in the handler, before the effect",
    At.IN_EFFECT: "in the effect",
    At.DONE: "in the handler, after the effect",
    At.RETURNING: "handler done, before complete",
    At.COMPLETING: "in complete, sent to the store",
    At.COMPLETE_WRITTEN: "in complete, written, until committed",
    At.COMPLETED: "after complete, before the caller knows",
    At.LOOKING: "in a look into the cache",
    At.FILLING: "in filling the cache with what the store replayed",
    At.STEP_STARTED: "in a step, before its effect",
    At.STEP_EFFECT: "in the effect of a step",
    At.STEP_DONE: "step done, before its checkpoint",
    At.STEP_SAVING: "in the checkpoint, sent to the store",
    At.STEP_WRITTEN: "in the checkpoint, written, until committed",
    At.STEP_SAVED: "after the checkpoint",
    At.STEP_JOINED: "step within: entered, before its effect",
    At.STEP_JOINED_EFFECT: "step within: after its effect",
    At.STEP_JOINED_SAVED: "step within: checkpoint written, before commit",
    At.STEP_COMMITTING: "step within: during commit",
    At.STEP_COMMITTED: "step within: after commit",
    At.BEGUN: "within: after begin",
    At.JOINING: "within: in the claim",
    At.JOINED: "within: after the claim",
    At.JOINED_STARTED: "within: in the handler, before the effect",
    At.JOINED_EFFECT: "within: after the effect",
    At.JOINED_COMPLETING: "within: in complete",
    At.JOINED_COMPLETED: "within: completed, before commit",
    At.COMMITTING: "within: during commit",
    At.COMMITTED: "within: after commit",
}

# Killed here, the effect may have happened and no outcome is recorded: what explains a second effect, and nothing else
# does. From COMPLETED and STEP_SAVED on the store has committed, so a repetition would be semel's fault.
EXPLAINS_RERUN: Final = frozenset({At.IN_EFFECT, At.DONE, At.RETURNING, At.COMPLETING, At.COMPLETE_WRITTEN})
EXPLAINS_STEP: Final = frozenset({At.STEP_EFFECT, At.STEP_DONE, At.STEP_SAVING, At.STEP_WRITTEN})
# The write lock is held, or a commit is on its way: after the barrier is lifted the kill falls into it.
IN_COMMIT: Final = frozenset(
    {At.CLAIM_WRITTEN, At.COMPLETE_WRITTEN, At.STEP_WRITTEN, At.STEP_COMMITTING, At.COMMITTING}
)
# Where there is no time between writing and committing, these are no places to be at.
_IN_ROUND: Final = frozenset({At.CLAIM_WRITTEN, At.COMPLETE_WRITTEN, At.STEP_WRITTEN})
_IN_CACHE: Final = frozenset({At.LOOKING, At.FILLING})
# Where no transaction of a caller is joined, nobody is ever in one.
_IN_TRANSACTION: Final = frozenset(at for at in At if at >= At.STEP_JOINED)
# Where a worker is stopped for longer than its lease: it holds no lock of the database there, only its claim.
STALLS: Final = (At.CLAIMED, At.STARTED, At.IN_EFFECT, At.DONE, At.RETURNING, At.STEP_STARTED, At.STEP_DONE)


@unique
class Mode(IntEnum):
    """What kind of operation a key stands for."""

    RERUN = 0
    WITHIN = 1
    STEPS = 2
    HOLD = 3
    PLAIN_STEPS = 4


Modes = tuple[Mode, ...]
JOINING: Final[Modes] = (Mode.WITHIN, Mode.STEPS, Mode.RERUN, Mode.WITHIN, Mode.STEPS, Mode.HOLD, Mode.RERUN)
"""Where a caller's transaction can be joined: keys take these modes in turn."""
ALONE: Final[Modes] = (Mode.RERUN, Mode.PLAIN_STEPS, Mode.HOLD, Mode.PLAIN_STEPS, Mode.RERUN)
"""Where the store has no transaction to share."""


def positions_of(modes: Modes, *, commits_rounds: bool, cached: bool) -> tuple[At, ...]:
    """Where a worker can be under these modes, with a store that commits rounds of statements or each by itself."""
    absent = (
        (frozenset() if commits_rounds else _IN_ROUND)
        | (frozenset() if cached else _IN_CACHE)
        | (frozenset() if Mode.WITHIN in modes else _IN_TRANSACTION)
    )
    return tuple(at for at in At if at not in absent)


def mode_of(key: int, modes: Modes) -> Mode:
    """The mode of the key with this number."""
    return modes[key % len(modes)]
