"""Fingerprints taken in more than one way: by an earlier release, by a changed function, under another secret."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from semel.core import codec
from semel.core.codec import PlainAdapter
from semel.core.fingerprint import Fingerprints, Secrets, encode_canonical
from semel.core.operations import Claim, Complete, Fail, Granted
from semel.core.policy import Policy
from semel.core.record import Failure, Status
from semel.errors import InProgress, KeyReused, RecordUnreadable
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World

ASKED = {"amount": 10}
OTHER = {"amount": 11}
OLD = b"the secret of the year before.."
NEW = b"the secret of this very year..."
EARLIER = codec.encode("earlier", PlainAdapter(), 1000)
REJECT = Policy(when_running="reject")
KEPT_ONE_HOUR = Policy(keep_for=timedelta(hours=1))


def _first_version(asked: object) -> bytes:
    return b"\x01" + hashlib.sha256(encode_canonical(asked)).digest()


def _plain(asked: object) -> bytes:
    return Fingerprints().take(asked)


def _keyed(asked: object) -> bytes:
    return Fingerprints(Secrets(OLD)).take(asked)


MADE = {"first version": _first_version, "plain": _plain, "keyed": _keyed}
READERS: dict[str, Any] = {"plain": None, "old": OLD, "new and old": (NEW, OLD), "plain, knows old": (None, OLD)}
ABLE = [(made, reader) for made in MADE for reader in READERS if made != "keyed" or reader != "plain"]
able = pytest.mark.parametrize(("made", "reader"), ABLE)


class FingerprintChangeContract(Contract):
    """A record is compared in the way its fingerprint was made, whatever is used for new ones."""

    @able
    async def test_a_record_is_replayed_whichever_way_its_fingerprint_was_made(
        self, world: World, made: str, reader: str
    ) -> None:
        await _complete(world, MADE[made](ASKED))
        result = await world.client(fingerprint_secret=READERS[reader]).run(fingerprint=ASKED)
        assert (result.value, result.replayed) == ("earlier", True)
        assert world.ran == []

    @able
    async def test_another_request_is_refused_whichever_way_the_fingerprint_was_made(
        self, world: World, made: str, reader: str
    ) -> None:
        await _complete(world, MADE[made](ASKED))
        error = await world.client(fingerprint_secret=READERS[reader]).error(fingerprint=OTHER)
        assert isinstance(error, KeyReused)
        assert world.ran == []

    async def test_a_running_key_of_an_earlier_release_is_waited_for(self, world: World) -> None:
        await _claim(world, _first_version(ASKED))
        assert isinstance(await world.client().error(fingerprint=ASKED, policy=REJECT), InProgress)
        assert world.ran == []

    async def test_a_lapsed_lease_of_an_earlier_release_is_taken_over(self, world: World) -> None:
        await _claim(world, _first_version(ASKED))
        world.clock.advance(3600)
        result = await world.client().run(fingerprint=ASKED)
        assert (result.value, result.replayed) == ("value", False)
        assert (await world.client().read()).fingerprint == _first_version(ASKED)

    async def test_a_retryable_failure_of_an_earlier_release_is_run_again(self, world: World) -> None:
        granted = await _claim(world, _first_version(ASKED))
        await world.perform(Fail(granted.lease, "retry", Failure("builtins.OSError", "no"), doubtful=False))
        assert not (await world.client().run(fingerprint=ASKED)).replayed
        assert (await world.client().read()).status is Status.COMPLETED

    async def test_an_expired_key_of_an_earlier_release_is_claimed_in_the_new_way(self, world: World) -> None:
        await _complete(world, _first_version(ASKED), KEPT_ONE_HOUR)
        world.clock.advance(3600)
        assert not (await world.client().run(fingerprint=ASKED)).replayed
        assert (await world.client().read()).fingerprint == _plain(ASKED)

    async def test_a_waiter_gets_the_value_of_an_owner_of_an_earlier_release(self, world: World) -> None:
        granted = await _claim(world, _first_version(ASKED))
        client = world.client()
        waiter = client.start(fingerprint=ASKED)
        await world.waiting((client, 1))
        await world.perform(Complete(granted.lease, EARLIER))
        assert (await world.finish(waiter)).value == "earlier"
        assert world.ran == []

    async def test_another_way_costs_one_more_claim_and_the_same_way_none(self, world: World) -> None:
        watched = world.watched()
        client = world.client(watched)
        await _complete(world, _first_version(ASKED))
        await client.run(fingerprint=ASKED)
        assert watched.count(Claim) == 2, f"the store was sent {watched.count(Claim)} operations of the kind Claim"
        await client.error(fingerprint=OTHER)
        assert watched.count(Claim) == 3, f"the store was sent {watched.count(Claim)} operations of the kind Claim"

    async def test_a_function_with_a_new_optional_parameter_replays_what_ran_before(self, world: World) -> None:
        def charge(order: str, amount: int) -> int:
            world.ran.append(amount)
            return amount

        def charge_since(order: str, amount: int, currency: str = "EUR", notify: bool = True) -> int:
            world.ran.append((amount, currency))
            return amount

        before = world.client().once(key="order", operation="charge")(charge)
        since = world.client().once(key="order", operation="charge")(charge_since)
        assert await before("o-1", 10) == await since("o-1", 10) == await since("o-1", 10, "EUR", notify=True)
        assert await since("o-2", 20) == await before("o-2", 20)
        assert world.ran == [10, (20, "EUR")]
        with pytest.raises(KeyReused):
            await since("o-1", 10, "USD")


class SecretContract(Contract):
    """Digests under a secret: nobody can guess what was asked, and a secret can be changed."""

    async def test_a_keyed_fingerprint_is_not_the_plain_one(self, world: World) -> None:
        await world.client(fingerprint_secret=NEW).run(fingerprint=ASKED)
        stored = (await world.client().read()).fingerprint
        assert stored[-32:] not in {_plain(ASKED)[-32:], _keyed(ASKED)[-32:]}

    async def test_two_processes_with_one_secret_agree(self, world: World) -> None:
        await world.client(fingerprint_secret=NEW).run(fingerprint=ASKED)
        assert (await world.client(fingerprint_secret=NEW.decode()).run(fingerprint=ASKED)).replayed
        assert isinstance(await world.client(fingerprint_secret=NEW).error(fingerprint=OTHER), KeyReused)

    @pytest.mark.parametrize("secret", [None, NEW], ids=["none", "another"])
    @pytest.mark.parametrize("elapsed", [0, 3600], ids=["running", "lapsed"])
    async def test_a_record_under_an_unknown_secret_is_not_compared_and_not_run(
        self, world: World, secret: bytes | None, elapsed: float
    ) -> None:
        await _claim(world, _keyed(ASKED))
        world.clock.advance(elapsed)
        error = await world.client(fingerprint_secret=secret).error(fingerprint=ASKED)
        assert isinstance(error, RecordUnreadable)
        assert "secret" in str(error)
        assert world.ran == []

    async def test_a_secret_is_changed_in_three_steps_without_a_refusal(self, world: World) -> None:
        clients = [world.client(fingerprint_secret=known) for known in (OLD, (OLD, NEW), (NEW, OLD))]
        for number, (maker, reader) in enumerate([(0, 1), (1, 0), (1, 2), (2, 1)]):
            await clients[maker].run(f"k{number}", fingerprint=ASKED)
            assert (await clients[reader].run(f"k{number}", fingerprint=ASKED)).replayed, f"{maker} then {reader}"
        assert (await world.client(fingerprint_secret=NEW).run("k3", fingerprint=ASKED)).replayed


async def _claim(world: World, fingerprint: bytes, policy: Policy | None = None) -> Granted:
    """A process that took the fingerprint in this way, claimed, and is running."""
    claim = msgspec.structs.replace(world.claim(policy=policy), fingerprint=fingerprint)
    (answer,) = await world.perform(claim)
    assert isinstance(answer, Granted), f"the claim was not granted: {answer}"
    return answer


async def _complete(world: World, fingerprint: bytes, policy: Policy | None = None) -> None:
    """The same, and it completed with the value "earlier"."""
    granted = await _claim(world, fingerprint, policy)
    await world.perform(Complete(granted.lease, EARLIER))
