"""How the cost of a list grows with the API keys that requests use in turn, each of another account."""

from bench import access
from bench.orders import LIST
from bench.plan import Plan, progress
from bench.results import PRODUCT, Row
from bench.setup import Setup


def measure(plan: Plan) -> list[Row]:
    """Measure processor time with 1 to 100,000 keys."""
    return [_row(plan, number) for number in plan.pick((1, 10, 100, 1_000, 10_000, 100_000), (1, 100))]


def _row(plan: Plan, number: int) -> Row:
    """Readings after every key has been used once, each load continuing where the one before ended."""
    progress(f"{number:,} API keys")
    with Setup(plan) as setup:
        store, keys = setup.store(10), setup.folder() / "keys"
        keys.write_text("\n".join(access.add_keys(store, number)))
        load = setup.petstore(store).successive(LIST, lambda first: ("keys", keys, first))
        while load.last < number:
            load()
        costs = [load().costs[PRODUCT] for _ in range(plan.rounds)]
    title = f"List of 10 orders, processor time, {number:,} key{'s in turn' * (number > 1)}"
    return Row(f"keys-{number}", title, "µs", {PRODUCT: costs})
