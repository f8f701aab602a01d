"""Any loss of pytorch-metric-learning, by its class name, for methods that need only embeddings.

    loss: {name: pml, class: CircleLoss, options: {m: 0.4, gamma: 80}}

It needs `pip install 'pytorch-metric-learning>=2.8'`. A wrong class or option is refused when the
trial's configuration is read: the loss is built and called with a batch of eight.

Shape legend: B queries · D embedding dimensions · S label slots · `...` leading dimensions.
"""

import inspect
from difflib import get_close_matches
from importlib import import_module
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, create_model
from torch import Generator, Tensor, nn

from trainables.config.registry import ComponentConfig, NamedConfig
from trainables.losses.base import LOSSES, Geometry, Loss, Traits, Trial, check_one_label
from trainables.streams import seed_global_generator

LIBRARY = "pytorch_metric_learning"
SIZE_ARGUMENTS = ("num_classes", "embedding_size")
Options = dict[str, bool | int | float | str | None]


# `class` is a keyword of Python, so that the field cannot be written in a class body.
CLASS_FIELD: dict[str, Any] = {"class": (str, ...)}


class PartOptions(ComponentConfig):
    """class: name of the class in the library. options: keyword arguments of the class."""

    options: Options = Field(default_factory=dict)


Part = create_model(
    "Part",
    __base__=PartOptions,
    __module__=__name__,
    __doc__="A class of the library and its options.",
    **CLASS_FIELD,
)


class PmlOptions(PartOptions, NamedConfig):
    """The numbers of classes and dimensions are passed to every class that takes them.

    class: name of the class in `pytorch_metric_learning.losses`.
    options: keyword arguments of the class.
    miner: class of the library's `miners` with its options; None: no miner.
    distance: class of the library's `distances` with its options; None: the loss's default.
    Sources: class, options, miner, distance: the library.
    """

    name: Literal["pml"] = "pml"
    miner: Part | None = None
    distance: Part | None = None


@LOSSES.register("pml")
class Pml(Loss):
    """Compute a loss of pytorch-metric-learning, with its default reduction:

        L = losses.CLASS(**options)(z, labels, miner(z, labels))

    It takes embeddings, not scores, so methods with a score of their own or label sets are refused.
    All its parameters (class weights, proxies) are in the group "proxies". Retrieval compares
    embeddings by the loss's distance if that is cosine, dot product or Euclidean (normalised if
    the loss normalises), else by cosine. Its random numbers are seeded from the step's generator,
    which waits for the device at each step. Shapes inside depend on the batch.

    Example:
        >>> config = Pml.Config.model_validate({"name": "pml", "class": "ContrastiveLoss"})
        >>> loss = Pml(config, classes=2, dim=2)
        >>> query = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.8, 0.6]])
        >>> round(loss.compute_from_embeddings(query, torch.tensor([[0], [0], [1], [1]])).item(), 3)
        1.379

    References:
        Musgrave et al., "PyTorch Metric Learning", 2020. https://arxiv.org/abs/2008.09164
    """

    REVISION = 1
    takes: ClassVar[Literal["score", "embeddings"]] = "embeddings"
    Config: ClassVar[type[NamedConfig]] = create_model(
        "Config",
        __base__=PmlOptions,
        __module__=__name__,
        __doc__=PmlOptions.__doc__,
        **CLASS_FIELD,
    )

    @classmethod
    def check(cls, trial: Trial, method: Traits) -> None:
        """Refuse a trial whose library loss cannot run, by calling the loss with a small batch."""
        check_one_label(trial, method, "passes one class index for each image to its library")
        if method.own_scores:
            raise ValueError(
                f"method {trial.method.name} does not compare plain embeddings, and a loss of "
                "pytorch-metric-learning computes its own scores from plain embeddings. Take one "
                "of this project's losses."
            )
        assert isinstance(trial.loss, PmlOptions)
        dim, labels = trial.embedding.dim, torch.arange(8) // 2
        with seed_global_generator(0, "pml"):
            module, miner = build_parts(trial.loss, classes=4, dim=dim)
            try:
                x = torch.randn(8, dim, requires_grad=True)
                value = module(x, labels, None if miner is None else miner(x, labels))
            except Exception as error:
                raise _build_refusal(trial.loss, error) from error
        if not (isinstance(value, Tensor) and value.shape == ()):
            raise ValueError(
                f"the value of {getattr(trial.loss, 'class')} must be one number, not a tensor of "
                "several. Leave the option reducer out."
            )

    def __init__(self, config: PmlOptions, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.module, self.miner = build_parts(config, classes=classes, dim=dim)
        self.geometry = find_geometry(self.module.distance)

    def compute_from_embeddings(
        self, query: Tensor, labels: Tensor, *, generator: Generator | None = None
    ) -> Tensor:
        """Return the library's loss of query[..., B, D]; its random draws come from `generator`."""
        if generator is None:
            return self._compute_loss(query, labels)
        # `fork_rng` restores the CPU's generator, and those of the GPUs that are listed.
        devices = [query.device] if query.device.type == "cuda" else []
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            return self._compute_loss(query, labels)

    def _compute_loss(self, query: Tensor, labels: Tensor) -> Tensor:
        """Call the library's loss for each leading index of query[..., B, D]; return the mean."""
        classes, values = labels[:, 0], []
        batches = query.flatten(0, -3) if query.dim() > 2 else query[None]
        for x in batches:
            indices = None if self.miner is None else self.miner(x, classes)
            values.append(self.module(x, classes, indices))
        return torch.stack(values).mean()


def build_parts(
    config: PmlOptions, *, classes: int, dim: int
) -> tuple[nn.Module, nn.Module | None]:
    """Build the library's loss and its miner (or None), which share the configured distance.

    Raises:
        ValueError: the library is not installed, or it refuses a class or an option.
    """
    shared: dict[str, Any] = {}
    if config.distance is not None:
        shared["distance"] = _build_part("distances", config.distance)
    loss = _build_part("losses", config, num_classes=classes, embedding_size=dim, **shared)
    return loss, None if config.miner is None else _build_part("miners", config.miner, **shared)


def find_geometry(distance: Any) -> Geometry:
    """Return the geometry by which retrieval compares, for a distance class of the library."""
    normalize = bool(distance.normalize_embeddings)
    name = type(distance).__name__
    if name == "DotProductSimilarity":
        return Geometry("dot", normalize)
    if name == "LpDistance" and distance.p == 2:
        return Geometry("l2", normalize)
    return Geometry("cosine")  # CosineSimilarity, or a distance without a `Geometry`


def _build_part(kind: str, part: Any, **arguments: Any) -> nn.Module:
    """Build the class of `part` from the library's module `kind`, with the sizes that it takes."""
    name = getattr(part, "class")
    try:
        library = vars(import_module(f"{LIBRARY}.{kind}"))
    except ImportError as error:
        raise ValueError(
            "loss pml needs a library. Run `pip install 'pytorch-metric-learning>=2.8'`."
        ) from error
    if name not in library:
        near = "".join(f", such as {match}" for match in get_close_matches(name, library, 1))
        raise ValueError(f"{LIBRARY}.{kind} has no class {name}. Name one of its classes{near}.")
    try:
        # of SIZE_ARGUMENTS pass those that the constructor of the class or of a base class takes
        bases = [base for base in library[name].__mro__ if "__init__" in vars(base)]
        parameters = {p for base in bases for p in inspect.signature(base.__init__).parameters}
        taken = {k: v for k, v in arguments.items() if k in parameters or k not in SIZE_ARGUMENTS}
        built: nn.Module = library[name](**part.options, **taken)
    except Exception as error:
        raise _build_refusal(part, error) from error
    return built


def _build_refusal(part: Any, error: Exception) -> ValueError:
    """Return an error that quotes why the library cannot build or call a class with its options."""
    name, first_line = getattr(part, "class"), next(iter(str(error).splitlines()), "")
    options = ", ".join(f"{k}={v}" for k, v in part.options.items())
    return ValueError(
        f"pytorch-metric-learning cannot compute {name}({options}) from embeddings and labels: "
        f"{first_line or type(error).__name__}. Change the class or its options."
    )
