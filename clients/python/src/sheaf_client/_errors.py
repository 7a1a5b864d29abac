"""What can go wrong, as exceptions. All of them are a SheafError."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._models import Rejected


class SheafError(Exception):
    """The base of every error of this package."""


class ConnectionFailed(SheafError):
    """No server answered, or the connection broke, in every attempt."""


class WaitTimeout(SheafError):
    """A job had not ended when the time to wait was over. It goes on at the server."""


class IngestError(SheafError):
    """Nothing of what was sent was taken, or a document that was needed failed.

    ``rejected`` holds each file that was refused with its reason.
    """

    def __init__(self, message: str, rejected: list[Rejected] | None = None) -> None:
        super().__init__(message)
        self.rejected: list[Rejected] = rejected or []


class APIError(SheafError):
    """An answer of the server that is not a success.

    ``code`` is stable and made for programs, ``detail`` is a sentence that
    says what to do, ``request_id`` is in the server's log. ``errors`` names
    the places of a request that is not valid.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        request_id: str = "",
        retryable: bool = False,
        errors: list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(status, code, detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.request_id = request_id
        self.retryable = retryable
        self.errors: list[dict[str, Any]] = errors or []

    def __str__(self) -> str:
        said = f"{self.detail or 'no detail was given'} ({self.code or 'no code'}, status {self.status}"
        return said + (f", request {self.request_id})" if self.request_id else ")")


class InvalidRequestError(APIError):
    """The request or the file in it is not valid: 400, 413, 415, 422."""


class AuthenticationError(APIError):
    """The key is missing or unknown: 401."""


class PermissionDeniedError(APIError):
    """The key lacks a scope: 403."""


class NotFoundError(APIError):
    """What was asked for does not exist, or does no longer: 404, 410."""


class ConflictError(APIError):
    """The state of the thing does not allow it: 409, 412."""


class RateLimitedError(APIError):
    """The tenant is at one of its limits: 429, after all attempts."""


class ServerError(APIError):
    """The server could not do it: 5xx, after all attempts."""


_KINDS: dict[int, type[APIError]] = {
    400: InvalidRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    410: NotFoundError,
    412: ConflictError,
    413: InvalidRequestError,
    415: InvalidRequestError,
    422: InvalidRequestError,
    429: RateLimitedError,
}


def error_of(status: int, body: bytes, request_id: str) -> APIError:
    """The exception of an answer: application/problem+json, or whatever a proxy sent."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"detail": body[:300].decode(errors="replace").strip() or f"the server answered {status} without a word"}
    kind = _KINDS.get(status, ServerError if status >= 500 else APIError)
    errors = problem.get("errors")
    return kind(
        status,
        str(problem.get("code") or ""),
        str(problem.get("detail") or problem.get("title") or ""),
        request_id=str(problem.get("request_id") or request_id),
        retryable=bool(problem.get("retryable")),
        errors=[e for e in errors if isinstance(e, dict)] if isinstance(errors, list) else None,
    )
