"""The service on MariaDB: its tables are made there, and what is locked elsewhere is locked there too."""

import asyncio

import pytest

from tests.payments.conftest import Build, prepare
from tests.payments.till import rows

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def mariadb_database(request: pytest.FixtureRequest) -> str:
    url = str(request.getfixturevalue("mariadb").new_database())
    asyncio.run(prepare(url))
    return url


async def test_balances_and_bulks_hold_on_mariadb(build: Build, mariadb_database: str) -> None:
    till = await build(mariadb_database)
    shop = await till.shop()
    top_up, spending = {"amount": "5.00", "payment_method_id": "tok_ok"}, {"amount": "7.00", "reference": "order"}
    added = await asyncio.gather(*(shop.send("/wallets/ada/top-ups", top_up) for _ in range(4)))
    spent = await asyncio.gather(*(shop.send("/wallets/ada/payments", spending) for _ in range(5)))
    assert [answer.status_code for answer in added] == [201] * 4
    assert sorted(answer.status_code for answer in spent) == [201, 201, 409, 409, 409]
    till.gateway.faults(lose_reply=2)
    address = await shop.bulk(rows(6))
    await till.run_bulks()
    assert (await shop.get(address))["completed"] == 6
    assert sorted(till.charges().values()) == [1] * 10
