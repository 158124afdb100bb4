"""The asset service on servers: a consumer of a RabbitMQ queue that writes to PostgreSQL, with the same domain code.

python -m examples.assets.rabbitmq --database postgresql://… --broker amqp://…          # until Ctrl-C or SIGTERM
python -m examples.assets.rabbitmq --database … --broker … --send 7                     # send the sample first

Start as many as you like. End them as you like: an event takes effect once, whichever of them was killed over it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
from typing import Any

import aiormq
import asyncpg

from examples.assets.postgresql import PostgresPlant
from examples.assets.sample import deliveries
from examples.assets.service import make_consumer
from semel import AsyncSemel
from semel.events import Event
from semel.events.brokers import rabbitmq

QUEUE = "assets"


async def declare(broker: str, queue: str) -> None:
    """Make the queue, and the one for dead letters."""
    connection = await aiormq.connect(broker)
    try:
        channel = await connection.channel()
        dead = f"{queue}.dead"
        await channel.queue_declare(dead, durable=True)
        arguments: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        await channel.queue_declare(queue, durable=True, arguments=arguments)
    finally:
        await connection.close()


async def send(broker: str, queue: str, events: list[Event]) -> None:
    """Send events one by one, so that repeats are messages of their own."""
    async with rabbitmq.publisher(broker, routing_key=queue) as publisher:
        for event in events:
            (error,) = await publisher.publish([event])
            if error is not None:
                raise error


async def serve(database: str, broker: str, queue: str, stop: asyncio.Event) -> None:
    """Take events from the queue until `stop`; handlers that run then are waited for."""
    async with asyncpg.create_pool(database) as pool, AsyncSemel(database) as semel:
        plant = PostgresPlant(pool)
        await plant.create_tables()
        consumer = make_consumer(semel, plant, plant.transaction)
        async with rabbitmq.listen(consumer, broker, queue=queue, concurrency=8):
            print(f"listening to {queue}", flush=True)
            await stop.wait()


async def run(arguments: argparse.Namespace) -> None:
    """Do what the command line says."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await declare(arguments.broker, arguments.queue)
    if arguments.send is not None:
        await send(arguments.broker, arguments.queue, deliveries(random.Random(arguments.send)))
    await serve(arguments.database, arguments.broker, arguments.queue, stop)


def main() -> None:
    """Read the command line, and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", default=os.environ.get("SEMEL_URL"), help="default: SEMEL_URL")
    parser.add_argument("--broker", default=os.environ.get("SEMEL_BROKER"), help="default: SEMEL_BROKER")
    parser.add_argument("--queue", default=QUEUE)
    parser.add_argument("--send", type=int, metavar="SEED", help="send the sample first, repeated and shuffled")
    arguments = parser.parse_args()
    if not (arguments.database and arguments.broker):
        parser.error("name a database and a broker: --database, --broker, or SEMEL_URL and SEMEL_BROKER")
    asyncio.run(run(arguments))


if __name__ == "__main__":
    main()
