"""The tasks of a trial: how data are split, which metrics are computed, which select an epoch.

    retrieval       on classes without training images: find other images of the query's class
    classification  on other images of the training classes: classify them by the class weights

Each task is one object, so that other code need not branch on its name.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from torch import Tensor

from trainables.config.sections import Trial
from trainables.data.splits import Subset
from trainables.evaluation.metrics import (
    ACCURACY,
    evaluate_embeddings,
    evaluate_split,
    needs_embeddings_alone,
)
from trainables.evaluation.scores import Score
from trainables.words.errors import ConfigError
from trainables.words.metrics import ACCURACIES, AT_END, PER_EPOCH, SELECTING


class Embedder(Protocol):
    """Define what a task needs of a network in evaluation mode."""

    def embed(self, inputs: Tensor) -> Tensor:
        """Return the embeddings [N, E] of inputs [N, ...]."""

    def retrieval_score(self) -> Score:
        """Return the score by which embeddings are compared."""

    def logits(self, inputs: Tensor) -> Tensor:
        """Return the logits [N, C] of the training classes for inputs [N, ...]."""


class Task:
    """Define how trials of a task are split, evaluated and checked; the default is retrieval.

    Attributes:
        name: value of `task` in a configuration.
        by: value of `data.split.by` that the task needs: "images", or None, which means classes.
        defaults: values for a configuration that does not set them.
        per_epoch: metrics computed after each epoch.
        metrics: metrics computed at the end.
        selected: metrics that can select the best epoch, the default first.
    """

    name: ClassVar[str] = "retrieval"
    by: ClassVar[str | None] = None
    defaults: ClassVar[Mapping[str, Any]] = {}
    per_epoch: ClassVar[tuple[str, ...]] = PER_EPOCH
    metrics: ClassVar[tuple[str, ...]] = AT_END
    selected: ClassVar[tuple[str, ...]] = SELECTING

    def can_read(self, metric: str) -> bool:
        """Return whether the task can compute a metric from its answers."""
        return needs_embeddings_alone(metric)

    def compute_answers(self, network: Embedder, inputs: Tensor) -> Tensor:
        """Return the embeddings or logits [N, A] of inputs [N, ...]."""
        return network.embed(inputs)

    def read(
        self, network: Embedder, answers: Tensor, subset: Subset, **options: Any
    ) -> dict[str, float]:
        """Return metrics of a split by name, from the network's answers (embeddings) [N, A]."""
        return evaluate_split(answers, subset, score=network.retrieval_score(), **options)

    def check(self, trial: Trial, *, loss: bool, method: bool) -> None:
        """Refuse settings that do not suit the task. loss, method: whether they can classify."""
        if trial.data.split.by != self.by:
            by = trial.data.split.by or "classes"
            raise ConfigError(
                "data.split.by", f"task {self.name} cannot split by {by}", "Leave out data.split.by"
            )
        if trial.selection.metric not in self.selected:
            raise ConfigError(
                "selection.metric",
                f"task {self.name} cannot select epochs by {trial.selection.metric}",
                f"Take one of {', '.join(self.selected)}, or leave out selection.metric",
            )


class Classification(Task):
    """Classify further images of the training classes; batches are random by default."""

    name, by = "classification", "images"
    per_epoch = metrics = selected = ACCURACIES
    defaults: ClassVar[Mapping[str, Any]] = {
        "data": {"split": {"by": "images"}},
        "training": {"per_class": 1},
        "selection": {"metric": ACCURACIES[0]},
    }

    def can_read(self, metric: str) -> bool:
        return metric in ACCURACY

    def compute_answers(self, network: Embedder, inputs: Tensor) -> Tensor:
        return network.logits(inputs)

    def read(
        self, network: Embedder, answers: Tensor, subset: Subset, **options: Any
    ) -> dict[str, float]:
        """Return metrics of a split by name, from the network's answers (logits) [N, C]."""
        labels = subset.labels.to(answers.device)
        return evaluate_embeddings(answers, labels, score="dot", logits=answers, **options)

    def check(self, trial: Trial, *, loss: bool, method: bool) -> None:
        """Refuse wrong settings, a loss or method that cannot classify, and options of k-means."""
        super().check(trial, loss=loss, method=method)
        needs = {
            "loss": (loss, "a loss with a softmax over one weight vector for each class"),
            "method": (method, "the method plain or idml, which keep the scores of the classes"),
        }
        for part, (can_classify, need) in needs.items():
            if not can_classify:
                name = getattr(trial, part).name
                raise ConfigError(
                    f"{part}.name",
                    f"{name} supports only retrieval",
                    f"Task {self.name} needs {need}",
                )
        if trial.evaluation.restarts is not None:
            raise ConfigError(
                "evaluation.restarts",
                f"task {self.name} runs no k-means",
                "Leave out evaluation.restarts",
            )


TASKS: Mapping[str, Task] = {task.name: task for task in (Task(), Classification())}


def get_task(trial: Trial) -> Task:
    """Return the trial's task, retrieval by default."""
    return TASKS[trial.task or "retrieval"]
