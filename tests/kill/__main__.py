"""Kill workers, or servers, on one database and check what is left.

    python -m tests.kill                                  500 kills on a SQLite file, as in `make test`
    python -m tests.kill 5000 --seed 7                    more, with other choices
    python -m tests.kill 2000 --on postgresql://u@h/empty   on an empty database of a server; mysql://, redis:// as well
    python -m tests.kill 2000 --start redis               on servers of its own: postgresql, mariadb, redis
    python -m tests.kill 50 --start redis --servers       the servers are killed, not the workers

Run it from the root of the checkout, in the environment that `make test` makes. It shows its progress, prints the
report, and exits with 1 if something was lost, duplicated without explanation, forgotten or wedged, or if a position
was never hit.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.kill.grounds.ground import ground_of
from tests.kill.grounds.private import KINDS, private_ground
from tests.kill.program import Outcome, break_server_and_check, kill_and_check


def _progress(kills: int, covered: int) -> None:
    sys.stderr.write(f"\r{kills} kills, {covered} positions covered ")


def _run(folder: Path, options: argparse.Namespace) -> Outcome:
    if options.start is None:
        ground = ground_of(options.on or str(folder / "semel.db"))
        return kill_and_check(folder, ground, options.kills, options.seed, _progress)
    with private_ground(options.start) as private:
        if options.servers:
            return break_server_and_check(folder, private, options.kills, options.seed, _progress)
        return kill_and_check(folder, private.ground, options.kills, options.seed, _progress)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.kill", description=__doc__.partition("\n")[0])
    parser.add_argument("kills", type=int, nargs="?", default=500)
    parser.add_argument("--seed", type=int, default=1)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--on", help="the URL of an empty database; a new SQLite file if none is given")
    where.add_argument("--start", choices=KINDS, help="start private servers of this kind")
    parser.add_argument("--servers", action="store_true", help="kill the servers that were started, not the workers")
    parser.add_argument("--folder", type=Path, help="where to work; what the run leaves is kept there")
    options = parser.parse_args()
    if options.servers and options.start is None:
        parser.error("only servers that were started here are killed: say which with --start")
    if options.folder is not None:
        options.folder.mkdir(parents=True)
        outcome = _run(options.folder, options)
    else:
        with tempfile.TemporaryDirectory(prefix="semel-kill-") as folder:
            outcome = _run(Path(folder), options)
    print(f"\n{outcome.text}")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
