"""Wrong services: what they say, at first, on replay and in errors."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from tests.conform.fault import Fault
from tests.conform.service import Asked, Kept, Told


class ReplaysAnotherStatus(Fault):
    """201 at first, 200 on replay."""

    told_by = "replays"

    def replay(self, told: Told) -> Told:
        return replace(super().replay(told), status=200)


class TruncatesTheBodyOfReplays(Fault):
    """The replay lacks the last byte."""

    told_by = "replays"

    def replay(self, told: Told) -> Told:
        return replace(super().replay(told), body=told.body[:-1])


class RunsEveryDuplicate(Fault):
    """Each duplicate is run, and gets an answer of its own."""

    told_by = "replays"

    def duplicate(self, asked: Asked, kept: Kept, fingerprint: Hashable) -> Told:
        return self.paid()


class RunsAndReplays(Fault):
    """The stored answer is given, and the effect happens again all the same."""

    told_by = "one-effect"

    def replay(self, told: Told) -> Told:
        self.effects += 1
        return super().replay(told)


class LosesLocation(Fault):
    """The replay has no Location."""

    told_by = "replays-headers"

    def replay(self, told: Told) -> Told:
        return super().replay(told).without("Location")


class ChangesContentType(Fault):
    """The replay is text/plain."""

    told_by = "replays-headers"

    def replay(self, told: Told) -> Told:
        return super().replay(told).without("Content-Type").plus("Content-Type", "text/plain")


class ReplaysCookies(Fault):
    """The cookie of the first answer is set again."""

    told_by = "no-cookie-replayed"

    def replay(self, told: Told) -> Told:
        return told.plus("Idempotency-Replayed", "true")


class DoesNotMarkReplays(Fault):
    """A replay looks like a first answer."""

    told_by = "replay-marked"

    def replay(self, told: Told) -> Told:
        return told.without("Set-Cookie")


class SaysNotWhenToComeBack(Fault):
    """409 without Retry-After."""

    told_by = "retry-after"

    def running(self, asked: Asked) -> Told:
        return super().running(asked).without("Retry-After")


class SaysErrorsInPlainText(Fault):
    """Errors are text."""

    told_by = "problem-details"

    def problem(self, status: int, title: str) -> Told:
        told = super().problem(status, title).without("Content-Type")
        return replace(told.plus("Content-Type", "text/plain"), body=title.encode())


class GivesProblemsNoTitle(Fault):
    """A problem without a title."""

    told_by = "problem-details"

    def problem(self, status: int, title: str) -> Told:
        return replace(super().problem(status, title), body=b'{"type": "/policy", "detail": "no"}')


class SaysNeitherLanguageNorLink(Fault):
    """Errors that lead nowhere, but for one."""

    told_by = "problem-language"

    def reused(self, asked: Asked) -> Told:
        return super().reused(asked).without("Link", "Content-Language")


class PublishesNothing(Fault):
    """The link leads to 404."""

    told_by = "policy-published"

    def read(self, asked: Asked) -> Told:
        return Told(404) if asked.path == "/policy" else super().read(asked)
