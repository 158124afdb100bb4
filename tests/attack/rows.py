"""Which tests prove what about the threats S01 to S27: a row names test functions anywhere in the repository."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Row:
    """A threat, and the tests that show that it comes to nothing."""

    threat: str
    tests: tuple[str, ...]


ROWS: Final = {
    "S01": Row(
        "somebody else's answer is replayed",
        (
            "test_one_key_of_many_tenants_users_and_routes_shows_nobody_a_foreign_byte",
            "test_what_one_caller_sent_is_never_told_to_another",
            "test_who_is_not_signed_in_learns_nothing_of_a_key",
            "test_a_search_in_a_scope_shows_no_record_of_another",
        ),
    ),
    "S02": Row(
        "keys are guessed",
        (
            "test_a_foreign_key_cannot_be_told_from_one_that_nobody_has",
            "test_a_hundred_thousand_guesses_tell_no_key_of_another_from_one_that_nobody_has",
        ),
    ),
    "S03": Row(
        "keys are forged",
        (
            "test_a_key_with_one_bit_changed_is_refused",
            "test_the_key_of_another_tenant_is_refused",
            "test_a_forged_key_that_would_have_expired_is_refused_like_any_other",
        ),
    ),
    "S04": Row(
        "time tells a foreign key from an unknown one, or a MAC byte by byte",
        ("test_a_foreign_key_costs_the_store_what_an_unknown_one_costs", "test_secrets_are_compared_in_constant_time"),
    ),
    "S05": Row(
        "secrets and personal data at rest",
        ("test_a_request_body_is_nowhere", "test_what_signs_a_caller_in_is_nowhere", "test_other_headers_are_nowhere"),
    ),
    "S06": Row(
        "card data that must not be kept",
        ("test_a_response_that_is_not_to_be_stored_is_nowhere", "test_a_card_number_in_a_request_is_in_no_file"),
    ),
    "S07": Row(
        "what is sealed is read, swapped or changed",
        (
            "test_no_secret_is_stored_in_the_clear",
            "test_nothing_is_stated_unsealed_where_others_seal",
            "test_any_changed_byte_is_noticed",
            "test_what_was_moved_is_noticed",
            "test_what_was_moved_to_another_place_is_not_opened",
            "test_nonces_of_one_key_never_repeat",
        ),
    ),
    "S08": Row(
        "a key is changed or lost",
        (
            "test_keys_are_rotated_while_callers_replay_without_one_failure",
            "test_a_rotation_under_load_fails_no_call_and_runs_nothing_twice",
            "test_a_lost_key_is_named_and_nothing_runs_again",
            "test_after_a_kill_the_next_run_goes_on_with_the_rest",
            "test_a_reseal_that_is_killed_again_and_again_ends_with_everything_sealed_anew",
        ),
    ),
    "S09": Row(
        "personal data has to go",
        (
            "test_the_records_of_a_subject_are_erased_and_no_others",
            "test_a_retry_after_the_erasure_has_no_second_effect",
            "test_a_run_that_was_cut_off_is_run_again_and_ends_with_everything_erased",
            "test_dead_letters_go_with_the_records_of_their_events",
            "test_items_of_batches_go_with_their_records_and_what_waits_is_refused",
            "test_the_journal_of_a_client_is_erased_by_the_subject_of_its_requests",
            "test_no_reader_is_shown_what_was_erased_and_confirmed",
            "test_the_fingerprint_is_erased_too",
        ),
    ),
    "S10": Row(
        "cookies, challenges and dates are replayed",
        (
            "test_a_replay_carries_no_header_outside_the_list",
            "test_a_line_break_in_a_header_never_reaches_a_replay",
            "test_a_cookie_of_a_kept_response_is_not_stored",
        ),
    ),
    "S11": Row(
        "a header is named in Connection",
        ("test_a_header_that_belongs_to_one_connection_is_not_replayed", "test_a_client_cannot_take_its_key_out"),
    ),
    "S12": Row(
        "a request is read in two ways",
        (
            "test_a_header_that_is_there_twice_is_refused",
            "test_header_lines_that_the_server_joined_are_refused",
            "test_a_body_in_chunks_is_refused_where_its_end_cannot_be_told",
            "test_a_body_that_was_cut_off_runs_nothing",
        ),
    ),
    "S13": Row(
        "a service makes a client ask elsewhere",
        (
            "test_the_policy_of_a_service_is_asked_of_that_service_alone",
            "test_a_redirect_keeps_method_and_gets_a_key_of_its_own",
            "test_user_password_and_fragment_are_dropped_from_the_address",
        ),
    ),
    "S14": Row(
        "what is packed becomes too large",
        ("test_a_stored_outcome_that_unpacks_without_end_is_refused", "test_a_packed_body_counts_by_its_bytes"),
    ),
    "S15": Row(
        "keys, bodies, numbers or nesting without end",
        (
            "test_fifty_megabytes_in_chunks_are_never_held",
            "test_a_key_that_is_too_long_is_refused_and_nothing_runs",
            "test_more_combining_characters_than_any_language_has_are_refused",
            "test_reading_takes_time_with_the_length",
            "test_deeper_nesting_is_refused_without_recursion",
        ),
    ),
    "S16": Row(
        "stored bytes become code",
        ("test_nothing_that_is_stored_can_become_code", "test_damaged_envelopes_never_raise_anything_else"),
    ),
    "S17": Row(
        "SQL in what is searched for",
        (
            "test_statements_are_constants",
            "test_hostile_text_is_found_as_itself_and_finds_nothing_else_on_sqlite",
            "test_hostile_text_is_found_as_itself_and_finds_nothing_else_on_servers",
        ),
    ),
    "S18": Row(
        "commands in keys of Redis and expressions of DynamoDB",
        (
            "test_hostile_text_is_found_as_itself_and_finds_nothing_else_on_servers",
            "test_names_in_expressions_are_attributes_except_those_inside_one",
        ),
    ),
    "S19": Row(
        "stored text runs in the console",
        (
            "test_what_is_hostile_is_shown_as_text_and_runs_nowhere",
            "test_a_body_is_text_with_exact_numbers_and_no_script_at_all",
            "test_every_answer_has_the_headers",
        ),
    ),
    "S20": Row(
        "somebody does what they may not",
        (
            "test_a_role_may_exactly_what_its_permissions_say",
            "test_nobody_is_answered_who_is_not_known",
            "test_a_record_of_another_scope_looks_like_none",
            "test_nothing_of_another_scope_is_shown_or_changed",
            "test_unknown_secrets_are_soon_refused_and_good_ones_are_not",
        ),
    ),
    "S21": Row(
        "another site acts in the name of an operator",
        (
            "test_a_change_that_another_site_sends_is_refused",
            "test_a_change_that_does_not_say_where_it_comes_from_is_refused",
            "test_a_change_is_taken_as_json_alone",
            "test_another_site_cannot_sign_a_browser_in",
        ),
    ),
    "S22": Row(
        "an operator forces what should not be",
        (
            "test_erasing_needs_a_reason",
            "test_a_dry_run_tells_and_changes_nothing",
            "test_a_late_worker_writes_nothing_into_an_erased_record",
            "test_a_change_without_a_usable_reason_is_refused",
            "test_a_live_lease_is_ended_by_an_admin_who_types_the_reference",
            "test_a_decision_about_what_has_changed_since_is_refused",
        ),
    ),
    "S23": Row(
        "the audit chain is tampered with",
        (
            "test_an_entry_that_was_changed_is_found",
            "test_an_entry_that_was_deleted_is_found",
            "test_an_entry_that_was_put_in_is_found",
            "test_entries_that_changed_places_are_found",
            "test_a_tail_that_was_cut_off_is_found",
            "test_writers_of_several_processes_fork_the_chain_no_time",
        ),
    ),
    "S24": Row(
        "keys and personal data in logs, traces and metrics",
        (
            "test_a_key_is_in_no_log",
            "test_no_error_and_no_log_line_shows_a_password",
            "test_nothing_of_a_caller_reaches_metrics_spans_or_log_lines",
            "test_operations_beyond_the_bound_share_one_label",
            "test_a_call_that_ends_in_doubt_is_an_error_without_its_text",
        ),
    ),
    "S25": Row(
        "one caller takes all the room",
        (
            "test_one_too_many_for_a_key_is_409_and_the_other_is_served",
            "test_one_too_many_for_the_process_is_503_and_the_other_is_served",
            "test_one_handler_too_many_is_503_with_retry_after_and_nothing_runs",
            "test_a_crowd_on_the_keys_of_one_tenant_does_not_keep_another_from_being_served",
        ),
    ),
    "S26": Row(
        "the key for the next service is somebody else's",
        ("test_two_tenants_with_one_key_value_get_different_keys_downstream", "test_derived_keys_differ_by_step"),
    ),
    "S27": Row("a dependency is exchanged", ("test_every_locked_package_has_a_hash", "test_lock_files_name_no_host")),
}
