"""Tills of WSGI and Flask."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

import flask
from werkzeug.test import Client, TestResponse

from semel import SHARED, Semel
from semel.http import transaction
from semel.http.flask import Idempotency
from semel.http.wsgi import IdempotencyMiddleware
from tests.http.tills.crowd import Gate, Seen, ask_in_threads
from tests.http.tills.libraries import Library
from tests.http.tills.till import HEADER, NO, Till
from tests.http.tills.told import Told


class CalledTill(Till):
    """What both have in common."""

    def __init__(self, url: str, library: Callable[[str], Library]) -> None:
        super().__init__(url)
        self.prepare()
        self.semel = Semel(url)
        self.library = library(url)
        self.semel.read("nothing", operation="none")  # makes the tables
        self._app = self._made()

    def _made(self) -> Any:
        raise NotImplementedError

    def ask(self, what: str = "pays", key: str = "k-1") -> Told:
        """Ask once."""
        try:
            answer: TestResponse = Client(self._app).post(f"/{what}", headers={HEADER: key})
        except (RuntimeError, sqlite3.IntegrityError):  # what a server answers when a WSGI application raises
            return Told(500, None, replayed=False)
        return Told.of(answer.status_code, answer.headers, lambda: answer.get_json(force=True))

    def crowd(self, gate: Gate, *, with_owner: bool) -> Seen:
        """Ask `/slow` many times together, while others use the connections of the same pool."""
        library = self.library
        return ask_in_threads(lambda: self.ask("slow"), gate, library.use, library.held, with_owner=with_owner)

    def within(self, request: Any) -> Any:
        """The transaction of a request."""
        return self.library.unit(commits=self.commits)

    def view(self, what: str) -> None:
        """What the views have in common."""
        connection = transaction()
        self.library.book(connection)
        match what:
            case "slow":
                self.gate.wait()
            case "raises":
                raise RuntimeError("after the row")
            case "commits":
                connection.commit()
            case "commits-as-text":
                self.library.book(connection, "COMMIT")
            case "rolls-back":
                self.library.book(connection, "ROLLBACK")

    def close(self) -> None:
        """Let go of connections."""
        self.semel.close()
        self.library.close()


class WsgiTill(CalledTill):
    """The WSGI middleware around a plain application."""

    def _made(self) -> Any:
        def app(environ: Any, start_response: Any) -> Iterable[bytes]:
            what = environ["PATH_INFO"].removeprefix("/")
            self.view(what)
            start_response(f"{NO if what in ('refuses', 'aborts') else 201} said", [("Content-Type", "text/plain")])
            return [b"paid"]

        return IdempotencyMiddleware(app, semel=self.semel, scope=SHARED, transaction=self.within)


class FlaskTill(CalledTill):
    """The extension for Flask."""

    def _made(self) -> Any:
        app = flask.Flask("till")
        Idempotency(app, semel=self.semel, scope=SHARED, transaction=self.within)

        @app.post("/<what>")
        def pay(what: str) -> Any:
            self.view(what)
            if what == "aborts":
                flask.abort(NO)
            return "paid", NO if what == "refuses" else 201

        return app
