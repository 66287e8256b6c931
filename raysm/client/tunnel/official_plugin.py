"""AWS's own session-manager-plugin, where it is installed: for a shell that the account has encrypted with a KMS key.

What flows in are a session's pass and what it was begun for; what flows out is the user's terminal with the shell in
it. Only shells can be so: the agent encrypts no port forwarding, whatever the account prefers
(github.com/aws/amazon-ssm-agent, agent/session/plugins/sessionplugin/sessionplugin.go).
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from raysm.client.tunnel.session import Pass
from raysm.contract.ssm.handshake import version_of

__all__ = ["INSTALL", "OfficialPlugin"]

NAME = "session-manager-plugin"
RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"
"""The variable that has the session's token. Before this plugin could read it, the token was an argument of its
process, which every user of the machine can read: such a plugin is not used."""
LAST_WITHOUT_VARIABLE = (1, 2, 497, 0)
"""As the AWS CLI has it (github.com/aws/aws-cli, awscli/customizations/sessionmanager.py)."""
INSTALL = (
    "install AWS's own plugin, and raysm shell goes by it: "
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
)


class OfficialPlugin:
    """An installed plugin."""

    def __init__(self, path: str) -> None:
        """Run the program at ``path``."""
        self._path = path

    @classmethod
    def find(
        cls,
        which: Callable[[str], str | None] = shutil.which,
        last_without_variable: tuple[int, ...] = LAST_WITHOUT_VARIABLE,
    ) -> "OfficialPlugin | None":
        """Return the plugin of this machine; None where there is none that can be trusted with a token.

        Args:
            which: Returns where a program is.
            last_without_variable: Up to this version a plugin takes the token as an argument.
        """
        path = which(NAME)
        if path is None:
            return None
        done = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return cls(path) if version_of(done.stdout.strip()) > last_without_variable else None

    def run(self, entry: Pass, request: Mapping[str, Any], *, region: str, profile: str, endpoint: str) -> int:
        """Carry a session before the user's terminal until it ends; return the plugin's exit code.

        Args:
            entry: Lets into the session.
            request: With which it was begun, as the API has it.
            region: Of the job.
            profile: Whose credentials the plugin asks KMS with, of the AWS configuration; empty is the default.
            endpoint: Of Systems Manager there.
        """
        response = {"SessionId": entry.session, "TokenValue": entry.token, "StreamUrl": entry.url}
        variables = {**os.environ, RESPONSE: json.dumps(response)}  # noqa: TID251
        arguments = [RESPONSE, region, "StartSession", profile, json.dumps(request), endpoint]
        process = subprocess.Popen([self._path, *arguments], env=variables)
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                # The terminal tells both of us; the plugin passes Ctrl-C on to the shell, and goes on.
                continue
