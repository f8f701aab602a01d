"""Define the other sections of a trial's configuration, and `Trial`, which contains all.

Losses and methods check a `Trial`; only `TrialConfig` (`trainables/trial.py`) knows which of them
exist. Fields marked `identity=False`, such as paths and block sizes, do not change numbers and are
left out of the trial's id (`trainables/core/identity.py`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from trainables.config.images import DataConfig
from trainables.config.network import BackboneConfig, EmbeddingConfig
from trainables.config.optimization import OptimizerConfig, ScheduleConfig
from trainables.config.registry import ComponentConfig, NamedConfig, exclude_from_identity

SelectedBy = Literal["map_at_r", "r_precision", "recall_at_1", "top_1_accuracy", "top_5_accuracy"]


class TrainingConfig(ComponentConfig):
    """The loop.

    epochs: the warm-up's included. batch_size: images a step, a multiple of per_class.
    per_class: images of each class in a batch; 1: batches are drawn at random.
    precision: of the backbone, "bf16" by autocast; head, method, loss and flow are in fp32.
    channels_last: memory layout of convolutions.
    clip_value: bound of each entry of the gradient. None: off.
    clip_norm: bound of the gradient's norm. None: off.
    checkpointing: the backbone keeps what goes into each of its blocks, and computes the rest anew
        in `backward` (`backbones/memory.py`). None: off.
    micro_batch: images that go through the backbone at once; the loss is that of the whole batch
        all the same (`backbones/grad_cache.py`). None: all.

    packed: went in 0.2.0 and is None; trials of before say how many of them trained as one program.

    `checkpointing` and `micro_batch` change rounding alone, and so are no part of a trial's
    identity; what they cost and save is said where they are made.
    """

    epochs: int = Field(20, ge=1, le=10_000)
    batch_size: int = Field(128, ge=2)
    per_class: int = Field(4, ge=1)
    precision: Literal["fp32", "bf16"] = "fp32"
    channels_last: bool = True
    clip_value: float | None = Field(10.0, gt=0)
    clip_norm: float | None = Field(None, gt=0)
    checkpointing: bool | None = exclude_from_identity(None)
    micro_batch: int | None = exclude_from_identity(None, ge=1)
    packed: int | None = Field(None, ge=2, le=256)

    @model_validator(mode="after")
    def check_whole_classes(self) -> TrainingConfig:
        """Check that a batch has the same number of images of each class."""
        if self.batch_size % self.per_class:
            raise ValueError(
                f"batch_size {self.batch_size} must be a multiple of per_class {self.per_class}"
            )
        return self


class SelectionConfig(ComponentConfig):
    """Which epoch is kept: the best on the selection split.

    metric: by which; in classification an accuracy, top_1_accuracy unless said.
    every: so many epochs are trained between two looks.
    keep: "last" keeps the last epoch whatever it is worth, and so shows what training to the end
        does, which choosing the best epoch hides. None: "best".
    train_curve: the classes that are trained on are looked at as often, without augmentation, for
        curves of theirs; nothing is selected by them. None: they are not.
    """

    metric: SelectedBy = "map_at_r"
    every: int = Field(1, ge=1)
    keep: Literal["best", "last"] | None = None
    train_curve: bool | None = None

    @field_validator("keep", "train_curve")
    @classmethod
    def normalize_default(cls, value: str | bool | None) -> str | bool | None:
        """Store the default as None, so that writing it out keeps the trial's id."""
        return None if value in ("best", False) else value


class EvaluationConfig(ComponentConfig):
    """How a trained network is read. What is off leaves no trace in the trial's identity.

    restarts: starts of the k-means behind NMI, AMI and F1, of which the one of least spread counts;
        time grows with it, and the trial becomes another. None: one start. It steadies little, for
        of clusterings that are about as tight the tightest need not agree best: over 20 seeds the
        standard deviation of NMI on 30 classes of typefaces is 0.012 with 1 start, 0.010 with 10.
    """

    restarts: int | None = Field(None, ge=1, le=100)

    @field_validator("restarts")
    @classmethod
    def normalize_restarts(cls, value: int | None) -> int | None:
        """Store the default as None, so that writing it out keeps the trial's id."""
        return None if value == 1 else value


class Trial(ComponentConfig):
    """One trial, resolved, with any loss and method: `TrialConfig` is one with those there are.

    task: see `trainables/evaluation/tasks.py`. None: retrieval.
    data: the images.
    loss: what scores and pairs are worth; default: proxy_anchor.
    method: what is done with features and embeddings around it; default: plain.
    """

    task: Literal["retrieval", "classification"] | None = None
    data: DataConfig = DataConfig()
    backbone: BackboneConfig = BackboneConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    loss: NamedConfig
    method: NamedConfig
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    training: TrainingConfig = TrainingConfig()
    selection: SelectionConfig = SelectionConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @field_validator("task", mode="before")
    @classmethod
    def normalize_task(cls, value: Any) -> Any:
        """Store the default as None, so that writing it out keeps the trial's id."""
        return None if value == "retrieval" else value
