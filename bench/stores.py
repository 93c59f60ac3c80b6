"""Stores filled for a benchmark, through the command line of the product."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.engines import Postgres
from bench.plan import PETSTORE, Plan, run
from testing.redis_engine import RedisEngine

LIST = "/v1/store/orders"
UNLIMITED = ("--plan", "enterprise", "--per-minute", "1000000000", "--per-day", "1000000000")
ACCOUNT = "bench"
WRITER = ("orders:read", "orders:cancel", "orders:write")
"""The scopes of a key that may place orders as well."""

_FILE = "store.db"
_STATUSES = ("pending", "pending", "pending", "shipped", "shipped")


@dataclass
class Store:
    """A filled store: the environment that selects it, an API key without noticeable limits, and its orders."""

    environment: Mapping[str, str]
    key: str
    orders: int

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def petstore(self, *arguments: str | Path) -> str:
        """Run one command on this store; return its standard output."""
        return run([PETSTORE, *arguments], env=self.environment)


def environment(**settings: str) -> dict[str, str]:
    """The environment of this process with no settings of the service but these."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PETSTORE_")} | settings


def shared(postgres: Postgres, redis: RedisEngine) -> dict[str, str]:
    """The settings of a new store on both shared engines."""
    return {"PETSTORE_DATABASE_URL": postgres.new_url(), "PETSTORE_REDIS_URL": redis.url}


def make_store(
    plan: Plan,
    folder: Path,
    orders: int,
    *,
    settings: Mapping[str, str] | None = None,
    varied: bool = False,
    scopes: tuple[str, ...] = (),
) -> Store:
    """Fill a new store with orders 1 to `orders`; without `settings` it is a SQLite file in `folder`.

    A SQLite store that was filled before in the same run is copied.
    """
    if settings is not None:
        return _filled(plan, orders, settings, varied, scopes)
    name = f"{orders}-{varied}-{'-'.join(scopes)}"
    template = plan.folder / "stores" / name
    if not template.exists():
        template.mkdir(parents=True)
        filled = _filled(plan, orders, _sqlite(template), varied, scopes)
        (template / "key").write_text(filled.key)
    for file in template.glob(f"{_FILE}*"):
        shutil.copy(file, folder)
    return Store(environment(**_sqlite(folder)), (template / "key").read_text(), orders)


def _sqlite(folder: Path) -> dict[str, str]:
    return {"PETSTORE_DATABASE_URL": f"sqlite:///{folder / _FILE}"}


def _filled(plan: Plan, orders: int, settings: Mapping[str, str], varied: bool, scopes: tuple[str, ...]) -> Store:
    """A new store with orders, an account and a key, made by the command line."""
    env = environment(**settings)
    run([PETSTORE, "db", "migrate"], env=env)
    if orders:
        run([PETSTORE, "orders", "import", order_file(plan, orders, varied=varied), "--format", "jsonl"], env=env)
    run([PETSTORE, "accounts", "create", ACCOUNT, *UNLIMITED], env=env)
    options = [part for scope in scopes for part in ("--scope", scope)]
    made = json.loads(run([PETSTORE, "keys", "create", ACCOUNT, *options, "--json"], env=env))
    return Store(env, made["key"], orders)


@contextmanager
def sqlite_store(plan: Plan, orders: int, *, varied: bool = False) -> Iterator[Store]:
    """A SQLite store in a separate directory, deleted at the end."""
    with plan.scratch() as folder:
        yield make_store(plan, folder, orders, varied=varied)


def order_file(plan: Plan, orders: int, *, varied: bool = False, first: int = 1) -> Path:
    """A JSON Lines file of so many orders from the identifier `first` on, written once per run.

    All are pending and have all fields, unless they are `varied`; `varied_order` describes these.
    """
    file = plan.folder / f"orders-{orders}-{first}{'-varied' if varied else ''}.jsonl"
    if not file.exists():
        line = partial(_varied_line, orders) if varied else _line
        with file.open("w") as output:
            output.writelines(map(line, range(first, first + orders)))
    return file


def _line(number: int) -> str:
    fields = f'"id":{number},"petId":{number % 977},"quantity":1'
    return f'{{{fields},"shipDate":"2026-10-07T03:51:47Z","complete":false}}\n'


COMMON_PET, FREQUENT_PET, RARE_PET, ABSENT_PET = 1, 2, 3, 9_999
"""Pets of varied orders: of a million, they have 100,000, 1,600, some 1,380, and none."""


def varied_order(orders: int, number: int) -> dict[str, object]:
    """One of so many orders: filters match from none to almost all of them, some only at the end of the list."""
    order: dict[str, object] = {"id": number, "petId": 10 + number % 977, "quantity": 1 + number % 9}
    if number % 10 == 0:
        order["petId"] = COMMON_PET
    elif number % 625 == 1:
        order["petId"] = FREQUENT_PET
    elif number % 720 == 7:
        order["petId"] = RARE_PET
    if number % 10 != 5:
        day, second = divmod(number * 7919 % 25_920_000, 86_400)  # within 300 days
        order["shipDate"] = f"2026-{1 + day // 28 % 12:02}-{1 + day % 28:02}T{_clock(second)}Z"
    if number % 3:
        order["complete"] = number > orders * 49 // 50
    order["status"] = "cancelled" if number % 1_000 == 3 else _STATUSES[number % 5]
    return order


def _varied_line(orders: int, number: int) -> str:
    return json.dumps(varied_order(orders, number)) + "\n"


def _clock(second: int) -> str:
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
