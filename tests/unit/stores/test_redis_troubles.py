"""What errors of Redis mean: whether anything was recorded, and what to do."""

import pytest
from redis import exceptions

from semel.errors import RecordUnreadable, StoreUnavailable
from semel.stores.redis.errors import lost_reply_error, reply_error, unreached_error

NAME = "redis://db:6379/0"
REFUSALS = [
    exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
    exceptions.ReadOnlyError("You can't write against a read only replica."),
    exceptions.MasterDownError("Link with MASTER is down"),
    exceptions.ClusterDownError("CLUSTERDOWN The cluster is down"),
    exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
    exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk."),
    exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."),
    exceptions.NoPermissionError("this user has no permissions to run the 'evalsha' command"),
    exceptions.AuthenticationError("Authentication required."),
    exceptions.AuthenticationError("invalid username-password pair or user is disabled."),
    # As a script of an older server reports it.
    exceptions.ResponseError("Error running script (call to f_0): @user_script:5: OOM command not allowed"),
]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: f"{type(error).__name__} {error}"[:40])
def test_a_refusal_says_that_nothing_was_recorded(error: Exception) -> None:
    meant = reply_error(error, NAME)
    assert isinstance(meant, StoreUnavailable)
    assert not meant.ran
    assert "nothing was recorded" in meant.message
    assert meant.__cause__ is error


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (exceptions.NoPermissionError("no permissions"), "grant"),
        (exceptions.AuthenticationError("Authentication required."), "wants a user and a password"),
        (exceptions.AuthenticationError("invalid username-password pair"), "does not know this user"),
        (exceptions.ReadOnlyError("read only replica"), "the primary"),
    ],
)
def test_a_refusal_says_what_to_do(error: Exception, advice: str) -> None:
    assert advice in str(reply_error(error, NAME)).lower()


@pytest.mark.parametrize("word", ["WRONGTYPE Operation against a key", "UNREADABLE the key holds a hash"])
def test_a_key_that_holds_something_else_is_unreadable(word: str) -> None:
    assert isinstance(reply_error(exceptions.ResponseError(word), NAME), RecordUnreadable)


def test_a_reply_that_is_lost_is_no_refusal() -> None:
    meant = lost_reply_error(exceptions.TimeoutError("Timeout reading from socket"), NAME)
    assert isinstance(meant, StoreUnavailable)
    assert "not known" in meant.message


def test_what_was_never_sent_was_not_recorded() -> None:
    meant = unreached_error(exceptions.ConnectionError("Error 111 connecting to db:6379. Connection refused."), NAME)
    assert isinstance(meant, StoreUnavailable)
    assert "nothing was recorded" in meant.message


def test_a_mistake_in_a_script_stays_the_bug_it_is() -> None:
    bug = exceptions.ResponseError("ERR user_script:3: attempt to index a nil value")
    assert reply_error(bug, NAME) is bug
