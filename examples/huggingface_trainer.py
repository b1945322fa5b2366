"""A tiny BERT in the Hugging Face Trainer, on a precision schedule, stopped and resumed.

pip install 'trivet[huggingface]'; python examples/huggingface_trainer.py
"""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from trivet.integrations.huggingface import PrecisionCallback
from trivet.precision import PrecisionConfig

BATCH, STEPS = 16, 20


def examples(number: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Sentences of twelve words; the label says whether word 1 occurs more often than word 2."""
    words = torch.randint(0, 5, (number, 12), generator=torch.Generator().manual_seed(seed))
    labels = ((words == 1).sum(1) > (words == 2).sum(1)).long()
    return [{"input_ids": sentence, "labels": label} for sentence, label in zip(words, labels, strict=True)]


def trainer(folder: str, callback: PrecisionCallback) -> Trainer:
    """A new model and a new Trainer, as a new process would make them."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=5, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_labels=2
    )
    arguments = TrainingArguments(
        folder,
        max_steps=STEPS,
        per_device_train_batch_size=BATCH // 2,
        gradient_accumulation_steps=2,  # the schedule moves once per optimizer step all the same
        learning_rate=3e-3,
        logging_steps=5,
        save_steps=10,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    return Trainer(
        BertForSequenceClassification(config),
        arguments,
        train_dataset=examples(320, seed=1),
        eval_dataset=examples(200, seed=2),
        callbacks=[callback],
    )


schedule = PrecisionConfig(schedule="RR", q_min=4, q_max=8, num_cycles=2)
with tempfile.TemporaryDirectory() as folder:
    callback = PrecisionCallback(schedule)
    first = trainer(folder, callback)
    first.train()
    loss = first.evaluate()["eval_loss"]  # at 8 bits, the most of the schedule

    again = trainer(folder, PrecisionCallback(schedule))
    again.train(resume_from_checkpoint=f"{folder}/checkpoint-10")
    resumed = again.evaluate()["eval_loss"]

quantized = [row for row in callback.report() if row.quantised]
print(f"{len(quantized)} products quantized, {callback.controller.cost:.3g} BitOPs")
print(f"loss {loss:.4f}, resumed after 10 steps {resumed:.4f}, equal: {loss == resumed}")
