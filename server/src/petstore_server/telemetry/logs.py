"""Logs as JSON Lines. No line holds a key."""

import logging
import sys
from typing import Any, TextIO

import msgspec
import structlog


def configure_logging(level: str, stream: TextIO | None = None) -> None:
    """Write logs as JSON Lines to `stream` (stderr by default), from `level` (a name) up."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_encode),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=stream or sys.stderr),
        cache_logger_on_first_use=False,
    )
    # uvicorn's own words are not JSON, and tell nothing that the gate does not.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _encode(event: dict[str, Any], **_: object) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
