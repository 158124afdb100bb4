"""What a careful program would do on Redis without semel: the same two scripts through redis-py, by their digests.

What always holds: one connection, one command at a time. The values are made as cheaply as they can be: no fingerprint,
no record made of the reply, no result encoded.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import parse_qs

from bench.by_hand import digest_of
from bench.workload import AMOUNT, OPERATION, TENANT, order
from semel import Policy
from semel.core import codec
from semel.core.key import Key
from semel.engine.call_flow import terms_of
from semel.stores.redis.pipeline import RECORD_SCRIPTS, scripts
from semel.stores.redis.record_hash import packed_key

Words = tuple[Any, ...]
_OUTCOME = codec.encode({"order_id": order(0), "amount": AMOUNT}, codec.shape_of(object), 1024)
_FINGERPRINT = b"\x01" + bytes(32)
_TERMS = terms_of(Policy())
_SCRIPTS = scripts(RECORD_SCRIPTS, virtual=False)
_CLAIM, _COMPLETE = _SCRIPTS["claim"], _SCRIPTS["complete"]
_KEY = packed_key(Key.of(order(0), operation=OPERATION, scope=TENANT))


class _Words:
    """The two commands, on keys that begin as those of a URL do."""

    def __init__(self, url: str) -> None:
        self.server, _, query = url.partition("?")
        self._prefix = parse_qs(query)["pattern"][0].partition(":")[0]

    def claim(self, number: int, nonce: bytes) -> Words:
        terms = (_TERMS.lease_us, _TERMS.keep_us, _TERMS.in_doubt, _TERMS.reconcile_after_us)
        return _CLAIM.sha, 1, self._name(number), _FINGERPRINT, nonce, *terms, _KEY, b""

    def complete(self, number: int, nonce: bytes) -> Words:
        name = self._name(number)
        return _COMPLETE.sha, 1, name, nonce, 1, _OUTCOME, "by-hand:ended", name

    def _name(self, number: int) -> str:
        return f"{self._prefix}:{digest_of(number).hex()}"


class Hand:
    """One blocking client."""

    def __init__(self, url: str) -> None:
        import redis

        self._words = _Words(url)
        self._client = redis.Redis.from_url(self._words.server, single_connection_client=True)
        for script in (_CLAIM, _COMPLETE):
            self._client.script_load(script.body)

    def first_run(self, number: int) -> None:
        """Claim and complete."""
        nonce = os.urandom(16)
        done(self._client.evalsha(*self._words.claim(number, nonce)))
        done(self._client.evalsha(*self._words.complete(number, nonce)))

    def read(self, number: int) -> object:
        """A claim of a record that has its outcome."""
        return self._client.evalsha(*self._words.claim(number, os.urandom(16)))

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()


class AsyncHand:
    """One client on an event loop."""

    def __init__(self, client: Any, words: _Words) -> None:
        self._client = client
        self._words = words

    @staticmethod
    async def open(url: str) -> AsyncHand:
        """Connect, and have the server know the scripts."""
        from redis.asyncio import Redis

        words = _Words(url)
        client = Redis.from_url(words.server, single_connection_client=True)
        for script in (_CLAIM, _COMPLETE):
            await client.script_load(script.body)
        return AsyncHand(client, words)

    async def first_run(self, number: int) -> None:
        """Claim and complete."""
        nonce = os.urandom(16)
        done(await self._client.evalsha(*self._words.claim(number, nonce)))
        done(await self._client.evalsha(*self._words.complete(number, nonce)))

    async def read(self, number: int) -> object:
        """A claim of a record that has its outcome."""
        return await self._client.evalsha(*self._words.claim(number, os.urandom(16)))

    async def close(self) -> None:
        """Let go of the connection."""
        await self._client.aclose()


def done(reply: object) -> None:
    """A script that changes nothing would be fast, and no comparison."""
    if not isinstance(reply, int) or not reply:
        message = "the script changed nothing: the comparison is wrong"
        raise AssertionError(message)
