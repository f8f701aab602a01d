"""What a trial is asked: which images it is tried on, how it is read, and by what it is selected.

    retrieval       classes that did not train; each image looks for others of its class
    classification  other images of the classes that trained; each is told by the class weights

All that tells them apart is here, as one object each. The core asks its trial's task, plans ask
which metrics a task has, `data.split.by` says which images it is tried on; nobody asks for a name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from torch import Tensor

from trainables.config.sections import Trial
from trainables.data.splits import Subset
from trainables.errors import ConfigError
from trainables.evaluation.metrics import (
    ACCURACY,
    METRICS,
    PER_EPOCH,
    evaluate,
    of_embeddings,
    of_split,
)
from trainables.evaluation.scores import Score


class Asked(Protocol):
    """A network in evaluation mode."""

    def embed(self, inputs: Tensor) -> Tensor:
        """[N, ...] → [N, E]."""

    def retrieval_score(self) -> Score:
        """How embeddings are compared."""

    def logits(self, inputs: Tensor) -> Tensor:
        """[N, ...] → [N, C], of the training classes."""


class Task(ABC):
    """name: in `task`. by: what `data.split` deals.

    given: what a trial of this task has where its configuration does not say.
    per_epoch, metrics: read after each epoch, and once at the end. selected: those an epoch can be
        chosen by, first the one that is meant unless another is said.
    """

    name: str
    by: str | None
    given: Mapping[str, Any]
    per_epoch: tuple[str, ...]
    metrics: tuple[str, ...]
    selected: tuple[str, ...]

    @abstractmethod
    def reads(self, metric: str) -> bool:
        """Whether `read` knows a metric."""

    @abstractmethod
    def answer(self, network: Asked, inputs: Tensor) -> Tensor:
        """[N, ...] → [N, A], what is read of each image: its embedding, or its logits."""

    @abstractmethod
    def read(
        self,
        network: Asked,
        answers: Tensor,
        subset: Subset,
        metrics: Sequence[str],
        restarts: int | None,
    ) -> dict[str, float]:
        """Evaluate a split.

        Args:
            answers: [N, A] of its images, in order. restarts: of k-means.

        Raises:
            ConfigError, TrialFailure: as `evaluate`.
        """

    def check(self, trial: Trial, *, loss: bool, method: bool) -> None:
        """Refuse what has no meaning in this task.

        Args:
            loss, method: whether the trial's can tell classes.

        Raises:
            ConfigError: its path is the dotted place in the trial.
        """
        if trial.data.split.by != self.by:
            raise ConfigError(
                "data.split.by",
                f"{trial.data.split.by or 'classes'} with task: {self.name}",
                self.by or "classes",
                "Leave it out; the task says it",
            )
        if trial.selection.metric not in self.selected:
            raise ConfigError(
                "selection.metric",
                f"{trial.selection.metric} with task: {self.name}",
                f"one of {', '.join(self.selected)}",
                "Change it, or leave it out",
            )


class Retrieval(Task):
    name, by = "retrieval", None
    given: Mapping[str, Any] = MappingProxyType({})
    per_epoch, metrics = PER_EPOCH, METRICS
    selected = ("map_at_r", "r_precision", "recall_at_1")

    def reads(self, metric: str) -> bool:
        return of_embeddings(metric)

    def answer(self, network: Asked, inputs: Tensor) -> Tensor:
        return network.embed(inputs)

    def read(
        self,
        network: Asked,
        answers: Tensor,
        subset: Subset,
        metrics: Sequence[str],
        restarts: int | None,
    ) -> dict[str, float]:
        score = network.retrieval_score()
        return of_split(answers, subset, score=score, metrics=metrics, restarts=restarts)


class Classification(Task):
    """Batches are random ones, `training.per_class: 1`, unless a trial says else."""

    name, by = "classification", "images"
    per_epoch = metrics = selected = ("top_1_accuracy", "top_5_accuracy")
    given: Mapping[str, Any] = MappingProxyType(
        {
            "data": {"split": {"by": "images"}},
            "training": {"per_class": 1},
            "selection": {"metric": "top_1_accuracy"},
        }
    )

    def reads(self, metric: str) -> bool:
        return metric in ACCURACY

    def answer(self, network: Asked, inputs: Tensor) -> Tensor:
        return network.logits(inputs)

    def read(
        self,
        network: Asked,
        answers: Tensor,
        subset: Subset,
        metrics: Sequence[str],
        restarts: int | None,
    ) -> dict[str, float]:
        labels = subset.labels.to(answers.device)
        return evaluate(answers, labels, score="dot", metrics=metrics, logits=answers)

    def check(self, trial: Trial, *, loss: bool, method: bool) -> None:
        super().check(trial, loss=loss, method=method)
        for part, name, can, known in (
            ("loss", trial.loss.name, loss, "a softmax over one weight vector a class"),
            ("method", trial.method.name, method, "plain or idml, which leave the classes' scores"),
        ):
            if not can:
                raise ConfigError(
                    f"{part}.name",
                    f"{name} with task: {self.name}",
                    f"{known}: this one is of retrieval alone",
                    f"Take another {part}",
                )
        if trial.evaluation.restarts is not None:
            raise ConfigError(
                "evaluation.restarts",
                f"{trial.evaluation.restarts} with task: {self.name}",
                "it with retrieval alone, for it is of k-means",
                "Leave it out",
            )


TASKS: Mapping[str, Task] = {task.name: task for task in (Retrieval(), Classification())}


def task_of(trial: Trial) -> Task:
    """The task of a trial."""
    return TASKS[trial.task or "retrieval"]
