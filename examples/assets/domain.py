"""What happens to the assets of a plant, and what each event changes. No database and no broker is known here.

- An asset is two rows, each with a version of its own: what was registered, and the state it is in. So a change of
  state that arrives before the registration waits for nothing, and the last version of each wins in whatever order they
  come.
- Energy is a sum. Adding twice would be wrong, and nothing in the row could tell: the mark of the event prevents it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

import msgspec

from semel.events import Consumer, Event
from semel.versions import Write, update_versioned, upsert

State = Literal["idle", "running", "maintenance", "retired"]
# Within these bounds every database keeps what an event says, and no sum grows beyond what can be counted.
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Version = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Registered(msgspec.Struct, frozen=True):
    """An asset is put into service, or what is known of it was corrected: the whole, under the next version."""

    facility: str
    type: str
    capacity_kw: Amount
    version: Version = 1


class StateChanged(msgspec.Struct, frozen=True):
    """Its state and its load, numbered by whoever operates it."""

    state: State
    load_kw: Amount
    version: Version


class CapacityChanged(msgspec.Struct, frozen=True):
    """Its capacity was changed by somebody who had seen the registration at `expected`."""

    capacity_kw: Amount
    expected: Version


class EnergyMetered(msgspec.Struct, frozen=True):
    """So much energy went through since the last time."""

    kwh: Amount


class Plant(Protocol):
    """The tables, as the handlers use them: everything in the session that the consumer gives them."""

    async def save(self, session: Any, write: Write) -> None:
        """Carry out a versioned write."""

    async def add_energy(self, session: Any, asset: str, kwh: float) -> None:
        """Add to the sum of an asset."""


def register(asset: str, data: Registered) -> Write:
    """Keep what was registered, unless something newer is known."""
    values = {"facility": data.facility, "type": data.type, "capacity_kw": data.capacity_kw}
    return upsert("asset", {"id": asset}, values, newer=data.version)


def change_state(asset: str, data: StateChanged) -> Write:
    """Keep the state, unless a newer one is known."""
    return upsert("asset_state", {"id": asset}, {"state": data.state, "load_kw": data.load_kw}, newer=data.version)


def change_capacity(asset: str, data: CapacityChanged, event: Event) -> Write:
    """Change the capacity of the very registration that was seen; too early, it is delivered again."""
    request = {"request": event.id}
    return update_versioned(
        "asset", {"id": asset}, {"capacity_kw": data.capacity_kw}, expected=data.expected, request=request
    )


def add_handlers(consumer: Consumer[Any], plant: Plant) -> None:
    """Have `consumer` take the events of assets."""

    @consumer.on("asset.registered", "asset.saved")
    async def registered(event: Event, data: Registered, session: Any) -> None:
        await plant.save(session, register(name_of(event), data))

    @consumer.on("asset.state_changed")
    async def state_changed(event: Event, data: StateChanged, session: Any) -> None:
        await plant.save(session, change_state(name_of(event), data))

    @consumer.on("asset.capacity_changed")
    async def capacity_changed(event: Event, data: CapacityChanged, session: Any) -> None:
        await plant.save(session, change_capacity(name_of(event), data, event))

    @consumer.on("asset.energy_metered")
    async def energy_metered(event: Event, data: EnergyMetered, session: Any) -> None:
        await plant.add_energy(session, name_of(event), data.kwh)


class NoAsset(Exception):
    """The event does not say which asset it is about; no later delivery will."""


def name_of(event: Event) -> str:
    """The asset that an event is about.

    Raises:
        NoAsset: it does not say.
    """
    if not event.subject:
        raise NoAsset(f"{event.type} {event.id} has no subject")
    return event.subject
