"""Cuts the bytes of a connection into the messages of its protocol and names them; no I/O.

What always holds: the messages put together again are the bytes that came, in order, and a message is given out only
when it is complete.
"""

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Direction(Enum):
    """Which way a message goes."""

    TO_SERVER = "to server"
    TO_CLIENT = "to client"


@dataclass(frozen=True)
class Message:
    """One message: its name in the protocol's own documentation, and all its bytes."""

    kind: str
    data: bytes


class Wire(Protocol):
    """The protocol of one connection, which may remember what was said before."""

    def feed(self, direction: Direction, data: bytes) -> list[Message]:
        """Take what came and return the messages that are complete now."""
        ...


_FRONTEND = {
    b"B": "Bind", b"C": "Close", b"D": "Describe", b"E": "Execute", b"F": "FunctionCall", b"H": "Flush", b"P": "Parse",
    b"Q": "Query", b"S": "Sync", b"X": "Terminate", b"c": "CopyDone", b"d": "CopyData", b"f": "CopyFail",
    b"p": "PasswordMessage",
}  # fmt: skip
_BACKEND = {
    b"1": "ParseComplete", b"2": "BindComplete", b"3": "CloseComplete", b"A": "NotificationResponse",
    b"C": "CommandComplete", b"D": "DataRow", b"E": "ErrorResponse", b"G": "CopyInResponse", b"H": "CopyOutResponse",
    b"I": "EmptyQueryResponse", b"K": "BackendKeyData", b"N": "NoticeResponse", b"R": "Authentication",
    b"S": "ParameterStatus", b"T": "RowDescription", b"V": "FunctionCallResponse", b"W": "CopyBothResponse",
    b"Z": "ReadyForQuery", b"c": "CopyDone", b"d": "CopyData", b"n": "NoData", b"s": "PortalSuspended",
    b"t": "ParameterDescription", b"v": "NegotiateProtocolVersion",
}  # fmt: skip
_BEFORE_STARTUP = {80877102: "CancelRequest", 80877103: "SSLRequest", 80877104: "GSSENCRequest"}


class PostgresqlWire:
    """One type byte and a length, except before the session begins."""

    def __init__(self) -> None:
        self._rest = dict.fromkeys(Direction, b"")
        self._started = False
        self._answers_of_one_byte = 0

    def feed(self, direction: Direction, data: bytes) -> list[Message]:
        self._rest[direction] += data
        messages = []
        while message := self._next(direction, self._rest[direction]):
            messages.append(message)
            self._rest[direction] = self._rest[direction][len(message.data) :]
        return messages

    def _next(self, direction: Direction, data: bytes) -> Message | None:
        if direction is Direction.TO_SERVER:
            return _typed(data, _FRONTEND) if self._started else self._first(data)
        # The answer to a request for encryption is a single letter, without a length.
        if self._answers_of_one_byte and data:
            self._answers_of_one_byte -= 1
            return Message("EncryptionResponse", data[:1])
        return _typed(data, _BACKEND)

    def _first(self, data: bytes) -> Message | None:
        """Requests for encryption may come before the start; none of them has a type byte."""
        if len(data) < 8:
            return None
        length, code = struct.unpack("!II", data[:8])
        if len(data) < length:
            return None
        kind = _BEFORE_STARTUP.get(code, "StartupMessage")
        self._started = kind == "StartupMessage"
        self._answers_of_one_byte += kind in ("SSLRequest", "GSSENCRequest")
        return Message(kind, data[:length])


def _typed(data: bytes, names: dict[bytes, str]) -> Message | None:
    if len(data) < 5:
        return None
    (length,) = struct.unpack("!I", data[1:5])
    if len(data) < length + 1:
        return None
    return Message(names.get(data[:1], repr(data[:1])), data[: length + 1])


_COMMANDS = {
    0x01: "Quit", 0x02: "InitDb", 0x03: "Query", 0x0E: "Ping", 0x11: "ChangeUser", 0x16: "Prepare", 0x17: "Execute",
    0x18: "SendLongData", 0x19: "CloseStatement", 0x1A: "ResetStatement", 0x1B: "SetOption", 0x1C: "Fetch",
    0x1F: "ResetConnection",
}  # fmt: skip
_REPLIES = {0x00: "Ok", 0xFE: "AuthSwitch", 0xFF: "Error"}


class MysqlWire:
    """Three bytes of length and a number that starts again with each command."""

    def __init__(self) -> None:
        self._rest = dict.fromkeys(Direction, b"")
        self._logged_in = False

    def feed(self, direction: Direction, data: bytes) -> list[Message]:
        self._rest[direction] += data
        messages = []
        while packet := _packet(self._rest[direction]):
            messages.append(Message(self._kind(direction, packet[3], packet[4:]), packet))
            self._rest[direction] = self._rest[direction][len(packet) :]
        return messages

    def _kind(self, direction: Direction, number: int, body: bytes) -> str:
        first = body[0] if body else -1
        if direction is Direction.TO_SERVER:
            if number == 0:
                return _COMMANDS.get(first, f"Command{first:#04x}")
            return "Continuation" if self._logged_in else "Login"
        if not self._logged_in:
            if number == 0:
                return "Error" if first == 0xFF else "Greeting"
            self._logged_in = first == 0x00
            return _REPLIES.get(first, "AuthMore")
        # Only the first packet of a reply says by its first byte what it is; in rows that byte is data.
        if number == 1:
            return {0x00: "Ok", 0xFF: "Error"}.get(first, "ResultSet")
        return "Part"


def _packet(data: bytes) -> bytes | None:
    if len(data) < 4:
        return None
    length = 4 + int.from_bytes(data[:3], "little")
    return data[:length] if len(data) >= length else None


class RedisWire:
    """Redis: a request is named by its first word, a reply by its first sign."""

    def __init__(self) -> None:
        self._left = dict.fromkeys(Direction, b"")

    def feed(self, direction: Direction, data: bytes) -> list[Message]:
        """Take what came and return the messages that are complete now."""
        left = self._left[direction] + data
        messages = []
        while (end := _resp_end(left, 0)) is not None:
            message, left = left[:end], left[end:]
            name = message.split(b"\r\n")[2] if direction is Direction.TO_SERVER else message[:1]
            messages.append(Message(name.decode().upper(), message))
        self._left[direction] = left
        return messages


class BytesWire:
    """Any other protocol: whatever comes at once is a message without a name."""

    def feed(self, direction: Direction, data: bytes) -> list[Message]:
        """Take what came and return it."""
        return [Message("bytes", data)]


def _resp_end(data: bytes, start: int) -> int | None:
    """Where the value that begins at `start` ends; None: not yet."""
    line = data.find(b"\r\n", start)
    if line < 0:
        return None
    end: int | None = line + 2
    sign, rest = data[start : start + 1], data[start + 1 : line]
    if sign in b"$*" and int(rest) < 0:
        return end
    if sign == b"$":
        end = line + 2 + int(rest) + 2
    elif sign == b"*":
        for _ in range(int(rest)):
            end = None if end is None else _resp_end(data, end)
    return end if end is not None and end <= len(data) else None
