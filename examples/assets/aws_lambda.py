"""The asset service as a function of AWS Lambda, with the same domain code: marks and assets in one table of DynamoDB.

The function's handler is `examples.assets.aws_lambda.handler`. Its environment names the table, `TABLE_NAME=assets`,
which has the partition key `pk` and the sort key `sk`, both text. `semel migrate "dynamodb://assets?pk=pk&sk=sk"`
makes it, or adds what semel needs to one that is there.
"""

from __future__ import annotations

import os

from examples.assets.dynamodb import DynamoPlant
from examples.assets.service import make_consumer
from semel import AsyncSemel
from semel.events import Consumer
from semel.events.brokers import aws_lambda


def consumer() -> Consumer[AsyncSemel]:
    """The consumer of a process; made at its first invocation, and used by all that follow."""
    plant = DynamoPlant(os.environ["TABLE_NAME"])
    semel = AsyncSemel(aws_lambda.table_url(pk="pk", sk="sk"))
    return make_consumer(semel, plant, plant.transaction)


handler = aws_lambda.handler(consumer)
