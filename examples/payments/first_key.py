"""First steps: a charge that runs once per order, however often the program is started."""

import sys

from semel import Semel, errors

semel = Semel("sqlite:///first.db")


@semel.once(key="order_id", operation="charge")
def charge(order_id: str, cents: int) -> str:
    print(f"charging {cents} cents")
    return f"receipt for {order_id}"


def main() -> None:
    order_id, cents = sys.argv[1], int(sys.argv[2])
    with semel:
        try:
            result = charge.result(order_id, cents)
        except errors.KeyReused as error:
            sys.exit(f"{error.code}: {order_id} was charged before, with another amount")
    print(f"{result.value} (replayed)" if result.replayed else result.value)


if __name__ == "__main__":
    main()
