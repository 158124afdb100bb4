"""Messages are cut out of a stream of bytes, however it is chopped."""

import pytest

from tests.proxy.wire import Direction, MysqlWire, PostgresqlWire, RedisWire, Wire

SERVER, CLIENT = Direction.TO_SERVER, Direction.TO_CLIENT

POSTGRESQL = [
    (SERVER, "SSLRequest", b"\0\0\0\x08\x04\xd2\x16\x2f"),
    (CLIENT, "EncryptionResponse", b"N"),
    (SERVER, "GSSENCRequest", b"\0\0\0\x08\x04\xd2\x16\x30"),
    (CLIENT, "EncryptionResponse", b"N"),
    (SERVER, "StartupMessage", b"\0\0\0\x0e\0\x03\0\0user\0\0"),
    (CLIENT, "Authentication", b"R\0\0\0\x08\0\0\0\0"),
    (CLIENT, "NoticeResponse", b"N\0\0\0\x05\0"),
    (CLIENT, "ReadyForQuery", b"Z\0\0\0\x05I"),
    (SERVER, "Parse", b"P\0\0\0\x08s\0\0\0"),
    (SERVER, "Sync", b"S\0\0\0\x04"),
    (CLIENT, "ParseComplete", b"1\0\0\0\x04"),
    (CLIENT, "ReadyForQuery", b"Z\0\0\0\x05I"),
    (SERVER, "Query", b"Q\0\0\0\x06;\0"),
    (CLIENT, "EmptyQueryResponse", b"I\0\0\0\x04"),
    (SERVER, "Terminate", b"X\0\0\0\x04"),
]
MYSQL = [
    (CLIENT, "Greeting", b"\x03\0\0\0\x0a10"),
    (SERVER, "Login", b"\x02\0\0\x01\x03\x0e"),
    (CLIENT, "AuthSwitch", b"\x01\0\0\x02\xfe"),
    (SERVER, "Login", b"\0\0\0\x03"),
    (CLIENT, "Ok", b"\x01\0\0\x04\0"),
    (SERVER, "Query", b"\x02\0\0\0\x03;"),
    (CLIENT, "Error", b"\x02\0\0\x01\xff\0"),
    (SERVER, "Query", b"\x02\0\0\0\x03;"),
    (CLIENT, "ResultSet", b"\x01\0\0\x01\x01"),
    (CLIENT, "Part", b"\x01\0\0\x02\0"),
    (SERVER, "Ping", b"\x01\0\0\0\x0e"),
    (CLIENT, "Ok", b"\x01\0\0\x01\0"),
    (SERVER, "Command0x7f", b"\x01\0\0\0\x7f"),
    (SERVER, "Quit", b"\x01\0\0\0\x01"),
]
REDIS = [
    (SERVER, "PING", b"*1\r\n$4\r\nping\r\n"),
    (CLIENT, "+", b"+PONG\r\n"),
    (SERVER, "EVALSHA", b"*3\r\n$7\r\nEVALSHA\r\n$2\r\n\r\n\r\n$0\r\n\r\n"),
    (CLIENT, "*", b"*3\r\n:1\r\n$-1\r\n*1\r\n$3\r\na\r\n\r\n"),
    (SERVER, "GET", b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
    (CLIENT, "-", b"-ERR no\r\n"),
]
Said = list[tuple[Direction, str, bytes]]
EACH = pytest.mark.parametrize(
    ("wire", "said"),
    [(PostgresqlWire, POSTGRESQL), (MysqlWire, MYSQL), (RedisWire, REDIS)],
    ids=["postgresql", "mysql", "redis"],
)


@EACH
def test_whole_messages_are_named(wire: type[Wire], said: Said) -> None:
    connection = wire()
    heard = [(way, message.kind, message.data) for way, _, data in said for message in connection.feed(way, data)]
    assert heard == said


@EACH
def test_single_bytes_become_the_same_messages(wire: type[Wire], said: Said) -> None:
    connection = wire()
    heard = [
        (way, message.kind, message.data)
        for way, _, data in said
        for byte in data
        for message in connection.feed(way, bytes([byte]))
    ]
    assert heard == said


@EACH
def test_messages_that_come_together_are_taken_apart(wire: type[Wire], said: Said) -> None:
    connection, whole = wire(), said
    heard: Said = []
    while said:
        way = said[0][0]
        run = next((at for at, one in enumerate(said) if one[0] is not way), len(said))
        heard += [
            (way, message.kind, message.data)
            for message in connection.feed(way, b"".join(data for _, _, data in said[:run]))
        ]
        said = said[run:]
    assert heard == whole
