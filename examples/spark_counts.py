"""Orders a minute and customer, from topic to topic with Spark, exactly once.

Writes a few orders, counts what is there and ends; without `availableNow` the query would go on for ever.
"""

import os
import tempfile

from pyspark.sql.functions import window

from penstock import Admin, Producer, String
from penstock.spark import queries, session

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
BROKERS = {"kafka.bootstrap.servers": BOOTSTRAP}

with Admin(BOOTSTRAP) as admin:
    admin.topics.create("orders", partitions=2)
    admin.topics.create("orders-a-minute")
with Producer(BOOTSTRAP, key=String(), value=String()) as producer:
    for number in range(100):
        # One order every three seconds of event time, from noon on.
        producer.send("orders", "apples", key=f"customer-{number % 2}", timestamp=1_767_268_800_000 + 3000 * number)

spark = session("orders", "local[2]", {"spark.sql.session.timeZone": "UTC"})
counts = (
    spark.readStream.format("penstock")
    .options(subscribe="orders", startingOffsets="earliest", **BROKERS)
    .load()
    .withWatermark("timestamp", "30 seconds")  # how late an order may come; then its minute is final
    .groupBy("key", window("timestamp", "1 minute"))
    .count()
)
with tempfile.TemporaryDirectory() as checkpoint:
    query = (
        counts.selectExpr("key", "concat(date_format(window.start, 'HH:mm'), ' ', count) as value")
        .writeStream.format("penstock")
        .queryName("orders-a-minute")
        .options(topic="orders-a-minute", checkpointLocation=checkpoint, **BROKERS)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

final = spark.read.format("penstock").options(subscribe="orders-a-minute", **BROKERS).load()
for key, value in sorted(final.selectExpr("cast(key as string)", "cast(value as string)").collect()):
    print(key, value)
spark.stop()
for told in queries(BOOTSTRAP):
    print(told.name, told.state, "lag", told.lag)
