"""Wrong services: what they run, and what they remember of it."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import replace

from tests.conform.fault import Fault
from tests.conform.service import Asked, Kept, Told


class RunsOtherBodiesMeanwhile(Fault):
    """Bodies are compared with finished requests only."""

    told_by = "other-body-while-running"

    def duplicate(self, asked: Asked, kept: Kept, fingerprint: Hashable) -> Told:
        if kept.told is None and kept.fingerprint != fingerprint:
            kept.met.set()
            return self.paid()
        return super().duplicate(asked, kept, fingerprint)


class LooksFirstAndWritesLater(Fault):
    """Nothing is claimed: all who come before the first has finished run as well."""

    told_by = "duplicates-agree"

    def __init__(self) -> None:
        super().__init__()
        self.looking = 0
        self.another_looks = threading.Condition()

    def connection(self, change: int) -> None:
        with self.another_looks:
            super().connection(change)
            self.another_looks.notify_all()

    def once(self, asked: Asked, identity: Hashable, fingerprint: Hashable) -> Told:
        kept = self.kept.get(identity)
        if kept is not None:
            return self.duplicate(asked, kept, fingerprint)
        with self.another_looks:
            self.looking += 1
            self.another_looks.notify_all()
            # Lets another one look before this one writes. On a busy machine it may not even be accepted yet.
            self.another_looks.wait_for(lambda: self.looking > 1 or self.connected > 1, 0.1)
            if self.connected > 1:
                self.another_looks.wait_for(lambda: self.looking > 1, 1.5)
        with self.another_looks:
            self.looking -= 1
        told = self.run(asked)
        self.kept.setdefault(identity, Kept(fingerprint, told))
        return told


class RunsConcurrentDuplicates(Fault):
    """Whoever comes while the first runs is told to wait, and is run all the same."""

    told_by = "duplicate-while-running"

    def running(self, asked: Asked) -> Told:
        self.effects += b"slow" in asked.body
        return super().running(asked)


class RunsTheTenthDuplicate(Fault):
    """A counter that is too small: the tenth duplicate of a key runs again, behind the stored answer."""

    told_by = "duplicates-one-effect"

    def duplicate(self, asked: Asked, kept: Kept, fingerprint: Hashable) -> Told:
        with self.lock:
            kept.duplicates += 1
            self.effects += kept.duplicates == 10
        return super().duplicate(asked, kept, fingerprint)


class NeverForgetsACutUpload(Fault):
    """A key is claimed before the body is there, and never given back."""

    told_by = "cut-upload"

    def cut(self, asked: Asked) -> Told:
        self.kept[self.identity(asked, str(self.key(asked.keys)))] = Kept("half a body")
        return super().cut(asked)


class RunsACutUpload(Fault):
    """What arrived is run."""

    told_by = "cut-upload-not-run"

    def cut(self, asked: Asked) -> Told:
        return self.answer(replace(asked, whole=True))


class StaysClaimedWhenTheClientLeaves(Fault):
    """The handler is cancelled with its client, and its record says "running" for ever."""

    told_by = "disconnect"

    def settle(self, asked: Asked, identity: Hashable, kept: Kept, told: Told) -> None:
        if not asked.left():
            super().settle(asked, identity, kept, told)


class ForgetsWhenTheClientLeaves(Fault):
    """The handler is cancelled with its client, after its effect and before its record."""

    told_by = "disconnect-one-effect"

    def settle(self, asked: Asked, identity: Hashable, kept: Kept, told: Told) -> None:
        super().settle(asked, identity, kept, told)
        if asked.left():
            del self.kept[identity]
