"""The table `[server]` of the settings file, and what is to be fixed about it.

- The server listens on this machine alone, and knows its users by tokens. Each of the two is given up only by a setting
  of its own, and `semel doctor` shows both as something to fix.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from semel.errors import UsageError
from semel.stores.admin import Finding

PORT: Final = 8787
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The table `[server]`.

    Attributes:
        host: the address that the server listens on.
        port: its port.
        public: whether it may listen on another address than this machine's own.
        authentication: whether users have to sign in.
        names: the names that the server answers to; None: those of this machine alone, or any where it is public.
        proxies: addresses of proxies that are believed about who asks them, and whether by TLS.
        open_metrics: whether metrics are shown without signing in.
        console: whether there are pages for browsers.
        consumers: consumers whose dead letters can be redriven, as `module:object`.
        anchor: the file that seals of the audit chain are written down in, each minute.
        links: addresses elsewhere that pages lead to, by what they are called, as for `console_app`.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    public: bool = False
    authentication: bool = True
    names: tuple[str, ...] | None = None
    proxies: tuple[str, ...] = ()
    open_metrics: bool = False
    console: bool = True
    consumers: tuple[str, ...] = ()
    anchor: str | None = None
    links: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(table: Mapping[str, Any]) -> ServerSettings:
        """As a settings file has it.

        Raises:
            UsageError: it would listen where others reach it, and no setting says that it may.
        """
        made = ServerSettings(**table)
        if not made.is_loopback and not made.public:
            raise UsageError(
                f"server.host is {made.host!r}, which others reach; nothing was started. Write public = true into "
                f"[server] if that is wanted, and put TLS in front of it."
            )
        return made

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def answered_names(self) -> tuple[str, ...] | None:
        """The names that the server answers to; None: any."""
        if self.names is not None:
            return self.names
        return (*_LOOPBACK_NAMES, self.host) if self.is_loopback else None


def examine_server(table: Mapping[str, Any]) -> list[Finding]:
    """What is to be fixed about the table `[server]`; nothing where there is none, so that nobody is asked to serve."""
    return find_risks(ServerSettings(**table)) if table else []


def find_risks(made: ServerSettings) -> list[Finding]:
    """What is to be fixed about how a server is set up."""
    findings = []
    if not made.is_loopback:
        advice = "Listen on 127.0.0.1 behind a proxy with TLS, or keep others from the port."
        findings.append(Finding("server address", f"{made.host}: others reach it without TLS", "fix", advice))
    if not made.authentication:
        advice = "Remove authentication = false from [server], and make tokens: semel token add."
        findings.append(Finding("server users", "everybody who reaches it is an admin", "fix", advice))
    if made.open_metrics:
        advice = "Give Prometheus a token of a viewer, and remove open_metrics from [server]."
        findings.append(Finding("server metrics", "shown to everybody who reaches it", "note", advice))
    return [*findings, *_examine_anchor(made.anchor)]


def _examine_anchor(path: str | None) -> list[Finding]:
    topic = "audit anchors"
    if path is None:
        advice = 'Write anchor = "FILE" into [server], on another machine or in a place that keeps versions.'
        return [Finding(topic, "none: whoever owns the tables can cut off or empty chains unnoticed", "note", advice)]
    file = Path(path)
    if os.access(file if file.exists() else file.parent, os.R_OK | os.W_OK):
        return []
    return [Finding(topic, f"{path} cannot be written", "fix", "Make its folder, or let this user write there.")]
