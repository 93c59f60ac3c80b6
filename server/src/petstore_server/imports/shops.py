"""Known exports of shops: by which columns each is recognised, and the options that `--shop` stands for.

The number that a shop gives an order becomes its reference, never its identifier: numbers of several shops would
collide with each other and with those that are assigned here. A status without a counterpart here (refunded, failed) is
not mapped, so that its rows are rejected and the operator decides.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from petstore_server.domain.errors import Choice, Remedy
from petstore_server.imports.options import EVERY_COLUMN, ReadOptions, plain_name


@dataclass(frozen=True)
class Export:
    """One of the files that a shop exports.

    `content` says what a row is. A file is recognised by the columns of `header`, which are a part of all that it has;
    `source` is where its columns are documented. A column of `options` that is not one of `header` may be missing.
    `repeated` is what to do about further rows of an order, if it is another thing than to make each row an order.
    """

    content: str
    header: tuple[str, ...]
    source: str
    options: ReadOptions
    repeated: Remedy | None = None


@dataclass(frozen=True)
class Shop:
    """A shop's name for people, and what it exports, the export with most about an order first."""

    title: str
    exports: tuple[Export, ...]


def _options(
    columns: dict[str, str | tuple[str, ...]],
    statuses: dict[str, str] | None = None,
    *,
    date_format: str | None = None,
    split_lines: bool = False,
    ignored: Sequence[str] = (),
) -> ReadOptions:
    pairs = [(name, [fields] if isinstance(fields, str) else fields) for name, fields in columns.items()]
    return ReadOptions(
        columns=tuple((name, field) for name, fields in pairs for field in fields),
        statuses=tuple((statuses or {}).items()),
        date_format=date_format,
        split_lines=split_lines,
        ignored=(*ignored, EVERY_COLUMN),
    )


_WOOCOMMERCE_STATUSES = {
    "pending payment": "pending",
    "processing": "pending",
    "on-hold": "pending",
    "on hold": "pending",
    "completed": "shipped",
    "wc-pending": "pending",
    "wc-processing": "pending",
    "wc-on-hold": "pending",
    "wc-completed": "shipped",
    "wc-cancelled": "cancelled",
}
_SUMS_UP = "that row sums up the items of the order"
_SHIPPED_ON: tuple[str, ...] = ("shipDate", "shipped")

SHOPS = {
    "amazon": Shop(
        "Amazon",
        (
            Export(
                "a row for each item, with its status: the report of all orders",
                ("amazon-order-id", "merchant-order-id", "order-status", "item-status", "sku", "quantity"),
                "Amazon Seller Central, help page 200547170: All Orders Report",
                _options(
                    {"amazon-order-id": "reference", "quantity": "quantity", "sku": "petId", "item-status": "status"},
                    {"unshipped": "pending"},
                    split_lines=True,
                ),
            ),
            # An order-id may have several items, of which a report has those that are not shipped yet.
            Export(
                "a row for each item: the reports of new and of unshipped orders",
                ("order-id", "order-item-id", "purchase-date", "sku", "quantity-purchased"),
                "Amazon Seller Central, help pages 200350680 and 201648780: Unshipped Orders Report, Order Report",
                _options({"order-item-id": "reference", "quantity-purchased": "quantity", "sku": "petId"}),
            ),
        ),
    ),
    # The first row of an order with several items sums them up, and has no item: github.com/Jens252/brickmerge_import,
    # ebay_sales.py. So rows are not made orders of their own.
    "ebay": Shop(
        "eBay",
        (
            Export(
                "a row for each order: the orders report of the Seller Hub",
                ("Sales Record Number", "Order Number", "Buyer Username", "Item Number", "Quantity"),
                "github.com/randomecho/shifted-sales-report, README.md",
                _options(
                    {
                        "Order Number": "reference",
                        "Quantity": "quantity",
                        "Item Number": "petId",
                        "Shipped On Date": _SHIPPED_ON,
                    },
                    date_format="%b-%d-%y",
                ),
                Remedy(f"{_SUMS_UP}; {{}} to make each item an order", (Choice("map", "Transaction ID=reference"),)),
            ),
            Export(
                "a row for each order: the orders report in German",
                ("Verkaufsprotokollnummer", "Bestellnummer", "Artikelnummer", "Anzahl"),
                "github.com/Jens252/brickmerge_import, ebay_sales.py",
                _options(
                    {
                        "Bestellnummer": "reference",
                        "Anzahl": "quantity",
                        "Artikelnummer": "petId",
                        "Versanddatum": _SHIPPED_ON,
                        "Verschickt am - Datum": _SHIPPED_ON,
                    },
                    date_format="%d-%b-%y",
                ),
                Remedy(_SUMS_UP),
            ),
        ),
    ),
    "etsy": Shop(
        "Etsy",
        (
            Export(
                "a row for each item: EtsySoldOrderItems",
                ("Sale Date", "Item Name", "Quantity", "Transaction ID", "Listing ID", "Date Shipped", "Order ID"),
                "github.com/dillhicks/etsy-csv-explore, src/types.ts",
                _options(
                    {
                        "Order ID": "reference",
                        "Quantity": "quantity",
                        "Listing ID": "petId",
                        "Date Shipped": _SHIPPED_ON,
                    },
                    date_format="%m/%d/%y",
                    split_lines=True,
                ),
            ),
            Export(
                "a row for each order, without its items: EtsySoldOrders",
                ("Sale Date", "Order ID", "Buyer User ID", "Number of Items", "Order Value"),
                "github.com/YitongM/Etsy2ParcelMonkeyCSV, Etsy2ParcelMonkeyCSV/Models/EtsyImportModel.cs",
                _options(
                    {"Order ID": "reference", "Number of Items": "quantity", "Date Shipped": _SHIPPED_ON},
                    date_format="%m/%d/%y",
                    ignored=("Status",),
                ),
            ),
        ),
    ),
    "magento": Shop(
        "Magento",
        (
            Export(
                "a row for each order, without its items: the grid of orders",
                ("ID", "Purchase Point", "Purchase Date", "Bill-to Name", "Grand Total (Base)", "Status"),
                "github.com/magento/magento2, app/code/Magento/Sales/view/adminhtml/ui_component/sales_order_grid.xml",
                _options(
                    {"ID": "reference", "Status": "status"},
                    {
                        "pending payment": "pending",
                        "pending_payment": "pending",
                        "payment review": "pending",
                        "payment_review": "pending",
                        "processing": "pending",
                        "on hold": "pending",
                        "holded": "pending",
                        "suspected fraud": "pending",
                        "fraud": "pending",
                        "complete": "shipped",
                    },
                ),
            ),
        ),
    ),
    # The status of fulfillment is left out: it would win over the time of a cancellation.
    "shopify": Shop(
        "Shopify",
        (
            Export(
                "a row for each item",
                ("Name", "Created at", "Lineitem quantity", "Lineitem name", "Financial Status", "Cancelled at"),
                "github.com/jadwro/allegro_csv_parser, src/Shopify/types/ShopifyOrderTypeCSV.ts",
                _options(
                    {
                        "Name": "reference",
                        "Lineitem quantity": "quantity",
                        "Lineitem sku": "petId",
                        "Fulfilled at": _SHIPPED_ON,
                        "Cancelled at": "cancelled",
                    },
                    split_lines=True,
                    ignored=("Id",),
                ),
            ),
        ),
    ),
    "square": Shop(
        "Square",
        (
            # A refund is a row with the number of the sale; its type is not mapped, so that it is rejected.
            Export(
                "a row for each item: the item details of sales",
                ("Date", "Time", "Time Zone", "Item", "Qty", "SKU", "Transaction ID", "Event Type"),
                "github.com/KonajuGames/RaffleDraw, RaffleDraw/Item.cs",
                _options(
                    {"Transaction ID": "reference", "Qty": "quantity", "SKU": "petId", "Event Type": "status"},
                    {"payment": "pending"},
                    split_lines=True,
                ),
            ),
        ),
    ),
    "woocommerce": Shop(
        "WooCommerce",
        (
            Export(
                "a row for each item: Customer/Order/Coupon Export",
                ("order_id", "order_number", "status", "order_total", "item_product_id", "item_quantity"),
                "github.com/lafranceinsoumise/woocommerce-customer-order-csv-export, "
                "includes/class-wc-customer-order-csv-export-formats.php",
                _options(
                    {
                        "order_number": "reference",
                        "status": "status",
                        "item_product_id": "petId",
                        "item_quantity": "quantity",
                    },
                    _WOOCOMMERCE_STATUSES,
                    split_lines=True,
                ),
            ),
            Export(
                "a row for each item: Advanced Order Export",
                ("Order Number", "Order Status", "Order Date", "Item #", "Item Name"),
                "WordPress plugin woo-order-export-lite, class-wc-order-export-data-extractor-ui.php",
                _options(
                    {
                        "Order Number": "reference",
                        "Order Status": "status",
                        "SKU": "petId",
                        "Quantity (- Refund)": "quantity",
                    },
                    _WOOCOMMERCE_STATUSES,
                    split_lines=True,
                ),
            ),
            Export(
                "a row for each order, its items in one text: Customer/Order/Coupon Export, Import Export Suite",
                ("order_id", "order_number", "status", "shipping_total", "order_total", "order_currency"),
                "woocommerce.com/document/import-and-export-of-woocommerce-orders",
                _options({"order_number": "reference", "status": "status"}, _WOOCOMMERCE_STATUSES),
            ),
            Export(
                "a row for each order, its items in one text: Analytics, Orders",
                ("Date", "Order #", "Status", "Customer", "Product(s)", "Items sold", "Net Sales"),
                "github.com/woocommerce/woocommerce, plugins/woocommerce/src/Admin/API/Reports/Orders/Controller.php",
                _options({"Order #": "reference", "Status": "status", "Items sold": "quantity"}, _WOOCOMMERCE_STATUSES),
            ),
        ),
    ),
}


def recognized(names: Iterable[str]) -> str | None:
    """The shop of whose exports the header of a file, given by its columns, is one."""
    present = {plain_name(name) for name in names}
    return next((shop for shop in SHOPS if _export_of(shop, present)), None)


def stands_for(shop: str, names: Iterable[str], given: ReadOptions) -> ReadOptions | None:
    """What `--shop` adds to the given options for a file with these columns; None if it is not an export of the shop.

    An option given wins over that of the shop for the same column, field, status or purpose.
    """
    present = {plain_name(name) for name in names}
    export = _export_of(shop, present)
    if export is None:
        return None
    options = export.options
    columns = {plain_name(name) for name in (*dict(given.columns), *given.ignored)}
    fields = {field for _, field in given.columns}
    statuses = {text.casefold() for text, _ in given.statuses}
    free = [(name, field) for name, field in options.columns if field not in fields]
    return replace(
        options,
        columns=tuple((name, field) for name, field in free if plain_name(name) in present - columns),
        ignored=tuple(name for name in options.ignored if plain_name(name) not in columns),
        statuses=tuple((text, status) for text, status in options.statuses if text.casefold() not in statuses),
        date_format=None if given.date_format else options.date_format,
        split_lines=options.split_lines if given.split_lines is None else None,
    )


def repeated(shop: str, names: Iterable[str]) -> Remedy | None:
    """What to do about further rows of an order in an export of the shop; None if nothing is particular to it."""
    export = _export_of(shop, {plain_name(name) for name in names})
    return export.repeated if export else None


def combined(given: ReadOptions, added: ReadOptions) -> ReadOptions:
    """The given options with what `stands_for` adds to them."""
    return replace(
        given,
        columns=given.columns + added.columns,
        ignored=given.ignored + added.ignored,
        statuses=given.statuses + added.statuses,
        date_format=given.date_format or added.date_format,
        split_lines=added.split_lines if given.split_lines is None else given.split_lines,
    )


def _export_of(shop: str, present: set[str]) -> Export | None:
    return next((each for each in SHOPS[shop].exports if present.issuperset(map(plain_name, each.header))), None)
