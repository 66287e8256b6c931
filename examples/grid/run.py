"""Campaigns in four regions, each trained where its images lie: one command, on a laptop.

python3 examples/grid/run.py [FOLDER]

Four embedded regions, of which one has no capacity and one takes back its spare instances; a table of campaigns, one of
them with a typo; SQL that joins them with prices; a job of two instances for each row. What is left at the end is
FOLDER/drives.html, and this machine's regions: raysm local down ends them.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

import raysm

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from campaigns import REGIONS, make  # noqa: E402

QUERY = """
SELECT campaign AS key, region, uri AS input_data, gb AS input_gb, seconds AS expected_s, lr
FROM drives JOIN prices USING (region)
WHERE day >= :since AND usd_per_hour <= :most ORDER BY usd_per_hour, campaign
"""
PARAMS = {"since": "2026-10-01", "most": 2.5}


def main(folder):
    subprocess.run(
        [sys.executable, "-m", "raysm", "local", "up", "--scenario", str(HERE / "scenario.toml")], check=True
    )
    grid = raysm.Grid(
        raysm.Script(str(HERE / "train.py"), args=("--campaign", "{key}", "--lr", "{lr}")),
        rows=raysm.Query(QUERY, on=str(make(folder)), params=PARAMS),
        name="drives",
        on=raysm.Local(regions=REGIONS),
        regions=REGIONS,
        instance_type="ml.m5.large",
        count=2,
        spot=True,
        limits=raysm.Limits(max_runtime_s=600),
        # Three at a time: a laptop is no region. A row whose region has no capacity may go elsewhere.
        rules=raysm.Rules(rate="images_per_s", parallel=3, retries=0, max_cost=100, move_data=True),
    )
    print(grid.plan())
    with Live(console=Console(), auto_refresh=False) as live:
        end = grid.run(seen=lambda view: live.update(Text(str(view)), refresh=True))
        live.update(Text(str(end)), refresh=True)
    # In a file of lines the last screen has no end of its own.
    print(f"\n{grid.report(folder / 'drives.html')}")
    return end


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
