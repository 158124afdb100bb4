"""What the admin API can do, the command line can do: each endpoint has a command, or a reason why there is none."""

from __future__ import annotations

from typing import Any, Final

import pytest
import typer.main

from semel.cli.app import build_app
from semel.server import Permission
from semel.server.api.endpoints import ENDPOINTS

NOBODY_SIGNS_IN: Final = "at the command line nobody signs in"
NEVER_PRINTED: Final = "outcomes and events are never printed: output is pasted into tickets"
COMMANDS: Final = {
    "attention": "attention",
    "operations": "attention",
    "list_records": "list",
    "count_records": "counts",
    "show_record": "show",
    "record_history": "history",
    "resolve_record": "resolve",
    "cancel_record": "cancel",
    "fail_record": "fail",
    "release_record": "release",
    "reopen_record": "reopen",
    "erase_record": "erase",
    "erase_subject": "erase",
    "list_letters": "events dead",
    "show_letter": "events dead",
    "redrive_letter": "events redrive",
    "discard_letter": "events discard",
    "list_streams": "events lag",
    "list_parked": "events peek",
    "release_all_parked": "events release",
    "release_parked": "events release",
    "drop_parked": "events drop",
    "list_batches": "batch status",
    "show_batch": "batch status",
    "batch_items": "batch results",
    "pause_batch": "batch pause",
    "resume_batch": "batch resume",
    "cancel_batch": "batch cancel",
    "retry_batch": "batch retry",
    "sweep": "sweep",
    "bulk_resolve": "bulk",
    "bulk_cancel": "bulk",
    "bulk_fail": "bulk",
    "bulk_release": "bulk",
    "bulk_reopen": "bulk",
    "bulk_erase": "bulk",
    "bulk_redrive": "events redrive",
    "bulk_discard": "events discard",
    "list_bulk": "batch status",
    "show_bulk": "batch status",
    "bulk_refusals": "batch results",
    "change_bulk": "batch pause",
    "list_audit": "audit list",
    "verify_audit": "audit verify",
    "redact_audit": "audit redact",
    "list_tokens": "token list",
    "add_token": "token add",
    "revoke_token": "token revoke",
    "doctor": "doctor",
}
WITHOUT: Final = {"me": NOBODY_SIGNS_IN, "record_body": NEVER_PRINTED, "letter_body": NEVER_PRINTED}
NAMED_OTHERWISE: Final = {"bulk", "events drop", "events release"}
"""Their permission is an option of theirs, or that of letters: `redrive` and `discard`."""
DECISIONS: Final = frozenset(Permission) - {
    Permission.LIST,
    Permission.SHOW,
    Permission.BODY,
    Permission.FORCE,
    Permission.BATCH,
    Permission.AUDIT,
    Permission.TOKENS,
}


def commands() -> dict[str, Any]:
    """Each command by its name; those of a group by both names."""
    group: Any = typer.main.get_command(build_app())
    found = dict(group.commands)
    for name, one in group.commands.items():
        found |= {f"{name} {below}": command for below, command in getattr(one, "commands", {}).items()}
    return found


def options_of(command: Any) -> set[str]:
    """The options that a command takes."""
    return {option for parameter in command.params for option in parameter.opts}


def test_every_endpoint_has_a_command_or_a_reason() -> None:
    assert {endpoint.name for endpoint in ENDPOINTS} == {*COMMANDS, *WITHOUT}
    assert set(COMMANDS.values()) <= set(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_named_by_the_permission(name: str) -> None:
    (endpoint,) = [one for one in ENDPOINTS if one.name == name]
    command = COMMANDS[name]
    if endpoint.permission in DECISIONS and command not in NAMED_OTHERWISE:
        assert command.rpartition(" ")[2] == endpoint.permission


# A sweep runs by itself, in every process that has the time: nobody decides it.
DECIDED: Final = [
    one.name for one in ENDPOINTS if one.permission in DECISIONS and one.permission is not Permission.SWEEP
]
OF_MANY: Final = [one.name for one in ENDPOINTS if one.preview is not None]


@pytest.mark.parametrize("name", DECIDED)
def test_a_decision_has_a_reason_and_a_name_at_the_command_line_too(name: str) -> None:
    assert options_of(commands()[COMMANDS[name]]) >= {"--reason", "--by"}


@pytest.mark.parametrize("name", OF_MANY)
def test_what_is_done_to_many_is_counted_first_and_has_a_rate(name: str) -> None:
    assert options_of(commands()[COMMANDS[name]]) >= {"--dry-run", "--rate", "--id"}
