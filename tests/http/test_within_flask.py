"""Flask with SQLAlchemy in one transaction: response and row commit together, or neither is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import flask
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from werkzeug.test import TestResponse

from semel import Policy, Semel
from semel.http import transaction
from semel.http.flask import Idempotency
from tests.http.conftest import STORES

KINDS = ("sessionmaker", "scoped_session", "of my own")


class Shop:
    """Orders in the database that holds the records; `?then=` says how the view ends."""

    def __init__(self, url: str, kind: str) -> None:
        self.semel = Semel(url, policy=Policy(in_doubt="hold"))
        self.engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        self.make = sessionmaker(self.engine)
        self.scoped = scoped_session(self.make)
        app = flask.Flask("shop")
        within = {"sessionmaker": self._by_maker, "scoped_session": self._by_scoped, "of my own": self._own}[kind]
        Idempotency(app, semel=self.semel, scope=lambda _: "alice", transaction=within)
        app.add_url_rule("/orders", "orders", self._order, methods=["POST"])
        app.teardown_request(lambda _: self.scoped.remove())
        self.client = app.test_client()
        with self.engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE shop_order (number INTEGER)"))

    def _by_maker(self, request: Any) -> Any:
        return self.make.begin()

    def _by_scoped(self, request: Any) -> Any:
        return self.scoped.begin()

    @contextmanager
    def _own(self, request: Any) -> Iterator[Any]:
        try:
            yield self.scoped
            self.scoped.commit()
        except BaseException:
            self.scoped.rollback()
            raise

    def _order(self) -> Any:
        session: Session = transaction()
        session.execute(sa.text("INSERT INTO shop_order VALUES (1)"))
        match flask.request.args.get("then"):
            case "raise":
                raise RuntimeError("after the row")
            case "abort":
                flask.abort(int(flask.request.args["code"]))
            case "commit":
                session.commit()
            case "stream":
                return flask.Response(iter(["booked ", "it"]))
        return "booked it", 201

    def ask(self, key: str, query: str = "") -> TestResponse:
        """Order once."""
        return self.client.post(f"/orders{query}", headers={"Idempotency-Key": key})

    def rows(self) -> int:
        """How many orders are committed."""
        with self.engine.connect() as connection:
            return int(connection.execute(sa.text("SELECT count(*) FROM shop_order")).scalar_one())

    def records(self) -> int:
        """How many records are committed."""
        return len(list(self.semel.records()))

    def close(self) -> None:
        """Let go of connections."""
        self.engine.dispose()
        self.semel.close()


@pytest.fixture(params=[f"{kind} on {store}" for kind in KINDS for store in STORES])
def shop(request: pytest.FixtureRequest, store_at: Callable[[str, Path], str], tmp_path: Path) -> Iterator[Shop]:
    kind, _, store = request.param.rpartition(" on ")
    shop = Shop(store_at(store, tmp_path), kind)
    yield shop
    shop.close()


@pytest.mark.parametrize("query", ["", "?then=stream"])
def test_row_and_response_commit_together(shop: Shop, query: str) -> None:
    assert shop.ask("k-1", query).text == "booked it"
    assert (shop.rows(), shop.records()) == (1, 1)


def test_a_duplicate_replays_and_writes_nothing(shop: Shop) -> None:
    shop.ask("k-1")
    again = shop.ask("k-1")
    assert (again.status_code, again.text, again.headers["Idempotency-Replayed"]) == (201, "booked it", "true")
    assert shop.rows() == 1


def test_a_view_that_raises_leaves_neither(shop: Shop) -> None:
    assert shop.ask("k-1", "?then=raise").status_code == 500
    assert (shop.rows(), shop.records()) == (0, 0)


def test_an_answer_that_nothing_happened_takes_the_row_back(shop: Shop) -> None:
    assert shop.ask("k-1", "?then=abort&code=422").status_code == 422
    assert (shop.rows(), shop.records()) == (0, 0)


def test_an_answer_that_is_final_keeps_row_and_record(shop: Shop) -> None:
    assert [shop.ask("k-1", "?then=abort&code=409").status_code for _ in range(2)] == [409, 409]
    assert (shop.rows(), shop.records()) == (1, 1)


def test_a_view_that_commits_by_itself_is_no_success(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    assert shop.ask("k-1", "?then=commit").status_code == 500
    assert "NotInTransaction" in caplog.text
    again = shop.ask("k-1", "?then=commit")
    assert (again.status_code, again.get_json(force=True)["type"]) == (409, "urn:semel:problem:in-doubt")
    assert shop.rows() == 1


def test_a_key_is_free_after_a_rollback(shop: Shop) -> None:
    shop.ask("k-1", "?then=raise")
    assert shop.ask("k-1").status_code == 201
    assert shop.rows() == 1
