"""Show attrs classes with the arguments that they take."""

import pydoc

import attrs
import griffe


class AttrsClasses(griffe.Extension):
    """Give each attrs class the ``__init__`` that attrs makes."""

    def on_package(self, *, pkg, **_):
        add_to_classes(pkg)


def add_to_classes(parent):
    for member in parent.members.values():
        if member.is_alias:
            continue
        if member.is_class and is_attrs_class(member) and "__init__" not in member.members:
            fields = [field for field in attrs.fields(pydoc.locate(member.path)) if field.init]
            parameters = [griffe.Parameter("self"), *map(parameter_of, sorted(fields, key=lambda field: field.kw_only))]
            member.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*parameters)))
        if member.is_module or member.is_class:
            add_to_classes(member)


def is_attrs_class(found):
    return any(str(decorator.value).startswith(("attrs.define", "attrs.frozen")) for decorator in found.decorators)


def parameter_of(field):
    kind = griffe.ParameterKind.keyword_only if field.kw_only else griffe.ParameterKind.positional_or_keyword
    default = None if field.default is attrs.NOTHING else repr(field.default)
    if default is not None and (isinstance(field.default, attrs.Factory) or default.startswith("<")):
        default = "..."  # It has no short text.
    return griffe.Parameter(field.alias, annotation=str(field.type), kind=kind, default=default)
