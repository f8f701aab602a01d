"""Register named components, each with its own configuration.

A loss, a method or a data set is one class in one file. It has a `Config`, which checks ranges, and
a `REVISION`, and registers under its name:

    @LOSSES.register("normsoftmax")
    class NormSoftmax(Loss):
        REVISION = 1
        class Config(NamedConfig):
            name: Literal["normsoftmax"] = "normsoftmax"
            temperature: float = Field(0.05, gt=0)

`FromRegistry` turns a registry into a pydantic tagged union on `name`, so that an unknown
name or a misspelt option is an error with its path, and the JSON Schema lists everything.
Packages outside this one join through the entry-point group `ablate.<registry name>`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, reduce
from importlib import import_module
from importlib.metadata import entry_points
from operator import or_
from pkgutil import iter_modules
from types import ModuleType
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from trainables.words.errors import ConfigError

T = TypeVar("T")


class Strict(BaseModel):
    """Base of all models of a spec; number fields refuse true and false."""

    @model_validator(mode="before")
    @classmethod
    def refuse_booleans_for_numbers(cls, data: Any) -> Any:
        """Refuse booleans in number fields, because `epochs: true` would mean 1."""
        for key, value in data.items() if isinstance(data, dict) else ():
            values = value if isinstance(value, list | tuple) else [value]
            if any(isinstance(item, bool) for item in values) and _is_number_field(cls, key):
                raise ConfigError(
                    str(key),
                    f"{key} must be a number, not "
                    + (str(value).lower() if isinstance(value, bool) else "a list with true/false"),
                    "Write digits",
                )
        return data


def _is_number_field(model: type[BaseModel], key: str) -> bool:
    """Return whether the annotation of the model's field `key` has numbers and no booleans."""
    for name, info in model.model_fields.items():
        if key == (info.alias or name):
            types = set(re.findall(r"\w+", str(info.annotation)))
            return bool(types & {"int", "float"}) and not types & {"bool", "Any"}
    return False


class ComponentConfig(Strict):
    """Base of every configuration: no unknown keys, no silent coercion, immutable."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


def store_as_none(*defaults: Any) -> AfterValidator:
    """Return a validator that stores `defaults` as None.

    Writing such a default into a spec then keeps the trial's id, which contains no None.
    """
    return AfterValidator(lambda value: None if value in defaults else value)


def exclude_from_identity(default: Any, **constraints: Any) -> Any:
    """Return a field that is no part of a trial's id, because it cannot change its numbers."""
    return Field(default, json_schema_extra={"identity": False}, **constraints)


class NamedConfig(ComponentConfig):
    """Base of a component's configuration, which `name` identifies in its registry."""

    name: str


class Registry(Generic[T]):
    """Map names to components, loaded on first use from `modules` and entry points.

    All modules of a package are loaded, so adding a component takes only a new file. An entry point
    of `ablate.<name>` is a module that calls `register`, or an object that `adapt` converts.

    Args:
        name: name of the registry.
        modules: modules and packages with the registry's own components.
        adapt: converts (name of an entry point, its object) to a component.
    """

    def __init__(
        self, name: str, *modules: str, adapt: Callable[[str, Any], T] | None = None
    ) -> None:
        self.name, self.adapt = name, adapt
        self._modules = modules
        self._components: dict[str, T] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers a component as `name`, unless the name is taken."""

        def add(component: T) -> T:
            """Register and return a component; refuse a taken name, and an incomplete class."""
            other = self._components.get(name)  # may be the same component, loaded before
            if other is not None and _find_origin(other) != _find_origin(component):
                raise ConfigError(
                    f"{self.name}.{name}",
                    f"{name!r} is registered twice, by {other.__module__} and "
                    f"{component.__module__}",
                    "Rename one of the two",
                )
            for attribute in getattr(component, "REQUIRED", ()):
                if not hasattr(component, attribute):
                    raise ConfigError(
                        ".".join(_find_origin(component)),
                        f"{self.name}.{name} lacks {attribute}",
                        f"Add {attribute} to the class",
                    )
            fields = getattr(getattr(component, "Config", None), "model_fields", {})
            names = get_args(fields["name"].annotation) if "name" in fields else ()
            if names and name not in names:
                raise ConfigError(
                    ".".join(_find_origin(component)),
                    f"{self.name}.{name} has a Config whose `name` is {names[0]!r}",
                    f'Write `name: Literal["{name}"] = "{name}"`',
                )
            self._components[name] = component
            return component

        return add

    def load(self) -> None:
        """Import all modules and entry points that register components, on the first call only."""
        if self._loaded:
            return
        self._loaded = True
        for name in self._modules:
            package = import_module(name)
            for module in sorted(m.name for m in iter_modules(getattr(package, "__path__", []))):
                import_module(f"{name}.{module}")
        entries = load_entry_points().select(group=f"ablate.{self.name}")
        for entry in sorted(entries, key=lambda entry: str(entry.name)):
            target = entry.load()
            # a module that registers components when it is imported needs no adaptation
            has_registered = isinstance(target, ModuleType) and any(
                f"{component.__module__}.".startswith(f"{target.__name__}.")
                for component in self._components.values()
            )
            if self.adapt is not None and not has_registered:
                self.register(entry.name)(self.adapt(entry.name, target))

    def __getitem__(self, name: str) -> T:
        self.load()
        return self._components[name]

    def get(self, name: str) -> T | None:
        """Return a component, or None if the name is unknown."""
        self.load()
        return self._components.get(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over names: first components of `_modules`, in that order, then others sorted."""
        self.load()
        module_of = {name: component.__module__ for name, component in self._components.items()}
        first = [name for name, module in module_of.items() if module in self._modules]
        first.sort(key=lambda name: self._modules.index(module_of[name]))
        return iter([*first, *sorted(module_of.keys() - set(first))])

    def __contains__(self, name: object) -> bool:
        self.load()
        return name in self._components


def _find_origin(component: Any) -> tuple[str, str]:
    """Return a component's module and name, which are equal if it is loaded twice."""
    return component.__module__, getattr(component, "__qualname__", "")


@cache
def load_entry_points() -> Any:
    """Return the entry points of all packages, cached because reading them takes 20 ms."""
    return entry_points()


def build_choice_annotation(registry: Registry[Any], tag: str) -> Any:
    """Build an annotation for any model of a registry, discriminated by its field `tag`."""
    members = reduce(or_, (registry[name] for name in registry))
    return Annotated[members, Field(discriminator=tag)]


class FromRegistry:
    """Annotate a field that holds the `Config` of any class of a registry, selected by `name`.

    `default` is the name if the configuration has none.
    """

    discriminator: ClassVar[str] = "name"

    def __init__(self, registry: Registry[Any], default: str | None = None) -> None:
        self.registry = registry
        self.default = default

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return pydantic's schema: `name`, or else the default, selects the valid `Config`."""
        choices = {
            name: handler.generate_schema(self.registry[name].Config) for name in self.registry
        }
        union = core_schema.tagged_union_schema(choices=choices, discriminator=self.discriminator)
        if self.default is None:
            return union
        return core_schema.no_info_before_validator_function(self._add_default_name, union)

    def _add_default_name(self, value: Any) -> Any:
        return {"name": self.default, **value} if isinstance(value, Mapping) else value

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe the choices as JSON Schema, each class once even if it has two names.

        With a default the schema is `anyOf`, because an object without a name fits several choices.
        """
        described = handler(schema)
        if self.default is None:
            return described
        choices = {str(choice): choice for choice in described["oneOf"]}
        names = {"properties": {"name": {"enum": list(self.registry)}}}
        return {"anyOf": list(choices.values()), **names}
