"""Users, roles and permissions."""

import pytest

from semel.errors import UsageError
from semel.server import Permission, Role, User

CHANGING = frozenset(Permission) - {Permission.LIST, Permission.SHOW}


def test_a_viewer_changes_nothing() -> None:
    viewer = User("ada", {"viewer"})
    assert not viewer.permissions & CHANGING


def test_an_eraser_may_look_and_erase_alone() -> None:
    assert User("ada", {"eraser"}).permissions == {Permission.LIST, Permission.SHOW, Permission.ERASE}


@pytest.mark.parametrize("permission", [Permission.FORCE, Permission.ERASE, Permission.AUDIT, Permission.TOKENS])
def test_what_breaks_most_is_not_an_operators(permission: Permission) -> None:
    assert not User("ada", {"operator"}).may(permission)


def test_an_admin_may_everything() -> None:
    assert User("ada", {"admin"}).permissions == frozenset(Permission)


def test_roles_add_up() -> None:
    both = User("ada", {"operator", "eraser"})
    assert both.may(Permission.ERASE)
    assert both.may(Permission.RESOLVE)


def test_without_scopes_every_scope_is_reached() -> None:
    assert User("ada", {"viewer"}).reaches("acme")


def test_other_scopes_do_not_exist_for_a_user_of_some() -> None:
    user = User("ada", {"admin"}, scopes={"acme"})
    assert user.may(Permission.SHOW, "acme")
    assert not user.may(Permission.SHOW, "globex")


def test_no_scopes_reach_nothing() -> None:
    assert not User("ada", {"admin"}, scopes=()).reaches("acme")


def test_a_role_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(UsageError, match="viewer, operator, eraser, admin"):
        User("ada", {"root"})


def test_a_user_has_a_name() -> None:
    with pytest.raises(UsageError, match="audit"):
        User(" ", {Role.ADMIN})
