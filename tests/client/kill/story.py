"""What happened in a round, as values."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.client.kill.plans import LifePlan, RoundPlan
from tests.client.kill.positions import At, Cut

Answer = tuple[int, str]
"""A response as a life saw it: status and body. Status 0 and an error where there was none."""


class Report(NamedTuple):
    """What a life says when it ends by itself. `gave_up` and `error` are empty where all went well."""

    resumed: list[Answer]
    asked: Answer | None
    pending: int
    gave_up: str
    error: str


@dataclass
class Life:
    """One life: where it was killed, how far it said that it had come, and its report if it ended by itself."""

    plan: LifePlan
    killed: At | None = None
    notes: list[At] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    report: Report | None = None
    overdue: bool = False


class Request(NamedTuple):
    """A whole request that arrived at the service."""

    life: int
    key: str
    body: bytes


class Effect(NamedTuple):
    """What the service did. `serial` is unique among all that it ever did."""

    key: str
    serial: int


@dataclass
class Story:
    """One round."""

    plan: RoundPlan
    lives: list[Life] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
