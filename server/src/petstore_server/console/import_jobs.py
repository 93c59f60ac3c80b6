"""Imports of uploaded files: each is checked by a dry run, then imported once an operator says so.

Both are `petstore orders import` in another process, so that requests do not wait for them. The state of an upload is
in the memory of the one process of a host that has the console; its files have no names, so they vanish with that
process. What became of an import is in its record in the store.
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal

import msgspec

from petstore_server.console.import_choices import Choices
from petstore_server.console.import_process import ImportProgress, failure_of, run_import
from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import Conflict, DomainError, NotFound
from petstore_server.domain.imports import MAX_KEPT_REJECTS
from petstore_server.imports.columns import Column
from petstore_server.imports.files import format_of

KEPT_SECONDS = 3600.0  # for an upload that no operator works with
MAX_JOBS = 8  # at a time: uploads take disk space
SHOWN_REJECTS = 50  # rows of a check or an import that its page shows

_PART_BYTES = 1 << 22  # of rejected rows that are read at once
State = Literal["checking", "checked", "importing", "imported", "stopped", "failed"]
"""The state of an upload."""


@dataclass
class ImportJob:
    """An uploaded file on its way into the store, with its columns and how to read it; times are Unix seconds.

    `statuses` are the texts that the last check to reach the end found as statuses.
    """

    id: str
    file: IO[bytes]
    name: str
    size: int
    columns: list[Column]
    choices: Choices
    operator: str
    uploaded_at: float
    state: State = field(init=False)
    report: ImportProgress = field(default_factory=ImportProgress)
    statuses: list[str] = field(default_factory=list)
    error: DomainError | None = None
    started_at: float = field(init=False)
    checks: int = 0  # that were begun
    rejects: IO[bytes] = field(default_factory=TemporaryFile)
    begun: asyncio.Event = field(default_factory=asyncio.Event)  # once the work has reported something, or has ended
    work: "asyncio.Task[None] | None" = None
    expiry: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        return self.work is not None

    @property
    def can_be_checked(self) -> bool:
        """Whether the file can be checked with other choices: until it is imported."""
        return not self.is_busy and not self.file.closed

    @property
    def shown_state(self) -> str:
        """The state in the words of the page: a check that failed needs other choices."""
        return "to choose" if self.state == "failed" and self.can_be_checked else self.state

    @property
    def kept(self) -> int:
        """How many of the rows that the check rejected can be read."""
        return min(self.report.rejected, MAX_KEPT_REJECTS)

    def rejected(self) -> list[Any]:
        lines = next(self.read_rejects(), b"").rpartition(b"\n")[0].splitlines()
        return list(map(msgspec.json.decode, lines[:SHOWN_REJECTS]))

    def read_rejects(self) -> Iterator[bytes]:
        """The rejected rows of the check, as JSON Lines, in parts."""
        with os.fdopen(os.dup(self.rejects.fileno()), "rb") as rejects:  # an import or discarding closes it
            at = 0
            while part := os.pread(rejects.fileno(), _PART_BYTES, at):
                yield part
                at += len(part)

    def options(self) -> list[str]:
        """The options of the command; the name of the file says its format, unless the choices do."""
        options = self.choices.arguments(self.columns)
        if not self.choices.fields.get("format") and (file_format := format_of(self.name)):
            options.append(f"--format={file_format}")
        if self.state == "checking":
            options += ["--dry-run", "--bounded", f"--rejects=/dev/fd/{self.rejects.fileno()}", "--force"]
        return options


class ImportJobs:
    """The uploads of this process. `clock` gives Unix seconds."""

    def __init__(self, database_url: str, clock: Callable[[], float]) -> None:
        self._database_url = database_url
        self._clock = clock
        self._jobs: dict[str, ImportJob] = {}
        self._one_at_a_time = asyncio.Lock()

    def all(self) -> list[ImportJob]:
        """The uploads, newest first."""
        return list(reversed(self._jobs.values()))

    def find(self, job_id: str) -> ImportJob:
        """An upload. Raises NotFound."""
        if job_id not in self._jobs:
            raise NotFound(
                f"There is no such upload here. Each is deleted {KEPT_SECONDS / 60:.0f} minutes after it was last "
                "used, and when the server stops. The list of imports has what was imported."
            )
        return self._jobs[job_id]

    def check(
        self, file: IO[bytes], name: str, size: int, columns: list[Column], choices: Choices, by: Actor
    ) -> ImportJob:
        """Find out in the background what importing the file would do. Raises Conflict, OSError."""
        if len(self._jobs) >= MAX_JOBS:
            imported = next((job for job in self._jobs.values() if job.state == "imported"), None)  # it has no file
            if imported is None:
                raise Conflict(f"There are {MAX_JOBS} uploads on this host already; delete one first.")
            self._forget(imported)
        job = ImportJob(secrets.token_hex(16), file, name, size, columns, choices, _operator(by), self._clock())
        self._jobs[job.id] = job
        self._start(job, by, "checking")
        return job

    def check_again(self, job: ImportJob, columns: list[Column], choices: Choices, by: Actor) -> None:
        """Find out what importing the file would do with other choices for its columns. Raises Conflict."""
        if not job.can_be_checked:
            raise Conflict(f"{job.name} is {job.state} by now; what was chosen for it cannot be changed any more.")
        job.columns, job.choices = columns, choices
        job.rejects.truncate(0)
        job.begun.clear()
        self._start(job, by, "checking")

    def import_(self, job: ImportJob, by: Actor) -> None:
        """Import the file in the background. Raises Conflict unless it was checked and not imported yet."""
        if job.state != "checked":
            raise Conflict(f"{job.name} is {job.state} by now; it is imported once, after it was checked.")
        nothing = Path(os.devnull).open("rb")  # noqa: SIM115 - closed with the job
        job.rejects.close()  # those of the check; the store keeps those of the import
        job.rejects = nothing
        self._start(job, by, "importing")

    async def stop(self, job: ImportJob) -> None:
        """End the check or the import of a file, after the batch under way."""
        if job.work is not None:
            job.work.cancel()
            await asyncio.wait({job.work})

    async def discard(self, job: ImportJob) -> None:
        """Delete the upload. An import under way is stopped, and what it imported stays."""
        await self.stop(job)
        self._forget(job)

    async def close(self) -> None:
        for job in self.all():
            await self.discard(job)

    def _start(self, job: ImportJob, by: Actor, state: State) -> None:
        job.checks += state == "checking"
        job.state, job.report, job.error, job.started_at = state, ImportProgress(), None, self._clock()
        if job.expiry is not None:
            job.expiry.cancel()
        job.work = asyncio.create_task(self._work(job, by))
        job.work.add_done_callback(lambda ended: self._finish(job, ended))

    async def _work(self, job: ImportJob, by: Actor) -> None:
        def report(progress: ImportProgress) -> None:
            job.report = progress
            job.begun.set()

        async with self._one_at_a_time:
            options = [f"--name={job.name}", f"--as={_operator(by)}", *["--verified"] * by.verified, *job.options()]
            await run_import(options, self._database_url, job.file.fileno(), job.rejects.fileno(), report)

    def _finish(self, job: ImportJob, ended: "asyncio.Task[None]") -> None:
        """Note how the work ended. Not a part of it, because a task that is cancelled early never runs."""
        was_check = job.state == "checking"
        if ended.cancelled():
            job.state = "stopped"
        elif error := ended.exception():
            job.state, job.error = "failed", failure_of(error)
        else:
            job.state, job.statuses = ("checked", job.report.statuses) if was_check else ("imported", [])
        job.work = None
        job.begun.set()
        if not was_check:
            job.file.close()
        job.expiry = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget, job)

    def _forget(self, job: ImportJob) -> None:
        if job.expiry is not None:
            job.expiry.cancel()
        self._jobs.pop(job.id, None)
        job.file.close()
        job.rejects.close()


def _operator(actor: Actor) -> str:
    return actor.name.removeprefix("operator:")
