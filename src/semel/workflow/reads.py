"""Which variables a method for key or scope reads: they make a task this one, as names do that are said outright.

The source shows most of them before anything runs. What it does not show is seen when the method is called.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def names_read_in(function: Callable[..., Any]) -> frozenset[str]:
    """The variables that the source of `function` takes out of its last parameter by name."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        *_, variables = inspect.signature(function).parameters
    except (OSError, TypeError, SyntaxError, ValueError):
        return frozenset()  # typed into a prompt, part of a longer expression, or without parameters
    return frozenset(_names_in(tree, variables))


def _names_in(tree: ast.AST, variables: str) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=taken), slice=ast.Constant(value=str(name))) if taken == variables:
                yield name
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=taken), attr="get"), args=[ast.Constant(value=str(name)), *_]
            ) if taken == variables:
                yield name


def names_read_by(function: Callable[[Mapping[str, Any]], Any], variables: Mapping[str, Any]) -> frozenset[str]:
    """The variables that `function` takes by name when it is called with these."""
    noting = _Noting(variables)
    function(noting)
    return frozenset(noting.names)


class _Noting(dict[str, Any]):
    """Variables that note which of them are asked for by name."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        super().__init__(variables)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)
