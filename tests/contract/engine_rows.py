"""Scenarios whose rows only the engine tells apart: a store is given bytes and digests, or is not asked at all.

Memory and SQLite run every row. The stores on servers share them at the small effort: each row runs on one of them, and
each of them runs some.
"""

from typing import Final

ENGINE_ROWS: Final = frozenset({
    "test_a_bad_key_is_refused",
    "test_a_bad_policy_is_refused",
    "test_a_bad_setting_is_refused",
    "test_a_declared_value_is_replayed_in_value_and_type",
    "test_a_falsy_value_is_replayed_as_itself",
    "test_a_record_is_replayed_whichever_way_its_fingerprint_was_made",
    "test_another_request_is_refused_whichever_way_the_fingerprint_was_made",
})  # fmt: skip
