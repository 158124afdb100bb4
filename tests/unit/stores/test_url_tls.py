"""TLS in the URLs of stores: who names a certificate gets an encrypted connection or a refusal, never plain text."""

import pytest

from semel import Semel
from semel.errors import UsageError
from semel.stores.cache import Cache
from semel.stores.urls import store_from_url

# Each of them would be plain text, or may turn out to be, although something in it is about TLS.
REFUSED = {
    "redis://db/0?ssl_ca_certs=/etc/ca.pem": r"ssl_ca_certs .*redis:// is not encrypted.*rediss://",
    "redis://db/0?ssl_cert_reqs=required": r"ssl_cert_reqs .*rediss://",
    "redis://db/0?ssl_certfile=/c.pem&ssl_keyfile=/k.pem": r"ssl_certfile, ssl_keyfile .*rediss://",
    "redis://db/0?tls=false&ssl_ca_certs=/etc/ca.pem": r"ssl_ca_certs .*rediss://",
    "redis+cluster://a,b?ssl_ca_certs=/etc/ca.pem": r"ssl_ca_certs .*tls=true",
    "redis+sentinel://a,b/main?ssl_ca_certs=/etc/ca.pem": r"ssl_ca_certs .*tls=true",
    "rediss://db/0?tls=false": r"rediss:// is encrypted, and tls=false says that it is not",
    "mysql://db/shop?ssl=false&ssl_ca=/etc/ca.pem": r"ssl_ca .*ssl=false",
    "mysql://db/shop?ssl=no&ssl_cert=/c.pem&ssl_key=/k.pem": r"ssl_cert, ssl_key .*ssl=no",
    "mysql://db/shop?ssl=true&ssl_key=/k.pem": r"ssl_key .*ssl_cert",
    "postgresql://db/shop?sslrootcert=/etc/ca.pem": r"sslrootcert .*sslmode=verify-full",
    "postgresql://db/shop?sslmode=prefer&sslrootcert=/etc/ca.pem": r"sslrootcert .*sslmode=verify-full",
    "postgresql://db/shop?sslmode=disable&sslcert=/c.pem&sslkey=/k.pem": r"sslcert, sslkey .*sslmode=verify-full",
    "postgresql://db/shop?sslmode=allow&sslcrl=/crl.pem": r"sslcrl .*sslmode=verify-full",
    "postgresql+asyncpg://db/shop?ssl=prefer&sslrootcert=/etc/ca.pem": r"sslrootcert .*sslmode=verify-full",
}
ACCEPTED = [
    "redis://db/0",
    "rediss://db/0?ssl_ca_certs=/etc/ca.pem",
    "rediss://db/0?tls=true",
    "redis://db/0?tls=true&ssl_ca_certs=/etc/ca.pem",
    "redis+cluster://a,b?tls=true&ssl_ca_certs=/etc/ca.pem",
    "mysql://db/shop?ssl=false",
    "mysql://db/shop?ssl=true&ssl_verify=false",
    "postgresql://db/shop",
    "postgresql://db/shop?sslmode=prefer",
    "postgresql://db/shop?sslmode=require&sslrootcert=/etc/ca.pem",
    "postgresql://db/shop?sslmode=verify-full&sslrootcert=/etc/ca.pem&sslcert=/c.pem&sslkey=/k.pem",
]


@pytest.fixture(autouse=True)
def _no_mode_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)


@pytest.mark.parametrize(("url", "why"), REFUSED.items())
def test_tls_settings_of_a_connection_that_may_be_plain_text_are_refused(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        store_from_url(url)
    assert "nothing was opened" in str(refused.value)


@pytest.mark.parametrize("url", ACCEPTED)
def test_tls_settings_of_an_encrypted_connection_are_taken(url: str) -> None:
    assert store_from_url(url).name


def test_tls_settings_given_as_keywords_are_refused_alike() -> None:
    with pytest.raises(UsageError, match="ssl_ca_certs"):
        store_from_url("redis://db/0", tls_options={"ssl_ca_certs": "/etc/ca.pem"})


@pytest.mark.parametrize("cache", ["redis://db?ssl_ca_certs=/etc/ca.pem", Cache("redis://db?ssl_ca_certs=/etc/ca.pem")])
def test_a_cache_in_plain_text_is_refused_alike(cache: str | Cache) -> None:
    with pytest.raises(UsageError, match="ssl_ca_certs"):
        Semel("sqlite:///unused.db", cache=cache)


def test_the_environment_may_say_that_postgresql_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert store_from_url("postgresql://db/shop?sslrootcert=/etc/ca.pem").name
    with pytest.raises(UsageError):
        store_from_url("postgresql://db/shop?sslmode=prefer&sslrootcert=/etc/ca.pem")


def test_where_postgresql_listens_is_checked_alike() -> None:
    with pytest.raises(UsageError, match="sslrootcert"):
        store_from_url("postgresql://db/shop", listen_url="postgresql://db/shop?sslrootcert=/etc/ca.pem")
