"""Who looks at a page, and what this person may do."""

from collections.abc import Sequence
from dataclasses import dataclass

from duly_console.navigation import Link
from duly_core.access.grants import UNRESTRICTED, Access, Grant
from duly_core.access.roles import Action, Role
from duly_wire.v1 import access_pb2

_ROLES = {
    access_pb2.ROLE_CLIENT: Role.CLIENT,
    access_pb2.ROLE_OWNER: Role.OWNER,
    access_pb2.ROLE_HOST: Role.HOST,
    access_pb2.ROLE_OPERATOR: Role.OPERATOR,
    access_pb2.ROLE_AUDITOR: Role.AUDITOR,
}


@dataclass(frozen=True, slots=True)
class Viewer:
    """Only what pages show and hide depends on it: the Frontend checks each call itself."""

    principal: str
    """Empty: the Frontend asks nobody who they are."""
    access: Access

    @property
    def groups(self) -> tuple[str, ...]:
        """Of a person that an identity provider signed in."""
        return self.access.groups

    @property
    def roles(self) -> list[str]:
        """The names of the roles, sorted."""
        return sorted(self.access.roles)

    def may(self, action: str, lambda_name: str) -> bool:
        """Whether an action is allowed for a lambda, or for some of its tasks."""
        return self.access.may(Action[action], lambda_name)

    def may_somewhere(self, action: str) -> bool:
        """Whether an action is allowed for some lambda."""
        return not self.access.scope(Action[action]).is_empty

    def namespaces(self, action: str) -> list[str]:
        """Return the namespaces for all of which an action is allowed by a grant of their own, sorted."""
        return self.access.scope(Action[action]).namespaces

    def may_everywhere(self, action: str) -> bool:
        """Whether an action is allowed for what belongs to no lambda."""
        return self.access.scope(Action[action]).is_everything

    def may_open(self, link: Link) -> bool:
        """Whether a page of the menu, or a command of the palette, shows anything to this person."""
        if not link.everywhere:
            return self.may_somewhere(link.action)
        return self.may_everywhere(link.action) or (link.or_namespace and bool(self.namespaces(link.action)))


def viewer_of(answer: access_pb2.GetAccessResponse) -> Viewer:
    """Return whom the Frontend takes a caller for."""
    if not answer.principal:
        return Viewer("", UNRESTRICTED)
    return Viewer(answer.principal, Access(answer.principal, _grants(answer.grants), tuple(answer.groups)))


def _grants(grants: Sequence[access_pb2.Grant]) -> list[Grant]:
    return [
        Grant(each.principal, _ROLES[each.role], each.pattern)
        for each in grants
        if each.role in _ROLES  # a newer Frontend may have roles that this console does not know
    ]
