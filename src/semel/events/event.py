"""An event as CloudEvents 1.0 describes it, and how it is written down: as JSON, as headers and body, in queues.

- Identity is `source` and `id`. Only the constructor makes an id; what is read without one is refused, because an id
  that is made at the receiving end would be another one for each delivery.
- An event is compared and kept as JSON has it (`plain_event`, `compared_data`), so that it is the same one in any form.
- Reading takes time in proportion to the bytes, and what is not an event raises `EventInvalid` before anything ran.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Literal
from urllib.parse import quote, unquote_to_bytes
from uuid import uuid4

import msgspec

from semel.errors import EventInvalid

JSON_EVENT: Final = "application/cloudevents+json"
SPEC_VERSION: Final = "1.0"
MAX_TEXT: Final = 2048
"""Characters of one attribute: addresses fit, and a record that names an event stays small."""
MAX_DEPTH: Final = 63
"""Levels of lists and objects in data: of what is deeper no fingerprint is taken, nor can it be read again for sure."""

_REQUIRED: Final = ("id", "source", "type")
_OPTIONAL: Final = ("subject", "datacontenttype", "dataschema")
_ATTRIBUTES: Final = frozenset({*_REQUIRED, *_OPTIONAL, "time", "specversion", "data", "data_base64"})
_EXTENSION: Final = re.compile(r"[a-z0-9]{1,64}")
_NOT_TEXT: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_PREFIXES: Final = ("ce-", "ce_", "cloudevents:", "cloudevents_")
"""How the bindings of HTTP and NATS, of Kafka, and of AMQP write the names of attributes in headers."""
_UNQUOTED: Final = "!#$&'()*+,-./:;<=>?@[]^_`{|}~"
"""What the binding of HTTP leaves as it is in a header: all visible ASCII but quotation marks and percent signs."""

Extension = str | int | bool | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, and who says so.

    Attributes:
        type: what kind of thing happened, such as `asset.registered`.
        source: who says so; together with `id` it names this event among all others.
        subject: what it happened to.
        data: values that JSON can hold, or bytes. Text under a `datacontenttype` that is not JSON travels as that text.
        id: given by the producer; without it, one is made. Inside a handler leave it out and let the outbox derive it.
        time: when it happened; now, where it is not given. None only in an event that was read without one.
        datacontenttype: what `data` is; JSON unless it is bytes.
        dataschema: where the schema of `data` is described.
        extensions: further attributes, by names of small letters and digits.
    """

    type: str
    source: str
    subject: str | None = None
    data: Any = None
    id: str = ""
    time: datetime | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: Mapping[str, Extension] = field(default_factory=dict)
    has_own_id: bool = field(default=True, init=False, compare=False, repr=False)
    """False where the constructor made the id."""
    _body: bytes | None = field(default=None, init=False, compare=False, repr=False)
    """`data` as it was kept, where the event is one that was."""
    _is_plain: bool = field(default=False, init=False, compare=False, repr=False)
    """Whether `data` is what reading JSON, or a body, has given."""

    def __post_init__(self) -> None:
        if self.id == "":
            object.__setattr__(self, "id", str(uuid4()))
            object.__setattr__(self, "has_own_id", False)
        if self.time is None:
            object.__setattr__(self, "time", datetime.now(UTC))
        _check(self)

    def with_id(self, id: str) -> Event:  # noqa: A002 - the name of the attribute
        """The same event under another id."""
        return replace(self, id=id)

    @property
    def body(self) -> bytes:
        """`data` as bytes, as it travels beside headers.

        Raises:
            EventInvalid: it holds what JSON cannot.
        """
        return write_data(self.data, self.datacontenttype) if self._body is None else self._body

    def to_json(self) -> bytes:
        """The whole event as JSON (`application/cloudevents+json`).

        Raises:
            EventInvalid: `data` holds what JSON cannot.
        """
        members: dict[str, Any] = {"specversion": SPEC_VERSION, **_texts_of(self)}
        members |= {name: _json_extension(value) for name, value in self.extensions.items()}
        if isinstance(self.data, bytes | bytearray):
            members["data_base64"] = base64.b64encode(self.data).decode()
        elif self.data is not None:
            members["data"] = self.data
        return _encode(members)

    def to_headers(self) -> tuple[dict[str, str], bytes]:
        """The attributes as headers (`ce-id` and so on) and the data as a body.

        Raises:
            EventInvalid: `data` holds what JSON cannot.
        """
        texts, body = attributes_of(self)
        content_type = texts.pop("datacontenttype", None)
        headers = {f"ce-{name}": quote(text, safe=_UNQUOTED) for name, text in texts.items()}
        if content_type is not None:
            headers["content-type"] = content_type
        return headers, body

    @staticmethod
    def from_json(text: bytes | str) -> Event:
        """Read an event that is JSON as a whole.

        Raises:
            EventInvalid: it is no event, or has no id, source or type.
        """
        members = _decode(text)
        if not isinstance(members, dict):
            raise EventInvalid(f"An event is a JSON object, not {_kind(members)}; nothing ran.")
        return _from_members(members)

    @staticmethod
    def from_headers(headers: Mapping[str, Any], body: bytes) -> Event:
        """Read an event from headers and a body; also one that is JSON as a whole, if its content type says so.

        Names of headers are compared without case, with any prefix that a binding of CloudEvents uses.

        Raises:
            EventInvalid: it is no event, or has no id, source or type.
        """
        members: dict[str, Any] = {}
        content_type: str | None = None
        for name, value in headers.items():
            kind, attribute = _read_name(name if type(name) is str else str(name))
            if kind == "other" or value is None:  # AMQP and Kafka know headers without a value
                continue
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            if kind == "content-type":
                content_type = text
            else:
                _add(members, attribute, _unquote(text) if kind == "quoted" else text)
        if content_type is not None and _media_type(content_type) == JSON_EVENT:
            return Event.from_json(body)
        if content_type is not None:
            members["datacontenttype"] = content_type
        if "data" in members or "data_base64" in members:
            raise EventInvalid("The data of an event with headers is its body, no header; nothing ran.")
        return _from_members(members, body=body)

    @staticmethod
    def from_eventbridge(
        message: Mapping[str, Any],
        *,
        id: str = "id",  # noqa: A002 - the name of the attribute
        subject: str | None = None,
    ) -> Event:
        """Read what EventBridge delivers; also an event whose `detail` is a CloudEvent as a whole, with its own id.

        Args:
            message: the message, decoded.
            id: where the id of the producer is, unless `detail` is a CloudEvent, as a path of names with dots, such as
                `detail.event_id`. EventBridge makes an `id` of its own for each put, so that one that was put twice
                has two.
            subject: where the subject is; as above.

        Raises:
            EventInvalid: something that an event needs is not there.
        """
        detail = message.get("detail")
        if isinstance(detail, Mapping) and "specversion" in detail:
            return _from_members(detail, is_plain=False)
        members = {
            "specversion": SPEC_VERSION,
            "id": find_path(message, id),
            "source": find_path(message, "source"),
            "type": find_path(message, "detail-type"),
            "data": detail,
        }
        if message.get("time") is not None:
            members["time"] = message["time"]
        if subject is not None:
            members["subject"] = find_path(message, subject)
        return _from_members(members, is_plain=False)

    @staticmethod
    def from_sqs(message: Mapping[str, Any], *, id: str | None = None) -> Event:  # noqa: A002 - as above
        """Read a message of SQS: an event as JSON, one with attributes as headers, or one that EventBridge put there.

        Args:
            message: as `ReceiveMessage` gives it, or as Lambda does.
            id: where the id of the producer is in a body that is no CloudEvent, as a path of names with dots. Such a
                body names its `source` and `type` beside it, and is the data as a whole. The `MessageId` is never
                taken: a message that is sent twice has two.

        Raises:
            EventInvalid: something that an event needs is not there.
        """
        small = {str(name).lower(): value for name, value in message.items()}
        body = small.get("body")
        if not isinstance(body, str):
            raise EventInvalid("A message of SQS has a body, and this one has none; nothing ran.")
        headers = _attributes_of(small.get("messageattributes"))
        if any(name.lower().startswith(_PREFIXES) for name in headers):
            return Event.from_headers(headers, _encode_text(body))
        members = _decode(body)
        if not isinstance(members, dict):
            raise EventInvalid(f"An event is a JSON object, not {_kind(members)}; nothing ran.")
        if "detail-type" in members:
            return Event.from_eventbridge(members, id="id" if id is None else id)
        if id is not None and "specversion" not in members:
            named = {
                "id": find_path(members, id),
                "source": find_path(members, "source"),
                "type": find_path(members, "type"),
            }
            return _from_members({**named, "data": members})
        return _from_members(members)


def is_attribute(header: str) -> bool:
    """Whether a header is one of a CloudEvent, as any binding writes them."""
    return _read_name(header)[0] in ("quoted", "plain")


@lru_cache(maxsize=1024)
def _read_name(header: str) -> tuple[Literal["content-type", "quoted", "plain", "other"], str]:
    """What a header is, and the attribute that it is of; there are few names and many events.

    Only the binding that `ce-` is of writes what is not plain ASCII with percent signs.
    """
    small = header.lower().replace("content_type", "content-type")
    if small == "content-type":
        return "content-type", ""
    prefix = next((prefix for prefix in _PREFIXES if small.startswith(prefix)), None)
    if prefix is None:
        return "other", ""
    return "quoted" if prefix == "ce-" else "plain", small.removeprefix(prefix)


# What puts each attribute of an event in its place, past the check of the constructor. A relay restores every event
# that it publishes, so they are called one by one: a loop over them takes twice as long.
(
    _put_type,
    _put_source,
    _put_subject,
    _put_data,
    _put_id,
    _put_time,
    _put_datacontenttype,
    _put_dataschema,
    _put_extensions,
    _put_has_own_id,
    _put_body,
    _put_is_plain,
) = [vars(Event)[one.name].__set__ for one in fields(Event)]


def restore_event(
    *,
    type: str,  # noqa: A002 - the names of the attributes
    source: str,
    subject: str | None,
    data: Any,
    id: str,  # noqa: A002
    time: datetime | None,
    datacontenttype: str | None,
    dataschema: str | None,
    extensions: Mapping[str, Extension],
    body: bytes | None,
) -> Event:
    """An event as it was kept. It was checked when it was made, and its data is sent as it was written down then."""
    event = object.__new__(Event)
    _put_type(event, type)
    _put_source(event, source)
    _put_subject(event, subject)
    _put_data(event, data)
    _put_id(event, id)
    _put_time(event, time)
    _put_datacontenttype(event, datacontenttype)
    _put_dataschema(event, dataschema)
    _put_extensions(event, extensions)
    _put_has_own_id(event, True)  # noqa: FBT003 - it was given, or derived
    _put_body(event, body)
    _put_is_plain(event, True)  # noqa: FBT003
    return event


def plain_event(event: Event) -> Event:
    """The event with its data as it is read from JSON: as everybody has it who is sent it.

    Raises:
        EventInvalid: it holds what JSON cannot, or what could not be read again.
    """
    if event._is_plain:  # noqa: SLF001 - of this module
        return event
    _encode([_json_extension(value) for value in event.extensions.values()])
    data = event.data
    if isinstance(data, bytes | bytearray):
        data = bytes(data)
    elif data is not None:
        data = _decode(_encode_ordered(data))
    _check_depth(data)
    return restore_event(
        type=event.type,
        source=event.source,
        subject=event.subject,
        data=data,
        id=event.id,
        time=event.time,
        datacontenttype=event.datacontenttype,
        dataschema=event.dataschema,
        extensions=event.extensions,
        body=None,
    )


def compared_data(event: Event) -> Any:
    """The data of a plain event as it is read from a body.

    JSON and headers write some data differently: text that is not JSON, and bytes that are. It is the same event.
    """
    data = event.data
    if data is None or (_is_json(event.datacontenttype) and not isinstance(data, bytes | bytearray)):
        return data
    try:
        return _read_body(event.body, event.datacontenttype)
    except EventInvalid:
        return data


def write_data(data: Any, content_type: str | None = None) -> bytes:
    """Data as a body.

    Raises:
        EventInvalid: it holds what JSON cannot.
    """
    if data is None:
        return b""
    if isinstance(data, bytes | bytearray):
        return bytes(data)
    if isinstance(data, str) and not _is_json(content_type):
        return _encode_text(data)
    return _encode(data)


def is_plain_text(event: Event) -> bool:
    """Whether the data is text that travels as it is, and not as JSON."""
    return isinstance(event.data, str) and not _is_json(event.datacontenttype)


def describe_event(event: Event) -> tuple[dict[str, str], bytes]:
    """Headers and a body for people, of an event that JSON cannot hold. They are never read as an event."""
    headers = {f"ce-{name}": quote(text, safe=_UNQUOTED) for name, text in _texts_of(event).items()}
    headers["content-type"] = "application/json"
    body = _describe(event.data).encode("utf-8", "backslashreplace")
    try:
        _decode(body)
    except EventInvalid:
        return headers, body
    return headers, b"not JSON: " + body


def _describe(data: object) -> str:
    for write in (json.dumps, repr):
        try:
            return write(data)
        except Exception:  # noqa: BLE001, S112 - of values of the caller, which may do anything; the next is tried
            continue
    return f"not JSON: {_kind(data)}"


def attributes_of(event: Event) -> tuple[dict[str, str], bytes]:
    """The attributes as text, by their names without any prefix, and the data as a body.

    Raises:
        EventInvalid: `data` holds what JSON cannot.
    """
    texts = {"specversion": SPEC_VERSION, **_texts_of(event)}
    texts |= {name: _text_extension(value) for name, value in event.extensions.items()}
    if "datacontenttype" not in texts and event.data is not None and not isinstance(event.data, bytes | bytearray):
        texts["datacontenttype"] = "application/json"
    return texts, event.body


def _check(event: Event) -> None:
    for name in (*_REQUIRED, *_OPTIONAL):
        value = getattr(event, name)
        if value is None and name in _OPTIONAL:
            continue
        _check_text(name, value)
    if event.time is not None and (not isinstance(event.time, datetime) or event.time.tzinfo is None):
        raise EventInvalid("The time of an event is a datetime with a time zone; nothing ran.")
    for name, value in event.extensions.items():
        if name in _ATTRIBUTES or not _EXTENSION.fullmatch(name):
            raise EventInvalid(
                f"An extension is named by up to 64 small letters and digits, and not like an attribute; nothing ran. "
                f"This one is {name!r:.80}."
            )
        if isinstance(value, str):
            _check_text(name, value)
        elif not isinstance(value, int | bytes):
            raise EventInvalid(f"The extension {name!r} is text, a whole number, a bool or bytes; nothing ran.")


def is_text(value: str) -> bool:
    """Whether it can be an attribute: not empty, not too long, and something that every broker and store can hold."""
    return 0 < len(value) <= MAX_TEXT and _NOT_TEXT.search(value) is None


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise EventInvalid(f"{name!r} of an event is text, not {_kind(value)}; nothing ran.")
    if not is_text(value):
        raise EventInvalid(
            f"{name!r} of an event is 1 to {MAX_TEXT} characters without control characters; nothing ran. "
            f"This one has {len(value)}."
        )


def _texts_of(event: Event) -> dict[str, str]:
    """Attributes that are set, as text."""
    texts = {name: value for name in (*_REQUIRED, *_OPTIONAL) if (value := getattr(event, name)) is not None}
    if event.time is not None:
        texts["time"] = _write_time(event.time)
    return texts


def _write_time(time: datetime) -> str:
    """An instant as RFC 3339 has it, which knows no seconds in its distance from UTC, as old local times have."""
    if (time.utcoffset() or timedelta()) % timedelta(minutes=1):
        time = time.astimezone(UTC)
    return time.isoformat().replace("+00:00", "Z")


def _from_members(members: Mapping[str, Any], *, body: bytes | None = None, is_plain: bool = True) -> Event:
    """The event of these attributes; `body` is its data where that travels apart. Plain is what was decoded here.

    Raises:
        EventInvalid: one that is required is missing, or one is not what it must be.
    """
    if missing := [name for name in _REQUIRED if members.get(name) in (None, "")]:
        raise EventInvalid(f"An event has no {' and no '.join(missing)}; nothing ran. The producer has to give it.")
    version = members.get("specversion", SPEC_VERSION)
    if version != SPEC_VERSION:
        raise EventInvalid(f"CloudEvents {SPEC_VERSION} is understood, not {version!r:.40}; nothing ran.")
    data = _read_data(members) if body is None else _read_body(body, members.get("datacontenttype"))
    _check_depth(data)
    event = Event(
        type=members["type"],
        source=members["source"],
        id=members["id"],
        subject=members.get("subject"),
        time=_read_time(members.get("time")),
        datacontenttype=members.get("datacontenttype"),
        dataschema=members.get("dataschema"),
        data=data,
        extensions={name: value for name, value in members.items() if name not in _ATTRIBUTES and value is not None},
    )
    if members.get("time") is None:
        object.__setattr__(event, "time", None)  # when it was read is not when it happened
    _put_is_plain(event, is_plain)
    return event


def _read_time(value: object) -> datetime | None:
    if value is None:
        return None
    try:
        time = msgspec.convert(value, datetime)
    except (msgspec.ValidationError, UnicodeError):
        time = None
    if time is None or time.tzinfo is None:
        raise EventInvalid(
            f"The time of an event is an instant such as 2026-11-16T09:30:00Z, not {value!r:.60}; nothing ran."
        )
    return time


def _read_data(members: Mapping[str, Any]) -> Any:
    """The data of an event that is JSON as a whole."""
    if "data_base64" not in members:
        return members.get("data")
    if members.get("data") is not None:
        raise EventInvalid("An event has data or data_base64, not both; nothing ran.")
    try:
        return base64.b64decode(members["data_base64"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise EventInvalid("data_base64 of an event is no base64; nothing ran.") from None


def _read_body(body: bytes, content_type: object) -> Any:
    """The data of an event whose attributes are headers: JSON if its type says so, or if it has none and is JSON."""
    if not body:
        return None
    if not isinstance(content_type, str):
        try:
            return _decode(body)
        except EventInvalid:
            return bytes(body)
    return _decode(body) if _is_json(content_type) else bytes(body)


def _is_json(content_type: str | None) -> bool:
    """Whether data of this type is JSON, which it is where nothing is said."""
    if content_type is None:
        return True
    media_type = _media_type(content_type)
    return media_type in ("application/json", "text/json") or media_type.endswith("+json")


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _add(members: dict[str, Any], name: str, value: str) -> None:
    if name in members:
        raise EventInvalid(f"The header of {name!r:.80} is there twice; nothing ran.")
    members[name] = value


def _unquote(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode() if "%" in text else text
    except UnicodeDecodeError:
        raise EventInvalid(
            "A header of an event is not UTF-8 when its percent signs are decoded; nothing ran."
        ) from None


def find_path(message: Mapping[str, Any], path: str) -> Any:
    """What is at a path of names with dots.

    Raises:
        EventInvalid: nothing is there.
    """
    found: Any = message
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if found is None:
        raise EventInvalid(f"There is nothing at {path!r:.200} in the message; nothing ran.")
    return str(found) if isinstance(found, int) and not isinstance(found, bool) else found


def _attributes_of(attributes: object) -> dict[str, str]:
    """The attributes of a message that are text, by name; Lambda and `ReceiveMessage` spell them differently."""
    if not isinstance(attributes, Mapping):
        return {}
    texts: dict[str, str] = {}
    for name, attribute in attributes.items():
        value = attribute.get("StringValue", attribute.get("stringValue")) if isinstance(attribute, Mapping) else None
        if isinstance(value, str):
            texts[str(name)] = value
    return texts


def _json_extension(value: Extension) -> object:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _text_extension(value: Extension) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(_json_extension(value))


def _encode(value: Any) -> bytes:
    try:
        text = msgspec.json.encode(value)
        has_number = b"null" not in text or _is_finite(msgspec.to_builtins(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise EventInvalid(f"The data of an event cannot be written as JSON; nothing ran. {problem!s:.200}") from None
    if not has_number:
        raise EventInvalid("The data of an event has a number that is infinite or NaN, and JSON has none; nothing ran.")
    return text


def _encode_ordered(value: Any) -> bytes:
    """The same JSON in every process, where the value holds sets."""
    text = _encode(value)
    try:
        return msgspec.json.encode(value, order="deterministic")
    except TypeError:  # it has keys that are no text, or a set of several types
        return text


def _encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as problem:
        raise EventInvalid(f"The data of an event is text without UTF-8; nothing ran. {problem!s:.200}") from None


def _is_finite(value: Any) -> bool:
    """Whether no number in it is infinite or NaN, which are written as null."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, float) and not math.isfinite(one):
            return False
        if isinstance(one, dict):
            rest.extend(one.values())
        elif isinstance(one, list | tuple | set | frozenset):
            rest.extend(one)
    return True


def _decode(text: bytes | str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise EventInvalid(f"This is no JSON ({problem!s:.100}); nothing ran.") from None


def _check_depth(data: Any) -> None:
    """Refuse what no fingerprint is taken of.

    Raises:
        EventInvalid: it is nested too deep.
    """
    if _is_too_deep(data):
        raise EventInvalid(f"The data of an event is nested at most {MAX_DEPTH} levels deep; nothing ran.")


def _is_too_deep(data: Any) -> bool:
    """Whether lists and objects lie in each other more than `MAX_DEPTH` levels deep."""
    level = [data] if type(data) in (dict, list) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        held = (one.values() if type(one) is dict else one for one in level)
        level = [inner for values in held for inner in values if type(inner) in (dict, list)]
    return bool(level)


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
