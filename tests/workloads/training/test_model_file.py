import torch
from safetensors.torch import load_file
from torch import nn

from raysm.workloads.training.model_file import MODEL_FILE, write


class Tied(nn.Module):
    """An embedding whose weights are the output layer's, and a buffer that is a part of a larger tensor."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Embedding(5, 3)
        self.outside = nn.Linear(3, 5, bias=False)
        self.outside.weight = self.inside.weight
        self.register_buffer("part", torch.arange(10.0).view(2, 5).T[1:3])


def test_plain_torch_reads_it_tied_weights_included(tmp_path):
    torch.manual_seed(0)
    model, other = Tied(), Tied()
    path = write(model.state_dict(), tmp_path / "new")
    assert path == tmp_path / "new" / MODEL_FILE
    other.load_state_dict(load_file(path))
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
    assert path.stat().st_mode & 0o777 == 0o644
