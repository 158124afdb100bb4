"""SQS and EventBridge for tests: the same ministack that answers as DynamoDB.

What always holds: queues, buses and rules have names that were made here, and it keeps everything in memory.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote

from tests.proxy.cut_off import CutOff
from tests.proxy.proxy import Proxy
from tests.servers import ministack
from tests.servers.databases import Endpoint
from tests.servers.ministack import CREDENTIALS, REGION, start
from tests.servers.room import Room
from tests.servers.service import Service


def service_url(scheme: str, endpoint: str) -> str:
    """The address of a service that answers at this endpoint, or of Amazon's."""
    return f"{scheme}://{REGION}" + (f"?endpoint={quote(endpoint, safe=':/')}" if endpoint else "")


@dataclass
class Queues:
    """A running service, seen by somebody who needs queues there."""

    endpoint: Endpoint
    made: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The address of SQS."""
        return service_url("sqs", self.endpoint.url)

    @property
    def eventbridge_url(self) -> str:
        """The address of EventBridge."""
        return service_url("eventbridge", self.endpoint.url)

    def new_name(self) -> str:
        """A name that nobody else uses."""
        return f"semel-{secrets.token_hex(6)}"

    @cached_property
    def client(self) -> Any:
        """Of SQS, for looking past the adapter."""
        return self._client("sqs")

    @cached_property
    def events(self) -> Any:
        """Of EventBridge, for the same."""
        return self._client("events")

    def _client(self, service: str) -> Any:
        import boto3

        url = self.endpoint.url
        secret = {name.lower(): value for name, value in CREDENTIALS.items()} if url else {}
        return boto3.session.Session().client(service, endpoint_url=url or None, region_name=REGION, **secret)

    def new_queue(self, *, is_fifo: bool = False, **attributes: Any) -> str:
        """Make a queue and return its name."""
        name = self.new_name() + (".fifo" if is_fifo else "")
        given = {key: value if isinstance(value, str) else json.dumps(value) for key, value in attributes.items()}
        made = self.client.create_queue(QueueName=name, Attributes=given | ({"FifoQueue": "true"} if is_fifo else {}))
        self.made.append(made["QueueUrl"])
        return name

    def url_of(self, queue: str) -> str:
        """What SQS knows a queue by."""
        found: str = self.client.get_queue_url(QueueName=queue)["QueueUrl"]
        return found

    def attributes(self, queue: str) -> dict[str, str]:
        """The settings of a queue, and how much is in it."""
        found: dict[str, str] = self.client.get_queue_attributes(QueueUrl=self.url_of(queue), AttributeNames=["All"])[
            "Attributes"
        ]
        return found

    def count(self, queue: str) -> int:
        """How many messages it has, those included that somebody holds."""
        found = self.attributes(queue)
        kinds = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        return sum(int(found[kind]) for kind in (*kinds, "ApproximateNumberOfMessagesDelayed"))

    def peek(self, queue: str) -> list[dict[str, Any]]:
        """The messages that nobody holds, which stay there."""
        asked = {"MaxNumberOfMessages": 10, "VisibilityTimeout": 0, "MessageAttributeNames": ["All"]}
        found: list[dict[str, Any]] = self.client.receive_message(QueueUrl=self.url_of(queue), **asked).get(
            "Messages", []
        )
        return found

    def drop_all(self) -> None:
        """Delete every queue that was made here."""
        while self.made:
            with suppress(self.client.exceptions.QueueDoesNotExist):
                self.client.delete_queue(QueueUrl=self.made.pop())


class Sqs(Service[Queues]):
    """How tests come by it."""

    name = "ministack"
    variable = "SEMEL_TEST_SQS_URL"

    def start(self, room: Room) -> Endpoint:
        server = start(room)
        return Endpoint(server.url, str(server.log))

    def connect(self, endpoint: Endpoint) -> Queues:
        # Without an address it is the service itself, by the SDK's own configuration.
        return Queues(endpoint if endpoint.url.startswith("http") else Endpoint(""))


@contextmanager
def cut_off() -> Iterator[CutOff]:
    """A private instance that can be cut off; it would forget everything if it ended.

    Raises:
        ServerMissing: there is none on this machine, and none could be installed.
    """
    with ministack.running() as server, Proxy(server.url) as proxy:
        yield CutOff(proxy)
