"""Tills of Django: by the middleware, by the decorator, and by the mixin of REST framework."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from django.db import connections
from django.db import transaction as of_django
from django.http import Http404, HttpResponse
from django.test import Client
from django.urls import path

from semel import Semel
from semel.http.django import idempotent
from semel.http.django.transactions import Atomic
from semel.http.drf import IdempotencyMixin
from tests.http.tills.crowd import DUPLICATES, PATIENCE, Gate, Seen, ask_in_threads
from tests.http.tills.till import HEADER, NO, Till
from tests.http.tills.told import Told
from tests.unit.http.django_project import SEMEL, project

from rest_framework.exceptions import ValidationError  # isort: skip  # once Django is set up
from rest_framework.views import APIView  # isort: skip

ALIAS = "till"
_OPEN = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'till'"


class DjangoTill(Till):
    """Keys by the middleware."""

    has_commit = False  # inside atomic() Django refuses it

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.prepare()
        self.semel = Semel(url)
        self.semel.read("nothing", operation="none")  # makes the tables
        connections.settings[ALIAS] = connections.configure_settings({"default": {}, ALIAS: _database(url)})[ALIAS]
        self._stack = ExitStack()
        self._asked: list[Any] = []
        given = {"semel": self.semel, "scope": self._who, **self._settings()}
        self._stack.enter_context(project(*self._patterns(), middleware=(SEMEL,), SEMEL=given))

    def _settings(self) -> dict[str, Any]:
        return {"transaction": self.within}

    def _patterns(self) -> list[Any]:
        return [path("<what>", self.view)]

    @property
    def within(self) -> Any:
        """The transaction of a request: as semel opens it, or one of somebody who forgets to commit."""
        return _Chosen(self)

    def ask(self, what: str = "pays", key: str = "k-1") -> Told:
        """Ask once."""
        answer = Client(raise_request_exception=False).post(f"/{what}", headers={HEADER: key})
        return Told.of(answer.status_code, answer.headers, answer.json)

    def crowd(self, gate: Gate, *, with_owner: bool) -> Seen:
        """Ask `/slow` many times together; Django has a connection for every thread and no pool."""

        def ask() -> Told:
            try:
                return self.ask("slow")
            finally:
                connections[ALIAS].close()

        return ask_in_threads(ask, gate, lambda: None, self._wait_for_idle, with_owner=with_owner)

    def _wait_for_idle(self) -> int:
        """How many connections the threads hold, once all have asked who is there and found somebody at the key."""
        until, held = monotonic() + PATIENCE, 0
        while monotonic() < until:
            held = int(self._admin(_OPEN)[0][0])
            if len(self._asked) > DUPLICATES and held <= 1:
                return held
        return held

    def _who(self, request: Any) -> Any:
        """Who asks: looked up in the database, as sessions of Django are."""
        self._run("SELECT 1")
        self._asked.append(request)
        return "alice"

    def view(self, request: Any, what: str) -> Any:
        """Book, and end as asked."""
        self._run("INSERT INTO payment VALUES (1)")
        match what:
            case "slow":
                self.gate.wait()
            case "raises":
                raise RuntimeError("after the row")
            case "aborts":
                raise self._abort()
            case "commits-as-text":
                self._run("COMMIT")
            case "rolls-back":
                self._run("ROLLBACK")
            case "gives-up":
                of_django.set_rollback(True, using=ALIAS)
        return HttpResponse("paid", status=NO if what == "refuses" else 201)

    def _abort(self) -> Any:
        return Http404()

    def _run(self, statement: str) -> None:
        with connections[ALIAS].cursor() as cursor:
            cursor.execute(statement)

    def close(self) -> None:
        """Let go of connections."""
        self._stack.close()
        connections[ALIAS].close()
        del connections[ALIAS]
        del connections.settings[ALIAS]
        self.semel.close()


class _Chosen(Atomic):
    """What `transaction="till"` is made into, where the till commits."""

    def __init__(self, till: DjangoTill) -> None:
        super().__init__(ALIAS)
        self._till = till

    @property
    def commits_or_raises(self) -> bool:  # type: ignore[override]  # somebody else's transaction says no such thing
        return self._till.commits

    def __call__(self, request: Any) -> Any:
        return super().__call__(request) if self._till.commits else _forgetful()


@contextmanager
def _forgetful() -> Iterator[Any]:
    with of_django.atomic(using=ALIAS):
        yield connections[ALIAS]
        of_django.set_rollback(True, using=ALIAS)


class DecoratedTill(DjangoTill):
    """Keys by the decorator."""

    def _settings(self) -> dict[str, Any]:
        return {}

    def _patterns(self) -> list[Any]:
        def view(request: Any, what: str) -> Any:
            return self.view(request, what)

        return [path("<what>", idempotent(transaction=self.within)(view))]


class RestTill(DjangoTill):
    """Keys by the mixin of REST framework."""

    def _settings(self) -> dict[str, Any]:
        return {}

    def _patterns(self) -> list[Any]:
        till = self

        class Payments(IdempotencyMixin, APIView):  # type: ignore[misc]  # REST framework has no types
            idempotency = {"transaction": till.within, "scope": till._who}  # noqa: RUF012 - as users write it

            def post(self, request: Any, what: str) -> Any:
                return till.view(request, what)

        return [path("<what>", Payments.as_view())]

    def _abort(self) -> Any:
        return ValidationError()


def _database(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.path}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "OPTIONS": {"application_name": "till"},
    }
