"""How keys are spelt in Redis, and back."""

import re

import pytest

from semel.core.key import Key
from semel.errors import UsageError
from semel.stores.redis.settings import DEFAULT, Pattern

DIGEST = bytes(range(32))


def test_the_default_names_operation_and_digest() -> None:
    assert Pattern(DEFAULT).key("pay", DIGEST) == f"semel:pay:{DIGEST.hex()}"


@pytest.mark.parametrize("operation", ["pay", "a:b", "{a}", "%7Ba%7D", "ünï", "a b", "*", "[x]", "", "semel:x"])
def test_the_digest_is_found_in_the_key(operation: str) -> None:
    pattern = Pattern(DEFAULT)
    assert pattern.digest(pattern.key(operation, DIGEST)) == DIGEST


def test_braces_of_an_operation_decide_about_no_slot() -> None:
    key = Pattern(DEFAULT).key("{a}", DIGEST)
    assert not set(key) & set("{}")


def test_two_operations_never_share_a_spelling() -> None:
    pattern = Pattern(DEFAULT)
    operations = ["{", "%7B", "%", "%25", "}", "%7D", "%257B"]
    assert len({pattern.key(operation, DIGEST) for operation in operations}) == len(operations)


def test_a_pattern_without_the_operation_is_known_by_the_digest_alone() -> None:
    pattern = Pattern("shop:{digest}")
    assert not pattern.names_operation
    assert pattern.key("pay", DIGEST) == f"shop:{DIGEST.hex()}"


def test_signs_of_a_glob_in_an_operation_stand_for_themselves() -> None:
    assert Pattern(DEFAULT).match("a*[b]?\\") == "semel:a\\*\\[b\\]\\?\\\\:*"


def test_a_whole_reference_is_matched_exactly() -> None:
    assert Pattern(DEFAULT).match(reference=DIGEST.hex()) == f"semel:*:{DIGEST.hex()}"


def test_a_key_of_somebody_else_has_no_digest() -> None:
    assert Pattern(DEFAULT).digest("semel:pay:other") is None


@pytest.mark.parametrize("text", ["semel", "{operation}", "{digest}{digest}", "{digest}{x}", "{digest}{", "}{digest}"])
def test_a_pattern_that_does_not_tell_records_apart_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape("{digest}")):
        Pattern(text)


def test_a_key_of_the_longest_operation_is_found_again() -> None:
    key = Key.of("k", operation="{" * 255)
    pattern = Pattern(DEFAULT)
    assert pattern.digest(pattern.key(key.operation, key.digest)) == key.digest
