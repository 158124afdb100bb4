"""Which rows of the contract depend on the store, for the stores on servers at the small effort.

What always holds: memory and SQLite run every row.
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
    "test_erasing_a_person_needs_a_subject_and_a_reason",
})  # fmt: skip
"""Scenarios whose rows only the engine tells apart: a store is given bytes and digests, or is not asked at all.

The stores on servers share them: each row runs on one of them, and each of them runs some.
"""

WITHOUT_CALLS: Final = frozenset({
    "OperationContract",
    "ListContract",
    "CountingContract",
    "HistoryContract",
    "HolderContract",
    "LetterContract",
    "OutboxContract",
    "BatchContract",
    "AuditContract",
    "SeenContract",
})  # fmt: skip
"""Topics that send operations to a store, without any engine."""

BY_THE_STORE: Final = frozenset(
    {
        "RecordsContract",
        "SearchContract",
        "CountsContract",
        "SweepContract",
        "ErasingContract",
        "SubjectErasureContract",
        "LostReplyContract",
    }
)
"""Topics that call an engine, and in which each store does most of the work in its own way."""
