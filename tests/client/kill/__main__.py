"""Kill clients between send and reply, restart them, and check what came of their orders.

    python -m tests.client.kill                         500 rounds
    python -m tests.client.kill --rounds 5000 --seed 7  more, with other choices

Run it from the root of the checkout, in the environment that `make test` makes. It shows its progress, prints a table,
and exits with 1 if something was lost, duplicated, wedged or sent with another key, or if a position was never hit.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.client.kill.mutants import MUTANTS
from tests.client.kill.program import kill_and_check, report

_WIDTH = 40


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.client.kill", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutant", choices=list(MUTANTS), default="", help="a fault that the client is to have")
    options = parser.parse_args()

    def progress(rounds: int, problems: int) -> None:
        bar = "#" * (rounds * _WIDTH // options.rounds)
        sys.stderr.write(f"\r[{bar:.<{_WIDTH}}] {rounds}/{options.rounds} rounds, {problems} problems ")

    with tempfile.TemporaryDirectory(prefix="semel-client-kill-") as folder:
        outcome = kill_and_check(Path(folder), options.rounds, options.seed, mutant=options.mutant, tell=progress)
    sys.stderr.write("\n")
    print(report(outcome))
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
