"""Define the other sections of a trial's configuration, and `Trial`, which contains all.

Losses and methods check a `Trial`; only `TrialConfig` (`trainables/trial.py`) knows which of them
exist. Fields marked `identity=False`, such as paths and block sizes, do not change numbers and are
left out of the trial's id (`trainables/core/identity.py`).
"""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from trainables.config.images import DataConfig
from trainables.config.network import BackboneConfig, EmbeddingConfig
from trainables.config.optimization import OptimizerConfig, ScheduleConfig
from trainables.config.registry import (
    ComponentConfig,
    NamedConfig,
    exclude_from_identity,
    store_as_none,
)
from trainables.words.metrics import ACCURACIES, SELECTING

if TYPE_CHECKING:
    SelectedBy = str
else:
    SelectedBy = Literal[*SELECTING, *ACCURACIES]


class TrainingConfig(ComponentConfig):
    """Epochs, batches, precision and memory of training.

    epochs: number of epochs, the warm-up included.
    batch_size: images of a step, a multiple of per_class.
    per_class: images of each class in a batch; 1: batches are drawn at random.
    precision: precision of the backbone, "bf16" by autocast. Head, method, loss and flow are fp32.
    channels_last: memory layout of convolutions.
    clip_value: bound of each entry of the gradient. None: off.
    clip_norm: bound of the gradient's norm. None: off.
    checkpointing: store only the inputs of the backbone's blocks, and compute the rest again in
        `backward` (`backbones/memory.py`). None: off.
    micro_batch: images that go through the backbone at once; the loss is still that of the whole
        batch (`backbones/memory.py`). None: all.
    measure_terms: log the ratio of each term's gradient to the metric term's, in the first three
        steps and then in every hundredth (`core/loss_terms.py`). None: on.
    packed: is None. Files of version 0.2.0 have the key.

    `checkpointing` and `micro_batch` change only rounding, and `measure_terms` changes no number,
    so that they are no part of a trial's identity.
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
    measure_terms: bool | None = exclude_from_identity(None)
    packed: None = None

    @model_validator(mode="after")
    def check_whole_classes(self) -> "TrainingConfig":
        """Check that a batch can have `per_class` images of each of its classes."""
        if self.batch_size % self.per_class:
            raise ValueError(
                f"batch_size {self.batch_size} must be a multiple of per_class {self.per_class}"
            )
        return self


class SelectionConfig(ComponentConfig):
    """Which epoch is kept.

    metric: metric that decides, on the selection split; in classification an accuracy, by default
        top_1_accuracy.
    every: number of epochs between two evaluations.
    keep: "best" keeps the best epoch, "last" the last one, which shows what training to the end
        does. None: "best".
    train_curve: also evaluate the training classes, without augmentation, for their curves; this
        selects nothing. None: off.
    """

    metric: SelectedBy = "map_at_r"
    every: int = Field(1, ge=1)
    keep: Annotated[Literal["best", "last"] | None, store_as_none("best")] = None
    train_curve: Annotated[bool | None, store_as_none(False)] = None


class EvaluationConfig(ComponentConfig):
    """How a trained network is evaluated.

    restarts: number of starts of the k-means behind NMI, AMI and F1, of which the one with the
        smallest objective counts; the time grows with it. None: one start. More starts steady the
        metrics little, because of clusterings of about equal objective the best need not agree best
        with the classes: over 20 seeds the standard deviation of NMI on 30 classes of typefaces is
        0.012 with 1 start, 0.010 with 10.
    """

    restarts: Annotated[int | None, Field(ge=1, le=100), store_as_none(1)] = None


class Trial(ComponentConfig):
    """One trial with any loss and method; `TrialConfig` is one with those that are registered.

    task: see `trainables/evaluation/tasks.py`. None: retrieval.
    data: the images.
    loss: the loss on scores or pairs; default: proxy_anchor.
    method: what is done with features and embeddings around the loss; default: plain.
    """

    task: Annotated[Literal["retrieval", "classification"] | None, store_as_none("retrieval")] = (
        None
    )
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
