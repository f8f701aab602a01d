"""Any sampler class that follows Optuna's interface, replayed from its seed for each proposal.

    sampler: {name: optuna, class: QMCSampler, options: {qmc_type: halton}}
    sampler: {name: optuna, class: "their_package:TheirSampler"}
    sampler: {name: optuna, class: "./path/to/package:Sampler"}  # with --allow-code

Such a sampler may keep a state of its own: a population, a position in a sequence. So each proposal
builds it anew with the search's seed and repeats the search: every earlier proposal is asked for
again, and every result is told when it was known. The state then follows from the results alone,
and none is stored. A proposal that did not come from the sampler, such as a listed point, is added
to its study as a finished trial.
"""

import importlib.util
import inspect
import sys
import warnings
from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationInfo, field_serializer, field_validator

from ablate.search.optuna_samplers import suggest_values
from ablate.search.sampling import SAMPLERS, ObservedTrial, Sampler, Sampling, draw_seed
from trainables.config.registry import Strict
from trainables.words.errors import ConfigError
from trainables.words.texts import expand_user_path

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import Trial


class OptunaSampler(Strict, extra="forbid", frozen=True):
    """A sampler class by its name.

    class: the name of a class in `optuna.samplers`, `module:Class` of an installed package, or
        `./path:Class` of a Python file or a package's folder, relative to the spec's file. A path
        needs `--allow-code`. The ids of sweep and proposals have a digest of the files instead.
    options: arguments of the class, without its seed.
    """

    name: Literal["optuna"] = "optuna"
    class_name: str = Field(alias="class")
    options: dict[str, Any] = Field({})

    @field_validator("class_name")
    @classmethod
    def check_allowed(cls, value: str, info: ValidationInfo) -> str:
        """Make a local path absolute; refuse to run its code without `--allow-code`."""
        text, _, name = value.rpartition(":")
        if "/" not in text and not text.endswith(".py"):
            return value
        context = info.context or {}
        path = Path(context.get("folder", "."), expand_user_path(text, "class")).absolute()
        if not context.get("allow_code"):
            raise ConfigError(
                "class",
                f"{path} is code, which would run with all your rights",
                "Read the code, then give --allow-code (`allow_code=True` in Python)",
            )
        return f"{path}:{name}"

    @field_serializer("class_name")
    def identify_class(self, value: str) -> str:
        """Return the class for identities and records, with a digest in place of a local path."""
        return f"{self.digest}:{value.rpartition(':')[2]}" if self.path is not None else value

    @property
    def path(self) -> Path | None:
        """The local file or folder that has the class; None for a class of an installed package."""
        path = self.class_name.rpartition(":")[0]
        return Path(path) if path.startswith("/") else None

    @cached_property
    def digest(self) -> str:
        """The digest of the local code when the spec was read, which is also when it is loaded."""
        assert self.path is not None
        return compute_code_digest(self.path)

    @cached_property
    def sampler_class(self) -> "type[BaseSampler]":
        """The class that the spec names, imported at the first use; a ConfigError if it fails."""
        from optuna.samplers import BaseSampler

        module_name, _, name = self.class_name.rpartition(":")
        module_name = module_name or "optuna.samplers"
        if self.path is None and module_name.partition(".")[0] not in packages_distributions():
            raise ConfigError(
                "sampler.class", f"{module_name!r} is no installed package", "Install it with pip"
            )
        try:
            if self.path is not None:
                module = load_code(self.path, self.digest)
            else:
                module = importlib.import_module(module_name)
            loaded = getattr(module, name)
        except Exception as error:  # a module may raise any exception when it is imported
            raise ConfigError(
                "sampler.class",
                f"{self.class_name!r} cannot be imported: {error}",
                "Correct the class name: write CLASS (of optuna.samplers), module:CLASS or "
                "./path:CLASS",
            ) from None
        if not (isinstance(loaded, type) and issubclass(loaded, BaseSampler)):
            raise ConfigError(
                "sampler.class",
                f"{self.class_name!r} is no Optuna sampler",
                "Name a subclass of BaseSampler",
            )
        return loaded

    @property
    def is_seeded(self) -> bool:
        """Whether the class takes a seed; without one a search cannot be resumed exactly."""
        return "seed" in inspect.signature(self.sampler_class).parameters

    def build(self, seed: int) -> "BaseSampler":
        """Build the sampler with its options, and with a seed if its class takes one."""
        import optuna

        seeded = {"seed": seed} if self.is_seeded else {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                return self.sampler_class(**self.options, **seeded)
        except (TypeError, ValueError, ImportError) as error:
            raise ConfigError(
                "sampler.options",
                f"{self.class_name} refuses these options: {error}",
                "Correct `options`",
            ) from None


def compute_code_digest(path: Path) -> str:
    """Return a hash of a file, or of all files of a package except hidden and compiled ones."""
    digest, is_package = sha256(), (path / "__init__.py").is_file()
    for file in sorted(path.rglob("*")) if is_package else [path]:
        name = file.relative_to(path)
        is_skipped = any(part.startswith((".", "__pycache__")) for part in name.parts)
        if file.is_file() and not is_skipped:
            digest.update(f"{name}\0{sha256(file.read_bytes()).hexdigest()}\0".encode())
    return digest.hexdigest()[:16]


def load_code(path: Path, digest: str) -> ModuleType:
    """Import a Python file or package; its digest in the module's name separates versions."""
    file = path / "__init__.py" if path.is_dir() else path
    spec = importlib.util.spec_from_file_location(f"ablate_local_{digest}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    # relative imports look the package up in `sys.modules`
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@SAMPLERS.register("optuna")
class AnyOptuna(Sampler):
    """Sample by any class of Optuna's interface (`OptunaSampler`), replayed for each proposal.

    Example:
        >>> axis = {"low": 1e-4, "high": 1e-2, "log": True}
        >>> study = Search(design="search", trials=8, space={"optimizer.lr": axis},
        ...     sampler={"name": "optuna", "class": "QMCSampler"})
        >>> proposal = AnyOptuna(study, key="tune").propose([])
        >>> 1e-4 <= proposal["optimizer.lr"] <= 1e-2
        True
    """

    @classmethod
    def check(cls, study: Sampling) -> None:
        """Check the sampler by building it and asking it for one proposal."""
        super().check(study)
        if not isinstance(study.sampler, OptunaSampler):
            raise ConfigError(
                "sampler",
                "the sampler optuna needs a class",
                "Write {name: optuna, class: CmaEsSampler}",
            )
        study.sampler.build(0)
        try:
            cls(study, "check").propose([])
        except Exception as error:  # a sampler's class may raise any exception
            raise ConfigError(
                "sampler",
                f"{study.sampler.class_name} cannot sample this space: {error}",
                "Change `space` or the class",
            ) from None

    def propose(self, earlier: Sequence[ObservedTrial]) -> dict[str, Any]:
        """Repeat the search in a new study of Optuna, and return the sampler's next proposal."""
        import optuna

        assert isinstance(self.study.sampler, OptunaSampler)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of experimental classes, among others
            study = optuna.create_study(
                directions=list(self.study.directions),
                sampler=self.study.sampler.build(draw_seed(self.key, 0)),
            )
            # an exhausted grid would end the study; here its values repeat until the last trial
            study.stop = lambda: None
            running: dict[int, Trial] = {}
            # ask for each earlier proposal again, after telling the results known at that time
            for index, proposal in enumerate(earlier):
                self._tell_results(study, running, earlier, proposal.concurrent)
                running[index] = study.ask()
                suggest_values(running[index], self.study.space)
            waiting = tuple(i for i, proposal in enumerate(earlier) if proposal.running)
            self._tell_results(study, running, earlier, waiting)
            return suggest_values(study.ask(), self.study.space)

    def _tell_results(
        self,
        study: "Study",
        running: "dict[int, Trial]",
        earlier: Sequence[ObservedTrial],
        waiting: Sequence[int],
    ) -> None:
        """Tell Optuna the known results of running trials, and remove these from `running`.

        Args:
            running: index of a proposal → Optuna's trial, which has no result yet.
            earlier: all earlier proposals.
            waiting: indices of proposals whose results were not known at this time.
        """
        from optuna.trial import TrialState, create_trial

        for index in [i for i in running if i not in waiting and not earlier[i].running]:
            trial, space, recorded = running.pop(index), self.study.space, earlier[index].params
            params = {path: space[path].to_optuna(value) for path, value in recorded.items()}
            values, suggested = earlier[index].values, trial.params.items()
            is_suggested = params == {path: space[path].to_level(v) for path, v in suggested}
            if is_suggested and values is not None:
                study.tell(trial, list(values))
                continue
            # the proposal failed, or the spec lists it in place of what the sampler suggested
            study.tell(trial, state=TrialState.FAIL)
            if values is not None:
                distributions = {path: space[path].to_optuna_distribution() for path in params}
                study.add_trial(
                    create_trial(params=params, distributions=distributions, values=list(values))
                )
