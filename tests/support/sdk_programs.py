"""Programs of the SageMaker SDK, each in a process of its own, as its users run it."""

import json
import os
import subprocess
import sys

from raysm.core.protocol.home import sdk_config_file


def run_program(program, options, server, home):
    """Run the text of a program, which takes ``options`` as JSON and prints ``RESULT`` with some; return that."""
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(options)],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "AWS_ENDPOINT_URL": server.record.url,
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": "us-east-1",
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(sdk_config_file(server.home)),
        },
        capture_output=True,
        text=True,
        timeout=500,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(results[0].removeprefix("RESULT "))
