"""What the schemas of all servers share: files in two halves, the names in them, and the notes of what was applied.

What always holds: after `pre` alone the release before can still work, so that rolling out needs no pause; `post` shuts
it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from semel.stores.served.command import Command
from semel.stores.served.migrate import Half
from semel.stores.served.scripts import Scripts, text_of

_APPLIED: Final = "SELECT version, post FROM {schema_table} ORDER BY version"
_NOTE_POST: Final = "UPDATE {{schema_table}} SET post = true, oldest = {version} WHERE version = {version}"
RECORDS: Final = 1  # the migration that makes the table of records


class ServedSchema:
    """The schema of one place. `note` is the statement that writes down a first half, with {names} in it."""

    def __init__(self, scripts: Scripts, names: Mapping[str, str], ready: Command, note: str) -> None:
        self._scripts = scripts
        self._names = names
        self._ready = ready
        self._note_text = note

    @property
    def newest(self) -> int:
        """The version that this release works with."""
        return max(version for version, _ in self._scripts)

    def ready(self) -> Command:
        """What a new connection is asked first."""
        return self._ready

    def applied(self) -> Command:
        """Rows of version and whether the post half was applied too."""
        return Command(self._named(_APPLIED))

    def has_post(self, version: int) -> bool:
        """Whether a migration has a second half."""
        return (version, "post") in self._scripts

    def half_sql(self, version: int, half: Half) -> str:
        """One half of a migration, and the note that it was applied, as text."""
        return text_of(self._half(version, half))

    def _half(self, version: int, half: Half) -> Iterator[str]:
        raise NotImplementedError

    def _note(self, version: int) -> str:
        post = "false" if self.has_post(version) else "true"
        return self._named(self._note_text.format(version=version, oldest=max(version - 1, 1), post=post))

    def _noted_post(self, version: int) -> str:
        return self._named(_NOTE_POST.format(version=version))

    def _named(self, script: str) -> str:
        """A script with the names of this place."""
        for name, text in self._names.items():
            script = script.replace(f"{{{name}}}", text)
        return script
