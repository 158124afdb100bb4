"""Looking at a MariaDB server, and what settings mean."""

import pytest

from semel.stores.admin import Finding
from semel.stores.mysql import MysqlStore
from semel.stores.mysql.admin import MysqlDoctor, collations, defaults, durability, engines, pooling, role
from semel.stores.mysql.store import MYSQL
from semel.stores.sql.adapters.pymysql import PymysqlAdapter
from semel.stores.sql.admin import AdminConnection
from tests.servers.databases import Databases

FINE = {
    "innodb_flush_log_at_trx_commit": "1",
    "sync_binlog": "1",
    "log_bin": "ON",
    "innodb_doublewrite": "ON",
    "read_only": "OFF",
    "sql_mode": "STRICT_TRANS_TABLES",
    "version": "11.4",
    "tx_isolation": "REPEATABLE-READ",
}


def wrong(findings: list[Finding]) -> dict[str, tuple[str, ...]]:
    return {finding.topic: finding.breaks for finding in findings if finding.verdict == "fix"}


def test_a_real_server_answers_every_question(mariadb: Databases) -> None:
    store = MysqlStore(mariadb.new_database())
    store._fetch_install_id()
    doctor = MysqlDoctor(store._context.settings)
    with AdminConnection(store._context, PymysqlAdapter(MYSQL)) as talk:
        topics = {finding.topic for finding in talk.run(doctor.server())}
        session, tables = talk.run(doctor.connection()), talk.run(doctor.tables())
        numbers = talk.run(doctor.numbers())
    assert {"innodb_flush_log_at_trx_commit", "sync_binlog", "role", "strict mode", "assignments"} <= topics
    assert wrong([*session, *tables]) == {}
    assert [finding.found for finding in tables] == ["InnoDB", "utf8mb4_bin; keys are compared as bytes"]
    assert (numbers.expired, numbers.in_doubt, numbers.lapsed, numbers.shortest_keep_us) == (0, 0, 0, None)


def test_durable_settings_are_fine() -> None:
    assert wrong([*durability(FINE), role(FINE), *defaults(FINE)]) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [("innodb_flush_log_at_trx_commit", "2"), ("sync_binlog", "0"), ("innodb_doublewrite", "OFF")],
)
def test_a_setting_that_loses_commits_must_be_changed(name: str, value: str) -> None:
    assert wrong(durability({**FINE, name: value})) == {name: ("durable",)}


def test_without_a_binary_log_it_need_not_be_synced() -> None:
    assert wrong(durability({**FINE, "sync_binlog": "0", "log_bin": "OFF"})) == {}


def test_a_replica_must_not_be_used() -> None:
    assert wrong([role({**FINE, "read_only": "ON"})]) == {"role": ("primary",)}


@pytest.mark.parametrize(
    ("mode", "topic"), [("", "strict mode"), ("STRICT_ALL_TABLES,SIMULTANEOUS_ASSIGNMENT", "assignments")]
)
def test_a_default_that_spoils_the_callers_transaction_must_be_changed(mode: str, topic: str) -> None:
    assert wrong(defaults({**FINE, "sql_mode": mode})) == {topic: ("joins",)}


def test_a_table_that_does_not_roll_back_must_be_changed() -> None:
    assert wrong([engines({"semel_record": "MyISAM"})]) == {"tables": ("durable", "joins")}


def test_another_collation_is_worth_knowing() -> None:
    assert collations({"semel_record": "utf8mb4_general_ci"}).verdict == "note"


@pytest.mark.parametrize(
    ("moved", "lost", "verdict"), [(False, False, "ok"), (True, False, "note"), (True, True, "fix")]
)
def test_a_pooling_proxy_is_told(moved: bool, lost: bool, verdict: str) -> None:
    assert pooling(moved=moved, lost=lost).verdict == verdict
