"""`once`: how a function's calls become keys and fingerprints, and what is refused at decoration already."""

import dataclasses
import functools
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel import SHARED, About, Policy, errors
from semel.core.key import Key
from semel.engine.call_flow import Request
from semel.engine.decorator import CallSpec, call_spec_of

if TYPE_CHECKING:
    from fractions import Fraction as Elsewhere


class Session:
    """Something that cannot be encoded."""


class Word(StrEnum):
    PAY = "pay"


@dataclasses.dataclass
class Order:
    id: str
    amount: Decimal = Decimal(1)
    customer: "Customer | None" = None


@dataclasses.dataclass
class Customer:
    name: str


def rules(function: Callable[..., Any], **given: Any) -> CallSpec:
    """The rules of a function, with the settings given."""
    settings: dict[str, Any] = {
        "key": "order_id",
        "scope": SHARED,
        "operation": "charge",
        "ignore": (),
        "about": None,
        "policy": Policy(),
        **given,
    }
    return call_spec_of(function, **settings)


def asked(function: Callable[..., Any], *args: Any, _rules: dict[str, Any] | None = None, **kwargs: Any) -> Request:
    """What one call of a function asks for."""
    return rules(function, **(_rules or {})).request(args, kwargs)


def charge(order_id: str, amount: Decimal = Decimal(1), note: str | None = None) -> None: ...


def key_of(value: object, scope: object = SHARED) -> Key:
    """The key a call is expected to have."""
    return Key.of(value, operation="charge", scope=scope)


def test_a_parameter_is_the_key() -> None:
    assert asked(charge, "o-1").key == key_of("o-1")


def test_several_parameters_are_a_key_of_parts() -> None:
    request = asked(charge, "o-1", Decimal(2), _rules={"key": ("order_id", "amount")})
    assert request.key == key_of(("o-1", Decimal(2)))


def _dotted(order: Order) -> None: ...


def test_a_path_leads_into_an_argument() -> None:
    assert asked(_dotted, Order("o-1"), _rules={"key": "order.id"}).key == key_of("o-1")
    nested = Order("o-1", customer=Customer("ann"))
    assert asked(_dotted, nested, _rules={"key": ("order.id", "order.customer.name")}).key == key_of(("o-1", "ann"))


def _mapped(event: dict[str, Any]) -> None: ...


def test_a_path_leads_into_a_mapping() -> None:
    assert asked(_mapped, {"data": {"id": "o-1"}}, _rules={"key": "event.data.id"}).key == key_of("o-1")


@pytest.mark.parametrize(
    ("function", "argument", "path"),
    [
        (_mapped, {}, "event.id"),
        (_mapped, {"data": None}, "event.data.id"),
        (_dotted, Order("o-1"), "order.customer.name"),
        (_dotted, None, "order.id"),
    ],
)
def test_a_path_that_leads_nowhere_is_a_missing_key(function: Callable[..., Any], argument: Any, path: str) -> None:
    with pytest.raises(errors.KeyMissing, match=r"leads nowhere.*nothing ran"):
        asked(function, argument, _rules={"key": path})


def test_a_callable_makes_the_key_from_the_same_arguments() -> None:
    def key(order_id: str, amount: Decimal = Decimal(1), note: str | None = None) -> str:
        return f"{order_id}/{amount}"

    assert asked(charge, "o-1", amount=Decimal(2), _rules={"key": key}).key == key_of("o-1/2")


@pytest.mark.parametrize(("value", "key"), [(1, (1,)), ("1", "1"), (Decimal("1.0"), (1,)), (True, (True,))])
def test_a_value_that_is_no_text_is_a_key_of_one_part(value: Any, key: object) -> None:
    assert asked(charge, value).key.digest == key_of(key).digest


def test_the_number_one_is_not_its_text() -> None:
    assert asked(charge, 1).key.digest != asked(charge, "1").key.digest


def test_a_string_enum_is_its_text() -> None:
    assert asked(charge, Word.PAY).key == asked(charge, "pay").key


def test_a_callable_may_give_parts() -> None:
    assert asked(charge, "o-1", _rules={"key": lambda *args, **kwargs: ("a", 1)}).key == key_of(("a", 1))


@pytest.mark.parametrize("key", ["order_id", lambda *args, **kwargs: None])
def test_none_is_a_missing_key(key: Any) -> None:
    with pytest.raises(errors.KeyMissing, match="nothing ran"):
        asked(charge, None, _rules={"key": key})


@pytest.mark.parametrize("value", ["", "x" * 256, "a\nb", object(), ["o-1"], {"o": 1}], ids=lambda v: type(v).__name__)
def test_a_value_that_cannot_be_a_key_is_invalid_at_the_call(value: Any) -> None:
    with pytest.raises(errors.KeyInvalid, match=r"[Nn]othing ran"):
        asked(charge, value)


@pytest.mark.parametrize(
    "key",
    ["order", "order.id", ("order_id", "other"), "", (), ("order_id", ""), "order_id.", "order_id..x", 5, None, SHARED],
)
def test_a_key_that_names_no_parameter_is_refused_at_decoration(key: Any) -> None:
    with pytest.raises(errors.UsageError, match="nothing ran"):
        rules(charge, key=key)


def _scoped(tenant: str, order_id: str) -> None: ...


@pytest.mark.parametrize(
    ("scope", "expected"),
    [(SHARED, SHARED), ("tenant", "acme"), (("tenant",), ("acme",)), (lambda tenant, order_id: tenant.upper(), "ACME")],
)
def test_a_scope_is_shared_or_read_from_the_arguments(scope: Any, expected: object) -> None:
    assert asked(_scoped, "acme", "o-1", _rules={"scope": scope}).key == key_of("o-1", expected)


def test_a_callable_may_answer_that_the_scope_is_shared() -> None:
    assert asked(_scoped, "acme", "o-1", _rules={"scope": lambda *args: SHARED}).key == key_of("o-1")


@pytest.mark.parametrize("tenant", [None, ""])
def test_no_scope_is_a_missing_key(tenant: Any) -> None:
    with pytest.raises(errors.KeyMissing, match="nothing ran"):
        asked(_scoped, tenant, "o-1", _rules={"scope": "tenant"})


@pytest.mark.parametrize("scope", ["who", 5, None, ()])
def test_a_scope_that_names_no_parameter_is_refused_at_decoration(scope: Any) -> None:
    with pytest.raises(errors.UsageError, match="nothing ran"):
        rules(_scoped, scope=scope)


def test_other_arguments_have_another_fingerprint() -> None:
    assert asked(charge, "o-1", Decimal(1)).fingerprint != asked(charge, "o-1", Decimal(2)).fingerprint


def test_key_and_scope_are_not_part_of_the_fingerprint() -> None:
    one, two = (
        asked(_scoped, "a", "1", _rules={"scope": "tenant"}),
        asked(_scoped, "b", "2", _rules={"scope": "tenant"}),
    )
    assert one.fingerprint == two.fingerprint


def test_what_a_path_does_not_reach_stays_in_the_fingerprint() -> None:
    cheap, dear = (asked(_dotted, Order("o-1", Decimal(n)), _rules={"key": "order.id"}) for n in (1, 2))
    assert cheap.key == dear.key
    assert cheap.fingerprint != dear.fingerprint


def test_with_a_callable_for_key_all_arguments_are_in_the_fingerprint() -> None:
    one, two = (asked(charge, order, _rules={"key": lambda *args: "k"}) for order in ("o-1", "o-2"))
    assert one.fingerprint != two.fingerprint


def test_what_is_ignored_is_not_part_of_the_fingerprint() -> None:
    one, two = (asked(charge, "o-1", note=note, _rules={"ignore": ("note",)}) for note in ("a", "b"))
    assert one.fingerprint == two.fingerprint


@pytest.mark.parametrize("ignore", [("nobody",), ("note", "nobody"), "nobody"])
def test_ignoring_what_there_is_not_is_refused_at_decoration(ignore: Any) -> None:
    with pytest.raises(errors.UsageError, match=r"'nobody'.*nothing ran"):
        rules(charge, ignore=ignore)


def _many(order_id: str, /, first: int, second: int = 2, *rest: int, last: int = 4, **more: int) -> None: ...


def _keywords(order_id: str, *, first: int, second: int = 2) -> None: ...


def _all(*order_id: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "left", "right"),
    [
        (charge, (("o-1",), {}), (("o-1", Decimal(1)), {})),
        (charge, (("o-1",), {}), ((), {"note": None, "amount": Decimal("1.0"), "order_id": "o-1"})),
        (charge, (("o-1", 2), {}), (("o-1",), {"amount": 2})),
        (_many, (("o", 1), {}), (("o",), {"first": 1, "second": 2, "last": 4})),
        (_many, (("o", 1, 2), {"a": 1, "b": 2}), (("o", 1), {"b": 2, "a": 1})),
        (_keywords, (("o",), {"first": 1}), ((), {"second": 2, "first": 1, "order_id": "o"})),
        (_all, (("a", "b"), {}), (("a", "b"), {})),
    ],
)
def test_the_same_call_written_otherwise_is_the_same_request(
    function: Callable[..., Any], left: tuple[Any, Any], right: tuple[Any, Any]
) -> None:
    one, two = (asked(function, *args, **kwargs) for args, kwargs in (left, right))
    assert (one.key, one.fingerprint) == (two.key, two.fingerprint)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((("o", 1, 2, 3), {}), (("o", 1, 2, 4), {})),
        ((("o", 1, 2, 3), {}), (("o", 1, 2), {"x": 3})),
        ((("o", 1), {"x": 3}), (("o", 1), {"y": 3})),
        ((("o", 1), {"last": 5}), (("o", 1), {})),
        ((("o", 1, 2, 3, 4), {}), (("o", 1, 2, 4, 3), {})),
        ((("o", 1), {"order_id": 2}), (("o", 1), {"order_id": 3})),
    ],
)
def test_another_call_of_a_variadic_function_is_another_request(left: tuple[Any, Any], right: tuple[Any, Any]) -> None:
    one, two = (asked(_many, *args, **kwargs) for args, kwargs in (left, right))
    assert one.key == two.key
    assert one.fingerprint != two.fingerprint


def test_variadic_arguments_can_be_the_key() -> None:
    assert asked(_all, "a", "b").key == key_of(("a", "b"))


plain_calls = st.tuples(
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), st.integers(0, 2), max_size=3),
)


def _plain(a: int, b: int = 1, *, c: int = 2, d: int = 3) -> None: ...


@given(plain_calls)
def test_calls_are_bound_as_python_binds_them(call: tuple[list[int], dict[str, int]]) -> None:
    args, kwargs = call
    made = rules(_plain, key="a")
    try:
        bound = made.signature.bind(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError):
            made.request(tuple(args), kwargs)
        return
    bound.apply_defaults()
    assert made._bind(tuple(args), kwargs) == bound.arguments


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), (("o", 1, "n", 5), {}), (("o",), {"order_id": "o"})])
def test_a_call_python_would_refuse_is_refused_as_python_does(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        rules(charge).request(args, kwargs)


def _with_session(order_id: str, session: Session) -> None: ...


def _with_sessions(order_id: str, sessions: dict[str, list[Session | None]]) -> None: ...


@pytest.mark.parametrize(("function", "name"), [(_with_session, "session"), (_with_sessions, "sessions")])
def test_an_argument_that_cannot_be_encoded_is_refused_by_name(function: Callable[..., Any], name: str) -> None:
    with pytest.raises(errors.UsageError, match=rf"'{name}' of .*Session.*Nothing ran.*ignore=\('{name}',\)"):
        rules(function)
    rules(function, ignore=(name,))


def _untold(order_id, thing):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - that nothing is declared is the point
    return thing


def test_an_undeclared_argument_that_cannot_be_encoded_is_refused_at_the_call() -> None:
    made = rules(_untold)
    made.request(("o-1", 5), {})
    with pytest.raises(errors.UsageError, match=r"Nothing ran.*ignore="):
        made.request(("o-1", Session()), {})


class _Shop:
    def charge(self, order_id: str) -> None: ...


def test_the_object_of_a_method_has_to_be_ignored_by_name() -> None:
    with pytest.raises(errors.UsageError, match=r"'self'.*ignore=\('self',\)"):
        rules(_Shop.charge)
    assert asked(_Shop.charge, _Shop(), "o-1", _rules={"ignore": ("self",)}).key == key_of("o-1")


def _unresolved(order_id: str, thing: "Elsewhere") -> None: ...


def _unresolved_result(order_id: str) -> "Elsewhere":
    raise NotImplementedError


def test_an_annotation_only_type_checkers_know_is_left_to_the_value() -> None:
    made = rules(_unresolved)
    made.request(("o-1", 5), {})
    with pytest.raises(errors.UsageError, match="Nothing ran"):
        made.request(("o-1", Session()), {})


def test_a_result_only_type_checkers_know_is_refused() -> None:
    with pytest.raises(errors.UsageError, match=r"'Elsewhere' cannot be resolved.*nothing ran"):
        rules(_unresolved_result)


def test_a_result_that_could_not_be_replayed_is_refused() -> None:
    def connect(order_id: str) -> Session:
        return Session()

    with pytest.raises(errors.UsageError, match=r"Session cannot be replayed.*Nothing ran"):
        rules(connect)


def test_names_known_where_the_function_is_made_are_found() -> None:
    @dataclasses.dataclass
    class Local:
        x: int

    def made_here(order_id: "str", local: "Local") -> "Local":
        return local

    request = asked(made_here, "o-1", Local(1))
    assert request.shape.lift(request.shape.lower(Local(1))) == Local(1)


def test_the_operation_is_where_the_function_lives() -> None:
    assert rules(charge, operation=None).operation == f"{__name__}.charge"
    assert rules(_Shop.charge, operation=None, ignore=("self",)).operation == f"{__name__}._Shop.charge"


@pytest.mark.parametrize(
    "function", [lambda order_id: order_id, functools.partial(charge, amount=Decimal(1))], ids=["lambda", "partial"]
)
def test_what_has_no_name_that_lasts_needs_one(function: Callable[..., Any]) -> None:
    with pytest.raises(errors.UsageError, match="operation="):
        rules(function, operation=None)
    assert rules(function, operation="named").operation == "named"


@pytest.mark.parametrize("operation", ["", "x" * 256, "a\nb", 5])
def test_a_name_that_cannot_be_one_is_refused_at_decoration(operation: Any) -> None:
    with pytest.raises(errors.KeyInvalid, match="nothing ran"):
        rules(charge, operation=operation)


def test_about_is_fixed_or_made_from_the_arguments() -> None:
    assert asked(charge, "o-1", _rules={"about": {"subject": "s"}}).about == About(subject="s")
    made = {"about": lambda order_id: {"subject": order_id}}
    assert asked(charge, "o-1", _rules=made).about == About(subject="o-1")


def test_an_about_that_cannot_be_kept_is_refused_before_anything_runs() -> None:
    with pytest.raises(errors.UsageError, match="nothing ran"):
        asked(charge, "o-1", _rules={"about": lambda order_id: {"topic": order_id}})


def test_the_policy_travels_in_the_stores_units() -> None:
    policy = Policy(lease_for=timedelta(seconds=1), keep_for=timedelta(seconds=2), in_doubt="hold")
    terms = asked(charge, "o-1", _rules={"policy": policy}).terms
    assert (terms.lease_us, terms.keep_us, terms.in_doubt) == (1_000_000, 2_000_000, "hold")
