"""How a function of AWS Lambda is set up, as the service tells it: what triggers it, and what comes of failures.

A function cannot see this by itself, and a trigger that does not read its answers deletes what failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from semel.errors import UsageError
from semel.extras import requires

with requires("semel.events.brokers.lambda_triggers", "boto3"):
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as AwsConnectionError

_ANSWER_WITHIN: Final = 10
_FAILURES: Final = "ReportBatchItemFailures"


@dataclass(frozen=True, slots=True)
class Trigger:
    """What invokes a function with records.

    Attributes:
        service: `sqs`, `kinesis` or another.
        region: where the source is.
        source: the name of the queue or stream.
        is_enabled: whether it invokes the function at the moment.
        reports_failures: whether Lambda reads which records failed.
        most_retries: after how many retries Lambda gives a batch of a stream up; None: never, or it is of no stream.
        oldest: the age from which on Lambda drops records of a stream; None: there is none, or it is of no stream.
    """

    service: str
    region: str
    source: str
    is_enabled: bool
    reports_failures: bool
    most_retries: int | None
    oldest: timedelta | None


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """A function.

    Attributes:
        name: of the function.
        longest: how long an invocation may take.
        table: what TABLE_NAME is set to; None: it is not.
        triggers: what invokes it with records; events of EventBridge have no entry here.
    """

    name: str
    longest: timedelta
    table: str | None
    triggers: tuple[Trigger, ...]


def read_function(name: str) -> FunctionSettings:
    """The settings of a function, by its name or its ARN; region and credentials are those of the environment.

    Raises:
        UsageError: there is no such function, no region, or its settings may not be read.
        ConnectionError: Lambda does not answer.
    """
    try:
        client = boto3.session.Session().client(
            "lambda", region_name=_region_of(name), config=Config(read_timeout=_ANSWER_WITHIN)
        )
        found = client.get_function_configuration(FunctionName=name)
        pages = client.get_paginator("list_event_source_mappings").paginate(FunctionName=name)
        mappings = [mapping for page in pages for mapping in page["EventSourceMappings"]]
    except ClientError as error:
        raise UsageError(f"Lambda does not show {name!r}: {_reason_of(error)}; nothing was done.") from error
    except (HTTPClientError, AwsConnectionError) as error:
        raise ConnectionError(f"it did not answer ({type(error).__name__})") from error
    except BotoCoreError as error:
        raise UsageError(f"Lambda cannot be asked: {error} Nothing was done.") from error
    variables = found.get("Environment", {}).get("Variables", {})
    return FunctionSettings(
        name=str(found["FunctionName"]),
        longest=timedelta(seconds=int(found["Timeout"])),
        table=variables.get("TABLE_NAME"),
        triggers=tuple(_trigger_of(mapping) for mapping in mappings),
    )


def _region_of(name: str) -> str | None:
    return name.split(":")[3] if name.startswith("arn:") else None


def _reason_of(error: ClientError) -> str:
    code = str(error.response.get("Error", {}).get("Code", "unknown"))
    return {
        "ResourceNotFoundException": "there is no such function",
        "AccessDeniedException": "lambda:GetFunctionConfiguration or lambda:ListEventSourceMappings is not allowed",
    }.get(code, code)


def _trigger_of(mapping: Mapping[str, Any]) -> Trigger:
    _, _, service, region, _, resource = (str(mapping.get("EventSourceArn", "")) + ":::::").split(":")[:6]
    retries, age = mapping.get("MaximumRetryAttempts"), mapping.get("MaximumRecordAgeInSeconds")
    return Trigger(
        service=service,
        region=region,
        source=resource.removeprefix("stream/"),
        is_enabled=mapping.get("State") in ("Enabled", "Enabling", "Creating", "Updating"),
        reports_failures=_FAILURES in mapping.get("FunctionResponseTypes", ()),
        most_retries=None if retries is None or retries < 0 else int(retries),
        oldest=None if age is None or age < 0 else timedelta(seconds=int(age)),
    )
