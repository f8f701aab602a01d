"""Register components by name: losses, data sets, designs, tables, commands, …

A component registers under its name when its module is imported, or stands in an index. Packages
outside this one join through the entry-point group `ablate.<registry name>`.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Generic, TypeVar, get_args

from trainables.words.errors import ConfigError

T = TypeVar("T")


class Registry(Generic[T]):
    """Map names to components, loaded on first use from `modules` and entry points.

    All modules of a package are loaded, so adding a component takes only a new file. An entry point
    of `ablate.<name>` is a module that calls `register`, or an object that `adapt` converts.

    With an `index`, names are known before anything is imported, and each component is imported
    when it is first used. An entry point is then a component; one of the index has precedence.

    Args:
        name: name of the registry.
        modules: modules and packages with the registry's own components.
        adapt: converts (name of an entry point, its object) to a component.
        index: the registry's own components by name, each as `module:object`.
    """

    def __init__(
        self,
        name: str,
        *modules: str,
        adapt: Callable[[str, Any], T] | None = None,
        index: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.adapt, self.index = name, adapt, dict(index or {})
        self._modules = modules
        self._entries: dict[str, EntryPoint] = {}  # of a registry with an index
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
        group = f"ablate.{self.name}"
        entries = sorted(load_entry_points().select(group=group), key=lambda entry: str(entry.name))
        if self.index:
            own = {name: EntryPoint(name, target, group) for name, target in self.index.items()}
            self._entries = own | {entry.name: entry for entry in entries} | own
            return
        for entry in entries:
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
        if name in self._entries and name not in self._components:
            self._components[name] = self._entries[name].load()
        return self._components[name]

    def get(self, name: str) -> T | None:
        """Return a component, or None if the name is unknown."""
        if name not in self:
            return None
        return self[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over names: first components of `_modules`, in that order, then others sorted.

        With an index, its names come first.
        """
        self.load()
        if self.index:
            return iter(self._entries)
        module_of = {name: component.__module__ for name, component in self._components.items()}
        first = [name for name, module in module_of.items() if module in self._modules]
        first.sort(key=lambda name: self._modules.index(module_of[name]))
        return iter([*first, *sorted(module_of.keys() - set(first))])

    def __contains__(self, name: object) -> bool:
        self.load()
        return name in self._entries or name in self._components


def _find_origin(component: Any) -> tuple[str, str]:
    """Return a component's module and name, which are equal if it is loaded twice."""
    return component.__module__, getattr(component, "__qualname__", "")


@cache
def load_entry_points() -> Any:
    """Return the entry points of all packages, cached because reading them takes 20 ms."""
    return entry_points()
