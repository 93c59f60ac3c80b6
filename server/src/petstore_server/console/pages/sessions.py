"""The sessions of the console: who is signed in, with which role, and since when."""

from starlette.responses import Response

from petstore_server.console.visit import Visit


async def list_sessions(visit: Visit) -> Response:
    return visit.page("sessions.html", sessions=await visit.require(visit.store.sessions.list(visit.now)))


async def end(visit: Visit) -> Response:
    """End a session, of whatever operator, whose unused links are then invalid."""
    await visit.form()
    ended = await visit.store.sessions.end_one(visit.path["session"], visit.actor)
    return visit.redirect_with_notice(
        "/sessions", f"Ended the session of {ended.operator}. Unused links of {ended.operator} are invalid now."
    )
