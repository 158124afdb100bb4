"""What a Redis server itself says was sent to it.

What always holds: a command is told to the monitor before it is answered, so whatever a call sent can be read when it
returns. What a script calls inside the server is not sent by anybody, and is left out.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable


def sent_during(url: str, work: Callable[[], object]) -> list[str]:
    """The commands that were sent to the server while `work` ran, each by its name."""
    import redis

    mark = secrets.token_hex(8)
    with redis.Redis.from_url(url) as client, redis.Redis.from_url(url) as ears, ears.monitor() as told:
        client.ping()  # connected, and the first words said, before anything counts
        client.echo(mark)
        work()
        client.echo(mark)
        names: list[str] = []
        marks = 0
        while marks < 2:
            entry = told.next_command()
            if mark in entry["command"]:
                marks += 1
            elif marks and entry["client_type"] != "lua":
                names.append(entry["command"].partition(" ")[0])
    return names
