"""Choices of an operator for an import: the shop, and the meaning of its columns, statuses and dates.

A choice is an option of `petstore orders import`, which checks it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from petstore_server.console.forms import Form
from petstore_server.domain.orders import ORDER_FIELDS, Status
from petstore_server.domain.remedies import Choice
from petstore_server.domain.texts import escape_unsafe
from petstore_server.imports.columns import Column
from petstore_server.imports.conversions import Statuses
from petstore_server.imports.json_rows import JQ_ROUNDS
from petstore_server.imports.options import EVERY_COLUMN, EVERY_STATUS, ReadOptions, plain_name
from petstore_server.imports.shops import SHOPS, export_of, recognized

MAX_COLUMNS = 200
"""Columns of a file for which the form has a choice; it leaves out any further ones."""

TEXTS = {
    "format": ("Format", "format"),
    "encoding": ("Encoding", "encoding"),
    "zone": ("Time zone", "timezone"),
    "date_format": ("Date format", "date_format"),
    "decimal": ("Decimal sign", "decimal"),
    "account": ("Account", "account"),
}
TICKS = {
    "split_lines": ("Make each row an order: 1001, 1001/2, 1001/3", "split_lines"),
    "ignore": ("Leave out columns that are not listed above", "ignore_column"),
    "update_only": ("Change orders that exist, create none", "update_only"),
    "correct_shipped": ("Also correct shipped orders", "correct_shipped"),
    "replace_placed": ("Also replace pending orders that were placed over the API", "replace_placed"),
    "assigned": ("Also create orders under identifiers that the service assigns", "assigned"),
    "keep_markers": ("Keep references such as NULL and N/A", "keep_markers"),
}
FIELDS = TEXTS | TICKS
"""The fields of the form: their labels, and the choices of an import for which they stand."""

TARGETS = {
    "": "Leave out",
    "id": "Order number (id)",
    "reference": "Reference of the shop (reference)",
    "petId": "Animal (petId)",
    "quantity": "Quantity (quantity)",
    "status": "Status (status)",
    "cancelled": "Cancelled, if filled",
    "shipped": "Shipped, if filled",
    "shipDate,shipped": "Ship date, and shipped",
    "shipDate": "Ship date (shipDate)",
    "complete": "Complete (complete)",
    "account": "Account (account)",
}
"""What a column can be: the fields, separated by commas, with their labels."""

STATUSES = {"": "Reject", **{str(status): str(status).capitalize() for status in Status}}

STATUS_NAMES = {"": "“” (empty)", EVERY_STATUS: "“*” (every other)"}
"""The labels of texts that stand for other ones."""

PHRASES = {
    "unpacked": "unpack it",
    "without_lines": "delete the lines above it",
    "array": f"upload the array itself, as jq -c '{{}}' prints it ({JQ_ROUNDS}), in a file whose name ends with .jsonl",
    "one_per_line": f"write each record on one line, as jq -c . does ({JQ_ROUNDS})",
    "header": "write {} as its first line",
    "tab_header": r"write {} as its first line, with a tab for each \t",
    "create_account": "create the account",
    "number": "choose below which column has the number of the order: the id, or the reference of the shop",
    "shop": "choose it under “Shop”",
    "map": "choose “{2}” for the column {1}",
    "map_status": "choose a status for “{1}”",
    **{choice: f"enter {{}} under “{label}”" for label, choice in TEXTS.values()},
    "decimal": "choose the sign {} under “Decimal sign”",
    **{choice: f"tick “{label}”" for label, choice in TICKS.values()},
    "ignore_column": f"choose “Leave out” for the column {{}} (if it is not there, tick “{TICKS['ignore'][0]}”)",
}
"""How the form makes each choice: {} is its value, {1} and {2} are the parts before and after the equals sign."""


@dataclass(frozen=True)
class Choices:
    """The choices for one file. `columns` has the fields of each column, and `statuses` the status of each text."""

    shop: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    statuses: Mapping[str, str] = field(default_factory=dict)

    def for_shop(self, shop: str, columns: Sequence[Column]) -> "Choices":
        """The choices as the shop's export needs them; without a shop, by the names of the columns."""
        names = [column.name for column in columns]
        export = export_of(shop, names) if shop else None
        if export is None:
            own = {plain_name(name): name for name in ORDER_FIELDS}
            found = {name: own[plain_name(name)] for name in names if plain_name(name) in own}
            return replace(self, shop="", columns=found, statuses={})
        options, targets = export.added_to(ReadOptions(), names), dict[str, list[str]]()
        for name, target in options.columns:
            targets.setdefault(plain_name(name), []).append(target)
        fields = {**self.fields, "split_lines": "yes" if options.split_lines else ""}
        if options.date_format:
            fields["date_format"] = options.date_format
        return Choices(
            shop,
            fields,
            {name: ",".join(targets[plain_name(name)]) for name in names if plain_name(name) in targets},
            {text.casefold(): status for text, status in options.statuses},
        )

    @classmethod
    def of(cls, columns: Sequence[Column], fields: Mapping[str, str]) -> "Choices":
        """The first choices for a file: those for the shop that is recognised by its columns, if there is one."""
        return cls(fields=fields).for_shop(recognized([column.name for column in columns]) or "", columns)

    @classmethod
    def submitted(cls, form: Form, columns: Sequence[Column], found: Iterable[str] = ()) -> "Choices":
        """The choices of the form. `found` has the statuses of the file, whose fields a page names as it shows them."""
        named = {f"status-{escape_unsafe(text)}": text for text in found}
        chosen = dict[str, str]()  # by name: the check refuses two columns of one name for a field
        for at, column in enumerate(columns[:MAX_COLUMNS]):
            chosen[column.name] = chosen.get(column.name) or form[f"column-{at}"]
        statuses = {
            named.get(name, name.removeprefix("status-")).casefold(): value.strip()
            for name, value in form.fields
            if name.startswith("status-")
        }
        shop = form["shop"] if form["shop"] in SHOPS else ""
        return cls(
            shop,
            {name: form[name] for name in FIELDS},
            {name: target for name, target in chosen.items() if target in TARGETS and target},
            statuses,
        )

    def status_of(self, text: str) -> str:
        """The status for a text of the file; empty if it has none."""
        try:
            return Statuses(pair for pair in self.statuses.items() if pair[1])(text)
        except ValueError:
            return ""

    @staticmethod
    def statuses_of(text: str) -> dict[str, str]:
        """What a text can be, with labels: one that the import itself reads as a status cannot be rejected."""
        return {value: label for value, label in STATUSES.items() if value or not Choices().status_of(text)}

    def arguments(self, columns: Sequence[Column]) -> list[str]:
        """The options of the command."""
        names = [column.name for column in columns[:MAX_COLUMNS]]
        given = [(name, target) for name in names for target in self.columns.get(name, "").split(",") if target]
        # A field by its own name is read without this, and fastest; in JSON, no other spelling of it is.
        arguments = [f"--map={name}={target}" for name, target in given if name != target or name not in ORDER_FIELDS]
        chosen = set(map(plain_name, self.columns))  # the check refuses two columns of such a name for a field
        arguments += [f"--ignore-column={name}" for name in names if plain_name(name) not in chosen]
        arguments += [f"--map-status={text}={status}" for text, status in self.statuses.items() if status]
        if self.fields.get("ignore") or len(columns) > MAX_COLUMNS:
            arguments.append(f"--ignore-column={EVERY_COLUMN}")
        arguments += [option(name) for name in TICKS if name != "ignore" and self.fields.get(name)]
        arguments += [f"{option(name)}={self.fields[name]}" for name in TEXTS if self.fields.get(name)]
        return [*arguments, f"--phrases={json.dumps(PHRASES, ensure_ascii=False)}"]


def phrase(choice: Choice) -> str:
    """How the form makes the choice."""
    return choice.filled(PHRASES[choice.name])


def option(name: str) -> str:
    """The option of the command for a field of the form."""
    return f"--{FIELDS[name][1].replace('_', '-')}"


def field_of(given: str) -> str | None:
    """The field of the form for an option of the command; None if it is not one."""
    return next((name for name in FIELDS if option(name) == given), None)
