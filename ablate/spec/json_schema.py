"""The JSON Schema of a spec file, for editors."""

from typing import Any

from ablate.spec.default_space import DEFAULT
from ablate.spec.model import Spec
from trainables.trial import TrialConfig

FOR_MEANING = (
    "factors of the spec, or levels by factor: the study is made for each combination of these "
    "(`ablate/spec/templates.py`)."
)


def build_json_schema() -> dict[str, Any]:
    """Build the JSON Schema of a spec file, with all registered methods and losses.

    Partial trials have the schema of TrialConfig; any dotted key is accepted, since a schema cannot
    list them all.
    """
    # add the schema of a trial, with dotted keys
    schema = Spec.model_json_schema(by_alias=True)
    trial = TrialConfig.model_json_schema(by_alias=True)
    schema["$defs"] |= trial.pop("$defs", {}) | {"TrialConfig": trial}
    for definition in schema["$defs"].values():
        if "properties" in definition and definition.get("additionalProperties") is False:
            definition["patternProperties"] = {r"^[a-z_0-9]+(\.[a-z_0-9]+)+$": {}}
    partial = {"$ref": "#/$defs/TrialConfig"}
    schema["properties"]["trial"] = partial
    schema["properties"]["datasets"] = {"type": "object", "additionalProperties": partial}
    # accept `default` in place of axes
    for definition in schema["$defs"].values():
        properties = definition.get("properties", {})
        if properties.get("design", {}).get("const") == "search":
            axes = properties["space"]
            one_axis = {"anyOf": [axes["additionalProperties"], {"const": DEFAULT}]}
            axes["additionalProperties"] = one_axis
            axis_map = {key: axes.pop(key) for key in ("type", "additionalProperties")}
            axes["anyOf"] = [{"const": DEFAULT}, axis_map]
    # accept `for` in studies, and names of factors in `cross`
    names = {"type": "array", "items": {"type": "string"}}
    for definition in schema["$defs"].values():
        properties = definition.get("properties", {})
        if "design" in properties:
            properties["for"] = {"description": FOR_MEANING, "anyOf": [names, {"type": "object"}]}
        if "cross" in properties:
            properties["cross"] = {"anyOf": [names, properties["cross"]]}
    # accept a single item in place of a list with one item
    for definition in schema["$defs"].values():
        properties = definition.get("properties", {})
        if "around" not in properties:
            continue
        properties["trial"] = partial
        around = properties["around"]
        several = {"type": "array", "items": {"$ref": "#/$defs/Around"}}
        around["anyOf"] = [around.pop("items"), several]
        around.pop("type", None)
    files = {"type": "array", "items": {"type": "string"}}
    schema["properties"]["extends"] = {"anyOf": [{"type": "string"}, files]}
    sources = schema["$defs"]["Recipe"]["properties"]["sources"]
    sources["anyOf"] = [{"type": "string"}, {"type": "array", "items": sources.pop("items")}]
    del sources["type"]
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "ablate sweep"
    return schema
