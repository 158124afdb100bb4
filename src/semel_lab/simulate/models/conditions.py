"""Expressions of DynamoDB as far as the store writes them: conditions, filters and updates on an item.

What always holds: a comparison with what is not there, or is of another type, does not hold. What this does not know is
an error, never a guess.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from semel.stores.dynamodb.commands import Item

_COMPARED: Final = re.compile(r"(\S+) (=|<=|>=|<|>) (\S+)")
_LISTED: Final = re.compile(r"(\S+) IN \((.+)\)")
_TESTED: Final = re.compile(r"(attribute_exists|attribute_not_exists)\((\S+)\)")
_RISING: Final = re.compile(r"(\S+) \+ (\S+)")
_APPENDED: Final = re.compile(r"list_append\(if_not_exists\((\S+), (\S+)\), (\S+)\)")
_ASSIGNMENTS: Final = re.compile(r", (?=#\S+ = )")
_SPAN: Final = re.compile(r"(\S+) BETWEEN (\S+) AND (\S+)")
_SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
Value = Mapping[str, Any]


class Request:
    """The expressions of one request, with what its placeholders stand for."""

    __slots__ = ("_names", "_parameters", "_values")

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = parameters
        self._names: Mapping[str, str] = parameters.get("ExpressionAttributeNames", {})
        self._values: Mapping[str, Value] = parameters.get("ExpressionAttributeValues", {})

    def allows(self, item: Item | None) -> bool:
        """Whether the condition holds for what is there."""
        return self._holds(self._parameters.get("ConditionExpression", ""), item or {})

    def finds(self, item: Item) -> bool:
        """Whether a scan has this item in its answer."""
        return self._holds(self._parameters.get("FilterExpression", ""), item)

    def leads_to(self, item: Item) -> bool:
        """Whether a query of an index has this item in its answer; what lacks the attribute is not in the index."""
        return self._holds(_SPAN.sub(r"\1 >= \2 AND \1 <= \3", self._parameters["KeyConditionExpression"]), item)

    def projected(self, item: Item) -> Item:
        """What a scan shows of an item: the attributes that it asks for, or all."""
        wanted = self._parameters.get("ProjectionExpression")
        if wanted is None:
            return item
        names = [self._names[mark] for mark in wanted.split(", ")]
        return {name: item[name] for name in names if name in item}

    def updated(self, item: Item | None) -> Item:
        """The item after the update. Values are those before it, whatever the order."""
        before, after = item or {}, dict(item or self._parameters["Key"])
        sets, _, gone = self._parameters["UpdateExpression"].removeprefix("SET ").partition(" REMOVE ")
        for assignment in _ASSIGNMENTS.split(sets):
            place, _, source = assignment.partition(" = ")
            _put(after, self._path(place), self._source(source, before))
        for place in gone.split(", ") if gone else ():
            after.pop(self._names[place], None)
        return after

    def _holds(self, text: str, item: Item) -> bool:
        return all(self._term(term, item) for term in text.split(" AND ")) if text else True

    def _term(self, term: str, item: Item) -> bool:
        if tested := _TESTED.fullmatch(term):
            there = self._found(tested[2], item) is not None
            return there is (tested[1] == "attribute_exists")
        if listed := _LISTED.fullmatch(term):
            return self._found(listed[1], item) in [self._values[mark] for mark in listed[2].split(", ")]
        compared = _COMPARED.fullmatch(term)
        if compared is None:
            message = f"the model of DynamoDB does not know the condition {term!r}"
            raise NotImplementedError(message)
        return _compare(self._found(compared[1], item), _SIGNS[compared[2]], self._values[compared[3]])

    def _source(self, text: str, item: Item) -> Value:
        if rising := _RISING.fullmatch(text):
            first, second = self._source(rising[1], item), self._source(rising[2], item)
            return {"N": str(int(first["N"]) + int(second["N"]))}
        if appended := _APPENDED.fullmatch(text):
            first = self._found(appended[1], item) or self._values[appended[2]]
            return {"L": [*first["L"], *self._values[appended[3]]["L"]]}
        found = self._values.get(text) or self._found(text, item)
        if found is None:
            message = f"the update takes {text!r} from an item that does not have it"
            raise NotImplementedError(message)
        return found

    def _path(self, text: str) -> list[str]:
        return [self._names[mark] for mark in text.split(".")]

    def _found(self, text: str, item: Item) -> Value | None:
        first, *rest = self._path(text)
        value: Value | None = item.get(first)
        for name in rest:
            value = None if value is None else value.get("M", {}).get(name)
        return value


def _compare(found: Value | None, sign: Callable[[Any, Any], bool], wanted: Value) -> bool:
    if found is None or found.keys() != wanted.keys():
        return False
    ((kind, value),) = found.items()
    other = wanted[kind]
    return sign(int(value), int(other)) if kind == "N" else sign(value, other)


def _put(item: Item, path: list[str], value: Value) -> None:
    """Items are never changed in place: an old version may still be read."""
    first, *rest = path
    if not rest:
        item[first] = value
        return
    inner = dict(item[first]["M"])
    _put(inner, rest, value)
    item[first] = {"M": inner}
