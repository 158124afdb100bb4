"""The migrations make the tables that the code expects, on every database."""

import pytest
from sqlalchemy import Connection, select

from examples.hotel.database import Database
from examples.hotel.sample import add_sample
from examples.hotel.settings import utc_now
from examples.hotel.tables import Base, Hotel, RoomNight

pytestmark = pytest.mark.anyio


def _differences(connection: Connection) -> list[object]:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    context = MigrationContext.configure(connection, opts={"include_name": _is_ours, "compare_type": False})
    return [found for found in compare_metadata(context, Base.metadata) if "index" not in str(found[0])]


def _is_ours(name: str | None, kind: str, parents: object) -> bool:
    return kind != "table" or name in Base.metadata.tables


async def test_migrating_twice_leaves_exactly_the_mapped_tables(any_database: str) -> None:
    database = Database(any_database)
    await database.migrate()
    await database.migrate()
    async with database.engine.connect() as connection:
        assert await connection.run_sync(_differences) == []
    await database.close()


async def test_sample_data_is_added_to_an_empty_database_alone(any_database: str) -> None:
    database = Database(any_database)
    await database.migrate()
    for _ in range(2):
        await add_sample(database, utc_now)
    async with database.reading() as session:
        hotels = (await session.scalars(select(Hotel.id).order_by(Hotel.id))).all()
        nights = (await session.scalars(select(RoomNight))).all()
    assert (list(hotels), len(nights)) == (["H1", "H2", "H3"], 3 * 2 * 60)
    assert all(f"{night.price:.2f}" == str(night.price) for night in nights)
    await database.close()
