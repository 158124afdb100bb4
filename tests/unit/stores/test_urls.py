"""From a URL to a store: the forms that work, and mistakes that are named without giving a password away."""

import os
import subprocess
import sys
from datetime import timedelta
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from semel.errors import UsageError
from semel.stores import urls
from semel.stores.memory import MemoryStore
from semel.stores.postgresql import PostgresStore
from semel.stores.sqlite import SqliteStore
from semel.stores.urls import store_from_url
from tests.unit.stores.operations import Clock


def sqlite(url: str, **settings: object) -> SqliteStore:
    store = store_from_url(url, **settings)
    assert isinstance(store, SqliteStore)
    return store


def test_three_slashes_are_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sqlite("sqlite:///data/semel.db").path == str(tmp_path / "data" / "semel.db")


def test_four_slashes_are_absolute() -> None:
    assert sqlite("sqlite:////var/lib/app/semel.db").path == "/var/lib/app/semel.db"


def test_a_path_is_unquoted() -> None:
    assert sqlite("sqlite:////var/my%20app/a%3Fb.db").path == "/var/my app/a?b.db"


def test_the_name_of_a_store_is_a_url_to_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "semel.db")
    assert sqlite(store.name).path == store.path


def test_settings_may_stand_in_the_url() -> None:
    settings = sqlite("sqlite:////x/semel.db?synchronous=normal&busy_for=2.5")._settings
    assert (settings.synchronous, settings.busy_for) == ("NORMAL", 2.5)


def test_settings_given_directly_go_first() -> None:
    clock = Clock()
    settings = sqlite("sqlite:////x/semel.db?busy_for=2", busy_for=timedelta(seconds=7), clock=clock)._settings
    assert (settings.busy_for, settings.clock) == (7, clock)


def test_memory_is_a_place_of_its_own_each_time() -> None:
    one, other = store_from_url("memory://"), store_from_url("memory://")
    assert isinstance(one, MemoryStore)
    assert isinstance(other, MemoryStore)
    assert one.table is not other.table


@pytest.mark.parametrize(
    "url",
    [
        "",
        "semel.db",
        "://x",
        "sqlite://semel.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///x.db?mode=ro",
        "sqlite:///x.db?busy_for=soon",
        "sqlite:///x.db?busy_for=nan",
        "sqlite:///x.db?busy_for=-1",
        "sqlite:///x.db?synchronous=off",
        "memory://name",
        "carrier-pigeon://loft",
    ],
)
def test_a_mistake_in_a_url_is_named(url: str) -> None:
    with pytest.raises(UsageError, match=r"nothing (was opened|ran)"):
        store_from_url(url)


def test_an_unknown_setting_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="pool_size"):
        store_from_url("memory://", pool_size=3)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgres://u@h/db", "postgresql://h/db"),
        ("postgresql+asyncpg://u@h/db", "postgresql://h/db"),
        ("postgresql+psycopg://u@h/db", "postgresql://h/db"),
        ("postgresql+psycopg2://u@h/db", "postgresql://h/db"),
        ("POSTGRESQL+ASYNCPG://u@h/db", "postgresql://h/db"),
        ("mariadb://u@h/db", "mysql://h/db"),
        ("mysql+pymysql://u@h/db?charset=utf8mb4", "mysql://h/db"),
        ("mysql+asyncmy://u@h/db", "mysql://h/db"),
        ("mysql+aiomysql://u@h/db", "mysql://h/db"),
        ("mariadb+pymysql://u@h/db", "mysql://h/db"),
        ("sqlite+aiosqlite:////x/semel.db", "sqlite:////x/semel.db"),
        ("sqlite+pysqlite:////x/semel.db", "sqlite:////x/semel.db"),
    ],
)
def test_a_driver_of_sqlalchemy_changes_nothing(url: str, name: str) -> None:
    assert store_from_url(url).name == name


def test_what_sqlalchemy_calls_ssl_for_asyncpg_is_sslmode() -> None:
    store = store_from_url("postgresql+asyncpg://u@h/db?ssl=require&pool_size=2")
    assert isinstance(store, PostgresStore)
    assert store._context.settings.url == "postgresql://u@h/db?sslmode=require"
    assert store._context.settings.pool_size == 2


@pytest.mark.parametrize("url", ["postgresql+carrier://u:s3cret@h/db", "mysql+pigeon://h/db", "sqlite+x:///a.db"])
def test_a_driver_that_is_not_known_is_explained(url: str) -> None:
    scheme = url.partition("+")[0]
    with pytest.raises(UsageError, match=rf"nothing was opened. Write {scheme}://: semel uses"):
        store_from_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+x://u:s3cret@h/db",
        "postgresql://u:s3cret@h/db?pool_size=no",
        "pigeon://u:s3cret@h",
        "u:s3cret@h/db",
        "sqlite://u:s3cret@h/x",
    ],
)
def test_no_error_gives_a_password_away(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        store_from_url(url)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(caught.value.__cause__)


def test_a_third_party_brings_its_own_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("pigeon", "tests.unit.stores.test_urls:from_pigeon", urls.GROUP)
    monkeypatch.setattr(urls, "entry_points", lambda **selection: EntryPoints([entry]).select(**selection))
    store = store_from_url("pigeon://loft")
    assert store.name.startswith("memory://")
    with pytest.raises(UsageError):
        store_from_url("sparrow://nest")


def from_pigeon(url: str) -> MemoryStore:
    assert url == "pigeon://loft"
    return MemoryStore()


def test_backends_are_imported_when_they_are_asked_for() -> None:
    program = "import sys, semel.stores.urls; print(*(m for m in sys.modules if m.startswith('semel.stores.')))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert loaded.stdout.split() == ["semel.stores.settings", "semel.stores.urls"]
