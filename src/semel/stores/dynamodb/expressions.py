"""Expressions of DynamoDB, put together from attribute names and values.

What always holds: every name and every value is a placeholder, so reserved words and what callers wrote cannot change
the meaning of an expression.
"""

from __future__ import annotations

from typing import Any

from semel.stores.dynamodb.items import attribute


class Expression:
    """The names and values of one request, collected while its texts are written."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, dict[str, Any]] = {}

    def name(self, attribute_name: str) -> str:
        """What stands for an attribute."""
        mark = f"#{attribute_name}"
        self._names[mark] = attribute_name
        return mark

    def value(self, value: Any) -> str:
        """What stands for a value."""
        mark = f":v{len(self._values)}"
        self._values[mark] = attribute(value)
        return mark

    def compare(self, attribute_name: str, sign: str, value: Any) -> str:
        """A comparison of an attribute with a value."""
        return f"{self.name(attribute_name)} {sign} {self.value(value)}"

    def equal(self, **values: Any) -> list[str]:
        """Each attribute has this value."""
        return [self.compare(name, "=", value) for name, value in values.items()]

    def one_of(self, attribute_name: str, values: list[Any]) -> str:
        """The attribute has one of these values."""
        return f"{self.name(attribute_name)} IN ({', '.join(map(self.value, values))})"

    def setting(self, **values: Any) -> list[str]:
        """Assignments for SET."""
        return self.equal(**values)

    def rising(self, attribute_name: str, by: int = 1) -> str:
        """The assignment that adds to a number."""
        mark = self.name(attribute_name)
        return f"{mark} = {mark} + {self.value(by)}"

    def parameters(self) -> dict[str, Any]:
        """What the request has to carry for its texts to be understood."""
        parameters: dict[str, Any] = {"ExpressionAttributeNames": self._names}
        if self._values:
            parameters["ExpressionAttributeValues"] = self._values
        return parameters
