"""botocore's session for the embedded SageMaker, without the user's AWS configuration."""

import os
from typing import Any


def settingless_session() -> Any:
    """Return a session of botocore that reads no AWS settings: no variables, no profile, no file.

    A profile that is gone, or a mistake in one of the settings, would fail each call, and none of
    them has a meaning for a server on this machine.
    """
    from botocore.session import Session

    # Of each setting: its name in the file, its variable, its default, and how a text is converted.
    defaults = {
        name: (None, None, default, convert)
        for name, (_, _, default, convert) in Session.SESSION_VARIABLES.items()
    }
    no_file = (None, None, os.devnull, None)
    session = Session({**defaults, "config_file": no_file, "credentials_file": no_file})
    # S3 has variables that are not among these.
    session.get_component("config_store").set_config_variable("s3", {})
    return session
