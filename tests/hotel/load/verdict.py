"""What has to hold after a run, and its figures. Pure: it looks at what was read, and asks nobody.

What always holds: every complaint says what was expected and what was found, so that one line is enough.
"""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

from examples.hotel.tables import PaymentStatus, Status
from tests.hotel.load.house import NIGHTS, PRICE
from tests.hotel.load.run import Ended
from tests.hotel.load.users import User, code_of, is_sold_out

REFUSALS = {(409, "sold-out"), (410, "expired"), (402, "declined")}


def complaints(ended: Ended) -> list[str]:
    """Everything that is wrong; empty is what is wanted."""
    return [*_kills(ended), *_rooms(ended), *_money(ended), *_answers(ended), *_repeats(ended)]


def figures(ended: Ended) -> str:
    """What was tried, in one line."""
    ways, kills = ended.ways, ended.kills
    statuses = Counter[int]()
    for (_, status), number in ways.answers.items():
        statuses[status] += number
    told = ", ".join(f"{status}: {number}" for status, number in sorted(statuses.items()))
    return (
        f"{len(ended.users)} users, {sum(user.leaves is not None for user in ended.users)} left, "
        f"{len(ended.facts.having(Status.CONFIRMED))} confirmed, {ended.rounds} rounds after the first, "
        f"{kills.at_the_server} payments with a room at the killed server, "
        f"{kills.at_the_gateway} at the killed gateway, "
        f"swept {dict(ended.swept)}, {sum(ways.answers.values())} answers ({told}), "
        f"{sum(ways.lost.values())} lost, {ended.seconds:.1f} s"
    )


def _kills(ended: Ended) -> Iterator[str]:
    kills, sellable = ended.kills, ended.house.sellable
    if kills.at_the_server < 2:
        yield f"{kills.at_the_server} payments with a room ran at the server when it was killed, not at least 2"
    if kills.at_the_gateway < sellable:
        yield f"{kills.at_the_gateway} charges were under way when the gateway was killed, not {sellable}"
    if kills.charged != 1:
        yield f"the ledger had {kills.charged} lines when the gateway died, not 1"
    if not ended.swept["confirmed"] or not ended.swept["given_back"]:
        yield f"the sweeper had to confirm and to give back; it did {dict(ended.swept)}"


def _rooms(ended: Ended) -> Iterator[str]:
    facts, sellable = ended.facts, ended.house.sellable
    confirmed = facts.having(Status.CONFIRMED)
    if len(confirmed) != sellable:
        yield f"{len(confirmed)} reservations are confirmed, not {sellable}"
    if facts.sold != [len(confirmed)] * NIGHTS:
        yield f"{len(confirmed)} are confirmed, and the nights say {facts.sold}"
    if paying := facts.having(Status.PAYING):
        yield f"still PAYING: {sorted(paying)}"
    if len(facts.reservations) != len(ended.users):
        yield f"{len(ended.users)} users made {len(facts.reservations)} reservations"


def _money(ended: Ended) -> Iterator[str]:
    facts, confirmed = ended.facts, ended.facts.having(Status.CONFIRMED)
    events = Counter((line["event"], line["key"]) for line in ended.ledger)
    if twice := [entry for entry, number in events.items() if number > 1]:
        yield f"more than once in the ledger: {twice}"
    charged = {key for event, key in events if event == "charged"}
    refunded = {key for event, key in events if event == "refunded"}
    if len(charged) - len(refunded) != len(confirmed):
        yield f"{len(charged)} charges less {len(refunded)} refunds are not {len(confirmed)} confirmations"
    paid = {one.gateway_key: one for one in facts.payments if one.reservation_id in confirmed and one.receipt}
    if paid.keys() != charged - refunded:
        yield f"charged {sorted(charged - refunded)}, but the payments of the confirmed are {sorted(paid)}"
    unsettled = (PaymentStatus.PENDING, PaymentStatus.GIVING_BACK)
    if pending := [one.id for one in facts.payments if one.status in unsettled]:
        yield f"payments still PENDING or GIVING_BACK: {pending}"
    for line in ended.ledger:
        one = paid.get(line["key"])
        if one and (Decimal(line["amount"]) != NIGHTS * PRICE or line["receipt"] != one.receipt):
            yield f"{one.reservation_id} costs {NIGHTS * PRICE} under {one.receipt}, and the ledger says {line}"


def _answers(ended: Ended) -> Iterator[str]:
    yield from ended.ways.broken
    confirmed = ended.facts.having(Status.CONFIRMED)
    for user in ended.users:
        if user.leaves is None and user.answer is None:
            yield f"user {user.number} stayed and got no final answer"
        if user.answer is not None:
            yield from _answer(ended, user, user.reservation in confirmed)
    for server in ended.servers:
        if not server.killed and "Traceback" in server.log():
            yield f"server {server.number} wrote a traceback: {server.log()[-2000:]}"


def _answer(ended: Ended, user: User, has_room: bool) -> Iterator[str]:
    answer = user.answer
    assert answer is not None
    if answer.status_code == 200:
        told = answer.json()
        receipts = {one.receipt for one in ended.facts.payments if one.reservation_id == user.reservation}
        if told["status"] != Status.CONFIRMED or not has_room or told["receipt"] not in receipts:
            yield f"user {user.number} was told {told}, and the database says {receipts}, confirmed: {has_room}"
    elif (answer.status_code, code_of(answer)) not in REFUSALS:
        yield f"user {user.number} got no clean refusal: {answer.status_code} {answer.text}"
    elif has_room:
        yield f"user {user.number} was refused with {code_of(answer)}, and has a room"
    elif is_sold_out(answer) and min(ended.facts.sold) < ended.house.sellable:
        yield f"user {user.number} was told that all is sold, and it is not: {ended.facts.sold}"


def _repeats(ended: Ended) -> Iterator[str]:
    for user, again in ended.repeated:
        assert user.answer is not None
        if again.status_code != 200 or again.json() != user.answer.json():
            yield f"user {user.number} asked again and got {again.status_code} {again.text}, not {user.answer.text}"
    if ended.ledger_after_repeating != len(ended.ledger):
        yield f"asking again made {ended.ledger_after_repeating - len(ended.ledger)} more lines in the ledger"
