"""A fork inherits no connection: parent and child each get the replies to what they asked for."""

import os
import warnings

import pytest

from semel.stores.redis import RedisStore
from tests.servers.redis import Keys
from tests.stores.redis.kit import BlockingAsker
from tests.unit.stores.operations import KEYS, Clock, claim

pytestmark = pytest.mark.slow


def test_a_fork_does_no_harm(keys: Keys, clock: Clock) -> None:
    asker = BlockingAsker(RedisStore(keys.url, clock=clock), clock)
    before = asker.granted().record
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the runner of the tests has threads
        child = os.fork()
    if not child:
        fine = False
        try:
            asker.all([claim(KEYS[1], number=2)])
            fine = asker.record() == before
            asker.close()
        finally:
            os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asker.record() == before
    assert asker.record(KEYS[1].digest) is not None
    asker.close()
