"""What a redis URL says, and what is refused before anything is opened."""

from datetime import timedelta

import pytest

from semel.errors import UsageError
from semel.stores.redis.settings import Settings


def test_a_plain_url() -> None:
    settings = Settings.of("redis://db.example:7000/3")
    assert (settings.kind, settings.addresses, settings.db, settings.tls) == ("one", (("db.example", 7000),), 3, False)


def test_what_is_left_out_has_the_usual_values() -> None:
    settings = Settings.of("redis://")
    assert (settings.addresses, settings.db, settings.username) == ((("localhost", 6379),), 0, None)


def test_user_and_password_are_unquoted_and_never_shown() -> None:
    settings = Settings.of("rediss://ann:s%40cret@db/0")
    assert (settings.username, settings.password, settings.tls) == ("ann", "s@cret", True)
    assert "s@cret" not in repr(settings)
    assert settings.name == "rediss://db:6379/0"


def test_a_password_alone_has_no_user() -> None:
    settings = Settings.of("redis://:secret@db")
    assert (settings.username, settings.password) == (None, "secret")


def test_settings_stand_in_the_query_and_keywords_go_before_them() -> None:
    settings = Settings.of("redis://db?timeout=2&listen=no&evicting=allowed", timeout=timedelta(seconds=3))
    assert (settings.timeout, settings.listen, settings.evicting) == (3.0, False, "allowed")


def test_options_of_tls_are_passed_on() -> None:
    settings = Settings.of("rediss://db?ssl_ca_certs=/etc/ca.pem")
    assert settings.tls_options == {"ssl_ca_certs": "/etc/ca.pem"}


def test_a_cluster_is_named_by_some_of_its_nodes() -> None:
    settings = Settings.of("redis+cluster://a:7000,b:7001,[::1]:7002")
    assert settings.kind == "cluster"
    assert settings.addresses == (("a", 7000), ("b", 7001), ("::1", 7002))


def test_sentinels_name_a_service() -> None:
    settings = Settings.of("redis+sentinel://s1,s2:26380/mymaster?db=2")
    assert (settings.kind, settings.service, settings.db) == ("sentinel", "mymaster", 2)
    assert settings.addresses == (("s1", 26379), ("s2", 26380))


def test_two_patterns_are_two_places() -> None:
    assert Settings.of("redis://db").name != Settings.of("redis://db?pattern=a:{digest}").name


@pytest.mark.parametrize(
    "url",
    [
        "redis://db/x",
        "redis://a,b",
        "redis://db:port",
        "redis://db?timeout=0",
        "redis://db?timeout=soon",
        "redis://db?listen=maybe",
        "redis://db?evicting=yes",
        "redis://db?colour=red",
        "redis://db?pattern=fixed",
        "redis://db?name=x",
        "redis+cluster://db/1",
        "redis+sentinel://db",
    ],
)
def test_what_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="nothing was opened"):
        Settings.of(url)
