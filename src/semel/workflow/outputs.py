"""The outputs of a task: which variables it sets, as far as its source says so, and what is refused about them.

An output that is named like an input would change what a later pass of the same task is asked with, and with it the key
or the fingerprint. Names are read from the source of `outputs`, because they have to be known before anything runs;
what the source does not show is checked when the variables are made.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from semel.engine.decorator import name_of, resolved_hints
from semel.errors import UsageError
from semel.workflow.inputs import OWN


def output_names(function: Callable[..., Any]) -> frozenset[str]:
    """The names of outputs that can be known without running `function`."""
    declared = resolved_hints(function).get("return")
    if typing.is_typeddict(declared):
        return frozenset(declared.__annotations__)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return frozenset()  # typed into a prompt, or part of a longer expression
    return frozenset(_names_in(tree))


def _names_in(tree: ast.AST) -> Iterator[str]:
    for returned in ast.walk(tree):
        if isinstance(returned, ast.Return | ast.Lambda):
            value = returned.value if isinstance(returned, ast.Return) else returned.body
            yield from _keys_of(value)
        elif isinstance(returned, ast.Assign):
            yield from (name for target in returned.targets for name in _subscript(target))


def _keys_of(value: ast.expr | None) -> Iterator[str]:
    match value:
        case ast.Dict(keys=keys):
            yield from (key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            yield from (keyword.arg for keyword in keywords if keyword.arg is not None)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _keys_of(left)
            yield from _keys_of(right)
        case ast.IfExp(body=body, orelse=other):
            yield from _keys_of(body)
            yield from _keys_of(other)


def _subscript(target: ast.expr) -> Iterator[str]:
    match target:
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            yield name


def refuse_shared_names(function: Callable[..., Any], names: Iterable[str], inputs: frozenset[str]) -> None:
    """Refuse an output that is named like an input, or like what semel itself sets.

    Raises:
        UsageError: there is one.
    """
    for name in sorted(names):
        if name in inputs:
            raise UsageError(
                f"{name_of(function)} sets {name!r}, which is an input of the task: a later pass would be asked with "
                f"another value. Give the output a name of its own."
            )
        if name in OWN:
            raise UsageError(f"{name_of(function)} sets {name!r}, which semel sets itself. Give it another name.")


def checked_outputs(function: Callable[..., Any], given: Any, inputs: frozenset[str]) -> dict[str, Any]:
    """What `outputs` gave, checked.

    Raises:
        UsageError: it is no mapping, or sets what it may not.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise UsageError(f"{name_of(function)} has to give a mapping of variables, not a {type(given).__name__}.")
    refuse_shared_names(function, given, inputs)
    return dict(given)
