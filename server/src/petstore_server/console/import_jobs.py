"""Imports of uploaded files: each is checked by a dry run, then imported once an operator says so.

Their state is in the memory of the one process of a host that has the console, their files in a private directory.
What an import changes is in the store, and in its audit log.
"""

import asyncio
import fcntl
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from petstore_server.domain.audit import Actor
from petstore_server.domain.errors import Conflict, NotFound
from petstore_server.operations.import_tasks import ImportReport, ImportTask, TaskOptions

KEPT_SECONDS = 3600.0
"""How long an upload that no operator works with is kept."""

MOST_JOBS = 8
"""Uploads at a time: they take disk space."""

_PREFIX = "petstore-uploads-"
_SHOWN_REJECTS = 50

RunImport = Callable[[ImportTask, Callable[[ImportReport], None]], Awaitable[None]]


class JobState(StrEnum):
    """What becomes of an upload; those that are `BUSY` have a process at work."""

    CHECKING = "checking"
    CHECKED = "checked"
    IMPORTING = "importing"
    IMPORTED = "imported"
    STOPPED = "stopped"
    FAILED = "failed"


BUSY = (JobState.CHECKING, JobState.IMPORTING)


class UploadNotFound(NotFound):
    """No such upload on this host."""

    code = "upload_not_found"

    def __init__(self) -> None:
        super().__init__(
            f"There is no such upload here. Uploads are deleted {KEPT_SECONDS / 60:.0f} minutes after they were last "
            "used, and when the server stops. What was imported is in the audit log."
        )


class RejectedRow(NamedTuple):
    """A row that was not imported, and why; `column` is empty where the whole row is at fault."""

    line: int
    column: str
    reason: str


@dataclass
class ImportJob:
    """An uploaded file on its way into the store. Times are Unix seconds."""

    id: str
    folder: Path
    operator: str
    uploaded_at: float
    name: str = ""
    size: int = 0
    options: TaskOptions = field(default_factory=TaskOptions)
    state: JobState = JobState.CHECKING
    report: ImportReport = field(default_factory=ImportReport)
    rejected: list[RejectedRow] = field(default_factory=list)
    started_at: float = 0.0
    started_import: bool = False

    @property
    def file(self) -> Path:
        """The uploaded file."""
        return self.folder / "upload"

    @property
    def rejects(self) -> Path:
        """The rejected rows of the last run, as JSON Lines."""
        return self.folder / "rejects.jsonl"

    @property
    def is_busy(self) -> bool:
        """Whether it is being checked or imported."""
        return self.state in BUSY


class ImportJobs:
    """The uploads of this process. `run` runs one task; `clock` gives Unix seconds."""

    def __init__(self, database_url: str, run: RunImport, clock: Callable[[], float]) -> None:
        self._database_url = database_url
        self._run = run
        self._clock = clock
        self._jobs: dict[str, ImportJob] = {}
        self._reserved = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        self._one_at_a_time = asyncio.Lock()
        self._root: Path | None = None
        self._lock = -1

    def all(self) -> list[ImportJob]:
        """The uploads, newest first."""
        return list(reversed(self._jobs.values()))

    def find(self, job_id: str) -> ImportJob:
        """An upload. Raises UploadNotFound."""
        try:
            return self._jobs[job_id]
        except KeyError:
            raise UploadNotFound from None

    def reserve(self, operator: str) -> ImportJob:
        """Make the place for an upload, to be given to `check` or to `release`. Raises Conflict, OSError."""
        if len(self._jobs) + self._reserved >= MOST_JOBS:
            raise Conflict(f"There are {MOST_JOBS} uploads on this host already; discard one first.")
        job_id = secrets.token_hex(16)
        job = ImportJob(job_id, self._directory() / job_id, operator, self._clock())
        job.folder.mkdir(0o700)
        self._reserved += 1
        return job

    def release(self, job: ImportJob) -> None:
        """Delete what was received, because it will not be used."""
        self._reserved -= 1
        shutil.rmtree(job.folder, ignore_errors=True)

    def check(self, job: ImportJob, actor: Actor) -> None:
        """Find out behind this call what importing the file would do."""
        self._reserved -= 1
        self._jobs[job.id] = job
        self._start(job, actor, JobState.CHECKING)

    def import_(self, job: ImportJob, actor: Actor) -> None:
        """Import the file behind this call. Raises Conflict unless it was checked and not imported yet."""
        if job.state is not JobState.CHECKED:
            raise Conflict(f"{job.name} is {job.state} by now; it is imported once, after it was checked.")
        job.started_import = True
        self._start(job, actor, JobState.IMPORTING)

    async def stop(self, job: ImportJob) -> None:
        """End the check or the import of a file, after the batch under way."""
        task = self._tasks.get(job.id)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def discard(self, job: ImportJob) -> None:
        """Delete the upload. An import under way is stopped, and what it imported stays."""
        await self.stop(job)
        self._forget(job)

    async def close(self) -> None:
        """Stop all imports, and delete all files."""
        for job in self.all():
            await self.discard(job)
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            os.close(self._lock)
            self._root = None

    def _start(self, job: ImportJob, actor: Actor, state: JobState) -> None:
        job.state, job.report, job.rejected, job.started_at = state, ImportReport(), [], self._clock()
        if job.id in self._expiries:
            self._expiries.pop(job.id).cancel()
        dry_run = state is JobState.CHECKING
        task = ImportTask(
            *(self._database_url, str(job.file), job.name, str(job.rejects), job.options),
            *(actor.name, actor.at, dry_run),
        )
        self._tasks[job.id] = asyncio.create_task(self._work(job, task))
        self._tasks[job.id].add_done_callback(lambda ended: self._finish(job, ended))

    async def _work(self, job: ImportJob, task: ImportTask) -> None:
        def note(report: ImportReport) -> None:
            job.report = report

        async with self._one_at_a_time:
            await self._run(task, note)

    def _finish(self, job: ImportJob, ended: "asyncio.Task[None]") -> None:
        """Note how the work ended. Not a part of it, because a task that is cancelled early never runs."""
        del self._tasks[job.id]
        done = JobState.CHECKED if job.state is JobState.CHECKING else JobState.IMPORTED
        if ended.cancelled():
            job.state = JobState.STOPPED
        elif error := ended.exception():
            job.state, job.report.error = JobState.FAILED, f"The import cannot be started: {error}."
        else:
            job.state = done if job.report.error is None else JobState.FAILED
        job.rejected = _first_rejects(job.rejects)
        if job.state is not JobState.CHECKED:
            job.file.unlink(missing_ok=True)
        self._expiries[job.id] = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget, job)

    def _forget(self, job: ImportJob) -> None:
        if job.id in self._expiries:
            self._expiries.pop(job.id).cancel()
        if self._jobs.pop(job.id, None) is not None:
            shutil.rmtree(job.folder, ignore_errors=True)

    def _directory(self) -> Path:
        """The private directory, locked for as long as this process runs; those of processes that died are deleted."""
        if self._root is None or not self._root.is_dir():  # programs that clean /tmp may have deleted it
            for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
                _delete_unlocked(left)
            if self._root is not None:
                os.close(self._lock)
            self._root = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._lock = os.open(self._root, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self._root


def _delete_unlocked(directory: Path) -> None:
    """Delete the directory unless a process has it locked, or it belongs to another user."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_uid == os.getuid():
                shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(handle)


def _first_rejects(file: Path) -> list[RejectedRow]:
    """The first rejected rows; none if the run did not begin."""
    try:
        with file.open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in islice(lines, _SHOWN_REJECTS)]
    except (OSError, ValueError):
        return []
    return [RejectedRow(row["line"], row["column"] or "", row["reason"]) for row in rows]
