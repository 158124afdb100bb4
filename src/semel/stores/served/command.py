"""Commands: what a plan yields to a driver. Frozen values, without colour and without a client library.

What always holds: values are bound by position, at the marks `?` of the text; nothing a caller gave is ever written
into a text. `NOW` stands where a virtual clock is read, for tests; texts for real servers do not have it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec

Row = tuple[Any, ...]

NOW: Final = "/*now*/"


class Known(Enum):
    """A value that only the place of execution knows."""

    INSTALL = "the install_id of the store's own database"


class Command(msgspec.Struct, frozen=True):
    """One statement, and where a server cannot give rows back from a write, the reading that follows it.

    `then` goes out together with the statement where the client library can do that. The rows of the last one that has
    rows are the reply. `atomic`: all of them are one transaction, or nothing; only ever on the store's own connection.
    """

    text: str
    values: tuple[Any, ...] = ()
    then: Command | None = None
    atomic: bool = False
