"""Attacks that no other folder has: each is named in `tests.attack.rows`."""

from __future__ import annotations

import ast
import asyncio
import hmac
import logging
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from semel import AsyncSemel, Semel, make_key
from semel.api import verify_key
from semel.client import INTENT, Client
from semel.core import record
from semel.core.key import KeyRing
from semel.core.record import COMPRESS_FROM, VERSION, Envelope, pack_outcome, unpack_outcome
from semel.errors import InProgress, KeyInvalid, RecordUnreadable
from semel.http.asgi import IdempotencyMiddleware
from semel.http.response import REPLAYED, storable_response
from semel.stores.sqlite import SqliteStore
from semel.stores.statement_log import LoggedStore
from tests.effort import FULL

SOURCE = Path(__file__).parents[2] / "src"
CARD = "4111111111111111"
HOSTILE = (
    "' OR '1'='1",
    "'; DROP TABLE semel_record; --",
    '" OR ""="',
    "%",
    "_",
    "ann%' ESCAPE '\\",
    "\\' OR 1=1 #",
    "{0} {term} {concerned}",
    "$1 ? :subject %s %(subject)s",
    "*",
    "[a-z]*",
    "a\r\nFLUSHALL\r\n",
    "}{semel}:*",
    "attribute_exists(#a) OR :b",
    "'\u02bc\uff07",
)


async def ask_raw(app: Any, key: str, tenant: str) -> tuple[Any, ...]:
    """What comes back for a request, without a client or a server that could make it look alike."""
    headers = [(b"idempotency-key", f'"{key}"'.encode()), (b"x-tenant", tenant.encode())]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/charges",
        "raw_path": b"/charges",
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("shop.example", 80),
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    told = tuple((name, value.replace(key.encode(), b"KEY")) for name, value in sorted(start["headers"]))
    return start["status"], told, tuple(message.get("body", b"") for message in sent[1:])


@pytest.mark.timeout(900 if FULL else 60)
def test_a_hundred_thousand_guesses_tell_no_key_of_another_from_one_that_nobody_has() -> None:
    """Half of the guesses are keys of somebody else: status, headers and length are those of the other half."""
    count = 100_000 if FULL else 200

    async def application(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 201, "headers": [(b"location", b"/1")]})
        await send({"type": "http.response.body", "body": b"done"})

    async def guess() -> tuple[set[Any], set[Any]]:
        app = IdempotencyMiddleware(
            application, semel=AsyncSemel("memory://"), scope=lambda request: request.headers.get("x-tenant")
        )
        keys = [f"{number:032x}" for number in range(count // 2)]
        for key in keys:
            await ask_raw(app, key, "acme")
        foreign = {await ask_raw(app, key, "zenith") for key in keys}
        unknown = {await ask_raw(app, f"{number:032x}", "zenith") for number in range(count, count + count // 2)}
        return foreign, unknown

    foreign, unknown = asyncio.run(guess())
    print(f"{count} guesses")
    assert len(foreign) == 1
    assert foreign == unknown


def test_a_crowd_on_the_keys_of_one_tenant_does_not_keep_another_from_being_served() -> None:
    """Hundreds wait for what one tenant runs; who asks for another one is served meanwhile."""
    crowd = 2_000 if FULL else 200

    async def ask() -> tuple[str, int]:
        running, may_end = asyncio.Event(), asyncio.Event()

        async def slow() -> str:
            running.set()
            await may_end.wait()
            return "slow"

        async def quick() -> str:
            return "quick"

        async with AsyncSemel("memory://") as semel:

            def call(tenant: str, key: str, handler: Any) -> Any:
                return semel.run(key, handler, operation="pay", fingerprint=None, scope=tenant)

            first = asyncio.create_task(call("noisy", "k", slow))
            await running.wait()
            noisy = [asyncio.create_task(call("noisy", "k", slow)) for _ in range(crowd)]
            await asyncio.sleep(0)
            served = await call("quiet", "k", quick)
            may_end.set()
            answers: list[Any] = await asyncio.gather(first, *noisy, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, InProgress)]
        assert all(isinstance(answer, InProgress) or answer.value == "slow" for answer in answers)
        return served.value, len(refused)

    value, refused = asyncio.run(ask())
    print(f"{crowd} in the crowd, {refused} refused")
    assert value == "quick"


def test_a_foreign_key_costs_the_store_what_an_unknown_one_costs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run(semel: Semel, key: str, scope: str) -> list[str]:
        caplog.clear()
        semel.run(key, lambda: "value", operation="pay", fingerprint=None, scope=scope)
        return [message.partition(":")[0] for message in caplog.messages]

    with (
        caplog.at_level(logging.DEBUG, "semel.statements"),
        Semel(LoggedStore(SqliteStore(tmp_path / "s.db"))) as semel,
    ):
        run(semel, "known", "acme")
        unknown, foreign = run(semel, "nobody's", "zenith"), run(semel, "known", "zenith")
    assert unknown
    assert foreign == unknown


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    compare = hmac.compare_digest

    def count(one: Any, other: Any) -> bool:
        compared.append(min(len(one), len(other)))
        return compare(one, other)

    secret = b"k" * 32
    ring = KeyRing({"2026": secret})
    key = make_key("order", "o-1", secret=secret, key_id="2026", tenant="acme")
    monkeypatch.setattr(hmac, "compare_digest", count)
    verify_key(key, secrets=ring, tenant="acme")
    for forged in (f"{key[:-1]}{'0' if key[-1] != '0' else '1'}", key):
        with pytest.raises(KeyInvalid):
            verify_key(forged, secrets=ring, tenant="zenith")
    with pytest.raises(KeyInvalid):
        verify_key(key.replace(".2026.", ".2025."), secrets=ring, tenant="acme")
    assert len(compared) == 4, "also where the name of the secret is unknown"
    assert min(compared) >= 16


def test_a_card_number_in_a_request_is_in_no_file(tmp_path: Path) -> None:
    with Semel(tmp_path / "s.db", fingerprint_secret=b"s" * 32) as semel:
        asked = {"card": CARD, "cvv": "737"}
        semel.run("k", lambda: "paid", operation="pay", fingerprint=asked)
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert CARD.encode() not in kept


@pytest.mark.parametrize("listed", ["ETag", "close, etag", " X-Other ,ETAG"])
def test_a_header_that_belongs_to_one_connection_is_not_replayed(listed: str) -> None:
    headers = [("ETag", '"of one hop"'), ("Connection", listed), ("Location", "/1"), ("Keep-Alive", "5")]
    assert storable_response(201, headers, b"", REPLAYED).headers == (("Location", "/1"),)


def test_a_client_cannot_take_its_key_out() -> None:
    """A key that is named in Connection is still the key: nothing runs twice where a proxy passed both on."""
    ran: list[str] = []

    async def application(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        ran.append("ran")
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def ask_twice() -> list[int]:
        guarded = IdempotencyMiddleware(application, semel=AsyncSemel("memory://"), scope=lambda _request: "acme")
        transport = httpx.ASGITransport(app=guarded)
        headers = {"Idempotency-Key": '"0123456789abcdef0123456789abcdef"', "Connection": "close, Idempotency-Key"}
        async with httpx.AsyncClient(transport=transport, base_url="http://shop.example") as client:
            return [(await client.post("/charges", headers=headers)).status_code for _ in range(2)]

    assert asyncio.run(ask_twice()) == [201, 201]
    assert ran == ["ran"]


def test_the_policy_of_a_service_is_asked_of_that_service_alone(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        if request.method == "GET":
            return httpx.Response(302, headers={"location": "http://169.254.169.254/latest/meta-data"})
        raise httpx.ReadError("gone", request=request)

    path = tmp_path / "keys.db"
    with Client(path, transport=httpx.MockTransport(answer), tries=1) as client:
        for _ in range(2):
            with pytest.raises(httpx.ReadError):
                client.post("https://shop.example/charges", headers={INTENT: "charge 1"})
    assert "https://shop.example/.well-known/idempotency-policy" in asked
    assert {httpx.URL(url).host for url in asked} == {"shop.example"}


def test_a_stored_outcome_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zlib.compress(bytes(32 << 20), 9)
    monkeypatch.setattr(record, "MOST_UNPACKED", 1 << 20)
    stored = msgspec.msgpack.encode(Envelope(VERSION, "plain", "zlib", "", bomb))
    tracemalloc.start()
    try:
        with pytest.raises(RecordUnreadable, match="larger than"):
            unpack_outcome(stored)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 << 20


@pytest.mark.parametrize("size", [COMPRESS_FROM, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_what_is_kept_can_be_read_back_on_both_sides_of_the_bound(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(record, "MOST_UNPACKED", 1 << 20)
    assert unpack_outcome(pack_outcome("plain", bytes(size))) == ("plain", bytes(size))


def test_an_outcome_that_was_cut_off_while_compressed_is_refused() -> None:
    whole = zlib.compress(bytes(range(256)) * 100)
    stored = msgspec.msgpack.encode(Envelope(VERSION, "plain", "zlib", "", whole[:-8]))
    with pytest.raises(RecordUnreadable, match="damaged"):
        unpack_outcome(stored)


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield module.partition(".")[0]
            case ast.Call(func=ast.Name(name)):
                yield f"{name}()"


def test_nothing_that_is_stored_can_become_code() -> None:
    forbidden = {"pickle", "cPickle", "marshal", "shelve", "dill", "jsonpickle", "yaml", "eval()", "exec()"}
    sources = list((SOURCE / "semel").rglob("*.py"))
    assert len(sources) > 100
    found = {str(one.relative_to(SOURCE)): sorted(forbidden & {*_names(ast.parse(one.read_text()))}) for one in sources}
    own_source = {"semel/engine/decorator.py": ["eval()"]}  # annotations of the functions of the program itself
    assert {name: names for name, names in found.items() if names} == own_source
    assert {"pickle", "eval()"} <= {*_names(ast.parse("import pickle\neval('1')"))}, "the rule finds nothing"


def attack_search(url: object) -> None:
    """Text that means something to a database is found as itself, and finds nothing else."""
    with Semel(url) as semel:
        for number, text in enumerate(HOSTILE):
            about = {"subject": text, "requester": text, "business_key": text, "tags": {"tenant": text}}
            semel.run(f"k{number}", lambda: "value", operation="pay", fingerprint=None, scope=f"s{number}", about=about)
        for number, text in enumerate(HOSTILE):
            for query in ({"subject": text}, {"requester": text}, {"business_key": text}, {"tag": ("tenant", text)}):
                found = [one.key.value for one in semel.records(**query, scan=True)]
                assert found == [f"k{number}"], f"{query} found {found}"
            if text.isprintable():  # a scope with anything else is refused
                assert list(semel.records(scope=text, scan=True)) == []
        text = HOSTILE[0]
        assert semel.erase_subject(text, reason="request 17", scan=True).erased == {"records": 1}
        assert semel.count(scan=True) == len(HOSTILE)


def test_hostile_text_is_found_as_itself_and_finds_nothing_else_on_sqlite(tmp_path: Path) -> None:
    attack_search(tmp_path / "s.db")
