import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from trivet.cli.app import app
from trivet.ghn import GHN, GHNConfig
from trivet.models import resnet8

runner = CliRunner()


@pytest.fixture(scope="module")
def ghn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3)), seed=0).save_pretrained(tmp_path_factory.mktemp("ghn") / "g")


def test_weights_are_written_that_the_model_loads(ghn: Path, tmp_path: Path) -> None:
    out = tmp_path / "weights.safetensors"
    arguments = ["predict", "resnet8", "--ghn", str(ghn), "--width", "8", "--out", str(out), "--json"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["predicted_tensors"], report["coverage"]) == (report["tensors"], 1.0)
    model = resnet8(width=8)
    model.load_state_dict(load_file(out))
    wanted = GHN.from_pretrained(ghn).predict(resnet8(width=8), torch.zeros(1, 3, 32, 32))
    for name, value in model.named_parameters():
        torch.testing.assert_close(value, wanted[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["resnet9", "--ghn", "G"], "resnet8"),
        (["resnet8", "--ghn", "no-such-one"], "no folder 'no-such-one' here"),
        (["resnet8", "--ghn", "G", "--head", "keeep"], "did you mean 'keep'"),
        (["resnet8", "--ghn", "G", "--out", "w.pt"], "must end in .safetensors"),
        (["resnet8", "--ghn", "G", "--out", "/no/such/w.safetensors"], "nothing can be written"),
        (["resnet8", "--ghn", "G", "--input", "3"], "CHANNELSxHEIGHTxWIDTH"),
    ],
)
def test_slips_are_refused_before_torch_is_asked(
    ghn: Path, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trivet.cli.child.subprocess.run", lambda *_, **__: pytest.fail("a process was started"))
    result = runner.invoke(app, ["predict", *(str(ghn) if word == "G" else word for word in arguments)])
    assert result.exit_code == 2, result.output
    assert said in result.output


def test_another_number_of_classes_is_refused_and_nothing_is_written(ghn: Path, tmp_path: Path) -> None:
    out = tmp_path / "w.safetensors"
    result = runner.invoke(app, ["predict", "resnet8", "--ghn", str(ghn), "--classes", "7", "--out", str(out)])
    assert result.exit_code == 2
    assert "7 classes" in result.output
    assert "head='keep'" in result.output
    assert not out.exists()
