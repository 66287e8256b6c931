"""Write the versions that pip chooses today of what instances install: ``python3 -m tests.constraints``.

An image's own torch stays. Run the tests with them before you commit the file.
"""

import datetime
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from raysm.core.protocol.packages import NEEDS
from raysm.instance.packages import TESTED


def main():
    needs = [line for module, line in NEEDS.items() if module != "torch"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--dry-run",
            "--ignore-installed",
            "--report",
            report,
        ]
        subprocess.run([*command, *needs], check=True)
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    versions = {re.sub(r"[-_.]+", "-", item["name"]).lower(): item["version"] for item in found}
    content = {
        "date": datetime.date.today().isoformat(),
        "versions": dict(sorted(versions.items())),
    }
    Path(str(TESTED)).write_text(json.dumps(content, indent=1) + "\n")
    print(f"{len(versions)} packages in {TESTED}")


if __name__ == "__main__":
    main()
