"""The help of every command says all that was written in it."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text
from typer.main import get_command

from semel.cli.app import build_app


def _texts(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """The help of all commands below one, and of their options and arguments."""
    for name, one in getattr(command, "commands", {}).items():
        place = f"{path} {name}"
        yield place, one.help or ""
        for parameter in one.params:
            yield f"{place} {parameter.name}", getattr(parameter, "help", None) or ""
        yield from _texts(one, place)


def test_no_word_in_brackets_is_taken_for_a_style_and_lost() -> None:
    texts = dict(_texts(get_command(build_app()), "semel"))
    assert "semel serve port" in texts
    lost = [place for place, text in texts.items() if Text.from_markup(text).plain != text.replace(r"\[", "[")]
    assert lost == []
