"""Validates answers of the gateway against openapi.yaml (design decision 16)."""

import functools
import pathlib
import re
import urllib.parse

import jsonschema
import yaml

SPEC = pathlib.Path(__file__).resolve().parents[2] / "openapi.yaml"


@functools.lru_cache
def spec():
    return yaml.safe_load(SPEC.read_text())


@functools.lru_cache
def patterns():
    """[(compiled path pattern, path item)], below /v1 and bare as the document says."""
    out = []
    for path, item in spec()["paths"].items():
        mounts = {"bare-only": [""], "prefix-only": ["/v1"]}.get(item.get("x-mount"), ["", "/v1"])
        expression = re.sub(r"\{\w+\}", "[^/]+", path)
        out += [(re.compile(f"{mount}{expression}/?$"), item) for mount in mounts]
    return out


def inline(node):
    """The schema with its references filled in; there are no cycles."""
    if isinstance(node, dict):
        if "$ref" in node:
            target = spec()
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            return inline(target)
        return {k: inline(v) for k, v in node.items()}
    return [inline(v) for v in node] if isinstance(node, list) else node


def validate(method, target, status, content_type, document):
    """Raises jsonschema.ValidationError or AssertionError when the answer is not what openapi.yaml promises."""
    path = urllib.parse.urlsplit(target).path
    error = inline(spec()["components"]["schemas"]["Error"])
    item = next((item for pattern, item in patterns() if pattern.match(path)), None)
    operation = (item or {}).get({"HEAD": "get"}.get(method, method.lower()))
    if status >= 400 or operation is None:
        if method != "OPTIONS":
            jsonschema.validate(document, error)
        return
    promised = operation["responses"].get(str(status))
    assert promised, f"{method} {path} answered {status}, which openapi.yaml does not list"
    content = inline(promised).get("content", {})
    if len(content) > 1 and content_type.split(";")[0] in content.keys() - {"application/json"}:
        assert document is None, f"{method} {path}: JSON under another type"
        return
    schema = content.get("application/json", {}).get("schema")
    if schema is None:
        assert document is None, f"{method} {path}: a body where openapi.yaml promises none"
        return
    assert content_type == "application/json", content_type
    jsonschema.validate(document, schema, format_checker=jsonschema.FormatChecker())
