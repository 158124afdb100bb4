"""Two stores in memory are two places: a key that runs in one is free in the other."""

from __future__ import annotations

from semel import Semel


def test_the_same_key_in_another_memory_store_is_another_key() -> None:
    one, other = Semel("memory://"), Semel("memory://")

    def inner() -> str:
        return "inner"

    def outer() -> str:
        return other.run("k", inner, operation="o", fingerprint=None).value

    with one, other:
        assert one.run("k", outer, operation="o", fingerprint=None).value == "inner"
