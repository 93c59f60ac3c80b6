"""The pages for partners: the Markdown of this package as HTML, with the addresses and dates of this deployment."""

import re
from html import escape
from importlib.resources import files
from itertools import pairwise

from petstore_server.domain.timestamps import format_timestamp
from petstore_server.settings import Settings

PAGES = ("guide", "versions", "changelog")
"""The names of the Markdown files here and, under `/docs`, of the pages."""

_ADDRESSES = "<!-- addresses -->"
_EXAMPLE_ADDRESS = "http://127.0.0.1:8080/v"  # of both versions, without the number


def guide_page(settings: Settings, name: str) -> bytes:
    """A page of the guide as HTML."""
    folder = files("petstore_server.api")
    text = (folder / "guide" / f"{name}.md").read_text("utf-8").replace(_ADDRESSES, _addresses(settings))
    if settings.base_url:
        text = text.replace(_EXAMPLE_ADDRESS, settings.base_url.removesuffix("1"))
    frame = (folder / "page" / "guide.html").read_text("utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    return frame.replace("{title}", escape(title)).replace("{text}", _html(text)).encode()


def _addresses(settings: Settings) -> str:
    """A table of what a partner of this deployment needs to know."""
    contact = settings.contact
    rows = {
        "Base address": settings.base_url and f"`{settings.base_url}`",
        "Base address of staging": settings.staging_base_url and f"`{settings.staging_base_url}`",
        "Contact": contact and f"<{contact}>",
        "`GET /pets/{petId}` is withdrawn": f"`{format_timestamp(settings.pets_sunset)}`",
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items() if value]
    return "\n".join(["| This service | |", "|---|---|", *lines])


def _html(text: str) -> str:
    """Markdown as HTML: headings have anchors, and links between the pages lead to the pages."""
    from markdown_it import MarkdownIt  # when it is needed: a server without requests for the guide starts without it

    parser = MarkdownIt("commonmark").enable("table")
    tokens = parser.parse(re.sub(r"<!--.*?-->\n?", "", text))
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", _anchor(inline.content))
        for link in inline.children or ():
            if link.type == "link_open":
                link.attrSet("href", re.sub(r"^(\w+)\.md\b", r"\1", str(link.attrs["href"])))
    return str(parser.renderer.render(tokens, parser.options, {}))


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
