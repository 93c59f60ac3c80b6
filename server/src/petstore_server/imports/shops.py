"""Known exports of shops: by which columns each is recognised, and the options that `--shop` stands for.

`shops.toml` has the exports. The number that a shop gives an order becomes its reference, never its identifier:
numbers of several shops would collide with each other and with those that are assigned here. A status without a
counterpart here (refunded, failed) is not mapped, so that its rows are rejected and the operator decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from petstore_server.domain.remedies import Choice, Remedy
from petstore_server.imports.options import EVERY_COLUMN, ReadOptions, plain_name

SHOPS = {
    "amazon": "Amazon",
    "ebay": "eBay",
    "etsy": "Etsy",
    "magento": "Magento",
    "shopify": "Shopify",
    "square": "Square",
    "woocommerce": "WooCommerce",
}
"""The names of shops, as `--shop` and people write them."""


@dataclass(frozen=True)
class Export:
    """One of the files that a shop exports.

    A file is recognised by the columns of `header`, which are a part of all that it has. `columns` has the fields of
    each, separated by commas; one that is not in `header` may be missing. The columns in `ignored` are not fields,
    though they have such a name; nor are all others. `repeated` is what to do about further rows of an order, if it is
    another thing than to make each row an order: with `by_items`, to map another column.
    """

    header: Sequence[str]
    columns: Mapping[str, str]
    statuses: Mapping[str, Sequence[str]]
    date_format: str | None = None
    split_lines: bool = False
    ignored: Sequence[str] = ()
    repeated: str = ""
    by_items: str = ""

    @property
    def remedy(self) -> Remedy | None:
        """What to do about further rows of an order, if it is particular to the export."""
        choices = (Choice("map", self.by_items),) if self.by_items else ()
        return Remedy(self.repeated, choices) if self.repeated else None

    def added_to(self, given: ReadOptions, names: Sequence[str]) -> ReadOptions:
        """The options that `--shop` adds to those given for a file with these columns.

        An option given wins over that of the shop for the same column, field, status or purpose.
        """
        present, taken = set(map(plain_name, names)), {field for _, field in given.columns}
        columns = {plain_name(name) for name in (*dict(given.columns), *given.ignored)}
        free, statuses = present - columns, {text.casefold() for text, _ in given.statuses}
        pairs = [(name, field) for name, fields in self.columns.items() for field in fields.split(",")]
        own = self.statuses.items() if "status" in self.columns.values() else ()
        meanings = [(text, status) for status, texts in own for text in texts]
        return ReadOptions(
            columns=tuple((name, field) for name, field in pairs if field not in taken and plain_name(name) in free),
            ignored=tuple(name for name in (*self.ignored, EVERY_COLUMN) if plain_name(name) not in columns),
            statuses=tuple((text, status) for text, status in meanings if text.casefold() not in statuses),
            date_format=None if given.date_format else self.date_format,
            split_lines=self.split_lines if given.split_lines is None else None,
        )


@cache
def exports_of(shop: str) -> list[Export]:
    """The exports of a shop, the one with most about an order first."""
    import tomllib  # loading it takes long, and most commands do not need it

    table = tomllib.loads(Path(__file__).with_name("shops.toml").read_text("utf-8"))[shop]
    return [Export(statuses=table.get("statuses", {}), **each) for each in table["exports"]]


def recognized(names: Sequence[str]) -> str | None:
    """The shop of whose exports the header of a file, given by its columns, is one."""
    return next((shop for shop in SHOPS if export_of(shop, names)), None)


def export_of(shop: str, names: Sequence[str]) -> Export | None:
    """The export of the shop that has these columns, if one has them."""
    present = set(map(plain_name, names))
    return next((each for each in exports_of(shop) if present.issuperset(map(plain_name, each.header))), None)


def combined(given: ReadOptions, added: ReadOptions) -> ReadOptions:
    """The given options with those that are added to them."""
    return replace(
        given,
        columns=given.columns + added.columns,
        ignored=given.ignored + added.ignored,
        statuses=given.statuses + added.statuses,
        date_format=given.date_format or added.date_format,
        split_lines=added.split_lines if given.split_lines is None else given.split_lines,
    )
