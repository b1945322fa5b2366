"""Rows of the claims board: what each document says, where our figure stands, how the verdict follows from it.

Not a benchmark; `claims.py` imports it. A verdict is computed from the numbers that the patterns catch.
"""

from claims_parts import Claim, Full, correlated, correlation, figure, number

_KIND = r"begin: benchmarks/ghn_evaluation.py fashion-small.*?"

ROWS: tuple[Claim, ...] = (
    Claim(
        name="A1",
        says="PredNet and a plain autoencoder, both without labels",
        figures=(
            figure(
                "gpu-uncertainty.md",
                r"Doing nothing \(`copy_mse`\) scores #; the best run of copied #",
                "PredNet on a real drive: last-frame error {1} at best, copying the last frame {0}",
            ),
        ),
        verdict=lambda c: (
            "built; the best seed is better than copying"
            if number(c[0][1]) < number(c[0][0])
            else "built; no better than copying"
        ),
        again="`gpu-uncertainty`, `autoencoder-buffer`",
        full=Full(recipe="full/gpu-uncertainty", macs=4.6e9, examples=20, steps=250, runs=120),
    ),
    Claim(
        name="A2",
        says="4 CPUs and 8 GPUs, with and without cuDNN, 1 to 6 threads",
        figures=(
            figure(
                "doctor.md",
                r"(threads 2) \| (yes) \|.*?(threads 4) \| no: asked 4, got #",
                "settings are set in a fresh process and verified: {0} realised, {2} not (got {3})",
            ),
        ),
        verdict=lambda c: "built; no second CPU and no GPU here",
        again="`trivet doctor --all`",
    ),
    Claim(
        name="A3",
        says="mean error of the last 50 windows of 20 frames",
        figures=(
            figure("gpu-uncertainty.md", r"SD of copied over these seeds #", "`last_frame_mse`, SD over seeds {0}"),
        ),
        again="`gpu-uncertainty`",
    ),
    Claim(
        name="A4",
        says="the autoencoder does not differ between CPUs and GPUs, PredNet does",
        figures=(
            figure(
                "gpu-uncertainty.md",
                r"\| reuse \| all, # \| # \[#, #\][^|]*\|[^|]*\|[^|]*\| \*\*(\w+)\*\*",
                "PredNet, one shared host buffer: {1} [{2}, {3}], n = {0}, {4}",
            ),
            figure(
                "gpu-uncertainty.md",
                r"\| lowest-isa \| all, # \| # \[#, #\][^|]*\|[^|]*\|[^|]*\| \*\*(\w+)\*\*",
                "PredNet, oldest instruction sets: {1} [{2}, {3}], n = {0}, {4}",
            ),
        ),
        verdict=lambda c: f"software fault {c[0][-1]}, hardware setting {c[1][-1]}",
        why_not="the arm of other instruction sets has not finished",
        again="`gpu-uncertainty`",
    ),
    Claim(
        name="A5",
        says="GPUs' indeterminate arithmetic may help training",
        figures=(
            figure(
                "noise.md",
                r"\| 2\^-1 \| # \| \[#, #\].*?\| (\w+) \|[^|]*\|\n\| order",
                "the largest dose, 2^-1: {0} [{1}, {2}], {3}",
            ),
            figure(
                "noise.md",
                r"\| order \| # \| \[#, #\].*?\| (\w+) \|[^|]*\|\n.*?n = # pairs",
                "reduction order shuffled: {0} [{1}, {2}], n = {4}, {3}",
            ),
        ),
        verdict=lambda c: "not found: no dose helps" if c[0][3] == c[1][3] == "equivalent" else "undecided",
        again="`noise-fashion`",
    ),
    Claim(
        name="A6",
        says="GPUs may avoid saddle points better",
        figures=(
            figure(
                "curvature.md",
                r"Of # comparisons: # different, # equivalent, # undecided",
                "curvature over environments: {1} of {0} comparisons different, {2} equivalent, {3} undecided",
            ),
        ),
        verdict=lambda c: (
            "differs"
            if number(c[0][1])
            else f"no difference: {c[0][2]} of {c[0][0]} equivalent"
            if number(c[0][2])
            else "undecided"
        ),
        again="`curvature-digits`",
    ),
    Claim(
        name="A7",
        says="retracted: the difference came from the library, not from hardware",
        figures=(
            figure(
                "gpu-uncertainty.md",
                r"reuse / copied on the # seeds that learn in both: ×# to ×#, median ×#",
                "one reused buffer multiplies the error by {3} ({1} to {2}, n = {0}) on one and the same CPU",
            ),
        ),
        verdict=lambda c: "reproduced by a software fault alone; that it was this one is inferred",
        again="`gpu-uncertainty`",
        full=Full(recipe="full/gpu-uncertainty", macs=4.6e9, examples=20, steps=250, runs=120),
    ),
    Claim(
        name="B1",
        says="a network is a graph of its operations",
        figures=(
            figure(
                "graphs.md",
                r"\| torchvision \| # \| # \| # \| #",
                "{1} of {0} torchvision models, {3} of {2} tensors placed",
            ),
        ),
        again="`python benchmarks/graph_coverage.py`",
    ),
    Claim(
        name="B2",
        says="15 node types, a million random architectures",
        figures=(
            figure(
                "deepnets.md",
                r"\| `train` \| here \| # \| [^|]* \| # ± #",
                "training networks have {1} ± {2} nodes (n = {0}; published 192.3)",
            ),
        ),
        again="`trivet ghn stats --count 100`",
    ),
    Claim(
        name="B3",
        says="the hypernetwork learns from the loss of the networks it fills in",
        figures=(
            figure(
                "training-hypernetworks.md",
                r"equal-compute -->.*?\| test \| # ± # \(n = #\)",
                "{0} ± {1} % on {2} unseen networks after 1,100 CPU-s; the published recipe 37.4 ± 2.3 after the same",
            ),
        ),
        verdict=lambda c: "supported",
        again="`trivet ghn train ghn-train-fashion.yaml`",
        full=Full(recipe="full/ghn-train-cifar10", macs=5e8, examples=64 * 8, steps=210_937, runs=1),
    ),
    Claim(
        name="B4",
        says="parameters of an unseen network in a fraction of a second",
        figures=(
            figure(
                "training-hypernetworks.md",
                r"A prediction takes as long as # SGD steps",
                "as long as {0} SGD steps of 64 images",
            ),
        ),
        verdict=lambda c: "supported" if number(c[0][0]) <= 1 else "slower than a step",
        again="`trivet ghn eval fashion-small`",
    ),
    Claim(
        name="B5",
        says="66.9 % on unseen networks, about 60 % out of distribution, 58.6 % on ResNet-50",
        figures=(
            figure(
                "training-hypernetworks.md",
                _KIND + r"\| test \| # ± # \(n = #\)",
                "Fashion-MNIST: {0} ± {1} % (n = {2})",
            ),
            figure("training-hypernetworks.md", _KIND + r"\| deep \| # ± # \(n = #\)", "deep {0} ± {1} (n = {2})"),
            figure("training-hypernetworks.md", _KIND + r"\| wide \| # ± # \(n = #\)", "wide {0} ± {1} (n = {2})"),
            figure("training-hypernetworks.md", _KIND + r"\| predefined \| # ± # \(n = 2\) \| #", "ResNet-50 {2} %"),
        ),
        verdict=lambda c: "supported for networks like those trained on; not for ResNet-50",
        again="`trivet ghn eval fashion-small`",
        full=Full(recipe="full/ghn-train-cifar10", macs=5e8, examples=64 * 8, steps=210_937, runs=1),
    ),
    Claim(
        name="B6",
        says="a hypernetwork ranks candidate architectures",
        figures=(
            figure(
                "ranking.md",
                r"\| accuracy with predicted parameters \| # \(# to #\)",
                "Kendall τ with trained accuracy: predicted accuracy {0} ({1} to {2})",
            ),
            figure(
                "ranking.md",
                r"\(n = #\) \| with batch.*?\| fitted: node embeddings \| # \(# to #\)",
                "regression on embeddings {1} ({2} to {3}), n = {0} networks",
            ),
            figure("ranking.md", r"\| parameters \| # \(# to #\)", "number of parameters {0} ({1} to {2})"),
        ),
        verdict=lambda c: (
            "supported by embeddings; predicted accuracy alone is weak"
            if number(c[1][2]) > number(c[2][2])
            else "no better than counting parameters"
        ),
        why_not="a hundred networks have not been trained yet",
        again="`trivet ghn rank fashion-small --networks 100`",
    ),
    Claim(
        name="B7",
        says="predicted parameters are a start for fine-tuning",
        figures=(
            figure(
                "training-hypernetworks.md",
                r"\| ghn \| 0\.01 \| # \|(?:[^|]*\|){7} # \(# to #\) \| (\w+)",
                "steps to 80 %, over a random start: {1} ({2} to {3}), n = {0}, {4}",
            ),
            figure(
                "tasks/node-classification.md",
                r"5 steps the mean accuracy is # with the predicted start, # with a random one",
                "a graph network after 5 steps {0} against {1}, the same at the end",
            ),
            figure(
                "tasks/detection.md",
                r"predicted minus random is #\s+\(95 % t-interval # to #, n = # pairs, exact sign-flip p = #\), (\w+)",
                "a detector, mAP at 0.5 {0} ({1} to {2}, n = {3}), {5}",
            ),
        ),
        verdict=lambda c: (
            "supported on images at this rate, gone at 0.05; not on graphs, worse for a detector"
            if c[0][-1] == "different"
            else c[0][-1]
        ),
        again="`ghn-init-fashion`, `ghn-init-cora`, `ghn-init-bccd`",
    ),
    Claim(
        name="B8",
        says="open: one hypernetwork for several tasks",
        figures=(
            figure(
                "task-conditioning.md",
                r"that is shown the task \| # ± # \(n = #\) \|.*?that is not, same recipe \| # ± #",
                "five classes never seen: {0} ± {1} % when shown the task, {3} when not (n = {2}; chance 20)",
            ),
            figure("task-conditioning.md", r"pixels, no network \| #", "nearest mean of pixels {0} %"),
        ),
        verdict=lambda c: (
            "possible" + ("; useful" if number(c[0][0]) > number(c[1][0]) else "; not yet useful")
            if number(c[0][0]) - 2 * number(c[0][1]) > number(c[0][3])
            else "not found"
        ),
        why_not="the two trainings have not been run",
        again="`trivet ghn train ghn-train-tasks.yaml`",
    ),
    Claim(
        name="B9",
        says="open: when it errs, nobody can explain it",
        figures=(
            figure("diagnosis.md", r"(trivet ghn diagnose)", "layer by layer, with simultaneous intervals: `{0}`"),
        ),
        again="`trivet ghn diagnose fashion-small torchvision:resnet50`",
    ),
    Claim(
        name="C1",
        says="lower precision makes training cheaper",
        figures=(
            figure(
                "tasks/language-model.md",
                r"static 8 bits \| # \[#, #\] \| # \| # %",
                "LSTM at 8 bits: {4} % of the BitOPs, perplexity {0} [{1}, {2}], n = {3}",
            ),
        ),
        verdict=lambda c: "supported in BitOPs; simulated steps take longer in seconds",
        again="`language-model-kjv`",
    ),
    Claim(
        name="C2",
        says="a schedule is a profile, a number of cycles, repeated or triangular",
        figures=(
            figure(
                "precision.md",
                r"\| schedule \| (group) \| mean bits",
                "all ten by name, any other by its parts, each with its {0} by cost",
            ),
        ),
        again="`trivet schedule RR`",
    ),
    Claim(
        name="C3",
        says="images, detection, graphs, language, text fine-tuning",
        figures=(
            figure(
                "tasks/image-classification.md",
                r"over both together # \(# to #, p = #\)",
                "8 bits minus full precision: images {0} ({1} to {2}), equivalent",
            ),
            figure(
                "tasks/node-classification.md",
                r"equivalent: the mean difference over both graphs is # \(90 % interval # to #, n = #",
                "graphs {0} ({1} to {2}, n = {3}), equivalent",
            ),
            figure(
                "tasks/detection.md",
                r"mean difference static8 − fp32 = # \((?:95 % t-|90 % )interval # to #, n = # pairs",
                "detection, mAP at 0.5 {0} ({1} to {2}, n = {3})",
            ),
            figure(
                "tasks/text-classification.md",
                r"begin: text-classification-clinc150 -->.*?\| static8 \| static \|[^|]*\|[^|]*\| # \| (\w+), #",
                "text {2} (n = {0}), {1}",
            ),
            figure(
                "tasks/language-model.md",
                r"\| fp32 \| static \| 16\.000 \|[^|]*\| # \| (\w+), #",
                "language, perplexity (full precision minus 8 bits) {2} (n = {0}), {1}",
            ),
        ),
        verdict=lambda c: "built, each on real data",
        again="one recipe a task, see the pages",
    ),
    Claim(
        name="C4",
        says="outcome goes with compute spent",
        figures=(
            figure(
                "schedules-study.md",
                r"\*\*#\*\* over all 14 arms \(95 % t-interval over # seeds # to #\)",
                "images: Spearman {0} [{2}, {3}], n = {1} seeds",
            ),
            correlation("tasks/node-classification.md", "schedules-cora", "graphs"),
            correlation("tasks/autoencoding.md", "schedules-autoencoder", "autoencoder (error)"),
            correlation("tasks/language-model.md", "schedules-kjv", "language (perplexity)"),
            correlation("tasks/text-classification.md", "schedules-clinc150", "text"),
            correlation("tasks/detection.md", "schedules-bccd", "detection"),
            correlation("tasks/video-prediction.md", "schedules-video", "video (error)"),
        ),
        verdict=correlated,
        again="`schedules-fashion`, and the recipe named on each page",
        full=Full(recipe="full/schedules-cifar10", macs=1.7e8, examples=128, steps=64_000, runs=96),
    ),
    Claim(
        name="C5",
        says="small schedules to save the most, large ones for the best model",
        figures=(
            figure(
                "schedules-study.md",
                r"\| RR \| small \| # \| # .*?\| ER \| large \| # \| # .*? \| equivalent",
                "images: RR {0} × the BitOPs of static 8 and accuracy {1}; ER {2} × and {3}, equivalent to static 8",
            ),
        ),
        verdict=lambda c: "supported on images" if number(c[0][1]) < number(c[0][3]) else "not supported",
        again="`trivet advise`",
    ),
    Claim(
        name="C6",
        says="low precision early does permanent damage",
        figures=(
            figure(
                "schedules.md",
                r"\| 200 \| # \[#, #\] \| 60",
                "digits, 200 of 400 steps at 2 bits: damage {0} [{1}, {2}]",
            ),
            figure(
                "tasks/node-classification.md",
                r"\| 0 \| # \| # to # \|\n\| 15",
                "Cora, first 20 of 80 steps at 2 bits: damage {0} [{1}, {2}]",
            ),
            figure(
                "tasks/node-classification.md",
                r"\| 240 \| # \| # to # \|",
                "240 steps at 2 bits in front: {0} [{1}, {2}]",
            ),
            figure(
                "tasks/language-model.md",
                r"starts at step \| damage in test perplexity .*?\| 0 \| # \| # to # \|",
                "language, first 100 of 500 steps at 2 bits: perplexity {0} [{1}, {2}]",
            ),
        ),
        # each figure ends with the limits of its damage
        verdict=lambda c: (
            "found"
            if any(number(g[-2]) > margin for g, margin in zip(c, (0.01, 0.01, 0.01, 2.0), strict=True))
            else "not found here beyond the margins: a point of accuracy, two of perplexity"
        ),
        again="`critical-length-digits`, `critical-window-cora`, `critical-length-cora`, `critical-window-kjv`",
        full=Full(recipe="full/critical-length-cifar10", macs=1.7e8, examples=128, steps=360_000, runs=48),
    ),
)
