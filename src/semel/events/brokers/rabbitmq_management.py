"""What RabbitMQ's management plugin tells of a queue; the protocol of messages itself tells nothing of its settings.

Where an argument of the queue and a policy set the same limit, the lower one counts, as it does on the broker.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from semel.errors import UsageError
from semel.events.brokers.limits import BrokerLimits

_WITHIN: Final = 10.0
_MOST_BYTES: Final = 1_000_000
_PORTS: Final = {"http": 15672, "https": 15671}
_AGE: Final = re.compile(r"(\d+)([YMDhms])")
_UNITS: Final = {"Y": 365 * 86400, "M": 30 * 86400, "D": 86400, "h": 3600, "m": 60, "s": 1}


def management_url(broker: str) -> str:
    """Where the plugin answers unless it is configured otherwise: the broker's host, at its usual port."""
    parts = urlsplit(broker)
    scheme = "https" if parts.scheme == "amqps" else "http"
    return f"{scheme}://{parts.hostname or 'localhost'}:{_PORTS[scheme]}"


def read_queue(broker: str, queue: str, management: str | None = None) -> BrokerLimits:
    """Ask for the settings of a queue.

    Args:
        broker: the address of the broker, whose user, password and virtual host are used.
        queue: the name of the queue.
        management: where the plugin answers, such as `http://host:15672`.

    Raises:
        ConnectionError: the plugin does not answer, or not as it should.
        UsageError: there is no such queue, or the user may not look.
    """
    parts = urlsplit(broker)
    vhost = unquote(parts.path[1:]) if len(parts.path) > 1 else "/"
    user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
    path = f"/api/queues/{quote(vhost, safe='')}/{quote(queue, safe='')}"
    status, body = _get(management or management_url(broker), path, user, password)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise UsageError(
            f"The user may not look at queues (status {status}); nothing was changed. Give it the tag monitoring."
        )
    if status == HTTPStatus.NOT_FOUND:
        raise UsageError(f"There is no queue {queue!r} in the virtual host {vhost!r}; nothing was changed.")
    try:
        told = json.loads(body)
        return limits_of(queue, told)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConnectionError(f"What answers there is no management plugin (status {status}).") from error


def _get(management: str, path: str, user: str, password: str) -> tuple[int, bytes]:
    parts = urlsplit(management)
    port = parts.port or _PORTS.get(parts.scheme, 0)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise UsageError("The address of the management plugin is http://host:port or https://…; nothing was asked.")
    connection: HTTPConnection
    if parts.scheme == "https":
        connection = HTTPSConnection(parts.hostname, port, timeout=_WITHIN, context=ssl.create_default_context())
    else:
        connection = HTTPConnection(parts.hostname, port, timeout=_WITHIN)
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    try:
        connection.request("GET", parts.path.rstrip("/") + path, headers={"Authorization": f"Basic {login}"})
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES)
    except (OSError, HTTPException) as error:
        raise ConnectionError(f"The management plugin does not answer ({type(error).__name__}).") from error
    finally:
        connection.close()


def limits_of(queue: str, told: Mapping[str, Any]) -> BrokerLimits:
    """What the plugin's description of a queue means."""
    arguments = told["arguments"] or {}
    policy = told.get("effective_policy_definition") or {}
    if not isinstance(policy, Mapping):
        policy = {}  # without a policy the plugin writes an empty list

    def lowest(name: str) -> int | None:
        found = [value for value in (arguments.get(f"x-{name}"), policy.get(name)) if isinstance(value, int)]
        return min(found, default=None)

    def first(name: str) -> Any:
        return arguments.get(f"x-{name}", policy.get(name))

    is_stream = told.get("type") == "stream" or arguments.get("x-queue-type") == "stream"
    if is_stream:
        longest, limited_by = _age(first("max-age")), "x-max-age"
    else:
        milliseconds = lowest("message-ttl")
        longest = None if milliseconds is None else timedelta(milliseconds=milliseconds)
        limited_by = "x-message-ttl"
    full = next((f"x-{name}" for name in ("max-length", "max-length-bytes") if lowest(name) is not None), None)
    timeout = lowest("consumer-timeout")
    return BrokerLimits(
        place=f"queue {queue}",
        longest=longest,
        limited_by=limited_by,
        drops_expired=longest is not None and not is_stream and first("dead-letter-exchange") is None,
        drops_when_full=full if first("overflow") in (None, "drop-head") else None,
        delivery_limit=lowest("delivery-limit"),
        delivery_limited_by="x-delivery-limit",
        consumer_timeout=None if timeout is None else timedelta(milliseconds=timeout),
    )


def _age(text: Any) -> timedelta | None:
    """An age as streams write it: `7D`, `12h`."""
    found = _AGE.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else timedelta(seconds=int(found[1]) * _UNITS[found[2]])
