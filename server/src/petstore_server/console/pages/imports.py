"""Imports: upload a file, see what it would do, import it, and follow its progress."""

import asyncio
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

from starlette.responses import FileResponse, RedirectResponse, Response

from petstore_server.console.entry import Entry
from petstore_server.console.forms import FormState
from petstore_server.console.import_jobs import KEPT_SECONDS, MOST_JOBS, ImportJob, JobState
from petstore_server.console.security import PATH
from petstore_server.console.uploads import LARGEST_FILE, InvalidUpload, Upload, receive
from petstore_server.console.visit import Visit
from petstore_server.domain.errors import Conflict, InvalidInput, NotFound
from petstore_server.domain.orders import ORDER_FIELDS, Import
from petstore_server.formats.conversions import check_date_format, check_encoding, parse_mapping, parse_timezone
from petstore_server.formats.kinds import EVERY_COLUMN
from petstore_server.formats.rows import UnreadableFile
from petstore_server.operations.import_tasks import TaskOptions, check_readable

T = TypeVar("T")

_UPLOAD_SECONDS = 3600
_REFRESH_SECONDS = 2
_FORMATS = (("", "By its name or content"), ("csv", "CSV"), ("jsonl", "JSON Lines"), ("json", "JSON"))
_FIELDS = ("format", "zone", "date_format", "encoding", "columns", "ignore")


async def ask(visit: Visit) -> Response:
    """The form for a file, and the uploads of this host."""
    return _form(visit, FormState())


async def upload(visit: Visit) -> Response:
    """Receive a file and go on to what it would do. Whatever is wrong, nothing of it is left."""
    form = FormState()
    try:
        job = visit.services.imports.reserve(visit.operator)
    except (Conflict, OSError) as error:
        reason = error.message if isinstance(error, Conflict) else f"The server cannot store a file: {error.strerror}."
        form.reject("file", reason)
        return _form(visit, form, 503)
    try:
        status = await _receive(visit, job, form)
    except BaseException:
        visit.services.imports.release(job)
        raise
    if not form.is_right:
        visit.services.imports.release(job)
        return _form(visit, form, status)
    visit.services.imports.check(job, visit.actor)
    return _show_job(job)


async def _receive(visit: Visit, job: ImportJob, form: FormState) -> int:
    """Receive the file of a job. What is wrong with it is noted in the form; the HTTP status is returned then."""
    request = visit.request

    def check(fields: dict[str, str]) -> None:
        visit.require_form_token(fields.get("form_token", ""))

    try:
        async with asyncio.timeout(_UPLOAD_SECONDS):
            content_type = request.headers.get("content-type", "")
            received = await receive(request.stream(), content_type, job.file, check)
    except InvalidUpload as error:
        form.reject("file", error.message)
        return error.status
    except TimeoutError:
        form.reject("file", "The upload took more than an hour.")
        return 408
    except OSError as error:
        form.reject("file", f"The server cannot store the file: {error.strerror}.")
        return 507
    visit.require_form_token(received.fields.get("form_token", ""))
    form.values.update({name: received.fields.get(name, "") for name in _FIELDS})
    job.name, job.size = received.name, received.size
    job.options = _read_options(form)
    await _check(job, received, form)
    return 400


async def _check(job: ImportJob, received: Upload, form: FormState) -> None:
    if not received.name:
        form.reject("file", "Choose a file.")
    elif not received.size:
        form.reject("file", f"{received.name} is empty.")
    elif form.is_right:
        try:
            await asyncio.to_thread(check_readable, job.file, job.name, job.options)
        except UnreadableFile as error:
            form.reject("file", error.message)


def _read_options(form: FormState) -> TaskOptions:
    """The options that were entered; what is wrong with them is noted in the form."""
    zone = form.read("zone", _option(parse_timezone))
    date_format = form.read("date_format", _option(check_date_format))
    encoding = form.read("encoding", _option(check_encoding))
    columns, file_format = form.read("columns", _columns), form.read("format", _format)
    ignored = frozenset({EVERY_COLUMN}) if form.values["ignore"] else frozenset[str]()
    return TaskOptions(file_format or None, encoding or None, zone or None, date_format or None, columns or {}, ignored)


def _format(text: str) -> str:
    if text not in dict(_FORMATS):
        raise InvalidInput("Choose one of the given formats.")
    return text


def _option(check: Callable[[str], T]) -> Callable[[str], str]:
    """Check the text of an option that may be left out; `check` raises ValueError with the end of a sentence."""

    def read(text: str) -> str:
        if text:
            _checked(check, text)
        return text

    return read


def _checked(check: Callable[[str], T], text: str) -> T:
    try:
        return check(text)
    except ValueError as error:
        raise InvalidInput(f"'{text}' {error}.") from None


def _columns(text: str) -> dict[str, str]:
    """Names of columns and their fields, from COLUMN=FIELD separated by commas."""
    columns = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        column, field = _checked(parse_mapping, each)
        if field not in ORDER_FIELDS:
            raise InvalidInput(f"'{field}' is not a field; the fields are {', '.join(ORDER_FIELDS)}.")
        columns[column] = field
    return columns


async def show(visit: Visit) -> Response:
    """What importing the file would do, how far the import is, or what it did."""
    job = _job(visit)
    still = visit.query.get("refresh") == "off"
    response = visit.page(
        "import.html",
        job=job,
        outcomes=[(name, job.report.counts.get(str(outcome), 0)) for outcome, name in _OUTCOMES.items()],
        changes=sum(job.report.counts.get(str(outcome), 0) for outcome in (Import.CREATED, Import.REPLACED)),
        rejected=job.report.counts.get(str(Import.REJECTED), 0),
        kept_minutes=int(KEPT_SECONDS // 60),
        refresh_seconds=None if still or not job.is_busy else _REFRESH_SECONDS,
    )
    if job.is_busy and not still:
        response.headers["Refresh"] = str(_REFRESH_SECONDS)
    return response


_OUTCOMES = {
    Import.CREATED: "Created",
    Import.REPLACED: "Changed",
    Import.UNCHANGED: "Unchanged",
    Import.REJECTED: "Rejected",
}


async def start(visit: Visit) -> Response:
    """Import a file that was checked, unless another operator did."""
    job = _job(visit)
    await visit.form()
    visit.services.imports.import_(job, visit.actor)
    return _show_job(job)


async def stop(visit: Visit) -> Response:
    """End a check or an import."""
    job = _job(visit)
    await visit.form()
    await visit.services.imports.stop(job)
    return _show_job(job)


async def discard(visit: Visit) -> Response:
    """Delete an upload that is not being imported."""
    job = _job(visit)
    await visit.form()
    if job.state is JobState.IMPORTING:
        raise Conflict(f"{job.name} is being imported; stop the import first.")
    await visit.services.imports.discard(job)
    return visit.done("/imports/new", f"Deleted {job.name} from the server.")


async def rejects(visit: Visit) -> Response:
    """The rejected rows with their reasons, as JSON Lines."""
    job = _job(visit)
    if job.is_busy or not job.rejects.exists():
        raise NotFound("The rejected rows can be downloaded once the file was checked or imported.")
    stem = quote(job.name.rpartition(".")[0] or job.name, safe="")
    headers = {"Content-Disposition": f"attachment; filename=\"rejects.jsonl\"; filename*=UTF-8''{stem}-rejects.jsonl"}
    return FileResponse(job.rejects, headers=headers, media_type="application/jsonl")


def _job(visit: Visit) -> ImportJob:
    return visit.services.imports.find(visit.request.path_params["upload"])


def _show_job(job: ImportJob) -> Response:
    return RedirectResponse(f"{PATH}/imports/{job.id}", 303)


def _form(visit: Visit, form: FormState, status: int = 200) -> Response:
    return visit.page(
        "import_new.html",
        status,
        form=form,
        formats=_FORMATS,
        jobs=visit.services.imports.all(),
        most_jobs=MOST_JOBS,
        kept_minutes=int(KEPT_SECONDS // 60),
        megabytes=LARGEST_FILE // (1024 * 1024),
        options_open=any(form.values[name] or form.error(name) for name in _FIELDS),
    )


ENTRIES = (
    Entry("/imports/new", ask),
    Entry("/imports/new", upload, ("POST",)),
    Entry("/imports/{upload}", show),
    Entry("/imports/{upload}/import", start, ("POST",)),
    Entry("/imports/{upload}/stop", stop, ("POST",)),
    Entry("/imports/{upload}/discard", discard, ("POST",)),
    Entry("/imports/{upload}/rejects", rejects),
)
