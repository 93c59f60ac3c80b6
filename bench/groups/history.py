"""What the usage history costs: the same list from servers that record a history and from servers that do not."""

from bench.groups.logs import compare_settings
from bench.plan import Plan, progress
from bench.results import Curve, Goal, Row

OFF = {"PETSTORE_USAGE_HOURS_DAYS": "0", "PETSTORE_USAGE_DAYS_DAYS": "0"}


def measure(plan: Plan) -> tuple[list[Row], list[Curve]]:
    """Measure lists of 10 orders with and without a usage history."""
    progress("the usage history")
    title = "List of 10 orders with a usage history"
    return [compare_settings(plan, "usage-history", title, {}, OFF, "without a history", Goal(0.97))], []
