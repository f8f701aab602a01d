"""What a trial is asked: which images it is tried on, how it is read, and by what it is selected.

    retrieval       classes that did not train; each image looks for others of its class
    classification  other images of the classes that trained; each is told by the class weights

All that tells them apart is here, as one object each; nobody asks for a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from torch import Tensor

from trainables.config.sections import Trial
from trainables.data.splits import Subset
from trainables.errors import ConfigError
from trainables.evaluation.metrics import (
    ACCURACY,
    METRICS,
    PER_EPOCH,
    evaluate_embeddings,
    evaluate_split,
    needs_embeddings_alone,
)
from trainables.evaluation.scores import Score


class Answering(Protocol):
    """A network in evaluation mode."""

    def embed(self, inputs: Tensor) -> Tensor:
        """Map [N, ...] → [N, E]."""

    def retrieval_score(self) -> Score:
        """Return how embeddings are compared."""

    def logits(self, inputs: Tensor) -> Tensor:
        """Map [N, ...] → [N, C], of the training classes."""


class Task:
    """name: in `task`. by: what `data.split` deals.

    given: what a trial of this task has where its configuration does not say.
    per_epoch, metrics: read after each epoch, and once at the end. selected: those an epoch can be
        chosen by, first the one that is meant unless another is said.
    """

    name: ClassVar[str]
    by: ClassVar[str | None]
    given: ClassVar[Mapping[str, Any]] = {}
    per_epoch: ClassVar[tuple[str, ...]]
    metrics: ClassVar[tuple[str, ...]]
    selected: ClassVar[tuple[str, ...]]

    def can_read(self, metric: str) -> bool:
        """Return whether `read` knows a metric."""
        raise NotImplementedError

    def compute_answers(self, network: Answering, inputs: Tensor) -> Tensor:
        """Map [N, ...] → [N, A], what is read of each image: its embedding, or its logits."""
        raise NotImplementedError

    def read(
        self, network: Answering, answers: Tensor, subset: Subset, **options: Any
    ) -> dict[str, float]:
        """Evaluate a split by the answers [N, A] of its images, in order; options and errors as of
        `evaluate`."""
        raise NotImplementedError

    def check(self, trial: Trial, *, loss: bool, method: bool) -> None:
        """Refuse what has no meaning in this task.

        Args:
            loss, method: whether the trial's can tell classes.
        """
        if trial.data.split.by != self.by:
            by = trial.data.split.by or "classes"
            fault = f"{by} does not go with task: {self.name}, which says it itself: leave it out"
            raise ConfigError("data.split.by", fault)
        if trial.selection.metric not in self.selected:
            fault = (
                f"task: {self.name} is not selected by {trial.selection.metric}: take one of "
                f"{', '.join(self.selected)}, or leave it out"
            )
            raise ConfigError("selection.metric", fault)


class Retrieval(Task):
    name, by = "retrieval", None
    per_epoch, metrics = PER_EPOCH, METRICS
    selected = ("map_at_r", "r_precision", "recall_at_1")

    def can_read(self, metric: str) -> bool:
        return needs_embeddings_alone(metric)

    def compute_answers(self, network: Answering, inputs: Tensor) -> Tensor:
        return network.embed(inputs)

    def read(
        self, network: Answering, answers: Tensor, subset: Subset, **options: Any
    ) -> dict[str, float]:
        return evaluate_split(answers, subset, score=network.retrieval_score(), **options)


class Classification(Task):
    """Batches are random ones, `training.per_class: 1`, unless a trial says else."""

    name, by = "classification", "images"
    per_epoch = metrics = selected = ("top_1_accuracy", "top_5_accuracy")
    given: ClassVar[Mapping[str, Any]] = {
        "data": {"split": {"by": "images"}},
        "training": {"per_class": 1},
        "selection": {"metric": "top_1_accuracy"},
    }

    def can_read(self, metric: str) -> bool:
        return metric in ACCURACY

    def compute_answers(self, network: Answering, inputs: Tensor) -> Tensor:
        return network.logits(inputs)

    def read(
        self, network: Answering, answers: Tensor, subset: Subset, **options: Any
    ) -> dict[str, float]:
        labels = subset.labels.to(answers.device)
        return evaluate_embeddings(answers, labels, score="dot", logits=answers, **options)

    def check(self, trial: Trial, *, loss: bool, method: bool) -> None:
        super().check(trial, loss=loss, method=method)
        needs = {
            "loss": (loss, "a softmax over one weight vector a class"),
            "method": (method, "plain or idml, which leave the classes' scores"),
        }
        for part, (fits, expected) in needs.items():
            if not fits:
                name = getattr(trial, part).name
                fault = f"{name} is of retrieval alone; task: {self.name} takes {expected}"
                raise ConfigError(f"{part}.name", fault)
        if trial.evaluation.restarts is not None:
            fault = f"it is of k-means, which task: {self.name} has none of: leave it out"
            raise ConfigError("evaluation.restarts", fault)


TASKS: Mapping[str, Task] = {task.name: task for task in (Retrieval(), Classification())}


def get_task(trial: Trial) -> Task:
    return TASKS[trial.task or "retrieval"]
