"""Schema versions: the migrations of an engine, and what to do about a store that does not have the latest version.

A store has two numbers: the last migration that it has, and the schema version, which is the oldest one that a program
has to know. Each migration leaves programs of the version before it working, so the second is lower at first.
"""

from pathlib import Path

from petstore_server.domain.errors import NoStore, StoreNewer, StoreOutdated


class StoreSchema:
    """The schema of one engine, by the directory of its migrations. `where` is a place, such as "at /srv/store.db"."""

    def __init__(self, engine: str) -> None:
        files = (Path(__file__).parent / "migrations" / engine).glob("[0-9][0-9][0-9][0-9]_*.sql")
        self._files = {int(file.name[:4]): file for file in files}
        self.latest = max(self._files)

    def missing(self, version: int) -> list[str]:
        """The migrations that a store of this version lacks, in their order: the statements of each."""
        return [file.read_text("utf-8") for number, file in sorted(self._files.items()) if number > version]

    @property
    def required(self) -> int:
        """The schema version of a store with the latest migration: that of the version before it."""
        return max(self.latest - 1, 1)

    def known(self, version: int, migration: int | None, where: str) -> int:
        """Return the last migration of a store, 0 if it is missing; `version` is the one to know.

        A store of 1.0.0 does not say which migration it has. Raises StoreNewer.
        """
        if version > self.latest:
            raise StoreNewer(
                f"The store {where} has schema version {version}, newer than the {self.latest} that this program "
                "knows; update petstore-server."
            )
        return migration if version and migration is not None else version

    def must_migrate(self, version: int, where: str, *, create: bool = False, upgrade: bool = False) -> bool:
        """Whether to migrate: a missing store (version 0) if `create`, an older one if `upgrade`.

        Raises NoStore, StoreOutdated if that is not allowed.
        """
        if version >= self.latest:
            return False
        if version == 0 and not create:
            raise NoStore(f"There is no store {where}.")
        if version and not upgrade:
            raise StoreOutdated(
                f"The store {where} has schema version {version}, and this program needs {self.latest}: migrate it."
            )
        return True
