"""Where an order stands in a list: the model that pages are compared to."""

from petstore_server.domain.search import IndexEntry, Position, Sort, SortField


def position_of(entry: IndexEntry, sort: Sort) -> Position:
    """Where the order stands in the list."""
    if sort.field is SortField.SHIP_DATE:
        return Position(entry.ship_date, entry.id)
    if sort.field is SortField.UPDATED_AT:
        return Position(entry.updated_at, entry.id)
    return Position(entry.id, entry.id)
