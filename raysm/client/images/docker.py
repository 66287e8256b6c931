"""The docker command of this machine: what flows in are its arguments, what flows out are its answers or errors.

Its output goes where this process's goes, so that a build is seen while it lasts. A secret goes through its standard
input, never into its arguments, which every user of the machine can read.
"""

import shutil
import subprocess
from collections.abc import Sequence

from raysm.errors import MissingDependency, ServiceError

__all__ = ["Docker"]

ASK_S = 60.0
"""A daemon that is well answers a question within a second; one on a busy laptop may take a while to wake up."""


class Docker:
    """A docker command that is there."""

    def __init__(self, program: str = "docker") -> None:
        """Find the command.

        Raises:
            MissingDependency: It is not installed.
        """
        path = shutil.which(program)
        if path is None:
            raise MissingDependency(
                f"there is no command {program}: install Docker (https://docs.docker.com/engine/install/), or run what "
                "raysm image build --dry-run prints where it is"
            )
        self._path = path

    def check_daemon(self) -> None:
        """Ask the daemon how it is, before minutes are spent.

        Raises:
            ServiceError: It does not answer.
        """
        self.ask("version", "--format", "{{.Server.Version}}", failure="the Docker daemon does not answer")

    def has_buildx(self) -> bool:
        """Return whether docker has the builder that builds for other platforms."""
        return self._run(("buildx", "version")).returncode == 0

    def ask(self, *arguments: str, failure: str = "") -> str:
        """Return what it answers on its standard output.

        Args:
            arguments: Of docker.
            failure: What it means if it fails; empty is that the command failed.

        Raises:
            ServiceError: It failed.
        """
        done = self._run(arguments)
        if done.returncode != 0:
            raise ServiceError(
                f"{failure or f'docker {arguments[0]} failed'}: {_last_line(done.stderr)}{_hint(failure)}"
            )
        return done.stdout.strip()

    def log_in(self, registry: str, password: str) -> None:
        """Log in to a registry of ECR.

        Raises:
            ServiceError: It refuses.
        """
        # All log in to ECR as this user: whose password it is says who comes.
        done = self._run(("login", "--username", "AWS", "--password-stdin", registry), stdin=password)
        if done.returncode != 0:
            raise ServiceError(f"docker login {registry} failed: {_last_line(done.stderr)}")

    def show(self, arguments: Sequence[str]) -> None:
        """Run a command whose output a person sees as it comes.

        Raises:
            ServiceError: It failed; why stands in its output.
        """
        # Its progress goes to stderr in any case; stdout is for raysm's own answer.
        done = subprocess.run([self._path, *arguments], stdin=subprocess.DEVNULL, stdout=2, check=False)
        if done.returncode != 0:
            raise ServiceError(f"docker {arguments[0]} failed with exit code {done.returncode}; what it said is above")

    def _run(self, arguments: Sequence[str], stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        try:
            return subprocess.run(
                [self._path, *arguments],
                # Never this process's own stdin: it may hold what somebody pipes into raysm.
                input=stdin or "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ASK_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ServiceError(f"docker {arguments[0]} did not answer within {ASK_S:.0f} s") from error


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it says nothing"


def _hint(failure: str) -> str:
    # Only the question after the daemon says what its failure means.
    return "; start it (sudo systemctl start docker, or Docker Desktop)" if failure else ""
