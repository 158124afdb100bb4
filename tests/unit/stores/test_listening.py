"""What a listener does with the words it hears."""

from __future__ import annotations

import pytest

from semel.stores.listener import pass_on


@pytest.mark.parametrize("word", [b"00ff", "00ff"])
def test_a_listener_tells_of_the_end_it_hears_of(word: bytes | str) -> None:
    told: list[bytes] = []
    pass_on(word, told.append)
    assert told == [b"\x00\xff"]


@pytest.mark.parametrize("word", ["hello", b"hello", b"\xff\xfe", "0"])
def test_a_listener_passes_over_the_words_of_strangers(word: bytes | str) -> None:
    told: list[bytes] = []
    pass_on(word, told.append)
    assert told == []
