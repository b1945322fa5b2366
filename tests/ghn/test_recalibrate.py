import pytest
import torch
from torch import nn

from trivet.ghn.recalibrate import recalibrate_bn


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
    )


def test_statistics_are_plain_averages_over_batches() -> None:
    model = small().eval()
    batches = [torch.randn(5, 2, 6, 6) * (index + 1) + index for index in range(3)]
    assert recalibrate_bn(model, batches) == 3
    with torch.no_grad():
        outputs = [model[0](batch) for batch in batches]
    mean = torch.stack([output.mean((0, 2, 3)) for output in outputs]).mean(0)
    variance = torch.stack([output.transpose(0, 1).flatten(1).var(1) for output in outputs]).mean(0)
    torch.testing.assert_close(model[1].running_mean, mean)
    torch.testing.assert_close(model[1].running_var, variance)
    assert model[1].num_batches_tracked.item() == 3


def test_nothing_but_statistics_changes() -> None:
    model = small()
    model[1].momentum = 0.3
    model[5].eval()
    before = {name: value.clone() for name, value in model.named_parameters()}
    state = torch.get_rng_state()
    recalibrate_bn(model, [torch.randn(4, 2, 6, 6, generator=torch.Generator().manual_seed(1))])
    assert model[1].momentum == 0.3
    assert model.training
    assert [model[1].training, model[5].training] == [True, False]
    assert torch.equal(state, torch.get_rng_state())  # dropout drew nothing
    assert all(torch.equal(before[name], value) and value.grad is None for name, value in model.named_parameters())


def test_predictions_in_evaluation_mode_match_batch_statistics() -> None:
    model = small().eval()
    batch = torch.randn(64, 2, 6, 6)
    recalibrate_bn(model, [batch])
    evaluated = model[:2](batch)
    model[1].train()
    torch.testing.assert_close(evaluated, model[:2](batch), rtol=1e-3, atol=1e-3)


def test_errors_leave_the_model_as_it_was() -> None:
    model = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for bad, kind in (
        ([], ValueError),
        ([torch.full((4, 2, 6, 6), torch.inf)], ValueError),
        ([torch.randn(4, 2, 6, 6), "x"], TypeError),
        ([()], TypeError),
        ([torch.randn(4, 3, 6, 6)], RuntimeError),
    ):
        with pytest.raises(kind):
            recalibrate_bn(model, bad)
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        assert model[1].momentum == 0.1
        assert model.training
    with pytest.raises(ValueError, match="max_batches=-1"):
        recalibrate_bn(model, [], max_batches=-1)


def test_models_without_tracked_statistics_and_other_inputs() -> None:
    assert recalibrate_bn(nn.Linear(2, 2), [torch.ones(1, 2)]) == 0
    assert recalibrate_bn(nn.BatchNorm1d(2, track_running_stats=False), []) == 0
    norm = nn.BatchNorm1d(2)
    assert recalibrate_bn(norm, ({"input": torch.randn(3, 2)} for _ in range(5)), max_batches=2) == 2
    assert recalibrate_bn(norm, [[torch.randn(3, 2), torch.zeros(3)]]) == 1
