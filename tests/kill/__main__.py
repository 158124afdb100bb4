"""Kill workers on one SQLite file and check what is left.

    python -m tests.kill                 500 kills, as in `make test`
    python -m tests.kill 5000 --seed 7   more, with other choices

Run it from the root of the checkout, in the environment that `make test` makes. It shows its progress, prints the
report, and exits with 1 if something was lost, duplicated or wedged, or if a position was never hit.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.kill.positions import At
from tests.kill.program import kill_and_check


def _progress(kills: int, covered: int) -> None:
    sys.stderr.write(f"\r{kills} kills, {covered} of {len(At)} positions covered ")


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.kill", description=__doc__.partition("\n")[0])
    parser.add_argument("kills", type=int, nargs="?", default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to work; what the run leaves is kept there")
    options = parser.parse_args()
    if options.folder is not None:
        options.folder.mkdir(parents=True)
        outcome = kill_and_check(options.folder, options.kills, options.seed, _progress)
    else:
        with tempfile.TemporaryDirectory(prefix="semel-kill-") as folder:
            outcome = kill_and_check(Path(folder), options.kills, options.seed, _progress)
    print(f"\n{outcome.text}")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
