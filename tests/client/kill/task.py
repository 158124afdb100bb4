"""What a life is told to do, as it goes to the zygote."""

import json
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True)
class Task:
    """A life: `turn` counts from 1 within its round, and only the first of an order without a name asks for it.

    `ahead` is how far the store's clock has gone forward, in microseconds. `stop` names the position at which it stands
    still, or nothing; `mutant` the fault that it is to have, or nothing.
    """

    round: int
    turn: int
    library: str
    named: bool
    stop: str
    mutant: str
    file: str
    ahead: int
    port: int
    line: int

    @property
    def name(self) -> str:
        """As the header of its requests has it."""
        return f"{self.round}.{self.turn}"

    @property
    def url(self) -> str:
        """Where it orders."""
        return f"http://127.0.0.1:{self.port}/rounds/{self.round}/orders"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of its order."""
        return {"Content-Type": "application/json"} | ({"Semel-Intent": f"order {self.round}"} if self.named else {})

    @property
    def asks(self) -> bool:
        """Whether it asks for the order."""
        return self.named or self.turn == 1

    def line_of_text(self) -> str:
        """As one line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """Out of one line."""
        return cls(**json.loads(text))
