"""Rules about the source of the package that no linter we use can express."""

import ast
import re
import sys

from tests.shape.tree import PACKAGE, Module, dotted, imported, modules

VAGUE_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
UNSAFE_FORMATS = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}

# The simulator owns time and chance, so core and engine may only use what they were handed.
# Naming time.monotonic as a default is fine, calling it is not; the real clock itself is the one exception.
THE_REAL_CLOCK = "src/semel/engine/clock.py"
AMBIENT_CALLS = {
    "date.today",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.now",
    "datetime.utcnow",
    "time.monotonic",
    "time.monotonic_ns",
    "time.sleep",
    "time.time",
    "time.time_ns",
    "uuid.uuid1",
    "uuid.uuid4",
}
AMBIENT_NAMES_FROM = {"random": None, "time": {"monotonic", "monotonic_ns", "sleep", "time", "time_ns"}}

PORTS = {"adapter", "driver", "front", "store", "within"}
"""What objects of ports of our own are called."""

EXECUTE = re.compile(r"execute(many|script)?")


def test_every_module_says_what_it_is_for() -> None:
    assert [module.where for module in modules() if not ast.get_docstring(module.tree)] == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = {module.where: module.path.relative_to(PACKAGE).with_suffix("").parts for module in modules()}
    assert [where for where, parts in names.items() if VAGUE_NAMES & set(parts)] == []


def test_nothing_is_stored_in_a_format_that_can_run_code() -> None:
    found = [
        f"{module.where}:{line} imports {name}"
        for module in modules()
        for name, line in imported(module.tree)
        if name.split(".")[0] in UNSAFE_FORMATS
    ]
    assert found == []


def test_core_stands_on_the_standard_library_and_msgspec() -> None:
    allowed = {*sys.stdlib_module_names, "msgspec", "semel"}
    found = [
        f"{module.where}:{line} imports {name}"
        for module in modules("core")
        for name, line in imported(module.tree)
        if name.split(".")[0] not in allowed
        and not (name.split(".")[0] == "pydantic" and "codec" in module.where and _is_lazy(module, line))
    ]
    assert found == []


def test_the_layers_do_not_reach_around_through_the_root() -> None:
    # The root loads lazily and knows everybody, so import-linter cannot see through it.
    found = [
        f"{module.where}:{node.lineno} takes {alias.name} from the root"
        for part in ("core", "engine", "stores")
        for module in modules(part)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module == "semel"
        for alias in node.names
        if not list(PACKAGE.glob(f"{alias.name}*"))
    ]
    assert found == []


def test_what_a_store_can_do_is_declared_and_not_looked_for() -> None:
    found = [
        f"{module.where}:{call.lineno} looks for a member of a store or driver by its name"
        for module in modules()
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("getattr", "hasattr")
        and ast.unparse(call.args[0]).rpartition(".")[2].lstrip("_") in PORTS
    ]
    assert found == []


def test_time_and_chance_are_handed_in() -> None:
    found = [
        f"{module.where}:{line} uses {what}"
        for part in ("core", "engine")
        for module in modules(part)
        if module.where != THE_REAL_CLOCK
        for what, line in _ambient(module.tree)
    ]
    assert found == []


def test_statements_are_constants() -> None:
    found = [
        f"{module.where}:{call.lineno} puts values into the text of a statement"
        for module in modules("stores")
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and EXECUTE.fullmatch(call.func.attr)
        and call.args
        and _is_composed(call.args[0])
    ]
    assert found == []


def _is_lazy(module: Module, line: int) -> bool:
    """Whether the import at this line runs only when a function is called."""
    return all(not isinstance(node, ast.Import | ast.ImportFrom) or node.lineno != line for node in module.tree.body)


def _ambient(tree: ast.AST) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := dotted(node.func)) in AMBIENT_CALLS:
            found.append((name, node.lineno))
        elif isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names if alias.name == "random"]
        elif isinstance(node, ast.ImportFrom) and node.module in AMBIENT_NAMES_FROM:
            names = AMBIENT_NAMES_FROM[node.module]
            found += [
                (f"{node.module}.{alias.name}", node.lineno)
                for alias in node.names
                if names is None or alias.name in names
            ]
    return found


def _is_composed(text: ast.expr) -> bool:
    """Whether an expression builds a string out of values: f"", %, +, .format or .join."""
    match text:
        case ast.JoinedStr(values=parts):
            return any(isinstance(part, ast.FormattedValue) for part in parts)
        case ast.BinOp():
            return True
        case ast.Call(func=ast.Attribute(attr="format" | "join" | "replace")):
            return True
    return False
