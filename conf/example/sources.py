"""
The two source tables of `lakejoin.yml`. This script is yours: lakejoin only reads what it writes.

The first time it makes them. Each further time it plays a day in the shop: on both tables one row is updated, one
inserted and one deleted. `lakejoin run` then brings orders_paid up to date with the rows that this touches, no others.
"""

from pathlib import Path

from lakehouse.session.session import local_session

LAKE = Path(__file__).resolve().parent / "lake"
ORDERS = f"delta.`{LAKE}/orders`"
PAYMENTS = f"delta.`{LAKE}/payments`"

spark = local_session()  # Spark with Delta on this machine; any session of your own that knows Delta will do


def make() -> None:
    """Make both tables. The property is all that lakejoin asks of them: it reads what changed from the change feed."""
    properties = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    spark.sql(f"""
        CREATE OR REPLACE TABLE {ORDERS} USING delta {properties} AS
        SELECT order_id, customer, CAST(amount AS DECIMAL(10, 2)) AS amount
        FROM VALUES (1, 'Ada', 20), (2, 'Grace', 35), (3, 'Edsger', 12.5), (4, 'Barbara', 80), (5, 'Alan', 7)
             AS t (order_id, customer, amount)
    """)
    spark.sql(f"""
        CREATE OR REPLACE TABLE {PAYMENTS} USING delta {properties} AS
        SELECT order_id, method, DATE '2026-01-01' + order_id AS paid_at
        FROM VALUES (2, 'card'), (3, 'transfer') AS t (order_id, method)
    """)


def play_a_day() -> None:
    """Change both tables; to orders_paid that is 1 insert, 4 updates and 1 delete."""
    oldest, newest = spark.sql(f"SELECT min(order_id), max(order_id) FROM {ORDERS}").first()

    # Somebody orders, somebody orders more, and the oldest order goes to the archive. It was never paid.
    spark.sql(f"INSERT INTO {ORDERS} VALUES ({newest + 1}, 'Customer {newest + 1}', {newest + 1} * 1.5)")
    spark.sql(f"UPDATE {ORDERS} SET amount = amount + 5 WHERE order_id = {newest}")
    spark.sql(f"DELETE FROM {ORDERS} WHERE order_id = {oldest}")

    # An order is paid, a payment was by another method, and one is taken back: its order stays, with nulls.
    spark.sql(f"INSERT INTO {PAYMENTS} VALUES ({newest - 1}, 'card', DATE '2026-01-01' + {newest - 1})")
    spark.sql(f"UPDATE {PAYMENTS} SET method = concat(method, ', corrected') WHERE order_id = {oldest + 2}")
    spark.sql(f"DELETE FROM {PAYMENTS} WHERE order_id = {oldest + 1}")


if (LAKE / "payments" / "_delta_log").exists():
    play_a_day()
else:
    make()

for name, table in (("orders", ORDERS), ("payments", PAYMENTS)):
    print(name)
    spark.sql(f"SELECT * FROM {table} ORDER BY order_id").show(truncate=False)
