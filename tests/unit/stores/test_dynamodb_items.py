"""How large an item may be is told without making it, and never too small."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from semel.core.key import Key
from semel.core.record import NOTHING, About, Failure, Status, Step, StoredRecord
from semel.stores.dynamodb.items import fits, item_of, size_of

LARGEST_NUMBER = 2**63 - 1
BARE = StoredRecord(
    key=Key.of("k" * 200, operation="o" * 100, scope="s" * 200),
    status=Status.COMPLETED,
    retryable=True,
    fingerprint=b"f" * 32,
    fence=LARGEST_NUMBER,
    nonce=b"n" * 16,
    lease_us=-LARGEST_NUMBER,
    in_doubt_policy="reconcile",
    reconcile_after_us=-LARGEST_NUMBER,
    doubtful=True,
    attempts=LARGEST_NUMBER,
    outcome=None,
    error=None,
    about=NOTHING,
    created_us=-LARGEST_NUMBER,
    started_us=-LARGEST_NUMBER,
    updated_us=-LARGEST_NUMBER,
    completed_us=-LARGEST_NUMBER,
    expires_us=-LARGEST_NUMBER,
    keep_us=LARGEST_NUMBER,
    replays=LARGEST_NUMBER,
    replayed_us=-LARGEST_NUMBER,
)
texts = st.text(st.sampled_from('a"\\\u0001ü€\U0001f600\udc80'), max_size=30)
values = st.binary(max_size=30)
steps = st.lists(st.builds(Step, st.sampled_from([0, 1, LARGEST_NUMBER]), texts, values), max_size=5).map(tuple)
abouts = st.builds(About, subject=texts, requester=texts, tags=st.dictionaries(texts, texts, max_size=5))


def of(outcome: bytes, error: Failure, about: About, resolution: str, steps: tuple[Step, ...]) -> StoredRecord:
    return replace(BARE, outcome=outcome, error=error, about=about, resolution=resolution, steps=steps)


@given(st.builds(of, values, st.builds(Failure, texts, texts), abouts, texts, steps))
@example(of(b"", Failure("", ""), About(tags={"\u0001" * 3_000: "\udc80" * 3_000}), "", ()))
@example(of(b"", Failure("", ""), NOTHING, "", tuple(Step(LARGEST_NUMBER, "", b"") for _ in range(300))))
def test_a_record_fits_only_where_its_item_does(record: StoredRecord) -> None:
    size = size_of(item_of(record, LARGEST_NUMBER))
    assert not fits(record, size_of(item_of(record, 1)) - 1)
    assert fits(record, size)


def test_a_large_value_does_not_fit() -> None:
    assert fits(BARE, 100_000)
    assert not fits(replace(BARE, outcome=b"v" * 100_000), 100_000)
