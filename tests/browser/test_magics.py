"""``%%raysm`` in JupyterLab in a real browser, with a session's own server."""

import pytest

from tests.support.browsers import looking
from tests.support.session_process import ROOT, serving

expect = pytest.importorskip("playwright.sync_api").expect
pytest.importorskip("nbformat")

pytestmark = pytest.mark.browser

OPEN = """
import sys
sys.path.insert(0, {root!r})
from tests.support.stub_job import near
digits = near({folder!r}, {port})
%load_ext raysm
%raysm connect digits"""

RICH = """%%raysm
import matplotlib.pyplot as plt, pandas as pd
from IPython.display import HTML
from tqdm.auto import tqdm
for step in tqdm(range(5), desc="training"):
    pass
display(HTML("<b>accuracy</b> by epoch"))
display(pd.DataFrame({"epoch": [1, 2, 3], "accuracy": [0.81, 0.92, 0.95]}))
plt.figure(figsize=(4, 1.5))
plt.plot([1, 2, 3], [0.81, 0.92, 0.95])
plt.show()
%timeit -n 100 -r 3 sum(range(100))"""

HOSTILE = """%%raysm
print("<img src=x onerror='window.attacked = 1'>")
{"<script>window.attacked = 1</script>": 1}"""


def test_figures_frames_bars_and_magics_of_a_remote_cell_are_shown(browser, lab, tmp_path, picture):
    with serving(tmp_path) as port, looking(browser) as (context, _):
        opened = OPEN.format(root=str(ROOT), folder=str(tmp_path), port=port)
        path = lab.write("rich", [opened, RICH, HOSTILE, "%raysm close"])
        notebook = lab.open(context.new_page(), path).begin()
        notebook.run()
        expect(notebook.output(0).get_by_text("digits").first).to_be_visible()
        notebook.run()
        output = notebook.output(1)
        expect(output.locator("img[src^='data:image/png']")).to_be_visible(timeout=120_000)
        expect(output).to_contain_text("accuracy by epoch")
        expect(output.locator("table").first).to_contain_text("0.95")
        expect(output).to_contain_text("training: 100%")
        expect(output).to_contain_text("loops each")
        picture(notebook.page.locator(".jp-Notebook .jp-Cell").nth(1), "remote-cell")
        notebook.run()
        expect(notebook.output(2)).to_contain_text("<img src=x onerror")
        expect(notebook.output(2)).to_contain_text("<script>")
        assert notebook.page.evaluate("window.attacked") is None
        notebook.run()
        expect(notebook.output(3)).to_contain_text("is closed")
