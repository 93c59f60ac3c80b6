"""The protocols that `storage` and `ratelimit` implement, in terms of the business.

Every method of a store may raise ServiceUnavailable if the store cannot be used, and then has changed nothing (or, if a
connection failed during a commit, may have changed something: D19). Times are Unix seconds.
"""

from petstore_server.ports.accounts import Accounts
from petstore_server.ports.audit import SERVICE, Actor, Audit, AuditEntry, AuditFilters, AuditPage, AuditPosition
from petstore_server.ports.backups import Backups
from petstore_server.ports.keys import Keys
from petstore_server.ports.limits import Limiter, Unsaved
from petstore_server.ports.orders import OrderList, OrderPlacement, Orders, OrderSearch, Piece
from petstore_server.ports.pets import Pets
from petstore_server.ports.sessions import Sessions
from petstore_server.ports.store import AccessVersion, Store, StoreStats
from petstore_server.ports.usage import Usage, UsageStore

__all__ = [
    "SERVICE",
    "AccessVersion",
    "Accounts",
    "Actor",
    "Audit",
    "AuditEntry",
    "AuditFilters",
    "AuditPage",
    "AuditPosition",
    "Backups",
    "Keys",
    "Limiter",
    "OrderList",
    "OrderPlacement",
    "OrderSearch",
    "Orders",
    "Pets",
    "Piece",
    "Sessions",
    "Store",
    "StoreStats",
    "Unsaved",
    "Usage",
    "UsageStore",
]
