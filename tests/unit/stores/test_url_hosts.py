"""Hosts in the URLs of every store that has any: read alike under each release of Python, refused before opening."""

import pytest

from semel.errors import UsageError
from semel.stores.cache import Cache
from semel.stores.urls import store_from_url
from tests.strict_urlsplit import make_urlsplit_strict

WRONG_HOSTS = [
    pytest.param("[::1", id="a bracket that is not closed"),
    pytest.param("::1]", id="a bracket that is not opened"),
    pytest.param("[::1]x:7000", id="something behind the bracket"),
    pytest.param("x[::1]:7000", id="something before the bracket"),
    pytest.param("[localhost]:7000", id="a name in brackets"),
    pytest.param("[127.0.0.1]:7000", id="an IPv4 address in brackets"),
    pytest.param("::1", id="an IPv6 address without brackets"),
    pytest.param("a:70000", id="a port beyond the last"),
    pytest.param("a:0", id="the port 0"),
    pytest.param("a:x", id="a port that is no number"),
    pytest.param("a\nb:7000", id="a control character"),
]


@pytest.fixture(params=["this release", "strict about brackets"], autouse=True)
def urlsplit_of_python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`urlsplit` as it is here, and as newer releases have it."""
    if request.param == "strict about brackets":
        make_urlsplit_strict(monkeypatch)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis+cluster://a:7000,b:7001,[::1]:7002", "redis+cluster://a:7000,b:7001,[::1]:7002/0"),
        ("redis+cluster://[::1]:7000,[FE80::2]", "redis+cluster://[::1]:7000,[fe80::2]:6379/0"),
        ("redis+sentinel://s1,[::1],[::2]:26380/main", "redis+sentinel://s1:26379,[::1]:26379,[::2]:26380/main/0"),
        ("redis+cluster://ann:p[w@a,[::1]", "redis+cluster://a:6379,[::1]:6379/0"),
        ("redis://[::1]:7000/3", "redis://[::1]:7000/3"),
        ("rediss://:p]w@[::1]", "rediss://[::1]:6379/0"),
        (
            "postgresql://ann:p[w@a:5432,[::1]:5433/shop?target_session_attrs=read-write",
            "postgresql://a:5432,[::1]:5433/shop",
        ),
        ("postgresql://%2Frun%2Fpostgresql/shop", "postgresql://%2Frun%2Fpostgresql/shop"),
        ("postgresql:///shop?host=/run/postgresql", "postgresql:///shop"),
        ("mysql://ann:p[w@[::1]:3307/shop", "mysql://[::1]:3307/shop"),
        ("mysql:///shop?unix_socket=/run/my.sock", "mysql:///shop"),
    ],
)
def test_a_url_leads_to_the_hosts_it_names(url: str, name: str) -> None:
    assert store_from_url(url).name == name


def test_a_cache_may_be_a_cluster_with_an_ipv6_node() -> None:
    assert Cache.of("redis+cluster://a:7000,[::1]:7002?local=10").url == "redis+cluster://a:7000,[::1]:7002"


@pytest.mark.parametrize("scheme", ["redis+cluster", "redis+sentinel", "redis", "postgresql", "mysql"])
@pytest.mark.parametrize("host", WRONG_HOSTS)
def test_a_host_that_cannot_be_read_is_refused_without_showing_the_password(scheme: str, host: str) -> None:
    with pytest.raises(UsageError, match="nothing was opened") as refused:
        store_from_url(f"{scheme}://ann:secret@{host}/main")
    assert "secret" not in str(refused.value)


def test_mysql_refuses_a_list_of_hosts() -> None:
    with pytest.raises(UsageError, match="names one host; nothing was opened"):
        store_from_url("mysql://a:3306,b:3306/shop")
