"""Anchors in a file: seals that are written down where whoever changes the tables does not reach them.

One JSON object for each line, only ever appended: scope, number of the last sealed entry, hash of the seal, instant.
A line whose writer died, or for which the disk had no room, is cut off: it is passed over, and others are appended
behind it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec

from semel.core.operators.verification import Anchor
from semel.errors import UsageError

_DECODE = msgspec.json.Decoder(Anchor, strict=True).decode


def read_anchors(path: str | os.PathLike[str]) -> list[Anchor]:
    """The anchors of a file, in the order in which they were written.

    Raises:
        UsageError: there is no such file, or a line of it is no anchor.
    """
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"The anchors cannot be read from {os.fspath(path)}: {error.strerror}.") from error
    anchors: list[Anchor] = []
    for number, line in enumerate(lines, 1):
        if line.startswith(b"{") and not line.endswith(b"}"):
            continue  # cut off
        try:
            anchors.append(_DECODE(line))
        except msgspec.MsgspecError as error:
            raise UsageError(f"Line {number} of {os.fspath(path)} is no anchor: {error}.") from error
    return anchors


def write_anchors(path: str | os.PathLike[str], anchors: Iterable[Anchor]) -> int:
    """Append the anchors that are not in a file yet, and give how many those were; they are on the disk then.

    Raises:
        UsageError: the file cannot be written, or a line of it is no anchor.
    """
    known = {(anchor.scope, anchor.seq, anchor.hash) for anchor in (read_anchors(path) if Path(path).exists() else [])}
    new = [anchor for anchor in anchors if (anchor.scope, anchor.seq, anchor.hash) not in known]
    try:
        with Path(path).open("ab+") as file:
            lines = b"".join(msgspec.json.encode(anchor) + b"\n" for anchor in new)
            file.write(_end_of_line(file) + lines if lines else b"")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(f"The anchors cannot be written to {os.fspath(path)}: {error.strerror}.") from error
    return len(new)


def _end_of_line(file: BinaryIO) -> bytes:
    """What ends the last line of a file, where that was cut off."""
    length = file.seek(0, os.SEEK_END)
    if not length:
        return b""
    file.seek(length - 1)
    return b"" if file.read(1) == b"\n" else b"\n"
