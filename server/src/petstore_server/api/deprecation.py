"""The headers of the deprecated operation GET /v1/pets/{petId} (spec S8.3; D16)."""

from datetime import datetime
from email.utils import format_datetime

from petstore_server.api.representation import header_lines


def deprecation_dates(deprecated_at: datetime, sunset: datetime) -> tuple[str, str]:
    """The values of the headers Deprecation (RFC 9745) and Sunset (RFC 8594)."""
    return f"@{int(deprecated_at.timestamp())}", format_datetime(sunset, usegmt=True)


def deprecation_notices(deprecated_at: datetime, sunset: datetime) -> bytes:
    """Header lines: Deprecation, Sunset, and links to what explains both."""
    deprecation, sunset_date = deprecation_dates(deprecated_at, sunset)
    return header_lines(
        ("deprecation", deprecation),
        ("sunset", sunset_date),
        ("link", '</docs>; rel="deprecation"; type="text/html", </docs>; rel="sunset"; type="text/html"'),
    )
