"""Rules about files as files: length, hosts, locks, changelog fragments."""

import re
import tomllib
from collections import Counter

from tests.shape.tree import LAB, PACKAGE, ROOT, project_files

MAX_LINES = 900
MAX_MODULES = 12
# Equal things side by side, as many as there are: commands, topics, and one file for each client library.
OF_EQUALS = {
    "src/semel/cli/commands",
    "src/semel/events/brokers",
    "src/semel/stores/sql/adapters",
    "src/semel/testing/contract/topics",
}

# Put together here, so that this file passes its own test.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("jsdelivr", "net"),
        ("unpkg", "com"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("maven", "org"),
        ("maven", "apache", "org"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("conda", "anaconda", "org"),
    )
]
# Mirrors have any host; what gives them away is a path or host part that only registries have.
MIRROR = re.compile(r"://[^\s\"'<>)]*\b(pypi|simple|npm|registry|artifactory|nexus)\b")


def _texts() -> dict[str, str]:
    texts = {}
    for path in project_files():
        try:
            texts[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return texts


def test_source_files_are_short() -> None:
    lines = {
        path.relative_to(ROOT).as_posix(): path.read_bytes().count(b"\n")
        for path in project_files()
        if path.is_relative_to(PACKAGE) or path.is_relative_to(LAB)
    }
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def test_folders_of_modules_can_be_taken_in_at_a_glance() -> None:
    modules = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for path in project_files()
        if path.suffix == ".py"
        and path.name != "__init__.py"
        and (path.is_relative_to(PACKAGE) or path.is_relative_to(LAB))
    )
    crowded = {folder: count for folder, count in modules.items() if count > MAX_MODULES and folder not in OF_EQUALS}
    assert crowded == {}


def test_no_file_names_a_package_registry() -> None:
    named = {
        name: hits
        for name, text in _texts().items()
        if (hits := [host for host in REGISTRIES if host in text] + [hit.group() for hit in MIRROR.finditer(text)])
    }
    assert named == {}


def test_lock_files_name_no_host() -> None:
    locks = {name: text for name, text in _texts().items() if name.endswith(".lock")}
    assert "requirements/dev.lock" in locks
    assert [name for name, text in locks.items() if "://" in text] == []


def test_every_locked_package_has_a_hash() -> None:
    pins = re.compile(r"^[a-z0-9][\w.-]*==.*$", re.MULTILINE)
    loose = [
        (name, pin)
        for name, text in _texts().items()
        if name.endswith(".lock")
        for pin in pins.findall(text)
        if not pin.endswith("\\")
    ]
    assert loose == []


def test_no_file_tells_where_it_was_written() -> None:
    homes = re.compile(r"(?<![\w.])/(home|root|Users)/[\w.-]+/")
    assert {name: hit.group() for name, text in _texts().items() if (hit := homes.search(text))} == {}


def test_changelog_fragments_are_named_by_topic_and_kind() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = "|".join(kind["directory"] for kind in config["type"])
    fragment = re.compile(rf"[a-z0-9][a-z0-9-]*\.({kinds})\.md")
    names = {path.name for path in project_files() if path.parent == ROOT / config["directory"]}
    assert [name for name in sorted(names - set(config["ignore"])) if not fragment.fullmatch(name)] == []
