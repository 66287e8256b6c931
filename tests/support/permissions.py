"""The operations of the client that the user's policy allows."""

from raysm.features.account.permissions import USER

UNGUARDED = ("sts:GetCallerIdentity",)
"""Operations that need no permission."""


def covered():
    """Return every operation of the client that a grant allows."""
    return frozenset(UNGUARDED) | {call for grant in USER for call in grant.calls}
