"""What every store declares has its members, also where it stands behind another one. Nothing is connected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from semel.core.store import ADMINISTRATION, Capability, Store
from semel.stores.admin import Admin, admin_of
from semel.stores.cache import Cache, TieredStore
from semel.stores.memory import MemoryStore
from semel.stores.urls import store_from_url
from semel.testing.contract.instrumented_store import InstrumentedStore
from tests.kill.watched import WatchedStore as KilledStore

URLS = {
    "sqlite": "sqlite:///{path}",
    "postgresql": "postgresql://localhost/shop",
    "postgresql pooled": "postgresql://localhost/shop?pooled=true",
    "mysql": "mysql://localhost/shop",
    "redis": "redis://localhost",
    "dynamodb": "dynamodb://table?region=eu-west-1",
}
WRAPPERS: dict[str, Callable[[Store], Store]] = {
    "itself": lambda store: store,
    "watched": InstrumentedStore,
    "killed": lambda store: KilledStore(store, lambda _lease: None),
}
STORE_MEMBERS = {
    Capability.SEPARATE_LOOP: ("separate_async_driver",),
    Capability.INVALIDATIONS: ("install_id",),
    Capability.LANE_WRAPPER: ("wrap_lane", "async_wrap_lane"),
    Capability.CLIENT_LIBRARIES: ("libraries",),
    Capability.FILE: ("path",),
    **dict.fromkeys(ADMINISTRATION, ("admin",)),
}
ADMIN_MEMBERS = {
    Capability.EXAMINE: ("examine",),
    Capability.MIGRATE: ("migrate",),
    Capability.MIGRATION_SQL: ("pending_sql",),
    Capability.ONLINE_MIGRATION: ("migrate", "pending"),
    Capability.SEARCH_INDEXES: ("migrate",),
    Capability.RESEAL: ("sealed_rows",),
    Capability.RESTORE_HOLD: ("restored", "end_restored"),
}


@pytest.fixture(params=["memory", "tiered", *URLS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "memory":
            return MemoryStore()
        case "tiered":
            return TieredStore(MemoryStore(), Cache(local=10))
        case name:
            return store_from_url(URLS[name].format(path=tmp_path / "semel.db"))


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_declared_capability_has_its_members(store: Store, wrap: Callable[[Store], Store]) -> None:
    wrapped = wrap(store)
    missing = [
        (capability.name, member)
        for capability in wrapped.capabilities
        for member in STORE_MEMBERS.get(capability, ())
        if not hasattr(wrapped, member)
    ]
    assert missing == []


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_drivers_listen_where_notifying_is_declared(store: Store, wrap: Callable[[Store], Store]) -> None:
    wrapped = wrap(store)
    driver = wrapped.driver()
    try:
        assert Capability.NOTIFY not in wrapped.capabilities or hasattr(driver, "listen")
    finally:
        driver.close()


def test_administration_overrides_exactly_what_is_declared(store: Store) -> None:
    declared = ADMINISTRATION & store.capabilities
    if not declared:
        assert not hasattr(store, "admin")
        return
    admin = type(admin_of(store, next(iter(declared))))
    overridden = {member for members in ADMIN_MEMBERS.values() for member in members if member in _own(admin)}
    assert overridden == {member for capability in declared for member in ADMIN_MEMBERS[capability]}


def _own(kind: type) -> set[str]:
    return {name for base in kind.__mro__ if base not in (Admin, object) for name in vars(base)}


@pytest.mark.parametrize(
    ("member", "capability"), [("libraries", Capability.CLIENT_LIBRARIES), ("path", Capability.FILE)]
)
def test_a_store_that_has_a_member_declares_it(store: Store, member: str, capability: Capability) -> None:
    assert hasattr(store, member) == (capability in store.capabilities)
