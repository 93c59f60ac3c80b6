"""Imports: upload a file, see what it would do, import it, follow its progress; and what became of each import."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from hashlib import file_digest
from pathlib import Path
from typing import IO, Any, BinaryIO, cast
from urllib.parse import quote

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Message

from petstore_server.console.forms import Form, parse_position, position_links
from petstore_server.console.import_choices import FIELDS, MAX_COLUMNS, STATUS_NAMES, TARGETS, Choices, phrase
from petstore_server.console.import_jobs import KEPT_SECONDS, MAX_JOBS, SHOWN_REJECTS, ImportJob
from petstore_server.console.import_process import WrongField
from petstore_server.console.visit import Visit
from petstore_server.domain.errors import Conflict, InvalidInput
from petstore_server.domain.imports import ImportPosition
from petstore_server.domain.remedies import with_remedy
from petstore_server.domain.texts import visible_part
from petstore_server.imports.columns import Column, read_columns
from petstore_server.imports.files import UnreadableFile
from petstore_server.imports.options import check_encoding
from petstore_server.imports.shops import SHOPS
from petstore_server.operations.admin_port import CONSOLE_PATH
from petstore_server.operations.audit import actor_name

MAX_FILE = 100 << 20  # bytes of a file that is accepted

_MAX_FIELD_BYTES = 64 * 1024
_MAX_FILE_NAME = 200
_PAGE_SIZE = 50
_FIRST_LOOK_SECONDS = 10.0
_SMALL_FILE_SECONDS = 1.0
_UPLOADED = ("format", "encoding")  # the choices without which the columns of a file may not be known
_REFRESH_SECONDS = 2
_MAX_ACCOUNTS = 300  # that the form offers
_LABELS = {field: label for field, (label, _) in FIELDS.items()}


class _TooLarge(UnreadableFile):
    message = f"The file is larger than {MAX_FILE >> 20} MB; `petstore orders import` reads larger ones."


async def list_imports(visit: Visit) -> Response:
    """The uploads of this host that are not imported, and all imports of the store, newest first."""
    after = parse_position(visit.parameter("after"), ImportPosition)
    form = visit.filters("actor")
    actor = actor_name(form["actor"]) if form["actor"] else None
    found = await visit.read(visit.store.imports.page(_PAGE_SIZE, after, actor))
    return visit.page(
        "imports.html",
        jobs=[job for job in visit.sources.imports.all() if job.state != "imported"],
        most_jobs=MAX_JOBS,
        kept_minutes=int(KEPT_SECONDS // 60),
        form=form,
        imports=found,
        **position_links(form.given, "after", after, found.value and found.value.next),
    )


async def ask(visit: Visit, form: Form | None = None, status: int = 200) -> Response:
    """The form for a file, as it was submitted if it is given."""
    form = form or Form()
    return visit.page("import_new.html", status, form=form, labels=_LABELS, megabytes=MAX_FILE >> 20)


async def upload(visit: Visit) -> Response:
    """Receive a file and go on to what it would do. Whatever is wrong, nothing of it is left."""
    form, status = Form(), 400
    try:
        return _show_job(await _checked(visit, form))
    except InvalidInput as error:
        form.errors["encoding"] = str(error)
    except UnreadableFile as error:
        form.errors["file"], status = error.message, 413 if isinstance(error, _TooLarge) else 400
    except Conflict as error:
        form.errors["file"], status = error.message, 503
    except OSError as error:
        form.errors["file"], status = f"The server cannot store the file: {error.strerror}.", 507
    return await ask(visit, form, status)


async def _checked(visit: Visit, form: Form) -> ImportJob:
    """The upload, once its check has begun to read the file; the form gets its fields.

    Raises UnreadableFile, InvalidInput for an encoding, Conflict, OSError, DuplicateSubmission, RefusedRequest.
    """
    jobs = visit.sources.imports
    async with AsyncExitStack() as unused:
        received = await _receive(visit.request)
        unused.push_async_callback(received.close)
        await visit.require_form_token(_text(received, "form_token"))
        form.values.update((field, _text(received, field)) for field in _UPLOADED)
        file, name, size = _file(received)
        await visit.submit_once(await asyncio.to_thread(_content, received, file))
        columns = await asyncio.to_thread(_columns, file, name, dict(form.values))
        job = jobs.check(file, name, size, columns, Choices.of(columns, dict(form.values)), visit.actor)
        unused.pop_all()
    await _first_look(job)
    if isinstance(job.error, UnreadableFile) and not columns:
        await jobs.discard(job)
        raise job.error
    return job


def _columns(file: IO[bytes], name: str, given: dict[str, str]) -> list[Column]:
    """Raises UnreadableFile, InvalidInput for an encoding."""
    try:
        encoding = check_encoding(given["encoding"]) if given["encoding"] else None
    except ValueError as error:
        raise InvalidInput(f"'{given['encoding']}' {error}") from None
    try:
        return read_columns(cast("BinaryIO", file), name, given["format"] or None, encoding)
    except UnreadableFile as error:
        raise UnreadableFile(with_remedy(error.message, error.remedy, phrase)) from error


async def _columns_again(job: ImportJob, given: dict[str, str]) -> list[Column]:
    """The columns of an upload, read anew where its encoding or format is another one by now and can be right."""
    if job.can_be_checked and given != {field: job.choices.fields.get(field, "") for field in _UPLOADED}:
        with suppress(UnreadableFile, InvalidInput, OSError), _another_reader(job.file) as file:
            return await asyncio.to_thread(_columns, file, job.name, given)
    return job.columns


def _another_reader(file: IO[bytes]) -> IO[bytes]:
    """The file from its beginning, independently of other readers. Raises OSError."""
    return Path(f"/proc/self/fd/{file.fileno()}").open("rb")


async def _first_look(job: ImportJob) -> None:
    """Wait until the check has begun to read the file, and for that of a small one to end."""
    with suppress(TimeoutError):  # another import is under way
        await asyncio.wait_for(job.begun.wait(), _FIRST_LOOK_SECONDS)
        if job.work is not None:
            await asyncio.wait({job.work}, timeout=_SMALL_FILE_SECONDS)


async def check(visit: Visit) -> Response:
    """Check an upload again with other choices, or with those for the shop that was chosen."""
    form = await visit.form()
    job = _job(visit)
    columns = await _columns_again(job, {field: form[field] for field in _UPLOADED})
    choices = Choices.submitted(form, columns, job.statuses)
    if form["fill"]:
        choices = choices.for_shop(choices.shop, columns)
    visit.sources.imports.check_again(_job(visit), columns, choices, visit.actor)  # it may be deleted by now
    await _first_look(job)
    return _show_job(job)


async def _receive(request: Request) -> FormData:
    """Read the form; the file goes to the disk as it arrives. Raises UnreadableFile, OSError.

    What exceeds the bound is read but not stored: a browser shows the response only after it has sent the whole form.
    """
    size, end = 0, b""

    async def receive() -> Message:
        nonlocal size, end
        message = await request.receive()
        body = message.get("body", b"")
        size, end = size + len(body), (end + body)[-4:]
        if size > MAX_FILE + _MAX_FIELD_BYTES:
            message["body"] = b""
        if message["type"] == "http.request" and not message.get("more_body"):
            if size > MAX_FILE + _MAX_FIELD_BYTES:
                raise _TooLarge
            if not end.rstrip().endswith(b"--"):
                raise UnreadableFile("The upload broke off before its end; upload the file again.")
        return message

    try:
        return await Request(request.scope, receive).form(max_files=1, max_fields=20, max_part_size=_MAX_FIELD_BYTES)
    except HTTPException:
        raise UnreadableFile("The form cannot be read; go back and try again.") from None


def _text(form: FormData, name: str) -> str:
    return str(form.get(name, "")).replace("\0", "").strip()


def _file(form: FormData) -> tuple[IO[bytes], str, int]:
    """The uploaded file, its name and its bytes. Raises UnreadableFile if it is missing, empty or too large."""
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise UnreadableFile("Choose a file.")
    name = file.filename.replace("\\", "/").rpartition("/")[2].replace("\0", "")[-_MAX_FILE_NAME:]
    name = name.encode(errors="replace").decode()  # half of a surrogate pair, which some encodings have
    if not file.size:
        raise UnreadableFile(f"{name} is empty.")
    if file.size > MAX_FILE:
        raise _TooLarge
    return file.file, name, file.size


def _content(form: FormData, file: IO[bytes]) -> bytes:
    """A digest of the form; browsers encode equal forms differently. Takes long."""
    digest = file_digest(file, "sha256").digest()  # type: ignore[arg-type]  # a file, whatever its type says
    file.seek(0)
    texts = [(name, value if isinstance(value, str) else value.filename) for name, value in form.multi_items()]
    return repr(texts).encode() + digest


async def show(visit: Visit) -> Response:
    """What became of an import, or what importing an upload would do, or how far that is."""
    name = visit.path["upload"]
    job = None if name.startswith("import-") else _job(visit)
    if job is None or (job.state in ("imported", "stopped") and job.report.import_id):
        return await _show_run(visit, job.report.import_id if job else name)
    kept = await visit.kept(f"/imports/{job.id}/check") if job.can_be_checked else None
    choices = Choices.submitted(kept, job.columns, job.statuses) if kept else job.choices
    form = Form(choices.fields.items())
    if isinstance(job.error, WrongField) and job.error.field:
        form.errors[job.error.field] = job.error.message
    accounts = (await visit.read(visit.store.accounts.list())).value or [] if job.can_be_checked else []
    return _refreshed(
        visit,
        "import.html",
        busy=job.is_busy,
        job=job,
        choices=choices,
        form=form,
        labels=_LABELS,
        shops=[("", "None of these"), *SHOPS.items()],
        targets=TARGETS,
        status_names=STATUS_NAMES,
        statuses=sorted(job.statuses, key=lambda text: (choices.status_of(text) != "", text.casefold())),
        accounts=[account.name for account in accounts if account.closed_at is None][:_MAX_ACCOUNTS],
        shown_columns=job.columns[:MAX_COLUMNS],
    )


async def _show_run(visit: Visit, import_id: str) -> Response:
    run = await visit.require(visit.store.imports.find(import_id))
    first = await visit.read(visit.store.imports.rejects(import_id, SHOWN_REJECTS))
    rejects = list(map(json.loads, first.value or ()))
    return _refreshed(visit, "import_run.html", busy=run.state == "running", run=run, shown_rejects=rejects)


def _refreshed(visit: Visit, template: str, *, busy: bool, **values: Any) -> Response:
    """A page that loads itself again while something is under way."""
    refresh = _REFRESH_SECONDS if busy and visit.query.get("refresh") != "off" else None
    response = visit.page(template, refresh_seconds=refresh, **values)
    if refresh is not None:
        response.headers["Refresh"] = str(refresh)
    return response


async def start(visit: Visit) -> Response:
    """Import an upload as the page of its last check has shown it."""
    form = await visit.form()
    job = _job(visit)
    if job.state == "checked" and form["seen"] not in ("", str(job.checks)):
        raise Conflict(f"{job.name} was checked again meanwhile; see what importing it would do now.")
    visit.sources.imports.import_(job, visit.actor)
    return _show_job(job)


async def stop(visit: Visit) -> Response:
    form = await visit.form()
    job = _job(visit)
    if job.state == "importing" and form["seen"] == "checking":
        raise Conflict(f"{job.name} was checked meanwhile, and is being imported; stop the import if it is wrong.")
    await visit.sources.imports.stop(job)
    return _show_job(job)


async def discard(visit: Visit) -> Response:
    await visit.form()
    job = _job(visit)
    if job.state == "importing":
        raise Conflict(f"{job.name} is being imported; stop the import first.")
    await visit.sources.imports.discard(job)
    return visit.redirect_with_notice("/imports", f"Deleted {job.name} from the server.")


async def rejects(visit: Visit) -> Response:
    """The rejected rows of an import or of a check with their reasons, as JSON Lines."""
    name = visit.path["upload"]
    if not name.startswith("import-"):
        job = _job(visit)
        return _download(job.name, job.read_rejects())
    run = await visit.require(visit.store.imports.find(name))
    return _download(run.file, (f"{row}\n" for row in await visit.require(visit.store.imports.rejects(name))))


def _download(file: str, parts: Iterator[str | bytes]) -> Response:
    stem = quote(visible_part(file.rpartition(".")[0] or file), safe="")
    headers = {"Content-Disposition": f"attachment; filename=\"rejects.jsonl\"; filename*=UTF-8''{stem}-rejects.jsonl"}
    return StreamingResponse(parts, headers=headers, media_type="application/jsonl")


def _job(visit: Visit) -> ImportJob:
    return visit.sources.imports.find(visit.path["upload"])


def _show_job(job: ImportJob) -> Response:
    return RedirectResponse(f"{CONSOLE_PATH}/imports/{job.id}", 303)
