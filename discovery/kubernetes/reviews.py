"""Tokens and rights by the API server's word: a TokenReview, then a SubjectAccessReview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from discovery.access import Review, ReviewError
from discovery.kubernetes.api import Api, ApiError

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
RIGHTS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

MAX_USER = 256


class Reviews:
    """
    Asks one API server; whoever runs this needs the right to create both kinds of reviews.

    Args:
        api: The server; closed by `close`.

    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def review(self, token: str, *, path: str, verb: str) -> Review:
        """
        Ask whose token it is, and where it is somebody's, whether they may do ``verb`` on the URL's ``path``.

        Raises:
            ReviewError: the server is away, does not let us ask, or answers nonsense.

        """
        status = await self._asked(TOKENS, "TokenReview", {"token": token})
        user = status.get("user")
        if status.get("authenticated") is not True or not isinstance(user, dict):
            return Review(known=False)
        spec = {
            "user": user.get("username"),
            "uid": user.get("uid"),
            "groups": user.get("groups"),
            "extra": user.get("extra"),
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        given = {name: value for name, value in spec.items() if value}
        status = await self._asked(RIGHTS, "SubjectAccessReview", given)
        allowed = status.get("allowed") is True and status.get("denied") is not True
        return Review(known=True, allowed=allowed, user=str(user.get("username") or "")[:MAX_USER])

    async def close(self) -> None:
        """Close the session with the server."""
        await self._api.close()

    async def _asked(self, path: str, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """The status of a review."""
        group = path.removeprefix("/apis/").rpartition("/")[0]
        try:
            answer = await self._api.post(path, {"apiVersion": group, "kind": kind, "spec": spec})
        except ApiError as error:
            raise ReviewError(_why(kind, error)) from None
        status = answer.get("status")
        if not isinstance(status, dict):
            raise ReviewError(f"the API server answered a {kind} without a status")
        return status


def _why(kind: str, error: ApiError) -> str:
    """In our words: what a server says to a question may repeat the token that is in it."""
    if not error.status:
        return f"the API server is away: {error}"
    if error.status == 403:
        return f"the picker may not create a {kind}; the chart's ClusterRole for it is not bound"
    return f"the API server answered HTTP {error.status} to a {kind}"
