"""Brings the channels of a job to this machine: their URIs flow in, the places of their data flow out."""

from collections.abc import Sequence
from pathlib import Path

from raysm.errors import InvalidRequest
from raysm.local.server.definitions import Source
from raysm.local.server.objects import Objects, is_file

__all__ = ["bring"]


def bring(objects: Objects, sources: Sequence[Source], folder: Path) -> dict[str, tuple[Path, bool]]:
    """Download the channels that are in S3; return by channel where its data lies, and whether it is the job's.

    Args:
        objects: Where from.
        sources: The channels.
        folder: Downloads go below it; made where there are any.

    Raises:
        InvalidRequest: There is no such data; the message names the channel.
    """
    places: dict[str, tuple[Path, bool]] = {}
    for number, source in enumerate(sources):
        if is_file(source.uri) and not source.manifest:
            places[source.name] = (objects.local(source.uri), False)
            continue
        # Not by its name: Processing's may be any text, as ``/home/me`` or ``../..``.
        place = folder / str(number)
        folder.mkdir(exist_ok=True)
        try:
            bring_to = objects.download_listed if source.manifest else objects.download
            bring_to(source.uri, place)
        except InvalidRequest as error:
            raise InvalidRequest(f"Data download failed: channel {source.name!r}: {error}") from error
        places[source.name] = (place, True)
    return places
