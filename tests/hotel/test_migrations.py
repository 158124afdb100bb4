"""The migrations of the services make the tables that their code expects, on every database."""

from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection, MetaData, select

from examples.hotel.database import MIGRATIONS, Database
from examples.hotel.sample import add_sample
from examples.hotel.settings import utc_now
from examples.hotel.tables import Base, Hotel, RoomNight
from examples.payments import parts as payments
from examples.payments.tables import Base as PaymentsBase

pytestmark = pytest.mark.anyio


def _differences(tables: MetaData, connection: Connection) -> list[object]:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def is_ours(name: str | None, kind: str, parents: object) -> bool:
        return kind != "table" or name in tables.tables

    context = MigrationContext.configure(connection, opts={"include_name": is_ours, "compare_type": False})
    return [found for found in compare_metadata(context, tables) if "index" not in str(found[0])]


@pytest.mark.parametrize(
    ("migrations", "tables"),
    [(MIGRATIONS, Base.metadata), (payments.MIGRATIONS, PaymentsBase.metadata)],
    ids=["hotel", "payments"],
)
async def test_migrating_twice_leaves_exactly_the_mapped_tables(
    any_database: str, migrations: Path, tables: MetaData
) -> None:
    database = Database(any_database, migrations)
    await database.migrate()
    await database.migrate()
    async with database.engine.connect() as connection:
        assert await connection.run_sync(partial(_differences, tables)) == []
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
