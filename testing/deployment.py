"""What a service or a command is started over: where its orders and its counts are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testing.stores import require_store_file


@dataclass(frozen=True)
class Deployment:
    """The SQLite file `store` with counts in process, unless settings name other engines; logs go next to `store`."""

    store: Path
    engines: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def over(cls, store: "Path | Deployment") -> "Deployment":
        """The embedded deployment of a file, or the given one."""
        return cls(store) if isinstance(store, Path) else store

    def settings(self, more: Mapping[str, str]) -> dict[str, str]:
        """The settings of what is started over it, and more."""
        return {"PETSTORE_DATABASE_URL": f"sqlite:///{self.store}", **self.engines, **more}

    def made(self, more: Mapping[str, str]) -> dict[str, str]:
        """What `settings` returns, after making the file if it is missing and the settings name no other store."""
        if "PETSTORE_DATABASE_URL" not in {**self.engines, **more}:
            require_store_file(self.store)
        return self.settings(more)
