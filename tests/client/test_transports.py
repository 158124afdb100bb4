"""What carries the requests below: any transport of httpx, and what its errors say of what was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h2.exceptions
import h11
import httpx
import pytest

from semel import Semel
from semel.client import INTENT, AsyncClient, Client
from semel.client.httpx import _cuts
from semel.client.models import TransportFailed
from semel.errors import UsageError


def test_an_answer_made_in_this_process_is_an_answer(keys: Path) -> None:
    mock = httpx.MockTransport(lambda request: httpx.Response(201, json={"key": request.headers["Idempotency-Key"]}))
    with Client(keys, transport=mock) as client:
        assert len(client.post("http://a/pay").json()["key"]) == 66


def test_an_answer_made_in_this_process_is_one_for_those_who_await_too(keys: Path) -> None:
    async def play() -> None:
        mock = httpx.MockTransport(lambda request: httpx.Response(201, json={"a": 1}))
        async with AsyncClient(keys, transport=mock) as client:
            assert (await client.post("http://a/pay")).json() == {"a": 1}

    asyncio.run(play())


@pytest.mark.parametrize(
    ("error", "sent", "again"),
    [
        (httpx.ConnectError, False, True),
        (httpx.ConnectTimeout, False, True),
        (httpx.PoolTimeout, False, True),
        (httpx.ProxyError, False, True),
        (httpx.UnsupportedProtocol, False, False),
        (httpx.ReadError, True, True),
        (httpx.ReadTimeout, True, True),
        (httpx.WriteError, True, True),
        (httpx.WriteTimeout, True, True),
        (httpx.CloseError, True, True),
        (httpx.RemoteProtocolError, True, True),
    ],
)
def test_an_error_says_whether_anything_left(
    error: Callable[[str], httpx.TransportError], *, sent: bool, again: bool
) -> None:
    with pytest.raises(TransportFailed) as caught, _cuts():
        raise error("why")
    assert (caught.value.sent, caught.value.again) == (sent, again)


@pytest.mark.parametrize(
    ("cause", "sent"), [(h11.LocalProtocolError("bad header"), False), (h2.exceptions.ProtocolError("bad frame"), True)]
)
def test_a_breach_of_protocol_is_our_own_only_where_the_writer_says_so(cause: Exception, *, sent: bool) -> None:
    with pytest.raises(TransportFailed) as caught, _cuts():
        raise httpx.LocalProtocolError("why") from cause
    assert (caught.value.sent, caught.value.again) == (sent, False)


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_mounts_that_would_carry_requests_past_the_keys_are_refused(client: type[Any], keys: Path) -> None:
    with pytest.raises(UsageError, match="past the keys"):
        client(keys, mounts={"all://": httpx.MockTransport(lambda request: httpx.Response(200))})


def test_what_a_client_adds_to_every_address_is_not_lost_on_resuming(keys: Path) -> None:
    asked: list[str] = []

    def serve(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            asked.append(str(request.url))
        return httpx.Response(500)

    with Client(keys, transport=httpx.MockTransport(serve), params={"tenant": "a"}, tries=1) as client:
        client.post("http://a/pay", params={"x": "1"})
        [resumed] = client.resume()
    assert resumed.error is None
    assert asked == ["http://a/pay?tenant=a&x=1"] * 2


def test_a_header_that_cannot_be_sent_leaves_nothing_open(keys: Path) -> None:
    with Client(keys, trust_env=False, tries=1) as client:
        with pytest.raises(httpx.TransportError):
            client.post("http://127.0.0.1:1/pay", headers={"X-Bad": "a\nb"})
        assert client.pending() == []


def test_the_digest_of_a_second_round_of_signing_in_is_one_effect(keys: Path) -> None:
    ran: list[str] = []

    def serve(request: httpx.Request) -> httpx.Response:
        if "Authorization" not in request.headers:
            return httpx.Response(401, headers={"WWW-Authenticate": 'Digest realm="r", nonce="n", qop="auth"'})
        ran.append(request.headers["Idempotency-Key"])
        return httpx.Response(201)

    with Client(keys, transport=httpx.MockTransport(serve), auth=httpx.DigestAuth("u", "p")) as client:
        for _ in range(2):
            assert client.post("http://a/pay", headers={INTENT: "buy"}).status_code == 201
    assert len(ran) == 1


def test_a_second_round_of_signing_in_does_not_move_the_keys_of_a_rerun(keys: Path, tmp_path: Path) -> None:
    ran: list[str] = []

    def serve(request: httpx.Request) -> httpx.Response:
        if "Authorization" not in request.headers:
            return httpx.Response(401, headers={"WWW-Authenticate": 'Digest realm="r", nonce="n", qop="auth"'})
        ran.append(request.headers["Idempotency-Key"])
        return httpx.Response(201)

    auth = httpx.DigestAuth("u", "p")  # it remembers: the second attempt signs in at once
    with Semel(tmp_path / "outer.db") as semel, Client(keys, transport=httpx.MockTransport(serve), auth=auth) as client:

        def handler() -> None:
            client.post("http://a/pay")
            client.post("http://a/pay")
            raise KeyError("died")

        for _ in range(2):
            with pytest.raises(KeyError, match="died"):
                semel.run("k", handler, operation="order", fingerprint=None)
    assert ran[:2] == ran[2:]
    assert len(set(ran)) == 2
