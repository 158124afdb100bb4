"""Places where SQLite cannot keep its promises are refused: typed, with the path, and before anything is created."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from semel import AsyncSemel, Semel
from semel.errors import StoreMisconfigured, UsageError
from semel.stores.sqlite import SqliteStore, migrate, settings
from semel.stores.sqlite.settings import filesystem_of
from tests.unit.stores.kit import Asker
from tests.unit.stores.operations import Clock

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /data rw - ext4 /dev/sdb1 rw
31 30 0:41 / /data/shared\\040files rw,relatime shared:2 - nfs4 server:/export rw,vers=4.2
32 22 0:42 / /mnt rw - tmpfs tmpfs rw
33 22 0:43 / /mnt rw - fuse.sshfs me@there: rw
34 22 0:44 / /database rw - cifs //server/share rw
broken line
"""

NOBODY = """\
import os, sys
sys.path[:0] = sys.argv[2].split(os.pathsep)
from semel.stores.sqlite import migrate
os.setgid(65534); os.setuid(65534)
try:
    migrate(sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""


def record_at(path: Path) -> None:
    Asker(SqliteStore(path), Clock()).record()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreMisconfigured, match=r"folder .*/missing does not exist.*nothing ran"):
        record_at(tmp_path / "missing" / "semel.db")
    assert not (tmp_path / "missing").exists()


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreMisconfigured, match="is not a folder"):
        record_at(tmp_path / "file" / "semel.db")


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreMisconfigured, match="it is a folder"):
        record_at(tmp_path)


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel.stores.sqlite.settings.os.access", lambda *_: False)
    with pytest.raises(StoreMisconfigured, match="read-only for this user"):
        record_at(tmp_path / "semel.db")
    assert list(tmp_path.iterdir()) == []


def _modes(path: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob(f"{path.name}*")}


def _used_by_threads(path: Path, seen: dict[str, int]) -> None:
    with Semel(SqliteStore(path)) as semel:
        semel.run("k", lambda: None, operation="charge", fingerprint=None)
        seen.update(_modes(path))


def _used_by_tasks(path: Path, seen: dict[str, int]) -> None:
    async def used() -> None:
        async with AsyncSemel(SqliteStore(path)) as semel:
            await semel.run("k", _nothing, operation="charge", fingerprint=None)
            seen.update(_modes(path))

    asyncio.run(used())


async def _nothing() -> None:
    """A handler."""


def _migrated(path: Path, seen: dict[str, int]) -> None:
    migrate(path)
    seen.update(_modes(path))


@pytest.fixture
def everything_allowed() -> Iterator[None]:
    """A umask that forbids nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("everything_allowed")
@pytest.mark.parametrize(
    ("use", "files"),
    [
        (_used_by_threads, {"semel.db", "semel.db-wal", "semel.db-shm"}),
        (_used_by_tasks, {"semel.db", "semel.db-wal", "semel.db-shm"}),
        (_migrated, {"semel.db"}),
    ],
    ids=["threads", "tasks", "migrate"],
)
def test_a_new_file_is_readable_for_its_owner_alone(
    tmp_path: Path, use: Callable[[Path, dict[str, int]], None], files: set[str]
) -> None:
    seen: dict[str, int] = {}
    use(tmp_path / "semel.db", seen)
    assert seen == dict.fromkeys(files, 0o600)


def test_the_mode_of_a_file_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"
    path.touch()
    path.chmod(0o640)
    record_at(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize("what", ["folder", "file"])
def test_another_user_is_told_what_is_read_only(what: str) -> None:
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    folder.chmod(0o755 if what == "folder" else 0o777)
    path = folder / "semel.db"
    if what == "file":
        path.write_bytes(b"")
        path.chmod(0o644)
    told = subprocess.run(
        [sys.executable, "-c", NOBODY, str(path), os.pathsep.join(sys.path)], capture_output=True, text=True, check=True
    ).stdout
    assert told.startswith("StoreMisconfigured")
    assert ("read-only" if what == "folder" else "not readable and writable") in told
    assert "nothing ran" in told
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/app/semel.db", "ext4"),
        ("/data/semel.db", "ext4"),
        ("/data/shared files/semel.db", "nfs4"),
        ("/mnt/semel.db", "fuse.sshfs"),
        ("/database/semel.db", "cifs"),
        ("/database2/semel.db", "ext4"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(path: str, kind: str) -> None:
    assert filesystem_of(path, MOUNTS) == kind


def test_a_network_file_system_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 8:1 / {tmp_path} rw - nfs server:/export rw\n")
    monkeypatch.setattr(settings, "MOUNTS", mounts)
    with pytest.raises(StoreMisconfigured, match=r"network file system \(nfs\).*locks do not hold"):
        record_at(tmp_path / "semel.db")
    assert not (tmp_path / "semel.db").exists()


def test_a_system_without_a_list_of_mounts_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "MOUNTS", tmp_path / "none")
    asker = Asker(SqliteStore(tmp_path / "semel.db"), Clock())
    assert asker.record() is None
    asker.driver.close()


@pytest.mark.parametrize("path", [":memory:", "file::memory:?cache=shared", "", "a\0b"])
def test_what_is_no_file_is_a_mistake(path: str) -> None:
    with pytest.raises(UsageError, match="nothing ran"):
        SqliteStore(path)


def test_memory_is_pointed_to_the_store_for_it() -> None:
    with pytest.raises(UsageError, match="memory://"):
        SqliteStore(":memory:")


def test_a_relative_path_is_fixed_when_the_store_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("semel.db")
    monkeypatch.chdir("/")
    assert store.path == str(tmp_path / "semel.db")
    assert store.name == f"sqlite:///{tmp_path}/semel.db"


@pytest.mark.parametrize("synchronous", ["OFF", "full", ""])
def test_an_unknown_durability_is_a_mistake(tmp_path: Path, synchronous: str) -> None:
    with pytest.raises(UsageError, match="FULL"):
        SqliteStore(tmp_path / "semel.db", synchronous=synchronous)


@pytest.mark.parametrize("busy_for", [timedelta(seconds=-1), timedelta(days=1), -5])
def test_an_impossible_wait_is_a_mistake(tmp_path: Path, busy_for: timedelta) -> None:
    with pytest.raises(UsageError, match="busy_for"):
        SqliteStore(tmp_path / "semel.db", busy_for=busy_for)


def test_a_library_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 34, 0))
    with pytest.raises(UsageError, match=r"3\.37"):
        record_at(tmp_path / "semel.db")
