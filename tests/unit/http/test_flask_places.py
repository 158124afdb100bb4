"""The Flask extension: under mounts and other spellings, and where an error handler makes the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import flask
import pytest

from semel import SHARED, Policy, Semel
from semel.http import Route
from semel.http.flask import Idempotency
from tests.unit.http.wsgi_world import environ, served

KEY = {"Idempotency-Key": "k-1"}


class Declined(Exception):
    """In the policy: final."""


class Busy(Exception):
    """In the policy: nothing happened."""


@pytest.fixture
def semel() -> Iterator[Semel]:
    policy = Policy(final_errors=(Declined,), retry_errors=(Busy,), in_doubt="hold")
    with Semel("memory://", policy=policy) as engine:
        yield engine


class Shop:
    """An application with one view at /pay, and how often it was called."""

    def __init__(self, semel: Semel, **settings: Any) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.app = flask.Flask("shop")
        self.app.url_map.strict_slashes = False
        self.keys = Idempotency(self.app, semel=semel, scope=SHARED, **settings)
        self.client = self.app.test_client()

    def pay(self) -> str:
        """The view."""
        self.calls += 1
        if self.error is not None:
            raise self.error
        return "paid"


@pytest.fixture
def shop(semel: Semel) -> Shop:
    shop = Shop(semel, routes=[Route("/pay", required=True)])
    shop.app.add_url_rule("/pay", "pay", shop.pay, methods=["POST"])
    return shop


def test_routes_lie_below_the_mount_and_problems_link_there(shop: Shop) -> None:
    answer = shop.client.post("/pay", base_url="http://shop/api")
    assert (answer.status_code, shop.calls) == (400, 0)
    assert answer.headers["Link"] == '</api/.well-known/idempotency-policy>; rel="describedby"'


def test_the_same_key_under_another_mount_is_another_request(shop: Shop) -> None:
    asked = [shop.client.post("/pay", base_url=f"http://shop/{mount}", headers=KEY) for mount in "aab"]
    assert ([answer.status_code for answer in asked], shop.calls) == ([200, 200, 422], 1)


def test_slashes_do_not_lead_around_a_route(shop: Shop) -> None:
    assert (shop.client.post("/pay/").status_code, shop.calls) == (400, 0)


@pytest.mark.parametrize("path", ["//pay", "///pay", "pay"])
def test_a_key_runs_once_under_every_path_that_flask_takes_for_the_same(shop: Shop, path: str) -> None:
    told = [served(shop.app, environ(PATH_INFO=given)).body for given in ("/pay", path)]
    assert (told, shop.calls) == ([b"paid", b"paid"], 1)


def test_slashes_do_not_lead_around_a_view_under_once(semel: Semel) -> None:
    shop = Shop(semel, routes=[])

    @shop.app.post("/pay")
    @shop.keys.once(required=True)
    def pay() -> str:
        return shop.pay()

    assert (shop.client.post("/pay/").status_code, shop.calls) == (400, 0)


@pytest.mark.parametrize(
    ("error", "status", "times"),
    [(Declined(), 400, 1), (Declined(), 500, 1), (Busy(), 409, 2), (KeyError(), 409, 1), (KeyError(), 400, 2)],
    ids=["final that says no", "final that says 500", "retried", "stored by status", "retried by status"],
)
def test_of_what_a_handler_answers_the_policy_comes_before_the_status(
    shop: Shop, error: Exception, status: int, times: int
) -> None:
    shop.error = error
    shop.app.register_error_handler(type(error), lambda _: ("told", status))
    asked = [shop.client.post("/pay", headers=KEY) for _ in range(2)]
    assert [(answer.status_code, answer.text) for answer in asked] == [(status, "told")] * 2
    assert shop.calls == times


def test_an_answer_that_cannot_be_recorded_leaves_a_doubt(semel: Semel, shop: Shop) -> None:
    def odd() -> flask.Response:
        response = flask.Response("paid")
        response._status_code = None  # type: ignore[assignment]  # what it is about
        return response

    shop.app.view_functions["pay"] = odd
    assert shop.client.post("/pay", headers=KEY).status_code == 500
    assert [record.status for record in semel.records()] == ["in_doubt"]
