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
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar

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
from trainables.words.registry import Registry


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
