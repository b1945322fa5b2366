"""Video prediction: what a step computes, what a reused buffer does to it, what is measured, resumed and refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trivet.audit.gradients import gradient
from trivet.audit.saved import alias
from trivet.core.config import build, merge
from trivet.core.errors import ConfigError, MissingDataError
from trivet.core.io import read_jsonl
from trivet.core.runfolder import RunFolder
from trivet.models import PredNet
from trivet.tasks.buffers import feeder
from trivet.tasks.config import RunConfig
from trivet.tasks.pictures import png
from trivet.tasks.run import run_task
from trivet.tasks.video_prediction import Windows, build_job, window_loss
from trivet.tasks.video_prediction_config import VideoPredictionConfig
from trivet.training.checkpoint import Checkpoint, Checkpoints
from trivet.training.loop import fit
from trivet.training.metrics import MetricsLog

MakeRun = Callable[..., RunFolder]
CPU = torch.device("cpu")

BASE: dict[str, Any] = {
    "task": {"name": "video-prediction", "frames": 60, "height": 8, "width": 12, "channels": [3, 4, 6], "window": 4},
    "training": {"steps": 14, "batch_size": 1, "optimizer": {"name": "adam", "lr": 0.01}, "log_every": 3},
    "environment": {"device": "cpu", "threads": 1},
    "seed": 3,
}


def job_of(patch: dict[str, Any] | None = None) -> Any:
    return build_job(build(RunConfig, merge(BASE, patch or {})), CPU)


def gradients(job: Any, step: int = 0) -> list[torch.Tensor]:
    job.model.zero_grad()
    job.loss(job.model, step).backward()
    return [parameter.grad.clone() for parameter in job.model.parameters() if parameter.grad is not None]


def test_windows_against_the_video_itself() -> None:
    frames = np.arange(23, dtype=np.uint8).reshape(23, 1, 1, 1)
    for shuffle in (False, True):
        task = VideoPredictionConfig(window=3, channels=(1,), height=1, width=1, carry=False, shuffle=shuffle)
        windows = Windows(frames, task, 2, seed=1)
        assert windows.per_pass == 3
        seen = [[frame.ravel().tolist() for frame in windows.frames(step)] for step in range(6)]
        ordered = [[[3 * place + i, 9 + 3 * place + i] for i in range(3)] for place in range(3)]
        assert sorted(seen[:3]) == sorted(seen[3:]) == ordered
        assert (seen[:3] == ordered) is not shuffle or shuffle
        assert [windows.begins(step) for step in range(6)] == [True, False, False] * 2
        for step in range(6):
            total, size = windows.copied(step)
            assert (total * 255**2, size) == ((4, 4) if seen[step][0][0] == 0 else (6, 6))


@pytest.mark.parametrize("kind", ["mse", "l0", "lall"])
def test_loss_of_a_window_is_that_of_its_definition(kind: str) -> None:
    torch.manual_seed(0)
    net, video = PredNet((3, 4, 6)), torch.rand(2, 5, 3, 8, 12)
    loss, scores, state = window_loss(net, iter(video.unbind(1)), None, kind)
    out = net(video)
    squares = (out.predictions - video).square().mean((0, 2, 3, 4))
    torch.testing.assert_close(scores, squares.detach())
    expected = squares.sum() if kind == "mse" else out.loss((1.0, 0.1, 0.1) if kind == "lall" else None)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(state.cells, out.state.cells)


def test_a_reused_buffer_pulls_all_frames_towards_the_last_one() -> None:
    """The cause, as an oracle: values are those of the frames, gradients those of the last frame as every target."""
    video = np.random.default_rng(0).integers(0, 256, (4, 1, 3, 8, 12), dtype=np.uint8)
    last = feeder("copy", CPU)(video[-1])

    def run(loss_of: Callable[[PredNet], torch.Tensor]) -> tuple[float, list[torch.Tensor]]:
        torch.manual_seed(0)
        net = PredNet((3, 4, 6), gates="plain")
        loss = loss_of(net)
        loss.backward()
        return loss.item(), [parameter.grad for parameter in net.parameters() if parameter.grad is not None]

    def towards_the_last(net: PredNet) -> torch.Tensor:
        frames, state, losses = feeder("copy", CPU), None, []
        for frame in map(frames, video):
            out = net(frame[:, None], state)
            state = out.state
            losses.append((out.predictions[:, 0] - last).square().mean())
        return torch.stack(losses).sum()

    copied, right = run(lambda net: window_loss(net, map(feeder("copy", CPU), video), None, "mse")[0])
    reused, wrong = run(lambda net: window_loss(net, map(feeder("reuse", CPU), video), None, "mse")[0])
    _, expected = run(towards_the_last)
    assert reused == copied
    for got, true in zip(wrong, expected, strict=True):
        torch.testing.assert_close(got, true, rtol=1e-4, atol=1e-7)
    assert any((got - other).norm() > 0.02 * other.norm() for got, other in zip(wrong, right, strict=True))


def test_a_loss_that_keeps_its_own_difference_is_immune() -> None:
    """The published loss is made of the errors E, which are tensors of their own: bit-equal with both buffers."""
    patch = {"task": {"variant": "published"}}
    copied = gradients(job_of(patch))
    reused = gradients(job_of(merge(patch, {"task": {"buffer": "reuse"}})))
    assert all(torch.equal(a, b) for a, b in zip(copied, reused, strict=True))


@pytest.mark.parametrize("variant", ["study", "published"])
@pytest.mark.parametrize("buffer", ["copy", "reuse"])
def test_the_audits_find_the_reuse_and_nothing_else(variant: str, buffer: str) -> None:
    """The positive control: what the study's variant does with one buffer is found before anything is trained."""
    planted = (variant, buffer) == ("study", "reuse")
    job = job_of({"task": {"variant": variant, "buffer": buffer}})
    with alias(job.model) as found:
        job.loss(job.model, 0).backward()
    assert bool(found.findings) is planted
    again = job_of({"task": {"variant": variant, "buffer": buffer}})
    assert (gradient(again.model, lambda model, step: again.loss(model, step), 0).relative > 1e-4) is planted


def test_a_run_reports_what_it_says_and_learns(make_run: MakeRun) -> None:
    """All figures of a run once more, by a loop without the task's own; the last 50 windows are all of them here."""
    folder = make_run(config=merge(BASE, {"training": {"steps": 40}}))
    assert run_task(folder.path) == 0
    metrics = folder.read_result().metrics
    assert set(metrics) == set(VideoPredictionConfig.reported)
    video = build(RunConfig, BASE).task.load()  # type: ignore[attr-defined]
    trained = 48  # of 60, a fifth held out: twelve windows a pass
    job = job_of({"training": {"steps": 40}})
    optimizer = torch.optim.Adam(job.model.parameters(), lr=0.01)
    last, every, state = [], [], None
    frames = torch.from_numpy(video.frames[:trained]).float() / 255
    for step in range(40):
        window = frames[step % 12 * 4 :][:4]
        out = job.model(window[None], None if step % 12 == 0 else state)
        state = out.state.detached()
        squares = (out.predictions[0] - window).square().mean((1, 2, 3))
        optimizer.zero_grad()
        squares.sum().backward()
        optimizer.step()
        last.append(squares[-1].item())
        every.append(squares.mean().item())
    assert metrics["last_frame_mse"] == pytest.approx(np.mean(last), rel=1e-3)
    assert metrics["all_frames_mse"] == pytest.approx(np.mean(every), rel=1e-3)
    assert metrics["train_loss"] == pytest.approx(4 * metrics["all_frames_mse"], rel=1e-5)
    assert metrics["copy_mse"] == pytest.approx(video.copy_mse(0, trained), rel=0.05)
    assert every[-1] < every[0] / 3
    assert metrics["test_copy_mse"] == pytest.approx(np.mean([video.copy_mse(i + 1, i + 4) for i in (48, 52, 56)]))
    shown = {path.name: path.read_bytes() for path in folder.pictures_path.iterdir()}
    assert set(shown) == {"1 shown.png", "2 predicted.png"}


@pytest.mark.parametrize(
    "patch",
    [
        {"task": {"buffer": "reuse"}, "noise": {"kind": "rounding", "bits": 8}},
        {"task": {"variant": "published"}, "precision": {"schedule": "RR", "q_min": 4, "q_max": 8, "num_cycles": 2}},
    ],
)
def test_an_interrupted_run_ends_with_the_same_bits(patch: dict[str, Any], tmp_path: Path) -> None:
    run = build(RunConfig, merge(BASE, patch))
    assert run.training is not None

    def train(name: str, until: int) -> tuple[Checkpoint, list[dict[str, Any]]]:
        log, checkpoints = MetricsLog(tmp_path / name / "m.jsonl"), Checkpoints(tmp_path / name / "c")
        found = checkpoints.load()
        left = iter(range(until - (found.step if found else 0)))
        fit(
            build_job(run, CPU),
            run.training,  # type: ignore[arg-type]
            device=CPU,
            log=log,
            checkpoints=checkpoints,
            should_stop=lambda: next(left, None) is None,
        )
        end = checkpoints.load()
        assert end is not None
        return end, [{k: v for k, v in row.items() if k != "seconds"} for row in read_jsonl(log.path)]

    whole, rows = train("whole", 99)
    train("cut", 5)  # in the middle of a pass
    cut, cut_rows = train("cut", 99)
    assert cut_rows == rows
    assert cut.step == whole.step == 14
    assert all(torch.equal(cut.model[name], value) for name, value in whole.model.items())
    for a, b in zip(
        cut.state["steppers"]["memory"]["scores"], whole.state["steppers"]["memory"]["scores"], strict=True
    ):
        assert torch.equal(a, b)


def test_the_carried_state_counts() -> None:
    """The loss of a step depends on the one before it; the published variant's does not."""
    for variant, counts in (("study", True), ("published", False)):
        job = job_of({"task": {"variant": variant}})
        with torch.no_grad():
            job.loss(job.model, 0)
            carried = job.loss(job.model, 1)
            job.steppers["memory"].state = None
            assert (job.loss(job.model, 1) != carried) == counts


@pytest.mark.parametrize(("silent", "dead", "stuck"), [([], 0, 0), ([1], 0, 1), ([0, 1, 2], 1, 0)])
def test_outputs_that_nothing_comes_through_are_flagged(silent: list[int], dead: int, stuck: int) -> None:
    job = job_of()
    with torch.no_grad():
        output = job.model.predict[0]
        output.weight.copy_(torch.randn(output.weight.shape))
        output.bias.fill_(0.5)
        for channel in silent:
            output.weight[channel] = 0
            output.bias[channel] = -1
        found = job.evaluate()
    assert (found["dead"], found["stuck"]) == (dead, stuck)
    if dead:
        frames = build(RunConfig, BASE).task.load().frames[48:]  # type: ignore[attr-defined]
        scored = np.concatenate([frames[index + 1 : index + 4] for index in (0, 4, 8)]) / 255  # sequences of four
        assert found["test_mse"] == pytest.approx((scored**2).mean(), rel=1e-5)


def test_what_is_quantized_is_what_is_counted() -> None:
    """Every convolution, in every frame of a window; multiply-accumulates by hand."""
    job = job_of({"precision": {"schedule": "static", "bits": 8}})
    pixels = [96, 24, 6]
    cells = [(9 + 4) * 12, (12 + 6) * 16, 18 * 24]
    predict, target = [9, 16, 36], [6 * 4, 8 * 6]
    macs = 9 * (
        sum(p * (c + q) for p, c, q in zip(pixels, cells, predict, strict=True))
        + sum(p * t for p, t in zip(pixels, target, strict=False))
    )
    assert job.observe(5)["bitops"] == 4 * macs * 5 * (8 * 8 + 2 * 8 * 8)
    job.loss(job.model, 0).backward()
    rows = {row.name: row.quantised for row in job.steppers["precision"].report()}
    assert len(rows) == 8
    assert all(rows.values())


def test_initial_weights_are_those_of_the_variant() -> None:
    """Zero biases, and the spread of the formula; the same seed gives the same ones whatever else differs."""
    wide = {"channels": [3, 48, 96]}
    for initial, spread in (("lecun", lambda i, o: i**-0.5), ("glorot", lambda i, o: (2 / (i + o)) ** 0.5)):
        model = job_of({"task": {**wide, "initial": initial}}).model
        for name, value in model.named_parameters():
            if name.endswith("weight"):
                expected = spread(value[0].numel(), value[:, 0].numel())
                assert value.std().item() == pytest.approx(expected, rel=0.15), name
            else:
                assert not value.any(), name
    random = job_of({"task": {"initial": "torch"}}).model
    assert all(value.any() for name, value in random.named_parameters() if name.endswith("bias"))
    first, second = (job_of({"task": {"buffer": buffer}}).model.state_dict() for buffer in ("copy", "reuse"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_png_is_read_back() -> None:
    image = pytest.importorskip("PIL.Image")
    import io

    picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(image.open(io.BytesIO(png(picture)))), picture)


@pytest.mark.parametrize(
    ("patch", "key", "words"),
    [
        ({"data": ""}, "task", "`data` is empty"),
        ({"variant": "publishd"}, "task.variant", "did you mean 'published'"),
        ({"carry": True, "shuffle": True}, "task", "needs the windows in order"),
        ({"variant": "published", "carry": True}, "task", "set `shuffle: false`"),
        ({"channels": [2, 4]}, "task", "must begin with 3"),
        ({"channels": []}, "task", "must begin with 3"),
        ({"channels": [3, 0]}, "task", r"`channels=0` must lie in \[1, 4096\]"),
        ({"height": 10}, "task", "multiples of 4"),
        ({"height": 0}, "task", r"`height=0` must lie in \[1, 2048\]"),
        ({"window": 1}, "task", "window=1"),
        ({"frames": 1}, "task", "one frame predicts nothing"),
        ({"held_out": 0.0}, "task", "held_out=0.0"),
        ({"buffer": "share"}, "task.buffer", "allowed"),
        ({"windo": 3}, "task.windo", "did you mean 'window'"),
    ],
)
def test_refused_when_built(patch: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        build(RunConfig, merge(BASE, {"task": patch}), file="s.yaml")
    assert [problem.key for problem in caught.value.problems] == [key]


def test_videos_that_are_too_short_are_refused_before_any_work(tmp_path: Path) -> None:
    for count, key, words in (
        (1, "task.data", "at least 2 frames"),
        (7, "task.data", "2 frames"),
        (11, "task.window", "at most the 9 frames"),
    ):
        path = tmp_path / f"{count}.npy"
        np.save(path, np.zeros((count, 8, 12), np.uint8))
        patch = {"task": {"data": str(path), "window": 10}}
        with pytest.raises(ConfigError, match=words) as caught:
            build(RunConfig, merge(BASE, patch)).check(file="s.yaml")
        assert [problem.key for problem in caught.value.problems] == [key]
    np.save(tmp_path / "b.npy", np.zeros(3))
    with pytest.raises(ConfigError, match="found float64"):
        build(RunConfig, merge(BASE, {"task": {"data": str(tmp_path / "b.npy")}})).check()
    with pytest.raises(ConfigError, match=r"3 × task.window=20 = 60 frames a step.*at most the 48 frames"):
        build(RunConfig, merge(BASE, {"task": {"window": 20}, "training": {"batch_size": 3}})).check()


def test_a_missing_video_is_exit_code_2(make_run: MakeRun) -> None:
    config = merge(BASE, {"task": {"data": "no-such-video"}})
    with pytest.raises(MissingDataError, match="'no-such-video' is not on this machine"):
        build(RunConfig, config).check()
    folder = make_run(config=config)
    assert run_task(folder.path) == 2
    assert "no-such-video" in (folder.read_error() or {})["message"]
    assert not folder.result_path.exists()


def test_real_frames_are_predicted(shared_dir: Path) -> None:
    """Forty windows of a real drive take the error of a small network below a tenth of what it began with."""
    data = str(shared_dir / "data" / "donkey_first_person" / "images")
    job = job_of({"task": {"data": data, "frames": 120}, "training": {"steps": 40}})
    optimizer = torch.optim.Adam(job.model.parameters(), lr=0.01)
    losses = []
    for step in range(40):
        loss = job.loss(job.model, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
