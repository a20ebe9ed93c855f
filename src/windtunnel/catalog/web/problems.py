"""What the server answers when it can't do what it is asked for: RFC 9457's problem details, or a page that says it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from windtunnel.errors import NotInCatalog, StoreMissing, StoreUnusable, WindtunnelError

MEDIA_TYPE = "application/problem+json"


class ProblemKind(NamedTuple):
    """A kind of problem; its page is `/problems/NAME`."""

    status: int
    title: str
    meaning: str


KINDS = {
    "bad-request": ProblemKind(
        400, "The request makes no sense",
        "A parameter is missing, unknown, or not what it should be; the detail says which."
    ),
    "no-such-page": ProblemKind(404, "There is no such page", "The address is none of this server's."),
    "not-in-catalog": ProblemKind(
        404, "Not in this catalog",
        "The catalog has no project, version or record of that name or id. It may not be indexed, or no longer.",
    ),
    "method-not-allowed": ProblemKind(405, "Not with this method", "The address takes others; Allow names them."),
    "too-slow": ProblemKind(408, "The request took too long to arrive", "Its body did not come in the time allowed."),
    "too-large": ProblemKind(413, "Too large", "The body is greater than what is taken; the detail says how much is."),
    "address-too-long": ProblemKind(414, "The address is too long", "Send long texts with POST to /api/explain."),
    "unsupported-media-type": ProblemKind(
        415, "Not in this format", "The body's Content-Type is none that the address takes. The detail names them."
    ),
    "wrong-host": ProblemKind(
        421, "Not a name of this server",
        "The Host header is not a name under which this server answers. Else a page of another site, whose name was "
        "made to point here, could read the catalog. `windtunnel catalog serve --allow-host NAME` adds a name.",
    ),
    "fault": ProblemKind(500, "A fault in windtunnel", "Something went wrong that should not. Its stderr says more."),
    "unusable-catalog": ProblemKind(
        503, "The catalog can't be read", "Its file is missing, broken, or of another version. The detail says which."
    ),
    "busy": ProblemKind(503, "Busy", "The answer took longer than is allowed. Ask for less, or again later."),
}  # fmt: skip


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """RFC 9457's members, and what windtunnel's own errors add."""

    type: str
    """The address of the page about this kind of problem."""
    title: str
    status: int
    detail: str
    advice: str | None = None
    """The way out."""
    code: str | None = None
    """Of windtunnel's error, `WT-…`."""


class Refused(Exception):
    """A request that is not done."""

    def __init__(self, kind: str, detail: str, advice: str | None = None, code: str | None = None) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.advice, self.code = kind, detail, advice, code

    @property
    def status(self) -> int:
        """Of HTTP."""
        return KINDS[self.kind].status

    def problem(self, base_url: str) -> Problem:
        """To be sent; `base_url` without a slash at its end."""
        kind = KINDS[self.kind]
        return Problem(f"{base_url}/problems/{self.kind}", kind.title, kind.status, self.detail, self.advice, self.code)


def refused(error: WindtunnelError) -> Refused:
    """What an error of ours is for who asked."""
    kind = "bad-request"
    if isinstance(error, NotInCatalog):
        kind = "not-in-catalog"
    elif isinstance(error, StoreMissing | StoreUnusable):
        kind = "unusable-catalog"
    return Refused(kind, error.message, error.advice, error.code)
