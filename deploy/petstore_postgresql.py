#!/opt/petstore/bin/python3 -I
"""Run a program of PostgreSQL on the store: /usr/local/bin/petstore-postgresql, called with sudo or as root.

    petstore-postgresql psql
    petstore-postgresql pg_dump --format=custom --schema=petstore > orders.dump
    petstore-postgresql pg_restore --single-transaction --dbname=service=petstore < orders.dump

All users of a machine see the arguments of its processes. So the program gets the address of the store as the service
`petstore` of libpq, in a file without a name, and its password in the environment, which only its user and root can
read. It runs as the user of the service, with the service's .pgpass. The shell reads and writes files.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

try:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict
except ImportError:
    sys.exit("petstore-postgresql: Install the drivers: requirements/scale-out.lock.")
from petstore_server.settings import SettingsError, read_secret

SETTINGS = "/etc/petstore/petstore.env"
HOME = "/var/lib/petstore"
AS_SERVICE = ["setpriv", "--reuid", "petstore", "--regid", "petstore", "--init-groups"]
SETTING = "PETSTORE_DATABASE_URL"


def main() -> NoReturn:
    """Replace this process by the program."""
    if len(sys.argv) < 2:
        sys.exit("Usage: petstore-postgresql PROGRAM [ARGUMENT...]")
    parameters = read_parameters()
    environ = {**os.environ, "HOME": HOME, "PGSERVICE": "petstore"}
    if password := parameters.pop("password", None):
        environ["PGPASSWORD"] = password
    if any(value != value.strip() or not value.isprintable() for value in parameters.values()):
        sys.exit("petstore-postgresql: PETSTORE_DATABASE_URL has a parameter with spaces around it, or a line end.")
    file = os.memfd_create("petstore", 0)  # the program inherits it
    lines = ["[petstore]", *(f"{name}={value}" for name, value in parameters.items())]
    os.write(file, "".join(f"{line}\n" for line in lines).encode())
    environ["PGSERVICEFILE"] = f"/proc/self/fd/{file}"
    os.chdir(HOME)
    command = [*AS_SERVICE, *sys.argv[1:]]
    os.execvpe(command[0], command, environ)  # noqa: S606 - the caller names the program


def read_parameters() -> dict[str, str]:
    """The parameters of the store's URL, as libpq reads it: no error may show a part of it."""
    try:
        lines = Path(SETTINGS).read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        sys.exit(f"petstore-postgresql: Cannot read {SETTINGS}; run this as root, or with sudo.")
    # systemd, which reads this file for the service, does not see blanks around names and values either.
    settings = {
        name.strip(): text.strip() for name, assigns, text in (line.partition("=") for line in lines) if assigns
    }
    try:
        url = read_secret(settings, SETTING) or ""
    except SettingsError as error:
        sys.exit(f"petstore-postgresql: {error}")
    if not url.startswith(("postgresql://", "postgres://")):
        sys.exit(f"petstore-postgresql: PETSTORE_DATABASE_URL in {SETTINGS} does not name PostgreSQL.")
    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except (ProgrammingError, UnicodeError):
        sys.exit(f"petstore-postgresql: PETSTORE_DATABASE_URL in {SETTINGS} is not a URL that PostgreSQL accepts.")


main()
