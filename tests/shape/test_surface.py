"""Rules about what users see: exact exports, equal colours, an import that loads nothing."""

import inspect
import subprocess
import sys

import pytest

import semel

PAIRS = [name for name in semel.__all__ if f"Async{name}" in semel.__all__]


def test_every_exported_name_exists() -> None:
    assert [name for name in semel.__all__ if not hasattr(semel, name)] == []


def test_exports_are_listed_once_and_can_be_discovered() -> None:
    assert len(set(semel.__all__)) == len(semel.__all__)
    assert set(semel.__all__) <= set(dir(semel))


def test_nothing_public_is_left_out_of_the_exports() -> None:
    public = {
        name
        for name, value in vars(semel).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("semel")
    }
    assert public <= set(semel.__all__)


def test_both_colours_are_exported() -> None:
    assert "Semel" in PAIRS


@pytest.mark.parametrize("name", PAIRS)
def test_both_colours_have_the_same_methods(name: str) -> None:
    assert _surface(getattr(semel, name)).keys() == _surface(getattr(semel, f"Async{name}")).keys()


@pytest.mark.parametrize("name", PAIRS)
def test_both_colours_take_the_same_arguments(name: str) -> None:
    assert _surface(getattr(semel, name)) == _surface(getattr(semel, f"Async{name}"))


def test_importing_the_package_loads_no_part_of_it() -> None:
    program = "import sys, semel; print(*(m for m in sys.modules if m.startswith(('semel.', 'msgspec', 'asyncio'))))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def _surface(cls: type) -> dict[str, list[tuple[str, str]]]:
    """Each public member with the names and kinds of its parameters; a property has none."""
    surface = {}
    for name, member in inspect.getmembers_static(cls):
        if name == "__init__" or not name.startswith("_"):
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            parameters = inspect.signature(function).parameters.values() if inspect.isroutine(function) else ()
            surface[name] = [(parameter.name, parameter.kind.name) for parameter in parameters]
    return surface
