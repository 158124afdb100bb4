"""A small service that does everything right, written by hand and without semel: what `conform` is proved against.

Each decision is a method of its own, so that a wrong service is this one with one method replaced.
"""

from __future__ import annotations

import decimal
import json
import re
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

SAMPLE = b'{"amount": 12.5, "currency": "EUR"}'
SLOW = b'{"amount": 1, "slow": true}'
HEADER = "Idempotency-Key"
LONG = decimal.Context(prec=200)


class Refused(Exception):
    """A request that is refused before it is looked up."""


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    keys: tuple[str, ...]
    caller: str
    body: bytes
    whole: bool = True
    left: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Told:
    """An answer."""

    status: int
    body: bytes = b""
    fields: tuple[tuple[str, str], ...] = ()

    def without(self, *names: str) -> Told:
        return replace(self, fields=tuple(each for each in self.fields if each[0] not in names))

    def plus(self, name: str, value: str) -> Told:
        return replace(self, fields=(*self.fields, (name, value)))


@dataclass
class Kept:
    """A record: what was asked, and the answer once there is one."""

    fingerprint: Hashable
    told: Told | None = None
    met: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    duplicates: int = 0


class Service:
    """Payments that happen once. Effects are counted at /effects."""

    required = False

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.effects = 0
        self.connected = 0
        self.kept: dict[Hashable, Kept] = {}

    def answer(self, asked: Asked) -> Told:
        if asked.method != "POST":
            return self.read(asked)
        if not asked.whole:
            return self.cut(asked)
        try:
            key = self.key(asked.keys)
            if key is None:
                return self.without_key(asked)
            fingerprint = self.fingerprint(asked)
        except Refused as why:
            return self.problem(400, str(why))
        return self.once(asked, self.identity(asked, key), fingerprint)

    def connection(self, change: int) -> None:
        with self.lock:
            self.connected += change

    def read(self, asked: Asked) -> Told:
        if asked.path == "/effects":
            return Told(200, json.dumps({"count": self.effects, "name": "payments"}).encode())
        if asked.path == "/policy":
            return Told(200, b"Keys are kept for a day.", (("Content-Type", "text/plain"),))
        return Told(405)

    def cut(self, asked: Asked) -> Told:
        return self.problem(400, "The body is not whole.")

    def without_key(self, asked: Asked) -> Told:
        return self.problem(400, "A key is required.") if self.required else self.run(asked)

    def key(self, lines: tuple[str, ...]) -> str | None:
        if not lines:
            return None
        if len(lines) > 1:
            raise Refused("The key was sent twice.")
        key = self.spelled(lines[0].strip())
        if not self.sound(key):
            raise Refused("The key is not sound.")
        return key

    def spelled(self, line: str) -> str:
        quoted = re.fullmatch(r'"((?:[^"\\]|\\["\\])*)"(;.*)?', line)
        if quoted is None and re.search(r'[",; \\]', line):
            raise Refused("The key is not a string.")
        return line if quoted is None else quoted.group(1)

    def sound(self, key: str) -> bool:
        return 0 < len(key) <= 255 and key.isascii() and key.isprintable()

    def identity(self, asked: Asked, key: str) -> Hashable:
        return asked.caller, key

    def fingerprint(self, asked: Asked) -> Hashable:
        return asked.path, self.canonical(asked.body)

    def canonical(self, body: bytes) -> str:
        value = self.parsed(body)
        return json.dumps(value, sort_keys=True)

    def parsed(self, body: bytes) -> Any:
        try:
            return json.loads(body, parse_float=self.number, parse_int=self.number, object_pairs_hook=self.members)
        except ValueError as error:
            raise Refused("The body is not JSON.") from error

    def number(self, spelling: str) -> Any:
        return ["number", str(decimal.Decimal(spelling).normalize(LONG))]

    def members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise Refused("A member is given twice.")
        return dict(pairs)

    def once(self, asked: Asked, identity: Hashable, fingerprint: Hashable) -> Told:
        with self.lock:
            mine = Kept(fingerprint)
            kept = self.kept.setdefault(identity, mine)
        if kept is not mine:
            return self.duplicate(asked, kept, fingerprint)
        told = self.run(asked, mine)
        self.settle(asked, identity, mine, told)
        return told

    def duplicate(self, asked: Asked, kept: Kept, fingerprint: Hashable) -> Told:
        told = kept.told
        kept.met.set()
        if kept.fingerprint != fingerprint:
            return self.reused(asked)
        if told is None:
            return self.running(asked)
        return self.replay(told)

    def settle(self, asked: Asked, identity: Hashable, kept: Kept, told: Told) -> None:
        kept.told = told

    def run(self, asked: Asked, kept: Kept | None = None) -> Told:
        if b"slow" in asked.body and kept is not None:
            kept.met.wait(60)  # as long as it takes until somebody meets it
        return self.paid()

    def paid(self) -> Told:
        with self.lock:
            self.effects += 1
            number = self.effects
        fields = {
            "Content-Type": "application/json",
            "Location": f"/payments/{number}",
            "ETag": f'"{number}"',
            "Set-Cookie": f"session={number}",
        }
        return Told(201, json.dumps({"payment": number}).encode(), tuple(fields.items()))

    def reused(self, asked: Asked) -> Told:
        return self.problem(422, "The key stands for another request.")

    def running(self, asked: Asked) -> Told:
        return self.problem(409, "Still running.").plus("Retry-After", "1")

    def replay(self, told: Told) -> Told:
        return told.without("Set-Cookie").plus("Idempotency-Replayed", "true")

    def problem(self, status: int, title: str) -> Told:
        body = {"type": "/policy", "title": title, "detail": f"{title} Nothing ran."}
        fields = (("Content-Type", "application/problem+json"), ("Link", '</policy>; rel="describedby"'))
        return Told(status, json.dumps(body).encode(), (*fields, ("Content-Language", "en")))
