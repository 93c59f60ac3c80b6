"""Roles of operators in the console."""

from collections.abc import Collection, Sequence
from enum import StrEnum


class Role(StrEnum):
    """A viewer sees; an operator also works on orders, imports, bans and deliveries; an admin may do all.

    In ascending order: each role may do what those before it may.
    """

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def allows(self, needed: "Role") -> bool:
        """Whether this role includes the rights of that one."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(needed)


def role_of(groups: Collection[str], roles: Sequence[tuple[str, str | None]]) -> Role | None:
    """The highest role that one of the groups has, None if none has one.

    `roles` are pairs of a role and a group, which is None for every operator. Without any, everybody is a viewer.
    """
    if not roles:
        return Role.VIEWER
    named = {role for role, group in roles if group is None or group in groups}
    return next((role for role in reversed(Role) if role in named), None)
